"""What the page of a run over texts shows."""
