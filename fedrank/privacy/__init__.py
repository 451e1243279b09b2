"""What may leave a party, and what it costs (layer 2)."""
