"""What the page of a run of rankers shows."""
