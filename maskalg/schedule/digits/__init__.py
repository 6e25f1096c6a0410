"""The rung of digits with numbers put in."""
