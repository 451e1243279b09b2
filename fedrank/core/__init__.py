"""The vocabulary everything else is written in (layer 0)."""
