"""Queries, documents, labels: readers, catalogue, generator, partitions (layer 1)."""
