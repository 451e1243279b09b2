"""Platforms that share users and their coordinator, as processes: see :mod:`.platform` and :mod:`.rounds`."""
