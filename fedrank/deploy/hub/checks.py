"""Checks: some devices compare the newest model with the best one so far; a hub whose model sinks notices and halts.

A check is about the model of its round and the *best* one, that of an earlier round. What it tells is a number whose
mean is the difference of the two, between −1 and 1: of the privatised difference what it stands for, of two privatised
sums their difference with the lies taken out. Two tests run side by side, each valid at any time (:class:`Evidence`):

*sinks*   The newest is worse by more than a margin. Where money reaches 1/α the hub halts. If no model is ever worse
          by more than the margin, that happens with probability at most α over the hub's whole life.
*rises*   The newest is better by more than the margin: it is the best from then on, and the test begins anew. The
          model that is promoted is one that the newest checks were about.

**The margin** keeps the noise of learning around its best model from being an alarm, and is what liars have to
overcome: a share f of checks that all lie moves the mean by at most f · (1 + ``largest``). With a margin of that they
can neither halt a hub whose model is as good as its best, nor have a worse model promoted.

**Evidence** is a *test martingale* (Shafer, Shen, Vereshchagin and Vovk, "Test Martingales, Bayes Factors and
p-Values", Statistical Science 2011; for bounded numbers Waudby-Smith and Ramdas, "Estimating means of bounded random
variables by betting", JRSS B 2024, Section 4): a gambler with 1 unit bets, before each number comes, that it will be
below the bound. If the mean of every number, given those before, is at least the bound, the gambler's money is expected
not to grow. By Ville's inequality it then ever reaches 1/α with probability at most α, however long the game goes on
and whenever it is looked at.

How much to bet and when to begin is not known, so the money is divided among gamblers: they begin in different rounds,
1/(j(j + 1)) of it in round j, and bet different parts of what they may, equally many. Those who begin when the model
begins to sink have not lost what others lost while it rose. Of all who bet the same part only the sum of their money is
needed, which makes a step of a few numbers::

    S ← (S + 1/(j(j + 1))) · Π (1 − λ (x − bound)),        money = mean of S over λ + 1/(t + 1) after t rounds
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import math
import shlex
import subprocess
import threading
import time
import urllib.request
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from fedrank.core.trees import Json
from fedrank.deploy.hub.settings import HubSettings
from fedrank.deploy.hub.store import Halt, Judgement, Store
from fedrank.deploy.terms import Terms
from fedrank.privacy.randomised_response import debias

#: Parts of the largest bet that gamblers bet; with the largest, one number may cost them all they have.
FRACTIONS = tuple(0.5**k for k in range(1, 9))
#: Money is not counted beyond this.
_RICH = 1e300


class Evidence:
    """Evidence that the mean of bounded numbers is below a bound.

    Args:
        bound: The bound.
        highest: Largest number that can come, above the bound.
        kept: The result of an earlier :meth:`as_json`; None at the beginning.
    """

    def __init__(self, bound: float, highest: float, kept: dict[str, Any] | None = None):
        self.bound, self.highest = bound, highest
        self._sums = np.array([0.0] * len(FRACTIONS) if kept is None else kept["sums"], np.float64)
        self._rounds = 0 if kept is None else int(kept["rounds"])

    def add(self, numbers: Sequence[float] | Float[np.ndarray, " numbers"]) -> None:
        """Add the numbers of one round, in any order; none of them is above ``highest``."""
        x = np.asarray(numbers, np.float64) - self.bound
        self._rounds += 1
        bets = np.array(FRACTIONS) / (self.highest - self.bound)
        gains = np.log1p(-bets[:, None] * x).sum(axis=1)
        begun = self._sums + 1 / (self._rounds * (self._rounds + 1))
        self._sums = np.exp(np.minimum(np.log(begun) + gains, math.log(_RICH)))

    @property
    def money(self) -> float:
        """Money that 1 has become; above 1/α the mean is below the bound, but for a chance of at most α."""
        return float(self._sums.mean()) + 1 / (self._rounds + 1)

    def as_json(self) -> dict[str, Any]:
        """The state, from which another process goes on."""
        return {"sums": self._sums.tolist(), "rounds": self._rounds}


def half_width(numbers: int, largest: float, alpha: float, about: int = 1000) -> float:
    """Half the width of an interval around the mean of numbers that holds at all times together.

    The normal mixture of Robbins ("Statistical Methods Related to the Law of the Iterated Logarithm", Annals of
    Mathematical Statistics 1970) for numbers within ±``largest``, which are sub-Gaussian with that as their deviation
    (Hoeffding's lemma).

    Args:
        numbers: How many numbers, at least 1.
        largest: Largest absolute value.
        alpha: Chance that the interval ever misses the mean of the means.
        about: Number of numbers at which the interval is the narrowest that it can be.
    """
    r = about / (2 * math.log(1 / alpha) + math.log(2 * math.log(1 / alpha) + 1))  # near the best, Howard et al. 2021
    return largest / numbers * math.sqrt((numbers + r) * math.log((numbers + r) / (r * alpha**2)))


class Estimates:
    """Numbers that checks tell, whose mean is the difference of the two models, from −1 to 1.

    Args:
        terms: Terms of the hub, which have checks.

    Attributes:
        largest: Largest absolute value of such a number.
    """

    def __init__(self, terms: Terms):
        assert terms.check is not None
        self._terms, self._layout = terms, terms.check
        if terms.number_mechanism is not None:
            self.largest = terms.number_mechanism.scale
        else:
            most = np.array([float(terms.per_half * terms.metric.largest)])
            self.largest = float(self._difference(most, np.zeros(1))[0])

    def of(self, messages: Sequence[bytes]) -> Float[np.ndarray, " checks"]:
        """The number that each message stands for: float64 [checks]."""
        found = self._layout.decode_all(b"".join(messages))
        if self._terms.number_mechanism is not None:
            return self._terms.number_mechanism.estimates[np.asarray(found.report)]
        return self._difference(np.asarray(found.plus, np.float64), np.asarray(found.minus, np.float64))

    def _difference(
        self, plus: Float[np.ndarray, " checks"], minus: Float[np.ndarray, " checks"]
    ) -> Float[np.ndarray, " checks"]:
        """Difference of two mean rewards of which the largest is 1, with the lies of randomised response taken out."""
        metric, p = self._terms.metric, self._terms.p
        rewards = [sums / (self._terms.per_half * metric.scale) for sums in (plus, minus)]
        if p < 1:
            rewards = [np.asarray(debias(each, metric.values, p)) for each in rewards]
        return (rewards[0] - rewards[1]) * metric.scale / metric.largest


class Watch:
    """The two tests of a hub, and which model is the best.

    Args:
        terms: Terms of the hub, which have checks.
        margin: Difference that counts for nothing, from 0 to 1.
        alpha: Chance of a false alarm over the hub's life, and of a promotion by chance.
        kept: An earlier :attr:`state`; None at the beginning.

    Attributes:
        best: Round of the best model.
    """

    def __init__(self, terms: Terms, margin: float, alpha: float, kept: str | None = None):
        self.estimates, self._margin, self._alpha = Estimates(terms), margin, alpha
        there: dict[str, Any] = {} if kept is None else json.loads(kept)
        self.best = int(there.get("best", 0))
        self._sinks, self._rises = self._tests(there)
        self._since = (int(there.get("checks", 0)), float(there.get("sum", 0.0)))  # of the newest against this best

    def _tests(self, there: dict[str, Any]) -> tuple[Evidence, Evidence]:
        largest = self.estimates.largest
        sinks, rises = (Evidence(-self._margin, largest, there.get(name)) for name in ("sinks", "rises"))
        return sinks, rises  # the latter of the numbers with the other sign

    @property
    def state(self) -> str:
        """The state as text, from which another process goes on."""
        tests, (checks, total) = {"sinks": self._sinks.as_json(), "rises": self._rises.as_json()}, self._since
        return json.dumps({"best": self.best, **tests, "checks": checks, "sum": total})

    def judge(self, round_: int, messages: Sequence[bytes]) -> Judgement | None:
        """Add the checks of a round, which may change :attr:`best`; None where there are none.

        Args:
            round_: Number of the round.
            messages: Its checks; their order does not matter.
        """
        if not messages:
            return None
        x = self.estimates.of(messages)
        error = float(x.std(ddof=1) / np.sqrt(len(x))) if len(x) > 1 else None
        found = Judgement(round_, self.best, len(x), float(x.mean()), error)
        self._sinks.add(x)
        self._rises.add(-x)
        self._since = (self._since[0] + len(x), self._since[1] + float(x.sum()))
        if self._sinks.money >= 1 / self._alpha:
            return dataclasses.replace(found, sinks=True)
        if self._rises.money >= 1 / self._alpha:
            self.best, self._since = round_, (0, 0.0)
            self._rises = self._tests({})[1]
            return dataclasses.replace(found, promoted=True)
        return found

    def restart(self) -> None:
        """Begin anew after a halt: the model is the best one again, and a new life of the hub begins."""
        self._since = (0, 0.0)
        self._sinks, self._rises = self._tests({})

    def as_json(self) -> dict[str, Any]:
        """State of the tests for the status page."""
        checks, total = self._since
        return {
            "best": self.best,
            "checks": checks,
            "mean": total / checks if checks else None,
            "margin": self._margin,
            "money": min(self._sinks.money, 1e12),
            "alarm_at": 1 / self._alpha,
            "money_rises": min(self._rises.money, 1e12),
        }


_log = logging.getLogger("fedrank.hub")
#: Seconds for one try, tries, and seconds between them.
_SECONDS, _TRIES, _PAUSE = 30.0, 3, 10.0


class Alarm:
    """Destinations of alerts.

    Args:
        command: A command, run without a shell, that gets the alert as JSON on its standard input; empty: none.
        url: A URL that gets it by POST; empty: none.
    """

    def __init__(self, command: str = "", url: str = ""):
        self._words, self._url = shlex.split(command), url

    def raise_(self, alert: dict[str, Json]) -> None:
        """Send an alert, from another thread; what fails is tried again, and logged."""
        body = json.dumps(alert).encode()
        for name, there, send in (("command", bool(self._words), self._run), ("url", bool(self._url), self._post)):
            if there:
                threading.Thread(
                    target=_try, args=(name, send, body), name=f"fedrank-alert-{name}", daemon=True
                ).start()

    def _run(self, body: bytes) -> None:
        subprocess.run(
            self._words, input=body, timeout=_SECONDS, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def _post(self, body: bytes) -> None:
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"}, method="POST")
        with contextlib.closing(urllib.request.urlopen(request, timeout=_SECONDS)):
            pass


def _try(name: str, send, body: bytes) -> None:
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_PAUSE)
        try:
            send(body)
            return
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            # Without the words of the error, which may quote a URL with a secret.
            status = getattr(error, "returncode", None)
            _log.error("alert_%s failed: %s%s", name, type(error).__name__, f" {status}" if status is not None else "")


#: Most rounds of which the status says what checks said.
_SHOWN = 400


class Comparing:
    """Checks of a hub; called by its writer thread, :meth:`as_json` by any.

    Args:
        settings: Settings of the hub, whose terms have checks.
        store: The log.
    """

    def __init__(self, settings: HubSettings, store: Store):
        self._settings, self._store, self._name = settings, store, store.name
        self._alarm = Alarm(settings.alert_command, settings.alert_url)
        self._read()

    def _read(self) -> None:
        s, store = self._settings, self._store
        self.watch = Watch(s.terms(store.name), s.check_margin, s.check_alarm, store.watch())
        self._history, self._halts = store.judgements(), store.halts()
        self._last = (-1, None)

    def recover(self) -> None:
        """Go on from what the log says."""
        self._read()
        if self.is_halted and self._store.leads:
            self._alarm.raise_(self._words())  # of the process before; a second alarm is better than none

    @property
    def is_halted(self) -> bool:
        """True if the hub is halted."""
        return bool(self._halts) and self._halts[-1].resumed is None

    def judge(self, round_: int, messages: Sequence[bytes]) -> Judgement | None:
        """Judgement of a round by its checks; the same again for the same round."""
        number, found = self._last
        if number != round_:
            found = self.watch.judge(round_, messages)
            self._last = (round_, found)
            if found is not None:
                self._history.append(found)
        return found

    def halt(self, round_: int) -> None:
        """Say that the hub has halted before a round; the log has it already."""
        self._halts.append(Halt(round_, self.watch.best, time.time(), None))
        words = self._words()
        _log.error("%s", words["words"])
        self._alarm.raise_(words)

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
        about = self.watch.as_json()
        largest, alpha = self.watch.estimates.largest, self._settings.check_alarm
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
                "halts": [dataclasses.asdict(one) for one in self._halts],
            },
            "alert": self._words() if self.is_halted else None,
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
