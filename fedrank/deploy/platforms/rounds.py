"""The coordinator's rounds: ask the platforms that the protocol asks, in parallel, and tell it their replies.

**Platforms that are not heard.** A platform that does not answer in time is not heard in that round; its values count
as 0, and it makes its slate alone. It gets no further request in that round. A round in which no platform is heard is
repeated. With unlimited patience the coordinator waits for all platforms.

**No platform can stop the others.** What a platform says of itself is taken for itself only: one that says it is in a
later round, answers with what cannot be read, or is another than it was, is not heard. Rounds are skipped only where
no platform can take part in this one, and then to the first round in which one says it can. What one platform can still
do is to give values that are wrong, and to have no transitions, without which no platform learns from a batch.

**Learning needs transitions that correspond one to one.** They correspond by the number of their round. Before a batch
is drawn, every platform says which rounds it has no transition of; the batch is drawn from the others after which no
round is missing that their targets look at. While nothing is missing, that is the protocol's own batch. If no platform
with feedback gives the values of a batch, no platform learns from it, because there is no target.

**Resuming.** The state is written at the end of a round. A coordinator that was killed in the middle sends the same
requests again, which are answered with the same bytes. Where platforms have continued alone, it joins them at their
round.

A platform is a :class:`Peer`: it is asked until it answers or the time is up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64

from fedrank.core.arrays import PyTree
from fedrank.core.errors import RunError, WireError
from fedrank.core.lazy import jax, jit, jnp
from fedrank.core.protocol import Exchange
from fedrank.core.trees import Json
from fedrank.deploy.http.client import ClientResponse, PersistentClient
from fedrank.deploy.platforms.folder import KeyValueStore, pack_tree, unpack_tree
from fedrank.deploy.platforms.platform import LAST_ROUND
from fedrank.deploy.platforms.terms import EXCHANGE_PATH, SUM_PATH, Terms, blank_message
from fedrank.slates.fedslate.exchanges import Batch, FormTargets, sample_without_replacement
from fedrank.slates.fedslate.messages import BatchAges

_log = logging.getLogger("fedrank.coordinator")

#: First and longest pause before a platform is asked again, in seconds.
_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
#: Largest list of missing rounds, in bytes.
_MISSING = 1 << 20
#: Reasons after which a request is sent again.
_SOON = ("early-round", "unavailable", "too-many")
#: Reasons of refusals for good.
_FINAL = ("unauthorised", "malformed", "out-of-range", "not-found", "method", "too-large", "not-due", "not-finite")


@dataclass(frozen=True)
class Silence:
    """A missing reply.

    Attributes:
        reason: Reason that the platform gave; ``"away"`` if it did not answer.
        round: The next round in which it can take part, where it says so.
    """

    reason: str
    round: int | None = None


class Peer:
    """The coordinator's connection to one platform.

    Args:
        terms: The terms of the federation.
        index: Number of the platform that should be there, from 0.
        client: HTTP client of the platform.
        seeded: Whether it should draw from the run's seed.
        stop: Set when the coordinator stops.
    """

    def __init__(
        self, terms: Terms, index: int, client: PersistentClient, *, seeded: bool = False, stop: threading.Event
    ):
        self._terms, self._index, self._client, self._seeded, self._stop = terms, index, client, seeded, stop
        self._met, self._complaint = False, ""  # whether it was once the platform that it should be; the last complaint
        client.on_connect = self._check

    def exchange(self, number: int, place: int, body: bytes, patience: float) -> bytes | Silence:
        """Send the request of an exchange and wait for the reply.

        Args:
            number: Number of the round.
            place: Index of the exchange in the protocol.
            body: The request's bytes.
            patience: Seconds to wait; may be infinite.

        Returns:
            The reply's bytes, of the right length; or why there is none.

        Raises:
            RunError: From the start, another platform is there, one with other settings, or one that refuses for good.
                Once it has been the right one, it is silent instead: it must not stop the others.
        """
        path, size = f"{EXCHANGE_PATH}{number}/{place}", self._terms.exchanges[place].reply.nbytes
        return self._answer(path, body, patience, size, self._terms.names[place])

    def sum_step(
        self, number: int, place: int, step: int, body: bytes, patience: float, expected: int
    ) -> bytes | Silence:
        """Send the request of a step of a secure sum, as :meth:`exchange`.

        Args:
            number: Number of the round.
            place: Index of the exchange whose replies are summed.
            step: Number of the step, from 0.
            body: The request's bytes.
            patience: Seconds to wait; may be infinite.
            expected: Length of the reply, in bytes.
        """
        return self._answer(f"{SUM_PATH}{number}/{place}/{step}", body, patience, expected, f"step {step} of a sum")

    def _answer(self, path: str, body: bytes, patience: float, expected: int, name: str) -> bytes | Silence:
        answer = self._patiently("POST", path, body, patience, max(4096, expected))
        if isinstance(answer, Silence):
            return answer
        if len(answer.body) != expected:
            return self._wrong(f"answers {name} with {len(answer.body)} bytes")
        return answer.body

    def missing(self, number: int, patience: float) -> list[tuple[int, int]] | Silence:
        """Rounds up to this one that the platform has no transition of, as ranges (first, last); errors as above."""
        answer = self._patiently("GET", f"/v1/missing/{number}", None, patience, _MISSING)
        if isinstance(answer, Silence):
            return answer
        try:
            return [(int(first), int(last)) for first, last in answer.json()["missing"]]
        except (ValueError, TypeError, LookupError, OverflowError):
            return self._wrong("says nothing sensible about missing rounds")

    def _patiently(
        self, method: str, path: str, body: bytes | None, patience: float, limit: int
    ) -> ClientResponse | Silence:
        end, pause = time.monotonic() + patience, _PAUSE
        while True:
            try:
                answer = self._client.ask(method, path, body, limit=limit)
            except _WrongPlatformError as error:
                return self._wrong(str(error))
            except OSError as error:
                silence = Silence("away")
                if pause == _PAUSE:
                    _log.warning("platform %d: %s", self._index, error)
            else:
                if answer.status == 200:
                    return answer
                silence = self._refuse(answer)
                if silence.reason not in _SOON:
                    return silence
            left = end - time.monotonic()
            if left <= 0 or self._stop.is_set():
                return silence
            if silence.reason != "early-round":  # for that the platform itself has waited
                self._stop.wait(min(pause, left))
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _check(self) -> None:
        """Check over a new connection that the platform is the expected one."""
        answer = self._client.ask("GET", "/v1/platform")
        if answer.status != 200:
            raise ConnectionError(self._refuse(answer).reason)
        said: dict[str, Json] = answer.json()
        here = {"platform": self._index, "terms": self._terms.fingerprint, "seeded": self._seeded}
        for name, value in here.items():
            if said.get(name) != value:
                found = repr(said.get(name))[:100]
                raise _WrongPlatformError(f"says {name} = {found}, and this coordinator expects {value!r}")
        self._met = True

    def _refuse(self, answer: ClientResponse) -> Silence:
        if answer.reason in _FINAL:
            return self._wrong(f"refuses the coordinator: {answer.reason}", answer.reason)
        said = answer.json().get("round")
        return Silence(answer.reason or f"status {answer.status}", said if type(said) is int else None)

    def _wrong(self, what: str, reason: str = "malformed") -> Silence:
        """A platform that does what it should not: an error at the start, later silence and a line in the log."""
        error = (
            f"platform {self._index} at {self._client.url}: {what}. Give each platform's own address, in order, its "
            "token, and the same configuration to all."
        )
        if not self._met:
            raise RunError(error)
        if error != self._complaint:
            self._complaint = error
            _log.error("%s Until then it is not heard.", error)
        return Silence(reason)


class _WrongPlatformError(Exception):
    """Another platform answers than should."""


#: Seconds that a platform may take to answer by default.
PLATFORM_PATIENCE = 30.0


@dataclass(frozen=True)
class RoundSeen:
    """Result of a round.

    Attributes:
        number: Number of the round.
        heard: Which platforms took part, bool [K].
        learnt: Whether its learning exchanges took place; None: they were not due.
    """

    number: int
    heard: Bool[np.ndarray, " platforms"]
    learnt: bool | None


class AnyCoordinator:
    """The coordinator of some platforms; a context manager, in which its threads run.

    Args:
        terms: Terms of the federation.
        peers: The platforms, in order.
        store: The coordinator's database; it continues from what is in it.
        patience: Seconds that a platform may take to answer; may be infinite.
        seeded: Draw from the run's seed, as a simulator does.
        stop: Set when the coordinator is to stop.

    Attributes:
        state: State of the protocol's server.
    """

    def __init__(
        self,
        terms: Terms,
        peers: Sequence[Peer],
        store: KeyValueStore,
        *,
        patience: float = PLATFORM_PATIENCE,
        seeded: bool = False,
        stop: threading.Event | None = None,
    ):
        if len(peers) != terms.platforms:
            raise RunError(f"there are {len(peers)} platforms, and the configuration has {terms.platforms}.")
        self.terms, self.patience = terms, patience
        self._peers, self._store, self._stop = tuple(peers), store, stop or threading.Event()
        self.state: Any = terms.coordinator_state(seeded)

    def __enter__(self) -> Any:
        self._pool = ThreadPoolExecutor(len(self._peers), "platform")
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._pool.shutdown()


class Coordinator(AnyCoordinator):
    """The coordinator of FedSlate's rounds; arguments as of :class:`AnyCoordinator`."""

    def __init__(self, terms: Terms, *args: Any, **options: Any):
        super().__init__(terms, *args, **options)
        self._every = terms.config.evaluation.every
        self._counts: dict[int, Int64[np.ndarray, "exchanges 2"]] = {}
        self._missing: set[int] | None = None  # rounds that a platform misses; None: not known
        self._load()

    @property
    def done(self) -> int:
        """Number of rounds that are done, which is the number of the next one."""
        return int(self.state.round)

    def run(self, rounds: int) -> Iterator[RoundSeen]:
        """Run rounds until ``rounds`` are done; the state is written before each result is yielded."""
        while self.done < rounds and not self._stop.is_set():
            seen = self.round()
            if seen is not None:
                yield seen

    # -- one round -------------------------------------------------------------------------------------------------

    def round(self) -> RoundSeen | None:
        """Run one round; None if no platform was heard, or if they are in a later round, which is then the next.

        Raises:
            RunError: A platform was never the one that it should be, or the state cannot be written.
        """
        number, exchanges, meeting = self.done, self.terms.exchanges, self.terms.meeting
        state, heard, crossed = self.state, np.ones(self.terms.platforms, bool), np.zeros((len(exchanges), 2), np.int64)
        for place in range(meeting + 1):
            state, heard, silences = self._exchange(state, number, place, heard, crossed)
            ahead = [
                silence.round
                for silence in silences.values()
                if silence.reason == "stale-round" and silence.round and number < silence.round <= LAST_ROUND
            ]
            if not heard.any() and not ahead:
                return None
            if place == 0 and ahead and not heard.any():
                self._join(min(ahead))
                return None
        if not heard.all():
            self._missing = None
        learnt = None
        if any(exchange.due(number) and not exchange.silent for exchange in exchanges[meeting + 1 :]):
            state, learnt = self._learn(state, number, heard.copy(), crossed)
            if not heard.all():
                self._missing = None  # of this round it is not known either
        self._keep(self._end(state, number, number + 1), number, crossed)
        return RoundSeen(number, heard, learnt)

    def _learn(
        self,
        state: PyTree,
        number: int,
        able: Bool[np.ndarray, " platforms"],
        crossed: Int64[np.ndarray, "exchanges 2"],
    ) -> tuple[Any, bool]:
        """Run the learning exchanges with the platforms in ``able``; returns state and whether any learnt."""
        feedback, learnt = np.asarray(self.terms.protocol.feedback), False
        for place in range(self.terms.meeting + 1, len(self.terms.exchanges)):
            exchange = self.terms.exchanges[place]
            if exchange.silent or not exchange.due(number):
                continue
            question = None
            if isinstance(exchange, Batch):
                question = self._batch(exchange, state, number)
                if question is None:
                    return state, False
            asked = self._to_ask(exchange, state) & able
            if not asked.any():
                continue
            state, heard, silences = self._exchange(state, number, place, able, crossed, question)
            if any(silence.reason == "missing-transitions" for silence in silences.values()):
                self._missing = None
            able = able & (heard | ~asked)
            if isinstance(exchange, Batch) and not (able & feedback).any():
                return state, False
            if isinstance(exchange, FormTargets) and not (heard & asked).any():
                return state, False
            learnt = learnt or place > self.terms.meeting + 2
        return state, learnt

    def _exchange(
        self,
        state: PyTree,
        number: int,
        place: int,
        able: Bool[np.ndarray, " platforms"],
        crossed: Int64[np.ndarray, "exchanges 2"],
        question: Any = None,
    ) -> tuple[Any, Bool[np.ndarray, " platforms"], dict[int, Silence]]:
        """Run an exchange with the platforms in ``able``; returns the state, who was heard, and why others were not."""
        exchange = self.terms.exchanges[place]
        asked = self._to_ask(exchange, state) & able
        request = _asked_of(exchange, state) if question is None else question
        heard, silences, replies = np.zeros(len(asked), bool), {}, []
        lead = (len(asked),) if exchange.personal else ()
        whole = exchange.request.encode_all(jax.tree.map(np.asarray, request), lead)
        bodies = [
            whole[k * exchange.request.nbytes :][: exchange.request.nbytes] if lead else whole
            for k in range(len(asked))
        ]
        waiting = {
            k: self._pool.submit(self._peers[k].exchange, number, place, bodies[k], self.patience)
            for k in np.flatnonzero(asked).tolist()
        }
        for k in range(len(asked)):
            reply = waiting[k].result() if k in waiting else None
            if isinstance(reply, bytes) and not _readable(exchange, reply):
                reply = Silence("malformed")
            if isinstance(reply, Silence):
                silences[k] = reply
            heard[k] = isinstance(reply, bytes)
            replies.append(reply if isinstance(reply, bytes) else blank_message(exchange.reply))
        crossed[place] += int(asked.sum()), int(heard.sum())
        told = exchange.reply.decode_all(b"".join(replies))
        return _tell(exchange, state, told, jnp.asarray(heard)), heard, silences

    def _to_ask(self, exchange: Exchange, state: PyTree) -> Bool[np.ndarray, " platforms"]:
        asked = exchange.asked(state, self.terms.platforms)
        return np.ones(self.terms.platforms, bool) if asked is None else np.asarray(asked)

    # -- transitions -----------------------------------------------------------------------------------------------

    def _batch(self, exchange: Batch, state: PyTree, number: int) -> BatchAges | None:
        """The transitions to learn from; None: too few that all platforms have."""
        missing = self._missing_now(number)
        if missing is None:
            return None
        if not missing:
            return _asked_of(exchange, state)
        s = self.terms.protocol.slates
        # Round r − a and the one after it, as the protocol's, but for what is missing.
        last = min(number + 1, s.memory)
        ages = [a for a in range(1, last) if missing.isdisjoint((number - a, number - a + 1))]
        if len(ages) < s.batch:
            return None
        key = jax.random.fold_in(state.key, state.round)
        chosen = np.asarray(ages, np.uint32)[np.asarray(sample_without_replacement(key, len(ages), s.batch))]
        return BatchAges(np.asarray(state.round), chosen)

    def _missing_now(self, number: int) -> set[int] | None:
        """Rounds that a batch must not name; None: a platform did not answer.

        The newest round is not among them: a platform completes it before it answers for the batch.
        """
        if self._missing is None:
            parts = [self._pool.submit(peer.missing, number - 1, self.patience) for peer in self._peers]
            found: set[int] = set()
            for part in [part.result() for part in parts]:
                if isinstance(part, Silence):
                    return None
                oldest = max(0, number - self.terms.protocol.slates.memory)
                for first, last in part:
                    found.update(range(max(first, oldest), min(last, number) + 1))
            self._missing = found
        self._missing = {round_ for round_ in self._missing if round_ > number - self.terms.protocol.slates.memory}
        return self._missing

    # -- between rounds --------------------------------------------------------------------------------------------

    def _end(self, state: PyTree, first: int, after: int) -> Any:
        """The state after the exchanges without messages at the end of rounds ``first`` … ``after`` − 1."""
        for exchange in self.terms.exchanges:
            if exchange.silent and any(exchange.due(number) for number in range(first, after)):
                nothing = exchange.reply.decode_all(blank_message(exchange.reply) * self.terms.platforms)
                state = _tell(exchange, state, nothing, jnp.ones(self.terms.platforms, bool))
        return state

    def _join(self, number: int) -> None:
        """Continue with the round in which the platforms are."""
        state = self._end(self.state, self.done, number)
        self._missing = None
        self._keep(
            state._replace(round=jnp.uint32(number)), self.done, np.zeros((len(self.terms.exchanges), 2), np.int64)
        )

    def _keep(self, state: PyTree, number: int, crossed: Int64[np.ndarray, "exchanges 2"]) -> None:
        block = number // self._every
        counts = self._counts.get(block, 0) + crossed
        self._store.put({"state": pack_tree(state), f"crossed/{block:010}": counts.astype("<i8").tobytes()})
        self.state, self._counts[block] = state, counts

    def _load(self) -> None:
        kept = self._store.get("state")
        if kept is not None:
            self.state = unpack_tree(kept, self.state)
        for name, data in self._store.below("crossed/"):
            self._counts[int(name)] = np.frombuffer(data, "<i8").reshape(-1, 2).astype(np.int64)

    @property
    def message_counts(self) -> list[tuple[int, Int64[np.ndarray, "exchanges 2"]]]:
        """First round, and requests and replies as int64 [exchanges, 2], of every ``evaluation.every`` rounds."""
        return [(block * self._every, counts) for block, counts in sorted(self._counts.items())]


def _readable(exchange: Exchange, reply: bytes) -> bool:
    try:
        exchange.reply.decode(reply)
    except WireError:
        return False
    return True


@partial(jit, static_argnums=0)
def _asked_of(exchange: Exchange, state: PyTree) -> Any:
    return exchange.ask(state)


@partial(jit, static_argnums=0)
def _tell(exchange: Exchange, state: PyTree, replies: PyTree, arrived: Any) -> Any:
    return exchange.tell(state, replies, arrived)
