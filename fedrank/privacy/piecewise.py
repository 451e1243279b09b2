"""ε-local privacy of one bounded number: report one of a few numbers, most likely one in a window around the truth.

The piecewise mechanism (Wang et al., "Collecting and Analyzing Multidimensional Data with Local Differential Privacy",
ICDE 2019, Section III-B), made discrete so that a device draws it exactly with integers. Reports are the numbers 0 ..
K − 1. A value d in [−1, 1] is rounded at random to one of K − w + 1 positions, evenly spaced from −1 to 1, so that
its mean is d; each position stands for a *window* of w neighbouring reports. A report within the window is e^ε times as
likely as one outside it. Two members of the family have their own names:

* K = 2, w = 1: one bit, the mechanism of Duchi, Jordan and Wainwright (JASA 2018, Section 4.2.3);
* w = 1: k-ary randomised response on a value that was rounded at random.

Whatever the device did to come to d, no report is more than e^ε times as likely as it would be for any other d: the
promise is about everything behind the number, and rests on the report's probabilities alone, not on how d was rounded.

**Exact.** w and K − w are powers of two, so that equally likely numbers are the leading bits of a random word, and the
report is in the window if another word is below an integer :attr:`Piecewise.threshold`. There is no floating-point
number between the random words and the report. The threshold is rounded so that ε is at most what is asked for;
:attr:`Piecewise.exact_epsilon` is the ε of the integers themselves.

The random words are the caller's; on a real device they come from the operating system
(:func:`fedrank.privacy.randomised_response.os_words`).
"""

from __future__ import annotations

import decimal
import functools
import math
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedrank.core.arrays import AnyArray, ArrayT
from fedrank.core.errors import ConfigError
from fedrank.core.rng import below_large
from fedrank.privacy.accounts.shuffle import shuffled_delta

if TYPE_CHECKING:  # a device, which runs this, has NumPy only
    from jaxtyping import Float, Integer, UInt32

#: Most numbers to report one of: a report is one byte.
MOST_REPORTS = 256
#: Range of ε; beyond the largest, a report outside the window cannot be drawn with 32 bits.
SMALLEST_EPSILON, LARGEST_EPSILON = 1e-3, 16.0
#: Random words of one report: one to round, one for inside or outside, one for which.
WORDS = 3
#: Part of the differences that are at an end of the range where they are clipped to 3 % of it: 0.92 of MQ2008's where
#: each list is one ranker's, 0.7 to 0.9 where two make each list. Below ε = 1.5 the best member is the same for all.
AT_ENDS = 0.9
#: Clipped to more than this part of the range, differences are not taken to be at its ends.
SMALL_CLIP = 0.1
#: Largest range of a whole number that :meth:`Piecewise.position` takes.
_LARGEST = 2**24


