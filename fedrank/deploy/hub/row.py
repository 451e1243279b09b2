"""The stages of a hub, put together by its settings; those that close rounds and draw devices."""

from __future__ import annotations

import functools
import hashlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fedrank.deploy.draws import CHECK, DUE, SEED, beacon_of, drawn, turn, word
from fedrank.deploy.hub.admission import Admission
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.hub.keys import Keys
from fedrank.deploy.hub.learning import CollectedModel, ComparedModel, Model, OwnModel
from fedrank.deploy.hub.publishing import PublicLog, Publishing
from fedrank.deploy.hub.settings import MOST_REPORTS, HubSettings
from fedrank.deploy.hub.stages import OpenRound, Outcome, Stage
from fedrank.deploy.hub.store import Store
from fedrank.deploy.hub.tokens import Issuer
from fedrank.deploy.oblivious.tokens import draw_key
from fedrank.deploy.terms import Terms


class Closing(Stage):
    """Closes rounds (OPEN → CLOSED).

    Args:
        settings: Settings of the hub.
        terms: Terms of the hub.
        store: The log.
        round_: The open round.
    """

    def __init__(self, settings: HubSettings, terms: Terms, store: Store, round_: OpenRound):
        self.settings, self.terms, self.store, self.round = settings, terms, store, round_
        self._came = 0  # reports of the round in the log, when they were last counted

    def recover(self, number: int) -> None:
        """Forget the number of reports, which the store is asked for again, as after a restart."""
        self._came = 0

    def begin(self, number: int, ended: OpenRound) -> None:
        """Begin the count of reports of the round that follows ``ended`` at 0."""
        self._came = 0

    def count(self, number: int) -> None:
        """Count the reports of the open round that any process took and that are no checks.

        Raises:
            StoreError: The log cannot be read.
        """
        self._came = self.store.count_reports(number, self.terms.check.head if self.terms.check else b"")

    @property
    def room(self) -> int:
        """Number of reports that the open round still takes."""
        most = MOST_REPORTS if self.settings.round_seconds else self.settings.cohort
        return most - self.round.learnable

    def seconds(self) -> float | None:
        """Seconds after its opening at which the round closes with the reports that it has.

        None where more must come, or another process closes it.
        """
        if not self.store.leads:
            return None
        n, s = max(self._came, self.round.learnable), self.settings
        if n >= s.cohort:
            return s.round_seconds
        # Where devices are drawn, a round in which too few are is over at its deadline: the next draws others.
        return s.deadline if s.deadline and (n >= s.least or self.terms.draws) else None

    def close(self, number: int) -> None:
        """Close a round; may be repeated.

        Raises:
            StoreError: It cannot be written.
        """
        with self.store.alone("close"):
            if self.store.shared:  # any process took reports
                self.round.recount(dict(self.store.reports(number)))
            # By lot, and not before all have come: speed brings no advantage, and the outcome cannot be foreseen.
            of_model = sorted(d for d, message in self.round.counted.items() if not self.terms.is_check(message))
            unused = secrets.SystemRandom().sample(of_model, max(0, len(of_model) - self.settings.cohort))
            self.store.close_round(number, self.round.seconds, unused, self.round.checks)


class _Lots(NamedTuple):
    """The draws of one round.

    Attributes:
        number: Its number.
        beacon: The beacon; empty: no device is drawn.
        last: The last device that takes part, where devices show their own tokens.
        pair: Head of a check's pair of models.
    """

    number: int = 0
    beacon: bytes = b""
    last: int = 0
    pair: bytes = b""


