"""Simulated people with real devices, as processes on one machine."""
