"""Search sessions: a query is ranked, a simulated user clicks."""
