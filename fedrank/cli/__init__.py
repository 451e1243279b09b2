"""The ``fedrank`` command (layer 8). Heavy libraries are imported where a command needs them."""
