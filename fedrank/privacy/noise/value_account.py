"""The account of noise on Q-values: how many vectors tell of one user, and what they come to.

The unit is a vector of values: what one message says of one moment (a round of a user) at one platform. A moment fills

* one vector when the platform acts;
* one of its network's values, each time the moment is in a batch, and one more, of the new values, if another platform
  learns after this one from the same batch;
* one of its target network's values, each time the moment *before* it is in a batch.

Batches are drawn by the coordinator, uniformly without replacement from what platforms remember. Which moments those
are is no secret, so that nothing is gained by sampling. How often a user's moments are drawn is chance that no data has
a part in: for a coordinator that keeps to the protocol the number stays below Chernoff's bound, whose probability is a
part of δ. One that asks for the same moments again and again is the worst case, and has an account of its own.

Vectors follow on each other, later ones depend on earlier ones, and each has noise of its own: they compose as rounds
do (:mod:`fedrank.privacy.composition`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from fedrank.core.errors import ConfigError
from fedrank.privacy.composition import sum_account

#: Part of δ for a user whose moments are drawn more often than the account allows.
_UNLUCKY = 0.5
#: From this ε on, a bound says little by itself: odds may change twentyfold and more.
_LITTLE = 3.0

_NOT_COVERED = (
    "Targets, gradients and parameters of choice models: they cross without noise, and tell engagement and clicks "
    "nearly exactly (measured by: fedrank attack slates).",
    "What networks have learnt from a user, in vectors about other users: the ε of a user's stay counts the vectors "
    "about that user. The ε of the run counts all.",
    "That a user is there, when, for how long, and which moments are learnt from.",
    "What carries a message: network address, time of sending, and anything the transport adds.",
    "Noise whose random numbers somebody else knows. In a simulation all noise follows from the run's seed, so that a "
    "simulated run protects nobody and only shows what a deployed one would promise.",
    "Rounds beyond those counted here; and where a platform misses rounds, the moments that all have are drawn more "
    "often than counted for a stay: then only the ε of a coordinator that always asks holds.",
)


class Vectors(NamedTuple):
    """How many vectors of values tell of what.

    Attributes:
        message_round: Of all that one platform sends in a round that ends with learning.
        stay_expected: Of one user's stay at one platform, on average over batches; of the user who is drawn most.
        stay: The same, but for a probability that is given.
        stay_worst: The same if the coordinator always asks for this user's moments.
        stay_everywhere: As ``stay``, of all platforms together.
        run: Of everybody, in the whole run, at one platform.
    """

    message_round: int
    stay_expected: float
    stay: int
    stay_worst: int
    stay_everywhere: int
    run: int


def vectors(
    rounds: int,
    *,
    platforms: int,
    batch: int,
    learn_every: int,
    burn_in: int,
    memory: int,
    episode_rounds: int,
    unlucky: float,
) -> Vectors:
    """Vectors that a platform sends; of platforms, the one that sends most.

    Args:
        rounds: Rounds of the run.
        platforms: K; all but the one that learns last send new values.
        batch: B, moments in a batch.
        learn_every: Rounds between two batches.
        burn_in: Rounds before the first batch.
        memory: Moments that a platform keeps.
        episode_rounds: Rounds of one user.
        unlucky: Probability, in (0, 1), that a user's moments are drawn more often than ``stay`` says.

    Raises:
        ConfigError: A number out of range.
    """
    if rounds < 0 or not 0.0 < unlucky < 1.0:
        raise ConfigError(f"rounds must be at least 0 and unlucky in (0, 1), got {rounds} and {unlucky}.")
    if min(platforms, batch, learn_every, episode_rounds) < 1 or min(memory, burn_in) <= batch:
        raise ConfigError(
            "platforms, batch, learn_every and episode_rounds must be at least 1, memory and burn_in above batch; got "
            f"{platforms}, {batch}, {learn_every}, {episode_rounds}, {memory}, {burn_in}."
        )
    if rounds == 0:
        return Vectors(0, 0.0, 0, 0, 0, 0)
    kinds = 3 if platforms > 1 else 2
    of_all = 3 * platforms - 1
    number = np.arange(rounds)
    learning = (number >= burn_in) & ((number + 1) % learn_every == 0)
    kept = np.minimum(number + 1, memory)
    # A moment that is 1 … kept − 1 rounds old is drawn with probability B/(kept − 1): each moment's expected draws.
    until = np.cumsum(np.where(learning, batch / np.maximum(kept - 1, 1), 0.0))
    draws = until[np.minimum(number + memory - 1, rounds - 1)] - until
    before = np.append(0.0, draws[:-1])  # those of the moment before, for which this one is what follows
    starts = np.arange(0, rounds, episode_rounds)
    expected = np.add.reduceat(1.0 + (kinds - 1) * draws + before, starts)
    # Of a stay's moments and the one before it: a draw of any fills ``kinds`` vectors at most.
    mean = float(np.max(np.add.reduceat(draws, starts) + before[starts]))
    stay = min(rounds, episode_rounds)
    within = np.cumsum(learning)
    last = np.minimum(starts + stay - 1 + memory - 1, rounds - 1)
    most = int(np.max(within[last] - np.where(starts > 0, within[np.maximum(starts - 1, 0)], 0)))
    most *= min(batch, stay + 1)
    drawn = min(most, _seldom_above(mean, unlucky))
    batches = int(within[-1])
    run = rounds + kinds * batch * batches
    return Vectors(
        message_round=1 + (kinds * batch if batches else 0),
        stay_expected=float(np.max(expected)),
        stay=min(run, stay + kinds * drawn),
        stay_worst=min(run, stay + kinds * most),
        stay_everywhere=min(rounds * platforms + of_all * batch * batches, stay * platforms + of_all * drawn),
        run=run,
    )


def _seldom_above(mean: float, chance: float) -> int:
    """The number that draws without replacement exceed with at most this probability (Chernoff's bound).

    P(X ≥ x) ≤ e^(x − μ) (μ/x)^x for sums of independent, or negatively associated, zeros and ones of mean μ; draws
    without replacement are such (Joag-Dev and Proschan, *Negative association of random variables with applications*,
    Annals of Statistics 1983), and batches are independent.
    """
    from scipy.optimize import brentq

    if mean <= 0.0:
        return 0

    def beyond(x: float) -> float:
        return x - mean - x * math.log(x / mean) - math.log(chance)

    end = 2.0 * mean + 10.0
    while beyond(end) > 0:
        end *= 2.0
    # X < x but for that probability, and X is whole.
    return math.ceil(float(brentq(beyond, mean, end))) - 1  # type: ignore[arg-type]


@dataclass(frozen=True)
class ValueReport:
    """The privacy of Q-values with noise. All ε in nats.

    Attributes:
        mechanism: The noise.
        scale: Scale of Laplace noise, or σ of Gaussian noise, of each value, in steps.
        noise_deviation: Standard deviation of the noise of each value, in the unit of the values.
        sensitivity: Distance of two vectors, in steps; L1 for Laplace, L2 for Gaussian noise.
        vectors: How many there are.
        vector_delta: δ of ``epsilon_vector``; 0 for Laplace noise.
        epsilon_vector: ε of one vector.
        epsilon_message_round: ε of all that a platform sends in a round with learning.
        epsilon_user_basic: ε of a user's stay at one platform, by basic composition.
        epsilon_user_pld: The same by the tighter composition; never above the basic one.
        epsilon_user_everywhere: As ``epsilon_user_pld``, of all platforms together.
        epsilon_user_worst: As ``epsilon_user_pld``, if the coordinator always asks for this user.
        epsilon_run: ε of everything one platform sends in the run.
        accounting: How ``epsilon_user_pld`` was found.
        delta: δ of all but ``epsilon_vector``.
        platforms: K.
        rounds: Rounds counted.
        episode_rounds: Rounds of a stay.
        covers: What the numbers promise, in sentences.
        not_covered: What no number here promises, in sentences.
    """

    mechanism: str
    scale: float
    noise_deviation: float
    sensitivity: float
    vectors: Vectors
    vector_delta: float
    epsilon_vector: float
    epsilon_message_round: float
    epsilon_user_basic: float
    epsilon_user_pld: float
    epsilon_user_everywhere: float
    epsilon_user_worst: float
    epsilon_run: float
    accounting: str
    delta: float
    platforms: int
    rounds: int
    episode_rounds: int
    covers: tuple[str, ...]
    not_covered: tuple[str, ...]

    @property
    def epsilon_round(self) -> float:
        """Infinite: a round with learning also sends targets and gradients, which have no noise."""
        return math.inf

    def as_json(self) -> dict[str, Any]:
        """The content of ``privacy.json``; no ε holds for a round as a whole, so that it is null."""
        content = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            **content,
            "unit": "one vector of Q-values: one moment of one user at one platform in one message",
            "epsilon_round": None,
            "local": True,
            "vectors": self.vectors._asdict(),
            "covers": list(self.covers),
            "not_covered": list(self.not_covered),
            "words": [*self.in_words()],
        }

    def in_words(self) -> tuple[str, str, str]:
        """Paragraphs for somebody who has to decide whether this may be deployed."""
        at, v = f"δ = {self.delta:.0e}", self.vectors
        single = f" at δ = {self.vector_delta:.0e}" if self.vector_delta else ""
        size = (
            " A bound of this size says little by itself."
            if min(self.epsilon_user_pld, self.epsilon_run) > _LITTLE
            else ""
        )
        return (
            f"Each Q-value carries {self.mechanism} of standard deviation {self.noise_deviation:.3g} before it leaves "
            f"its platform. One vector of values: ε = {self.epsilon_vector:.3g}{single}, without any trust in the "
            "coordinator.",
            f"A user who stays for {self.episode_rounds:,} rounds fills {v.stay_expected:,.0f} vectors at one "
            f"platform on average, and hardly ever more than {v.stay:,}: ε = {self.epsilon_user_pld:.4g} at {at} "
            f"({self.accounting}), and {self.epsilon_user_everywhere:.4g} over {self.platforms} platforms. A "
            f"coordinator that always asks for this user's moments gets {v.stay_worst:,}: "
            f"ε = {self.epsilon_user_worst:.4g}. All {v.run:,} vectors of one platform's {self.rounds:,} rounds: "
            f"ε = {self.epsilon_run:.4g}.{size}",
            "This is about Q-values alone. Targets and gradients have no noise, and tell engagement and clicks nearly "
            "exactly; how much is measured by: fedrank attack slates.",
        )


def value_account(
    *,
    mechanism: str,
    scale: float,
    sensitivity: float,
    unit: float,
    vector_delta: float,
    rounds: int,
    delta: float,
    platforms: int,
    batch: int,
    learn_every: int,
    burn_in: int,
    memory: int,
    episode_rounds: int,
) -> ValueReport:
    """What noise on vectors of values promises for a run.

    Args:
        mechanism: ``"laplace"`` or ``"gaussian"``.
        scale: Scale or σ of the noise on each value, in steps.
        sensitivity: Distance of two vectors in steps, L1 for Laplace and L2 for Gaussian noise.
        unit: One step, in the unit of the values.
        vector_delta: δ of a vector's ε, for Gaussian noise.
        rounds: Rounds of the run.
        delta: δ of a stay and of the run, in (0, 1).
        platforms: As of :func:`vectors`, and so all others.
        batch: B.
        learn_every: Rounds between batches.
        burn_in: Rounds before the first.
        memory: Moments kept.
        episode_rounds: Rounds of a user.

    Raises:
        ConfigError: A number out of range.
    """
    if not 0.0 < delta < 1.0:
        raise ConfigError(f"delta must be in (0, 1), got {delta}.")
    count = vectors(
        rounds,
        platforms=platforms,
        batch=batch,
        learn_every=learn_every,
        burn_in=burn_in,
        memory=memory,
        episode_rounds=episode_rounds,
        unlucky=_UNLUCKY * delta,
    )

    def report(times: int, delta: float):
        return sum_account(
            mechanism=mechanism,
            scale=scale,
            sensitivity=sensitivity,
            rounds=times,
            enough=1,
            secure_sum=False,
            delta=delta,
        )

    laplace = mechanism == "laplace"
    stay = report(count.stay, (1.0 - _UNLUCKY) * delta)
    return ValueReport(
        mechanism=stay.mechanism,
        scale=scale,
        noise_deviation=unit * (_laplace_deviation(scale) if laplace else scale),
        sensitivity=sensitivity,
        vectors=count,
        vector_delta=0.0 if laplace else vector_delta,
        epsilon_vector=report(1, vector_delta).epsilon_round,
        epsilon_message_round=report(count.message_round, delta).epsilon_user_pld,
        epsilon_user_basic=stay.epsilon_user_basic,
        epsilon_user_pld=stay.epsilon_user_pld,
        epsilon_user_everywhere=report(count.stay_everywhere, (1.0 - _UNLUCKY) * delta).epsilon_user_pld,
        epsilon_user_worst=report(count.stay_worst, delta).epsilon_user_pld,
        epsilon_run=report(count.run, delta).epsilon_user_pld,
        accounting=stay.accounting,
        delta=delta,
        platforms=platforms,
        rounds=rounds,
        episode_rounds=episode_rounds,
        covers=(
            "Q-values, against everybody who reads a message, the coordinator included, with the ε of a vector.",
            "All vectors about a user's stay at one platform, and at all platforms, if the coordinator draws batches "
            "by the protocol; and if it does not, with an ε of its own.",
            "All vectors that a platform sends in the counted rounds, whomever they are about.",
        ),
        not_covered=_NOT_COVERED,
    )


def _laplace_deviation(scale: float) -> float:
    """Standard deviation of discrete Laplace noise: √(2α)/(1 − α) with α = e^(−1/t)."""
    return math.sqrt(2.0) * math.exp(-0.5 / scale) / -math.expm1(-1.0 / scale)
