"""One round at a device: a perturbation is tried, and what came of it becomes one message. NumPy; no file, no network.

The device's side of :mod:`fedrank.ranking.foltr_es`; section numbers are those of its paper. A trial goes through B
interactions. They take turns, θ + σv first, θ − σv next, so that a user whose interests change in between changes both
halves alike; or each list is made of both rankers' (:mod:`fedrank.ranking.on_device`). When an
interaction is over, its clicks become a value of the metric, and from then on only these exist:

*randomised response*   the value is replaced by a lie or not, at once, and added to the sum of its half. Whoever sees
                        every sum there ever was learns the privatised values one by one, which is what the ε of an
                        interaction speaks about.

*Laplace noise*         the noise belongs to the sums of a whole message, and successive sums with the same noise would
                        show the true values as their differences. Such sums must stay in memory until they are
                        complete; then the noise is drawn, once, in the step that makes the message.

*one number*            one number about the whole message is privatised, and nothing else is sent. The true sums stay
                        in memory until they are complete; then the number is drawn, once.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedrank.core.privacy_report import BASIC, DELTA, EVERYBODY, NOBODY, OF_A_DEVICE, SEED, PrivacyReport, Promise, Unit
from fedrank.core.rng import perturbation
from fedrank.core.words import format_count
from fedrank.deploy.terms import Terms
from fedrank.privacy.accounts.randomised_response import REWARDS
from fedrank.privacy.accounts.shuffle import any_shuffled_epsilon, shuffled_epsilon
from fedrank.privacy.calibration import laplace_scale
from fedrank.privacy.noise.discrete import discrete_laplace
from fedrank.ranking.on_device import Request, credit_clicks, draft, portable_scores

if TYPE_CHECKING:  # a device, which runs this, has NumPy only
    from jaxtyping import Float32, Integer

#: Random words from a shape: :func:`fedrank.privacy.randomised_response.os_words` or, in tests, known ones.
Words = Callable[[tuple[int, ...]], np.ndarray]


@dataclass(frozen=True, eq=False)
class Ranking:
    """A list for the user.

    Attributes:
        order: int64 [documents], read-only: which document to show at each position, best first.
        learning: Its clicks count.
    """

    order: Integer[np.ndarray, " documents"]
    learning: bool = False


def keep_order(documents: int) -> Ranking:
    """The documents in the order in which the application gave them."""
    return _ranking(np.arange(documents), False)


def _ranking(order: Integer[np.ndarray, " documents"], learning: bool) -> Ranking:
    order.flags.writeable = False
    return Ranking(order, learning)


@dataclass(eq=False)
class Interaction:
    """A list that the user is looking at: the only place where clicks are, and it is memory.

    Attributes:
        ranking: What was shown.
        trial: What it is part of.
        since: When it was shown or clicked last, by a clock that does not jump.
        pattern: The clicks, bit i for rank i + 1.
        team: int64 [documents]: whose each document is, in the order shown; None: the list is one ranker's.
    """

    ranking: Ranking
    trial: Trial
    since: float
    pattern: int = 0
    team: Integer[np.ndarray, " documents"] | None = None


@dataclass(frozen=True)
class Trial:
    """A perturbation that is being tried.

    Attributes:
        hub: Whose model is perturbed.
        round: Round of that model.
        seed: uint32: makes the perturbation, nothing else; of a check, which model the newest is compared with.
        sums: Sums of values under θ + σv and under θ − σv, in units of 1/scale of the metric: privatised values with
            randomised response, true ones with Laplace noise (those must not be written anywhere).
        done: Interactions behind each sum.
        check: The halves are the newest model and the best one so far, in place of θ + σv and θ − σv.
    """

    hub: str
    round: int
    seed: int
    sums: tuple[int, int] = (0, 0)
    done: tuple[int, int] = (0, 0)
    check: bool = False

    @property
    def half(self) -> int:
        """Half that is due: 0 for θ + σv, 1 for θ − σv; 0 where both make a list."""
        return int(self.done[0] > self.done[1])

    def after(
        self,
        terms: Terms,
        half: int,
        pattern: int,
        words: Words,
        team: Integer[np.ndarray, " documents"] | None = None,
    ) -> Trial:
        """The trial with one more interaction, of which nothing remains but what it adds to a sum.

        Args:
            terms: Of the hub.
            half: Half that the interaction belongs to, 0 or 1.
            pattern: The clicks, bit i for rank i + 1, below 2**depth.
            words: Asked for two words with randomised response; otherwise for none.
            team: Of the list that was shown, as of :class:`Interaction`.
        """
        drawn = words((2,)) if terms.at_once else np.zeros(2, np.uint32)
        both = np.ones(2, bool) if team is not None else np.arange(2) == half
        patterns = np.array([pattern, pattern] if team is None else credit_clicks(pattern, team), np.int32)[:, None]
        plus, minus = (
            int(x) for x in terms.clicks_to_reply.sums(patterns, np.broadcast_to(drawn, (2, 1, 2)), both[:, None], np)
        )
        sums = (self.sums[0] + plus, self.sums[1] + minus)
        return dataclasses.replace(self, sums=sums, done=(self.done[0] + int(both[0]), self.done[1] + int(both[1])))

    def complete(self, terms: Terms) -> bool:
        """True if all B interactions took place."""
        return min(self.done) >= terms.per_half


class Round:
    """A model and what is tried with it, in memory.

    Args:
        terms: Of the hub.
        model: The model, and the number of its round.
        trial: What was tried with it so far; None: nothing.
        reported: The round has its message.
        due: The device was drawn to report in this round.
        best: The best model so far, float32 [size], where the device was drawn to compare; None: it learns.
        seed: The seed that was drawn for the device; None: it draws one from the operating system.

    Attributes:
        open: The interaction that goes on.
    """

    def __init__(
        self,
        terms: Terms,
        model: Request,
        trial: Trial | None,
        reported: bool,
        due: bool = True,
        best: Float32[np.ndarray, " parameters"] | None = None,
        seed: int | None = None,
    ):
        self.terms, self.number, self.weights = terms, int(model.round), model.weights
        self.reported, self.due, self.best = reported, due, best
        self.trial = trial if trial is None else dataclasses.replace(trial, check=best is not None)
        self.open: Interaction | None = None
        self.seed = seed
        self._v: tuple[int, Float32[np.ndarray, " parameters"]] | None = None  # a seed and its perturbation

    def is_about(self, terms: Terms, model: Request) -> bool:
        """True if it is this model."""
        same = self.terms == terms and self.number == int(model.round)
        return same and np.array_equal(self.weights, model.weights)

    @property
    def lost(self) -> int:
        """Interactions that are nowhere but here."""
        if self.trial is None or self.terms.at_once:
            return 0
        return max(self.trial.done) if self.terms.interleaved else sum(self.trial.done)

    def drop(self) -> None:
        """Drop the ranking that is shown and the trial under way; no reply is made of them."""
        self.open = self.trial = self._v = None

    def show(
        self,
        features: Float32[np.ndarray, "documents features"],
        learn: bool,
        words: Words,
        now: float,
        base: Float32[np.ndarray, " documents"] | None = None,
    ) -> Ranking:
        """A list for the user.

        Args:
            features: float32 [documents, n_features].
            learn: Try the perturbation; else rank by the model itself.
            words: Asked for the seed of a new trial, and for who goes first in the pairs of a list of both rankers.
            now: Time, in seconds, by a clock that does not jump.
            base: float32 [documents]: scores that the model's are added to; None: none.
        """
        if not (learn and len(features)):
            return _ranking(rank_documents(self.terms, self.weights, features, base), False)
        trial = self.trial = self.trial or self._begun(words)
        halves = (0, 1) if self.terms.interleaved else (trial.half,)
        lists = [rank_documents(self.terms, self._ranker(trial, half), features, base) for half in halves]
        order, team = lists[0], None
        if len(lists) == 2:
            order, team = draft(lists[0], lists[1], self.terms.depth, int(words((1,))[0]))
        self.open = Interaction(_ranking(order, True), trial, now, team=team)
        return self.open.ranking

    def _begun(self, words: Words) -> Trial:
        """A new trial: of a perturbation, or of the newest model beside the best one."""
        if self.best is None:
            return Trial(self.terms.hub, self.number, int(words((1,))[0]) if self.seed is None else self.seed)
        return Trial(self.terms.hub, self.number, pair_of(self.best), check=True)

    def _ranker(self, trial: Trial, half: int) -> Float32[np.ndarray, " parameters"]:
        """The weights that rank for a half of a trial, float32 [size]."""
        if self.best is not None:
            return self.best if half else self.weights
        if self._v is None or self._v[0] != trial.seed:
            self._v = (trial.seed, perturbation(trial.seed, self.terms.size))
        return perturb(self.terms, self.weights, self._v[1], half)

    def click(self, ranking: Ranking, position: int, now: float) -> bool:
        """The user clicked at a position, from 0. Whether it counts: in the list that is open, down to ``depth``."""
        if self.open is None or self.open.ranking is not ranking:
            return False
        self.open.since = now
        if position < self.terms.depth:
            self.open.pattern |= 1 << position
        return position < self.terms.depth


def pair_of(best: Float32[np.ndarray, " parameters"]) -> int:
    """Name of the model that the newest was compared with, in a check: uint32, of the SHA-256 of its weights."""
    return int.from_bytes(hashlib.sha256(best.astype("<f4").tobytes()).digest()[:4], "little")


def perturb(
    terms: Terms, weights: Float32[np.ndarray, " parameters"], v: Float32[np.ndarray, " parameters"], half: int
) -> Float32[np.ndarray, " parameters"]:
    """θ + σv for half 0, θ − σv for half 1 (Section 3.2).

    Args:
        terms: Of the hub.
        weights: θ, float32 [size].
        v: :func:`fedrank.core.rng.perturbation` of the trial's seed, float32 [size].
        half: 0 or 1.

    Returns:
        float32 [size].
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return weights + np.float32(-terms.sigma if half else terms.sigma) * v


