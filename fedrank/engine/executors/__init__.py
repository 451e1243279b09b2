"""Who computes many pieces of work that do not need each other: one process, several, or a cluster of Dask or Ray."""
