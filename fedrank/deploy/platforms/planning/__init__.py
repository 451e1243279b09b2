"""Planned slates with platforms and a coordinator as processes: see :mod:`.platform` and :mod:`.coordinator`."""
