"""Tile shapes: tables by architecture, head dimension and dtype, and what was tuned."""
