"""Worlds: users whose state changes with what they are shown (layer 3)."""
