"""One platform that plans: sessions of its users, their sums, its replies to the coordinator; without HTTP.

A team embeds the object, or talks to it by :mod:`fedrank.deploy.platforms.service`::

    platform.begin("s-17")                                  a user comes; any number are there at once
    platform.slate("s-17", items=["a", "b", …])             which of these candidates to show, in order
    platform.outcome("s-17", slot=1, engagement=23.4)       what was clicked of them; 0 is a value
    platform.end("s-17")                                    the user leaves; or stays silent for a while

Candidates are ids of registered items, or features: d numbers each, as agreed (``world.features``), of any number of
items from a slate upwards. Several features must have mean 0 and variance 1/3 and be uncorrelated, as sums are read as
those of such items: the first session does not begin with registered items that differ, and a platform that has shown
other candidates takes no part (``unlike-agreed``; :func:`~fedrank.slates.planning.items.differ_from_design`).

The first users are explored. When as many stays as agreed have been counted, their sums wait for the coordinator
(:func:`schedule`), noise included, and who comes then counts in the next ones. No session waits for another party:
without the last model slates explore on, and add to nothing.

With the model a trial begins, where one was agreed (:mod:`fedrank.slates.sums.trial`): each session is served by the
plan, as before, or greedily, by lot of its name. "As before" is the slate that the application gives as ``present``,
and one at random without it. Give a stay the same name at all platforms, and all serve it alike.

**What counts.** A stay is the rounds of a session: those that were agreed (``world.time_budget`` of a platform), or
fewer where it ends before, by word or by silence. A shorter one counts in proportion, as if it had gone on like that,
from a quarter of the agreed rounds; what comes after the agreed rounds counts nothing. It counts once, in one sum.
How many counted and how many were too short is told to the platform's own application, and to no coordinator.

Every change is committed before it is acknowledged, so that a killed process loses none. Sums are made before anything
of later users counts, and kept: a repeated request is answered with the same bytes. With a secure sum they leave under
masks alone (:class:`SecretSums`).

A call may be repeated until the next one of its session, a batch may not. Names of sessions that have ended are kept
for :data:`REMEMBERED` seconds and do not begin again, so that no stay counts twice whatever is repeated.

**Secure sums.** The vector is the kept answer of the exchange, noise included: it is the same in every sum that is
begun, so that a sum that is begun again tells nothing new. Keys and masks are new in each, and what was kept of an
earlier one is gone: it can never be unmasked. Within a sum, a step that is asked for again is answered with the same
bytes, and a platform that was killed between two steps goes on.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Int, UInt32

from fedrank.core import protocol
from fedrank.core.arrays import AnyArray
from fedrank.core.errors import RunError, SecureSumError
from fedrank.core.trees import Json
from fedrank.deploy.http.guard import RefusedError
from fedrank.deploy.platforms.folder import (
    MOST_CALLS,
    KeyValueStore,
    NotYetError,
    Terms,
    decode_as,
    pack_tree,
    unpack_tree,
)
from fedrank.privacy.secure_sum.messages import Step, message_sizes
from fedrank.privacy.secure_sum.messages import Terms as SumTerms
from fedrank.privacy.secure_sum.party import Party
from fedrank.slates.build import PLATFORMS
from fedrank.slates.planning.items import differ_from_design
from fedrank.slates.planning.learner import LISTS
from fedrank.slates.sums import AfterExplorers, CountNorms, Decide, Improve, IntegersOfUsers, SetClip, Trial
from fedrank.slates.sums.learner import PlatformState, clip_stay, norm_bin
from fedrank.slates.sums.secure_sum import as_vector
from fedrank.slates.sums.trial import FALLBACK, verdict_json
from fedrank.slates.world.satisfaction import Turn

#: Seconds without a word after which a stay has ended, unless told otherwise.
SILENCE = 1800.0
#: Seconds for which the names of ended sessions are kept, and cannot be used again.
REMEMBERED = 30 * 86400.0
#: Share of the agreed rounds from which a stay counts.
_LEAST_STAY = 0.25
#: Longest id of a session or an item, and most candidates of one slate.
LONGEST_ID, MOST_CANDIDATES = 200, 100_000
#: Largest size of a feature where items have several; a single one is in [0, 1].
LARGEST_FEATURE = 100.0
#: How far an observation may be outside of [0, 1], in standard deviations of the agreed noise on it.
_NOISES = 10.0
#: Calls of an application by name: their arguments in JSON, the first of which must be given, and what these may be.
CALLS: dict[str, dict[str, tuple[type, ...]]] = {
    "register": {"items": (dict,)},
    "begin": {"session": (str,)},
    "slate": {
        "session": (str,),
        "candidates": (list,),
        "items": (list,),
        "observed": (int, float),
        "present": (list,),
    },
    "outcome": {"session": (str,), "slot": (int, type(None)), "engagement": (int, float)},
    "end": {"session": (str,)},
}


class Due(NamedTuple):
    """An exchange of a run.

    Attributes:
        round: The last round before it.
        place: Index of the exchange in the protocol.
        collects: Whether platforms are asked for integers; else they are told something.
        parties: Numbers of the platforms that take part: those that send such integers, or all that are told.
        exchange: The exchange itself.
    """

    round: int
    place: int
    collects: bool
    parties: tuple[int, ...]
    exchange: Any

    @property
    def key(self) -> tuple[int, int]:
        """Round and place, which name it on the wire."""
        return self.round, self.place


def schedule(terms: Terms) -> tuple[Due, ...]:
    """All exchanges of a run in which something crosses, in order."""
    return tuple(
        sorted(
            Due(round_, place, isinstance(exchange, IntegersOfUsers), parties(terms, exchange), exchange)
            for place, exchange in enumerate(terms.exchanges)
            if isinstance(exchange, AfterExplorers)
            for round_ in exchange.rounds
            if round_ >= 0  # without explorers, whose model is one that there was before, there are no sums of them
        )
    )


def parties(terms: Terms, exchange: AfterExplorers) -> tuple[int, ...]:
    """Numbers of the platforms that take part in an exchange."""
    sends = exchange.senders if isinstance(exchange, IntegersOfUsers) else (True,) * terms.platforms
    return tuple(k for k, there in enumerate(sends) if there)


def sum_terms(terms: Terms, place: int) -> SumTerms:
    """Terms of a secure sum of an exchange: each platform masks with all others, and all must stay.

    A coordinator could otherwise have the total of all but one, and later that of all: the difference is one's own.
    """
    exchange: Any = terms.exchanges[place]
    neighbours = len(parties(terms, exchange)) - 1
    return SumTerms(exchange.numbers, neighbours, neighbours + 1)


def sum_steps(terms: Terms, place: int) -> tuple[Step, ...]:
    """The four steps of a secure sum of an exchange, with the layouts of their messages."""
    agreed = sum_terms(terms, place)
    return message_sizes(agreed.length, agreed.neighbours)


_DIGEST = 32
#: Name of what is not as agreed in items.
_UNLIKE = "unlike"
_KEYS, _SHARES, _VECTORS, _UNMASKING = range(4)


class SecretSums:
    """A platform's part in secure sums; for one thread.

    Args:
        terms: Terms of the federation.
        index: Number of the platform, from 0.
        store: Its database.
    """

    def __init__(self, terms: Terms, index: int, store: KeyValueStore):
        self._terms, self._index, self._store = terms, index, store

    def step(self, due: Due, step: int, body: bytes, vector: UInt32[np.ndarray, " numbers"]) -> bytes:
        """The reply to one step of a sum.

        Args:
            due: The exchange whose integers are summed.
            step: 0..3: keys, shares, vectors, unmasking.
            body: The request's bytes; keys with another session begin another sum.
            vector: What the platform adds.

        Raises:
            RefusedError: No request of this step; or the sum cannot go on and has to be begun again.
        """
        steps = sum_steps(self._terms, due.place)
        if not 0 <= step < len(steps):
            raise RefusedError("not-found")
        request = decode_as(steps[step].request, body)
        at, digest = f"sum/{due.round:010}/{due.place:02}/", hashlib.sha256(body).digest()
        kept = self._store.get(f"{at}{step}")
        if kept is not None and kept[:_DIGEST] == digest:
            return kept[_DIGEST:]
        if kept is not None and step != _KEYS:
            raise RefusedError("sum-stopped")
        agreed, old = sum_terms(self._terms, due.place), [f"{at}{name}" for name, _ in self._store.below(at)]
        try:
            if step == _KEYS:
                party = Party(agreed, self._index)
                reply: Any = party.advertise(request)
            else:
                secrets = self._store.get(f"{at}party")
                if secrets is None:
                    raise RefusedError("sum-stopped")
                party = Party.unpack(agreed, secrets)
                if step == _SHARES and not set(np.asarray(request.parties).tolist()) <= set(due.parties):
                    raise RefusedError("out-of-range")
                if step == _SHARES:
                    reply = party.share(request)
                elif step == _VECTORS:
                    reply = party.mask(request, vector)
                else:
                    reply = party.unmask(request)
        except SecureSumError as error:
            self._store.put({}, [f"{at}party"])
            raise RefusedError("sum-stopped") from error
        data = steps[step].reply.encode(reply)
        pieces = {f"{at}{step}": digest + data}
        # After the last step its secrets are of no more use to anybody who keeps to the rules.
        gone = old if step == _KEYS else [f"{at}party"] if step == _UNMASKING else []
        if step != _UNMASKING:
            pieces[f"{at}party"] = party.pack()
        self._store.put(pieces, gone)
        return data


class Session(NamedTuple):
    """The stay of a user so far; arrays of fixed sizes, written as one piece.

    Attributes:
        number: How many began before it.
        rounds: Rounds that are over.
        shown: 1 if a slate waits for its outcome.
        last: When it was last heard of, in seconds since 1970.
        known: What the learner keeps of the user.
        taste: What an exploration shows.
        observed: The satisfaction that was observed last.
        stay: Sum of what its rounds contribute.
        arm: Arm of a trial by which it is served.
        tested: 1 if it began with a model, and counts in the trial.
        tally: What a trial keeps of it.
        items: Features of the slate's items.
        places: Their places among the candidates.
        asked: Hash of the candidates, to tell a repeated request.
        told: Hash of the last outcome.
    """

    number: Int[AnyArray, ""]
    rounds: Int[AnyArray, ""]
    shown: Int[AnyArray, ""]
    last: Float[AnyArray, ""]
    known: Any
    taste: Float[AnyArray, ""]
    observed: Float[AnyArray, ""]
    stay: Float[AnyArray, " statistics"]
    arm: Int[AnyArray, ""]
    tested: Int[AnyArray, ""]
    tally: Float[AnyArray, " tally"]
    items: Float[AnyArray, "slots *features"]
    places: Int[AnyArray, " slots"]
    asked: Int[AnyArray, ""]
    told: Int[AnyArray, ""]


class PlanningPlatform:
    """A platform that plans; for one thread.

    Args:
        terms: Terms of the federation, of planned slates.
        index: Number of the platform, from 0.
        store: Its database; a platform continues from what is in it.
        silence: Seconds without a word after which a stay has ended.

    Attributes:
        begun: Sessions so far.
        stays: Stays that counted.
        cut_short: Stays that were too short to count.

    Raises:
        RunError: There is no such platform, or the file is damaged.
    """

    def __init__(self, terms: Terms, index: int, store: KeyValueStore, *, silence: float = SILENCE):
        if not 0 <= index < terms.platforms:
            raise RunError(f"there are platforms 0..{terms.platforms - 1}, and none is {index}.")
        self.terms, self.index, self.silence = terms, index, silence
        self._s: Any = terms.protocol
        self._learner: Any = self._s.learner
        key = terms.key(PLATFORMS, index)
        self._store, self._own = store, terms.compute(terms.protocol.platform, key, np.asarray(index, np.int32))
        self.begun, self.stays, self.cut_short, self._counted, self._swept, self._forgot = 0, 0, 0, 0, 0.0, 0.0
        self._answers: dict[tuple[int, int], bytes] = {}
        self._schedule = tuple(due for due in schedule(terms) if index in due.parties)
        sends = any(due.collects for due in self._schedule)
        self._secret = SecretSums(terms, index, store) if self._s.secure_sum and sends else None
        self._sessions: dict[str, Session] = {}
        self._places: dict[str, int] = {}
        self._features = np.zeros((0, *self._shape), np.float32)
        self._load()

    # -- for its application ---------------------------------------------------------------------------------------

    @property
    def _shape(self) -> tuple[int, ...]:
        """Shape of an item's features: one number, or d of them."""
        d = self._s.world.features
        return () if d == 1 else (d,)

    def register(self, items: Mapping[str, Any]) -> None:
        """Keep features of items, so that candidates can be named by id; a known id gets the new features.

        Args:
            items: By id, the item's feature, in [0, 1], or its d features, up to :data:`LARGEST_FEATURE` in size.

        Raises:
            RefusedError: An id is empty or too long, or features are not those that were agreed.
        """
        found = {name: np.asarray(self._rows([one], 1)[0]) for name, one in items.items()}
        if not all(_is_name(name) for name in found):
            raise RefusedError("malformed", expected=f"ids of 1 to {LONGEST_ID} characters")
        self._store.put({f"item/{name}": row.tobytes() for name, row in found.items()})
        self._keep_items(found)

    def begin(self, session: str, now: float | None = None) -> None:
        """Begin the session of a user who comes; one that has begun goes on, and has been heard of.

        Args:
            session: The application's name of the stay; a user who comes again needs another.
            now: Seconds since 1970; None: the clock's.

        Raises:
            RefusedError: The name is empty or too long, or that of a session that has ended; or it is the first
                session, and registered items are not as agreed.
        """
        if not _is_name(session):
            raise RefusedError("malformed", expected=f"the name of a session has 1 to {LONGEST_ID} characters")
        now = time.time() if now is None else now
        self.sweep(now)
        if session not in self._sessions:
            if self._store.get(_ended_name(session)) is not None:
                days = REMEMBERED / 86400
                raise RefusedError("ended", expected=f"a name that no session had that ended in the last {days:g} days")
            if not self.begun:
                _refuse_unlike(self._unlike(self._features))
            number = np.asarray(self.begun, np.int64)
            drawn = number if self.terms.seeded else np.asarray(_hash(f"{self.terms.fingerprint} {session}".encode()))
            # A platform without feedback sends no sums of the trial; that it is over says the last verdict to all.
            arm = self._learner.arm_at(self._own, drawn % 2**31, self._has_answered(Decide))
            new = self._first._replace(
                number=number, last=np.asarray(now), tested=np.asarray(int(self.has_planned)),
                arm=np.asarray(arm, np.int64),
            )  # fmt: skip
            self._keep(session, new, self._own, begun=self.begun + 1)
        else:
            self._keep(session, self._sessions[session]._replace(last=np.asarray(now)), self._own)

    def slate(
        self,
        session: str,
        candidates: Sequence[Any] | Float[np.ndarray, "candidates *features"] | None = None,
        items: Sequence[str] | None = None,
        observed: float | None = None,
        now: float | None = None,
        present: Sequence[Any] | None = None,
    ) -> list[int]:
        """The candidates to show: their places, in the order of the slate.

        A second request in the same round gets the same slate for the same candidates, and another for others, which
        then takes the first one's place.

        Args:
            session: Of a user who has come.
            candidates: Features of each item that could be shown.
            items: Ids of registered ones, in place of features.
            observed: The satisfaction that is observed, in [0, 1] but for noise: up to ten of its agreed standard
                deviations beyond; None: as last time.
            now: Seconds since 1970; None: the clock's.
            present: The slate that would be shown without a plan, as places; None: one at random.

        Raises:
            RefusedError: No such session or item, or what is given is not what was agreed; says what was.
        """
        now = time.time() if now is None else now
        self.sweep(now)
        s, world, before = self._learner, self._s.world, self._there(session)
        if (candidates is None) == (items is None):
            raise RefusedError("malformed", expected="either candidates or items")
        rows = self._rows(candidates, world.slate) if items is None else self._rows_of(items)
        seen = before.observed if observed is None else _as_floats(observed)
        low, high = 0.0 - _NOISES * world.observation_noise, 1.0 + _NOISES * world.observation_noise
        if seen.ndim or not low <= seen <= high:
            raise RefusedError("out-of-range", expected=f"observed is a finite number in [{low:g}, {high:g}]")
        fallback = self._current_slate(present, len(rows))
        asked = _hash(rows.tobytes() + np.float32(seen).tobytes() + repr(present).encode())
        if before.shown and asked == before.asked:
            return before.places.tolist()
        # Begins anew after 2³¹ rounds, as the learner counts them in 32 bits.
        number = (int(before.number) * world.rounds_per_episode + int(before.rounds)) % 2**31
        own = self._seen_by(before, rows, seen)._replace(rounds=np.asarray(number, np.int32))
        learnt, pieces = self._own.learnt, dict[str, bytes]()
        draws = self.terms.draws(self.terms.meeting, self.index, number)
        if self.has_planned:
            places, taste = self.terms.compute(s.serve, own, draws), before.taste
            if fallback is not None and own.view.arm == FALLBACK:
                places = fallback
        else:
            taste, places = s.explore_slate(own, draws)
            listed = self._as_planned(rows, number)
            if listed is not None:
                learnt = s.learnt_after(own._replace(view=own.view._replace(documents=listed)))
                pieces[f"list/{number % LISTS:02}"] = number.to_bytes(8, "little") + listed.tobytes()
        places = np.asarray(places, np.int32)
        after = before._replace(
            shown=np.asarray(1), taste=np.asarray(taste, np.float32), observed=seen, items=rows[places], places=places,
            asked=np.asarray(asked), last=np.asarray(now),
        )  # fmt: skip
        self._keep(session, after, self._own, pieces)
        self._own = self._own._replace(learnt=learnt)  # of which the list is what has changed, and was written
        return places.tolist()

    def outcome(self, session: str, slot: int | None = None, engagement: float = 0.0, now: float | None = None) -> None:
        """End a round with the outcome of its slate; the same outcome twice counts once.

        Args:
            session: Of a user who was shown a slate.
            slot: Slot that was clicked, from 0; None: none was, or this platform has no feedback.
            engagement: Engagement with the clicked item, at least 0. Its logarithm counts: from a thousandth of
                ``slates.scale`` downwards all is as much as that.
            now: Seconds since 1970; None: the clock's.

        Raises:
            RefusedError: No such session, no slate, or a number that is none; says what was agreed.
        """
        before, world = self._there(session), self._s.world
        if (slot is not None and not 0 <= slot < world.slate) or not 0 <= engagement < 3e38:
            raise RefusedError("out-of-range", expected=f"slot in 0..{world.slate - 1}, engagement of at least 0")
        if slot is None and engagement:
            raise RefusedError("out-of-range", expected="a slot, where there is engagement")
        told = _hash(repr((slot, float(engagement))).encode())
        if not before.shown:
            if before.rounds and told == before.told:
                return
            raise RefusedError("out-of-order", expected="a slate before its outcome")
        own = self._seen_by(before, before.items, before.observed)
        own = own._replace(slate=np.arange(world.slate, dtype=np.int32))
        place = np.asarray(-1 if slot is None else slot, np.int32)
        least = 1e-3 * getattr(self._learner, "scale", 1.0)
        turn = Turn(place, place, np.asarray(max(engagement, least), np.float32), before.observed)
        stay, rounds = before.stay, int(before.rounds) + 1
        if not self.has_planned and rounds <= world.rounds_per_episode:
            stay = self.terms.compute(lambda: stay + self._learner.round_part(own, turn)).astype(np.float32)
        known, tally = self._learner.known_after(own, turn), before.tally
        if self._learner.trial and before.tested and rounds <= world.rounds_per_episode:
            tally = self.terms.compute(self._learner.tally_after, own, turn).astype(np.float32)
        after = before._replace(
            rounds=np.asarray(rounds), shown=np.asarray(0), stay=stay, tally=tally, told=np.asarray(told),
            known=np.asarray(known, np.float32), last=np.asarray(time.time() if now is None else now),
        )  # fmt: skip
        whole = rounds == world.rounds_per_episode
        pieces, shared, changes = self._count(after, self._own) if whole else ({}, self._own, {})
        self._keep(session, after, shared, pieces, **changes)

    def end(self, session: str, now: float | None = None) -> None:
        """End the session of a user who has left; of one that is not there, nothing follows.

        Args:
            session: Of the user; its name cannot be used again for :data:`REMEMBERED` seconds.
            now: Seconds since 1970; None: the clock's.
        """
        gone = self._sessions.get(session)
        if gone is None:
            return
        counted = int(gone.rounds) >= self._s.world.rounds_per_episode  # a whole stay has
        pieces, shared, changes = ({}, self._own, {}) if counted else self._count(gone, self._own)
        pieces[_ended_name(session)] = repr(time.time() if now is None else now).encode()
        self._commit(shared, pieces, [f"session/{session}"], **changes)
        del self._sessions[session]

    def sweep(self, now: float) -> None:
        """End the stays of those who have been silent for long; looks at most once a second."""
        if abs(now - self._swept) < 1.0:
            return
        self._swept = now
        for name in [name for name, one in self._sessions.items() if now - float(one.last) > self.silence]:
            self.end(name, now)
        if now > self._forgot + 86400.0:
            self._forgot = now
            old = [name for name, at in self._store.below("ended/") if now - float(at) > REMEMBERED]
            self._store.put({}, [f"ended/{name}" for name in old])

    def call(self, said: Mapping[str, Json]) -> dict[str, Json]:
        """A call by name, as JSON has it: ``{"slate": […]}``, or empty.

        Args:
            said: ``call``, one of :data:`CALLS`, and its arguments by name.

        Raises:
            RefusedError: It is none, or as that call.
        """
        given = dict(said)
        known = CALLS.get(str(given.pop("call", None)))
        if known is None:
            raise RefusedError("not-found", expected=f"a call of {', '.join(CALLS)}")
        name, kinds = str(said["call"]), known
        if not kinds.keys() >= given.keys() or not all(type(given[one]) in kinds[one] for one in given):
            raise RefusedError("malformed", expected=f"{name} with {', '.join(kinds)}")
        if next(iter(kinds)) not in given:
            raise RefusedError("malformed", expected=f"{name} with {next(iter(kinds))}")
        found = getattr(self, name)(**given)
        return {} if found is None else {"slate": found}

    def batch(self, calls: Sequence[Mapping[str, Json]]) -> list[dict[str, Json]]:
        """Several calls in order, as a log has them; what each gives, or the reason why it was refused.

        Args:
            calls: Each as of :meth:`call`. Not to be sent again: of a session that goes on, they would count again.

        Raises:
            RefusedError: They are more than :data:`~fedrank.deploy.platforms.folder.MOST_CALLS`; none was done.
        """
        if len(calls) > MOST_CALLS:
            raise RefusedError("malformed", expected=f"up to {MOST_CALLS:,} calls")
        answers: list[dict[str, Json]] = []
        for one in calls:
            try:
                answers.append(self.call(one if isinstance(one, dict) else {}))
            except RefusedError as error:
                answers.append({"error": error.reason, **error.more})
        return answers

    @property
    def has_planned(self) -> bool:
        """True if the platform has been sent the last model, or started from one, and has planned."""
        return self._has_answered(Improve)

    # -- for the coordinator ---------------------------------------------------------------------------------------

    def answer(self, number: int, place: int, body: bytes) -> bytes:
        """The reply to a request of the coordinator, as bytes.

        Args:
            number: Number of the round: the last one of some users.
            place: Index of the exchange in the protocol.
            body: The request's bytes.

        Raises:
            NotYetError: These users have not left yet.
            RefusedError: The platform does not answer this request.
        """
        if place not in {due.place for due in self._schedule if not (due.collects and self._secret)}:
            raise RefusedError("not-found")
        exchange = self.terms.exchanges[place]
        request = decode_as(exchange.request, body)
        due = self._due(number, place)
        if int(getattr(request, "round", number)) != number:
            raise RefusedError("out-of-range")
        digest = hashlib.sha256(body).digest()
        self._wait_for(due)
        if (kept := self._answers.get(due.key)) is not None:
            if kept[:_DIGEST] != digest:
                raise RefusedError("conflict")
            return kept[_DIGEST:]
        told = (one for one in self._schedule if one.round < number and not one.collects)
        if not all(one.key in self._answers for one in told):
            raise RefusedError("out-of-order")
        own, reply = self._respond(due, request, self._own)
        if isinstance(exchange, Improve) and not np.array_equal(np.asarray(own.model), np.asarray(request.weights)):
            raise RefusedError("not-finite")
        if isinstance(exchange, Decide) and float(own.verdict[0]) != float(request.verdict[0]):
            raise RefusedError("not-finite")
        if isinstance(exchange, SetClip) and float(own.clip) != float(request.clip):
            raise RefusedError("not-finite")
        data = digest + exchange.reply.encode(reply)
        self._commit(own, {_answer_name(due): data})
        return data[_DIGEST:]

    def sum_step(self, number: int, place: int, step: int, body: bytes) -> bytes:
        """The reply to a request of a secure sum, as bytes; errors as of :meth:`answer`.

        Args:
            number: Number of the round: the last one of some users.
            place: Index of the exchange whose replies are summed.
            step: Step of the sum, 0..3.
            body: The request's bytes.
        """
        if self._secret is None or place not in {due.place for due in self._schedule if due.collects}:
            raise RefusedError("not-found")
        due = self._due(number, place)
        self._wait_for(due)
        vector = as_vector(due.exchange.reply.decode(self._answers[due.key][_DIGEST:]))
        return self._secret.step(due, step, body, vector)

    @property
    def largest_of_sums(self) -> int:
        """Bytes of the longest request of a secure sum; 0 without one."""
        if self._secret is None:
            return 0
        places = {due.place for due in self._schedule if due.collects}
        return max(step.request.nbytes for place in places for step in sum_steps(self.terms, place))

    def warm(self) -> None:
        """Compute what all rounds share, so that the first outcome does not take seconds."""
        one, nothing = self._first, np.asarray(0, np.int32)
        own = self._seen_by(one, one.items, one.observed)._replace(slate=np.arange(len(one.items), dtype=np.int32))
        self.terms.compute(self._learner.round_part, own, Turn(nothing, nothing, one.last + 1, one.observed))

    def about(self) -> dict[str, Json]:
        """Number, terms and state of the platform, for its coordinator and its application."""
        return {
            "platform": self.index,
            "platforms": self.terms.platforms,
            "terms": self.terms.fingerprint,
            "seeded": self.terms.seeded,
            "planned": self.has_planned,
            "trial": verdict_json(self._own.verdict) if self.has_planned and self._learner.trial else None,
        }

    def state(self) -> dict[str, Json]:
        """The same and numbers for its own application alone: noise on sums does not cover how many stays counted."""
        world = self._s.world
        sizes = {"features": world.features, "slate": world.slate, "rounds": world.rounds_per_episode}
        counts = {"begun": self.begun, "stays": self.stays, "cut_short": self.cut_short, "here": len(self._sessions)}
        more = {"feedback": bool(self._s.feedback[self.index]), "unlike": (self._store.get(_UNLIKE) or b"").decode()}
        return {**self.about(), **sizes, **counts, "items": len(self._places), **more}

    # -- inside ----------------------------------------------------------------------------------------------------

    @property
    def _first(self) -> Session:
        """A user who has just come."""
        slots, zero = self._s.world.slate, np.zeros((), np.int64)
        return Session(
            zero, zero, zero, np.zeros(()), np.asarray(self._learner.first_known(), np.float32),
            np.zeros((), np.float32), np.full((), 0.5, np.float32), np.zeros(self._learner.numbers, np.float32),
            zero, zero, np.zeros(np.shape(self._own.view.tally), np.float32),
            np.zeros((slots, *self._shape), np.float32), np.zeros(slots, np.int32), zero, zero,
        )  # fmt: skip

    def _there(self, session: str) -> Session:
        found = self._sessions.get(session)
        if found is None:
            raise RefusedError("not-found", expected="a session that has begun and has not ended")
        return found

    def _rows(self, given: Any, least: int) -> Float32[np.ndarray, "candidates *features"]:
        """Features as they were agreed; errors as of :meth:`slate`."""
        low, high = (-LARGEST_FEATURE, LARGEST_FEATURE) if self._shape else (0.0, 1.0)
        sizes = f"{least} to {MOST_CANDIDATES:,} items of {self._s.world.features}"
        agreed, rows = f"{sizes} finite features in [{low:g}, {high:g}]", _as_floats(given)
        if rows.shape[1:] != self._shape or rows.ndim < 1 or not least <= len(rows) <= MOST_CANDIDATES:
            raise RefusedError("malformed", expected=agreed)
        if not ((rows >= low) & (rows <= high)).all():
            raise RefusedError("out-of-range", expected=agreed)
        return rows

    def _current_slate(self, given: Any, candidates: int) -> Any:
        """The slate that the application would show, int32 [slots]; errors as of :meth:`slate`."""
        if given is None:
            return None
        places, n = list(given), self._s.world.slate
        good = all(type(one) is int and 0 <= one < candidates for one in places) and len(set(places)) == n
        if not good or len(places) != n:
            raise RefusedError("malformed", expected=f"present is {n} different places of the candidates")
        return np.asarray(places, np.int32)

    def _rows_of(self, names: Sequence[str]) -> Float32[np.ndarray, "candidates *features"]:
        try:
            places = [self._places[name] for name in names]
        except (KeyError, TypeError):
            unknown = next((str(name) for name in names if name not in self._places), "")[:LONGEST_ID]
            raise RefusedError("not-found", expected="ids of registered items", unknown=unknown) from None
        return self._rows(self._features[places], self._s.world.slate)

    def _unlike(self, rows: Float32[np.ndarray, "items *features"]) -> str:
        """The difference of items from what was agreed, in words; empty if there is none."""
        return differ_from_design(rows) if self._shape and len(rows) else ""

    def _unlike_shown(self, own: PlatformState) -> str:
        """The same of the candidates of the last slates that a plan reckons with."""
        if not self._shape:
            return ""
        lists = np.asarray(own.learnt.lists)
        return self._unlike(np.unique(lists[lists.any(axis=(1, 2))].reshape(-1, *self._shape), axis=0))

    def _keep_items(self, items: Mapping[str, Float32[np.ndarray, " *features"]]) -> None:
        new = [name for name in items if name not in self._places]
        self._places |= {name: len(self._places) + place for place, name in enumerate(new)}
        more = np.zeros((len(new), *self._shape), np.float32)
        self._features = np.concatenate([self._features, more]) if new else self._features
        for name, row in items.items():
            self._features[self._places[name]] = row

    def _seen_by(self, one: Session, rows: Any, observed: Any) -> PlatformState:
        """The platform with one user and some items in view."""
        stay = self._s.world.rounds_per_episode
        view = self._own.view._replace(
            observed=observed, documents=rows, left=np.asarray(max(1, stay - int(one.rounds)), np.int32),
            taste=one.taste, known=one.known, tally=one.tally, arm=one.arm,
        )  # fmt: skip
        return self._own._replace(view=view)

    def _as_planned(self, rows: Any, number: int) -> Any:
        """As many candidates as a plan reckons with, of those of a slate; None where there are fewer."""
        n = self._s.world.candidates
        if len(rows) <= n:
            return rows if len(rows) == n else None
        return rows[np.random.default_rng(number).choice(len(rows), n, replace=False)]

    def _count(self, one: Session, own: PlatformState) -> tuple[dict[str, bytes], PlatformState, dict[str, int]]:
        """A stay that has ended: new pieces, the platform after it, and what else changed."""
        whole, rounds = self._s.world.rounds_per_episode, int(one.rounds)
        due = self._collecting
        testing = due is not None and isinstance(due.exchange, Trial)
        if due is None or self.has_planned != testing or bool(one.tested) != testing:
            return {}, own, {}
        if not testing and rounds < _LEAST_STAY * whole:  # in a trial who leaves early says so by leaving
            return {}, own, {"cut_short": self.cut_short + 1}
        if not rounds:
            return {}, own, {}
        stay = one.stay * np.float32(whole / rounds)
        bounding = isinstance(due.exchange, CountNorms)
        if testing:
            view = own.view._replace(arm=one.arm)
            added = self.terms.compute(self._learner.trial_part, own._replace(view=view), one.tally)
            own = own._replace(tested=own.tested + added.astype(np.int32))
        elif bounding:
            own = own._replace(norms=own.norms + np.asarray(norm_bin(stay, self._learner.clip), np.int32))
        elif not self._has_answered(SetClip):
            return {}, own, {"cut_short": self.cut_short + 1}  # in steps of what is not known yet
        else:
            own = own._replace(sums=own.sums + np.asarray(clip_stay(stay, own.clip), np.int32))
        pieces, counted = {}, self._counted + 1
        if counted == self._stays_of(due):
            exchange, counted = due.exchange, 0
            request = exchange.request.message(np.asarray(due.round, np.uint32))
            own, reply = self._respond(due, request, own)
            digest = hashlib.sha256(exchange.request.encode(request)).digest()
            if not testing and (unlike := self._unlike_shown(own)):
                pieces[_UNLIKE] = unlike.encode()
            pieces[_answer_name(due)] = digest + exchange.reply.encode(reply)
        return pieces, own, {"stays": self.stays + 1, "_counted": counted}

    @property
    def _collecting(self) -> Due | None:
        """The next integers that are still being added up; None: all have been made, or none are asked for."""
        return next((due for due in self._schedule if due.collects and due.key not in self._answers), None)

    def _stays_of(self, due: Due) -> int:
        """Stays that these integers are of."""
        learner = self._learner
        if isinstance(due.exchange, CountNorms):
            return learner.bounders
        if isinstance(due.exchange, Trial):
            return learner.trial[learner.look_rounds.index(due.round)]
        return learner.explorers[learner.release_rounds.index(due.round)]

    def _due(self, number: int, place: int) -> Due:
        """The exchange of a round; errors as of :meth:`answer`."""
        due = next((one for one in self._schedule if one.key == (number, place)), None)
        if due is None:
            raise RefusedError("not-due")
        return due

    def _has_answered(self, kind: type) -> bool:
        """True if the platform has had all exchanges of a kind that there are."""
        return all(due.key in self._answers for due in self._schedule if isinstance(due.exchange, kind))

    def _wait_for(self, due: Due) -> None:
        """Refuse a request for integers that are not there yet, and for what follows from them.

        Raises:
            NotYetError: Stays that they are of have not ended.
            RefusedError: They were shown items that are not as agreed.
        """
        self.sweep(time.time())
        _refuse_unlike((self._store.get(_UNLIKE) or b"").decode())
        sums = (one for one in self._schedule if one.collects and one.round <= due.round)
        if not all(one.key in self._answers for one in sums):
            raise NotYetError("early-round")

    def _respond(self, due: Due, request: Any, own: PlatformState) -> tuple[PlatformState, Any]:
        """The platform's state after an exchange of a round, and its reply."""
        draws = self.terms.draws(due.place, self.index, due.round)
        party, reply = self.terms.compute(due.exchange.respond, request, protocol.Party(None, own), draws)
        return party.own, reply

    def _keep(
        self, name: str, one: Session, own: PlatformState, pieces: Mapping[str, bytes] = {}, **changes: int
    ) -> None:
        self._commit(own, {f"session/{name}": pack_tree(one), **pieces}, (), **changes)
        self._sessions[name] = one

    def _commit(
        self, own: PlatformState, pieces: Mapping[str, bytes], without: Iterable[str] = (), **changes: int
    ) -> None:
        """Write all changes in one transaction, and only then apply them in memory."""
        names = ("begun", "stays", "cut_short", "_counted")
        now = {name: changes.get(name, getattr(self, name)) for name in names}
        written = dict(pieces) if own is self._own else {"own": pack_tree(own), **pieces}
        self._store.put({"now": json.dumps(now).encode(), **written}, without)
        self._own = own
        self._answers |= _answers_in(pieces.items())
        for attribute, value in changes.items():
            setattr(self, attribute, value)

    def _load(self) -> None:
        kept = self._store.get("now")
        if kept is None:
            self._store.put({"own": pack_tree(self._own)})
            self._commit(self._own, {})
            return
        for name, value in json.loads(kept).items():
            setattr(self, name, value)
        self._own = unpack_tree(self._store.get("own") or b"", self._own)
        self._answers = _answers_in((f"answer/{name}", data) for name, data in self._store.below("answer/"))
        for data in sorted((data for _, data in self._store.below("list/")), key=lambda data: data[:8][::-1]):
            rows = np.frombuffer(data[8:], np.float32).reshape(-1, *self._shape)
            view, number = self._own.view._replace(documents=rows), np.asarray(int.from_bytes(data[:8], "little"))
            learnt = self._learner.learnt_after(self._own._replace(view=view, rounds=number))
            self._own = self._own._replace(learnt=learnt)
        first = self._first
        self._sessions = {name: unpack_tree(data, first) for name, data in self._store.below("session/")}
        rows = {name: np.frombuffer(data, np.float32).reshape(self._shape) for name, data in self._store.below("item/")}
        self._keep_items(rows)


