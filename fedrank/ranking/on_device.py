"""From a user's clicks to the reply: the one piece of FOLtR-ES that a real device and a simulated one both run.

A simulator maps it over its devices with JAX, a device calls it with NumPy after each interaction; ``xp`` is the array
module, ``numpy`` or ``jax.numpy``, that the arguments belong to. Only what it is told differs: a device has random bits
of its operating system and the clicks of its user. Section numbers are those of Kharitonov 2019.

Scores are computed with NumPy alone, by the shape of the same rankers: a ranker's
:meth:`~fedrank.ranking.rankers.base.Ranker.kernel_shape` is all that a device needs to know about it.

**Team drafting** makes one list of two rankers' lists, so that the same clicks of the same user judge both, after
Radlinski, Kurup and Joachims, "How Does Clickthrough Data Reflect Retrieval Quality?", CIKM 2008, Section 4.1.
The two rankers take turns in pairs of turns. Who goes first in a pair is tossed; each takes its best document that is
not in the list yet. In one point this is a variant: where both want the same document at the start of a pair, the list
gets it, and it belongs to both. There it belongs to who goes first, and a click on it favours one of them by chance.

**Where clicks do not depend on the documents, neither wins.** The documents of a pair are the same whoever goes first,
so that the other toss gives the same list but for the order within the pair, with the two owners in each other's place.

A device drafts with :func:`draft`. A simulator does so with JAX (:mod:`fedrank.ranking.sessions.reference`) or in its
kernel (:mod:`fedrank.ranking.sessions.kernel`).

**Messages** are those of :mod:`fedrank.ranking.foltr_es`, to the byte. A reply has 9 bytes for MaxRR with B = 4 and
antithetic halves, 6 with one privatised number; 6 to 13 in all settings. A check of the model has the bytes of a reply,
and another kind.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from fedrank.core.errors import ConfigError
from fedrank.core.messages import Array, Layout, f4, field, i4, message, u1, u2, u3, u4
from fedrank.metrics.online import OnlineMetric
from fedrank.privacy.randomised_response import privatise

_SEED = "seed of the random perturbation that was tried; says nothing about anyone"


@message(kind=1)
class Request:
    """Server to devices: the model to start from."""

    round: Array = field(u4, "number of the round")
    weights: Array = field(f4["parameters"], "the ranker to start from")


@message(kind=2)
class Reply:
    """Device to server, antithetic: what two opposite perturbations were worth, in units of 1/scale of the metric."""

    seed: Array = field(u4, _SEED)
    plus: Array = field(
        u2 | u3, "sum of the privatised metric values with the perturbation added", largest="largest_sum"
    )
    minus: Array = field(
        u2 | u3, "sum of the privatised metric values with the perturbation subtracted", largest="largest_sum"
    )


@message(kind=3)
class PlainReply:
    """Device to server without antithetic halves: what a perturbation was worth, in units of 1/scale of the metric."""

    seed: Array = field(u4, _SEED)
    plus: Array = field(
        u2 | u3, "sum of the privatised metric values with the perturbation added", largest="largest_sum"
    )


@message(kind=4)
class NoisyReply:
    """Device to server, antithetic, with noise on the sums instead of randomised values; any integer may come."""

    seed: Array = field(u4, _SEED)
    plus: Array = field(i4, "sum of the metric values with the perturbation added, and noise")
    minus: Array = field(i4, "sum of the metric values with the perturbation subtracted, and noise")


@message(kind=5)
class PrivateReply:
    """Device to server, antithetic: one number about the whole message, the privatised difference of its halves."""

    seed: Array = field(u4, _SEED)
    report: Array = field(
        u1, "privatised difference of the halves, as the number of a report", largest="largest_report"
    )


_PAIR = "first four bytes of the hash of the model that the newest was compared with; says nothing about anyone"


@message(kind=6)
class Check:
    """Device to server: what the newest model was worth and what the best one so far, as :class:`Reply` says it."""

    pair: Array = field(u4, _PAIR)
    plus: Array = field(u2 | u3, "sum of the privatised metric values with the newest model", largest="largest_sum")
    minus: Array = field(u2 | u3, "sum of the privatised metric values with the best model", largest="largest_sum")


@message(kind=7)
class PrivateCheck:
    """Device to server: newest model less the best one so far, one privatised number as in :class:`PrivateReply`."""

    pair: Array = field(u4, _PAIR)
    report: Array = field(
        u1, "privatised difference of the two models, as the number of a report", largest="largest_report"
    )


def clip_of(interactions: int) -> float:
    """The largest difference that one privatised number tells if nothing is said, as a part of the largest possible.

    Differences over B searches are about √B large, the largest possible one B: the same part of them is cut for all B.
    A tenth and four times as much were not told apart from it. Below four searches it stays that of four, which tells
    little more than which ranker won.

    Args:
        interactions: B, searches behind a message.

    >>> round(clip_of(16), 3), round(clip_of(64), 3)
    (0.03, 0.015)
    """
    return 0.12 / math.sqrt(max(interactions, 4))


@runtime_checkable
class NumberMechanism(Protocol):
    """A mechanism that turns the one number of a message into one of a few reports."""

    @property
    def reports(self) -> int:
        """Number of reports there are."""
        ...

    def privatise(self, value: Any, largest: int, words: Any, xp: ModuleType, /) -> Any:
        """The report about a whole number from −largest to largest, drawn by random words."""
        ...


@dataclass(frozen=True)
class ClicksToReply:
    """The rule for replies that device and server share. A *half* is the interactions with θ + σv, or with θ − σv.

    Attributes:
        metric: Reward of an interaction: a function of its clicks with n values.
        per_half: Interactions in a half.
        antithetic: There are two halves; otherwise one, θ + σv.
        p: Probability that randomised response lets a value stand; 1 sends all values as they are.
        noisy: Noise is added to the sums of the halves.
        number_mechanism: It privatises the difference of the halves as a whole, and nothing else is sent; needs two
            halves.
        clip: The largest difference that it tells, as a part of the largest there can be, in (0, 1]; what lies beyond
            is cut. Differences are mostly small: the noise is made for a range, and the more of it
            they fill, the more a message says.
    """

    metric: OnlineMetric
    per_half: int
    antithetic: bool = True
    p: float = 1.0
    noisy: bool = False
    number_mechanism: NumberMechanism | None = None
    clip: float = 1.0

    @property
    def layout(self) -> Layout[Reply | PlainReply | NoisyReply | PrivateReply]:
        """The layout of the reply on the wire: kind, fields and their widths."""
        if self.number_mechanism is not None:
            return Layout(PrivateReply, largest_report=self.number_mechanism.reports - 1)
        if self.noisy:
            return Layout(NoisyReply)
        return Layout(Reply if self.antithetic else PlainReply, largest_sum=self.per_half * self.metric.largest)

    @property
    def check_layout(self) -> Layout[Check | PrivateCheck] | None:
        """The layout of a check of the model, which has the bytes of a reply; None where there are none.

        Noise on sums has no bound, so that a single message could decide what many say; and one half compares nothing.
        """
        if self.noisy or not self.antithetic:
            return None
        if self.number_mechanism is not None:
            return Layout(PrivateCheck, largest_report=self.number_mechanism.reports - 1)
        return Layout(Check, largest_sum=self.per_half * self.metric.largest)

    def check(self, pair: Any, sums: Any, noise: Any, xp: ModuleType) -> Check | PrivateCheck:
        """The check about a round's interactions, privatised as by :meth:`message`.

        Args:
            pair: uint32: which model the newest was compared with.
            sums: int [2]: sums of the rewards of the newest model and of the other.
            noise: As of :meth:`message`.
            xp: ``numpy`` or ``jax.numpy``.
        """
        made = self.message(pair, sums, noise, xp)
        if isinstance(made, PrivateReply):
            return PrivateCheck(made.seed, made.report)
        assert isinstance(made, Reply)  # other replies have no layout of a check
        return Check(made.seed, made.plus, made.minus)

    def rewards(self, patterns: Any, rng_bits: Any, xp: ModuleType) -> Any:
        """Terms of interactions in the sums of their halves: metric values, each privatised by itself (Section 3.3).

        Args:
            patterns: int32 [...]: the clicks, bit i for rank i + 1, below 2**depth.
            rng_bits: uint32 [..., 2]: fresh random bits for randomised response; not used with p = 1.
            xp: ``numpy`` or ``jax.numpy``.

        Returns:
            int32 [...], in units of 1/scale of the metric.
        """
        index = xp.asarray(self.metric.index)[patterns]
        if self.p < 1:
            index = privatise(index, rng_bits, self.p, self.metric.n)
        return xp.asarray(self.metric.numerators, xp.int32)[index]

    def sums(self, patterns: Any, rng_bits: Any, active: Any, xp: ModuleType) -> Any:
        """Sums of the halves over interactions, each privatised by itself as in :meth:`rewards`.

        Args:
            patterns: int32 [halves, interactions], as for :meth:`rewards`.
            rng_bits: uint32 [halves, interactions, 2], as for :meth:`rewards`.
            active: bool [halves, interactions]: which of them took place, the others add nothing; None: all.
            xp: ``numpy`` or ``jax.numpy``.

        Returns:
            int32 [halves].
        """
        rewards = self.rewards(patterns, rng_bits, xp)
        if active is not None:
            rewards = xp.where(active, rewards, 0)
        return xp.sum(rewards, axis=-1, dtype=xp.int32)

    @property
    def largest_difference(self) -> int:
        """The largest difference of the halves' sums that is told, in units of 1/scale of the metric, at least 1."""
        return max(1, round(self.clip * (self.per_half * self.metric.largest)))

    def message(
        self, seed: Any, sums: Any, noise: Any, xp: ModuleType
    ) -> Reply | PlainReply | NoisyReply | PrivateReply:
        """The reply about a round's interactions.

        Args:
            seed: uint32: of the perturbation that was tried.
            sums: int [halves]: sums of all rewards of each half.
            noise: int [halves]: what is added to them; not used unless ``noisy``. Sums beyond the 32 bits that cross
                are cut there: what is made of private numbers alone is as private as they are. With
                ``number_mechanism`` uint32 [words]: fresh random words for the difference.
            xp: ``numpy`` or ``jax.numpy``.

        Returns:
            :class:`Reply`, :class:`PlainReply` without antithetic halves, :class:`NoisyReply` with noise on the sums,
            :class:`PrivateReply` with ``number_mechanism``.
        """
        if self.number_mechanism is not None:
            most = self.largest_difference
            difference = xp.clip(xp.asarray(sums[0] - sums[1], xp.int32), -most, most)
            return PrivateReply(seed, self.number_mechanism.privatise(difference, most, noise, xp))
        if self.noisy:
            sums = xp.clip(sums + noise, -(2**31), 2**31 - 1)
            return NoisyReply(seed, sums[0], sums[1])
        return Reply(seed, sums[0], sums[1]) if self.antithetic else PlainReply(seed, sums[0])


