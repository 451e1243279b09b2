"""Gaussian noise that a trusted server adds to the sums of successive rounds, and partly takes back in later ones.

What counts for a model that adds up the rounds' sums is the noise in the total so far. Independent noise in T rounds
adds up to √T times that of one. Noise of round t that is wₜ − r₁ zₜ₋₁ − r₂ zₜ₋₂ − … (w: independent normal variables,
z: the noise added before) adds up to Σ rⱼ wₜ₋ⱼ only: about √(1 + ln(t)/π) times that of one w, if the r are the
coefficients of (1 − x)^(−1/2). This is the matrix mechanism for totals with C = (1 − x)^(−1/2) as a lower triangular
Toeplitz matrix (Denisov et al., NeurIPS 2022; Fichtenberger, Henzinger and Upadhyay, ICML 2023): the server publishes
totals of X + C⁻¹ W, which tells of X what C X + W tells. A party that takes part in a round changes one column of C; so
w needs Gaussian noise for a vector as long as that column, also where later rounds depend on earlier ones.

With a *band* of b coefficients C is cut off after b − 1 steps (Choquette-Choo et al., NeurIPS 2023), so that the server
keeps no more than the noise of the last b − 1 rounds.

**The account.** One unit is everything a party puts into the run: the vectors of all rounds in which it takes part are
replaced by any others that the clip lets through. What the server shows tells of the rounds' sums X what C X with
independent Gaussian noise tells, which is one release of the Gaussian mechanism (Balle and Wang, ICML 2018), also where
later rounds depend on earlier ones (Denisov et al., NeurIPS 2022, Theorem 2.1).
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Float32, UInt32

from fedrank.core.arrays import AnyArray, module_of
from fedrank.core.errors import ConfigError
from fedrank.core.kernels import normals
from fedrank.core.lazy import jax, jnp
from fedrank.core.privacy_report import OF_A_RUN, SINGLE, PrivacyReport, Promise, Unit
from fedrank.core.streams import fold_words
from fedrank.core.words import format_count
from fedrank.privacy.calibration import gaussian_epsilon


def coefficients(band: int) -> Float[np.ndarray, " band"]:
    """The first coefficients of (1 − x)^(−1/2): 1, 1/2, 3/8 and so on.

    >>> coefficients(4).tolist()
    [1.0, 0.5, 0.375, 0.3125]
    """
    if band < 1:
        raise ConfigError(f"band must be at least 1, got {band}.")
    k = np.arange(1, band)
    return np.concatenate([[1.0], np.cumprod(1.0 - 0.5 / k)])


def column_norm(band: int, rounds: int, times: int) -> float:
    """Largest distance by which a party that takes part in some rounds moves C X, in units of its input to one round.

    The entries of C are positive and its columns shrink, so that it is farthest with the first rounds, in all of which
    the same is put in.

    Args:
        band: Coefficients b.
        rounds: Rounds T.
        times: Rounds that the party takes part in, at most T of them count.

    Returns:
        The Euclidean norm of the sum of the first ``times`` columns of C; √times with a band of 1.
    """
    times = min(times, rounds)
    if times < 1:
        raise ConfigError(f"rounds and times must be at least 1, got {rounds} and {times}.")
    column = np.zeros(rounds)
    column[: min(band, rounds)] = coefficients(min(band, rounds))
    took_part = np.zeros(rounds)
    took_part[:times] = 1.0
    return math.sqrt(float((np.convolve(column, took_part)[:rounds] ** 2).sum()))


def next_noise(
    key: UInt32[AnyArray, "*runs 2"], round_: UInt32[AnyArray, "*runs"], past: Float[AnyArray, "*runs before d"]
) -> tuple[Float32[AnyArray, "*runs d"], Float32[AnyArray, "*runs before d"]]:
    """The noise of a round in units of σ, and what is to be kept for the next.

    Args:
        key: Data of a secret Threefry key, the same in all rounds; with NumPy one for each run.
        round_: The round's number, never twice the same.
        past: Noise of the last b − 1 rounds, the latest first, zero before the first round.

    Returns:
        The noise z of the round, and ``past`` with it in front.
    """
    before, d = past.shape[-2:]
    if module_of(key, past) is np:
        fresh = normals(fold_words(np.asarray(key), round_), d)
        taken_back = np.einsum("b,...bn->...n", coefficients(before + 1)[1:].astype(np.float32), past)
        noise = fresh - taken_back
        return noise, np.concatenate([noise[..., None, :], past], axis=-2)[..., :before, :]
    secret = jax.random.wrap_key_data(jnp.asarray(key), impl="threefry2x32")
    fresh = jax.random.normal(jax.random.fold_in(secret, round_), (d,), jnp.float32)
    noise = fresh - jnp.asarray(coefficients(before + 1)[1:], jnp.float32) @ past
    return noise, jnp.concatenate([noise[None], past])[:before]


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
