"""Secure summation: the server learns the sum of the parties' vectors and nothing else about them.

After Bonawitz et al., *Practical secure aggregation for privacy-preserving machine learning* (CCS 2017), with the
neighbour graph of Bell et al., *Secure single-server aggregation with (poly)logarithmic overhead* (CCS 2020). It is
what noise in shares needs: a share protects nothing by itself (:mod:`fedrank.privacy.noise.discrete`), their sum does,
and only the sum is to be seen. Vectors are integers modulo 2³², to be read as −2³¹ … 2³¹ − 1, so that a sum must stay
below 2³¹ in absolute value; :mod:`fedrank.privacy.quantise` makes them and checks that.

One sum::

    keys        a party makes two key pairs, one to seal shares with, one to mask with
    shares      it splits its mask key and the seed of its self mask among itself and its neighbours, t of which can
                put them together again, and seals each neighbour's shares for it
    vectors     it sends  x + (self mask) ± (one mask for each neighbour, known to the two of them)
    unmasking   of each neighbour a survivor sends one share: of the seed if its vector came, of the mask key if not

Masks of neighbours cancel in the sum; those of parties that dropped out are made again from their mask keys; self masks
are made again from their seeds and taken off. The self mask is why a late vector stays hidden though its pairwise masks
are known by then, and it is why no party may ever get shares of both secrets of one party: a party answers one request,
which has one mark for each neighbour. Since a threshold is more than half of the holders, a server that tells one half
that a party dropped out, and the other half that it survived, collects too few shares of one or the other.

**What it protects against.** A server, and fewer than ``threshold`` of any party's holders together with it, that keep
to the protocol and look at everything they see: they learn the sum over the survivors, who took part, and who dropped
out. False, changed or repeated shares and messages of other sessions are refused and stop the sum.

**What it does not protect against.**

- A server that hands out keys that it made itself. There is no directory of the parties' keys here, so that a server
  can pose as a party's neighbours, all of them, and unmask it. The same holds for a crowd of invented parties.
- A server that gives out different lists of survivors: it can choose over which parties, at least ``threshold`` of a
  neighbourhood, the sum runs. There is no round in which parties compare what they were told.
- A server that chooses who is whose neighbour. With few neighbours the graph must be drawn by chance, and dense enough
  for the survivors who keep to the protocol to stay connected; Bell et al. compute how dense. A party sees its own
  neighbourhood only: how many stayed in the whole cohort, and so added their noise, it has to believe.
- A party that sends a wrong vector, or stops every sum by sending false shares.
- What the sum itself says. The sum of two vectors tells each of the two the other's; hide that with noise.
- Whoever measures how long a device computes: vectors and masks are added by NumPy, secrets split in plain Python.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Int64, UInt32

from fedrank.core.errors import ConfigError
from fedrank.privacy.secure_sum.messages import Step, Terms, message_sizes
from fedrank.privacy.secure_sum.party import Party
from fedrank.privacy.secure_sum.server import Server

M = TypeVar("M")


class SecureSum(NamedTuple):
    """The outcome of a secure sum.

    Attributes:
        total: uint32 [length]: the sum of the survivors' vectors modulo 2³².
        survivors: Numbers of the parties whose vectors are in the sum, ascending.
        bytes_up: int64 [parties]: bytes that each party sent.
        bytes_down: int64 [parties]: bytes that each party was sent.
    """

    total: UInt32[np.ndarray, " length"]
    survivors: tuple[int, ...]
    bytes_up: Int64[np.ndarray, " parties"]
    bytes_down: Int64[np.ndarray, " parties"]


def secure_sum(
    vectors: UInt32[np.ndarray, "parties length"],
    threshold: int,
    *,
    dropped_before_sharing: Collection[int] = (),
    dropped_before_masking: Collection[int] = (),
    dropped_after_masking: Collection[int] = (),
    neighbours: int | None = None,
) -> SecureSum:
    """All parties and the server in one process, every message through its bytes: for tests and for small real sums.

    Splitting secrets takes a party time in proportion to the threshold times the neighbours, and masking in proportion
    to the neighbours times the length.

    Args:
        vectors: uint32 [parties, length].
        threshold: How many of a party and its neighbours must stay until the end; see :class:`Terms`.
        dropped_before_sharing: Parties that send keys and nothing more.
        dropped_before_masking: Parties that send shares and no vector: their pairwise masks must be taken off.
        dropped_after_masking: Parties that send a vector, which is in the sum, and do not help to unmask.
        neighbours: Parties that each masks with: an even number, or all others if None.

    Raises:
        ConfigError: The vectors, the threshold or the neighbours do not fit together.
        SecureSumError: Too few parties are left.

    >>> secure_sum(np.array([[1, 2**32 - 1], [2, 2], [3, 3]], np.uint32), threshold=2).total.tolist()
    [6, 4]
    """
    if vectors.ndim != 2 or vectors.dtype != np.uint32:
        raise ConfigError(
            f"vectors of a secure sum must be uint32 [parties, length], got {vectors.dtype} {list(vectors.shape)}."
        )
    count, length = vectors.shape
    terms = Terms(length, count - 1 if neighbours is None else neighbours, threshold)
    wire = _Wire(message_sizes(terms.length, terms.neighbours), count)
    server, parties = Server(terms), [Party(terms, number) for number in range(count)]

    def remaining_parties(*gone: Collection[int]) -> list[int]:
        return [number for number in range(count) if not any(number in who for who in gone)]

    keys = [wire.up(0, i, parties[i].advertise(wire.down(0, i, server.invitation()))) for i in range(count)]
    rosters = server.rosters(keys)
    there = remaining_parties(dropped_before_sharing)
    deliveries = server.deliveries([wire.up(1, i, parties[i].share(wire.down(1, i, rosters[i]))) for i in there])
    there = remaining_parties(dropped_before_sharing, dropped_before_masking)
    masked = [wire.up(2, i, parties[i].mask(wire.down(2, i, deliveries[i]), vectors[i])) for i in there]
    requests = server.unmask_requests(masked)
    last = [i for i in there if i not in dropped_after_masking]
    total = server.total([wire.up(3, i, parties[i].unmask(wire.down(3, i, requests[i]))) for i in last])
    return SecureSum(total, tuple(there), wire.bytes_up, wire.bytes_down)


class _Wire:
    """Every message as bytes and back, counted."""

    def __init__(self, steps: tuple[Step, ...], parties: int):
        self._steps = steps
        self.bytes_up, self.bytes_down = np.zeros(parties, np.int64), np.zeros(parties, np.int64)

    def up(self, step: int, party: int, message: M) -> M:
        data = self._steps[step].reply.encode(message)
        self.bytes_up[party] += len(data)
        return self._steps[step].reply.decode(data)

    def down(self, step: int, party: int, message: M) -> M:
        data = self._steps[step].request.encode(message)
        self.bytes_down[party] += len(data)
        return self._steps[step].request.decode(data)
