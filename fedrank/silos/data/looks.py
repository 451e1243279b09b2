"""What looks wrong in a table of silos: identifiers, copies of the label, codes for missing values, far outliers.

Nothing is changed here. Each finding names the column, says why, and which setting would mend it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

#: Numbers that are often written where nobody knows the value.
SENTINELS = (-1, -7, -8, -9, -77, -88, -99, -777, -888, -999, -9999, 77, 88, 99, 777, 888, 999, 9999, 99999)
#: Fewest rows for an identifier or a copy of the label to be told from chance.
_FEWEST = 20
#: A value that is further from the median than so many times the spread of the middle nine tenths flattens a column.
_FAR = 50.0


def looks_wrong(
    x: Float[np.ndarray, "rows features"], y: Int[np.ndarray, " rows"], names: Sequence[str]
) -> tuple[str, ...]:
    """A sentence for each column that may not be what a model should learn from.

    Args:
        x: Features of all silos; NaN where a value is missing.
        y: Labels, 0 or 1.
        names: Names of the features.
    """
    out = []
    for k, name in enumerate(names):
        column = x[:, k].astype(float)
        known = ~np.isnan(column)
        values, labels = column[known], y[known]
        if len(values) < _FEWEST:
            continue
        if _tells(values, labels):
            out.append(
                f"{name!r} tells the label by itself, as a copy of it would; if it is one, drop it (drop: {name})."
            )
        elif _identifies(values):
            out.append(f"{name!r} has another whole number in every row, as an identifier has; drop it (drop: {name}).")
        else:
            far = _outlier(values)
            code = _sentinel(values if far is None else values[values != far])  # an outlier hides a code
            if code is not None:
                count = int((values == code).sum())
                out.append(
                    f"{name!r} is {code:g} in {count} rows, far from its other values, as a code for a missing value "
                    f"is; if it is one, say so (missing: {code:g})."
                )
            if far is not None:
                out.append(
                    f"{name!r} has a value of {far:.3g}, so far from the others that it flattens the column; mend it, "
                    f"or drop the column (drop: {name})."
                )
    return tuple(out)


def _tells(values: Float[np.ndarray, " rows"], y: Int[np.ndarray, " rows"]) -> bool:
    """Whether the smallest value of one label is above the largest of the other."""
    ones, zeros = values[y > 0], values[y <= 0]
    if min(len(ones), len(zeros)) < _FEWEST // 4:
        return False
    return bool(ones.min() > zeros.max() or zeros.min() > ones.max())


def _identifies(values: Float[np.ndarray, " rows"]) -> bool:
    whole = np.all(values == np.round(values)) and len(np.unique(values)) == len(values)
    # Counted through: few numbers are left out between the smallest and the largest.
    return bool(whole and values.max() - values.min() < 3 * len(values))


def _sentinel(values: Float[np.ndarray, " rows"]) -> float | None:
    for code in SENTINELS:
        there = values == code
        rest = values[~there]
        if there.sum() < 2 or len(np.unique(rest)) < 3:
            continue
        low, high = rest.min(), rest.max()
        apart = low - code if code < low else code - high if code > high else -1.0
        # A negative number where there is no other, or one that lies further off than the others lie apart.
        if (code < 0 <= low) or apart > (high - low):
            return float(code)
    return None


def _outlier(values: Float[np.ndarray, " rows"]) -> float | None:
    """The value furthest from the others, if it lies far from them and occurs once."""
    low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
    far = np.abs(values - middle)
    place = int(far.argmax())
    once = (values == values[place]).sum() == 1
    return float(values[place]) if high > low and once and far[place] > _FAR * (high - low) else None
