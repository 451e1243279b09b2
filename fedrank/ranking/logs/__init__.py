"""A team's click log: read, position bias, a ranker learnt from it, and what it would have been worth."""
