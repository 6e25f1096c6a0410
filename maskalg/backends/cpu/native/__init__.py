"""The CPU backend's kernels: an expression's hooks as C++, compiled once for a structure."""