if TYPE_CHECKING:  # a device, which runs this, has NumPy only
    from jaxtyping import Float32


def weights_of(n_features: int, hidden: int) -> int:
    """Number of weights of the ranker of this shape: f, or hidden·(f + 2)."""
    if n_features < 1 or hidden < 0:
        raise ConfigError(f"a ranker needs features ≥ 1 and hidden units ≥ 0, got {n_features} and {hidden}.")
    return hidden * (n_features + 2) if hidden else n_features


def portable_scores(
    weights: Float32[np.ndarray, " parameters"], features: Float32[np.ndarray, "documents features"], hidden: int
) -> Float32[np.ndarray, " documents"]:
    """Scores of documents; a higher score ranks first.

    Args:
        weights: float32 [size], in the order of :class:`~fedrank.ranking.rankers.linear.Linear` without hidden units
        and of
            :class:`~fedrank.ranking.rankers.mlp.TwoLayer` with some.
        features: float32 [documents, f].
        hidden: Hidden units; 0 for the linear ranker.

    Returns:
        float32 [documents].

    >>> portable_scores(np.float32([1, 2]), np.float32([[3, 4], [5, 6]]), hidden=0)
    array([11., 17.], dtype=float32)
    """
    if not hidden:
        return features @ weights
    f = features.shape[1]
    into, bias = weights[: hidden * f].reshape(hidden, f), weights[hidden * f : hidden * (f + 1)]
    return np.maximum(features @ into.T + bias, np.float32(0)) @ weights[hidden * (f + 1) :]


