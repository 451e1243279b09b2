"""JAX's random numbers, drawn from its keys with NumPy alone: the same bits, without an import of JAX or of Numba.

Keys are pairs of words, uint32 [..., 2], as ``jax.random.key_data`` gives them (Threefry-2x32, partitionable).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from jaxtyping import Float32, Integer, Key, UInt32

from fedrank.core.arrays import AnyArray, AnyInt
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.lazy import jax
from fedrank.core.rng import threefry_2x32

#: A key of JAX, or both of its words where JAX is not used.
AnyKey: TypeAlias = Key[Array, ""] | UInt32[np.ndarray, "2"]

#: Coefficients of Giles, *Approximating the erfinv function* (2012), single precision, from the highest power: of
#: w − 2.5 where w = −ln(1 − x²) is below 5, and of √w − 3 elsewhere.
CENTRAL = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503)
CENTRAL = (*CENTRAL, -0.00417768164, 0.246640727, 1.50140941)
TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613)
TAIL = (*TAIL, 0.00943887047, 1.00167406, 2.83297682)


def run_words(seeds: Iterable[int | np.integer]) -> UInt32[np.ndarray, "runs 2"]:
    """Both words of ``jax.random.key(seed)`` for each seed below 2³²."""
    low = np.fromiter(seeds, np.uint32)
    return np.stack([np.zeros_like(low), low], axis=-1)


def wrap_keys(words: UInt32[AnyArray, "*keys 2"]) -> Key[Array, "*keys"]:
    """Keys of JAX of both words of each; nothing is compiled."""
    return jax.random.wrap_key_data(words, impl="threefry2x32")  # type: ignore[arg-type] - arrays of NumPy do, too


def fold_words(
    keys: UInt32[np.ndarray, "*keys 2"], *folds: int | Integer[AnyArray, "*#keys"]
) -> UInt32[np.ndarray, "*keys 2"]:
    """``jax.random.fold_in`` one after another, for both words of each key.

    Args:
        keys: The keys.
        folds: What is folded in, in order: a number, or one for each key. The keys that ``jax.random.split`` makes of
            one are folds of 0, 1, ….
    """
    for fold in folds:
        # With a last axis of one: NumPy warns where a scalar wraps around, and not where an array does.
        low = np.asarray(fold).astype(np.uint32)[..., None]
        keys = np.concatenate(threefry_2x32((keys[..., :1], keys[..., 1:]), (np.zeros_like(low), low)), axis=-1)
    return keys


def split(keys: UInt32[np.ndarray, "*keys 2"], number: int) -> UInt32[np.ndarray, "*keys {number} 2"]:
    """``jax.random.split`` of each key, both words of each."""
    return fold_words(np.broadcast_to(keys[..., None, :], (*keys.shape[:-1], number, 2)), np.arange(number))


def stream(keys: UInt32[np.ndarray, "*keys 2"], words: int) -> UInt32[np.ndarray, "*keys {words}"]:
    """``jax.random.bits`` of each key, the same bits."""
    low = np.arange(words, dtype=np.uint32)
    first, second = threefry_2x32((keys[..., :1], keys[..., 1:]), (np.zeros_like(low), low))
    return np.asarray(first ^ second)


def uniforms(words: UInt32[np.ndarray, "*shape"]) -> Float32[np.ndarray, "*shape"]:
    """Uniform float32 numbers in [0, 1) made from words: the same bits as ``jax.random.uniform``."""
    return ((words >> np.uint32(9)) | np.uint32(0x3F800000)).view(np.float32) - np.float32(1)


def normals(words: UInt32[np.ndarray, "*shape"]) -> Float32[np.ndarray, "*shape"]:
    """Standard normal numbers made from words: ``jax.random.normal``'s but for rounding, 4e-7 of its size."""
    low = np.nextafter(np.float32(-1), np.float32(0))
    return np.float32(math.sqrt(2)) * erf_inv(np.maximum(uniforms(words) * (np.float32(1) - low) + low, low))


def erf_inv(x: Float32[np.ndarray, "*shape"]) -> Float32[np.ndarray, "*shape"]:
    """The inverse of the error function in (−1, 1): ``jax.lax.erf_inv`` but for rounding."""
    w = -np.log1p(-x * x)
    found = _polynomial(CENTRAL, w - np.float32(2.5))
    tail = w >= 5
    if np.any(tail):  # one in three hundred of uniform numbers
        found = np.asarray(found)
        found[tail] = _polynomial(TAIL, np.sqrt(w[tail]) - np.float32(3))
    return found * x


def _polynomial(coefficients: tuple[float, ...], x: Float32[np.ndarray, "*shape"]) -> Float32[np.ndarray, "*shape"]:
    value = np.full_like(x, coefficients[0])
    for more in coefficients[1:]:
        value *= x
        value += np.float32(more)
    return value


def fold(key: AnyKey, number: AnyInt) -> AnyKey:
    """``jax.random.fold_in`` of a key of either kind."""
    return fold_words(key, number) if isinstance(key, np.ndarray) else jax.random.fold_in(key, number)
