"""Readers of rendered text, which share no code with its writers."""
