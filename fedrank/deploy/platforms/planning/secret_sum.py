"""One platform's part in secure sums of its integers over users, kept in its file from step to step.

The vector is the kept answer of the exchange, noise included: it is the same in every sum that is begun, so that a sum
that is begun again tells nothing new. Keys and masks are new in each, and what was kept of an earlier one is gone: it
can never be unmasked. Within a sum, a step that is asked for again is answered with the same bytes, and a platform that
was killed between two steps goes on.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from jaxtyping import UInt32

from fedrank.core.errors import SecureSumError
from fedrank.deploy.platforms.key_value_store import KeyValueStore
from fedrank.deploy.platforms.planning.schedule import Due, sum_steps, sum_terms
from fedrank.deploy.platforms.steps import RefusedError, decoded_as
from fedrank.deploy.platforms.terms import Terms
from fedrank.privacy.secure_sum.party import Party

_DIGEST = 32
_KEYS, _SHARES, _VECTORS, _UNMASKING = range(4)


class SecretSums:
    """A platform's part in secure sums; for one thread.

    Args:
        terms: Terms of the federation.
        index: Number of the platform, from 0.
        store: Its database.
    """

    def __init__(self, terms: Terms, index: int, store: KeyValueStore):
        self._terms, self._index, self._store = terms, index, store

    def step(self, due: Due, step: int, body: bytes, vector: UInt32[np.ndarray, " numbers"]) -> bytes:
        """The reply to one step of a sum.

        Args:
            due: The exchange whose integers are summed.
            step: 0..3: keys, shares, vectors, unmasking.
            body: The request's bytes; keys with another session begin another sum.
            vector: What the platform adds.

        Raises:
            RefusedError: No request of this step; or the sum cannot go on and has to be begun again.
        """
        steps = sum_steps(self._terms, due.place)
        if not 0 <= step < len(steps):
            raise RefusedError("not-found")
        request = decoded_as(steps[step].request, body)
        at, digest = f"sum/{due.round:010}/{due.place:02}/", hashlib.sha256(body).digest()
        kept = self._store.get(f"{at}{step}")
        if kept is not None and kept[:_DIGEST] == digest:
            return kept[_DIGEST:]
        if kept is not None and step != _KEYS:
            raise RefusedError("sum-stopped")
        agreed, old = sum_terms(self._terms, due.place), [f"{at}{name}" for name, _ in self._store.below(at)]
        try:
            if step == _KEYS:
                party = Party(agreed, self._index)
                reply: Any = party.advertise(request)
            else:
                secrets = self._store.get(f"{at}party")
                if secrets is None:
                    raise RefusedError("sum-stopped")
                party = Party.unpacked(agreed, secrets)
                if step == _SHARES and not set(np.asarray(request.parties).tolist()) <= set(due.parties):
                    raise RefusedError("out-of-range")
                if step == _SHARES:
                    reply = party.share(request)
                elif step == _VECTORS:
                    reply = party.mask(request, vector)
                else:
                    reply = party.unmask(request)
        except SecureSumError as error:
            self._store.put({}, [f"{at}party"])
            raise RefusedError("sum-stopped") from error
        data = steps[step].reply.encode(reply)
        pieces = {f"{at}{step}": digest + data}
        # After the last step its secrets are of no more use to anybody who keeps to the rules.
        gone = old if step == _KEYS else [f"{at}party"] if step == _UNMASKING else []
        if step != _UNMASKING:
            pieces[f"{at}party"] = party.packed()
        self._store.put(pieces, gone)
        return data
