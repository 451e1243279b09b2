"""The stage that admits devices: those that are enrolled, and the credentials that new ones enrol with.

A *credential* has a name, a secret and a cap: how many devices may enrol with it in its window of days. Every
enrolment counts, and goes on counting after the device has left, so that leaving and enrolling anew does not help.
A credential for a back end enrols no device itself: with its secret the back end asks the hub for *codes*, each good
for one device and a few minutes. The hub does not keep which code a device had, so that the back end cannot tell whose
it was.

Secrets are random and shown once; the log keeps their SHA-256. The command line writes credentials into the log of a
hub that runs; the hub looks them up when a device enrols.
"""

from __future__ import annotations

import functools
import hmac
import logging
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass

from fedrank.core.errors import ConfigError, RunError
from fedrank.core.trees import Json
from fedrank.deploy.draws import key_of
from fedrank.deploy.hub.settings import HubSettings
from fedrank.deploy.hub.stages import Stage
from fedrank.deploy.hub.store import Admitted, Store, StoreError

_log = logging.getLogger("fedrank.hub")

#: What the secret of a credential and a code begin with.
SECRET, CODE = "cred.", "code."
#: Longest name of a credential, in characters.
_LONGEST = 64
#: Largest cap, and longest window in days.
_MOST, _LONGEST_WINDOW = 100_000_000, 36_500

#: Look-ups of unknown tokens in a second: more are answered that the hub is not available.
_LOOKUPS = 500
_COLUMNS = "number, name, devices, days, code_minutes, revoked"


class NotAdmittedError(RunError):
    """A device may not enrol.

    Args:
        reason: The reason in the HTTP protocol: ``"unauthorised"``, ``"enrolment-full"`` or ``"hub-full"``.
    """

    def __init__(self, reason: str):
        super().__init__(f"a device may not enrol: {reason}.")
        self.reason = reason


@dataclass(frozen=True)
class Credential:
    """A credential as the log has it.

    Attributes:
        number: Its number.
        name: Its name.
        devices: Cap: devices that may enrol with it within its window.
        days: The window in days, today included; 0: of all time.
        code_minutes: Minutes for which its codes are good; 0: it has none, and enrols devices itself.
        revoked: It admits no device any more.
    """

    number: int
    name: str
    devices: int
    days: int
    code_minutes: int
    revoked: bool

    @property
    def key(self) -> bytes:
        """Name that its enrolments are counted under."""
        return b"credential:%d" % self.number


