"""The account of noise on Q-values: how many vectors tell of one user, and what they come to.

The unit is a vector of values: what one message says of one moment (a round of a user) at one platform. A moment fills

* one vector when the platform acts;
* one of its network's values, each time the moment is in a batch, and one more, of the new values, if another platform
  learns after this one from the same batch;
* one of its target network's values, each time the moment *before* it is in a batch.

Batches are drawn by the coordinator, uniformly without replacement from what platforms remember. Which moments those
are is no secret, so that nothing is gained by sampling. How often a user's moments are drawn is chance that no data has
a part in: for a coordinator that keeps to the protocol the number stays below Chernoff's bound, whose probability is a
part of δ. One that asks for the same moments again and again is the worst case, and has a separate account.

Vectors follow on each other, later ones depend on earlier ones, and each has its own noise: they compose as rounds
do (:mod:`fedrank.privacy.accounts.sums`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import (
    KNOWN_RANDOMNESS,
    MORE_ROUNDS,
    NOBODY,
    PARTICIPATION,
    SIMULATION,
    TRANSPORT,
    AuditedBy,
    PrivacyReport,
    Promise,
    Unit,
    remark,
)
from fedrank.privacy.accounts.sums import sum_account

#: Part of δ for a user whose moments are drawn more often than the account allows.
_UNLUCKY = 0.5
#: Parts of what is sent that a promise can be about, beside all lists of values that one platform sends.
BATCH, EVERYWHERE, ALWAYS_ASKED = "a round with learning", "all platforms", "a coordinator that always asks"

_NOT_COVERED = (
    "Targets, gradients and parameters of choice models: they cross without noise, and tell engagement and clicks "
    "nearly exactly (measured by: fedrank privacy attack slates).",
    "What networks have learnt from a user, in vectors about other users: the ε of a user's stay counts the vectors "
    "about that user. The ε of the run counts all.",
    "For how long a user stays, and which moments are learnt from.",
    "Platforms that miss rounds: the moments that all have are then drawn more often than counted for a stay, and only "
    "the ε of a coordinator that always asks holds.",
    PARTICIPATION,
    TRANSPORT,
    KNOWN_RANDOMNESS,
    MORE_ROUNDS,
    SIMULATION,
)


@runtime_checkable
class Replay(Protocol):
    """Settings of a run that say how often platforms send values of a moment."""

    @property
    def platforms(self) -> int:
        """K, platforms; all but the one that learns last send new values."""
        ...

    @property
    def batch(self) -> int:
        """B, moments that a message asks values of, at least 1."""
        ...

    @property
    def learn_every(self) -> int:
        """Rounds from one batch to the next, at least 1."""
        ...

    @property
    def burn_in(self) -> int:
        """Rounds before the first batch, more than ``batch``."""
        ...

    @property
    def memory(self) -> int:
        """Latest moments that a platform keeps and draws a batch from, more than ``batch``."""
        ...

    @property
    def episode_rounds(self) -> int:
        """Rounds of the world that one user stays at most, at least 1."""
        ...


class Vectors(NamedTuple):
    """Numbers of vectors of values that depend on a message, a user's stay, or the run.

    Attributes:
        message_round: Of all that one platform sends in a round that ends with learning.
        stay_expected: Of one user's stay at one platform, on average over batches; of the user who is drawn most.
        stay: The same, but for a probability that is given.
        stay_worst: The same if the coordinator always asks for this user's moments.
        stay_everywhere: As ``stay``, of all platforms together.
        run: Of all users, in the whole run, at one platform.
    """

    message_round: int
    stay_expected: float
    stay: int
    stay_worst: int
    stay_everywhere: int
    run: int


def vectors(rounds: int, replay: Replay, unlucky: float) -> Vectors:
    """Vectors that a platform sends; of platforms, the one that sends most.

    Args:
        rounds: Rounds of the run.
        replay: Settings of the run.
        unlucky: Probability, in (0, 1), that a user's moments are drawn more often than ``stay`` says.

    Raises:
        ConfigError: A number out of range.
    """
    if rounds < 0 or not 0.0 < unlucky < 1.0:
        raise ConfigError(f"rounds must be at least 0 and unlucky in (0, 1), got {rounds} and {unlucky}.")
    platforms, batch, learn_every = replay.platforms, replay.batch, replay.learn_every
    burn_in, memory, episode_rounds = replay.burn_in, replay.memory, replay.episode_rounds
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


def value_account(
    *,
    mechanism: str,
    scale: float,
    sensitivity: float,
    unit: float,
    vector_delta: float,
    rounds: int,
    delta: float,
    replay: Replay,
) -> PrivacyReport:
    """The privacy report of a run with noise on vectors of values.

    Args:
        mechanism: ``"laplace"`` or ``"gaussian"``.
        scale: Scale or σ of the noise on each value, in steps.
        sensitivity: Distance of two vectors in steps, L1 for Laplace and L2 for Gaussian noise.
        unit: One step, in the unit of the values.
        vector_delta: δ of a vector's ε, for Gaussian noise.
        rounds: Rounds of the run.
        delta: δ of a stay and of the run, in (0, 1).
        replay: As of :func:`vectors`.

    Raises:
        ConfigError: A number out of range.
    """
    if not 0.0 < delta < 1.0:
        raise ConfigError(f"delta must be in (0, 1), got {delta}.")
    count = vectors(rounds, replay, _UNLUCKY * delta)

    def over(times: int, delta: float) -> PrivacyReport:
        return sum_account(
            mechanism=mechanism,
            scale=scale,
            sensitivity=sensitivity,
            rounds=times,
            enough=1,
            secure_sum=False,
            delta=delta,
        )

    def bound(unit: Unit, times: int, part: float = 1.0, scope: str = "") -> Promise:
        _, composed, _ = over(times, part * delta).promises
        return replace(composed, unit=unit, delta=delta, scope=scope)

    laplace, lucky = mechanism == "laplace", 1.0 - _UNLUCKY
    stay = over(count.stay, lucky * delta)
    promises = (
        Promise(Unit.VECTOR, over(1, vector_delta).epsilon_round, 0.0 if laplace else vector_delta),
        bound(Unit.MESSAGE, count.message_round, scope=BATCH),
        *(replace(promise, delta=delta) for promise in stay.promises[1:]),
        bound(Unit.USER, count.stay_everywhere, lucky, EVERYWHERE),
        bound(Unit.USER, count.stay_worst, scope=ALWAYS_ASKED),
        bound(Unit.RUN, count.run),
    )
    deviation = unit * (_laplace_deviation(scale) if laplace else scale)
    report = PrivacyReport(
        mechanism=stay.mechanism,
        trust=NOBODY,
        promises=promises,
        covers=(
            "Q-values, against all readers of a message, the coordinator included, with the ε of a vector.",
            "All vectors about a user's stay at one platform, and at all platforms, if the coordinator draws batches "
            "by the protocol; and if it does not, with a separate ε.",
            "All vectors that a platform sends in the counted rounds, whomever they are about.",
        ),
        not_covered=_NOT_COVERED,
        details={
            "scale": scale,
            "noise_deviation": deviation,
            "sensitivity": sensitivity,
            **{f"vectors_{name}": number for name, number in count._asdict().items()},
            "vector_delta": promises[0].delta,
            "delta": delta,
            "platforms": replay.platforms,
            "rounds": rounds,
            "episode_rounds": replay.episode_rounds,
        },
    )
    by = AuditedBy(f"{mechanism}-values", {"epsilon": report.epsilon(Unit.VECTOR), "delta": vector_delta})
    return replace(report, words=_words(report, count), audit=by)


def _words(report: PrivacyReport, v: Vectors) -> tuple[str, str, str]:
    """The report in three paragraphs for a page: ε of a vector, of a stay and a run, and what is not noised."""
    epsilon, got = report.epsilon, report.details
    at = f" at δ = {got['vector_delta']:.0e}" if got["vector_delta"] else ""
    size = remark(min(epsilon(Unit.USER), epsilon(Unit.RUN)), limit=3.0)
    return (
        f"Each Q-value carries {report.mechanism} of standard deviation {got['noise_deviation']:.3g} before it leaves "
        f"its platform. One vector of values: ε = {epsilon(Unit.VECTOR):.3g}{at}, without any trust in the "
        "coordinator.",
        f"A user who stays for {got['episode_rounds']:,} rounds fills {v.stay_expected:,.0f} vectors at one platform "
        f"on average, and hardly ever more than {v.stay:,}: ε = {epsilon(Unit.USER):.4g} at δ = {got['delta']:.0e} "
        f"({report.promises[2].basis}), and {epsilon(Unit.USER, scope=EVERYWHERE):.4g} over {got['platforms']} "
        f"platforms. A coordinator that always asks for this user's moments gets {v.stay_worst:,}: "
        f"ε = {epsilon(Unit.USER, scope=ALWAYS_ASKED):.4g}. All {v.run:,} vectors of one platform's "
        f"{got['rounds']:,} rounds: ε = {epsilon(Unit.RUN):.4g}.{size}",
        "This is about Q-values alone. Targets and gradients have no noise, and tell engagement and clicks nearly "
        "exactly; how much is measured by: fedrank privacy attack slates.",
    )


def _laplace_deviation(scale: float) -> float:
    """Standard deviation of discrete Laplace noise: √(2α)/(1 − α) with α = e^(−1/t)."""
    return math.sqrt(2.0) * math.exp(-0.5 / scale) / -math.expm1(-1.0 / scale)
