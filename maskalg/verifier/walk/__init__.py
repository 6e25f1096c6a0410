"""Proofs that each tile with a kept pair is visited once, and without the mask only if full."""
