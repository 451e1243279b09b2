"""Protocols vectorised over rounds, parties and seeds (layer 5)."""
