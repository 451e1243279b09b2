"""32 random bits for every document of a query, from 64 random bits of an interaction.

Queries have different numbers of documents, and a party's random bits of a round are drawn before it is known which
query is meant. So an interaction has two integers of 32 bits, and the documents' bits are made from them where they are
used: Threefry-2x32 with 20 rounds, key ``(w0, w1)`` and, for block ``b``, counter ``(b, 0)`` gives those of the
documents ``2b`` and ``2b + 1``. Equal pairs give equal bits for the documents; a pair must therefore serve one purpose
in one interaction.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import UInt32

from fedrank.core.arrays import AnyArray
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.compiled import njit
from fedrank.core.lazy import jnp
from fedrank.core.rng import threefry_2x32

_u32 = np.uint32
_PARITY = np.uint32(0x1BD11BDA)


def document_bits(
    w0: UInt32[AnyArray, "*interactions"], w1: UInt32[AnyArray, "*interactions"], documents: int
) -> UInt32[Array, "*interactions {documents}"]:
    """Random bits of a query's documents, in JAX.

    Args:
        w0: uint32 [...].
        w1: uint32 [...].
        documents: Number of documents d.

    Returns:
        uint32 [..., d].
    """
    blocks = jnp.arange(-(-documents // 2), dtype=jnp.uint32)
    lead = (*w0.shape, blocks.shape[0])
    counter = (jnp.broadcast_to(blocks, lead), jnp.zeros(lead, jnp.uint32))
    pair = threefry_2x32((w0[..., None], w1[..., None]), counter)
    return jnp.stack(pair, axis=-1).reshape(*w0.shape, -1)[..., :documents]


@njit(inline="always")
def _four_rounds(x0, x1, a, b, c, d):
    # Numba adds uint32 in 64 bits; the casts bring the sum back to the 32 bits that the generator is defined on.
    x0 = _u32(x0 + x1)
    x1 = _u32((x1 << _u32(a)) | (x1 >> _u32(32 - a))) ^ x0
    x0 = _u32(x0 + x1)
    x1 = _u32((x1 << _u32(b)) | (x1 >> _u32(32 - b))) ^ x0
    x0 = _u32(x0 + x1)
    x1 = _u32((x1 << _u32(c)) | (x1 >> _u32(32 - c))) ^ x0
    x0 = _u32(x0 + x1)
    x1 = _u32((x1 << _u32(d)) | (x1 >> _u32(32 - d))) ^ x0
    return x0, x1


@njit(inline="always")
def _block(k0, k1, k2, number):
    x0, x1 = _u32(number + k0), k1
    x0, x1 = _four_rounds(x0, x1, 13, 15, 26, 6)
    x0, x1 = _four_rounds(_u32(x0 + k1), _u32(x1 + k2 + _u32(1)), 17, 29, 16, 24)
    x0, x1 = _four_rounds(_u32(x0 + k2), _u32(x1 + k0 + _u32(2)), 13, 15, 26, 6)
    x0, x1 = _four_rounds(_u32(x0 + k0), _u32(x1 + k1 + _u32(3)), 17, 29, 16, 24)
    x0, x1 = _four_rounds(_u32(x0 + k1), _u32(x1 + k2 + _u32(4)), 13, 15, 26, 6)
    return _u32(x0 + k2), _u32(x1 + k0 + _u32(5))


@njit(cache=True, nogil=True)
def fill_document_bits(w0, w1, out):
    """:func:`document_bits` into ``out`` (uint32 [d], filled in place), for CPU kernels."""
    k0, k1 = _u32(w0), _u32(w1)
    k2 = k0 ^ k1 ^ _PARITY
    for block in range(out.size // 2):
        out[2 * block], out[2 * block + 1] = _block(k0, k1, k2, _u32(block))
    if out.size % 2:
        out[out.size - 1], _ = _block(k0, k1, k2, _u32(out.size // 2))
