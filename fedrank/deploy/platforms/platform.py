"""One platform: its neural network, its users' transitions, its replies to the coordinator; without HTTP.

A round at a platform, with the number of the visit that all platforms of a user count together::

    visit(r)      its application reports a user: candidates and observation
    answer(r, …)  the coordinator asks for its values (look) and sends federated values (recommend)
    slate(r)      its application gets the slate to show
    outcome(r)    its application reports the outcome: the round is now a transition that can be learnt from
    answer(r, …)  the coordinator runs the learning exchanges, in some rounds

Every change is committed to the file before it is acknowledged, so that a killed process loses none. A request that is
repeated is answered with the same bytes, and nothing is done twice: no noise is drawn anew for a second look, and no
step of learning is taken twice.

**Transitions of different platforms correspond by their round.** A platform keeps that of round r at place r mod the
capacity of its replay buffer, and knows which round a place holds. A round that did not take place here is missing: the
platform says so (:meth:`missing`), and is never asked to learn from it or from a transition whose target looks at it:
the one before it, or as many as targets have steps.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedrank.core.arrays import PyTree
from fedrank.core.errors import RunError, WireError
from fedrank.core.lazy import jax, jnp
from fedrank.core.protocol import Exchange
from fedrank.core.trees import Json
from fedrank.deploy.platforms.folder import KeyValueStore, pack_tree, unpack_tree
from fedrank.deploy.platforms.terms import (
    NotYetError,
    RefusedError,
    Terms,
    blank_message,
    decode_request,
    finish,
    left,
    own_values,
    respond,
)
from fedrank.slates.fedslate.exchanges import FormTargets
from fedrank.slates.fedslate.messages import SharedValues
from fedrank.slates.fedslate.state import PlatformState, empty_view
from fedrank.slates.world.satisfaction import Turn

_DIGEST = 32
#: The largest number of a round: rounds are 32-bit integers with a sign in the protocol's programs, and one more must
#: fit.
LAST_ROUND = 2**31 - 2
#: How far a visit may be beyond the last one, in rounds: a wrong number must not end a platform's life at once.
FURTHEST = 1_000_000


class Stage(enum.StrEnum):
    """Stage of a platform's round."""

    NO_USER = "nobody"  #: No user has come yet.
    THERE = "there"  #: A user is there and waits for a slate.
    SHOWN = "shown"  #: The slate has been made.
    LIVED = "lived"  #: The outcome is known.


