"""Click models fitted to a log: ``fedrank data clicks fit``."""