def matrix_of(features: Any, n_features: int | None) -> Float32[np.ndarray, "documents features"] | str:
    """Features as an app gives them, float32 [documents, n_features]; or what is wrong with them, without their values.

    Args:
        features: Anything that NumPy makes an array of.
        n_features: Features of a document; None: not known yet.
    """
    raw = np.asarray(features)
    if raw.dtype.kind not in "fiub":
        return f"features must be numbers, got dtype {raw.dtype}"
    if raw.ndim != 2 or (n_features is not None and raw.shape[1] != n_features):
        return f"features must have the shape [documents, {n_features or 'n_features'}], got {list(raw.shape)}"
    with np.errstate(over="ignore"):
        x = raw.astype(np.float32)
    return x if np.isfinite(x).all() else "features must be finite numbers in single precision"


def base_of(base: Any, documents: int) -> Float32[np.ndarray, " documents"] | str:
    """Base scores as an app gives them, float32 [documents]; or what is wrong with them, without their values."""
    raw = np.asarray(base)
    if raw.dtype.kind not in "fiub" or raw.shape != (documents,):
        return f"base must be {documents} numbers, got dtype {raw.dtype} and the shape {list(raw.shape)}"
    with np.errstate(over="ignore"):
        scores = raw.astype(np.float32)
    return scores if np.isfinite(scores).all() else "base must be finite numbers in single precision"


