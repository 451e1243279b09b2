"""The coordinator of platforms that plan: it asks for sums, makes the model of them, and tells all platforms.

It does nothing while users are explored, however long that takes, and may be started at their end. What it asks for and
tells stands in :func:`.schedule`; each exchange begins when the one before is over. Once a platform with feedback has
sent its sums, the others have ``patience`` seconds; the model is made of those that were heard, and told to all. A
platform that cannot be told is tried again until it can, or until the coordinator stops: the same command goes on.

With a secure sum the platforms' integers come under masks, in four steps, and all that is seen of them is their total
(:mod:`fedrank.privacy.secure_sum`). All platforms with feedback are needed then: if one stays away for longer than
``patience`` after the first has answered, the coordinator ends with an error, nothing is unmasked, and the same command
begins the sum again, of the same vectors.

Sums that are longer than those of all explorers can be are not heard; a total that is, is an error. Within that a
platform's word is taken: one that lies moves the model as far as its users could.

What came and what was made of it is written before anything follows from it, so that a coordinator that was killed
makes the same model again. Platforms answer a repeated request with the same bytes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int64, Num, UInt32

from fedrank.core.errors import RunError, SecureSumError, WireError
from fedrank.core.ledger import Ledger
from fedrank.core.messages import Layout
from fedrank.core.native import map_trees
from fedrank.core.rng import INIT
from fedrank.deploy.platforms.folder import KeyValueStore, Terms, blank_message, pack_tree, unpack_tree
from fedrank.deploy.platforms.planning_platform import Due, schedule, sum_steps, sum_terms
from fedrank.deploy.platforms.rounds import Peer, Silence
from fedrank.privacy.secure_sum.server import Server
from fedrank.slates.sums import Improve, Release, Trial
from fedrank.slates.sums.learner import STEPS
from fedrank.slates.sums.secure_sum import TAIL, from_vector
from fedrank.slates.sums.trial import verdict_json

_log = logging.getLogger("fedrank.coordinator")

#: Seconds that a platform may take to answer by default.
PLATFORM_PATIENCE = 30.0
#: Seconds that a platform is asked for at a time.
_ATTEMPT = 2.0
#: Reasons of a silence after which a secure sum is begun again.
_AGAIN = ("sum-stopped", "conflict", "malformed")


@dataclass(frozen=True)
class StepDone:
    """A step of the coordinator.

    Attributes:
        what: Name of the exchange: ``"bound"``, ``"release"``: a platform has sent counts or sums; ``"clip"``,
            ``"improve"``: it has been told the clip or the model; ``"trial"``, ``"verdict"``: it has sent sums of a
            trial, or has been told what is served.
        platform: Its number.
    """

    what: str
    platform: int


class PlanningCoordinator:
    """The coordinator of platforms that plan; a context manager, in which its threads run.

    Args:
        terms: Terms of the federation.
        peers: The platforms, in order.
        store: The coordinator's database; it continues from what is in it.
        patience: Seconds that platforms have after the first with feedback; may be infinite.
        stop: Set when the coordinator is to stop.

    Attributes:
        state: State of the protocol's server.
        informed_platforms: Numbers of the platforms that have been told the last model, or all started from it.
    """

    def __init__(
        self,
        terms: Terms,
        peers: Sequence[Peer],
        store: KeyValueStore,
        *,
        patience: float = PLATFORM_PATIENCE,
        stop: threading.Event | None = None,
    ):
        if len(peers) != terms.platforms:
            raise RunError(f"there are {len(peers)} platforms, and the configuration has {terms.platforms}.")
        self.terms, self.patience = terms, patience
        self._peers, self._store, self._stop = tuple(peers), store, stop or threading.Event()
        self.state: Any = terms.compute(terms.protocol.init, terms.key(INIT))
        self._s: Any = terms.protocol
        self._schedule = schedule(terms)
        kept = store.get("state")
        self._over = 0  # exchanges of the schedule of which the state knows
        if kept is not None:
            self._over, self.state = int.from_bytes(kept[:2], "little"), unpack_tree(kept[2:], self.state)
        self._replies: dict[int, dict[int, bytes]] = {place: {} for place in range(len(self._schedule))}
        for name, data in store.below("reply/"):
            place, k = name.split("/")
            self._replies[int(place)][int(k)] = data
        self._steps = {
            int(name): np.frombuffer(data, "<i8").reshape(-1, 2).astype(np.int64)
            for name, data in store.below("steps/")
        }

    def __enter__(self) -> PlanningCoordinator:
        self._pool = ThreadPoolExecutor(len(self._peers), "platform")
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._pool.shutdown()

    @property
    def done(self) -> bool:
        """True if all platforms have been told the last model."""
        return self._over == len(self._schedule)

    @property
    def informed_platforms(self) -> set[int]:
        """Numbers of the platforms that have been told the last model; all, where none is made of their users."""
        models = [at for at, due in enumerate(self._schedule) if isinstance(due.exchange, Improve)]
        return set(self._replies[models[-1]] if models else range(len(self._peers)))

    @property
    def trial(self) -> dict[str, Any]:
        """The trial's verdict so far; empty without a trial. See :func:`fedrank.slates.sums.trial.verdict_json`."""
        return verdict_json(self._s.verdict(self.state)) if self._s.learner.trial else {}

    def run(self, on_step: Callable[[StepDone], object] = lambda step: None) -> None:
        """Ask, make models and tell until all have been told the last, or the coordinator is stopped.

        Args:
            on_step: Called after each step, which has been written by then.

        Raises:
            RunError: A platform was never the one that it should be, the state cannot be written, or a secure sum lacks
                a platform.
        """
        while not self.done and not self._stop.is_set():
            at, due = self._over, self._schedule[self._over]
            if due.collects and self._s.secure_sum:
                total = self._summed_in_secret(at, due)
                if total is None:
                    return
                self._end(at, self._tell_total(due, total))
                for k in due.parties:
                    on_step(StepDone(due.exchange.name, k))
                continue
            asked = [k for k in due.parties if k not in self._replies[at]]
            grace = self.patience if due.collects else float("inf")
            for k, reply in self._heard(asked, due, grace, begun=any(self._s.feedback[k] for k in self._replies[at])):
                self._store.put({f"reply/{at:03}/{k:02}": reply})
                self._replies[at][k] = reply
                on_step(StepDone(due.exchange.name, k))
            if self._stop.is_set() and (due.collects or len(self._replies[at]) < len(self._peers)):
                return
            self._end(at, self._tell(due, self._replies[at]) if due.collects else self.state)

    # -- what came ---------------------------------------------------------------------------------------------------

    def _tell(self, due: Due, replies: dict[int, bytes]) -> Any:
        """The state after the replies to an exchange."""
        exchange = due.exchange
        whole = [replies.get(k, blank_message(exchange.reply)) for k in range(len(self._peers))]
        arrived = np.array([k in replies for k in range(len(self._peers))])
        return exchange.tell(self._state(due.round + 1), exchange.reply.decode_all(b"".join(whole)), arrived)

    def _tell_total(self, due: Due, total: UInt32[np.ndarray, " numbers"]) -> Any:
        """The state after a secure sum: the total stands in the first sender's place, and zeros in the others'."""
        exchange = due.exchange
        if not self._possible(due, total.view(np.int32), len(due.parties)):
            raise RunError(
                f"the total of a secure sum ({exchange.name}, after round {due.round}) is longer than the users of "
                f"{len(due.parties)} platforms can make it: one of them sends what are no sums. Nothing was learnt "
                "of it. Find out which, and begin anew with other folders."
            )
        summed = from_vector(exchange.reply, total)

        def place_total(leaf: Num[np.ndarray, "*shape"]) -> Num[np.ndarray, "platforms *shape"]:
            placed = np.zeros((len(self._peers), *leaf.shape), np.uint32)
            placed[due.parties[0]] = leaf
            return placed

        arrived = np.ones(len(self._peers), bool)
        return exchange.tell(self._state(due.round + 1), map_trees(place_total, summed), arrived)

    def _state(self, number: int) -> Any:
        return self.state._replace(round=np.uint32(number))

    def _end(self, at: int, state: Any) -> None:
        """Write that an exchange is over, and what is known from it."""
        self._store.put({"state": (at + 1).to_bytes(2, "little") + pack_tree(state)})
        self._over, self.state = at + 1, state

    def _possible(self, due: Due, integers: Num[np.ndarray, " numbers"], platforms: int) -> bool:
        """True if integers can be those of the users of that number of platforms, with their noise."""
        exchange, learner = due.exchange, self._s.learner
        users = sum(learner.explorers) * STEPS if isinstance(exchange, Release) else learner.bounders
        if isinstance(exchange, Trial):
            users = learner.trial[learner.look_rounds.index(due.round)] * STEPS
        # No number's noise is beyond its tail, and all together are about √numbers standard deviations long.
        most = platforms * (users + (TAIL + exchange.numbers**0.5) * (exchange.sigma or 0.0))
        return float(np.linalg.norm(np.asarray(integers, np.float64))) <= most

    # -- asking ------------------------------------------------------------------------------------------------------

    def _heard(
        self, platforms: Iterable[int], due: Due, grace: float, begun: bool = False
    ) -> Iterable[tuple[int, bytes]]:
        """Replies as they come; ends when all have come, or ``grace`` seconds after the first with feedback.

        Args:
            platforms: Whom to ask.
            due: The exchange.
            grace: Seconds after the first reply of a platform with feedback.
            begun: Whether it has come before.
        """
        exchange = due.exchange
        body = exchange.request.encode(exchange.ask(self._state(due.round)))

        def attempt(k: int) -> Future[bytes | Silence]:
            return self._pool.submit(self._peers[k].exchange, due.round, due.place, body, _ATTEMPT)

        waiting = {attempt(k): k for k in platforms}
        end = time.monotonic() + grace if begun else float("inf")
        while waiting and not self._stop.is_set() and time.monotonic() < end:
            ended, _ = wait(waiting, timeout=_ATTEMPT, return_when=FIRST_COMPLETED)
            for future in ended:
                k, reply = waiting.pop(future), future.result()
                if not due.collects and isinstance(reply, Silence) and reply.reason == "not-finite":
                    raise RunError(
                        f"platform {k} cannot serve by the model after round {due.round}: with it, numbers leave all "
                        "bounds. The noise is too large for so few users: take a larger epsilon or more explorers."
                    )
                if isinstance(reply, Silence) or not self._readable(due, reply):
                    self._stop.wait(_ATTEMPT / 10)
                    waiting[attempt(k)] = k
                    continue
                if self._s.feedback[k]:  # without feedback there is no model
                    end = min(end, time.monotonic() + grace)
                yield k, reply

    def _readable(self, due: Due, reply: bytes) -> bool:
        """True if a reply is one, and its sums are of no more users than there were."""
        exchange = due.exchange
        said = _decode(exchange.reply, reply)
        if said is None or not due.collects:
            return said is not None
        return self._possible(due, np.asarray(getattr(said, exchange.reply.fields[0].name)), 1)

    # -- a secure sum ------------------------------------------------------------------------------------------------

    def _summed_in_secret(self, at: int, due: Due) -> UInt32[np.ndarray, " numbers"] | None:
        """The total of what platforms with feedback send, begun again until it is there; None: stopped."""
        agreed, deadline = sum_terms(self.terms, due.place), _Deadline(self.patience)
        while not self._stop.is_set():
            server = Server(agreed)
            try:
                asked: dict[int, Any] = dict.fromkeys(due.parties, server.invitation())
                for step, then in enumerate((server.rosters, server.deliveries, server.unmask_requests, server.total)):
                    said = self._step(at, due, step, asked, deadline)
                    if said is None:
                        break
                    asked = then(said)  # type: ignore[assignment] - the last is the total
                else:
                    return np.asarray(asked, np.uint32)
            except SecureSumError as error:
                _log.warning("%s", error)
            self._stop.wait(_ATTEMPT / 10)
        return None

    def _step(self, at: int, due: Due, step: int, asked: dict[int, Any], deadline: _Deadline) -> list[Any] | None:
        """All replies to one step of a secure sum; None: it has to be begun again, or the coordinator stops.

        Raises:
            RunError: A platform has not answered in time.
        """
        _, request, reply = sum_steps(self.terms, due.place)[step]
        bodies = {k: request.encode(message) for k, message in asked.items()}

        def attempt(k: int) -> Future[bytes | Silence]:
            return self._pool.submit(
                self._peers[k].sum_step, due.round, due.place, step, bodies[k], _ATTEMPT, reply.nbytes
            )

        waiting, said = {attempt(k): k for k in asked}, {}
        again = False
        while waiting and not self._stop.is_set() and not again:
            if deadline.is_over:
                raise RunError(
                    f"a secure sum needs all {len(due.parties)} platforms with feedback, and of platform"
                    f"{'s' if len(waiting) > 1 else ''} {', '.join(map(str, sorted(waiting.values())))} nothing was "
                    f"heard for {self.patience:g} s. Nothing was unmasked. Start what does not run; the same command "
                    "goes on. With --wait it waits."
                )
            ended, _ = wait(waiting, timeout=_ATTEMPT / 10, return_when=FIRST_COMPLETED)
            for future in ended:
                k, answer = waiting.pop(future), future.result()
                message = None if isinstance(answer, Silence) else _decode(reply, answer)
                if message is not None:
                    said[k] = message
                    deadline.begin()
                elif isinstance(answer, Silence) and answer.reason not in _AGAIN:
                    if answer.reason == "early-round":
                        deadline.extend()  # it is there, and its users have not left
                    self._stop.wait(_ATTEMPT / 10)
                    waiting[attempt(k)] = k
                else:
                    again = True
        wait(waiting)  # what is on its way must not come into the next sum
        if said:
            self._count(at, step, len(asked), len(said))
        return None if again or waiting else [said[k] for k in sorted(said)]

    def _count(self, at: int, step: int, requests: int, replies: int) -> None:
        """Count messages of a step, of sums that came to nothing too."""
        counts = self._steps.get(at, np.zeros((4, 2), np.int64)).copy()
        counts[step] += requests, replies
        self._store.put({f"steps/{at:03}": counts.astype("<i8").tobytes()})
        self._steps[at] = counts

    # -- what crossed ------------------------------------------------------------------------------------------------

    def ledger(self) -> Ledger:
        """All messages so far, by the first round of each part of the run; as a simulator's.

        Secure sums by their steps, those that came to nothing too.
        """
        counts: dict[tuple[int, int], Int64[np.ndarray, " 2"]] = {}
        for at, due in enumerate(self._schedule):
            replies = len(self._replies[at])
            if (at < self._over or replies) and not (due.collects and self._s.secure_sum):
                each = counts.setdefault((self._first_round(due), due.place), np.zeros(2, np.int64))
                each += len(due.parties), replies
        rows: list[tuple[int, str, Any, Any]] = []
        for (first, place), both in sorted(counts.items()):
            exchange = self.terms.exchanges[place]
            rows.append((first, exchange.name, (exchange.request, exchange.reply), both))
        for at, each in sorted(self._steps.items()):
            due = self._schedule[at]
            for (name, *layouts), both in zip(sum_steps(self.terms, due.place), each, strict=True):
                rows.append((self._first_round(due), f"secure sum: {name}", layouts, both))
        ledger = Ledger()
        for first, name, layouts, both in rows:
            for layout, sender, messages in zip(layouts, ("server", "parties"), both.tolist(), strict=True):
                if messages:
                    ledger.record(first, name, layout, sender=sender, messages=messages)
        return ledger

    def _first_round(self, due: Due) -> int:
        every = self.terms.config.evaluation.every
        return due.round // every * every


class _Deadline:
    """The end of patience, which begins with the first answer."""

    def __init__(self, patience: float):
        self._patience, self._end = patience, float("inf")

    def begin(self) -> None:
        """Start the time of the others when the first platform has answered."""
        self._end = time.monotonic() + self._patience

    def extend(self) -> None:
        """As :meth:`begin`, where a platform has answered before."""
        if self._end < float("inf"):
            self.begin()

    @property
    def is_over(self) -> bool:
        """True if there has been no answer for longer."""
        return time.monotonic() > self._end


def _decode(layout: Layout, reply: bytes) -> Any:
    """A reply; None for what is none."""
    try:
        return layout.decode(reply)
    except WireError:
        return None
