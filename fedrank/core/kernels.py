"""CPU kernels around the perturbation of a seed: the same bits as :mod:`fedrank.core.rng`, compiled with Numba.

A kernel is an accelerator, never a second truth: tests compare each with the JAX reference. On two cores the
perturbations of 2,000 messages of 480 numbers take 5.7 ms in XLA; made here, one message at a time where they are used,
all of them together with their weighted sum take 0.5 ms.

Kernels are called from jitted programs through ``jax.pure_callback``. XLA may run independent callbacks at the same
time while Numba's default threading layer may not, so every call takes :data:`ONE_AT_A_TIME`.
"""

from __future__ import annotations

import functools
import math
import threading
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int64, Shaped, UInt32

from fedrank.core.arrays import AnyArray
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.compiled import njit, prange
from fedrank.core.lazy import jax, jnp
from fedrank.core.rng import PERTURBATION_KEY, normal_table, perturbation_jax
from fedrank.core.streams import CENTRAL, TAIL, stream, uniforms

#: Numba's threads belong to one kernel at a time.
ONE_AT_A_TIME = threading.Lock()

_u32 = np.uint32
_KEY = np.uint32(PERTURBATION_KEY)
_PARITY = np.uint32(0x1BD11BDA)
#: Messages whose weighted perturbations are added up one after another; blocks are added in a fixed order, so that the
#: sum does not depend on the number of threads.
_BLOCK = 64
#: Parties whose keys are made side by side.
_GROUP = 64


def freeze(array: Any, dtype: Any) -> Shaped[np.ndarray, "..."]:
    """The array contiguous and read-only, copied only if it must be.

    Numba compiles a kernel once for each combination of its arguments' types, and whether an array may be written to is
    part of its type: what comes from JAX may not, what NumPy made may.
    """
    array = np.ascontiguousarray(array, dtype).view()
    array.flags.writeable = False
    return array


def check_shapes(**arrays: tuple[Shaped[AnyArray, "..."], tuple[int | None, ...]]) -> None:
    """Refuse arrays that a compiled kernel would read beyond: compiled code does not check its indices.

    Args:
        arrays: By name, an array and the length of each axis that the kernel reads; None: any length.

    Raises:
        ValueError: An array has another shape, which is a fault of the calling code.
    """
    for name, (array, wanted) in arrays.items():
        fits = array.ndim == len(wanted) and all(w in (None, n) for w, n in zip(wanted, array.shape, strict=True))
        if not fits:
            shape = tuple("any" if w is None else w for w in wanted)
            raise ValueError(f"a compiled kernel reads {name} of shape {shape}, got {array.shape}.")


def check_range(name: str, numbers: Shaped[np.ndarray, "..."], below: int) -> None:
    """Refuse indices that a compiled kernel would follow out of an array.

    Raises:
        ValueError: One is negative, or ``below`` or more; a fault of the calling code.
    """
    if numbers.size and not (numbers.min() >= 0 and numbers.max() < below):
        raise ValueError(f"a compiled kernel follows {name} in [0, {below}), got {numbers.min()} to {numbers.max()}.")


class Cohort:
    """The arguments of one call of a kernel, for all parties of all runs at once.

    ``vmap`` with ``expand_dims`` hands arrays over with leading axes (runs, parties, …), of length 1 where an argument
    is the same along them. A kernel wants one axis of parties.

    Args:
        lead: Leading axes of all arguments together.
    """

    def __init__(self, lead: tuple[int, ...]):
        self.lead, self.parties = lead, int(np.prod(lead, dtype=np.int64))

    def models(
        self, weights: Float[AnyArray, "*lead n"]
    ) -> tuple[Float32[np.ndarray, "runs n"], Int64[np.ndarray, " parties"]]:
        """Each run's weights, float32 [runs, n], and the number of each party's run, int64 [parties].

        Args:
            weights: float [..., n], the same for all parties of a run.
        """
        models = freeze(weights, np.float32).reshape(-1, weights.shape[-1])
        run = np.broadcast_to(np.arange(len(models)).reshape(weights.shape[:-1]), self.lead).reshape(self.parties)
        return models, freeze(run, np.int64)

    def flat(self, array: Shaped[AnyArray, "..."], dtype: Any) -> Shaped[np.ndarray, "parties ..."]:
        """An argument with its leading axes made one: [parties, ...]."""
        inner = array.shape[len(self.lead) :]
        return freeze(np.broadcast_to(array, (*self.lead, *inner)).reshape(self.parties, *inner), dtype)