def rank_documents(
    terms: Terms,
    weights: Float32[np.ndarray, " parameters"],
    features: Float32[np.ndarray, "documents features"],
    base: Float32[np.ndarray, " documents"] | None = None,
) -> Integer[np.ndarray, " documents"]:
    """Documents by falling score; equal scores in the order of the data; what is not a number as the smallest score.

    Args:
        terms: Of the hub.
        weights: float32 [size].
        features: float32 [documents, n_features].
        base: float32 [documents]: scores that the model's are added to; None: none.

    Returns:
        int64 [documents].
    """
    with np.errstate(all="ignore"):
        scores = portable_scores(weights, features, terms.hidden)
        scores = scores if base is None else scores + base
        return np.argsort(np.where(np.isnan(scores), np.float32(np.inf), -scores), kind="stable")


def message_of(terms: Terms, trial: Trial, words: Words) -> bytes:
    """The message of a complete trial, as it leaves; where what hides it is drawn here, it is another each time.

    Args:
        terms: Of the hub.
        trial: A trial with all its interactions.
        words: Asked for those of a message with one number; otherwise for none.
    """
    noise = None
    if terms.mechanism == "laplace":
        noise = discrete_laplace(_scale(terms), 2)
    elif terms.number_mechanism is not None:
        noise = words((terms.number_mechanism.words,))
    sums = np.asarray(trial.sums, np.int64)
    if trial.check:
        assert terms.check is not None  # a trial is a check where the terms have checks
        return terms.check.encode(terms.clicks_to_reply.check(np.uint32(trial.seed), sums, noise, np))
    return terms.reply.encode(terms.clicks_to_reply.message(np.uint32(trial.seed), sums, noise, np))


