"""Tile shapes: tables by architecture, head dimension and dtype, and tuned tiles."""
