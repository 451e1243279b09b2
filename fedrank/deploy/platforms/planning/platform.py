"""One platform that plans: what it shows, its users' sums, its replies to the coordinator; without HTTP.

A round at a platform, with the number of the visit that all platforms of a user count together::

    visit(r)      its application reports a user: candidates and observation
    slate(r)      its application gets the slate; nobody else is asked
    outcome(r)    its application reports the outcome

After the explorers' last round the coordinator asks for the sums, once, and sends the model. The first user after them
waits for the plan; without it the platform goes on exploring, and counts nothing more.

**What counts.** A user's stay counts once, when its agreed rounds are over; of one who leaves before nothing counts,
and of one who stays longer nothing more. Who comes again is another user.

Every change is committed to the file before it is acknowledged, so that a killed process loses none. A request that is
repeated is answered with the same bytes: noise is drawn once for the sums, whatever happens to the reply.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedrank.core.errors import RunError
from fedrank.core.trees import Json
from fedrank.deploy.platforms.key_value_store import KeyValueStore, packed, unpacked
from fedrank.deploy.platforms.platform import FURTHEST, LAST_ROUND, Stage
from fedrank.deploy.platforms.steps import NotYetError, RefusedError, blank_message, decoded, responded
from fedrank.deploy.platforms.terms import Terms
from fedrank.slates.sums import Improve, Release
from fedrank.slates.sums.learner import PlatformState, SumLearner
from fedrank.slates.world.satisfaction import Turn

_DIGEST = 32


class PlanningPlatform:
    """A platform that plans; for one thread.

    Args:
        terms: Terms of the federation, of planned slates.
        index: Number of the platform, from 0.
        store: Its database; a platform continues from what is in it.
        seeded: Draw from the run's seed, as a simulator does; nothing is protected then.

    Raises:
        RunError: There is no such platform, or the file is damaged.
    """

    def __init__(self, terms: Terms, index: int, store: KeyValueStore, *, seeded: bool = False):
        if not 0 <= index < terms.platforms:
            raise RunError(f"there are platforms 0..{terms.platforms - 1}, and none is {index}.")
        self.terms, self.index, self.seeded = terms, index, seeded
        self._s: Any = terms.protocol.settings
        self._store, self._own = store, terms.platform_own(index, seeded)
        self.round, self.lived, self.alone, self._came = -1, -1, 0, 0
        self.stage, self._said = Stage.NOBODY, {"visit": "", "outcome": ""}
        self._answers: dict[int, bytes] = {}
        self._load()

    # -- for its application ---------------------------------------------------------------------------------------

    def visit(self, number: int, candidates: Sequence[float], observed: float, newcomer: bool) -> None:
        """Begin a round with a user; errors as of :meth:`.Platform.visit`.

        Args:
            number: Number of the round.
            candidates: The feature of each of the N candidates.
            observed: The platform's observation of the user's satisfaction, in [0, 1] but for its noise. With
                ``slates.observed`` it enters the sums of an explorer's stay, without feedback too: platforms that
                observe nothing must leave that out, as a number that never changes says that the past does nothing.
            newcomer: Whether it is another user than in the platform's last round.
        """
        if not 0 <= number <= LAST_ROUND or 0 <= self.round < number - FURTHEST:
            raise RefusedError("out-of-range")
        documents = np.asarray(candidates, np.float32)
        digest = hashlib.sha256(packed((documents, np.float32(observed), np.bool_(newcomer)))).hexdigest()
        if number == self.round and digest == self._said["visit"]:
            return
        if number <= self.round:
            raise RefusedError("conflict" if number == self.round else "stale-round", round=self.next)
        other = newcomer or self.stage is Stage.NOBODY
        came = number if other else self._came
        # Rounds that took place elsewhere only pass here too. Who stays longer than agreed is in the last round.
        left = max(1, self._s.world.rounds_per_episode - (number - came))
        own = _arrived(self._s.learner, self._own, np.float32(observed), documents, jnp.bool_(other), left, number)
        stage = Stage.THERE
        if number <= self._s.release_round or self.planned:
            own, stage = self._shown(own, number), Stage.SHOWN
        said = {**self._said, "visit": digest}
        self._commit(own, round=number, stage=stage, _said=said, _came=came)

    def slate(self, number: int) -> list[int]:
        """The slate to show; errors as of :meth:`.Platform.slate`."""
        if number == self.round and self.stage is Stage.THERE and self.planned:
            self._commit(self._shown(self._own, number), stage=Stage.SHOWN)
        if number > self.round or (number == self.round and self.stage is Stage.THERE):
            raise NotYetError("early-round")
        if number < self.round:
            raise RefusedError("stale-round", round=self.next)
        return np.asarray(self._own.slate).tolist()

    def recommend_alone(self, number: int) -> list[int]:
        """The slate as of :meth:`slate`; of a platform that explores where no plan could be made yet."""
        if number == self.round and self.stage is Stage.THERE and not self.planned:
            draws = self.terms.draws(self.terms.meeting, self.index, number, self.seeded)
            self._commit(_explored(self._s.learner, self._own, draws), stage=Stage.SHOWN, alone=self.alone + 1)
        return self.slate(number)

    def outcome(self, number: int, slot: int | None = None, engagement: float = 0.0) -> None:
        """End a round with the outcome of its slate; errors as of :meth:`.Platform.outcome`.

        Args:
            number: Number of the round.
            slot: Slot that was clicked, from 0; None: none was, or this platform has no feedback.
            engagement: Engagement with the clicked item, above 0.
        """
        if (slot is not None and not 0 <= slot < self._s.world.slate) or (slot is None and engagement):
            raise RefusedError("out-of-range")
        if slot is not None and not engagement > 0:  # its logarithm counts
            raise RefusedError("out-of-range")
        digest = hashlib.sha256(repr((slot, float(engagement))).encode()).hexdigest()
        if number == self.lived and digest == self._said["outcome"]:
            return
        if number > self.round or (number == self.round and self.stage is Stage.THERE):
            raise NotYetError("early-round")
        if number < self.round or self.stage is Stage.LIVED:
            raise RefusedError("conflict" if number == self.lived else "stale-round", round=self.next)
        longer = number - self._came >= self._s.world.rounds_per_episode
        if longer:
            slot, engagement = None, 0.0  # a stay counts once, as long as was agreed
        item = jnp.int32(-1) if slot is None else self._own.slate[slot]
        turn = Turn(jnp.int32(-1 if slot is None else slot), item, jnp.float32(engagement), jnp.float32(0.0))
        own = _lived(self._s.learner, self._own, turn)
        if longer:  # nor what a platform sees without feedback
            own = own._replace(stay=self._own.stay, sums=self._own.sums)
        self._commit(own, stage=Stage.LIVED, lived=number, _said={**self._said, "outcome": digest})

    @property
    def next(self) -> int:
        """The first round whose slate can still be made."""
        return self.round + (self.stage is not Stage.THERE)

    @property
    def planned(self) -> bool:
        """Whether the platform has been sent a model, and has planned."""
        return self._place(Improve) in self._answers

    # -- for the coordinator ---------------------------------------------------------------------------------------

    def answer(self, number: int, place: int, body: bytes) -> bytes:
        """The reply to a request of the coordinator, as bytes.

        Args:
            number: Number of the round: the last one of the explorers.
            place: Index of the exchange in the protocol.
            body: The request's bytes.

        Raises:
            NotYetError: The explorers have not left yet.
            RefusedError: The platform does not answer this request.
        """
        if place not in self._places:
            raise RefusedError("not-found")
        exchange = self.terms.exchanges[place]
        request = decoded(exchange, body)
        digest = hashlib.sha256(body).digest()
        if (kept := self._answers.get(place)) is not None:
            if number != self._s.release_round or kept[:_DIGEST] != digest:
                raise RefusedError("conflict")
            return kept[_DIGEST:]
        if not exchange.due(number):
            raise RefusedError("not-due")
        if isinstance(exchange, Release):
            if int(request.round) != number:
                raise RefusedError("out-of-range")
            if self.lived < number and self.round <= number:
                raise NotYetError("early-round")
        elif self._place(Release) in self._places and self._place(Release) not in self._answers:
            raise RefusedError("out-of-order")
        draws = self.terms.draws(place, self.index, number, self.seeded)
        own, reply = responded(exchange, request, self._own, draws)
        if isinstance(exchange, Improve) and not np.array_equal(np.asarray(own.model), np.asarray(request.weights)):
            raise RefusedError("not-finite")
        data = digest + exchange.reply.encode(reply)
        self._commit(own, {f"answer/{place:02}": data}, _answers={**self._answers, place: data})
        return data[_DIGEST:]

    def missing(self, number: int) -> list[tuple[int, int]]:
        """Nobody asks a platform that plans for transitions: none is missing."""
        return []

    def about(self) -> dict[str, Json]:
        """Number, terms and state of the platform, for its coordinator and its application."""
        return {
            "platform": self.index,
            "platforms": self.terms.platforms,
            "terms": self.terms.fingerprint,
            "seeded": self.seeded,
            "round": self.round,
            "next": self.next,
            "stage": self.stage.value,
            "alone": self.alone,
            "explores_until": self._s.release_round,
            "planned": self.planned,
        }

    def warm(self) -> None:
        """Compile everything, so that the first request does not take seconds."""
        for place in (self.terms.meeting, *self._places):
            exchange = self.terms.exchanges[place]
            blank = decoded(exchange, blank_message(exchange.request))
            responded(exchange, blank, self._own, self.terms.draws(place, self.index, 0, self.seeded))
        nobody = Turn(jnp.int32(-1), jnp.int32(-1), jnp.float32(0.0), jnp.float32(0.0))
        learner, view = self._s.learner, self._own.view
        _lived(learner, self._own, nobody)
        _arrived(learner, self._own, np.float32(0.0), np.asarray(view.documents), jnp.bool_(True), 1, 0)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _place(self, kind: type) -> int:
        return next(place for place, one in enumerate(self.terms.exchanges) if isinstance(one, kind))

    @property
    def _places(self) -> tuple[int, ...]:
        """Indices of the exchanges with this platform."""
        release = (self._place(Release),) if self._s.senders[self.index] else ()
        return *release, self._place(Improve)

    def _shown(self, own: PlatformState, number: int) -> PlatformState:
        place = self.terms.meeting
        exchange = self.terms.exchanges[place]
        request = exchange.request.message(np.asarray(number, np.uint32))
        return responded(exchange, request, own, self.terms.draws(place, self.index, number, self.seeded))[0]

    def _commit(self, own: PlatformState, pieces: dict[str, bytes] | None = None, **changes: Any) -> None:
        """Write all changes in one transaction, and only then apply them in memory."""
        now = {
            name: changes.get(attribute, getattr(self, attribute))
            for name, attribute in (
                *(("round", "round"), ("lived", "lived"), ("alone", "alone"), ("came", "_came")),
                *(("stage", "stage"), ("said", "_said")),
            )
        }
        self._store.put({"own": packed(own), "now": json.dumps(now).encode(), **(pieces or {})})
        self._own = own
        for attribute, value in changes.items():
            setattr(self, attribute, value)

    def _load(self) -> None:
        kept = self._store.get("now")
        if kept is None:
            self._commit(self._own)
            return
        now = json.loads(kept)
        self.round, self.lived, self.alone, self._came = now["round"], now["lived"], now["alone"], now["came"]
        self.stage, self._said = Stage(now["stage"]), now["said"]
        self._own = unpacked(self._store.get("own") or b"", self._own)
        self._answers = {int(name): data for name, data in self._store.below("answer/")}


@partial(jax.jit, static_argnums=0)
def _arrived(
    learner: SumLearner, own: PlatformState, observed: Any, documents: Any, other: Any, left: Any, number: Any
) -> PlatformState:
    """The platform when a visit begins; ``other``: of another user than before."""
    documents = jnp.asarray(documents)
    fresh = learner.greeted(own, jnp.asarray(observed), documents)
    there = own.view._replace(observed=jnp.asarray(observed), documents=documents)
    view = jax.tree.map(lambda new, old: jnp.where(other, new, old), fresh, there)._replace(left=jnp.int32(left))
    return own._replace(view=view, stay=jnp.where(other, 0.0, own.stay), rounds=jnp.int32(number))


@partial(jax.jit, static_argnums=0)
def _lived(learner: SumLearner, own: PlatformState, turn: Turn) -> PlatformState:
    """The platform after a round; the user has left if the time is over."""
    over = own.view.left <= 1
    view = learner.view_after(own, turn, own.view.observed, own.view.documents, over)
    return learner.remembered(own, turn, own.rounds, over)._replace(view=view)


@partial(jax.jit, static_argnums=0)
def _explored(learner: SumLearner, own: PlatformState, draws: Any) -> PlatformState:
    taste, slate = learner.explored(own, draws)
    return own._replace(view=own.view._replace(taste=taste), slate=slate)
