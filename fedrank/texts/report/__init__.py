"""Pages and tables of runs over texts."""
