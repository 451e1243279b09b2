"""Configuration -> run -> files (layer 6)."""
