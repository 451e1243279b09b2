"""One platform that plans: what it shows, its users' sums, its replies to the coordinator; without HTTP.

A round at a platform, with the number of the visit that all platforms of a user count together::

    visit(r)      its application reports a user: candidates and observation
    slate(r)      its application gets the slate; no other party is asked
    outcome(r)    its application reports the outcome

After the last round of some users (:func:`schedule`) the coordinator asks for their sums, and sends the model; before
the first, where the clip is found by other users, for counts of norms, and sends the clip. The first user after them
waits for what is sent. Without it the platform goes on exploring: without the clip it counts nothing, and without the
last model nothing more.

**What counts.** A user's stay counts once, when its agreed rounds are over, in the sums that are made next; of one who
leaves before nothing counts, and of one who stays longer nothing more. Who comes again is another user. So users must
come one after the other: of two who take turns every visit is a newcomer's, and nothing counts. How many stays counted,
and how many were cut short, is in the state that the platform's own application reads, and in no message to the
coordinator: noise on the sums does not cover it.

Every change is committed to the file before it is acknowledged, so that a killed process loses none. Sums are made,
noise included, before anything of the users after them counts, and kept: a request that is repeated, however late, is
answered with the same bytes. With a secure sum they leave under masks alone (:class:`SecretSums`).

**The schedule.** A run has one release or several, each followed by a model, and before them, where the clip is found
by other users, counts of norms, followed by the clip. What is asked for is made when the last round before it is over
at a platform, and kept, so that the users after it count in the next one, however late the coordinator asks.

**Secure sums.** The vector is the kept answer of the exchange, noise included: it is the same in every sum that is
begun, so that a sum that is begun again tells nothing new. Keys and masks are new in each, and what was kept of an
earlier one is gone: it can never be unmasked. Within a sum, a step that is asked for again is answered with the same
bytes, and a platform that was killed between two steps goes on.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt32

from fedrank.core.arrays import module_of
from fedrank.core.errors import FedrankWarning, RunError, SecureSumError
from fedrank.core.trees import Json
from fedrank.deploy.platforms.folder import KeyValueStore, pack_tree, unpack_tree
from fedrank.deploy.platforms.platform import FURTHEST, LAST_ROUND, Stage
from fedrank.deploy.platforms.terms import (
    NotYetError,
    RefusedError,
    Terms,
    blank_message,
    decode_as,
    decode_request,
    respond,
)
from fedrank.privacy.secure_sum.messages import Step, message_sizes
from fedrank.privacy.secure_sum.messages import Terms as SumTerms
from fedrank.privacy.secure_sum.party import Party
from fedrank.slates.sums import AfterExplorers, Improve, IntegersOfUsers, SetClip
from fedrank.slates.sums.learner import PlatformState, SumLearner, choose_view
from fedrank.slates.sums.secure_sum import as_vector
from fedrank.slates.world.satisfaction import Turn


class Due(NamedTuple):
    """An exchange of a run.

    Attributes:
        round: The last round before it.
        place: Index of the exchange in the protocol.
        collects: Whether platforms are asked for integers; else they are told something.
        parties: Numbers of the platforms that take part: those that send such integers, or all that are told.
    """

    round: int
    place: int
    collects: bool
    parties: tuple[int, ...]


def schedule(terms: Terms) -> tuple[Due, ...]:
    """All exchanges of a run in which something crosses, in order."""
    return tuple(
        sorted(
            Due(round_, place, isinstance(exchange, IntegersOfUsers), parties(terms, exchange))
            for place, exchange in enumerate(terms.exchanges)
            if isinstance(exchange, AfterExplorers)
            for round_ in exchange.rounds
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
        self._s: Any = terms.protocol
        self._store, self._own = store, terms.platform_own(index, seeded)
        self.round, self.lived, self.alone, self._came = -1, -1, 0, 0
        self.stays, self.cut_short = 0, 0
        self.stage, self._said = Stage.NO_USER, {"visit": "", "outcome": ""}
        self._answers: dict[tuple[int, int], bytes] = {}
        self._schedule = tuple(due for due in schedule(terms) if index in due.parties)
        sends = any(due.collects for due in self._schedule)
        self._secret = SecretSums(terms, index, store) if self._s.secure_sum and sends else None
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
        digest = hashlib.sha256(pack_tree((documents, np.float32(observed), np.bool_(newcomer)))).hexdigest()
        if number == self.round and digest == self._said["visit"]:
            return
        if number <= self.round:
            raise RefusedError("conflict" if number == self.round else "stale-round", round=self.next)
        other = newcomer or self.stage is Stage.NO_USER
        short = self.stage is not Stage.NO_USER and self.lived - self._came + 1 < self._s.world.rounds_per_episode
        came = number if other else self._came
        # Rounds that took place elsewhere only pass here too. Who stays longer than agreed is in the last round.
        left = max(1, self._s.world.rounds_per_episode - (number - came))
        own, pieces = self._made(number)
        seen = np.float32(observed), documents, np.bool_(other)
        own = self._step(_arrive, own, *seen, np.int32(left), np.int32(number))
        stage = Stage.THERE
        if self._has_totals(number):
            own, stage = self._shown(own, number), Stage.SHOWN
        said = {**self._said, "visit": digest}
        cut = self.cut_short + (newcomer and short)
        self._commit(own, pieces, round=number, stage=stage, _said=said, _came=came, cut_short=cut)

    def slate(self, number: int) -> list[int]:
        """The slate to show; errors as of :meth:`.Platform.slate`."""
        if number == self.round and self.stage is Stage.THERE and self._has_totals(number):
            self._commit(self._shown(self._own, number), stage=Stage.SHOWN)
        if number > self.round or (number == self.round and self.stage is Stage.THERE):
            raise NotYetError("early-round")
        if number < self.round:
            raise RefusedError("stale-round", round=self.next)
        return np.asarray(self._own.slate).tolist()

    def recommend_alone(self, number: int) -> list[int]:
        """The slate as of :meth:`slate`; of a platform that explores where it has not been told what it waits for."""
        if number == self.round and self.stage is Stage.THERE and not self._has_totals(number):
            draws = self.terms.draws(self.terms.meeting, self.index, number, self.seeded)
            self._commit(self._step(_explore, self._own, draws), stage=Stage.SHOWN, alone=self.alone + 1)
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
        item = -1 if slot is None else int(self._own.slate[slot])
        own = self._step(_live, self._own, _turn(-1 if slot is None else slot, item, engagement))
        if longer:  # nor what a platform sees without feedback
            own = own._replace(stay=self._own.stay, sums=self._own.sums, norms=self._own.norms)
        if not self._knows_clip:  # what is counted is in steps of a clip that is not known yet
            own = own._replace(sums=self._own.sums)
        stays = self.stays + (number - self._came + 1 == self._s.world.rounds_per_episode)
        self._commit(own, stage=Stage.LIVED, lived=number, _said={**self._said, "outcome": digest}, stays=stays)

    @property
    def next(self) -> int:
        """The first round whose slate can still be made."""
        return self.round + (self.stage is not Stage.THERE)

    @property
    def has_planned(self) -> bool:
        """True if the platform has been sent the last model, and has planned."""
        last = self._schedule[-1]
        return (last.round, last.place) in self._answers

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
        request = decode_request(exchange, body)
        due = self._due(number, place)
        if int(getattr(request, "round", number)) != number:
            raise RefusedError("out-of-range")
        digest = hashlib.sha256(body).digest()
        self._make(due)
        if (kept := self._answers.get((number, place))) is not None:
            if kept[:_DIGEST] != digest:
                raise RefusedError("conflict")
            return kept[_DIGEST:]
        if not self._has_totals(number):
            raise RefusedError("out-of-order")
        own, reply = self._respond(place, number, request, self._own)
        if isinstance(exchange, Improve) and not np.array_equal(np.asarray(own.model), np.asarray(request.weights)):
            raise RefusedError("not-finite")
        if isinstance(exchange, SetClip) and float(own.clip) != float(request.clip):
            raise RefusedError("not-finite")
        data = digest + exchange.reply.encode(reply)
        self._commit(own, {_answer_name(number, place): data})
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
        self._make(due)
        layout = self.terms.exchanges[place].reply
        vector = as_vector(layout.decode(self._answers[number, place][_DIGEST:]))
        return self._secret.step(due, step, body, vector)

    @property
    def largest_of_sums(self) -> int:
        """Bytes of the longest request of a secure sum; 0 without one."""
        if self._secret is None:
            return 0
        places = {due.place for due in self._schedule if due.collects}
        return max(step.request.nbytes for place in places for step in sum_steps(self.terms, place))

    def missing(self, number: int) -> list[tuple[int, int]]:
        """Rounds without transitions: none, since a platform that plans is not asked for any."""
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
            "planned": self.has_planned,
        }

    def warm(self) -> None:
        """Compile everything, so that the first request does not take seconds."""
        for place in (self.terms.meeting, *dict.fromkeys(due.place for due in self._schedule)):
            exchange = self.terms.exchanges[place]
            blank = decode_request(exchange, blank_message(exchange.request))
            self._respond(place, 0, blank, self._own)
        self._step(_live, self._own, _turn(-1, -1, 0.0))
        seen = np.float32(0), np.asarray(self._own.view.documents), np.bool_(True)
        self._step(_arrive, self._own, *seen, np.int32(1), np.int32(0))

    # -- inside ----------------------------------------------------------------------------------------------------

    def _due(self, number: int, place: int) -> Due:
        """The exchange of a round, if these users have left; errors as of :meth:`answer`."""
        due = next((one for one in self._schedule if (one.round, one.place) == (number, place)), None)
        if due is None:
            raise RefusedError("not-due")
        return due

    def _has_totals(self, number: int) -> bool:
        """True if the platform has been told everything that it waits for in a round."""
        told = (due for due in self._schedule if due.round < number and not due.collects)
        return all((due.round, due.place) in self._answers for due in told)

    @property
    def _knows_clip(self) -> bool:
        """True if the clip is known: that of the settings, or the one that was found."""
        told = (due for due in self._schedule if isinstance(self.terms.exchanges[due.place], SetClip))
        return all((due.round, due.place) in self._answers for due in told)

    def _make(self, due: Due) -> None:
        """Make what is asked for of the users of an exchange, once they have left.

        Raises:
            NotYetError: They have not.
        """
        if self.lived < due.round and self.round <= due.round:
            raise NotYetError("early-round")
        own, pieces = self._made(due.round + 1)
        if pieces:
            self._commit(own, pieces)

    def _made(self, number: int) -> tuple[PlatformState, dict[str, bytes]]:
        """The platform's state once it has made all sums of the users before a round, and what is to be written."""
        own, pieces = self._own, {}
        for due in self._schedule:
            key = due.round, due.place
            if not due.collects or due.round >= number or key in self._answers:
                continue
            exchange = self.terms.exchanges[due.place]
            request = exchange.request.message(np.asarray(due.round, np.uint32))
            own, reply = self._respond(due.place, due.round, request, own)
            if not self.stays:
                warnings.warn(
                    f"no user has stayed for {self._s.world.rounds_per_episode} rounds ({self.cut_short:,} left before "
                    "that, or another one came in between): the sums that are sent hold nothing but noise, and so "
                    "does the model that is made of them. Send the visits of one user after another.",
                    FedrankWarning,
                    stacklevel=2,
                )
            digest = hashlib.sha256(exchange.request.encode(request)).digest()
            pieces[_answer_name(*key)] = digest + exchange.reply.encode(reply)
        return own, pieces

    def _shown(self, own: PlatformState, number: int) -> PlatformState:
        place = self.terms.meeting
        request = self.terms.exchanges[place].request.message(np.asarray(number, np.uint32))
        return self._respond(place, number, request, own)[0]

    def _respond(self, place: int, number: int, request: Any, own: PlatformState) -> tuple[PlatformState, Any]:
        """The platform's state after an exchange of a round, and its reply."""
        draws = self.terms.draws(place, self.index, number, self.seeded)
        return self.terms.compute(respond, self.terms.exchanges[place], request, own, draws)

    def _step(self, step: Callable[..., PlatformState], own: PlatformState, *arguments: Any) -> PlatformState:
        """The platform's state after a step of its learner."""
        return self.terms.compute(step, self._s.learner, own, *arguments)

    def _commit(self, own: PlatformState, pieces: dict[str, bytes] | None = None, **changes: Any) -> None:
        """Write all changes in one transaction, and only then apply them in memory."""
        now = {
            name: changes.get(attribute, getattr(self, attribute))
            for name, attribute in (
                *(("round", "round"), ("lived", "lived"), ("alone", "alone"), ("came", "_came")),
                *(("stage", "stage"), ("said", "_said"), ("stays", "stays"), ("cut_short", "cut_short")),
            )
        }
        pieces = pieces or {}
        self._store.put({"own": pack_tree(own), "now": json.dumps(now).encode(), **pieces})
        self._own = own
        self._answers |= _answers_in(pieces.items())
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
        self.stays, self.cut_short = now.get("stays", 0), now.get("cut_short", 0)  # folders of before have none
        self._own = unpack_tree(self._store.get("own") or b"", self._own)
        self._answers = _answers_in((f"answer/{name}", data) for name, data in self._store.below("answer/"))


