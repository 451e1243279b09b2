"""Which reports of an open round come from devices that were drawn to send them."""

from __future__ import annotations

import hashlib

from fedrank.deploy.draws import CHECK, DUE, SEED, beacon_of, drawn, word
from fedrank.deploy.terms import Terms


class Drawn:
    """The draws of one round.

    Args:
        terms: Terms of the hub.
        question: The round's model message.
        best: The best model's; None: nothing is compared.
        last_device: The highest number of a device when the round was opened.

    Attributes:
        draws: Not every report of every device is wanted.
    """

    def __init__(self, terms: Terms, question: bytes, best: bytes | None, last_device: int):
        self.draws = terms.draws or terms.check is not None
        self._terms = terms
        if not self.draws:
            return
        self._beacon = beacon_of(question)
        self._head = None if terms.check is None else terms.check.head
        # A device that enrolled later may have known what decides, and have chosen its token by it.
        self._last = last_device
        other = best is not None and best[5:] != question[5:]
        self._pair = hashlib.sha256(best[5:]).digest()[:4] if best is not None and other else b""

    def wants(self, device: int, key: bytes, report: bytes) -> bool:
        """Whether a report is wanted of a device.

        Args:
            device: Its number.
            key: SHA-256 of its token.
            report: The message.
        """
        terms, known = self._terms, device <= self._last
        if terms.draws and not (known and drawn(key, DUE, self._beacon, terms.due)):
            return False
        if self._head is None or report[:1] != self._head:
            # A device that was drawn to compare may learn instead, as those do that know no checks.
            return not terms.drawn_seeds or report[1:5] == word(key, SEED, self._beacon).to_bytes(4, "little")
        return known and report[1:5] == self._pair and drawn(key, CHECK, self._beacon, terms.checks)
