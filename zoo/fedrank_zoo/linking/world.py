"""A hub, a relay and many devices in one process, on loopback; everything that reaches the hub is recorded.

Devices are those of :mod:`fedrank.deploy.device`, hub and relay those of ``fedrank hub serve``. Each device has a
loopback its own address. Only time is shorter: what a device does once a minute, it does once in ``minute`` seconds.

**Attacks.** Guesses which two reports of successive rounds are of one device, from everything that reached the hub.

For each report of a round the attacker names one of the round before. Chance names the right one in one of as many
cases as the round has reports. Each attack looks at one thing; the last one learns from all of them, with the truth
about the first half of the rounds in its hands, which no hub has.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import math
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from fedrank.core.errors import RunError
from fedrank.core.lazy import require
from fedrank.deploy.device import Device, conversation
from fedrank.deploy.http.guard import Guard
from fedrank.deploy.hub.app import HubApp
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.hub.hub import Hub
from fedrank.deploy.hub.service import TokenApp
from fedrank.deploy.hub.tally import Counters
from fedrank.deploy.oblivious.encapsulation import BinaryRequest, BinaryResponse
from fedrank.deploy.oblivious.relay import GatewayClient, RelayApp, RelaySettings
from fedrank.report.claims import Named, Percent, Sentence, join_all, say
from fedrank_zoo.linking import LinkAttack

_FEATURES = 5
#: Longest time of a round: seconds, and minutes of a device, which buys and reports at random ones.
_SECONDS, _MINUTES = 60.0, 60.0


@dataclass(frozen=True)
class Seen:
    """One request as the hub sees it.

    Attributes:
        at: When it came, in seconds.
        address: Where it came from; empty inside an encapsulated one.
        method: HTTP method.
        path: Path.
        headers: All header fields.
        body: Body.
    """

    at: float
    address: str
    method: str
    path: str
    headers: dict[bytes, bytes]
    body: bytes


@dataclass
class Record:
    """Record of what a hub saw, and what only a simulation knows.

    Attributes:
        requests: All requests, in order; those inside encapsulated ones too.
        truth: (round, body of the report) → device.
        stored: (round, body of the report) → number under which the hub keeps it.
    """

    requests: list[Seen] = field(default_factory=list)
    truth: dict[tuple[int, bytes], int] = field(default_factory=dict)
    stored: dict[tuple[int, bytes], int] = field(default_factory=dict)


class _Watching:
    """Makes an application record its requests."""

    record: Record

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)  # type: ignore[misc] - of the application
            return
        at, body = time.monotonic(), bytearray()

        async def hear() -> MutableMapping[str, Any]:
            message = await receive()
            body.extend(message.get("body", b""))
            return message

        await super().__call__(scope, hear, send)  # type: ignore[misc] - of the application
        client = scope.get("client") or ("", 0)
        seen = Seen(at, client[0], scope["method"], scope["path"], dict(scope["headers"]), bytes(body))
        self.record.requests.append(seen)


class _WatchedHub(_Watching, HubApp):
    pass


class _WatchedTokens(_Watching, TokenApp):
    async def _answer(self, inner: BinaryRequest) -> BinaryResponse:
        path, method = inner.path.decode("ascii", "replace"), inner.method.decode("ascii", "replace")
        self.record.requests.append(Seen(time.monotonic(), "", method, path, dict(inner.fields), inner.content))
        return await super()._answer(inner)


def observe(settings: LinkAttack, mode: str) -> Record:
    """Let devices report, and return what the hub saw.

    Args:
        settings: Of the attack.
        mode: One of :data:`~fedrank_zoo.linking.MODES`.

    Raises:
        RunError: The rounds did not end in time.
    """
    record = Record()
    minute, conversation.POLL = conversation.POLL, settings.minute
    try:
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            hub, url, relay = stack.enter_context(_serve(Path(folder), settings, mode, record))
            lives = [_Life(Path(folder), settings, n, url, relay, record) for n in range(settings.devices)]
            for life in lives:
                life.start()
            longest = (_SECONDS + _MINUTES * settings.minute) * settings.rounds
            end = time.monotonic() + longest
            while hub.view.state != "done" and time.monotonic() < end:
                time.sleep(0.05)
                if hub.row.issuer is not None:
                    _close_when_done(hub, settings.devices)
            for life in lives:
                life.ended.set()
            for life in lives:
                life.join()
            for round_ in range(hub.settings.rounds):
                record.stored.update({(round_, body): number for number, body in hub.store.reports(round_)})
            if hub.view.state != "done":
                raise RunError(f"after {longest:.0f} s the hub is in round {hub.view.round} only.")
    finally:
        conversation.POLL = minute
    record.requests.sort(key=lambda one: one.at)
    if (found := len(record.stored) - sum(map(len, reports_of(record)))) > 0:
        raise RunError(f"{found} of {len(record.stored)} reports that the hub keeps came by no request that was seen.")
    return record


def _close_when_done(hub: Hub, devices: int) -> None:
    """Close the open round if all devices have reported in it and bought the token of the next."""
    number, loop = hub.view.round, hub._inbox.loop
    if hub.view.state != "open" or loop is None or len(hub.round.counted) < devices * bool(number):
        return
    with contextlib.closing(hub.store.reader()) as store:
        bought = store.query("SELECT count(*) FROM purchase WHERE epoch = ?", (number + 1,))[0][0]
    if bought == devices:
        asyncio.run_coroutine_threadsafe(hub.close_round(empty=True), loop).result(_SECONDS)


@contextlib.contextmanager
def _serve(folder: Path, settings: LinkAttack, mode: str, record: Record) -> Iterator[tuple[Hub, str, str | None]]:
    from fedrank_zoo.threaded_server import ThreadedServer

    home = HubFolder(folder / "hub")
    home.prepare(settings.hub(mode, _FEATURES))
    told, store = home.open()
    hub = Hub(home.path, store, told)
    guard = Guard(device_per_minute=math.inf, failures_per_minute=math.inf, enrolments_per_minute=math.inf)
    options: dict[str, Any] = {"enrolment": home.token("enrolment"), "admin": None}
    options |= {"on_start": hub.start, "on_stop": hub.stop}
    if hub.row.issuer is None:
        app: Any = _WatchedHub(hub, guard, Counters(hub.status), **options)
    else:
        extra = {"issuer": hub.row.issuer, "gateway": hub.row.keys.gateway}
        app = _WatchedTokens(hub, guard, Counters(hub.status), **extra, **options)
    app.add_routes(hub.row.publishing.routes())
    app.record = record
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(ThreadedServer(app)).url
        relay = None
        if mode == "relay":
            gateway = GatewayClient(url)
            company = max(0.02, settings.minute / 60)
            asked = RelaySettings(settings.batch, company=company, per_minute=1e9, trial=True)
            relay = stack.enter_context(ThreadedServer(RelayApp(gateway, gateway.configuration(), asked))).url
        yield hub, url, relay


class _Life(threading.Thread):
    """One device and the person in front of it."""

    def __init__(self, folder: Path, settings: LinkAttack, number: int, url: str, relay: str | None, record: Record):
        super().__init__(daemon=True)
        self.ended, self._number, self._record = threading.Event(), number, record
        self._random = np.random.default_rng([settings.seed, number])
        middle = 0.5
        self._clicks = middle + settings.spread * (number / (settings.devices - 1) - middle)
        token = (folder / "hub" / "enrolment.token").read_text().strip()
        limits = dict.fromkeys(("most_epsilon", "most_search_epsilon", "lifetime_epsilon"), math.inf)
        options: dict[str, Any] = {**limits, "relay": relay, "timeout": 30.0}
        self._device = Device(url, token, folder / f"device-{number}", **options)
        # Every address of 127.0.0.0/8 is this machine's: the device has its own.
        connection: Any = self._device._connection
        client = connection if relay is None else connection._relay
        address = f"127.0.{1 + number // 250}.{1 + number % 250}"
        client._connection = lambda: _connection(client, address)
        self._report, connection.report = connection.report, self._note

    def _note(self, token: str, round_: int, body: bytes) -> Any:
        self._record.truth[round_, body] = self._number
        return self._report(token, round_, body)

    def run(self) -> None:
        with self._device as device:
            while not self.ended.is_set():
                told = device.sync()
                if told.state == "DONE":
                    return
                while device.wants_clicks and not self.ended.is_set():
                    ranking = device.rank(self._random.random((10, _FEATURES)))
                    for position in range(10):
                        if self._random.random() < self._clicks:
                            device.log_click(ranking, position)
                            break
                    device.finish(ranking)
                self.ended.wait(told.next_in)


def _connection(client: Any, address: str) -> http.client.HTTPConnection:
    made = http.client.HTTPConnection(client._host, client._port, timeout=client._timeout, source_address=(address, 0))
    made.response_class = client._response_within_deadline  # type: ignore[assignment] - called like the class
    return made


_REPORT = re.compile(r"/v1/report/(\d+)")
_BUY = re.compile(r"/v1/token/(\d+)")


@dataclass(frozen=True)
class Report:
    """A report, as the attacker has it.

    Attributes:
        request: The request that brought it first.
        number: Number under which the hub keeps it.
        place: Place in the order of arrival of its round.
        near: Number of the device whose purchase came nearest before it; 0: there is none.
        bought: Of each device that ever bought, how near in time a purchase of it is, from 0 to 1.
        device: The truth.
    """

    request: Seen
    number: int
    place: int
    near: int
    bought: Float[np.ndarray, " buyers"]
    device: int


@dataclass(frozen=True)
class Linked:
    """Success of an attack.

    Attributes:
        attack: What it looks at.
        right: Share of reports whose predecessor it named.
        low: Lower end of a 95 % interval, over rounds.
        high: Upper end.
        chance: Share that chance names.
    """

    attack: str
    right: float
    low: float
    high: float
    chance: float


def linking_sentence(found: Mapping[str, Sequence[Linked]]) -> Sentence:
    """The most successful attack on each way to report, as sentences; ``found`` by mode."""
    said = []
    for mode, attacks in found.items():
        most = max(attacks, key=lambda one: one.right - one.chance)
        named = say(Named(f"{mode}: {most.attack}"), " names the right predecessor of ", Percent(most.right, 1))
        said.append(say(named, " of the reports, chance of ", Percent(most.chance, 1), "."))
    return join_all(said)


def reports_of(record: Record) -> list[list[Report]]:
    """The reports of each round, in order of arrival."""
    first: dict[tuple[int, bytes], Seen] = {}
    buyers: list[tuple[float, int]] = []
    tokens: dict[bytes, int] = {}
    for seen in record.requests:
        shown = seen.headers.get(b"authorization", b"")
        if shown.startswith(b"Bearer ") and seen.path != "/v1/enrol":
            tokens.setdefault(shown, len(tokens) + 1)
        if _BUY.fullmatch(seen.path):
            buyers.append((seen.at, tokens[shown]))
        if found := _REPORT.fullmatch(seen.path):
            key = (int(found[1]), seen.body)
            if key in record.stored:
                first.setdefault(key, seen)
    rounds: dict[int, list[Report]] = {}
    times, owners = np.array([at for at, _ in buyers]), np.array([owner for _, owner in buyers], int)
    gap = float(np.median(np.diff(times))) or 1.0 if len(times) > 1 else 1.0  # from one purchase to the next
    for (round_, body), seen in sorted(first.items(), key=lambda one: one[1].at):
        of_round = rounds.setdefault(round_, [])
        before = int(np.searchsorted(times, seen.at)) - 1
        near = buyers[before][1] if before >= 0 else 0
        bought = np.zeros(max(owners, default=0) + 1)
        np.maximum.at(bought, owners, np.exp(-np.abs(times - seen.at) / gap))
        key = (round_, body)
        of_round.append(Report(seen, record.stored[key], len(of_round), near, bought, record.truth[key]))
    return [rounds[n] for n in sorted(rounds)]


Pairs = Float[np.ndarray, "now before"]


def _equal(what: Callable[[Report], object]) -> Callable[[list[Report], list[Report]], Pairs]:
    return lambda now, before: np.array([[float(what(a) == what(b)) for b in before] for a in now])


def _close(what: Callable[[Report], float]) -> Callable[[list[Report], list[Report]], Pairs]:
    def score(now: list[Report], before: list[Report]) -> Pairs:
        a, b = np.array([what(one) for one in now], float), np.array([what(one) for one in before], float)
        return -np.abs(a[:, None] - b[None])

    return score


def _shown(report: Report) -> bytes:
    return report.request.headers.get(b"authorization", b"")


def _nonce(report: Report) -> int:
    return int.from_bytes(_shown(report)[20:64].ljust(44, b"\0"))


def _within(reports: list[Report]) -> Float[np.ndarray, " reports"]:
    """Seconds since the first report of the round."""
    return np.array([one.request.at - reports[0].request.at for one in reports])


def _sums(report: Report) -> float:
    body = report.request.body
    if len(body) == 6:  # one privatised number
        return float(body[5])
    half = (len(body) - 5) // 2
    return float(int.from_bytes(body[5 : 5 + half], "little") + int.from_bytes(body[5 + half :], "little"))


#: What each attack looks at: the higher the score, the likelier two reports are of one device.
ATTACKS: dict[str, Callable[[list[Report], list[Report]], Pairs]] = {
    "number in the table of reports": _equal(lambda one: one.number),
    "token that was shown": _equal(_shown),
    "network address": _equal(lambda one: one.request.address),
    "sizes and names of header fields": _equal(
        lambda one: (len(one.request.body), *sorted((k, len(v)) for k, v in one.request.headers.items()))
    ),
    "bits of nonces": lambda now, before: (
        -np.array([[float((_nonce(a) ^ _nonce(b)).bit_count()) for b in before] for a in now])
    ),
    "nearness of seeds": _close(lambda one: float(int.from_bytes(one.request.body[1:5], "little"))),
    "order of arrival": _close(lambda one: one.place),
    "time within the round": lambda now, before: -np.abs(_within(now)[:, None] - _within(before)[None]),
    "the purchase just before": _equal(lambda one: one.near),
    "purchases near in time": lambda now, before: (
        np.array([one.bought for one in now]) @ np.array([one.bought for one in before]).T
    ),
}
#: What is in the message, which no token and no relay hides: that is for ε to bound.
CONTENT = "what the report says"


def attack(record: Record, rng: np.random.Generator, devices: int, *, learn: bool = True) -> list[Linked]:
    """Success of each attack.

    Args:
        record: What the hub saw.
        rng: Breaks ties.
        devices: Number of devices.
        learn: Also those that learn.
    """
    rounds = reports_of(record)
    pairs = list(zip(rounds[1:], rounds[:-1], strict=True))
    found = [
        _judge(name, [_hits(score(now, before), now, before, rng) for now, before in pairs], devices)
        for name, score in ATTACKS.items()
    ]
    content = _close(_sums)
    found.append(_judge(CONTENT, [_hits(content(now, before), now, before, rng) for now, before in pairs], devices))
    if learn:
        ways = list(ATTACKS.values())
        found.append(_judge("all but that, learnt", _learnt(pairs, ways, rng), devices))
        found.append(_judge("all, learnt", _learnt(pairs, [*ways, content], rng), devices))
    return found


def _hits(scores: Pairs, now: list[Report], before: list[Report], rng: np.random.Generator) -> float:
    """Share of the reports for which the best score, ties by lot, is that of the right predecessor."""
    noise = rng.random(scores.shape)
    best = np.lexsort((noise, scores), axis=1)[:, -1]
    return float(np.mean([now[i].device == before[j].device for i, j in enumerate(best)]))


def _learnt(pairs: list, scores: list, rng: np.random.Generator) -> list[float]:
    """The same for a score that boosted trees learn from the first half of the rounds, tried on the second."""
    require("sklearn", "The attack that learns how reports are linked", "sklearn")
    from sklearn.ensemble import HistGradientBoostingClassifier

    def features(now: list[Report], before: list[Report]) -> np.ndarray:
        given = []
        for score in scores:
            made = score(now, before)
            given += [made, made.argsort(1).argsort(1)]  # as it is, and by rank among the candidates
        return np.stack(given, -1)

    half = len(pairs) // 2
    x, y = [], []
    for now, before in pairs[:half]:
        x.append(features(now, before).reshape(-1, 2 * len(scores)))
        y.append(np.array([[a.device == b.device for b in before] for a in now]).ravel())
    model = HistGradientBoostingClassifier(max_iter=60, random_state=int(rng.integers(2**31)))
    model.fit(np.concatenate(x), np.concatenate(y))
    right = []
    for now, before in pairs[half:]:
        made = features(now, before)
        likely = model.predict_proba(made.reshape(-1, made.shape[-1]))[:, 1].reshape(made.shape[:2])
        right.append(_hits(likely, now, before, rng))
    return right


def _judge(name: str, right: list[float], devices: int) -> Linked:
    from scipy.stats import t

    mean, n = float(np.mean(right)), len(right)
    half = float(t.ppf(0.975, n - 1) * np.std(right, ddof=1) / np.sqrt(n)) if n > 1 else 1.0
    return Linked(name, mean, max(0.0, mean - half), min(1.0, mean + half), 1 / devices)
