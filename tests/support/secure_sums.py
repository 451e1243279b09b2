"""Secure sums taken as far as a test wants them."""

import numpy as np

from fedrank.privacy.secure_sum.messages import Terms
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
