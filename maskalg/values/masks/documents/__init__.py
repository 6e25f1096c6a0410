"""Masks of tokens: packed documents, trees, shared prefixes, media."""
