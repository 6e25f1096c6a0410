"""Proofs about the walk: it visits each tile with a kept pair once, and skips the mask only in full
tiles."""
