"""What the page of a run over silos shows."""
