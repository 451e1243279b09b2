"""Mechanisms for the data that leaves a party, and accounts of their ε (layer 2)."""
