"""Tiles decided from summaries of blocks, and evaluation of those that stay open."""
