"""Randomness, down to the bits.

Two kinds of random numbers exist here, and they never mix:

*Simulated chance* (which query a user types, whether a user clicks, what a simulated device draws). Typed JAX keys,
passed explicitly. A party's key in a round is ``fold_in(fold_in(run_key, round), party)``, so that neither the size of
a chunk nor the order of the parties changes what a party draws (:func:`party_key`).

*The perturbation of a seed*, which a device and the server must both be able to compute, on any hardware and without
JAX (:func:`perturbation`). It is specified completely:

1. Threefry-2x32 with 20 rounds (Salmon et al., SC 2011, the generator that JAX uses as well) with the key
   ``(0x66725F76, seed)`` and, for block ``b``, the counter ``(b, 0)`` gives two 32-bit words.
2. The words' 16-bit halves ``h`` are read low half first, first word first: four per block.
3. Coordinate ``j`` of the perturbation is entry ``h_j`` of a table: the standard normal quantile
   Φ⁻¹((h + ½) / 2¹⁶), computed in double precision and rounded to float32.

The table has 65,536 equally likely values between −4.33 and 4.33 (variance 0.99999); its distribution function is
within 2⁻¹⁷ of the normal one everywhere. Because only integer operations and one table look-up are involved, NumPy, JAX
and any other language give the same bits; golden vectors are in ``tests/core/golden/threefry.json``.

The constant first key word keeps the perturbation apart from every other use of a 32-bit number as a key: a JAX key
made from the same integer has a zero there.

Random numbers that *protect people* come from neither: on a real device they come from the operating system
(:func:`fedrank.privacy.randomised_response.os_words`).
"""

from __future__ import annotations

import functools
import statistics
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from fedrank.core.arrays import AnyArray, ArrayT, JaxArray

if TYPE_CHECKING:  # a device, which runs this, has NumPy only
    from jaxtyping import Float32, Integer, Key, UInt32

    AnyInt: TypeAlias = int | Integer[AnyArray, ""]

