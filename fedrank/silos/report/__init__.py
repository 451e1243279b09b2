"""The page of a run over silos."""
