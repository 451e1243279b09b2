"""The protocols, vectorised: a scan over rounds, a map over parties and seeds (layer 5)."""