class Platform:
    """A platform; for one thread.

    Args:
        terms: Terms of the federation.
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
        self._s, self._store = terms.protocol.slates, store
        self._own = terms.platform_own(index, seeded)
        nothing = jnp.int32(self._s.world.slate), jnp.int32(-1), jnp.float32(0.0), jnp.float32(0.0)
        self._nothing = Turn(*nothing)
        self._turn, self._chose = self._nothing, self._own.choice
        self.round, self.lived, self.alone, self._ended = -1, -1, 0, 0
        self.stage, self._said = Stage.NO_USER, {"visit": "", "outcome": ""}
        self._numbers = np.full(self._s.memory, -1, np.int64)
        self._answers: dict[tuple[int, int], bytes] = {}
        self._written: dict[str, bytes] = {}
        self._load()

    # -- for its application ---------------------------------------------------------------------------------------

    def visit(self, number: int, candidates: Sequence[float], observed: float, newcomer: bool) -> None:
        """Begin a round with a user.

        Args:
            number: Number of the round.
            candidates: The feature of each of the N candidates.
            observed: The platform's observation of the user.
            newcomer: Whether it is another user than in the platform's last round.

        Raises:
            RefusedError: Another visit was reported for this round, the round is over, or there can be no such round:
                once there was one, none that is :data:`FURTHEST` later.
        """
        if not 0 <= number <= LAST_ROUND or 0 <= self.round < number - FURTHEST:
            raise RefusedError("out-of-range")
        documents = np.asarray(candidates, np.float32)
        digest = hashlib.sha256(pack_tree((documents, np.float32(observed), np.bool_(newcomer)))).hexdigest()
        if number == self.round and digest == self._said["visit"]:
            return
        if number <= self.round:
            raise RefusedError("conflict" if number == self.round else "stale-round", round=self.next)
        own, pieces = self._own, {}
        seen = jnp.float32(observed), jnp.asarray(documents)
        if self.stage is Stage.LIVED:
            own, row = left(self._s, own, self._chose, self._turn, *seen, jnp.bool_(newcomer))
            pieces = self._transition(self.lived, row)
        else:  # nothing is known of the round before, if there was one
            view = empty_view(self._s)._replace(first=own.view.first) if newcomer else own.view
            own = own._replace(view=view._replace(observed=seen[0], documents=seen[1]))
        said = {**self._said, "visit": digest}
        self._commit(own, pieces, round=number, stage=Stage.THERE, _said=said)

    def slate(self, number: int) -> list[int]:
        """The slate to show: indices of candidates, int [n], in the order of the slots.

        Raises:
            NotYetError: The coordinator has not sent federated values yet, or the visit was not reported.
            RefusedError: The round is over.
        """
        if number > self.round or (number == self.round and self.stage is Stage.THERE):
            raise NotYetError("early-round")
        if number < self.round:
            raise RefusedError("stale-round", round=self.next)
        return np.asarray(self._own.slate).tolist()

    def recommend_alone(self, number: int) -> list[int]:
        """The slate as of :meth:`slate`, by the platform's own values where no federated ones have come."""
        if number == self.round and self.stage is Stage.THERE:
            place = self.terms.meeting
            self._end_rounds(number)
            values = own_values(self.terms.protocol, self._own)
            question = SharedValues(np.uint32(number), np.asarray(values))
            draws = self.terms.draws(place, self.index, number, self.seeded)
            own, _ = self.terms.compute(respond, self.terms.exchanges[place], question, self._own, draws)
            self._commit(own, {}, stage=Stage.SHOWN, alone=self.alone + 1)
        return self.slate(number)

    def outcome(self, number: int, slot: int | None = None, engagement: float = 0.0) -> None:
        """End a round with the outcome of its slate.

        Args:
            number: Number of the round.
            slot: Slot that was clicked, from 0; None: none was, or this platform has no feedback.
            engagement: Engagement with the clicked item, at least 0.

        Raises:
            NotYetError: There is no slate yet.
            RefusedError: Another outcome was reported before, or there is no such slot.
        """
        n = self._s.world.slate
        if (slot is not None and not 0 <= slot < n) or (slot is None and engagement):
            raise RefusedError("out-of-range")
        digest = hashlib.sha256(repr((slot, float(engagement))).encode()).hexdigest()
        if number == self.lived and digest == self._said["outcome"]:
            return
        if number > self.round or (number == self.round and self.stage is Stage.THERE):
            raise NotYetError("early-round")
        if number < self.round or self.stage is Stage.LIVED:
            raise RefusedError("conflict" if number == self.lived else "stale-round", round=self.next)
        turn = self._nothing
        if slot is not None:
            item = jnp.asarray(self._own.slate[slot], jnp.int32)
            turn = Turn(jnp.int32(slot), item, jnp.float32(engagement), jnp.float32(0.0))
        own, row = finish(self._s, self._own, turn, jnp.int32(number))
        pieces = {**self._transition(number, row), "turn": pack_tree(turn), "chose": pack_tree(own.choice)}
        said = {**self._said, "outcome": digest}
        self._commit(own, pieces, stage=Stage.LIVED, lived=number, _said=said, _turn=turn, _chose=own.choice)
        self._numbers[number % self._s.memory] = number

    @property
    def next(self) -> int:
        """The first round whose slate can still be made."""
        return self.round + (self.stage is not Stage.THERE)

    # -- for the coordinator ---------------------------------------------------------------------------------------

    def answer(self, number: int, place: int, body: bytes) -> bytes:
        """The reply to a request of the coordinator, as bytes.

        Args:
            number: Number of the round.
            place: Index of the exchange in the protocol.
            body: The request's bytes.

        Raises:
            NotYetError: The visit, or the outcome of the slate, has not been reported yet.
            RefusedError: The platform does not answer this request in this round.
        """
        exchange = self._exchange(place)
        request = decode_request(exchange, body)
        digest = hashlib.sha256(body).digest()
        if (kept := self._answers.get((number, place))) is not None:
            if kept[:_DIGEST] != digest:
                raise RefusedError("conflict")
            return kept[_DIGEST:]
        if not exchange.due(number):
            raise RefusedError("not-due")
        learns = place > self.terms.meeting
        self._in_order(number, place, learns)
        self._sensible(request, number, learns)
        self._end_rounds(number)
        draws = self.terms.draws(place, self.index, number, self.seeded)
        own, reply = self.terms.compute(respond, exchange, request, self._own, draws)
        try:
            data = exchange.reply.encode(reply)
        except WireError as error:  # a network that has left all bounds
            raise RefusedError("not-finite") from error
        answers = {key: kept for key, kept in self._answers.items() if key[0] >= number - 1}
        dropped = [_answer_name(*key) for key in self._answers if key not in answers]
        answers[number, place] = digest + data
        pieces = {_answer_name(number, place): digest + data}
        stage = Stage.SHOWN if place == self.terms.meeting else self.stage
        self._commit(own, pieces, dropped, stage=stage, _answers=answers)
        return data

    def missing(self, number: int) -> list[tuple[int, int]]:
        """Rounds up to this one that have no transition in the replay buffer, as ranges (first, last)."""
        rounds = np.arange(max(0, number - self._s.memory + 1), number + 1)
        gone = rounds[self._numbers[rounds % self._s.memory] != rounds]
        parts = np.split(gone, np.flatnonzero(np.diff(gone) > 1) + 1) if gone.size else []
        return [(int(part[0]), int(part[-1])) for part in parts]

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
        }

    def warm(self) -> None:
        """Compile all exchanges, so that the first request does not take seconds."""
        for place, exchange in enumerate(self.terms.exchanges):
            if self._is_asked(exchange):
                blank = decode_request(exchange, blank_message(exchange.request))
                self.terms.compute(
                    respond, exchange, blank, self._own, self.terms.draws(place, self.index, 0, self.seeded)
                )
        seen = jnp.float32(0.0), self._own.view.documents
        left(self._s, self._own, self._chose, self._turn, *seen, jnp.bool_(False))
        finish(self._s, self._own, self._turn, jnp.int32(0))
        own_values(self.terms.protocol, self._own)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _is_asked(self, exchange: Exchange) -> bool:
        """True if an exchange is ever with this platform; the coordinator knows in which rounds."""
        told = not isinstance(exchange, FormTargets) or self._s.sees[self.index]
        return not exchange.silent and told and getattr(exchange, "platform", self.index) == self.index

    def _exchange(self, place: int) -> Exchange:
        if not 0 <= place < len(self.terms.exchanges) or not self._is_asked(self.terms.exchanges[place]):
            raise RefusedError("not-found")
        return self.terms.exchanges[place]

    def _in_order(self, number: int, place: int, learns: bool) -> None:
        """Raise unless this exchange is next in the round."""
        if not learns:
            if number > self.round:
                raise NotYetError("early-round")
            if number < self.round or self.stage is not Stage.THERE:
                raise RefusedError("stale-round", round=self.next)
            return
        if number > self.round or (number == self.round and self.stage in (Stage.THERE, Stage.SHOWN)):
            raise NotYetError("early-round")
        if number != self.lived or self.stage is Stage.SHOWN:
            raise RefusedError("stale-round", round=self.next)
        first = self.terms.meeting + 1
        before = [at for of, at in self._answers if of == number and at >= first]
        if place != first if not before else place < max(before):
            raise RefusedError("out-of-order")

    def _sensible(self, request: PyTree, number: int, learns: bool) -> None:
        """Raise if the request names another round, or transitions that are not here."""
        if int(getattr(request, "round", number + learns)) != number + learns:
            raise RefusedError("out-of-range")
        ages = getattr(request, "ages", None)
        if ages is None:
            return
        then = number - ages.astype(np.int64)
        if ages.min() < 1 or then.min() < 0 or ages.max() >= self._s.memory:
            raise RefusedError("out-of-range")
        wanted = then[:, None] + np.arange(2)  # each transition, and the one after it
        if (self._numbers[wanted % self._s.memory] != wanted).any():
            raise RefusedError("missing-transitions")

    def _end_rounds(self, number: int) -> None:
        """Run the exchanges without messages at the end of the rounds before this one."""
        for exchange in self.terms.exchanges:
            if exchange.silent and any(exchange.due(past) for past in range(self._ended, number)):
                request = decode_request(exchange, blank_message(exchange.request))
                self._own, _ = self.terms.compute(respond, exchange, request, self._own, ())
        self._ended = max(self._ended, number)

    def _transition(self, number: int, row: Any) -> dict[str, bytes]:
        return {f"transition/{number % self._s.memory:08}": number.to_bytes(8, "little") + pack_tree(row)}

    def _commit(
        self, own: PlatformState, pieces: dict[str, bytes], without: Sequence[str] = (), **changes: Any
    ) -> None:
        """Write all changes in one transaction, and only then apply them in memory."""
        parts = {f"own/{name}": pack_tree(getattr(own, name)) for name in PlatformState._fields if name != "replay"}
        now = {
            name: changes.get(attribute, getattr(self, attribute))
            for name, attribute in (
                *(("round", "round"), ("lived", "lived"), ("alone", "alone"), ("ended", "_ended")),
                *(("stage", "stage"), ("said", "_said")),
            )
        }
        parts["now"] = json.dumps(now).encode()
        changed = {name: part for name, part in parts.items() if self._written.get(name) != part}
        self._store.put({**changed, **pieces}, without)
        self._written.update(changed)
        self._own = own
        for attribute, value in changes.items():
            setattr(self, attribute, value)

    def _load(self) -> None:
        kept = self._store.get("now")
        if kept is None:
            self._commit(self._own, {"turn": pack_tree(self._turn), "chose": pack_tree(self._chose)})
            return
        now = json.loads(kept)
        self.round, self.lived, self.alone, self._ended = now["round"], now["lived"], now["alone"], now["ended"]
        self.stage, self._said = Stage(now["stage"]), now["said"]
        self._written = {f"own/{name}": data for name, data in self._store.below("own/")} | {"now": kept}
        own = {
            name: unpack_tree(self._written[f"own/{name}"], getattr(self._own, name))
            for name in PlatformState._fields
            if name != "replay"
        }
        self._turn = unpack_tree(self._store.get("turn") or b"", self._turn)
        self._chose = unpack_tree(self._store.get("chose") or b"", self._chose)
        replay = jax.tree.map(lambda leaf: np.array(leaf), self._own.replay)
        like = jax.tree.map(lambda leaf: leaf[0], self._own.replay)
        for name, data in self._store.below("transition/"):
            place, row = int(name), unpack_tree(data[8:], like)
            self._numbers[place] = int.from_bytes(data[:8], "little")
            jax.tree.map(lambda kept, new, at=place: kept.__setitem__(at, new), replay, row)
        self._own = PlatformState(replay=jax.tree.map(jnp.asarray, replay), **own)
        for name, data in self._store.below("answer/"):
            number, place = name.split("/")
            self._answers[int(number), int(place)] = data


def _answer_name(number: int, place: int) -> str:
    return f"answer/{number:010}/{place:02}"
