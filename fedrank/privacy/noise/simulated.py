"""The noise of :mod:`fedrank.privacy.noise.discrete`, drawn quickly from a simulation's key: it protects no data.

The distributions are the same as those of the exact samplers, up to the 24 bits of single precision. Whoever knows the
key can take the noise off again, and the lowest bits of floating-point noise can tell what it was added to; what leaves
a real device gets its noise from :mod:`fedrank.privacy.noise.discrete`. Keys are consumed.
"""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np
from jaxtyping import Float32, Int32, Key, UInt32

from fedrank.core.arrays import AnyArray, ArrayT
from fedrank.core.arrays import AnyArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp
from fedrank.core.streams import AnyKey, normals, split, stream

#: Largest scale in steps: beyond it, single precision would leave out integers near zero.
LARGEST_SCALE = 2**20

#: From this σ on, a rounded normal variable is as good: probabilities up to 6 σ differ by less than a part in 2,500.
ROUNDED_FROM = 64.0


def simulated_discrete_laplace(key: Key[Array, ""], shape: tuple[int, ...], scale: float) -> Int32[Array, "*shape"]:
    """Discrete Laplace noise, as the difference of two geometric variables.

    Args:
        key: Typed key, consumed.
        shape: Shape wanted.
        scale: Scale t in steps.

    Returns:
        int32 ``shape``.
    """
    return laplace_of(jax.random.bits(key, (2, *shape), jnp.uint32), scale, jnp)


def laplace_of(words: UInt32[ArrayT, "2 *shape"], scale: float, xp: ModuleType) -> Int32[ArrayT, "*shape"]:
    """Discrete Laplace noise of a scale in steps from uniform words; ``xp`` is ``numpy`` or ``jax.numpy``."""
    _check(scale, 1)
    geometric = xp.floor(-xp.float32(scale) * xp.log(_positive(words, xp))).astype(xp.int32)
    return geometric[0] - geometric[1]


def simulated_discrete_gaussian(key: AnyKey, shape: tuple[int, ...], sigma: float) -> Int32[AnyArray, "*shape"]:
    """Discrete Gaussian noise: by inversion for small σ, else a rounded normal variable.

    Args:
        key: Typed key, consumed, or both words of one: NumPy draws the same then, but for rounding of normal numbers.
        shape: Shape wanted.
        sigma: σ in steps.

    Returns:
        int32 ``shape``.
    """
    _check(sigma, 1)
    if isinstance(key, np.ndarray):
        if sigma >= ROUNDED_FROM:
            normal = normals(stream(key, math.prod(shape))).reshape(shape)
            return np.round(np.float32(sigma) * normal).astype(np.int32)
        sizes, signs = stream(split(key, 2), math.prod(shape))
        return small_gaussian_of(sizes.reshape(shape), signs.reshape(shape), sigma, np)
    if sigma >= ROUNDED_FROM:
        return jnp.round(jnp.float32(sigma) * jax.random.normal(key, shape, jnp.float32)).astype(jnp.int32)
    size_key, sign_key = jax.random.split(key)
    sizes, signs = (jax.random.bits(each, shape, jnp.uint32) for each in (size_key, sign_key))
    return small_gaussian_of(sizes, signs, sigma, jnp)


def small_gaussian_of(
    sizes: UInt32[ArrayT, "*shape"], signs: UInt32[ArrayT, "*shape"], sigma: float, xp: ModuleType
) -> Int32[ArrayT, "*shape"]:
    """Discrete Gaussian noise of σ below :data:`ROUNDED_FROM` steps, by inversion, from two uniform words each.

    Args:
        sizes: Words that absolute values are made of.
        signs: Words of which those in the lower half keep the sign.
        sigma: σ in steps.
        xp: ``numpy`` or ``jax.numpy``.
    """
    # |X| ≥ k exactly if u ≤ P(|X| ≥ k); beyond 7 σ that is below 2⁻³², the smallest u.
    weights = np.exp(-(np.arange(int(7 * sigma) + 3) ** 2) / (2 * sigma**2)) * ([1.0] + [2.0] * (int(7 * sigma) + 2))
    tails = np.cumsum(weights[::-1]) / weights.sum()  # ascending: P(|X| ≥ k) from the last k down to 0
    ascending = xp.asarray(tails[:-1].astype(np.float32))
    size = ascending.size - xp.searchsorted(ascending, _positive(sizes, xp), side="left").astype(xp.int32)
    return xp.where(signs < xp.uint32(2**31), size, -size).astype(xp.int32)


