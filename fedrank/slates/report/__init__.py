"""Pages and tables of runs of platforms."""
