"""Credentials that devices enrol with, each with a cap, and single-use codes that an app's back end hands out.

A *credential* has a name, a secret and a cap: how many devices may enrol with it in its window of days. Every
enrolment counts, and goes on counting after the device has left, so that leaving and enrolling anew gives nobody more.
A credential for a back end enrols no device itself: with its secret the back end asks the hub for *codes*, each good
for one device and a few minutes. The hub does not keep which code a device had, so that nobody can ask the back end
whose it was.

Secrets are random and shown once; the log keeps their SHA-256. The command line writes credentials into the log of a
hub that runs; the hub looks them up when a device enrols.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass

from fedrank.core.errors import ConfigError, RunError
from fedrank.core.trees import Json
from fedrank.deploy.hub.devices import digest_of
from fedrank.deploy.hub.inbox import Job
from fedrank.deploy.hub.store import Admitted, Store

#: What the secret of a credential and a code begin with.
SECRET, CODE = "cred.", "code."
#: Longest name of a credential, in characters.
_LONGEST = 64
#: Largest cap, and longest window in days.
_MOST, _LONGEST_WINDOW = 100_000_000, 36_500

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
        revoked: Nobody enrols with it any more.
    """

    number: int
    name: str
    devices: int
    days: int
    code_minutes: int
    revoked: bool

    @property
    def key(self) -> bytes:
        """What its enrolments are counted under."""
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
        """Add a credential and return its secret, which nobody can show again.

        Args:
            name: A name of its own, 1 to 64 printable characters.
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
                (name, digest_of(secret), devices, days, code_minutes, today()),
            )
        return secret

    def revoke(self, name: str) -> bool:
        """Let nobody enrol with a credential, or with its codes, any more. Returns whether somebody could.

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
        return [
            number
            for (number,) in self._store.query(
                "SELECT device FROM member JOIN credential ON credential.number = member.credential "
                "WHERE credential.name = ? ORDER BY device",
                (name,),
            )
        ]

    def all(self) -> list[tuple[Credential, int]]:
        """The credentials in the order in which they were made, and how many devices count against the cap of each."""
        rows = self._store.query(f"SELECT {_COLUMNS} FROM credential ORDER BY number")
        return [(one, self.used(one.key, one.days)) for one in map(_credential, rows)]

    def used(self, key: bytes, days: int) -> int:
        """Devices that were admitted under a key within a window of so many days; 0: of all time."""
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
            db.execute("INSERT INTO code VALUES (?, ?, ?)", (digest_of(made), owner.number, until))
        return made, until

    def close(self) -> None:
        """Close the database in which credentials are kept."""
        self._store.close()

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


class Admissions:
    """Who of a batch of jobs may enrol; made anew for every batch.

    Args:
        credentials: Of the log.
        most_of_identity: Devices that one attested identity may enrol within ``identity_days``.
        identity_days: Window of an identity in days; 0: of all time.
        most: Devices that the hub still takes; None: any number.
    """

    def __init__(
        self,
        credentials: Credentials,
        most_of_identity: int = 1,
        identity_days: int = 0,
        most: int | None = None,
    ):
        self._credentials, self._most_of_identity, self._identity_days = credentials, most_of_identity, identity_days
        self._most = most
        self._left: dict[bytes, int] = {}
        self._codes: set[bytes] = set()
        self.admitted: list[Admitted] = []

    def refused(self, job: Job) -> str:
        """Reason why the device of a job may not enrol; empty if it may, which is then counted."""
        if self._most is not None and len(self.admitted) >= self._most:
            return "hub-full"
        keys: dict[bytes, tuple[int, int]] = {}  # what it counts under → cap, window
        credential, code = None, None
        if job.ticket:
            if job.code:
                credential = None if job.ticket in self._codes else self._credentials.of_code(job.ticket)
                code = job.ticket
            else:
                credential = self._credentials.of_secret(job.ticket)
                if credential is not None and credential.code_minutes:
                    credential = None
            if credential is None:
                return "unauthorised"
            keys[credential.key] = (credential.devices, credential.days)
        if job.identity:
            keys[job.identity] = (self._most_of_identity, self._identity_days)
        for key, (most, days) in keys.items():
            if key not in self._left:
                self._left[key] = most - self._credentials.used(key, days)
            if self._left[key] <= 0:
                return "enrolment-full"
        for key in keys:
            self._left[key] -= 1
        if code is not None:
            self._codes.add(code)
        self.admitted.append(Admitted(None if credential is None else credential.number, tuple(keys), code))
        return ""
