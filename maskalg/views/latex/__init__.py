"""Formulas typeset in LaTeX."""