#: First key word of the perturbation stream: the bytes of ``fr_v``.
PERTURBATION_KEY = 0x66725F76
#: Folds of a run's key that no round or party uses, as these are numbered from 0 upwards: the start, whose replies
#: arrive, attackers, and the world in which parties meet.
INIT, FATE, ATTACK, WORLD = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD, 0xFFFFFFFC

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def threefry_2x32(
    key: tuple[UInt32[AnyArray, "*#key"], UInt32[AnyArray, "*#key"]],
    counter: tuple[UInt32[AnyArray, "*#blocks"], UInt32[AnyArray, "*#blocks"]],
) -> tuple[UInt32[AnyArray, "*shape"], UInt32[AnyArray, "*shape"]]:
    """Threefry-2x32-20: one block of two words for each counter.

    Written with operators only, so that the same lines run on NumPy and on JAX arrays of dtype uint32.

    Args:
        key: Two uint32 arrays.
        counter: Two uint32 arrays that broadcast against the key.

    Returns:
        Two uint32 arrays of the broadcast shape.

    Source:
        Salmon, Moraes, Dror, Shaw: *Parallel random numbers: as easy as 1, 2, 3*, SC 2011.
    """
    u32 = np.uint32
    schedule = (key[0], key[1], key[0] ^ key[1] ^ u32(_PARITY))
    x0, x1 = counter[0] + schedule[0], counter[1] + schedule[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x0 += x1  # NumPy's own arrays are changed in place, which takes two thirds of the time
            upper = x1 << u32(rotation)
            x1 >>= u32(32 - rotation)
            x1 |= upper
            x1 ^= x0
        x0 += schedule[(group + 1) % 3]
        x1 += schedule[(group + 2) % 3] + u32(group + 1)
    return x0, x1


@functools.cache
def normal_table() -> Float32[np.ndarray, " 65536"]:
    """The 65,536 normal quantiles Φ⁻¹((h + ½) / 2¹⁶) as float32, ascending.

    Made by the standard library (about 20 ms, once), so that a device needs no file and no SciPy.
    """
    inverse = statistics.NormalDist().inv_cdf
    upper = np.array([inverse((h + 0.5) / 65536) for h in range(32768, 65536)]).astype(np.float32)
    table = np.concatenate([-upper[::-1], upper])
    table.flags.writeable = False
    return table


def perturbation_halves(seed: AnyInt, size: int, xp: ModuleType = np) -> UInt32[AnyArray, "{size}"]:
    """The 16-bit numbers behind a perturbation, before they become normals.

    Args:
        seed: uint32 scalar array.
        size: Number of halves wanted.
        xp: ``numpy`` or ``jax.numpy``.

    Returns:
        uint32 [size], each below 2¹⁶.
    """
    blocks = xp.arange(-(-size // 4), dtype=np.uint32)
    # A scalar would make NumPy warn about the intended wrap-around.
    word = xp.asarray(seed).astype(np.uint32).reshape(1)
    key = (xp.full_like(word, PERTURBATION_KEY), word)
    x0, x1 = threefry_2x32(key, (blocks, xp.zeros_like(blocks)))
    low, shift = np.uint32(0xFFFF), np.uint32(16)
    halves = xp.stack([x0 & low, x0 >> shift, x1 & low, x1 >> shift], axis=-1)
    return halves.reshape(-1)[:size]


def perturbation(seed: AnyInt, size: int) -> Float32[np.ndarray, "{size}"]:
    """The perturbation that belongs to a seed, with NumPy and the standard library alone.

    Args:
        seed: Integer in [0, 2³²).
        size: Number of coordinates.

    Returns:
        float32 [size], standard normal to 16 bits.

    >>> perturbation(7, 4)
    array([ 1.1410227 , -0.5380676 ,  0.97768164,  1.3556308 ], dtype=float32)
    """
    return normal_table()[perturbation_halves(np.asarray(seed, dtype=np.uint32), size)]


def perturbation_jax(seed: UInt32[AnyArray, ""], size: int) -> Float32[JaxArray, "{size}"]:
    """:func:`perturbation` in JAX: the same bits; ``vmap`` it over seeds."""
    import jax.numpy as jnp

    return jnp.asarray(normal_table())[perturbation_halves(seed, size, jnp)]


def party_key(run_key: Key[JaxArray, ""], round_: AnyInt, party: AnyInt) -> Key[JaxArray, ""]:
    """A party's key in a round: ``fold_in(fold_in(run_key, round), party)``.

    Args:
        run_key: Typed key of the run (``jax.random.key(seed)``).
        round_: Number of the round, from 0.
        party: Number of the party, from 0.
    """
    import jax

    return jax.random.fold_in(jax.random.fold_in(run_key, round_), party)


def uniform(words: UInt32[ArrayT, "*shape"], xp: ModuleType = np) -> Float32[ArrayT, "*shape"]:
    """uint32 words to float32 in [0, 1): the upper 24 bits, so that every value is exact.

    ``uniform(w) < p`` is never true for p = 0 and always true for p = 1.
    """
    return (words >> np.uint32(8)).astype(xp.float32) * xp.float32(2**-24)


def below(words: UInt32[ArrayT, "*shape"], bound: np.uint32 | UInt32[AnyArray, "*#shape"]) -> UInt32[ArrayT, "*shape"]:
    """uint32 words to integers in [0, bound): floor(word · bound / 2³²), for bounds up to 2¹⁶ without 64-bit integers.

    The values' probabilities differ from 1/bound by less than 2⁻³² each.
    """
    shift, low = np.uint32(16), np.uint32(0xFFFF)
    high = (words >> shift) * bound
    return (high + (((words & low) * bound) >> shift)) >> shift  # type: ignore[return-value] - of the kind of the words


def below_large(words: UInt32[ArrayT, "*shape"], bound: np.uint32) -> UInt32[ArrayT, "*shape"]:
    """:func:`below` for any bound below 2³²: the upper half of the 64-bit product, from products of 16-bit halves."""
    shift, low = np.uint32(16), np.uint32(0xFFFF)
    (a, b), (c, d) = (words >> shift, words & low), (bound >> shift, bound & low)
    middle = ((a * d) & low) + ((b * c) & low) + ((b * d) >> shift)
    return a * c + ((a * d) >> shift) + ((b * c) >> shift) + (middle >> shift)  # type: ignore[return-value]
