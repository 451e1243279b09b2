"""A query under a ranker meets a user: scores -> ranking -> clicks (layer 3)."""