def in_words(terms: Terms, body: bytes) -> str:
    """The numbers of a message and what each of them is, for the person whose message it is."""
    layout = terms.layout_of(body)
    message = layout.decode(body)
    numbers = [f"{int(getattr(message, field.name))}: {field.meaning}" for field in layout.fields]
    return "; ".join(numbers) + f". Metric values are in units of 1/{terms.metric.scale}."


class Limits(NamedTuple):
    """Limits of an app: the largest ε of one message, of one search, and of all messages together, in nats."""

    most_epsilon: float
    most_search_epsilon: float
    lifetime_epsilon: float


def objection(terms: Terms, limits: Limits) -> str:
    """Reason why a device does not agree to the terms; empty if it does.

    Args:
        terms: Of a hub.
        limits: What its app allows; that of all messages is kept to message by message.
    """
    for what, given, name in (
        ("message", terms.epsilon_message, "most_epsilon"),
        ("search", terms.epsilon_interaction, "most_search_epsilon"),
    ):
        if given > (most := getattr(limits, name)):
            return f"the hub's terms give a {what} ε = {given:.4g}; this app allows at most {most:.4g} ({name})"
    return ""


def promise(terms: Terms, relayed: bool = False) -> PrivacyReport:
    """Promise of the terms about the messages of one device, and what it does not cover.

    Args:
        terms: Of a hub.
        relayed: Whether the device reports through an oblivious relay.
    """
    among = credit(terms, relayed)
    one, b = terms.epsilon_interaction, terms.interactions
    bare = one == math.inf
    if bare:
        words = f"Every reward is sent as it is: there is no differential privacy. A message tells about {b} searches."
    else:
        how = (
            f"noise of scale {_scale(terms):.4g} is added to each of the two sums of rewards (Laplace noise)"
            if terms.mechanism == "laplace"
            else f"the difference between two rankers becomes one of {terms.number_mechanism.reports} numbers, "
            f"{terms.number_mechanism.says}"
            if terms.number_mechanism is not None
            else f"a reward is replaced, with probability {1 - terms.p:.3g}, by another of its {terms.metric.n:,} "
            "values (randomised response)"
        )
        summed = (
            f"has ε = {terms.epsilon_message:.4g}, however many of them change"
            if terms.number_mechanism is not None
            else f"has ε = {terms.epsilon_message:.4g} if all of them change"
        )
        words = (
            f"Before anything leaves this device, {how}. One search is protected with ε = {one:.3g}: whatever it was, "
            f"no message becomes more than e^ε times as likely. A message tells about {b} searches and {summed}. "
            "The ε of all messages add up."
            + (
                ""
                if terms.participations is None
                else f" This device sends at most {format_count(terms.participations, 'message')}, ever: "
                f"ε = {terms.epsilon_life:.4g} over its life."
            )
        )
    return PrivacyReport(
        mechanism="none" if bare else terms.mechanism,
        trust=EVERYBODY if bare else NOBODY if among is None else f"nobody; for what a relay adds, {RELAY}",
        promises=(
            Promise(Unit.INTERACTION, one),
            *(() if among is None else (among,)),
            Promise(Unit.MESSAGE, terms.epsilon_message, basis=BASIC),
            *(() if terms.participations is None else (Promise(Unit.USER, terms.epsilon_life, basis=BASIC),)),
        ),
        covers=() if bare else _COVERS,
        not_covered=(*((REWARDS,) if bare else ()), *linking(terms, relayed), SEED, *OF_A_DEVICE, _APP),
        details={"interactions_per_message": b, "bytes_per_message": terms.reply.nbytes},
        words=(words, *channel_in_words(terms, relayed)),
    )


