"""A proof in words and in LaTeX."""
