"""What the page of a run of platforms shows."""
