"""Values of a table's cells, as numbers or as names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def as_number(value: Any) -> float | None:
    """The number that a value is, also one written as text; None if it is not one. True and False are not numbers."""
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def as_codes(values: Sequence[Any]) -> list[str | None]:
    """Values as names; if all are numbers, 1 and 1.0 get the same name."""
    numbers = [None if v is None else as_number(v) for v in values]
    all_numbers = all(n is not None or v is None for n, v in zip(numbers, values, strict=True))
    # Beyond 2^53, and for infinity and NaN, a float would merge what differs.
    if all_numbers and all(n is None or abs(n) < 2**53 for n in numbers):
        return [None if n is None else repr(int(n)) if n.is_integer() else repr(n) for n in numbers]
    return [None if v is None else str(v) for v in values]
