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
do.

**Noise in sums**: what a round costs a party, and what a run does, for protocols whose parties add shares of noise to
vectors of which only the sum is seen (:mod:`fedrank.privacy.noise.discrete`, :mod:`fedrank.privacy.secure_sum`). One
unit is everything a party puts into a round, its vector replaced by any other; the other is everything it puts into a
run.

**The published account of FPDGD** (Wang et al., ICTIR 2021) clips a client's weights to an L2 norm s, gives the sum
Laplace noise of scale s/ε in each coordinate, and calls ε the budget of a round. Laplace noise of scale b costs Δ/b,
with Δ the largest L1 distance between what a client may send. Two vectors of d weights, each of L2 norm up to s, are up
to 2 s √d apart in L1. A round therefore costs 2 √d times the published ε, 13.6 times as much for 46 features. Clipped
in L1 instead, it costs twice the published ε. Rounds add up on top of that, and the account presumes that no party
takes the sum apart.

**How rounds add up.** All there is to say about a round is the trade-off between the two kinds of error of whoever
tests what a party sent (Dong, Roth and Su, JRSS B 2022). With Laplace noise the worst case is the whole L1 distance in
one coordinate: going from one vector to the other, a coordinate at a time, is a chain of steps; the steps' trade-offs
bound that of the whole chain, as they do for groups of people, and for Laplace noise, continuous or discrete, the bound
is the trade-off of one step as long as the chain. That pair is composed with itself once a round (Zhu, Dong and Wang,
AISTATS 2022; also where rounds depend on earlier ones).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import (
    AND_NOT,
    BASIC,
    DELTA,
    KNOWN_RANDOMNESS,
    MORE_ROUNDS,
    NOBODY,
    OF_A_RUN,
    PARTICIPATION,
    SIMULATION,
    SINGLE,
    TRANSPORT,
    AuditedBy,
    PrivacyReport,
    Promise,
    Unit,
    remark,
)
from fedrank.core.words import format_count
from fedrank.privacy.calibration import (
    LAPLACE_ROUNDS,
    concentrated_epsilon,
    gaussian_epsilon,
    gaussian_rho,
    laplace_epsilon,
)
from fedrank.privacy.noise.discrete import zero_share

_SHARES = "Sums that fewer parties than planned added their noise to, and parties who tell others their shares of it."


def sum_account(
    *,
    mechanism: str,
    scale: float,
    sensitivity: float,
    rounds: int,
    enough: int,
    secure_sum: bool,
    parameters: int = 1,
    delta: float = DELTA,
    integers: bool = True,
    published: float | None = None,
) -> PrivacyReport:
    """The privacy report of a run whose parties add noise in shares.

    Args:
        mechanism: ``"laplace"`` or ``"gaussian"``.
        scale: Scale or σ of the noise in each coordinate of the sum, in steps if vectors are integers.
        sensitivity: Largest distance between two vectors of one party in the same unit, in L1 for Laplace and in L2 for
            Gaussian noise: :func:`fedrank.privacy.calibration.replacement_sensitivity`.
        rounds: Rounds a party takes part in; 0 before the run starts.
        enough: Shares that make up the noise: parties that are sure to add theirs and to keep it secret. With 1, every
            message carries all the noise itself.
        secure_sum: Whether the server sees nothing but the sum.
        parameters: Coordinates of a vector; matters for shares of discrete Gaussian noise alone.
        delta: δ in (0, 1).
        integers: Noise and vectors are integers; else continuous, as published.
        published: ε of a round as a paper states it, to be set beside the one that holds.

    Raises:
        ConfigError: An argument is out of range.

    >>> report = sum_account(mechanism="laplace", scale=20.0, sensitivity=10, rounds=100, enough=50, secure_sum=True)
    >>> report.epsilon_round, report.epsilon(Unit.USER, basis=BASIC), round(report.epsilon(Unit.USER), 2)
    (0.5, 50.0, 30.51)
    """
    if mechanism not in ("laplace", "gaussian"):
        raise ConfigError(f"mechanism must be 'laplace' or 'gaussian', got {mechanism!r}.")
    if not 0.0 < scale < math.inf or not 0.0 < sensitivity < math.inf:
        raise ConfigError(f"scale and sensitivity must be positive and finite, got {scale} and {sensitivity}.")
    if rounds < 0 or enough < 1:
        raise ConfigError(f"rounds must be at least 0 and enough at least 1, got {rounds} and {enough}.")
    if not 0.0 < delta < 1.0:
        raise ConfigError(f"delta must be in (0, 1), got {delta}.")
    laplace, local = mechanism == "laplace", enough == 1
    if laplace:
        # Integer vectors are a whole number apart in L1.
        sensitivity = float(math.floor(sensitivity)) if integers else sensitivity
        one = sensitivity / scale
        basic = rounds * one
        over_run = laplace_epsilon(one, rounds, delta, int(sensitivity) if integers else None)
        accounting = "privacy loss distribution" if rounds <= LAPLACE_ROUNDS else "Hoeffding's bound"
    else:

        def at(times: int, delta: float) -> float:
            if integers:
                return concentrated_epsilon(times * gaussian_rho(scale, sensitivity, enough, parameters), delta)
            return gaussian_epsilon(scale / math.sqrt(times), delta, sensitivity)

        one = at(1, delta)
        basic = rounds * at(1, delta / rounds) if rounds else 0.0
        over_run = at(rounds, delta) if rounds else 0.0
        accounting = "concentrated differential privacy" if integers else "exact for Gaussian noise"
    certain = 0.0 if laplace else delta
    promises = (
        Promise(Unit.ROUND, one, certain, SINGLE),
        Promise(Unit.USER, min(over_run, basic), delta, accounting),
        Promise(Unit.USER, basic, certain, BASIC),
    )
    mechanism = f"{'discrete' if integers else 'continuous'} {mechanism.capitalize()} noise"
    zero = zero_share(scale, enough) if laplace and integers else None
    details = {"scale": scale, "sensitivity": sensitivity, "enough": enough, "zero_share": zero}
    details |= {"secure_sum": secure_sum, "epsilon_published": published, "delta": delta, "rounds": rounds}
    return PrivacyReport(
        mechanism=mechanism,
        trust=NOBODY if local else f"{_SERVER[secure_sum]}, and {enough:,} parties to add their noise",
        promises=promises,
        covers=_covers(secure_sum, local),
        not_covered=_not_covered(secure_sum, local, integers),
        details=details,
        words=(_whom(mechanism, enough, secure_sum, zero) + _bounds(promises, rounds, published),),
    )


