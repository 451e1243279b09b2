"""Policies to judge by a log: the probability of each item at each position, the same for all users."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import polars as pl
from jaxtyping import Float64, Shaped

from fedrank.core.errors import ConfigError, FormatError, MissingDataError
from fedrank.slates.logged.log import ITEM, POSITION

#: Column of a policy's file.
PROBABILITY = "probability"
#: How far probabilities of a position may be from 1 together.
_ROUNDED = 1e-3
#: Draws behind the probabilities of Thompson sampling.
DRAWS = 20_000
#: Numbers drawn at once.
_BLOCK = 2_000_000

#: π(item | position): columns sum to 1.
Table = Float64[np.ndarray, "items positions"]


def uniform(items: int, positions: int) -> Table:
    """Every item equally often."""
    return np.full((items, positions), 1.0 / items)


def best(means: Table, n: int) -> Table:
    """The ``n`` items of the highest mean reward at each position, equally often; of equal ones the first.

    Raises:
        ConfigError: There are not as many items.
    """
    if not 1 <= n <= len(means):
        raise ConfigError(f"best-{n}: there are {len(means)} items.")
    table = np.zeros_like(means)
    np.put_along_axis(table, np.argsort(-means, axis=0, kind="stable")[:n], 1.0 / n, axis=0)
    return table


def thompson(counted: Float64[np.ndarray, "2 items positions"], seed: int = 0, draws: int = DRAWS) -> Table:
    """Bernoulli Thompson sampling: the items of the highest rates that are drawn from what is known of each.

    Of an item shown n times with c clicks the rate is Beta(1 + c, 1 + n − c), whatever the position; the highest rate
    drawn is shown at the first position, the next at the second, and so on (as the policy of the Open Bandit Dataset).
    Probabilities are counted over draws.

    Args:
        counted: :func:`~fedrank.slates.logged.clicks.counts`, of clicks.
        seed: Of the draws.
        draws: Their number.

    Raises:
        ConfigError: Something other than clicks was earned, or there are fewer items than positions.
    """
    shown, clicks = counted.sum(axis=2)
    items, positions = counted.shape[1:]
    if (clicks < 0).any() or (clicks > shown).any():
        raise ConfigError("thompson is for clicks; what was earned is not between 0 and 1 a row.")
    if positions > items:
        raise ConfigError(f"thompson shows different items at {positions} positions, and there are {items}.")
    rng, table, left = np.random.default_rng(seed), np.zeros((items, positions)), draws
    while left:
        some = min(left, max(1, _BLOCK // items))
        rates = rng.beta(1.0 + clicks, 1.0 + shown - clicks, (some, items))
        highest = np.argsort(-rates, axis=1)[:, :positions]
        for position in range(positions):
            table[:, position] += np.bincount(highest[:, position], minlength=items)
        left -= some
    return table / draws


def read_policy(
    path: str | os.PathLike[str], item_ids: Shaped[np.ndarray, " items"], position_ids: Shaped[np.ndarray, " positions"]
) -> Table:
    """A policy from a file with the columns item_id, position and probability; what is missing has probability 0.

    Without a column ``position`` the probabilities are those of every position.

    Args:
        path: The file, comma-separated.
        item_ids: Identifiers of the items.
        position_ids: Identifiers of the positions.

    Raises:
        FormatError: It is no such file, names an unknown item or position, or the probabilities of a position are none.
    """
    file = Path(path)
    if not file.is_file():
        raise MissingDataError("there is no such policy: give uniform, best-N, thompson or a file.", file)
    try:
        frame = pl.read_csv(file, infer_schema_length=10_000)
    except pl.exceptions.PolarsError as cause:
        raise FormatError(f"is no table of commas: {str(cause).splitlines()[0]}", file) from cause
    if missing := {ITEM, PROBABILITY} - set(frame.columns):
        raise FormatError(f"a policy needs the columns item_id and probability; there is no {min(missing)}.", file, 1)
    if not frame[PROBABILITY].dtype.is_numeric() or frame.null_count().sum_horizontal().sum():
        raise FormatError("every row needs a probability that is a number, and no cell may be empty.", file)
    values, table = frame[PROBABILITY].to_numpy().astype(np.float64), np.zeros((len(item_ids), len(position_ids)))
    rows = _places(frame[ITEM], item_ids, file)
    if POSITION in frame.columns:
        columns = _places(frame[POSITION], position_ids, file)
        twice = len(np.unique(np.stack([rows, columns]), axis=1)[0]) < len(rows)
        table[rows, columns] = values
    else:
        twice = len(np.unique(rows)) < len(rows)
        table[rows] = values[:, None]
    if twice:
        raise FormatError("an item has two probabilities at one position.", file)
    sums = table.sum(axis=0)
    if not (np.isfinite(table).all() and (table >= 0).all() and (np.abs(sums - 1) < _ROUNDED).all()):
        said = ", ".join(f"{one:.4g}" for one in sums[:5])
        raise FormatError(f"the probabilities of a position must be at least 0 and sum to 1, got sums {said}.", file)
    return table / sums


def _places(column: pl.Series, ids: Shaped[np.ndarray, " ids"], file: Path) -> np.ndarray:
    values = column.cast(pl.String).to_numpy().astype(str) if ids.dtype.kind == "U" else column.to_numpy()
    if ids.dtype.kind != "U" and values.dtype.kind not in "iu":
        raise FormatError(f"column {column.name} must have whole numbers, as in the log.", file)
    places = np.minimum(np.searchsorted(ids, values), len(ids) - 1)
    if (wrong := ids[places] != values).any():
        raise FormatError(f"{column.name} {values[wrong][0]} is not in the logs.", file, int(np.argmax(wrong)) + 2)
    return places
