"""The account of noise in sums: what a round costs a party, and what a run does.

For protocols whose parties add shares of noise to vectors of which only the sum is seen
(:mod:`fedrank.privacy.noise.discrete`, :mod:`fedrank.privacy.secure_sum`). One unit is everything a party puts into a
round, its vector replaced by any other; the other is everything it puts into a run.

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

from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import (
    AND_NOT,
    BASIC,
    DELTA,
    NOBODY,
    OF_A_RUN,
    SINGLE,
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