# Inlined by Numba: inlined by LLVM, whatever loops over blocks is no longer computed side by side, and takes four times
# as long. Each place that calls these costs seconds to compile.
@njit(inline="always")
def _mix(x0, x1, rotation):
    # Numba adds uint32 in 64 bits; the casts bring the sum back to the 32 bits that the generator is defined on.
    x0 = _u32(x0 + x1)
    return x0, _u32((x1 << _u32(rotation)) | (x1 >> _u32(32 - rotation))) ^ x0


@njit(inline="always")
def _four_rounds(x0, x1, a, b, c, d):
    x0, x1 = _mix(x0, x1, a)
    x0, x1 = _mix(x0, x1, b)
    x0, x1 = _mix(x0, x1, c)
    return _mix(x0, x1, d)


@njit(inline="always")
def threefry_block(k0, k1, first, second):
    """Both words of the block (first, second) of Threefry-2x32-20: what JAX makes keys and words from."""
    k2 = k0 ^ k1 ^ _PARITY
    x0, x1 = _four_rounds(_u32(first + k0), _u32(second + k1), 13, 15, 26, 6)
    x0, x1 = _four_rounds(_u32(x0 + k1), _u32(x1 + k2 + _u32(1)), 17, 29, 16, 24)
    x0, x1 = _four_rounds(_u32(x0 + k2), _u32(x1 + k0 + _u32(2)), 13, 15, 26, 6)
    x0, x1 = _four_rounds(_u32(x0 + k0), _u32(x1 + k1 + _u32(3)), 17, 29, 16, 24)
    x0, x1 = _four_rounds(_u32(x0 + k1), _u32(x1 + k2 + _u32(4)), 13, 15, 26, 6)
    return _u32(x0 + k2), _u32(x1 + k0 + _u32(5))


@njit(cache=True, nogil=True)
def fill_words(seed: np.uint32, low: UInt32[np.ndarray, " blocks"], high: UInt32[np.ndarray, " blocks"]) -> None:
    """Both words of the first ``low.size`` blocks of a seed's stream (uint32 arrays, filled in place)."""
    for block in range(low.size):  # independent blocks: the compiler runs eight side by side
        low[block], high[block] = threefry_block(_KEY, _u32(seed), _u32(block), _u32(0))


#: Place of a party's number among what is folded into its key.
_PARTY = 1


@njit(cache=True, nogil=True, parallel=True)
def _party_words(keys, first, folds, out):
    runs, parties, words = out.shape
    groups = (parties + _GROUP - 1) // _GROUP
    for work in prange(runs * groups):
        run, begin = work // groups, work % groups * _GROUP
        one, two = np.full(_GROUP, keys[run, 0]), np.full(_GROUP, keys[run, 1])
        for step in range(len(folds)):
            for i in range(_GROUP):  # independent: the compiler runs several side by side
                fold = _u32(first + begin + i) if step == _PARTY else folds[step]
                one[i], two[i] = threefry_block(one[i], two[i], _u32(0), fold)
        for i in range(min(_GROUP, parties - begin)):
            row, k0, k1 = out[run, begin + i], one[i], two[i]
            for j in range(words):
                a, b = threefry_block(k0, k1, _u32(0), _u32(j))
                row[j] = a ^ b


