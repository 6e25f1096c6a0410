"""The rung of intervals with numbers put in."""
