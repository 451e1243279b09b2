"""Statements of devices' platforms: challenges, kinds of statements, the door that asks for them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import secrets
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedrank.core.errors import ConfigError, RunError
from fedrank.core.registry import Registry
from fedrank.core.trees import Json
from fedrank.engine.settings import from_table, read_toml


class NotAttestedError(RunError):
    """A statement is not accepted.

    Args:
        reason: A word for the device's log, such as ``"wrong-app"``.
    """

    def __init__(self, reason: str):
        super().__init__(f"the statement is not accepted: {reason}.")
        self.reason = reason


class Attestor(ABC):
    """Checks the statements of one kind. A subclass is a frozen dataclass whose fields are its settings."""

    @abstractmethod
    def check(self, statement: dict[str, Json], challenge: bytes, now: float) -> bytes:
        """Check a statement. Called in a worker thread; several calls may run at once.

        Args:
            statement: As the device sent it, a JSON object of any content.
            challenge: What the statement must be about, 48 bytes.
            now: Seconds since 1970.

        Returns:
            What is the same in all statements of one key or device, of any length; empty where there is nothing such.

        Raises:
            NotAttestedError: It is not accepted. Any other exception counts as ``"malformed"``.
        """


#: Classes of attestors by name. Packages add theirs in ``fedrank.attestation``.
ATTESTORS: Registry[Any] = Registry("attestation", "fedrank.attestation")


#: Seconds for which a challenge is good.
GOOD_FOR = 300.0
#: Bytes of a challenge: 8 of its end in seconds since 1970, 8 of chance, 32 that only this process can make.
LENGTH = 48


class Challenges:
    """Makes challenges and takes each back once.

    Nothing is kept of a challenge until it comes back, so that asking for many fills no memory.

    Args:
        key: Key that challenges are made with, 32 bytes: whoever has it takes back what others made.
        use: Uses up a challenge, given by its SHA-256, its end and the time now, both in seconds since 1970; False if
            it was used before.
    """

    def __init__(self, key: bytes, use: Callable[[bytes, float, float], bool]):
        self._key, self._use = key, use

    def new(self, token: str, now: float) -> tuple[bytes, float]:
        """A challenge for whoever has a token, and until when it is good, in seconds since 1970."""
        until = now + GOOD_FOR
        head = struct.pack("<d", until) + secrets.token_bytes(8)
        return head + self._proof(head, token), until

    def take(self, challenge: bytes, token: str, now: float) -> None:
        """Use a challenge up.

        Raises:
            NotAttestedError: It is not one for this token, it is too old, or it was used before.
        """
        head, proof = challenge[:16], challenge[16:]
        if len(challenge) != LENGTH or not hmac.compare_digest(proof, self._proof(head, token)):
            raise NotAttestedError("challenge-unknown")
        (until,) = struct.unpack("<d", head[:8])
        if now >= until:
            raise NotAttestedError("challenge-expired")
        if not self._use(hashlib.sha256(challenge).digest(), until, now):
            raise NotAttestedError("challenge-used")

    def _proof(self, head: bytes, token: str) -> bytes:
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        return hmac.new(self._key, head + digest, hashlib.sha256).digest()


_log = logging.getLogger("fedrank.hub")
#: Name of the file in a hub's folder with a table for each kind of statement.
FILE = "attestation.toml"
#: Largest body of an enrolment with a statement, in bytes.
MOST_STATEMENT = 65_536


class Door:
    """Checks who may enrol by what the device's platform says of it.

    Args:
        attestors: By the name of their kind.
        hub: The hub's name; one identity has different hashes at different hubs.
        challenges: Makes challenges.
        clock: Seconds since 1970.
    """

    def __init__(
        self, attestors: dict[str, Attestor], hub: str, challenges: Challenges, clock: Callable[[], float] = time.time
    ):
        self._attestors, self._hub, self._challenges, self._clock = attestors, hub, challenges, clock

    def challenge(self, token: str) -> dict[str, Json]:
        """The answer to a device that asks for a challenge: the challenge, its end, and which kinds are accepted."""
        made, until = self._challenges.new(token, self._clock())
        shown = base64.urlsafe_b64encode(made).decode()
        return {"challenge": shown, "good_until": until, "kinds": sorted(self._attestors)}

    def identity(self, token: str, body: bytes) -> bytes:
        """The hash of the identity that a statement proves; empty where its kind has none.

        Args:
            token: What the device enrols with.
            body: JSON with ``kind``, ``challenge`` and ``statement``.

        Raises:
            NotAttestedError: The statement is not accepted. Its challenge is used up all the same.
        """
        try:
            given = json.loads(body)
            kind, statement = given["kind"], given["statement"]
            challenge = base64.b64decode(given["challenge"], altchars=b"-_", validate=True)
            if not isinstance(kind, str) or not isinstance(statement, dict):
                raise ValueError
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise NotAttestedError("malformed") from error
        if kind not in self._attestors:
            raise NotAttestedError("wrong-kind")
        now = self._clock()
        self._challenges.take(challenge, token, now)
        try:
            proven = self._attestors[kind].check(statement, challenge, now)
        except NotAttestedError:
            raise
        except Exception as error:  # whatever a library raises about bytes of a stranger
            _log.info("a statement of kind %s cannot be read: %s", kind, type(error).__name__)
            raise NotAttestedError("malformed") from error
        if not proven:
            return b""
        return hashlib.sha256(f"fedrank/identity/{self._hub}/{kind}/".encode() + proven).digest()


def door_of(folder: Path, kinds: tuple[str, ...], hub: str, challenges: Challenges) -> Door:
    """The door that a hub's folder describes.

    Args:
        folder: Folder with ``attestation.toml``; paths in it are relative to it.
        kinds: Names of the kinds that are accepted.
        hub: The hub's name.
        challenges: As of :class:`Door`.

    Raises:
        ConfigError: A file is missing or cannot be used, or a setting is unknown or missing.
        MissingExtraError: A library that a kind needs is not installed.
    """
    file = folder / FILE
    tables = read_toml(file)
    for name in sorted(set(tables) - set(kinds)):
        raise ConfigError(f"{file}: has a table {name!r}, which attestation in hub.toml does not name.")
    made: dict[str, Attestor] = {}
    for kind in kinds:
        table = tables.get(kind)
        if not isinstance(table, dict):
            raise ConfigError(f"{file}: has no table [{kind}] with the settings of that kind.")
        try:
            made[kind] = from_table({**table, "folder": str(folder)}, ATTESTORS.get(kind))
        except ConfigError as error:
            raise ConfigError(f"{file}: [{kind}]: {error}") from error
    return Door(made, hub, challenges)
