"""A witness of hubs' public logs: ``fedrank hub witness``."""
