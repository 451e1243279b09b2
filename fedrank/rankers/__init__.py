"""Features to scores (layer 2)."""
