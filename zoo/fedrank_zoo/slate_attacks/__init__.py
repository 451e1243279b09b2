"""Attacks on the messages of platforms that learn slates together."""
