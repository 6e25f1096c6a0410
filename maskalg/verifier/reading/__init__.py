"""Readers of generated text, which share no code with its writers."""