@dataclass(frozen=True)
class Piecewise:
    """The mechanism for one ε, one width of the window and one number of reports outside it.

    Attributes:
        epsilon: ε of one report, in nats, 0.001 to 16.
        inside: w, reports in a window; a power of two.
        outside: K − w, reports outside; a power of two. K is at most 256.

    Raises:
        ConfigError: One is out of range.

    >>> one_bit = Piecewise(1.0)
    >>> one_bit.reports, round(one_bit.scale, 3)
    (2, 2.164)
    """

    words: ClassVar[int] = WORDS
    says: ClassVar[str] = "drawn so that each is nearly as likely whatever the user did (piecewise mechanism)"

    epsilon: float
    inside: int = 1
    outside: int = 1

    def __post_init__(self):
        if not SMALLEST_EPSILON <= self.epsilon <= LARGEST_EPSILON:
            raise ConfigError(
                f"epsilon of the piecewise mechanism must be in {SMALLEST_EPSILON:g}..{LARGEST_EPSILON:g}, got "
                f"{self.epsilon:g}."
            )
        for name, value in (("inside", self.inside), ("outside", self.outside)):
            if value < 1 or value & (value - 1):
                raise ConfigError(f"reports {name} the window must be a power of two, got {value}.")
        if self.reports > MOST_REPORTS:
            raise ConfigError(f"there can be at most {MOST_REPORTS} reports, got {self.reports}.")

    @property
    def reports(self) -> int:
        """K, how many numbers there are to report one of."""
        return self.inside + self.outside

    @functools.cached_property
    def threshold(self) -> int:
        """Number of the 2³² words that mean "inside": the largest number whose ε is at most :attr:`epsilon`."""
        with decimal.localcontext(decimal.Context(prec=60, rounding=decimal.ROUND_FLOOR)):
            weight = self.inside * decimal.Decimal(self.epsilon).exp()
            return int(2**32 * weight / (weight + self.outside))

    @property
    def exact_epsilon(self) -> float:
        """The ε of the integers that are drawn, in nats; at most :attr:`epsilon`, up to rounding of this number."""
        return math.log(self.threshold) - math.log(2**32 - self.threshold) + math.log(self.outside / self.inside)

    def position(
        self, value: Integer[ArrayT, "*shape"], largest: int, words: UInt32[AnyArray, "*shape"], xp: ModuleType
    ) -> Integer[ArrayT, "*shape"]:
        """Round a whole number from −largest to largest at random to a position, so that its mean is the number.

        The chance of rounding up is exact but for 2·largest·2⁻³², which biases the mean and touches no promise.

        Args:
            value: int32 [...].
            largest: In 1 .. 2²⁴ − 1.
            words: uint32 [...], random.
            xp: ``numpy`` or ``jax.numpy``.

        Returns:
            int32 [...], in 0 .. ``outside``: −largest is 0, largest is ``outside``.

        Raises:
            ConfigError: ``largest`` is out of range.
        """
        if not 1 <= largest < _LARGEST:
            raise ConfigError(f"the largest value must be in 1..{_LARGEST - 1}, got {largest}.")
        steps = (value + largest).astype(xp.uint32) * xp.uint32(self.outside)
        down, rest = steps // xp.uint32(2 * largest), steps % xp.uint32(2 * largest)
        return (down + (below_large(words, np.uint32(2 * largest)) < rest)).astype(xp.int32)

    def respond(
        self, position: Integer[ArrayT, "*shape"], words: UInt32[AnyArray, "*shape 2"], xp: ModuleType
    ) -> Integer[ArrayT, "*shape"]:
        """The number to report.

        Args:
            position: int32 [...], in 0 .. ``outside``: the first report of the window.
            words: uint32 [..., 2], random: inside or outside the window, and which of those.
            xp: ``numpy`` or ``jax.numpy``.

        Returns:
            int32 [...], in 0 .. :attr:`reports` − 1.
        """
        inside = words[..., 0] < xp.uint32(self.threshold)
        near = position + _leading(words[..., 1], self.inside, xp)
        far = _leading(words[..., 1], self.outside, xp)
        far = far + xp.where(far >= position, self.inside, 0)  # skip the window
        return xp.where(inside, near, far).astype(xp.int32)

    def privatise(
        self, value: Integer[ArrayT, "*shape"], largest: int, words: UInt32[AnyArray, "*shape 3"], xp: ModuleType
    ) -> Integer[ArrayT, "*shape"]:
        """The report about a whole number from −largest to largest: :meth:`position`, then :meth:`respond`.

        Args:
            value: int32 [...].
            largest: In 1 .. 2²⁴ − 1.
            words: uint32 [..., 3], random, used for nothing else.
            xp: ``numpy`` or ``jax.numpy``.
        """
        return self.respond(self.position(value, largest, words[..., 0], xp), words[..., 1:], xp)

    @property
    def scale(self) -> float:
        """Estimate for a report at the end of the range, as a multiple of the largest value."""
        return float(self.estimates[-1])

    @functools.cached_property
    def estimates(self) -> Float[np.ndarray, " reports"]:
        """Of each report the d that it stands for: float64 [reports], whose mean over reports about d is d."""
        high, low = self._probabilities
        slope = (high - low) * self.inside * self.outside / 2
        return (np.arange(self.reports) - (self.reports - 1) / 2) / slope

    @property
    def _probabilities(self) -> tuple[float, float]:
        """Probability of one report inside the window, and of one outside."""
        return self.threshold / 2**32 / self.inside, (1 - self.threshold / 2**32) / self.outside

    @property
    def chances(self) -> tuple[float, float]:
        """Probabilities of a report that is likelier for one of two truths, given this one and given the other.

        Two truths differ in the probability of the reports in one window only, a of them each way, a = min(w, K − w) at
        most; all other reports are as likely under both. So the device says anything telling with probability a (h + l)
        only, where h and l are the probabilities of a report inside and outside a window; and each of the others,
        whatever its truth, says each report with probability l at least, hence C has the probability 2 a l. With one
        bit these are 1 and 2/(e^ε₀ + 1). (The bound that *Stronger privacy amplification by shuffling*, SODA 2023,
        printed for all mechanisms with the latter probability does not hold for all, as its authors say; it holds for
        these.)
        """
        apart, inside = min(self.inside, self.outside), self.threshold / 2**32
        return apart * inside / self.inside, apart * (1 - inside) / self.outside

    def probabilities(self) -> Float[np.ndarray, "positions reports"]:
        """Probability of each report for each position: float64 [outside + 1, reports]; rows sum to 1."""
        high, low = self._probabilities
        far = np.arange(self.reports) - np.arange(self.outside + 1)[:, None]
        return np.where((far >= 0) & (far < self.inside), high, low)

    def second_moment(self, d: Float[np.ndarray, "*shape"] | float) -> Float[np.ndarray, "*shape"] | float:
        """The mean square of the estimate of d, in [−1, 1]; the variance is this less d²."""
        at_positions = self.probabilities() @ self.estimates**2
        return np.interp(d, np.linspace(-1, 1, self.outside + 1), at_positions)

    def variance(self, d: Float[np.ndarray, "*shape"] | float) -> Float[np.ndarray, "*shape"] | float:
        """The variance of the estimate of d, in [−1, 1], in closed form; float64 of the shape of d."""
        return self.second_moment(d) - np.square(d)

    @property
    def worst_variance(self) -> float:
        """The largest variance of all d."""
        # Between two positions the variance is a parabola that opens downwards: its top, or an end.
        at = np.linspace(-1, 1, self.outside + 1)
        moments, step = np.asarray(self.second_moment(at)), 2 / self.outside
        tops = np.clip(np.diff(moments) / step / 2, at[:-1], at[1:])
        return float(np.max(self.variance(np.concatenate([at, tops]))))

    @property
    def mean_variance(self) -> float:
        """The mean variance where d is the difference of two independent uniform values (triangular on [−1, 1])."""
        d = (np.arange(20_000) + 0.5) / 10_000 - 1
        return float(np.average(self.variance(d), weights=1 - np.abs(d)))


