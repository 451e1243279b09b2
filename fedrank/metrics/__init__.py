"""How good a ranking is: from clicks, and from labels (layer 2)."""