def simulated_laplace_shares(
    key: Key[Array, ""], shape: tuple[int, ...], scale: float, enough: int
) -> Int32[Array, "*shape"]:
    """One party's shares of discrete Laplace noise: differences of two Pólya variables of shape 1/m.

    A Pólya variable is a compound Poisson sum: on average −log(1 − α)/m logarithmic variables, which Kemp (*Efficient
    generation of logarithmically distributed pseudo-random variables*, Applied Statistics 1981) draws in closed form.
    All variables of the shares are drawn together and strewn over the coordinates with a sign by chance, so that the
    work follows their number and not the number of coordinates, most of which get none where m is large.

    Args:
        key: Typed key, consumed.
        shape: Shape wanted: one party's vector; ``vmap`` over parties.
        scale: Scale t of the noise in the sum, in steps.
        enough: Shares m whose sum is discrete Laplace noise of that scale; from 1.

    Returns:
        int32 ``shape``.
    """
    size = math.prod(shape)
    tails, log_rest = polya_tails(scale, enough, size)
    count_key, where_key, sign_key, size_key = jax.random.split(key, 4)
    drawn = ((count_key, ()), (sign_key, tails.shape), (size_key, (2, *tails.shape)))
    counts, signs, sizes = (jax.random.bits(each, few, jnp.uint32) for each, few in drawn)
    jumps = polya_jumps(counts, signs, sizes, tails, log_rest, jnp)
    where = jax.random.randint(where_key, jumps.shape, 0, size)
    return jnp.zeros(size, jnp.int32).at[where].add(jumps).reshape(shape)


def polya_tails(scale: float, enough: int, size: int) -> tuple[Float32[np.ndarray, " tails"], float]:
    """P(N ≥ k) of the number of variables of a party's shares, ascending, down to k = 1; and log(1 − α)."""
    _check(scale, enough)
    log_rest = math.log(-math.expm1(-1.0 / scale))
    return _poisson_tails(-2.0 * log_rest / enough * size), log_rest


def polya_jumps(
    counts: UInt32[ArrayT, "*parties"],
    signs: UInt32[ArrayT, "*parties tails"],
    sizes: UInt32[ArrayT, "2 *parties tails"],
    tails: Float32[np.ndarray, " tails"],
    log_rest: float,
    xp: ModuleType,
) -> Int32[ArrayT, "*parties tails"]:
    """Logarithmic variables with a sign by chance, from uniform words; 0 beyond as many as a party has.

    Args:
        counts: Words that say how many.
        signs: Words of which those in the lower half keep the sign.
        sizes: Words that absolute values are made of.
        tails: Tails of the number of jumps, of :func:`polya_tails`.
        log_rest: Logarithm of what is left of the parameter, of :func:`polya_tails`.
        xp: ``numpy`` or ``jax.numpy``.
    """
    # Inversion from the tail: with tails P(X ≥ k), ascending, down to k = 1, how many are at least u is X itself.
    count = tails.size - xp.searchsorted(xp.asarray(tails), _positive(counts, xp), side="left").astype(xp.int32)
    u, v = _positive(sizes, xp)
    jumps = 1 + xp.floor(xp.log(v) / _log1m_exp(u * xp.float32(log_rest), xp)).astype(xp.int32)
    jumps = xp.where(signs < xp.uint32(2**31), jumps, -jumps)
    return xp.where(xp.arange(tails.size) < count[..., None], jumps, 0)


def _positive(words: UInt32[ArrayT, "*shape"], xp: ModuleType) -> Float32[ArrayT, "*shape"]:
    """Uniform in (0, 1], fine near 0: of 32 bits, as many as single precision holds."""
    return (words.astype(xp.float32) + xp.float32(1)) * xp.float32(2.0**-32)  # type: ignore[return-value] - its kind


def _poisson_tails(rate: float) -> Float32[np.ndarray, " tails"]:
    """P(N ≥ k) of a Poisson variable, ascending, for all k from 1 on that 32 random bits can tell apart."""
    from scipy.stats import poisson

    tails = poisson.sf(np.arange(math.ceil(rate + 8.0 * math.sqrt(rate)) + 20), rate)
    return tails[tails >= 2.0**-33][::-1].astype(np.float32)


def _log1m_exp(x: Float32[ArrayT, "*shape"], xp: ModuleType) -> Float32[ArrayT, "*shape"]:
    """log(1 − e^x) for x < 0, without losing digits at either end."""
    return xp.where(x > -math.log(2.0), xp.log(-xp.expm1(x)), xp.log1p(-xp.exp(x)))


def _check(scale: float, enough: int) -> None:
    if not 0.0 < scale <= LARGEST_SCALE:
        raise ConfigError(
            f"scale of simulated noise must be in (0, 2**20] steps, got {scale}. Cut a unit into fewer steps."
        )
    if enough < 1:
        raise ConfigError(f"the shares that make up the noise must be at least 1, got {enough}.")