_COVERS = (
    "The rewards in the messages, and through them queries, results and clicks; nothing else about a search is sent.",
    "Against anyone who reads the messages, the hub included, whatever model the hub sent out.",
    "One search, with the ε of an interaction; all searches of one message, with the ε of a message; everything, with "
    "the sum of the ε of all messages.",
)
_APP = "What the app that this runs in, or anything else on the device, sends by itself."


def _scale(terms: Terms) -> float:
    assert terms.epsilon is not None  # the terms of Laplace noise have one
    return laplace_scale(terms.epsilon, terms.metric.largest)


#: Basis of the ε of a message that is hidden among those which a relay passes on with it.
AMONG = "an anonymous channel"
#: Whom one has to trust for that.
RELAY = "whoever runs the relay and whoever runs the hub, not to tell each other what they see"
#: What no ε is about, by how messages reach the hub.
HISTORY = (
    "Which messages are of the same device: they show one token, and the hub keeps them under one number, as a history."
)
ADDRESS = (
    "Which messages come from the same network address: the hub cannot tell by their tokens that they are of one "
    "device, and sees the address."
)


def credit(terms: Terms, relayed: bool) -> Promise | None:
    """ε of one message among those that a relay passes on together; None where none is credited.

    None is where the terms promise no batch, where the device does not go through a relay, where the bound is no
    better than the ε that holds without it, and where SciPy is not installed, which computes it.

    Args:
        terms: Of the hub.
        relayed: Whether the device reports through a relay.
    """
    if not relayed or terms.batch < 2 or not 0 < terms.epsilon_message < math.inf:
        return None
    try:
        if terms.number_mechanism is not None:
            epsilon = shuffled_epsilon(terms.number_mechanism, terms.batch, DELTA)
        else:
            epsilon = any_shuffled_epsilon(terms.epsilon_message, terms.batch, DELTA)
    except ImportError:
        return None
    if epsilon > 0.99 * terms.epsilon_message:
        return None
    return Promise(Unit.MESSAGE, epsilon, DELTA, AMONG)


def linking(terms: Terms, relayed: bool) -> tuple[str, ...]:
    """Risks, not covered by any ε, that messages of one device are put together."""
    if not terms.tokens:
        return (HISTORY,)
    return () if relayed else (ADDRESS,)


def channel_in_words(terms: Terms, relayed: bool) -> tuple[str, ...]:
    """Parties that could put messages of a device together, in a paragraph; none where the hub can."""
    if not terms.tokens:
        return ()
    rounds = "a round" if terms.tokens == 1 else format_count(terms.tokens, "round")
    words = (
        f"A message is shown with a token that this device bought blindly, one for {rounds}: whoever sold it cannot "
        "tell whose it is, nor which messages are of one device."
    )
    if not relayed:
        return (words,)
    words += (
        " Everything goes through a relay, which sees this device's network address and nothing inside, while the hub "
        f"sees what is inside and no address. The relay passes on at least {format_count(terms.batch, 'report')} "
        f"together. One has to trust {RELAY}."
    )
    if (among := credit(terms, relayed)) is not None:
        words += (
            f" Then, and if the others in the batch are other people's, one message has ε = {among.epsilon:.3g}, but "
            f"for a chance of 1 in {1 / among.delta:,.0f} (δ). Else what is said above holds."
        )
    return (words,)
