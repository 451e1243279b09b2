"""Rows that were followed until an event or until nobody looked any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fedrank.core.errors import DataError


class Followed(NamedTuple):
    """The rows of one silo.

    Attributes:
        x: Columns.
        time: Time of the event, or until which a row was followed without one; at least 0.
        event: 1 where there was an event, 0 where following ended (censored).
    """

    x: Float[np.ndarray, "rows columns"]
    time: Float[np.ndarray, " rows"]
    event: Float[np.ndarray, " rows"]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.time)

    def checked(self, name: str) -> Followed:
        """The same without rows that lack a value.

        Raises:
            DataError: A time is below 0, or an event is neither 0 nor 1.
        """
        whole = ~(np.isnan(self.x).any(axis=1) | np.isnan(self.time) | np.isnan(self.event))
        kept = Followed(self.x[whole], self.time[whole], self.event[whole])
        if len(odd := np.flatnonzero(~np.isfinite(self.time) & ~np.isnan(self.time) | (self.time < 0))):
            row = int(odd[0])
            raise DataError(
                f"times of silo {name!r} must be finite and at least 0, got {self.time[row]:g} in its row {row + 1}."
            )
        if not np.isin(kept.event, (0, 1)).all():
            raise DataError(f"events of silo {name!r} must be 0 (censored) or 1, got {np.unique(kept.event)[:5]}.")
        return kept


def event_times(silos: Sequence[Followed]) -> Float[np.ndarray, " times"]:
    """The times at which anybody had an event, ascending."""
    return np.unique(np.concatenate([silo.time[silo.event > 0] for silo in silos]))
