"""Numbers written with their nouns, as sentences for people need them, such as "1 message" and "2,000 messages"."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """A number and a noun in its number.

    >>> counted(1, "round"), counted(2000, "round")
    ('1 round', '2,000 rounds')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
