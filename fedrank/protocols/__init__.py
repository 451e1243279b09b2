"""One paper, one file, next to its equations (layer 4)."""
