"""The coordinator of platforms that plan: it asks for the sums once, fits the model, and tells everybody.

It does nothing while users are explored, however long that takes, and may be started at their end. Once a platform with
feedback has sent its sums, the others have ``patience`` seconds; the model is fitted from those that were heard, and
told to all. A platform that cannot be told is tried again until it can, or until the coordinator stops: the same
command goes on.

Sums that are longer than those of all explorers can be are not heard. Within that a platform's word is taken: one that
lies moves the model as far as its users could.

Sums and model are written before anything follows from them, so that a coordinator that was killed fits the same model
again. Platforms answer a repeated request with the same bytes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int64

from fedrank.core.errors import RunError, WireError
from fedrank.deploy.platforms.key_value_store import KeyValueStore, packed, unpacked
from fedrank.deploy.platforms.peer import Peer, Silence
from fedrank.deploy.platforms.steps import blank_message
from fedrank.deploy.platforms.terms import Terms
from fedrank.slates.sums import Improve, Release
from fedrank.slates.sums.learner import STEPS

#: Standard deviations of its noise that a platform's sums may be longer than users can make them.
_NOISE = 40.0
#: Seconds that a platform is asked for at a time.
_ATTEMPT = 2.0


@dataclass(frozen=True)
class Told:
    """A step of the coordinator.

    Attributes:
        what: ``"sums"``: a platform has sent its sums; ``"plan"``: it has been told the model.
        platform: Its number.
    """

    what: str
    platform: int


class PlanningCoordinator:
    """The coordinator; a context manager, in which its threads run.

    Args:
        terms: Terms of the federation, of planned slates.
        peers: The platforms, in order.
        store: The coordinator's database; it continues from what is in it.
        patience: Seconds that platforms may come after the first with feedback; may be infinite.
        seeded: Draw from the run's seed, as a simulator does.
        stop: Set when the coordinator is to stop.

    Attributes:
        state: State of the protocol's server.
        sums: Replies of the platforms that have sent their sums, by number.
        told: Numbers of the platforms that have been told the model.
    """

    def __init__(
        self,
        terms: Terms,
        peers: Sequence[Peer],
        store: KeyValueStore,
        *,
        patience: float,
        seeded: bool = False,
        stop: threading.Event | None = None,
    ):
        if len(peers) != terms.platforms:
            raise RunError(f"there are {len(peers)} platforms, and the configuration has {terms.platforms}.")
        self.terms, self.patience = terms, patience
        self._peers, self._store, self._stop = tuple(peers), store, stop or threading.Event()
        self._s: Any = terms.protocol.settings
        self.state: Any = terms.coordinator_state(seeded)
        self.sums: dict[int, bytes] = {int(name): data for name, data in store.below("sums/")}
        self.told = {int(name) for name, _ in store.below("told/")}
        kept = store.get("state")
        self._fitted = kept is not None
        if kept is not None:
            self.state = unpacked(kept, self.state)

    def __enter__(self) -> PlanningCoordinator:
        self._pool = ThreadPoolExecutor(len(self._peers), "platform")
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._pool.shutdown()

    @property
    def done(self) -> bool:
        """Whether all platforms have been told the model."""
        return len(self.told) == len(self._peers)

    def run(self, on_step: Callable[[Told], object] = lambda step: None) -> None:
        """Ask, fit and tell until all have been told, or the coordinator is stopped.

        Args:
            on_step: Called after each step, which has been written by then.

        Raises:
            RunError: A platform was never the one that it should be, or the state cannot be written.
        """
        if not self._fitted:
            self._ask_all(on_step)
            if self._stop.is_set():
                return
            self._fit()
        place = self._place(Improve)
        body = self._encoded(place)
        missing = [k for k in range(len(self._peers)) if k not in self.told]
        for k, _ in self._heard(missing, place, body, grace=float("inf")):
            self._store.put({f"told/{k:02}": b"1"})
            self.told.add(k)
            on_step(Told("plan", k))

    def _ask_all(self, on_step: Callable[[Told], object]) -> None:
        place = self._place(Release)
        asked = [k for k, sends in enumerate(self._s.senders) if sends and k not in self.sums]
        grace = self.patience
        for k, reply in self._heard(
            asked, place, self._encoded(place), grace, begun=any(self._s.feedback[k] for k in self.sums)
        ):
            self._store.put({f"sums/{k:02}": reply})
            self.sums[k] = reply
            on_step(Told("sums", k))

    def _fit(self) -> None:
        exchange = self.terms.exchanges[self._place(Release)]
        replies = [self.sums.get(k, blank_message(exchange.reply)) for k in range(len(self._peers))]
        arrived = jnp.asarray([k in self.sums for k in range(len(self._peers))])
        state = self.state._replace(round=jnp.uint32(self._s.release_round + 1))
        state = exchange.tell(state, exchange.reply.decode_all(b"".join(replies)), arrived)
        self._store.put({"state": packed(state)})
        self.state, self._fitted = state, True

    def _heard(
        self, platforms: Iterable[int], place: int, body: bytes, grace: float, begun: bool = False
    ) -> Iterable[tuple[int, bytes]]:
        """Replies as they come; ends when all have come, or ``grace`` seconds after the first with feedback.

        Args:
            platforms: Whom to ask.
            place: Index of the exchange.
            body: The request.
            grace: Seconds after the first reply of a platform with feedback.
            begun: Whether it has come before.
        """

        def attempt(k: int) -> Future[bytes | Silence]:
            return self._pool.submit(self._peers[k].exchange, self._s.release_round, place, body, _ATTEMPT)

        waiting = {attempt(k): k for k in platforms}
        end = time.monotonic() + grace if begun else float("inf")
        while waiting and not self._stop.is_set() and time.monotonic() < end:
            ended, _ = wait(waiting, timeout=_ATTEMPT, return_when=FIRST_COMPLETED)
            for future in ended:
                k, reply = waiting.pop(future), future.result()
                if isinstance(reply, Silence) or not self._readable(place, reply):
                    self._stop.wait(_ATTEMPT / 10)
                    waiting[attempt(k)] = k
                    continue
                if self._s.feedback[k]:  # without feedback there is no model
                    end = min(end, time.monotonic() + grace)
                yield k, reply

    def _readable(self, place: int, reply: bytes) -> bool:
        """Whether a reply is one, and its sums are of no more users than were explored."""
        try:
            said = self.terms.exchanges[place].reply.decode(reply)
        except WireError:
            return False
        if not isinstance(self.terms.exchanges[place], Release):
            return True
        most = sum(self._s.learner.explorers) * STEPS + _NOISE * (self._s.sigma or 0.0)
        return float(np.linalg.norm(np.asarray(said.sums, np.float64))) <= most

    def _encoded(self, place: int) -> bytes:
        exchange = self.terms.exchanges[place]
        state = self.state._replace(round=jnp.uint32(self._s.release_round))
        return exchange.request.encode(exchange.ask(state))

    def _place(self, kind: type) -> int:
        return next(place for place, one in enumerate(self.terms.exchanges) if isinstance(one, kind))

    @property
    def crossed(self) -> list[tuple[int, Int64[np.ndarray, "exchanges 2"]]]:
        """First round of the part of the run, and requests and replies as int64 [exchanges, 2]; as a simulator's."""
        counts = np.zeros((len(self.terms.exchanges), 2), np.int64)
        counts[self._place(Release)] = self._s.releases if self.sums else 0, len(self.sums)
        counts[self._place(Improve)] = (len(self._peers) if self._fitted else 0), len(self.told)
        every = self.terms.config.evaluation.every
        return [(self._s.release_round // every * every, counts)]

    @property
    def heard(self) -> Bool[np.ndarray, " platforms"]:
        """Which platforms' sums are in the model."""
        return np.array([k in self.sums for k in range(len(self._peers))])
