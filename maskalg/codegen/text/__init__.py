"""Formulas as Triton source and as PTX."""