#: What the server is trusted with, by whether there is a secure sum.
_SERVER = {True: "the server to keep to the rules of the secure sum", False: "the server to forget the messages"}


def _bounds(promises: tuple[Promise, Promise, Promise], rounds: int, published: float | None) -> str:
    """The rest of the paragraph: what is promised for a round and for the run."""
    one, over_run, basic = promises
    at = f" at δ = {one.delta:.0e}" if one.delta else ""
    stated = (
        f" The published account of such a round is ε = {published:.3g}; it leaves out that a vector may be replaced "
        "by its opposite and, where vectors are clipped in L2, that Laplace noise asks for the distance in L1."
        if published is not None
        else ""
    )
    return (
        " Protected is a party's whole vector of a round: whatever else it had sent, no sum becomes more than e^ε "
        f"times as likely{' (but for δ)' if at else ''}, with ε = {one.epsilon:.3g}{at}.{stated} A party that takes "
        f"part in {format_count(rounds, 'round')} has, over the run, ε = {basic.epsilon:.4g} by basic composition"
        f"{at}, and ε = {over_run.epsilon:.4g} at δ = {over_run.delta:.0e} ({over_run.basis})."
        f"{remark(over_run.epsilon)}{AND_NOT}"
    )


def _whom(mechanism: str, enough: int, secure_sum: bool, zero: float | None) -> str:
    """The first sentences: against whom the noise protects."""
    if enough == 1:
        return (
            f"Each message carries its own {mechanism} and protects its sender against every reader, the server "
            "included."
        )
    if secure_sum:
        return (
            f"The sum of the parties' vectors carries {mechanism}; each party adds a share of it. A secure sum shows "
            "the server nothing but the sum, so that the following holds against the server as well. A message that is "
            "not masked does not protect its sender by itself."
        )
    why = (
        f"that share is one of {enough:,} that together make up the noise"
        if zero is None
        else f"in {100 * zero:.3g} % of its coordinates that share is exactly zero"
    )
    return (
        "There is no local privacy. The server reads every message by itself, and a message carries only a share of "
        f"the noise: {why}. The following holds against those who see the sums alone, which carry {mechanism}, and "
        "only if the server is trusted to forget the messages."
    )


def _covers(secure_sum: bool, local: bool) -> tuple[str, ...]:
    whom = (
        "Against all readers of a message, the server included."
        if local
        else "Against all who see the sums, the server included, as far as the secure sum shows it nothing else."
        if secure_sum
        else "Against those who see the sums alone, or rankers made from them. Not against the server."
    )
    return (
        whom,
        "Everything a party puts into one round, with the ε of a round: its vector is replaced by any other that it "
        "might have sent by the rules, and all other parties' stay.",
        "Everything a party puts into the counted rounds, with the ε of a user, also where later rounds depend on "
        "earlier ones.",
    )


def _not_covered(secure_sum: bool, local: bool, integers: bool) -> tuple[str, ...]:
    shown = "Anybody, against the server or whoever else reads single messages: they are not summed in secret."
    broken = "A server that breaks the rules of the secure sum, by handing out keys that it made itself for instance."
    bits = "The lowest bits of noisy floating-point numbers, which can tell what noise was added to."
    first = () if local else (broken if secure_sum else shown, _SHARES)
    return (*first, *(() if integers else (bits,)), *OF_A_RUN)


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
