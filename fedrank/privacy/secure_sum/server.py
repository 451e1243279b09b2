"""The server of a secure sum: it passes on what it cannot read and learns the sum.

Four steps, as the exchanges are: :meth:`Server.rosters`, :meth:`Server.deliveries`, :meth:`Server.unmask_requests`,
:meth:`Server.total`. Whoever's message is not among those given to a step has dropped out. The server never asks for
anything where too few parties are left: it stops, and all vectors stay masked.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn, TypeVar

import numpy as np
from jaxtyping import UInt32

from fedrank.core.errors import ConfigError, SecureSumError
from fedrank.privacy.secure_sum import crypto
from fedrank.privacy.secure_sum.messages import (
    KEY,
    SEALED,
    SESSION,
    Advertisement,
    Delivery,
    Invitation,
    MaskedVector,
    Roster,
    SealedShares,
    Terms,
    UnmaskReply,
    UnmaskRequest,
)
from fedrank.privacy.secure_sum.party import pair_mask, rows, to_array, to_bytes, to_rows

#: A message from a party.
FromParty = TypeVar("FromParty", Advertisement, SealedShares, MaskedVector, UnmaskReply)


def circulant(order: Sequence[int], neighbours: int) -> dict[int, tuple[int, ...]]:
    """The neighbour graph: parties stand in a ring, and each is a neighbour of the nearest ones on either side.

    Args:
        order: The parties' numbers around the ring, each once. Shuffled by the server, so that no party chooses whom it
            stands next to (Bell et al. 2020, Section 3).
        neighbours: Neighbours of each: an even number, or all others.

    Returns:
        Party → its neighbours, ascending; x is a neighbour of y exactly if y is one of x.

    >>> circulant([0, 1, 2, 3, 4, 5], 2)[0]
    (1, 5)
    """
    size = len(order)
    if neighbours > size - 1 or neighbours < 1 or (neighbours % 2 and neighbours != size - 1):
        raise ConfigError(
            f"neighbours of a secure sum over {size} parties must be {size - 1}, or an even number from 2 to "
            f"{size - 2}, got {neighbours}."
        )
    reach = range(1, size) if neighbours == size - 1 else [*range(1, neighbours // 2 + 1)]
    return {
        party: tuple(sorted({order[(i + step) % size] for j in reach for step in (j, -j)}))
        for i, party in enumerate(order)
    }


class Server:
    """The server's part in one secure sum.

    Args:
        terms: What was agreed upon beforehand.
    """

    def __init__(self, terms: Terms):
        self.terms = terms
        self._session = secrets.token_bytes(SESSION)

    def invitation(self) -> Invitation:
        """The first message to every party."""
        return Invitation(to_array(self._session))

    def rosters(self, advertisements: Iterable[Advertisement]) -> dict[int, Roster]:
        """Each party's neighbours and their keys, drawn among those who advertised.

        Raises:
            ConfigError: The agreed number of neighbours does not fit to the number of parties.
            SecureSumError: A message is from another session, or a party's second one.
        """
        self._keys = self._by_party(advertisements, None)
        order = sorted(self._keys)
        secrets.SystemRandom().shuffle(order)
        self.graph = circulant(order, self.terms.neighbours)
        return {
            party: Roster(
                to_array(self._session),
                np.array(others, np.uint32),
                np.stack([self._keys[other].seal_key for other in others]),
                np.stack([self._keys[other].mask_key for other in others]),
            )
            for party, others in self.graph.items()
        }

    def deliveries(self, sealed: Iterable[SealedShares]) -> dict[int, Delivery]:
        """To each party that still is there, what its neighbours sealed for it.

        Raises:
            SecureSumError: Too few parties are left, or a message is not one of this sum.
        """
        self._sealed = self._by_party(sealed, self.graph)
        self._check_enough(self._sealed, self._sealed, "sent shares")
        parcels = {party: rows(message.sealed, SEALED) for party, message in self._sealed.items()}
        deliveries = {}
        for party in self._sealed:
            pieces = [
                parcels[other][self.graph[other].index(party)] if other in parcels else bytes(SEALED)
                for other in self.graph[party]
            ]
            present = np.array([other in parcels for other in self.graph[party]], np.uint8)
            deliveries[party] = Delivery(to_array(self._session), present, to_rows(pieces))
        return deliveries

    def unmask_requests(self, masked: Iterable[MaskedVector]) -> dict[int, UnmaskRequest]:
        """To each survivor, which of its neighbours survived too.

        Raises:
            SecureSumError: Too few parties are left, or a message is not one of this sum. Nothing can be unmasked then.
        """
        self._masked = self._by_party(masked, self._sealed)
        self._check_enough(self._masked, self._masked, "sent a vector")
        return {
            party: UnmaskRequest(
                to_array(self._session), np.array([other in self._masked for other in self.graph[party]], np.uint8)
            )
            for party in self._masked
        }

    def total(self, replies: Iterable[UnmaskReply]) -> UInt32[np.ndarray, " length"]:
        """The sum of the survivors' vectors, those included that did not answer the last request.

        Returns:
            uint32 [length], modulo 2³².

        Raises:
            SecureSumError: Too few replies to unmask, a share that is not true, or a message that is not one of this
                sum.
        """
        answers = self._by_party(replies, self._masked)
        dropped = [p for p in self._sealed if p not in self._masked and any(o in self._masked for o in self.graph[p])]
        self._check_enough(answers, [*self._masked, *dropped], "sent shares to unmask with")
        shares: dict[int, dict[int, bytes]] = {party: {} for party in self._sealed}
        for holder, message in answers.items():
            theirs = zip(self.graph[holder], rows(message.shares, KEY), strict=True)
            for party, share in ((holder, to_bytes(message.own)), *theirs):
                if party in shares:
                    shares[party][sorted((party, *self.graph[party])).index(holder) + 1] = share
        total = np.zeros(self.terms.length, np.uint32)
        for party, message in self._masked.items():
            total = total + np.asarray(message.vector, np.uint32) - self._self_mask(party, shares[party])
        for party in dropped:
            key = self._mask_key(party, shares[party])
            for other in self.graph[party]:
                if other in self._masked:
                    pair = pair_mask(key, to_bytes(self._keys[other].mask_key), self._session, self.terms.length)
                    total = total - pair if other < party else total + pair
        return total

    def _self_mask(self, party: int, shares: Mapping[int, bytes]) -> UInt32[np.ndarray, " length"]:
        """A survivor's self mask, computed from the shares of its seed."""
        seed = crypto.combine_shares(shares, self.terms.threshold)
        if crypto.derive(seed, self._session, "commitment") != to_bytes(self._sealed[party].commitment):
            self._stop(f"a share of the seed of party {party} is false")
        return crypto.mask(crypto.derive(seed, self._session, "self mask"), self.terms.length)

    def _mask_key(self, party: int, shares: Mapping[int, bytes]) -> bytes:
        """The private mask key of a party that dropped out, computed from its shares."""
        key = crypto.combine_shares(shares, self.terms.threshold)
        if crypto.public_key(key) != to_bytes(self._keys[party].mask_key):
            self._stop(f"a share of the mask key of party {party} is false")
        return key

    def _by_party(self, messages: Iterable[FromParty], known: Mapping[int, object] | None) -> dict[int, FromParty]:
        """Messages by sender; refused if of another session, from an unknown party, or a sender's second one."""
        found: dict[int, FromParty] = {}
        for message in messages:
            party, kind = int(message.party), type(message).__name__
            if to_bytes(message.session) != self._session:
                self._stop(f"a {kind} of party {party} belongs to another session")
            if known is not None and party not in known:
                self._stop(f"a {kind} came from party {party}, which is not or no longer in this sum")
            if party in found:
                self._stop(f"two {kind} messages came from party {party}")
            found[party] = message
        return found

    def _check_enough(self, there: Mapping[int, object], needed: Iterable[int], did: str) -> None:
        """Stop unless enough parties are left, and enough holders of shares of each secret that will be needed."""
        if len(there) < self.terms.threshold:
            self._stop(f"{len(there)} parties {did}, {self.terms.threshold} are needed")
        for party in needed:
            count = sum(holder in there for holder in (party, *self.graph[party]))
            if count < self.terms.threshold:
                self._stop(
                    f"of party {party} and its {self.terms.neighbours} neighbours {count} {did}, "
                    f"{self.terms.threshold} are needed"
                )

    def _stop(self, why: str) -> NoReturn:
        raise SecureSumError(f"the secure sum stopped: {why}. No party's vector was unmasked; start a new sum.")
