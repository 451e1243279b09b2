"""Commands; heavy libraries are imported by the command that needs them (layer 8)."""
