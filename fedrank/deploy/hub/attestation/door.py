"""The door of a hub that wants statements: hands out challenges, and has each statement checked by its kind."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path

from fedrank.core.errors import ConfigError
from fedrank.core.trees import Json
from fedrank.deploy.hub.attestation.attestor import ATTESTORS, Attestor, NotAttestedError
from fedrank.deploy.hub.attestation.challenges import Challenges
from fedrank.engine.settings import from_dict, read_toml

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
        clock: Seconds since 1970.
    """

    def __init__(self, attestors: dict[str, Attestor], hub: str, clock: Callable[[], float] = time.time):
        self._attestors, self._hub, self._clock = attestors, hub, clock
        self._challenges = Challenges()

    def challenge(self, token: str) -> dict[str, Json]:
        """The answer to a device that asks for a challenge: the challenge, its end, and which kinds are accepted."""
        made, until = self._challenges.new(token, self._clock())
        return {
            "challenge": base64.urlsafe_b64encode(made).decode(),
            "good_until": until,
            "kinds": sorted(self._attestors),
        }

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


def door_of(folder: Path, kinds: tuple[str, ...], hub: str) -> Door:
    """The door that a hub's folder describes.

    Args:
        folder: Folder with ``attestation.toml``; paths in it are relative to it.
        kinds: Names of the kinds that are accepted.
        hub: The hub's name.

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
            made[kind] = from_dict({**table, "folder": str(folder)}, ATTESTORS.get(kind))
        except ConfigError as error:
            raise ConfigError(f"{file}: [{kind}]: {error}") from error
    return Door(made, hub)
