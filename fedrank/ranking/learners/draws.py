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
from fedrank.core.kernels import threefry_block
from fedrank.core.lazy import jnp
from fedrank.core.rng import threefry_2x32

_u32 = np.uint32


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


@njit(cache=True, nogil=True)
def fill_document_bits(w0, w1, out):
    """:func:`document_bits` into ``out`` (uint32 [d], filled in place), for CPU kernels."""
    for block in range(out.size // 2):
        out[2 * block], out[2 * block + 1] = threefry_block(_u32(w0), _u32(w1), _u32(block), _u32(0))
    if out.size % 2:
        out[out.size - 1], _ = threefry_block(_u32(w0), _u32(w1), _u32(out.size // 2), _u32(0))