if TYPE_CHECKING:  # a device, which runs this, has NumPy only
    from jaxtyping import Integer

#: Whose a document of the list is: of θ − σv, of both, of θ + σv.
MINUS, BOTH, PLUS = -1, 0, 1


class Drafted(NamedTuple):
    """A list of two rankers.

    Attributes:
        order: int64 [documents]: the documents, best first.
        team: int64 [documents]: whose each is: 1 of the first ranker, −1 of the second, 0 of both.
    """

    order: Integer[np.ndarray, " documents"]
    team: Integer[np.ndarray, " documents"]


def draft(
    first: Integer[np.ndarray, " documents"], second: Integer[np.ndarray, " documents"], depth: int, toss: int
) -> Drafted:
    """One list of two, drafted down to a rank, and further down as the first ranker has what is left.

    Args:
        first: int [documents], a ranker's documents, best first.
        second: int [documents], the other's: the same documents.
        depth: Ranks that are drafted; documents below belong to neither ranker, and their clicks do not count.
        toss: 32 random bits: bit r says who goes first in a pair of turns that starts at rank r + 1, 1 for ``first``.

    >>> order, team = draft(np.array([0, 1, 2]), np.array([0, 2, 1]), 3, 0b010)
    >>> order.tolist(), team.tolist()
    ([0, 1, 2], [0, 1, -1])
    """
    lists, at, taken = (list(map(int, first)), list(map(int, second))), [0, 0], set()
    order: list[int] = []
    team: list[int] = []
    starts, whose = True, 0
    while len(order) < min(depth, len(lists[0])):
        for i in (0, 1):
            while lists[i][at[i]] in taken:
                at[i] += 1
        best = [lists[i][at[i]] for i in (0, 1)]
        if starts and best[0] == best[1]:
            chosen, owner = best[0], BOTH
        else:
            whose = (0 if toss >> len(order) & 1 else 1) if starts else 1 - whose
            chosen, owner = best[whose], (PLUS, MINUS)[whose]
            starts = not starts
        order.append(chosen)
        team.append(owner)
        taken.add(chosen)
    rest = [document for document in lists[0] if document not in taken]
    return Drafted(np.array(order + rest, np.int64), np.array(team + [BOTH] * len(rest), np.int64))


def credit_clicks(pattern: int, team: Integer[np.ndarray, " ranks"]) -> tuple[int, int]:
    """The clicks as each ranker sees them: on its own documents and on those of both.

    Args:
        pattern: The clicks, bit i for rank i + 1.
        team: int [ranks or more], of :class:`Drafted`.

    Returns:
        A pattern for the first ranker and one for the second.
    """
    of_first = sum(1 << rank for rank in range(pattern.bit_length()) if team[rank] != MINUS)
    of_second = sum(1 << rank for rank in range(pattern.bit_length()) if team[rank] != PLUS)
    return pattern & of_first, pattern & of_second
