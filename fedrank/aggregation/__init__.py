"""What a server makes of the replies of parties, some of whom may lie (layer 2)."""
