"""Who clicks and why (layer 2)."""
