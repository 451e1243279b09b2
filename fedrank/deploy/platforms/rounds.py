"""The coordinator's rounds: ask the platforms that the protocol asks, in parallel, and tell it their replies.

**Platforms that are not heard.** A platform that does not answer in time is not heard in that round; its values count
as 0, and it makes its slate alone. It gets no further request in that round. A round in which no platform is heard is
repeated. With unlimited patience the coordinator waits for all platforms.

**No platform can stop the others.** What a platform says of itself is taken for itself only: one that says it is in a
later round, answers with what cannot be read, or is another than it was, is not heard. Rounds are skipped only where
nobody can take part in this one, and then to the first round in which somebody says it can. What one platform can still
do is to give values that are wrong, and to have no transitions, without which nobody learns from a batch.

**Learning needs transitions that correspond one to one.** They correspond by the number of their round. Before a batch
is drawn, every platform says which rounds it has no transition of; the batch is drawn from the others after which no
round is missing that their targets look at. While nothing is missing, that is the protocol's own batch. If no platform
with feedback gives the values of a batch, no platform learns from it, because there is no target.

**Resuming.** The state is written at the end of a round. A coordinator that was killed in the middle sends the same
requests again, which are answered with the same bytes. Where platforms have continued alone, it joins them at their
round.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int64

from fedrank.core.arrays import PyTree
from fedrank.core.errors import RunError, WireError
from fedrank.core.protocol import Exchange
from fedrank.deploy.platforms.key_value_store import KeyValueStore, packed, unpacked
from fedrank.deploy.platforms.peer import Peer, Silence
from fedrank.deploy.platforms.platform import LAST_ROUND
from fedrank.deploy.platforms.steps import blank_message
from fedrank.deploy.platforms.terms import Terms
from fedrank.slates.fedslate.exchanges import Batch, FormTargets, sample_without_replacement
from fedrank.slates.fedslate.messages import BatchAges
from fedrank.slates.fedslate.state import CoordinatorState

#: Seconds that a platform may take to answer by default.
PATIENCE = 30.0


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


class Coordinator:
    """The coordinator; a context manager, in which its threads run.

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
        patience: float = PATIENCE,
        seeded: bool = False,
        stop: threading.Event | None = None,
    ):
        if len(peers) != terms.platforms:
            raise RunError(f"there are {len(peers)} platforms, and the configuration has {terms.platforms}.")
        self.terms, self.patience = terms, patience
        self._peers, self._store, self._stop = tuple(peers), store, stop or threading.Event()
        self.state: CoordinatorState = terms.coordinator_state(seeded)
        self._every = terms.config.evaluation.every
        self._counts: dict[int, Int64[np.ndarray, "exchanges 2"]] = {}
        self._missing: set[int] | None = None  # rounds that somebody misses; None: not known
        self._load()

    def __enter__(self) -> Coordinator:
        self._pool = ThreadPoolExecutor(len(self._peers), "platform")
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._pool.shutdown()

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
        self._keep(self._ended(state, number, number + 1), number, crossed)
        return RoundSeen(number, heard, learnt)

    def _learn(
        self,
        state: PyTree,
        number: int,
        able: Bool[np.ndarray, " platforms"],
        crossed: Int64[np.ndarray, "exchanges 2"],
    ) -> tuple[Any, bool]:
        """Run the learning exchanges with the platforms in ``able``; returns state and whether any learnt."""
        feedback, learnt = np.asarray(self.terms.protocol.settings.feedback), False
        for place in range(self.terms.meeting + 1, len(self.terms.exchanges)):
            exchange = self.terms.exchanges[place]
            if exchange.silent or not exchange.due(number):
                continue
            question = None
            if isinstance(exchange, Batch):
                question = self._batch(exchange, state, number)
                if question is None:
                    return state, False
            asked = self._asked(exchange, state) & able
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
        asked = self._asked(exchange, state) & able
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
        return _told(exchange, state, told, jnp.asarray(heard)), heard, silences

    def _asked(self, exchange: Exchange, state: PyTree) -> Bool[np.ndarray, " platforms"]:
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
        s = self.terms.protocol.settings
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
                oldest = max(0, number - self.terms.protocol.settings.memory)
                for first, last in part:
                    found.update(range(max(first, oldest), min(last, number) + 1))
            self._missing = found
        self._missing = {round_ for round_ in self._missing if round_ > number - self.terms.protocol.settings.memory}
        return self._missing

    # -- between rounds --------------------------------------------------------------------------------------------

    def _ended(self, state: PyTree, first: int, after: int) -> Any:
        """The state after the exchanges without messages at the end of rounds ``first`` … ``after`` − 1."""
        for exchange in self.terms.exchanges:
            if exchange.silent and any(exchange.due(number) for number in range(first, after)):
                nothing = exchange.reply.decode_all(blank_message(exchange.reply) * self.terms.platforms)
                state = _told(exchange, state, nothing, jnp.ones(self.terms.platforms, bool))
        return state

    def _join(self, number: int) -> None:
        """Continue with the round in which the platforms are."""
        state = self._ended(self.state, self.done, number)
        self._missing = None
        self._keep(
            state._replace(round=jnp.uint32(number)), self.done, np.zeros((len(self.terms.exchanges), 2), np.int64)
        )

    def _keep(self, state: PyTree, number: int, crossed: Int64[np.ndarray, "exchanges 2"]) -> None:
        block = number // self._every
        counts = self._counts.get(block, 0) + crossed
        self._store.put({"state": packed(state), f"crossed/{block:010}": counts.astype("<i8").tobytes()})
        self.state, self._counts[block] = state, counts

    def _load(self) -> None:
        kept = self._store.get("state")
        if kept is not None:
            self.state = unpacked(kept, self.state)
        for name, data in self._store.below("crossed/"):
            self._counts[int(name)] = np.frombuffer(data, "<i8").reshape(-1, 2).astype(np.int64)

    @property
    def crossed(self) -> list[tuple[int, Int64[np.ndarray, "exchanges 2"]]]:
        """First round, and requests and replies as int64 [exchanges, 2], of every ``evaluation.every`` rounds."""
        return [(block * self._every, counts) for block, counts in sorted(self._counts.items())]


def _readable(exchange: Exchange, reply: bytes) -> bool:
    try:
        exchange.reply.decode(reply)
    except WireError:
        return False
    return True


@partial(jax.jit, static_argnums=0)
def _asked_of(exchange: Exchange, state: PyTree) -> Any:
    return exchange.ask(state)


@partial(jax.jit, static_argnums=0)
def _told(exchange: Exchange, state: PyTree, replies: PyTree, arrived: Any) -> Any:
    return exchange.tell(state, replies, arrived)
