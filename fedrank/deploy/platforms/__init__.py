"""Platforms that share users, and their coordinator, as processes of their own: see :mod:`.platform` and :mod:`.rounds`."""
