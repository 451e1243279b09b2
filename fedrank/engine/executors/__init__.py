"""Executors for many independent pieces of work: in one process, in several, or on a cluster of Dask or Ray."""
