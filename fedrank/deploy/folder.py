"""A folder that a process is served from: its tokens, the addresses it listens at, and its lock; lines of its log."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from typing_extensions import override

from fedrank.core.errors import RunError
from fedrank.core.trees import Json
from fedrank.core.words import printable
from fedrank.engine.checkpoint import lock_folder, write_atomically


class ServedFolder:
    """Paths of the files that every served folder has: ``NAME.token``, ``NAME.url`` and a lock.

    Args:
        path: The folder.
    """

    #: What is served from such a folder, and the command that does it.
    kind, command = "server", "fedrank hub serve"
    #: Name of the lock file.
    lock_name = "lock"
    #: Fewest characters of a token in this folder.
    shortest_token = 1

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)

    def token_path(self, name: str) -> Path:
        """Path of the file with a token."""
        return self.path / f"{name}.token"

    def token(self, name: str) -> str:
        """A token in this folder, such as ``"admin"``; errors as :func:`read_token`."""
        return read_token(self.token_path(name), self.shortest_token)

    def make_token(self, name: str) -> None:
        """Write a new random token that only the owner of the folder can read.

        Raises:
            RunError: The file cannot be written.
        """
        write_atomically(self.token_path(name), secrets.token_urlsafe(32).encode() + b"\n", 0o600)

    def token_or_new(self, name: str) -> str:
        """A token in this folder, which is made where there is none; errors as :meth:`token` and :meth:`make_token`."""
        if not self.token_path(name).exists():
            self.make_token(name)
        return self.token(name)

    def read_json(self, name: str) -> Any:
        """The value that :meth:`write_json` wrote; None: it wrote none.

        Raises:
            RunError: The file cannot be read.
        """
        try:
            return json.loads((self.path / name).read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise RunError(f"{self.path / name}: cannot be read ({error}). Put it back from a copy.") from error

    def write_json(self, name: str, value: Json) -> None:
        """Write a value that only the owner of the folder can read; errors as of :meth:`make_token`."""
        write_atomically(self.path / name, json.dumps(value, indent=1).encode(), 0o600)

    def url_path(self, name: str) -> Path:
        """Path of the file with a URL, which is there while it is served."""
        return self.path / f"{name}.url"

    def url(self, name: str) -> str:
        """The URL of a server that runs from this folder.

        Raises:
            RunError: Nothing is being served from this folder.
        """
        try:
            return self.url_path(name).read_text(encoding="ascii").strip()
        except OSError as error:
            raise RunError(
                f"{self.path}: no {self.kind} is being served from here. Start it: {self.command} {self.path}"
            ) from error

    def write_urls(self, urls: Mapping[str, str], certificate: str | os.PathLike[str] | None = None) -> None:
        """Write the URL of each name, and where the server's certificate lies that this machine's commands trust.

        Errors as :func:`~fedrank.engine.checkpoint.write_atomically`.
        """
        for name, url in urls.items():
            if certificate is None:
                self._certificate_path(name).unlink(missing_ok=True)  # of a process that was killed
            else:
                write_atomically(self._certificate_path(name), os.fsencode(os.path.abspath(certificate)) + b"\n")
            write_atomically(self.url_path(name), url.encode() + b"\n")

    def certificate(self, name: str) -> Path | None:
        """The certificate of a server that runs from this folder; None where it is served without TLS."""
        try:
            return Path(os.fsdecode(self._certificate_path(name).read_bytes().removesuffix(b"\n")))
        except OSError:
            return None

    def _certificate_path(self, name: str) -> Path:
        return self.path / f"{name}.certificate"

    def remove_urls(self, *names: str) -> None:
        """Remove the files that :meth:`write_urls` wrote, where there are any."""
        for name in names:
            for path in (self.url_path(name), self._certificate_path(name)):
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)

    def make(self) -> None:
        """Make the folder, which only its owner can read, if it is not there.

        Raises:
            RunError: It cannot be made.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{self.path}: cannot be used ({error}). Choose another folder.") from error

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Make the folder and use it exclusively; the lock of a process that was killed is free again.

        Raises:
            RunError: Another process uses it, or it cannot be made.
        """
        self.make()
        with lock_folder(self.path, "uses this folder", name=self.lock_name):
            yield


def read_token(path: Path, shortest: int = 1) -> str:
    """The token in a file.

    Args:
        path: The file, which holds one line.
        shortest: Fewest characters of the token.

    Raises:
        RunError: The file cannot be read, or does not hold one token of at least ``shortest`` characters.
    """
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path}: cannot be read ({error}). Put a token of your own there, one line.") from error
    if len(token) < shortest or not token.isprintable() or " " in token:
        raise RunError(f"{path}: must hold one token of at least {shortest} characters, without spaces.")
    return token


class LogLine(logging.Formatter):
    """A line of a log, in which control characters do nothing; arguments as of the base class."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), lines=True)
