"""Backends: what computes attention from an expression. Each is imported when first used."""
