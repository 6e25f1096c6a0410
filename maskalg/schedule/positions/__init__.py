"""Clauses decided position by position: sets, sections and relations."""
