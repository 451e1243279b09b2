"""Logs of what real users clicked: users as clients, in their order of time."""
