"""Ranges of columns that everybody knows before any row is looked at, and rows brought into a ball by them.

What one record can change is bounded only if its values are. The bounds must not come from the rows: the largest age
of a hospital's patients is somebody's age. They are those of a codebook, a device, or a convention.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fedrank.core.errors import ConfigError, UnknownNameError

#: Length of a row, as a share of the longest that there can be, beyond which it is shortened.
_CLIP = 0.6


class Ranges(NamedTuple):
    """Public ranges of columns.

    Attributes:
        names: Names of the columns.
        low: Smallest values.
        high: Largest values.
        clip: Largest length of a row in units of half a range; longer ones are shortened to it.
    """

    names: tuple[str, ...]
    low: Float[np.ndarray, " columns"]
    high: Float[np.ndarray, " columns"]
    clip: float

    @property
    def standards(self) -> tuple[Float[np.ndarray, " columns"], Float[np.ndarray, " columns"]]:
        """Mean and deviation by which a network's inputs are scaled: the middle of a range, and a quarter of it."""
        return (self.low + self.high) / 2, (self.high - self.low) / 4

    def scaled(self, x: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, "rows columns"]:
        """Rows by :attr:`standards`; 0 for what is missing. A network's gradient is bounded, its inputs need not be."""
        middle, quarter = self.standards
        return np.nan_to_num((x - middle) / quarter, nan=0.0)

    def rows(self, x: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, "rows columns+1"]:
        """Rows with a one in front, each column from −1 to 1, and no row but for the one longer than ``clip``.

        What is missing becomes the middle of its range: a silo's own mean would depend on all of its records.
        """
        middle, half = (self.high + self.low) / 2, (self.high - self.low) / 2
        made = np.nan_to_num((np.clip(x, self.low, self.high) - middle) / half, nan=0.0)
        length = np.linalg.norm(made, axis=1, keepdims=True)
        return np.column_stack([np.ones(len(x)), made * np.minimum(1.0, self.clip / np.maximum(length, 1e-12))])


def ranges_of(names: Sequence[str], given: Mapping[str, tuple[float, float]], clip: float | None = None) -> Ranges:
    """The ranges of a table's columns.

    Args:
        names: Its columns; those of levels, such as ``sex=male``, are 0 or 1.
        given: Smallest and largest value of each other column.
        clip: Largest length of a row, in half ranges; None: three fifths of the square root of the number of columns,
            which cuts few rows whose values lie about the middle.

    Raises:
        UnknownNameError: A range is of no column.
        ConfigError: A column has none, a range is none, or ``clip`` is not above 0.
    """
    for name, (low, high) in given.items():
        if name not in names:
            raise UnknownNameError("column with a range", name, names)
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise ConfigError(f"the range of {name!r} must be two numbers that rise, got {low:g} to {high:g}.")
    unknown = [name for name in names if name not in given and "=" not in name]
    if unknown:
        raise ConfigError(
            f"record-level privacy needs a range of every column, and there is none of {', '.join(unknown)}. Give what "
            f"the codebook says, such as --range {unknown[0]}=0:100; do not look it up in the rows, which would tell "
            "the largest and the smallest of them."
        )
    ends = [given.get(name, (0.0, 1.0)) for name in names]
    longest = _CLIP * float(np.sqrt(len(names))) if clip is None else clip
    if not 0 < longest < np.inf:
        raise ConfigError(f"clip must be above 0 and finite, got {longest:g}.")
    low, high = (np.array(one, float) for one in zip(*ends, strict=True))
    return Ranges(tuple(names), low, high, longest)


def parsed(texts: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Ranges as a command line has them: ``age=20:90``; the last ``=`` divides, so that a level may have one.

    Raises:
        ConfigError: One cannot be read.
    """
    out = {}
    for text in texts:
        name, _, ends = text.rpartition("=")
        try:
            low, high = (float(end) for end in ends.split(":"))
        except ValueError:
            raise ConfigError(f"a range is written as column=low:high, such as age=0:110; got {text!r}.") from None
        if not name:
            raise ConfigError(f"a range is written as column=low:high, such as age=0:110; got {text!r}.")
        out[name] = (low, high)
    return out
