"""Formulas: nodes, the parameters they read, and what is told from a formula alone."""
