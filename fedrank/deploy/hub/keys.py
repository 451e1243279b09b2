"""A hub's private keys, which change while it runs: of its public log, of its gateway, of the issuer of its tokens.

The first keys are files in the hub's folder. A change is an entry of the public log (:class:`~fedrank.deploy.log.tree.
Rotation`), appended with the row that has the new private key. Old and new key both work for ``overlap_days``: heads
have both signatures, the gateway opens requests for both. Then the old private key is deleted. The gateway's changes
by itself every ``gateway_days``, so that a stolen one opens what was sent in its period; the issuer's is of an epoch.

A change is asked for by a row (:func:`ask_rotation`), which any process may write; the leader's writer makes it.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Sequence
from pathlib import Path

from fedrank.core.errors import ConfigError, RunError
from fedrank.deploy.hub.settings import HubSettings
from fedrank.deploy.hub.stages import Stage
from fedrank.deploy.hub.store import KeyRow, Store
from fedrank.deploy.hub.tokens import Issuer, new_offer
from fedrank.deploy.log.note import LOG, Signer, new_private_key, origin_of
from fedrank.deploy.log.proof import UnprovenError, newest_keys
from fedrank.deploy.log.tree import GATEWAY_KEY, ISSUER_KEY, LOG_KEY, ROTATION, Rotation, statement
from fedrank.deploy.oblivious.encapsulation import Gateway, public_key_of
from fedrank.deploy.oblivious.encapsulation import new_private_key as new_gateway_key
from fedrank.deploy.oblivious.tokens import key_id, parts_of
from fedrank.deploy.terms import Terms
from fedrank.engine.checkpoint import write_atomically

_log = logging.getLogger("fedrank.hub")

#: Names of the files with the first private keys, and of the operator's, which is to be kept elsewhere.
LOG_FILE, GATEWAY_FILE, OPERATOR_FILE = "log.key", "gateway.key", "operator.key"
#: Keys that change, by the names that operators call them.
WHAT = {"log": LOG_KEY, "gateway": GATEWAY_KEY, "issuer": ISSUER_KEY}
_FILES = {LOG_KEY: LOG_FILE, GATEWAY_KEY: GATEWAY_FILE}
_DAY = 86_400.0


def read_private(file: Path) -> bytes:
    """The private key in a file, 32 bytes.

    Raises:
        RunError: The file is missing or holds no key.
    """
    try:
        key = bytes.fromhex(file.read_text(encoding="ascii").strip())
    except (OSError, ValueError) as error:
        raise RunError(f"{file}: the private key cannot be read. Put it back from a copy.") from error
    if len(key) != 32:
        raise RunError(f"{file}: is no private key, which has 64 hexadecimal digits.")
    return key


def make_key(file: Path) -> str:
    """Make a private key in a file, if there is none; returns the public key as hexadecimal digits.

    Raises:
        RunError: It cannot be written, or what is there is no key.
    """
    gateway = file.name == GATEWAY_FILE
    if not file.exists():
        write_atomically(file, (new_gateway_key if gateway else new_private_key)().hex().encode() + b"\n", 0o600)
    return _public(GATEWAY_KEY if gateway else LOG_KEY, read_private(file)).hex()


def operator_of(file: Path, terms: Terms) -> Signer:
    """Signer of what only the operator of a hub may say.

    Raises:
        ConfigError: The file has not the key that the terms name.
        RunError: It is missing or holds no key.
    """
    signer = Signer(origin_of(terms.hub), LOG, read_private(file))
    if signer.key.public.hex() != terms.operator:
        raise ConfigError(f"{file}: is not the operator's key of the hub's terms. Use the one made with the hub.")
    return signer


def _public(what: int, private: bytes) -> bytes:
    return public_key_of(private) if what == GATEWAY_KEY else Signer("log", LOG, private).key.public


def _made(rows: Sequence[KeyRow], what: int) -> list[tuple[Rotation, KeyRow]]:
    """The changes of a key that were made, in their order."""
    done = [row for row in rows if row.ends is not None and row.entry[1] == what]
    return [(Rotation.parse(row.entry), row) for row in done]


def private_keys(folder: Path, store: Store, terms: Terms, what: int) -> list[bytes]:
    """The private keys of the log or of the gateway that still work, the newest first.

    Args:
        folder: Of the hub.
        store: Its store.
        terms: Its terms.
        what: :data:`~fedrank.deploy.log.tree.LOG_KEY` or :data:`~fedrank.deploy.log.tree.GATEWAY_KEY`.

    Raises:
        RunError: The file of the first key is missing or holds another, or the newest key is gone.
    """
    made, file = _made(store.rotations(), what), folder / _FILES[what]
    found = [row.private for _, row in reversed(made) if row.private]
    if not made or file.exists():
        first, named = read_private(file), terms.log if what == LOG_KEY else terms.gateway
        if _public(what, first).hex() != named:
            raise RunError(f"{file}: is not the key of the hub's terms. Put it back from a copy.")
        found.append(first)
    if made and (not found or _public(what, found[0]) != made[-1][0].new):
        raise RunError(f"{store.path}: has not the private key that took the place of {file.name}. Restore a backup.")
    return found


def ask_rotation(folder: Path, store: Store, terms: Terms, what: int, operator: Path) -> None:
    """Ask the leader of a hub, which may run, to change a key.

    Args:
        folder: Of the hub.
        store: Its store.
        terms: Its terms.
        what: One of :data:`WHAT`.
        operator: File of the operator's key, which the log's key needs where the terms name one.

    Raises:
        ConfigError: The hub has no such key, or a change of it is still to be made.
        RunError: A key cannot be read, or nothing can be written.
    """
    has = {LOG_KEY: terms.log, GATEWAY_KEY: terms.gateway and terms.log, ISSUER_KEY: terms.tokens and terms.log}
    if not has[what]:
        raise ConfigError(f"{folder}: has no such key that a public log could say the change of.")

    def make(rows: Sequence[KeyRow]) -> tuple[bytes, bytes]:
        if any(row.ends is None and row.entry[1] == what for row in rows):
            raise ConfigError(f"{folder}: such a change is waiting to be made: start the hub, or look at its log.")
        if what == ISSUER_KEY:
            return bytes([ROTATION, what]), b""
        made, old = _made(rows, what), private_keys(folder, store, terms, what)[0]
        new = new_gateway_key() if what == GATEWAY_KEY else new_private_key()
        when = max(int(time.time()), made[-1][0].when + 1 if made else 0)
        one = Rotation(what, when, _public(what, old), _public(what, new))
        if what == LOG_KEY:
            signers = [Signer("log", LOG, old), *([operator_of(operator, terms)] if terms.operator else [])]
            said = statement(terms.hub, one.entry())
            one = one._replace(signatures=tuple(signer.sign(said) for signer in signers))
        return one.entry(), new

    store.ask_rotation(make)


class Keys(Stage):
    """The keys of a running hub.

    Args:
        folder: Folder of the hub.
        store: The store, opened for writing.
        settings: Settings of the hub.
        terms: Terms of the hub.
        issuer: Sells tokens; None: no one does.

    Attributes:
        gateway: Opens encapsulated requests; None: there is no gateway.
        signers: Sign heads of the public log, the newest first; empty: there is no log.

    Raises:
        RunError: A key cannot be read, or is not that of the terms.
    """

    def __init__(self, folder: Path, store: Store, settings: HubSettings, terms: Terms, issuer: Issuer | None):
        self._folder, self._store, self._settings, self._terms, self._issuer = folder, store, settings, terms, issuer
        self.signers: tuple[Signer, ...] = ()
        self.gateway = Gateway(*private_keys(folder, store, terms, GATEWAY_KEY)) if terms.batch else None
        self._rows: list[KeyRow] | None = None
        self._next = 0.0
        self._stuck: set[Path] = set()  # files of keys that are over, which could not be deleted
        self._read()

    def _read(self) -> None:
        """Use the keys of the folder and the store."""
        if self._terms.log:
            keys = private_keys(self._folder, self._store, self._terms, LOG_KEY)
            self.signers = tuple(Signer(origin_of(self._terms.hub), LOG, one) for one in keys)
        if self.gateway is not None:
            self.gateway.use(*private_keys(self._folder, self._store, self._terms, GATEWAY_KEY))
        if self._issuer is not None and self._rows is not None:  # it has read what was there at the start
            self._issuer.reread()
        self._rows = self._store.rotations()

    def recover(self, number: int) -> None:
        """Use what other processes have changed."""
        if self._store.rotations() != self._rows:
            self._read()

    def seconds(self) -> float:
        """Seconds until something is to be done; below 0: it is now."""
        return self._next - time.time()

    def renew(self) -> bool:
        """Make the changes that were asked for or are due, and destroy keys that are over; True if keys changed.

        Raises:
            StoreError: It cannot be written.
        """
        now, store = time.time(), self._store
        if store.leads:
            self._make_waiting(now)
            if self._schedule() <= now:
                with contextlib.suppress(ConfigError):  # an operator has just asked for it
                    ask_rotation(self._folder, store, self._terms, GATEWAY_KEY, Path())
                self._make_waiting(now)
        if changed := self._destroy(now) or store.rotations() != self._rows:
            self._read()
        ends = [row.ends for row in self._rows or () if row.ends is not None and row.ends > now]
        self._next = min([*ends, self._schedule()])
        return changed

    def _schedule(self) -> float:
        """Time at which the gateway's key is to change, in seconds since 1970; infinite: not by this process."""
        if self.gateway is None or not (self._settings.gateway_days and self._terms.log and self._store.leads):
            return math.inf
        made, first = _made(self._store.rotations(), GATEWAY_KEY), self._store.round(0)
        since = made[-1][0].when if made else math.inf if first is None else first.opened
        return since + self._settings.gateway_days * _DAY

    def _make_waiting(self, now: float) -> None:
        """Make the changes that were asked for; one that devices would not follow is dropped."""
        for row in self._store.rotations():
            if row.ends is None:
                try:
                    self._make(row, now)
                except UnprovenError as error:
                    _log.error("a change of a key is dropped (%s); ask for it again: fedrank hub rotate", error)
                    self._store.drop_rotation(row.number)

    def _make(self, row: KeyRow, now: float) -> None:
        """Make a change that was asked for; an UnprovenError where it does not follow from those in the log."""
        offer, ends = None, now + self._settings.overlap_days * _DAY
        if row.entry[1] == ISSUER_KEY:
            sold = None if self._issuer is None else self._issuer.on_sale()
            if sold is None:
                return  # not yet: the hub has not begun
            made, (epoch, old) = _made(self._store.rotations(), ISSUER_KEY), sold
            new, private, secret = new_offer()
            when = max(int(now), made[-1][0].when + 1 if made else 0)
            ids = [key_id(parts_of(one)[0]) for one in (old, new)]
            row, ends = row._replace(entry=Rotation(ISSUER_KEY, when, ids[0], ids[1]).entry()), now
            offer = (epoch, new, private, secret)
        else:
            one = Rotation.parse(row.entry)
            newest = private_keys(self._folder, self._store, self._terms, one.what)[0]
            if one.old != _public(one.what, newest):
                raise UnprovenError("it replaces a key that was replaced before")
            newest_keys(self._terms, [*(entry for _, entry in self._store.notices(self._store.log_size())), row.entry])
        self._store.rotate(row, ends, offer)

    def _destroy(self, now: float) -> bool:
        """Delete private keys that others took the place of, once both worked for long enough; True if there were."""
        over: list[int] = []
        files = []
        for what, name in _FILES.items():
            made = [row for _, row in _made(self._store.rotations(), what)]
            last = max((n for n, row in enumerate(made) if (row.ends or 0) <= now), default=-1)
            over += [row.number for row in made[: max(last, 0)] if row.private is not None]
            if last >= 0 and (self._folder / name).exists():
                files.append(self._folder / name)
        for file in files:
            try:
                file.unlink(missing_ok=True)
                self._stuck.discard(file)
            except OSError as error:
                if file not in self._stuck:
                    _log.error("%s: this key is over and cannot be deleted (%s); delete it", file, error)
                self._stuck.add(file)
        if over and self._store.leads:
            self._store.destroy_keys(over)
        return bool(over or set(files) - self._stuck)
