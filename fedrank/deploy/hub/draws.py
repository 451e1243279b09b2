"""The stage that takes reports only of the devices that were drawn to send them."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from fedrank.deploy.draws import CHECK, DUE, SEED, beacon_of, drawn, word
from fedrank.deploy.hub.admission import Admission
from fedrank.deploy.hub.stages import Outcome, Stage
from fedrank.deploy.hub.store import Store
from fedrank.deploy.terms import Terms


class _Lots(NamedTuple):
    """The draws of one round: its beacon, the last device that takes part, and the head of a check's pair of models."""

    beacon: bytes = b""
    last: int = 0
    pair: bytes = b""


class Draws(Stage):
    """Draws of devices: whether one is due, compares models, and which seed it has.

    Args:
        terms: Terms of the hub.
        store: The log.
        admission: Knows the devices.
    """

    def __init__(self, terms: Terms, store: Store, admission: Admission):
        self._terms, self._store, self._devices = terms, store, admission.devices
        self._lots = _Lots()

    def show(self, number: int, question: bytes, best: bytes | None) -> None:
        """Draw anew for a round."""
        differs = best is not None and best[5:] != question[5:]
        pair = hashlib.sha256(best[5:]).digest()[:4] if best is not None and differs else b""
        # A device that enrolled later may have known what decides, and have chosen its token by it.
        self._lots = _Lots(beacon_of(question), self._store.last_device_before(number), pair)

    def refuse(self, device: int, message: bytes) -> Outcome | None:
        """NOT_DUE where the report is not wanted of the device."""
        return None if self._wants(device, self._devices.key(device), message) else Outcome.NOT_DUE

    def _wants(self, device: int, key: bytes, report: bytes) -> bool:
        terms, lots = self._terms, self._lots
        known = device <= lots.last
        if terms.draws and not (known and drawn(key, DUE, lots.beacon, terms.due)):
            return False
        if not terms.is_check(report):
            # A device that was drawn to compare may learn instead, as those do that know no checks.
            return not terms.drawn_seeds or report[1:5] == word(key, SEED, lots.beacon).to_bytes(4, "little")
        return known and report[1:5] == lots.pair and drawn(key, CHECK, lots.beacon, terms.checks)
