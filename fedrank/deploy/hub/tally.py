"""A hub's figures for its page and its metrics: rounds, rewards, bytes, ε, and counts of requests.

Rounds follow from the log, so that a restart loses nothing but the counts since the start. Requests are counted in
plain numbers by the one thread that answers them, and made into metrics for Prometheus when they are read.
"""

from __future__ import annotations

import collections
import functools
import itertools
import math
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np

from fedrank import __version__
from fedrank.core.errors import MissingExtraError
from fedrank.core.privacy_report import BASIC, Unit
from fedrank.core.trees import Json, finite
from fedrank.deploy.http.app import RequestCounts
from fedrank.deploy.hub.settings import HubSettings
from fedrank.deploy.hub.store import RoundRow, Store

#: Most points of the curve that is shown; neighbouring rounds of longer histories are averaged.
POINTS = 400


#: Terms that the status shows under their names.
_TERMS = (
    "hub",
    "protocol",
    "ranker",
    "n_features",
    "mechanism",
    "interactions",
    "sigma",
    "due",
    "tokens",
    "batch",
)


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
        # Of each device, in applied rounds; with tokens it is unknown, and a device may have reported in each epoch.
        self._messages = {} if self.terms.tokens else store.reports_of_devices()
        self._rows = [row for row in store.rounds() if row.state == "applied"]
        self._epochs: set[int] = set()
        for row in self._rows if self.terms.tokens else ():
            self._add_epoch(row.number)
        self._all = sum(row.reports or 0 for row in self._rows)
        self._top = max(self._messages.values(), default=len(self._epochs))
        self._account(self._top)  # the first takes a second
        self._history: list[dict[str, Json]] = _points(self._rows)

    def add_round(self, row: RoundRow, devices: Any) -> None:
        """Add a round that was applied.

        Args:
            row: Row of the round in the log.
            devices: Numbers of the devices that reported.
        """
        if self.terms.tokens:
            self._add_epoch(row.number)
            self._top, devices = len(self._epochs), ()
        for device in devices:
            self._messages[device] = self._messages.get(device, 0) + 1
            self._top = max(self._top, self._messages[device])
        self._rows.append(row)
        self._all += row.reports or 0
        self._history = _points(self._rows)

    def _add_epoch(self, round_: int) -> None:
        """Count a round's epoch; no device has a token of the first."""
        self._epochs |= {self.terms.epoch_of(round_)} - {0}

    @property
    def rounds(self) -> int:
        """The first round that is not counted yet."""
        return self._rows[-1].number + 1 if self._rows else 0

    def _most(self, round_: int, counted: Collection[int]) -> int:
        """Most counted messages of one device, those of the open round included."""
        if self.terms.tokens:
            most = self._top + bool(counted and self.terms.epoch_of(round_) not in self._epochs)
            return min(most, self.terms.participations or most)
        return max([self._top, *(self._messages.get(device, 0) + 1 for device in counted)])

    def _account(self, most: int) -> dict[str, Json]:
        """ε of an interaction, of a message, and of a device that sent ``most`` messages."""
        if self._epsilon.get("messages_most") == most:
            return self._epsilon
        report = self.protocol.account(most, self.settings.delta)
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
        """Entries of the status page; JSON-able.

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
            **{name: getattr(t, name) for name in _TERMS},
            **{name: getattr(s, name) for name in ("cohort", "least", "rounds", "trial")},
            "version": __version__,
            "now": time.time(),
            "started": self.started,
            "round": round_,
            "state": state,
            "seconds_open": seconds_open,
            "deadline_s": s.deadline or None,
            "least_s": s.round_seconds,
            "reports": len(counted) - checks,
            "checked": checks,
            "applied": len(self._rows),
            "devices": devices,
            "weights": t.size,
            "reward": t.metric.name,
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


#: Upper bounds of the histogram of a report's seconds; a last one without bound is added.
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Counters(RequestCounts):
    """Counts of a hub's requests and reports since its start.

    Args:
        status: Function that returns the hub's status, :meth:`fedrank.deploy.hub.hub.Hub.status`.

    Attributes:
        reports: Reports by outcome.
        payload: Bytes of messages by (``"up"`` or ``"down"``, name of the message), as a ledger counts them: without
            HTTP and TLS, and each report once however often it was sent.

    Raises:
        MissingExtraError: prometheus-client is not installed.
    """

    def __init__(self, status: Callable[[], dict[str, Json]]):
        try:
            from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
        except ImportError as error:
            raise MissingExtraError("prometheus-client", "serve", "a hub's /metrics") from error
        super().__init__()
        self._status = status
        self.reports: collections.Counter[str] = collections.Counter()
        self.payload: collections.Counter[tuple[str, str]] = collections.Counter()
        self._seconds, self._sum = [0] * (len(BOUNDS) + 1), 0.0
        self._registry = CollectorRegistry(auto_describe=False)  # not the global one: a host app has metrics too
        self._registry.register(self)  # type: ignore[arg-type]
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def count_acknowledged(self, seconds: float) -> None:
        """Count a report that was acknowledged ``seconds`` after reading of its request started."""
        self._seconds[bisect_left(BOUNDS, seconds)] += 1
        self._sum += seconds

    def refusals_by_reason(self) -> dict[str, int]:
        """Refused requests by reason, on all routes together; most frequent first."""
        total: collections.Counter[str] = collections.Counter()
        for (_, reason), count in self.refusals.items():
            total[reason] += count
        return dict(total.most_common())

    def text(self) -> tuple[bytes, str]:
        """All metrics in Prometheus's text format, and its content type."""
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def collect(self) -> Iterator[Any]:
        """All metrics; Prometheus's client calls this."""
        yield _counter("fedrank_requests", "Answers", ("route", "code"), self.requests)
        yield _counter("fedrank_refused", "Refused requests", ("route", "reason"), self.refusals)
        yield _counter("fedrank_reports", "Reports by what became of them", ("result",), self.reports)
        yield _counter(
            "fedrank_payload_bytes",
            "Bytes of messages as a ledger counts them: no HTTP, no TLS, each report once",
            ("direction", "message"),
            self.payload,
        )
        yield self._histogram()
        yield from _hub(self._status())

    def _histogram(self) -> Any:
        from prometheus_client.core import HistogramMetricFamily

        buckets = list(zip((*map(str, BOUNDS), "+Inf"), itertools.accumulate(self._seconds), strict=True))
        text = "Seconds from a report's arrival to its acknowledgement, commit included"
        return HistogramMetricFamily("fedrank_report_seconds", text, buckets=buckets, sum_value=self._sum)


