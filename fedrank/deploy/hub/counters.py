"""Counts of a hub's requests and reports, as metrics for Prometheus.

Requests are counted in plain numbers by the one thread that answers them, and made into metrics when they are read.
What is known about the hub itself (round, devices, ε) is read from it at that moment.
"""

from __future__ import annotations

import collections
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any

from fedrank.core.errors import MissingExtraError
from fedrank.core.trees import Json
from fedrank.deploy.http.app import RequestCounts

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

    def acknowledged(self, seconds: float) -> None:
        """Count a report that was acknowledged ``seconds`` after reading of its request started."""
        self._seconds[bisect_left(BOUNDS, seconds)] += 1
        self._sum += seconds

    def refused(self) -> dict[str, int]:
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

        buckets, count = [], 0
        for bound, n in zip((*map(str, BOUNDS), "+Inf"), self._seconds, strict=True):
            count += n
            buckets.append((bound, count))
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
    for name, text, value in (
        ("fedrank_round", "Number of the open round", status["round"]),
        ("fedrank_round_open_seconds", "How long the round has been open", status["seconds_open"]),
        ("fedrank_devices", "Enrolled devices", status["devices"]),
        ("fedrank_devices_most", "Devices at which the hub is full", status.get("most_devices")),
        ("fedrank_cohort_reports", "Reports counted in the open round", status["reports"]),
        ("fedrank_cohort_size", "Reports that close a round", status["cohort"]),
        ("fedrank_round_seconds", "How long the last applied round was open", last.get("seconds")),
        ("fedrank_reward", "Mean reward of the last applied round, as privatised values tell it", last.get("reward")),
    ):
        if value is not None:
            yield GaugeMetricFamily(name, text, value=value)
    for name, text, key in (
        ("fedrank_credential_devices", "Devices that count against a credential's cap", "used"),
        ("fedrank_credential_cap", "Devices that may enrol with a credential within its window", "devices"),
    ):
        family = GaugeMetricFamily(name, text, labels=("credential",))
        for one in status.get("credentials", ()):
            family.add_metric([one["name"]], one[key])
        yield family
    yield CounterMetricFamily(
        "fedrank_rounds", "Rounds that moved the model", value=status.get("applied", status["round"])
    )
    text = "ε of an interaction, of a message, and of all that counted of the device that sent most; +Inf: no promise"
    epsilon = GaugeMetricFamily("fedrank_epsilon_user", text, labels=("unit",))
    for unit in ("interaction", "message", "user", "user_basic"):
        value = status["epsilon"].get(unit)
        epsilon.add_metric([unit], math.inf if value is None else value)
    yield epsilon
    if status.get("checks"):
        yield from _checks(status)
    state = GaugeMetricFamily("fedrank_state", "1 for the state that the hub is in", labels=("state",))
    for name in ("open", "between", "done", "halted"):
        state.add_metric([name], float(status["state"] == name))
    yield state


def _checks(status: dict[str, Json]) -> Iterator[Any]:
    """What checks said, as metrics."""
    from prometheus_client.core import GaugeMetricFamily

    checks = status["checks"]
    for name, text, value in (
        ("fedrank_alert", "1 while the hub is halted because its model sank", float(status["alert"] is not None)),
        ("fedrank_checks", "Checks of the newest model against this best one", checks["checks"]),
        ("fedrank_check_best", "Round of the best model so far", checks["best"]),
        ("fedrank_check_mean", "How much better the newest was, on average over these checks", checks["mean"]),
        ("fedrank_check_evidence", "Evidence that the newest is worse; beyond the next the hub halts", checks["money"]),
        ("fedrank_check_halts_at", "Evidence at which the hub halts", checks["alarm_at"]),
    ):
        if value is not None:
            yield GaugeMetricFamily(name, text, value=value)
