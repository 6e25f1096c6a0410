"""Formulas: nodes, the parameters they read, and facts that follow from a formula alone."""
