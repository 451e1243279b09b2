"""From a user's clicks to the reply: the one piece of FOLtR-ES that a real device and a simulated one both run.

A simulator maps it over its devices with JAX, a device calls it with NumPy after each interaction; ``xp`` is the array
module, ``numpy`` or ``jax.numpy``, that the arguments belong to. Only what it is told differs: a device has random bits
of its operating system and the clicks of its user. Section numbers are those of Kharitonov 2019.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from fedrank.core.messages import Layout
from fedrank.metrics.online import OnlineMetric
from fedrank.privacy.piecewise import Piecewise
from fedrank.privacy.randomised_response import privatise
from fedrank.ranking.on_device.messages import Check, NoisyReply, PlainReply, PrivateCheck, PrivateReply, Reply


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


@dataclass(frozen=True)
class ClicksToReply:
    """The rule for replies that device and server share. A *half* is the interactions with θ + σv, or with θ − σv.

    Attributes:
        metric: Reward of an interaction: a function of its clicks with n values.
        per_half: Interactions in a half.
        antithetic: There are two halves; otherwise one, θ + σv.
        p: Probability that randomised response lets a value stand; 1 sends all values as they are.
        noisy: Noise is added to the sums of the halves.
        piecewise: The difference of the halves is privatised as a whole, and nothing else is sent; needs two halves.
        clip: With ``piecewise`` the largest difference that is told, as a part of the largest there can be, in (0, 1];
            what lies beyond is cut. Differences are mostly small: the noise is made for a range, and the more of it
            they fill, the more a message says.
    """

    metric: OnlineMetric
    per_half: int
    antithetic: bool = True
    p: float = 1.0
    noisy: bool = False
    piecewise: Piecewise | None = None
    clip: float = 1.0

    @property
    def layout(self) -> Layout[Reply | PlainReply | NoisyReply | PrivateReply]:
        """The layout of the reply on the wire: kind, fields and their widths."""
        if self.piecewise is not None:
            return Layout(PrivateReply, largest_report=self.piecewise.reports - 1)
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
        if self.piecewise is not None:
            return Layout(PrivateCheck, largest_report=self.piecewise.reports - 1)
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
                are cut there: what is made of private numbers alone is as private as they are. With ``piecewise``
                uint32 [3]: fresh random words for the difference.
            xp: ``numpy`` or ``jax.numpy``.

        Returns:
            :class:`Reply`, :class:`PlainReply` without antithetic halves, :class:`NoisyReply` with noise on the sums,
            :class:`PrivateReply` with ``piecewise``.
        """
        if self.piecewise is not None:
            most = self.largest_difference
            difference = xp.clip(xp.asarray(sums[0] - sums[1], xp.int32), -most, most)
            return PrivateReply(seed, self.piecewise.privatise(difference, most, noise, xp))
        if self.noisy:
            sums = xp.clip(sums + noise, -(2**31), 2**31 - 1)
            return NoisyReply(seed, sums[0], sums[1])
        return Reply(seed, sums[0], sums[1]) if self.antithetic else PlainReply(seed, sums[0])
