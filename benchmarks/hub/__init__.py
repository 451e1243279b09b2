"""A hub under load, faults, kill -9, attackers and devices that do not trust it."""