def _counter(name: str, text: str, labels: tuple[str, ...], counts: collections.Counter[Any]) -> Any:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(name, text, labels=labels)
    for key, value in counts.items():
        family.add_metric([str(part) for part in (key if isinstance(key, tuple) else (key,))], value)
    return family


def _hub(status: dict[str, Json]) -> Iterator[Any]:
    """The hub's status as metrics."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    last = status["history"][-1] if status["history"] else {}
    numbers = [
        ("fedrank_round", "Number of the open round", status["round"]),
        ("fedrank_round_open_seconds", "How long the round has been open", status["seconds_open"]),
        ("fedrank_devices", "Enrolled devices", status["devices"]),
        ("fedrank_devices_most", "Devices at which the hub is full", status.get("most_devices")),
        ("fedrank_cohort_reports", "Reports counted in the open round", status["reports"]),
        ("fedrank_cohort_size", "Reports that close a round", status["cohort"]),
        ("fedrank_round_seconds", "How long the last applied round was open", last.get("seconds")),
        ("fedrank_copy_waits", "1 while the copy cannot be written, and heads wait", status.get("copy_waits")),
        ("fedrank_copy_seconds", "Seconds that the last copy of the hub took", status.get("copy_seconds")),
        ("fedrank_copy_bytes", "Bytes of the database in the last copy of the hub", status.get("copy_bytes")),
        ("fedrank_reward", "Mean reward of the last applied round, as privatised values tell it", last.get("reward")),
    ]
    if checks := status.get("checks"):
        halted = float(status["alert"] is not None)
        evidence = "Evidence that the newest is worse; beyond the next the hub halts"
        numbers += [
            ("fedrank_alert", "1 while the hub is halted because its model sank", halted),
            ("fedrank_checks", "Checks of the newest model against this best one", checks["checks"]),
            ("fedrank_check_best", "Round of the best model so far", checks["best"]),
            ("fedrank_check_mean", "How much better the newest was, on average over these checks", checks["mean"]),
            ("fedrank_check_evidence", evidence, checks["money"]),
            ("fedrank_check_halts_at", "Evidence at which the hub halts", checks["alarm_at"]),
        ]
    for name, text, value in numbers:
        if value is not None:
            yield GaugeMetricFamily(name, text, value=value)
    rounds = status.get("applied", status["round"])
    yield CounterMetricFamily("fedrank_rounds", "Rounds that moved the model", value=rounds)
    full = status["devices"] >= status.get("most_devices", math.inf)
    enrolment = "full" if full else "flooded" if status.get("flooded") else "open"
    used, caps = ({one["name"]: one[key] for one in status.get("credentials", ())} for key in ("used", "devices"))
    epsilons = {unit: status["epsilon"].get(unit) for unit in ("interaction", "message", "user", "user_basic")}
    epsilons = {unit: math.inf if value is None else value for unit, value in epsilons.items()}
    promised = (
        "ε of an interaction, of a message, and of all that counted of the device that sent most; +Inf: no promise"
    )
    states = {name: float(status["state"] == name) for name in ("open", "between", "done", "halted")}
    enrolments = {name: float(enrolment == name) for name in ("open", "full", "flooded")}
    for name, text, label, values in (
        ("fedrank_credential_devices", "Devices that count against a credential's cap", "credential", used),
        ("fedrank_credential_cap", "Devices that may enrol with a credential within its window", "credential", caps),
        ("fedrank_epsilon_user", promised, "unit", epsilons),
        ("fedrank_state", "1 for the state that the hub is in", "state", states),
        ("fedrank_enrolment", "1 for the state of enrolment", "state", enrolments),
    ):
        family = GaugeMetricFamily(name, text, labels=(label,))
        for key, value in values.items():
            family.add_metric([key], value)
        yield family
