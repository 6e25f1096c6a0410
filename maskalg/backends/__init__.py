"""Backends, which compute attention from an expression. Each is imported when first used."""
