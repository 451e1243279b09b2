"""Ranges of columns that are public before any row is read.

What one record can change is bounded only if its values are. The bounds must not come from the rows: the largest age
of a hospital's patients is one patient's age. They are those of a codebook, a device, or a convention.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.silos.data.splits import Standards


def parse_ranges(texts: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Ranges as a command line has them: ``age=20:90``; the last ``=`` divides, so that a level may have one.

    Raises:
        ConfigError: One cannot be read.
    """
    out = {}
    for text in texts:
        name, _, ends = text.rpartition("=")
        try:
            low, high = map(float, ends.split(":") if name else ())
        except ValueError:
            raise ConfigError(f"a range is written as column=low:high, such as age=0:110; got {text!r}.") from None
        out[name] = (low, high)
    return out


def check_ranges(names: Sequence[str], given: Mapping[str, tuple[float, float]]) -> None:
    """Refuse ranges that are of no column, or are none.

    Raises:
        UnknownNameError: A range is of no column.
        ConfigError: A range is not two numbers that rise.
    """
    for name, (low, high) in given.items():
        if name not in names:
            raise UnknownNameError("column with a range", name, names)
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise ConfigError(f"the range of {name!r} must be two numbers that rise, got {low:g} to {high:g}.")


def standards_of(names: Sequence[str], given: Mapping[str, tuple[float, float]]) -> Standards:
    """Mean and deviation by which a network's inputs are scaled: the middle of a range, and a quarter of it.

    Args:
        names: The columns; one that is a level, such as ``sex=male``, is 0 or 1.
        given: Smallest and largest value of each column of numbers.

    Raises:
        UnknownNameError: A range is of no column.
        ConfigError: A column has none, or a range is none.
    """
    check_ranges(names, given)
    if unknown := [name for name in names if name not in given and "=" not in name]:
        raise ConfigError(
            f"record-level privacy needs a range of every column, and there is none of {', '.join(unknown)}. Give what "
            f"the codebook says, such as privacy.ranges {unknown[0]}=0:100, or leave the column out (silos.drop); do "
            "not look it up in the rows, which would tell what is in them."
        )
    low, high = np.array([given.get(name, (0.0, 1.0)) for name in names]).T
    return (low + high) / 2, (high - low) / 4
