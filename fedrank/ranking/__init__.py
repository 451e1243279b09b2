"""Devices learn to rank from clicks: FOLtR-ES, FPDGD and central learners."""