class Draws(Stage):
    """Draws of what reports are shown with: whether one is due, compares models, and which seed it has.

    Args:
        terms: Terms of the hub.
        store: The log.
        admission: Knows the devices.
        issuer: Knows the beacons of blind tokens; None: devices show their own tokens.
    """

    def __init__(self, terms: Terms, store: Store, admission: Admission, issuer: Issuer | None):
        self._terms, self._store, self._devices, self._issuer = terms, store, admission.devices, issuer
        self._lots = _Lots()

    def show(self, number: int, question: bytes, best: bytes | None) -> None:
        """Draw anew for a round."""
        differs = best is not None and best[5:] != question[5:]
        pair = hashlib.sha256(best[5:]).digest()[:4] if best is not None and differs else b""
        if self._issuer is not None:
            beacon = self._issuer.beacon(number)
            self._lots = _Lots(number, b"" if beacon is None else beacon.value, 0, pair)
        else:
            # A device that enrolled later may have known what decides, and have chosen its token by it.
            self._lots = _Lots(number, beacon_of(question), self._store.last_device_before(number), pair)

    def refuse(self, device: int, message: bytes) -> Outcome | None:
        """NOT_DUE where the report is not wanted of the device."""
        return None if self._wants(device, message) else Outcome.NOT_DUE

    def _wants(self, device: int, report: bytes) -> bool:
        terms, lots = self._terms, self._lots
        if self._issuer is not None:
            key = draw_key(device)
            known = bool(lots.beacon) and turn(key, lots.beacon, terms.tokens) == (lots.number - 1) % terms.tokens
        else:
            key, known = self._devices.key(device), device <= lots.last
        if terms.draws and not (known and drawn(key, DUE, lots.beacon, terms.due)):
            return False
        if not terms.is_check(report):
            # A device that was drawn to compare may learn instead, as those do that know no checks.
            return not terms.drawn_seeds or report[1:5] == word(key, SEED, lots.beacon).to_bytes(4, "little")
        return known and report[1:5] == lots.pair and drawn(key, CHECK, lots.beacon, terms.checks)


@dataclass(frozen=True)
class Row:
    """The stages of a hub: those that every hub has, of one kind or another, and those that settings add.

    Attributes:
        round: The open round, which they share.
        admission: Admits devices.
        model: Learns.
        closing: Closes rounds.
        publishing: Shows models.
        keys: The keys that change while the hub runs.
        draws: Refuses reports of devices that were not drawn for them; None: nothing is drawn.
        issuer: Sells tokens; None: devices report with their own.
    """

    round: OpenRound
    admission: Admission
    model: Model
    closing: Closing
    publishing: Publishing
    keys: Keys
    draws: Draws | None = None
    issuer: Issuer | None = None

    def __iter__(self) -> Iterator[Stage]:
        """The stages in their order: the public log shows, and draws need, what the keys and the issuer have."""
        stages = (self.admission, self.model, self.closing, self.keys, self.issuer, self.publishing, self.draws)
        yield from (one for one in stages if one is not None)


def row_of(folder: Path, store: Store, settings: HubSettings, terms: Terms) -> Row:
    """The row of a hub on one log.

    Args:
        folder: Folder of the hub.
        store: The log, opened for writing.
        settings: Settings of the hub.
        terms: Terms of the hub.

    Raises:
        RunError: A file cannot be read or belongs to something else.
    """
    round_, admission = OpenRound(terms), Admission(settings, store)
    issuer = Issuer(store, terms, settings.collect) if terms.tokens else None
    draws = Draws(terms, store, admission, issuer) if terms.draws or terms.check is not None else None
    model: Model
    if settings.collect:
        model = CollectedModel(settings, terms, store)
    else:
        kind = OwnModel if terms.check is None else ComparedModel
        model = kind(folder / "checkpoints", settings, terms, store)
    publishing, keys = Publishing(), Keys(folder, store, settings, terms, issuer)
    if terms.log:
        others = list if issuer is None else issuer.entries
        copy = None
        if settings.copy_to:
            copy = functools.partial(HubFolder(folder).update_copy, Path(settings.copy_to), store.copied_to()[1])
        publishing = PublicLog(lambda: keys.signers, store, model, others, settings.witnesses, copy)
    return Row(round_, admission, model, Closing(settings, terms, store, round_), publishing, keys, draws, issuer)
