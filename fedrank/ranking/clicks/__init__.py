"""Click models: which documents of a shown list a simulated user clicks."""
