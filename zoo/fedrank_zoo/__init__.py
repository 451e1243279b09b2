"""Further published methods for fedrank, each in one file, found by entry points."""