def _leading(words: UInt32[ArrayT, "*shape"], numbers: int, xp: ModuleType) -> Integer[ArrayT, "*shape"]:
    """One of ``numbers``, a power of two, from the leading bits of each word: int32, exactly equally likely."""
    bits = numbers.bit_length() - 1
    # A shift by 32 is not defined: half of it twice.
    return ((words >> xp.uint32(16 - bits // 2)) >> xp.uint32(16 - (bits - bits // 2))).astype(xp.int32)


def family(epsilon: float) -> list[Piecewise]:
    """All members of the family for an ε."""
    powers = [2**i for i in range(MOST_REPORTS.bit_length())]
    return [Piecewise(epsilon, w, others) for w in powers for others in powers if w + others <= MOST_REPORTS]


def best_clipped(epsilon: float, clip: float) -> Piecewise:
    """The best member where differences are cut to a part of their range.

    Args:
        epsilon: ε of one report, in nats.
        clip: The part, in (0, 1].

    >>> best_clipped(1.0, 0.03).reports, best_clipped(1.0, 1.0).reports
    (2, 3)
    """
    return best(epsilon, at_ends_of(clip))


def at_ends_of(clip: float) -> float:
    """Part of the differences that are taken to be at an end of a range that was cut to ``clip`` of it."""
    return AT_ENDS if clip <= SMALL_CLIP else 0.0


@functools.lru_cache(maxsize=256)
def best(epsilon: float, at_ends: float = 0.0) -> Piecewise:
    """The member with the smallest mean variance, the one with fewer reports of two equals.

    Args:
        epsilon: ε of one report, in nats.
        at_ends: Part of the values that are −1 or 1, in [0, 1]; the rest is as for :attr:`Piecewise.mean_variance`.

    >>> best(0.25).reports, best(1.0).reports, best(1.0, AT_ENDS).reports
    (2, 3, 2)
    """

    def mean(one: Piecewise) -> float:
        return at_ends * float(one.variance(1.0)) + (1 - at_ends) * one.mean_variance

    return min(family(epsilon), key=lambda one: (mean(one), one.reports))


def clipped_second_moment(epsilon: float) -> float:
    """The mean square of the estimates of clipped differences by the best member, in units of the largest that is told.

    Args:
        epsilon: ε of one report, in nats.

    >>> round(clipped_second_moment(1.0), 2)
    4.68
    """
    mechanism = best(epsilon, AT_ENDS)
    inside = mechanism.mean_variance + 1 / 6  # the mean square of a triangular number in [−1, 1]
    return AT_ENDS * float(mechanism.second_moment(1.0)) + (1 - AT_ENDS) * inside


@functools.lru_cache(maxsize=256)
def local_epsilon(epsilon: float, reports: int, delta: float, at_ends: float = 0.0) -> float:
    """The largest ε₀ of a report whose ε at δ, seen through an anonymous channel, is at most ``epsilon``.

    At each ε₀ it is that of the best mechanism of its family (:func:`fedrank.privacy.piecewise.best`).

    Args:
        epsilon: ε > 0 at δ that is wanted, in nats.
        reports: n, reports of a round, at least 1.
        delta: δ in (0, 1).
        at_ends: As of :func:`~fedrank.privacy.piecewise.best`.

    Raises:
        ConfigError: ε is out of the mechanism's range.
    """
    if not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:
        raise ConfigError(f"epsilon must be in {SMALLEST_EPSILON:g}..{LARGEST_EPSILON:g}, got {epsilon:g}.")
    # The window that is best changes with ε₀, and the ε of a report among others with it: not quite in order. The
    # answer holds by itself, whatever others might.
    low, high = epsilon, LARGEST_EPSILON
    if shuffled_delta(best(high, at_ends), reports, epsilon) <= delta:
        return high
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if shuffled_delta(best(middle, at_ends), reports, epsilon) <= delta else (low, middle)
        )
    return low
