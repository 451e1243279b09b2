"""Statements of devices' platforms that a hub can ask for: App Attest, Play Integrity, WebAuthn; and withdrawn keys."""

from __future__ import annotations

import functools
import json
import logging
import re
import threading
from collections.abc import Iterable
from pathlib import Path

from fedrank.core.errors import ConfigError
from fedrank.deploy.hub.attestation import NotAttestedError

_log = logging.getLogger("fedrank.hub")
#: Largest file that is read, in bytes.
_MOST = 64 << 20
_LINE = re.compile(r"(key|certificate|model)[ \t]+([0-9a-fA-F-]+)[ \t]*(?:#.*)?")


class Withdrawn:
    """Keys, certificates and models of devices whose statements are not accepted any more.

    The hub asks no other server when it checks a statement. What was withdrawn it knows from a file, which is read
    again whenever it changes, so that a job may fetch it. Two forms are understood: lines of a word and hexadecimal
    digits ::

        # a comment
        key 5a7c…            identifier of a key that enrolled: App Attest's, or a credential's of WebAuthn
        certificate 5cb838f1fe157a85           serial number of a certificate of a chain, below its root
        model 0132d110bf4e4208a403ab4f5f12efe5   AAGUID of a make of authenticators

    and Google's list for Android's key attestation as it is, a JSON object whose ``entries`` are named by serial
    numbers (https://android.googleapis.com/attestation/status).

    Args:
        path: The file.

    Raises:
        ConfigError: It cannot be read. Once it was, a file that cannot be read later changes nothing, and is logged.
    """

    def __init__(self, path: Path):
        self._path, self._lock = path, threading.Lock()
        self._seen: tuple[int, ...] = ()
        self._found: frozenset[tuple[str, str]] = frozenset()
        try:
            self._read()
        except (OSError, ValueError) as error:
            raise ConfigError(f"withdrawn: {path} cannot be read ({error}).") from error

    def refuse(self, key: bytes, serials: Iterable[int], model: bytes = b"") -> None:
        """Refuse a statement of what was withdrawn.

        Args:
            key: Identifier of the key.
            serials: Serial numbers of the certificates of its chain.
            model: Its authenticator's AAGUID; empty: it has none.

        Raises:
            NotAttestedError: It was withdrawn.
        """
        found = self._now()
        told = {("key", key.hex()), ("model", model.hex()), *(("certificate", _serial(f"{one:x}")) for one in serials)}
        if told & found:
            raise NotAttestedError("withdrawn")

    def _now(self) -> frozenset[tuple[str, str]]:
        with self._lock:
            try:
                if self._seen != _stamp(self._path):
                    self._read()
            except (OSError, ValueError) as error:
                _log.error("withdrawn: %s cannot be read (%s); what it said before holds", self._path, error)
            return self._found

    def _read(self) -> None:
        seen = _stamp(self._path)
        if seen[1] > _MOST:
            raise ValueError(f"more than {_MOST >> 20} MB")
        text = self._path.read_text(encoding="utf-8")
        self._found, self._seen = frozenset(_entries(text)), seen


@functools.cache
def withdrawn_of(path: Path) -> Withdrawn:
    """Entries that a file withdraws; one reader for a file."""
    return Withdrawn(path)


def _stamp(path: Path) -> tuple[int, ...]:
    at = path.stat()
    return at.st_mtime_ns, at.st_size, at.st_ino


def _serial(digits: str) -> str:
    return digits.lower().lstrip("0")


def _entries(text: str) -> Iterable[tuple[str, str]]:
    if text.lstrip().startswith("{"):
        entries = json.loads(text)["entries"] if '"entries"' in text else None
        if not isinstance(entries, dict):
            raise ValueError("JSON without entries")
        for serial in entries:
            yield "certificate", _serial(serial)
        return
    for number, line in enumerate(text.splitlines(), 1):
        if not (line := line.strip()) or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise ValueError(f"line {number} is not key, certificate or model and hexadecimal digits")
        kind, digits = found[1], found[2].replace("-", "").lower()
        yield kind, _serial(digits) if kind == "certificate" else digits
