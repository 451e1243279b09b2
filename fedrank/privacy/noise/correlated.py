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
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Float32, UInt32

from fedrank.core.arrays import AnyArray, module_of
from fedrank.core.errors import ConfigError
from fedrank.core.kernels import normals
from fedrank.core.lazy import jax, jnp
from fedrank.core.streams import fold_words


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
