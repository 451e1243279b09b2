"""One message of a silo with a record's ε: sums of its rows with noise, and what others get of it."""