def today() -> int:
    """Days since 1970."""
    return int(time.time() // 86400)


class Credentials:
    """The credentials of a hub's log. Methods raise :class:`~fedrank.deploy.hub.store.StoreError` where it fails.

    Args:
        store: The log.
    """

    def __init__(self, store: Store):
        self._store = store

    def add(self, name: str, devices: int, *, days: int = 0, code_minutes: int = 0) -> str:
        """Add a credential and return its secret, which cannot be shown again.

        Args:
            name: A new name, 1 to 64 printable characters.
            devices: Devices that may enrol with it within the window, at least 1.
            days: The window in days; 0: of all time.
            code_minutes: Minutes for which codes are good that its owner asks for; 0: it enrols devices itself.

        Raises:
            ConfigError: The name is taken, or a number is out of range.
        """
        if not 1 <= len(name) <= _LONGEST or not name.isprintable() or name != name.strip():
            raise ConfigError(f"name must have 1..{_LONGEST} printable characters, got {name!r}.")
        for what, value, low, high in (
            ("devices", devices, 1, _MOST),
            ("days", days, 0, _LONGEST_WINDOW),
            ("code_minutes", code_minutes, 0, 60 * 24 * 365),
        ):
            if not low <= value <= high:
                raise ConfigError(f"{what} must be in {low}..{high}, got {value}.")
        secret = SECRET + secrets.token_urlsafe(32)
        with self._store.transaction() as db:
            if db.execute("SELECT 1 FROM credential WHERE name = ?", (name,)).fetchone():
                raise ConfigError(f"there is a credential {name!r} already; choose another name.")
            db.execute(
                "INSERT INTO credential (name, secret, devices, days, code_minutes, made) VALUES (?, ?, ?, ?, ?, ?)",
                (name, key_of(secret), devices, days, code_minutes, today()),
            )
        return secret

    def revoke(self, name: str) -> bool:
        """Revoke a credential and its codes. Returns whether it was valid.

        Raises:
            ConfigError: There is no such credential.
        """
        with self._store.transaction() as db:
            row = db.execute("SELECT number, revoked FROM credential WHERE name = ?", (name,)).fetchone()
            if row is None:
                known = ", ".join(one.name for one, _ in self.all()) or "none"
                raise ConfigError(f"there is no credential {name!r}. There are: {known}.")
            db.execute("DELETE FROM code WHERE credential = ?", (row[0],))
            db.execute("UPDATE credential SET revoked = coalesce(revoked, ?) WHERE number = ?", (today(), row[0]))
        return row[1] is None

    def members(self, name: str) -> list[int]:
        """Numbers of the enrolled devices that a credential admitted."""
        join = "member JOIN credential ON credential.number = member.credential"
        rows = self._store.query(f"SELECT device FROM {join} WHERE credential.name = ? ORDER BY device", (name,))
        return [number for (number,) in rows]

    def all(self) -> list[tuple[Credential, int]]:
        """The credentials in the order in which they were made, and how many devices count against the cap of each."""
        rows = self._store.query(f"SELECT {_COLUMNS} FROM credential ORDER BY number")
        return [(one, self.count_used(one.key, one.days)) for one in map(_credential, rows)]

    def count_used(self, key: bytes, days: int) -> int:
        """Devices that were admitted under a key within a window of ``days``; 0: of all time."""
        since = today() - days + 1 if days else 0
        query = "SELECT coalesce(sum(devices), 0) FROM admission WHERE name = ? AND day >= ?"
        return int(self._store.query(query, (key, since))[0][0])

    def of_secret(self, digest: bytes) -> Credential | None:
        """The credential of a secret's SHA-256; None if there is none, or it was revoked."""
        rows = self._store.query(f"SELECT {_COLUMNS} FROM credential WHERE secret = ? AND revoked IS NULL", (digest,))
        return _credential(rows[0]) if rows else None

    def of_code(self, digest: bytes) -> Credential | None:
        """The credential of a code's SHA-256; None if it was used, is too old, or its credential was revoked."""
        # One that is good for longer than any was made while the clock was ahead.
        now = time.time()
        rows = self._store.query(
            f"SELECT {_COLUMNS} FROM credential WHERE revoked IS NULL AND number = (SELECT credential FROM code "
            "WHERE secret = ? AND good_until > ? AND good_until <= ? + 60 * credential.code_minutes)",
            (digest, now, now),
        )
        return _credential(rows[0]) if rows else None

    def code(self, owner: Credential) -> tuple[str, float]:
        """A new code, good for one device, and until when it is good, in seconds since 1970."""
        made, until = CODE + secrets.token_urlsafe(24), time.time() + 60 * owner.code_minutes
        with self._store.transaction() as db:
            db.execute("DELETE FROM code WHERE good_until < ?", (time.time(),))
            db.execute("INSERT INTO code VALUES (?, ?, ?)", (key_of(made), owner.number, until))
        return made, until

    def as_json(self) -> list[dict[str, Json]]:
        """The credentials for the status page: what each allows and how much of it is used."""
        return [
            {
                "name": one.name,
                "devices": one.devices,
                "used": used,
                "days": one.days,
                "codes": bool(one.code_minutes),
                "revoked": one.revoked,
            }
            for one, used in self.all()
        ]


def _credential(row: tuple) -> Credential:
    return Credential(row[0], row[1], row[2], row[3], row[4], row[5] is not None)


class Devices:
    """Numbers and hashed tokens of the enrolled devices, in memory; about 250 bytes a device."""

    def __init__(self):
        self.reset({})

    def __len__(self) -> int:
        return len(self._tokens)

    def __contains__(self, number: object) -> bool:
        return number in self._tokens

    def find(self, token: str) -> int | None:
        """The number of the device with this token; None if there is none."""
        digest = key_of(token)
        # How long the look-up takes may tell about digests, never about tokens: no token can be made for a digest.
        number = self._numbers.get(digest)
        if number is None or not hmac.compare_digest(self._tokens.get(number, b""), digest):
            return None
        return number

    def key(self, number: int) -> bytes:
        """SHA-256 of the token of a device, with which it draws; empty if it is not enrolled."""
        return self._tokens.get(number, b"")

    def add(self, devices: Iterable[tuple[int, bytes]]) -> None:
        """Add devices, each given by its number and the digest of its token."""
        for number, digest in devices:
            self._tokens[number] = digest
            self._numbers[digest] = number

    def reset(self, tokens: dict[int, bytes]) -> None:
        """Know these devices, and no others."""
        self._numbers = {digest: number for number, digest in tokens.items()}
        self._tokens = tokens

    def remove(self, number: int) -> None:
        """Remove a device, which must be enrolled; its number is not given again."""
        del self._numbers[self._tokens.pop(number)]


@dataclass(frozen=True)
class Enrolment:
    """A device that wants to enrol.

    Attributes:
        token: SHA-256 of the token that it is to have.
        ticket: SHA-256 of its credential's secret or its code; empty: it showed the hub's own token.
        code: The ticket is a code.
        identity: Hash of its attested identity; empty: it has none.
    """

    token: bytes
    ticket: bytes = b""
    code: bool = False
    identity: bytes = b""


class Admission(Stage):
    """The devices of a hub and who may become one.

    Args:
        settings: Settings of the hub.
        store: The log.
    """

    def __init__(self, settings: HubSettings, store: Store):
        self._settings, self._store = settings, store
        self.devices = Devices()
        self.credentials = Credentials(store)
        self._listed = self.credentials.as_json()
        self._said_full = False
        self._second, self._lookups = 0, 0
        self.read_all()

    def read_all(self) -> None:
        """Know the devices that the store has, and no others."""
        self._connections = self._store.connections
        known = dict(self._store.devices())
        self.devices.reset(known)
        self._met = self._before = max(known, default=0)  # highest at the last look, and at the one before it

    def stop(self) -> None:
        """Close the connection of the event loop."""
        if "_reader" in vars(self):
            self._reader.close()

    @functools.cached_property
    def _reader(self) -> Store:
        """The connection of the event loop."""
        return self._store.reader()

    def find(self, token: str) -> int | None:
        """The number of the device with this token, at whichever process it enrolled; None if there is none.

        Raises:
            StoreError: The database cannot be read, or is not asked about more unknown tokens this second.
        """
        found = self.devices.find(token)
        if found is None and self._store.shared:
            now = int(time.monotonic())
            self._lookups = self._lookups + 1 if now == self._second else 1
            self._second = now
            if self._lookups > _LOOKUPS:
                raise StoreError("database: too many unknown tokens in a second.")
            digest = key_of(token)
            found = self._reader.find(digest)
            if found is not None:
                self.devices.add([(found, digest)])
        return found

    def meet(self) -> None:
        """Know the devices that other processes enrolled, and forget those that left there.

        Raises:
            StoreError: The database cannot be read.
        """
        if self._connections != self._store.connections:  # what was told of devices that left may be lost
            self.read_all()
        found = self._store.devices(self._before)
        self.devices.add(found)
        # A number below the highest may be committed after it: what came since the last look is read once more.
        self._before, self._met = self._met, max([self._met, *(number for number, _ in found)])
        for number in self._store.take_departed():
            if number in self.devices:
                self.devices.remove(number)

    @property
    def full(self) -> bool:
        """True if no more devices may enrol."""
        return len(self.devices) >= self._settings.most_devices

    def enrolment(self, token: str, ticket: str | None, identity: bytes) -> Enrolment:
        """The enrolment of a device; arguments as of :meth:`fedrank.deploy.hub.hub.Hub.enrol`.

        Raises:
            NotAdmittedError: The hub is full.
        """
        if self.full:
            if not self._said_full:
                self._said_full = True
                most = self._settings.most_devices
                _log.error("the hub is full: it has most_devices = %d devices, no more enrol", most)
            raise NotAdmittedError("hub-full")
        if ticket is None:
            return Enrolment(key_of(token), identity=identity)
        return Enrolment(key_of(token), key_of(ticket), ticket.startswith(CODE), identity)

    def knows(self, ticket: str) -> bool:
        """True if a credential's secret or a code is good now; called by the event loop, and writes nothing.

        Raises:
            StoreError: The log cannot be read.
        """
        credentials = Credentials(self._reader)
        find = credentials.of_code if ticket.startswith(CODE) else credentials.of_secret
        return find(key_of(ticket)) is not None

    def code(self, secret: str) -> tuple[str, float] | None:
        """A new code of the credential with this secret; None if there is none that has codes."""
        owner = self.credentials.of_secret(key_of(secret))
        return self.credentials.code(owner) if owner is not None and owner.code_minutes else None

    def reread(self) -> None:
        """Read again what the status says about credentials, which other processes may have written."""
        self._listed = self.credentials.as_json()

    def batch(self) -> Admissions:
        """The admissions of one batch of jobs."""
        s = self._settings
        left = s.most_devices - len(self.devices)
        return Admissions(self.credentials, s.attested_devices, s.attested_days, left)

    def status(self) -> dict[str, Json]:
        """``most_devices`` and ``credentials`` of the status."""
        return {"most_devices": self._settings.most_devices, "credentials": self._listed}


class Admissions:
    """Enrolments of one batch of jobs that are admitted.

    Args:
        credentials: Credentials of the log.
        most_of_identity: Devices that one attested identity may enrol within ``identity_days``.
        identity_days: Window of an identity in days; 0: of all time.
        most: Devices that the hub still takes.
    """

    def __init__(self, credentials: Credentials, most_of_identity: int, identity_days: int, most: int):
        self._credentials, self._most_of_identity, self._identity_days = credentials, most_of_identity, identity_days
        self._most = most
        self._left: dict[bytes, int] = {}
        self._codes: set[bytes] = set()
        self.admitted: list[Admitted] = []

    def refuse(self, one: Enrolment) -> str:
        """Reason why a device may not enrol; empty if it may, which is then counted."""
        if len(self.admitted) >= self._most:
            return "hub-full"
        keys: dict[bytes, tuple[int, int]] = {}  # what it counts under → cap, window
        credential, code = None, None
        if one.ticket:
            if one.code:
                credential = None if one.ticket in self._codes else self._credentials.of_code(one.ticket)
                code = one.ticket
            else:
                credential = self._credentials.of_secret(one.ticket)
                if credential is not None and credential.code_minutes:
                    credential = None
            if credential is None:
                return "unauthorised"
            keys[credential.key] = (credential.devices, credential.days)
        if one.identity:
            keys[one.identity] = (self._most_of_identity, self._identity_days)
        for key, (most, days) in keys.items():
            if key not in self._left:
                self._left[key] = most - self._credentials.count_used(key, days)
            if self._left[key] <= 0:
                return "enrolment-full"
        for key in keys:
            self._left[key] -= 1
        if code is not None:
            self._codes.add(code)
        self.admitted.append(Admitted(None if credential is None else credential.number, tuple(keys), code))
        return ""
