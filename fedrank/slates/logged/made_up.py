"""Made-up logs of two platforms, for whoever has none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from fedrank.slates.logged.log import CLICK, ITEM, POSITION, PROPENSITY

_ROWS, _ITEMS, _POSITIONS = 6000, 20, 3


def write_logs(folder: Path, seed: int = 0) -> None:
    """Write two logs of the same items: one platform shows them at random, the other rather those that it prefers.

    Args:
        folder: Made if it is not there; the files are ``even.csv`` and ``choosy.csv``.
        seed: Of everything.
    """
    rng = np.random.default_rng(seed)
    rates = rng.beta(2.0, 30.0, (_ITEMS, _POSITIONS))
    folder.mkdir(parents=True, exist_ok=True)
    preferences = {"even": np.ones(_ITEMS), "choosy": np.exp(rng.normal(size=_ITEMS))}
    for name, weights in preferences.items():
        chances = weights / weights.sum()
        items, positions = rng.choice(_ITEMS, _ROWS, p=chances), rng.integers(_POSITIONS, size=_ROWS)
        frame = pl.DataFrame(
            {
                ITEM: items,
                POSITION: positions + 1,
                CLICK: (rng.random(_ROWS) < rates[items, positions]).astype(int),
                PROPENSITY: chances[items],
            }
        )
        frame.write_csv(folder / f"{name}.csv")
