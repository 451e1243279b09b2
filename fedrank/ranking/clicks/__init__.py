"""Click models of simulated users."""
