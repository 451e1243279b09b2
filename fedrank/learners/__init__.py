"""Rankers that learn from every interaction: scores -> ranking -> clicks -> new weights (layer 4)."""
