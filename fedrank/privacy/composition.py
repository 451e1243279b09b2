"""The account of noise in sums: what a round costs a party, and what a run does.

For protocols whose parties add shares of noise to vectors of which only the sum is seen
(:mod:`fedrank.privacy.noise.discrete`, :mod:`fedrank.privacy.secure_sum`). One unit is everything a party puts into a
round, its vector replaced by any other; the other is everything it puts into a run.

**The published account of FPDGD** (Wang et al., ICTIR 2021) clips a client's weights to an L2 norm s, gives the sum
Laplace noise of scale s/ε in each coordinate, and calls ε the budget of a round. Laplace noise of scale b costs Δ/b,
with Δ the largest L1 distance between what a client may send. Two vectors of d weights, each of L2 norm up to s, are up
to 2 s √d apart in L1. A round therefore costs 2 √d times the published ε, 13.6 times as much for 46 features. Clipped
in L1 instead, it costs twice the published ε. Rounds add up on top of that, and the account presumes a sum that nobody
takes apart.

**How rounds add up.** All there is to say about a round is the trade-off between the two kinds of error of whoever
tests what a party sent (Dong, Roth and Su, JRSS B 2022). With Laplace noise the worst case is the whole L1 distance in
one coordinate: going from one vector to the other, a coordinate at a time, is a chain of steps; the steps' trade-offs
bound that of the whole chain, as they do for groups of people, and for Laplace noise, continuous or discrete, the bound
is the trade-off of one step as long as the chain. That pair is composed with itself once a round (Zhu, Dong and Wang,
AISTATS 2022; also where rounds depend on earlier ones).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from fedrank.core.errors import ConfigError
from fedrank.privacy.accountant import DELTA
from fedrank.privacy.calibration import (
    LAPLACE_ROUNDS,
    concentrated_epsilon,
    gaussian_epsilon,
    gaussian_rho,
    laplace_epsilon,
)
from fedrank.privacy.noise.discrete import zero_share

_NOT_COVERED = (
    "That a party takes part, in which rounds, and how often.",
    "What carries a message: network address, time of sending, and anything the transport adds.",
    "Sums that fewer parties than planned added their noise to, and parties who tell others their shares of it.",
    "Devices whose random numbers somebody else knows. In a simulation all random numbers follow from the run's "
    "seed, so a simulated run protects nobody and only shows what a deployed one would promise.",
    "Rounds beyond those counted here.",
    "What the trained ranker shows about people in general. It may apply to somebody who never took part.",
    "Whoever can read the device itself.",
)


@dataclass(frozen=True)
class SumReport:
    """The privacy of sums with noise in shares, per unit. All ε in nats.

    Attributes:
        mechanism: What is done to the sum.
        scale: Scale of Laplace noise, or σ of Gaussian noise, in each coordinate of the sum.
        sensitivity: Largest distance between two vectors of one party, in L1 for Laplace and in L2 for Gaussian noise,
            in the unit of ``scale``.
        enough: Shares of noise that make up the noise.
        zero_share: Probability that a coordinate of one message carries no noise at all; None where no value has a
            probability of its own, or noise is Gaussian.
        secure_sum: Whether the server sees nothing but the sum.
        local: Whether one message protects its sender by itself. False wherever noise comes in shares.
        epsilon_published: ε of a round as a paper states it; None if no paper does.
        epsilon_round: ε of one round: a party's vector changes. δ = 0 for Laplace, ``delta`` for Gaussian noise.
        epsilon_user_basic: ε of a party over the run by basic composition, at the same δ.
        epsilon_user_pld: ε of a party over the run at ``delta``, as ``accounting`` says; never above the basic one.
        accounting: How ``epsilon_user_pld`` was found.
        delta: δ.
        rounds: Rounds a party takes part in.
        covers: What the numbers promise, in sentences.
        not_covered: What no number here promises, in sentences.
    """

    mechanism: str
    scale: float
    sensitivity: float
    enough: int
    zero_share: float | None
    secure_sum: bool
    local: bool
    epsilon_published: float | None
    epsilon_round: float
    epsilon_user_basic: float
    epsilon_user_pld: float
    accounting: str
    delta: float
    rounds: int
    covers: tuple[str, ...]
    not_covered: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The content of ``privacy.json``."""
        content = {f.name: getattr(self, f.name) for f in fields(self)}
        lists = {"covers": list(self.covers), "not_covered": list(self.not_covered)}
        return {**content, **lists, "words": [self.in_words()]}

    def in_words(self) -> str:
        """A paragraph for somebody who has to decide whether this may be deployed."""
        at = f" at δ = {self.delta:.0e}" if "Gaussian" in self.mechanism else ""
        but = " (but for δ)" if at else ""
        published = (
            f" The published account of such a round is ε = {self.epsilon_published:.3g}; it leaves out that a vector "
            "may be replaced by its opposite and, where vectors are clipped in L2, that Laplace noise asks for the "
            "distance in L1."
            if self.epsilon_published is not None
            else ""
        )
        size = (
            " An ε of this size is a formal bound with little meaning of its own."
            if min(self.epsilon_user_basic, self.epsilon_user_pld) > 20
            else ""
        )
        return (
            f"{self._whom()} Protected is a party's whole vector of a round: whatever else it had sent, no sum becomes "
            f"more than e^ε times as likely{but}, with ε = {self.epsilon_round:.3g}{at}.{published} A party that takes "
            f"part in {self.rounds:,} round{'' if self.rounds == 1 else 's'} has, over the run, "
            f"ε = {self.epsilon_user_basic:.4g} by basic composition{at}, and ε = {self.epsilon_user_pld:.4g} at "
            f"δ = {self.delta:.0e} ({self.accounting}).{size} Not covered, among other things: that a party takes "
            "part, when, and from which network address."
        )

    def _whom(self) -> str:
        if self.local:
            return (
                f"Each message carries {self.mechanism} of its own and protects its sender against everybody, the "
                "server included."
            )
        if self.secure_sum:
            return (
                f"The sum of the parties' vectors carries {self.mechanism}; each party adds a share of it. A secure "
                "sum shows the server nothing but the sum, so that the following holds against the server as well. A "
                "message that is not masked protects nobody by itself."
            )
        why = (
            f"in {100 * self.zero_share:.3g} % of its coordinates that share is exactly zero"
            if self.zero_share is not None
            else f"that share is one of {self.enough:,} that together make up the noise"
        )
        return (
            "There is no local privacy. The server reads every message by itself, and a message carries only a share "
            f"of the noise: {why}. The following holds against those who see the sums alone, which carry "
            f"{self.mechanism}, and only if the server is trusted to forget the messages."
        )


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
) -> SumReport:
    """What noise in shares promises for a run.

    Args:
        mechanism: ``"laplace"`` or ``"gaussian"``.
        scale: Scale or σ of the noise in each coordinate of the sum, in steps if vectors are integers.
        sensitivity: Largest distance between two vectors of one party in the same unit, in L1 for Laplace and in L2 for
            Gaussian noise: :func:`fedrank.privacy.calibration.replacement_sensitivity`.
        rounds: Rounds a party takes part in; 0 before the run starts.
        enough: Shares that make up the noise: parties that are sure to add theirs and to tell nobody. With 1, every
            message carries all the noise itself.
        secure_sum: Whether the server sees nothing but the sum.
        parameters: Coordinates of a vector; matters for shares of discrete Gaussian noise alone.
        delta: δ in (0, 1).
        integers: Noise and vectors are integers; else continuous, as published.
        published: ε of a round as a paper states it, to be set beside the one that holds.

    Raises:
        ConfigError: An argument is out of range.

    >>> report = sum_account(mechanism="laplace", scale=20.0, sensitivity=10, rounds=100, enough=50, secure_sum=True)
    >>> report.epsilon_round, report.epsilon_user_basic, round(report.epsilon_user_pld, 2)
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
    kind = "discrete" if integers else "continuous"
    if mechanism == "laplace":
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
    name = {"laplace": "Laplace", "gaussian": "Gaussian"}[mechanism]
    return SumReport(
        mechanism=f"{kind} {name} noise",
        scale=scale,
        sensitivity=sensitivity,
        enough=enough,
        zero_share=zero_share(scale, enough) if mechanism == "laplace" and integers else None,
        secure_sum=secure_sum,
        local=enough == 1,
        epsilon_published=published,
        epsilon_round=one,
        epsilon_user_basic=basic,
        epsilon_user_pld=min(over_run, basic),
        accounting=accounting,
        delta=delta,
        rounds=rounds,
        covers=_covers(secure_sum, enough == 1),
        not_covered=_not_covered(secure_sum, enough == 1, integers),
    )


def _covers(secure_sum: bool, local: bool) -> tuple[str, ...]:
    whom = (
        "Against everybody who reads a message, the server included."
        if local
        else "Against everybody who sees the sums, the server included, as far as the secure sum shows it nothing else."
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
    first: tuple[str, ...] = ()
    if not local and not secure_sum:
        first += ("Anybody, against the server or whoever else reads single messages: they are not summed in secret.",)
    if not local and secure_sum:
        first += ("A server that breaks the rules of the secure sum, by handing out keys of its own for instance.",)
    if not integers:
        first += ("The lowest bits of noisy floating-point numbers, which can tell what noise was added to.",)
    return (*first, *_NOT_COVERED)
