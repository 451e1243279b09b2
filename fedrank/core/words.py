"""Text for people: numbers with their nouns, such as "1 message" and "2,000 messages", and text from outside."""

from __future__ import annotations

import re

#: Characters that a terminal may obey, or that change the order in which a line is read: control characters but tab and
#: end of line, separators of lines, directional overrides and isolates; and halves of surrogate pairs.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def format_count(count: int, noun: str) -> str:
    """A number and a noun in its number.

    >>> format_count(1, "round"), format_count(2000, "round")
    ('1 round', '2,000 rounds')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def printable(text: str, *, lines: bool = False) -> str:
    r"""Text from outside for a terminal, with control characters as escapes (such as ``\x1b``), which do nothing.

    Args:
        text: Such as a title, a name or a message of another machine.
        lines: Keep ends of lines and tabs; otherwise all whitespace becomes single spaces.
    """
    text = text.replace("\r\n", "\n") if lines else " ".join(text.split())
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
