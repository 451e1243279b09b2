"""A hub's status for its page and its metrics: rounds, rewards, bytes, ε.

Everything follows from the log, so that a restart loses nothing but the counts since the start.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Collection
from typing import Any

import numpy as np

from fedrank import __version__
from fedrank.core.privacy_report import BASIC, Unit
from fedrank.core.trees import Json
from fedrank.deploy.hub.settings import HubSettings
from fedrank.deploy.hub.store import RoundRow, Store

#: Most points of the curve that is shown; neighbouring rounds of longer histories are averaged.
POINTS = 400


class Tally:
    """Statistics of a hub's rounds; updated by the writer thread, read by any thread.

    Args:
        settings: Settings of the hub.
        store: The hub's log, read once.
    """

    def __init__(self, settings: HubSettings, store: Store):
        self.settings, self.terms, self.protocol = settings, settings.terms(store.name), settings.protocol()
        self.started = time.time()
        self._epsilon: dict[str, Json] = {}
        # Of each device, in applied rounds; with tokens nobody knows, and a device may have reported in each epoch.
        self._messages = {} if self.terms.tokens else store.reports_of_devices()
        self._rows = [row for row in store.rounds() if row.state == "applied"]
        self._epochs = {row.number // self.terms.tokens for row in self._rows} if self.terms.tokens else set()
        self._all = sum(row.reports or 0 for row in self._rows)
        self._top = max(self._messages.values(), default=len(self._epochs))
        self._account(self._top)  # the first takes a second
        self._history: list[dict[str, Json]] = _points(self._rows)

    def applied(self, row: RoundRow, devices: Any) -> None:
        """Add a round that was applied.

        Args:
            row: Row of the round in the log.
            devices: Numbers of the devices that reported.
        """
        if self.terms.tokens:
            self._epochs.add(row.number // self.terms.tokens)
            self._top, devices = len(self._epochs), ()
        for device in devices:
            self._messages[device] = self._messages.get(device, 0) + 1
            self._top = max(self._top, self._messages[device])
        self._rows.append(row)
        self._all += row.reports or 0
        self._history = _points(self._rows)

    @property
    def rounds(self) -> int:
        """The first round that is not counted yet."""
        return self._rows[-1].number + 1 if self._rows else 0

    def _most(self, round_: int, counted: Collection[int]) -> int:
        """Most counted messages of one device, those of the open round included."""
        if self.terms.tokens:
            return self._top + bool(counted and round_ // self.terms.tokens not in self._epochs)
        return max([self._top, *(self._messages.get(device, 0) + 1 for device in counted)])

    def _account(self, most: int) -> dict[str, Json]:
        """ε of an interaction, of a message, and of a device that sent ``most`` messages."""
        if self._epsilon.get("messages_most") == most:
            return self._epsilon
        report = self.protocol.account(most, self.settings.delta)

        def finite(value: float) -> float | None:
            return value if math.isfinite(value) else None

        self._epsilon = {
            "interaction": finite(self.terms.epsilon_interaction),
            "message": finite(self.terms.epsilon_message),
            "messages_most": most,
            "user_basic": finite(report.epsilon(Unit.USER, basis=BASIC)),
            "user": finite(report.epsilon(Unit.USER)),
            "delta": self.settings.delta,
        }
        return self._epsilon

    def status(
        self,
        round_: int,
        state: str,
        devices: int,
        counted: Collection[int],
        seconds_open: float,
        checks: int = 0,
    ) -> dict[str, Json]:
        """What the status page shows; JSON-able.

        Args:
            round_: Number of the open round, or of the next one.
            state: ``"open"``, ``"between"``, ``"done"`` or ``"halted"``.
            devices: Number of enrolled devices.
            counted: Numbers of the devices whose reports count in the open round.
            seconds_open: Seconds for which the round has been open.
            checks: Number of these reports that compare models, from which the model does not learn.
        """
        s, t = self.settings, self.terms
        return {
            "hub": t.hub,
            "version": __version__,
            "protocol": t.protocol,
            "now": time.time(),
            "started": self.started,
            "round": round_,
            "state": state,
            "seconds_open": seconds_open,
            "deadline_s": s.deadline or None,
            "least_s": s.round_seconds,
            "cohort": s.cohort,
            "least": s.least,
            "reports": len(counted) - checks,
            "checked": checks,
            "due": t.due,
            "applied": len(self._rows),
            "rounds": s.rounds,
            "devices": devices,
            "ranker": t.ranker,
            "n_features": t.n_features,
            "weights": t.size,
            "reward": t.metric.name,
            "mechanism": t.mechanism,
            "interactions": t.interactions,
            "sigma": t.sigma,
            "tokens": t.tokens,
            "batch": t.batch,
            "epsilon": self._account(self._most(round_, counted)),
            "bytes": {
                "report": t.reply.nbytes,
                "model": t.request.nbytes,
                "reports": (self._all + len(counted)) * t.reply.nbytes,
            },
            "history": self._history,
        }


def _points(rows: list[RoundRow]) -> list[dict[str, Json]]:
    """Points of the curve: one a round, or one for every few rounds where there are many."""
    stride = -(-len(rows) // POINTS) or 1
    return [_point(rows[i : i + stride]) for i in range(0, len(rows), stride)]


def _point(rows: list[RoundRow]) -> dict[str, Json]:
    known = [row.reward for row in rows if row.reward is not None]
    mean = float(np.mean(known)) if known else None
    halves = [_half(row) for row in rows if row.reward is not None]
    wide = None if not halves or None in halves else math.hypot(*halves) / len(halves)  # type: ignore[arg-type]
    return {
        "round": rows[-1].number,
        "reports": sum(row.reports or 0 for row in rows),
        "reward": mean,
        "low": None if mean is None or wide is None else mean - wide,
        "high": None if mean is None or wide is None else mean + wide,
        "seconds": float(np.mean([row.seconds or 0.0 for row in rows])),
    }


def _half(row: RoundRow) -> float | None:
    """Half the width of the 95 % interval of a round's mean: Student's t, because cohorts may be small."""
    return None if row.error is None else row.error * _student(max(1, (row.reports or 2) - 1))


@functools.cache
def _student(freedom: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.975))
