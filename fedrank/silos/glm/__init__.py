"""Newton's method on sums over silos, and moments of their columns."""
