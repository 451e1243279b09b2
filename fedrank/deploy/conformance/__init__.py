"""Whether a client keeps to the wire format: a hub that plays scenes, and what must be seen of a client in each."""
