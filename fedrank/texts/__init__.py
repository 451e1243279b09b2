"""Organisations search and learn over each other's texts: CS-F-LTR."""
