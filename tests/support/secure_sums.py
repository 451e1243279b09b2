"""Secure sums taken as far as a test wants them."""

from collections.abc import Collection
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Int64, UInt32

from fedrank.privacy.secure_sum.messages import Step, Terms, message_sizes
from fedrank.privacy.secure_sum.party import Party
from fedrank.privacy.secure_sum.server import Server


def words(parties, length, seed=0):
    return np.random.default_rng(seed).integers(0, 2**32, (parties, length), dtype=np.uint32)


def plain_sum(vectors, parties):
    """The sum modulo 2³², in Python's integers."""
    return [sum(int(v) for v in column) % 2**32 for column in vectors[list(parties)].T]


class Session:
    """A sum taken as far as a test wants it."""

    def __init__(self, parties=5, threshold=3, length=3, neighbours=None, until="masked", absent=()):
        terms = Terms(length, neighbours or parties - 1, threshold)
        self.vectors = words(parties, length, seed=1)
        self.server, self.parties = Server(terms), [Party(terms, i) for i in range(parties)]
        self.keys = [p.advertise(self.server.invitation()) for p in self.parties]
        self.rosters = self.server.rosters(self.keys)
        if until == "rosters":
            return
        self.sealed = [p.share(self.rosters[p.number]) for p in self.parties]
        self.deliveries = self.server.deliveries(self.sealed)
        if until == "deliveries":
            return
        self.masked = [p.mask(self.deliveries[p.number], self.vectors[p.number]) for p in self.parties]
        if until == "masked":
            return
        self.there = [i for i in range(parties) if i not in absent]
        self.requests = self.server.unmask_requests([self.masked[i] for i in self.there])
        if until == "requests":
            return
        self.replies = [self.parties[i].unmask(self.requests[i]) for i in self.there]


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
    """All parties and the server in one process, every message through its bytes: as the tests run them.

    Splitting secrets takes a party time in proportion to the threshold times the neighbours, and masking in proportion
    to the neighbours times the length.

    Args:
        vectors: uint32 [parties, length].
        threshold: How many of a party and its neighbours must stay until the end; see :class:`Terms`.
        dropped_before_sharing: Parties that send keys and nothing more.
        dropped_before_masking: Parties that send shares and no vector: their pairwise masks must be taken off.
        dropped_after_masking: Parties that send a vector, which is in the sum, and do not help to unmask.
        neighbours: Parties that each masks with: an even number, or all others if None.
    """
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