def _arrive(
    learner: SumLearner, own: PlatformState, observed: Any, documents: Any, other: Any, left: Any, number: Any
) -> PlatformState:
    """The platform when a visit begins; ``other``: of another user than before."""
    xp, fresh = module_of(other), learner.first_view(own, observed, documents)
    there = own.view._replace(observed=observed, documents=documents)
    view = choose_view(other, fresh, there)._replace(left=left)
    return own._replace(view=view, stay=xp.where(other, xp.float32(0), own.stay), rounds=number)


def _turn(slot: int, item: int, engagement: float) -> Turn:
    return Turn(*np.array([slot, item], np.int32), *np.array([engagement, 0], np.float32))


def _live(learner: SumLearner, own: PlatformState, turn: Turn) -> PlatformState:
    """The platform after a round; the user has left if the time is over."""
    over = own.view.left <= 1
    view = learner.next_view(own, turn, own.view.observed, own.view.documents, over)
    return learner.record(own, turn, own.rounds, over)._replace(view=view)


def _explore(learner: SumLearner, own: PlatformState, draws: Any) -> PlatformState:
    taste, slate = learner.explore_slate(own, draws)
    return own._replace(view=own.view._replace(taste=taste), slate=slate)


def _answer_name(number: int, place: int) -> str:
    return f"answer/{number:010}/{place:02}"


def _answers_in(pieces: Iterable[tuple[str, bytes]]) -> dict[tuple[int, int], bytes]:
    """Answers by round and exchange, from pieces by name."""
    return {(int(name.split("/")[1]), int(name.split("/")[2])): data for name, data in pieces}
