"""Launching kernels, the first time and again."""
