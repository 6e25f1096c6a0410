"""Readers of rendered text: they share no code with what wrote it."""
