"""The size that sketches of documents need: ``fedrank privacy sketch``."""
