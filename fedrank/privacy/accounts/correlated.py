"""The account of noise that a trusted server adds to sums and partly takes back later.

The noise is that of :mod:`fedrank.privacy.noise.correlated`.

One unit is everything a party puts into the run: the vectors of all rounds in which it takes part are replaced by any
others that the clip lets through. What the server shows tells of the rounds' sums X what C X with independent Gaussian
noise tells, which is one release of the Gaussian mechanism (Balle and Wang, ICML 2018), also where later rounds depend
on earlier ones (Denisov et al., NeurIPS 2022, Theorem 2.1).
"""

from __future__ import annotations

from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import OF_A_RUN, SINGLE, PrivacyReport, Promise, Unit
from fedrank.core.words import format_count
from fedrank.privacy.calibration import gaussian_epsilon
from fedrank.privacy.noise.correlated import column_norm

_TRUST = "the server to clip what it is sent, to add the noise, and to keep secret what it was sent"


def correlated_account(
    *, sigma: float, sensitivity: float, band: int, rounds: int, times: int, delta: float
) -> PrivacyReport:
    """The privacy report of a run to whose sums a server adds noise.

    Args:
        sigma: σ of the independent noise w of a round, in each coordinate.
        sensitivity: Largest L2 distance between two vectors of one party in a round, in the same unit.
        band: Coefficients of C.
        rounds: Rounds of the run.
        times: Rounds that a party takes part in at most.
        delta: δ in (0, 1).

    Raises:
        ConfigError: A number is out of range.
    """
    if min(sigma, sensitivity, delta) <= 0.0 or delta >= 1.0:
        raise ConfigError(
            f"sigma and sensitivity must be positive and delta in (0, 1), got {sigma}, {sensitivity}, {delta}."
        )
    times = min(times, rounds)
    one, user = (gaussian_epsilon(sigma, delta, sensitivity * column_norm(band, rounds, count)) for count in (1, times))
    said = (
        f"Over all of training, whatever a user did changes what anybody but the server sees by a factor of at most "
        f"e^{user:.3g}, but for δ = {delta:.0e}. The server is trusted: it reads what each device sends, clips it, "
        "adds Gaussian noise to the sum of a round, and takes some of that noise back in later rounds. A device takes "
        f"part in at most {format_count(times, 'round')}."
    )
    return PrivacyReport(
        mechanism="Gaussian noise of the server, correlated between rounds",
        trust=_TRUST,
        promises=(
            Promise(Unit.ROUND, one, delta, SINGLE),
            Promise(Unit.USER, user, delta, "one Gaussian mechanism for the run"),
        ),
        covers=(
            "Against all who see the models of the rounds. Not against the server.",
            "Everything a party puts into the run, also where later rounds depend on earlier ones.",
        ),
        not_covered=(
            "Anybody, against the server, whoever runs it, or whoever reads what devices send it.",
            "The lowest bits of noisy floating-point numbers, which can tell what noise was added to.",
            *OF_A_RUN,
        ),
        details={
            "scale": sigma, "sensitivity": sensitivity, "band": band, "rounds": rounds, "participations": times,
            "delta": delta,
        },
        words=(said,),
    )  # fmt: skip
