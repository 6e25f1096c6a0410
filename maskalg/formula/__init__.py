"""Formulas: nodes, the parameters they read, and facts that a formula alone tells."""