def _refuse_unlike(unlike: str) -> None:
    """Refuse if something is not as agreed in features.

    Raises:
        RefusedError: Something is.
    """
    if unlike:
        agreed = "features of mean 0 and variance 1/3 without correlation: whiten them by constants that all agree on"
        raise RefusedError("unlike-agreed", expected=agreed, found=unlike)


def _as_floats(given: Any) -> Float32[np.ndarray, "..."]:
    """Numbers as they are computed with: infinite where they are too large for that; NaN if they are none."""
    try:
        with np.errstate(over="ignore"):
            return np.asarray(given, np.float32)
    except (TypeError, ValueError, OverflowError):
        return np.asarray(np.nan, np.float32)


def _is_name(name: str) -> bool:
    """True for an id that can be kept: not empty, not too long, and text, without half of a surrogate pair."""
    return 0 < len(name) <= LONGEST_ID and name == name.encode(errors="replace").decode()


def _hash(data: bytes) -> int:
    """Number of 63 bits, from 0 to 2⁶³ − 1, of a text's BLAKE2b digest, which fits SQLite's signed integers."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") >> 1


def _ended_name(session: str) -> str:
    return f"ended/{hashlib.blake2b(session.encode(), digest_size=16).hexdigest()}"


def _answer_name(due: Due) -> str:
    return f"answer/{due.round:010}/{due.place:02}"


def _answers_in(pieces: Iterable[tuple[str, bytes]]) -> dict[tuple[int, int], bytes]:
    """Answers by round and exchange, of pieces by name."""
    found = (([int(part) for part in name.split("/")[1:]], data) for name, data in pieces if name.startswith("answer/"))
    return {(number, place): data for (number, place), data in found}
