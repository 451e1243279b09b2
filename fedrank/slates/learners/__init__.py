"""Learners of slates: SlateQ, choice models, replay buffers."""
