"""Contents of the page of a run of rankers."""
