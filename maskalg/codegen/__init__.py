"""Formulas and closed forms as the text of kernel hooks."""