def party_words(
    keys: UInt32[np.ndarray, "runs 2"], number: int, first: int, parties: int, words: int, folds: tuple[int, ...] = ()
) -> UInt32[np.ndarray, "runs {parties} {words}"]:
    """The random words of parties in a round: ``jax.random.bits`` of :func:`fedrank.core.rng.party_key`, the same bits.

    Args:
        keys: Both words of each run's key, as :func:`fedrank.core.streams.run_words` makes them.
        number: Number of the round.
        first: Number of the first party.
        parties: How many parties.
        words: How many words of each.
        folds: What is folded into a party's key, in order. The first key of ``jax.random.split`` is a fold of 0.

    Returns:
        uint32 [runs, parties, words]: a view of rows of whole vectors of 16 words, whose base is in C order.
    """
    out = np.empty((len(keys), parties, (words + 15) // 16 * 16), np.uint32)
    with ONE_AT_A_TIME:
        steps = np.array([number, 0, *folds], np.uint32)  # the second is replaced by each party's number
        _party_words(freeze(keys, np.uint32), np.uint32(first), steps, out)
    return out[..., :words]


@njit(inline="always")
def _polynomial(coefficients, x):
    value = np.float32(coefficients[0])
    for i in range(1, len(coefficients)):
        value = np.float32(coefficients[i]) + value * x
    return value


@njit(inline="always")
def _inverse_erf(x):
    """Giles, *Approximating the erfinv function* (2012), single precision: what XLA computes."""
    w = -math.log1p(-x * x)
    if w < np.float32(5):
        return _polynomial(CENTRAL, w - np.float32(2.5)) * x
    return _polynomial(TAIL, math.sqrt(w) - np.float32(3)) * x


@njit(cache=True, nogil=True)
def _fill_normals(unit, low, out):
    for i in range(unit.size):
        x = max(unit[i] * (np.float32(1) - low) + low, low)
        out[i] = np.float32(math.sqrt(2.0)) * _inverse_erf(x)


def normal_of(words: UInt32[np.ndarray, "*shape"]) -> Float32[np.ndarray, "*shape"]:
    """Standard normal numbers made from uniform words: ``jax.random.normal``'s but for the rounding of the quantile."""
    unit = uniforms(words)
    out = np.empty(unit.size, np.float32)
    _fill_normals(freeze(unit.ravel(), np.float32), np.nextafter(np.float32(-1), np.float32(0)), out)
    return out.reshape(words.shape)


def normals(keys: UInt32[np.ndarray, "runs 2"], size: int) -> Float32[np.ndarray, "runs {size}"]:
    """``jax.random.normal`` of each run's key, from the same words; see :func:`normal_of`."""
    return normal_of(stream(keys, size))


@njit(cache=True, nogil=True)
def scratch_words(size):
    """Scratch for one word of each block of a perturbation of ``size``, in whole vectors: no block is made alone."""
    return np.empty((size + 63) // 64 * 16, np.uint32)


@njit(cache=True, nogil=True)
def fill_perturbation(
    seed: np.uint32,
    table: Float32[np.ndarray, " 65536"],
    low: UInt32[np.ndarray, " blocks"],
    high: UInt32[np.ndarray, " blocks"],
    out: Float32[np.ndarray, " size"],
) -> None:
    """The perturbation of a seed into ``out`` (float32 [size]); ``low``, ``high`` are of :func:`scratch_words`."""
    fill_words(seed, low, high)
    size = out.size
    for block in range(size // 4):
        a, b = low[block], high[block]
        out[4 * block] = table[a & _u32(0xFFFF)]
        out[4 * block + 1] = table[a >> _u32(16)]
        out[4 * block + 2] = table[b & _u32(0xFFFF)]
        out[4 * block + 3] = table[b >> _u32(16)]
    for j in range(4 * (size // 4), size):
        word = low[j // 4] if j % 4 < 2 else high[j // 4]
        out[j] = table[(word >> _u32(16)) if j % 2 else (word & _u32(0xFFFF))]


@njit(cache=True, nogil=True, parallel=True, fastmath={"contract"})
def _weighted_sums(seeds, coefficients, table, made, partial):
    runs, messages = seeds.shape
    size = partial.shape[2]
    chunks = partial.shape[1]
    for work in prange(runs * chunks):
        run, chunk = work // chunks, work % chunks
        low, high = scratch_words(size), scratch_words(size)
        v = np.empty(size, np.float32)
        total = partial[run, chunk]
        for i in range(chunk * _BLOCK, min((chunk + 1) * _BLOCK, messages)):
            c = coefficients[run, i]
            if c == np.float32(0):  # two equal metrics cancel: often most messages of a round
                continue
            if made.size:
                at = run * messages + i
                for j in range(size):
                    total[j] += c * made[at, j]
            else:
                fill_perturbation(seeds[run, i], table, low, high, v)
                for j in range(size):
                    total[j] += c * v[j]


def host_weighted_sum(
    seeds: UInt32[AnyArray, "*#runs messages"],
    coefficients: Float[AnyArray, "*#runs messages"],
    size: int,
    made: Float32[np.ndarray, "rows {size}"] | None = None,
) -> Float32[np.ndarray, "... {size}"]:
    """:func:`weighted_sum` through the kernel, without JAX: arguments and result are arrays of NumPy.

    Args:
        seeds: uint32 [..., messages].
        coefficients: float32 [..., messages].
        size: Length of a perturbation.
        made: float32 [runs · messages or more, size], the perturbations in the order of the seeds, where whoever asks
            has them; None: they are made again. The sum is the same to the last bit.
    """
    seeds, coefficients = freeze(seeds, np.uint32), freeze(coefficients, np.float32)
    lead = np.broadcast_shapes(seeds.shape, coefficients.shape)
    flat = (math.prod(lead[:-1]), lead[-1])
    seeds = freeze(np.broadcast_to(seeds, lead).reshape(flat), np.uint32)
    coefficients = freeze(np.broadcast_to(coefficients, lead).reshape(flat), np.float32)
    chunks = max(1, -(-lead[-1] // _BLOCK))
    partial = np.zeros((seeds.shape[0], chunks, size), np.float32)
    known = freeze(np.empty((0, size)) if made is None else made, np.float32)
    check_shapes(made=(known[: seeds.size], (0 if made is None else seeds.size, size)))
    with ONE_AT_A_TIME:
        _weighted_sums(seeds, coefficients, normal_table(), known, partial)
    return partial.sum(axis=1, dtype=np.float64).astype(np.float32).reshape(*lead[:-1], size)


def weighted_sum_kernel(
    seeds: UInt32[Array, "*runs messages"], coefficients: Float[Array, "*runs messages"], size: int
) -> Float32[Array, "*runs {size}"]:
    """:func:`weighted_sum` through the kernel: equal to about 1e-6 relative (another order of addition)."""
    shape = jax.ShapeDtypeStruct((*seeds.shape[:-1], size), jnp.float32)
    host = functools.partial(host_weighted_sum, size=size)
    return jax.pure_callback(host, shape, seeds, coefficients, vmap_method="expand_dims")


def weighted_sum(
    seeds: UInt32[Array, " messages"], coefficients: Float[Array, " messages"], size: int, chunk: int = 1024
) -> Float32[Array, "{size}"]:
    """Σᵢ cᵢ·v(seedᵢ), in JAX, without ever holding more than ``chunk`` perturbations.

    Args:
        seeds: uint32 [messages].
        coefficients: float32 [messages].
        size: Length of a perturbation.
        chunk: Messages at a time.

    Returns:
        float32 [size].
    """
    messages = seeds.shape[0]
    chunk = min(chunk, max(messages, 1))
    pad = -messages % chunk
    seeds = jnp.pad(seeds, (0, pad)).reshape(-1, chunk)
    coefficients = jnp.pad(coefficients, (0, pad)).reshape(-1, chunk)

    def add(total, part):
        v = jax.vmap(lambda seed: perturbation_jax(seed, size))(part[0])
        return total + jnp.einsum("c,cn->n", part[1], v, precision=jax.lax.Precision.HIGHEST), None

    return jax.lax.scan(add, jnp.zeros(size, jnp.float32), (seeds, coefficients))[0]
