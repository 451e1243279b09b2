"""The checks of a running hub: the tests over its rounds, what the log has of them, the halt and its alarm."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from fedrank.core.trees import Json
from fedrank.deploy.hub.checks.alarm import Alarm
from fedrank.deploy.hub.checks.evidence import half_width
from fedrank.deploy.hub.checks.watch import Judgement, Watch
from fedrank.deploy.hub.settings import HubSettings
from fedrank.deploy.hub.store import Halt, Store

_log = logging.getLogger("fedrank.hub")
#: Most rounds of which the status says what checks said.
_SHOWN = 400


class Comparing:
    """Checks of a hub; called by its writer thread, :meth:`as_json` by any.

    Args:
        settings: Settings of the hub, whose terms have checks.
        store: The log.
    """

    def __init__(self, settings: HubSettings, store: Store):
        self._settings, self._alarm = settings, Alarm(settings.alert_command, settings.alert_url)
        self._watch = Watch(settings.terms(store.name), settings.check_margin, settings.check_alarm, store.watch())
        self._history = store.judgements()
        self._halts = store.halts()
        self._name, self._last = store.name, (-1, None)
        if self.halted:
            self._alarm.raise_(self._words())  # of the process before; a second alarm is better than none

    @property
    def best(self) -> int:
        """Round of the best model."""
        return self._watch.best

    @property
    def halted(self) -> bool:
        """Whether the hub is halted."""
        return bool(self._halts) and self._halts[-1].resumed is None

    @property
    def state(self) -> str:
        """State of the tests."""
        return self._watch.state

    def judge(self, round_: int, messages: Sequence[bytes]) -> Judgement | None:
        """What the checks of a round say; the same again when it is asked again."""
        number, found = self._last
        if number != round_:
            found = self._watch.judge(round_, messages)
            self._last = (round_, found)
            if found is not None:
                self._history.append(found)
        return found

    def halt(self, round_: int) -> None:
        """Say that the hub has halted before a round; the log has it already."""
        self._halts.append(Halt(round_, self.best, time.time(), None))
        words = self._words()
        _log.error("%s", words["words"])
        self._alarm.raise_(words)

    def resumed(self) -> str:
        """The state of the tests after the end of a halt, to be written."""
        self._watch.resumed()
        return self._watch.state

    def resume(self) -> None:
        """Say that the halt is over; the log has it already."""
        last = self._halts[-1]
        self._halts[-1] = Halt(last.round, last.best, last.halted, time.time())
        _log.warning("resumed: round %d goes on from the model of round %d", last.round, last.best)

    def _words(self) -> dict[str, Json]:
        """The alert of the newest halt."""
        halt = self._halts[-1]
        return {
            "hub": self._name,
            "alert": "model-sinks",
            "since": halt.halted,
            "round": halt.round - 1,
            "best": halt.best,
            "words": f"The model of round {halt.round - 1} ranks worse than that of round {halt.best}. Learning is "
            f"halted and the model of round {halt.best} is served. See what happened since, then: fedrank hub resume",
        }

    def as_json(self) -> dict[str, Any]:
        """``checks`` and ``alert`` of the status."""
        about = self._watch.as_json()
        largest, alpha = self._watch.estimates.largest, self._settings.check_alarm
        half = half_width(about["checks"], largest, alpha) if about["checks"] else None
        stride = -(-len(self._history) // _SHOWN) or 1
        return {
            "checks": {
                **about,
                "largest": largest,
                "share": self._settings.checks,
                "low": None if half is None else about["mean"] - half,
                "high": None if half is None else about["mean"] + half,
                "rounds": [_point(self._history[i : i + stride]) for i in range(0, len(self._history), stride)],
                "halts": [
                    {"round": one.round, "best": one.best, "halted": one.halted, "resumed": one.resumed}
                    for one in self._halts
                ],
            },
            "alert": self._words() if self.halted else None,
        }


def _point(rounds: Sequence[Judgement]) -> dict[str, Json]:
    """Neighbouring rounds as one point."""
    checks = sum(one.checks for one in rounds)
    mean = sum(one.mean * one.checks for one in rounds) / checks
    errors = [one.error for one in rounds]
    square = None if None in errors else sum((one.error or 0.0) ** 2 * one.checks**2 for one in rounds) / checks**2
    half = None if square is None else 1.96 * square**0.5
    return {
        "round": rounds[-1].round,
        "best": rounds[-1].best,
        "checks": checks,
        "mean": mean,
        "low": None if half is None else mean - half,
        "high": None if half is None else mean + half,
        "promoted": any(one.promoted for one in rounds),
    }
