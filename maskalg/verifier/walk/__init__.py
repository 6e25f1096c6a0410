"""Proofs about the walk: each tile with a kept pair once, and without the mask only if full."""
