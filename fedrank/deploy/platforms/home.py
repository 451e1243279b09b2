"""Folders of platforms and of their coordinator.

::

    config.toml          what everybody agreed on, resolved
    platform.db          a platform's network, view and moments (coordinator.db: the coordinator's state)
    coordinator.token    who has it may ask the platform questions: give it to the coordinator
    application.token    who has it may say who is there
    coordinator.url      where it listens for each of them, while it runs
    application.url
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from fedrank.core.errors import RunError
from fedrank.deploy.platforms.key_value_store import Shelf
from fedrank.deploy.platforms.terms import Terms
from fedrank.engine.checkpoint import write_atomically
from fedrank.engine.settings import to_toml

#: Those who have a token of a platform, and an address to ask it at.
ASKERS = ("coordinator", "application")


class PlatformHome:
    """Paths of a platform's files, or of a coordinator's.

    Args:
        path: The folder.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)

    def shelf(self, kind: str, terms: Terms, seeded: bool) -> Shelf:
        """The file of ``kind``: ``"platform 0"``, ``"coordinator"``; made with the folder where it is not there.

        Raises:
            RunError: It belongs to something else, or cannot be written.
        """
        chance = ", draws from its seed" if seeded else ""
        shelf = Shelf(self.path / f"{kind.split()[0]}.db", f"{kind} of terms {terms.fingerprint}{chance}")
        try:
            write_atomically(self.path / "config.toml", to_toml(terms.config).encode())
        except BaseException:
            shelf.shut()
            raise
        return shelf

    def token(self, asker: str, given: str | os.PathLike[str] | None = None, *, make: bool = False) -> str:
        """The token of the ``"coordinator"`` or the ``"application"``.

        Args:
            asker: Whose.
            given: A file that holds it; None: the one in the folder.
            make: Make one where there is none in the folder.

        Raises:
            RunError: The file cannot be read, or holds none.
        """
        path = self.path / f"{asker}.token" if given is None else Path(given)
        if make and given is None and not path.exists():
            write_atomically(path, secrets.token_urlsafe(32).encode() + b"\n", 0o600)
        return read_token(path)

    def url(self, asker: str) -> str:
        """Where the platform listens.

        Raises:
            RunError: It is not being served.
        """
        try:
            return (self.path / f"{asker}.url").read_text(encoding="ascii").strip()
        except OSError as error:
            raise RunError(
                f"{self.path}: no platform is being served from here. Start it: fedrank serve platform {self.path}"
            ) from error

    def listening(self, urls: dict[str, str]) -> None:
        """Write where it listens."""
        for asker, url in urls.items():
            write_atomically(self.path / f"{asker}.url", url.encode() + b"\n")

    def silent(self) -> None:
        """It does not listen any more."""
        for asker in ASKERS:
            with contextlib.suppress(OSError):
                (self.path / f"{asker}.url").unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time; the lock of a process that was killed is free again.

        Raises:
            RunError: Another process is there.
        """
        from filelock import FileLock, Timeout

        lock = FileLock(self.path / "lock", timeout=0)
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock.acquire()
        except Timeout as error:
            raise RunError(f"{self.path}: another process uses this folder. Stop it, or choose another.") from error
        except OSError as error:
            raise RunError(f"{self.path}: cannot be used ({error}). Choose another folder.") from error
        try:
            yield
        finally:
            lock.release()


def read_token(path: Path) -> str:
    """The token in a file.

    Raises:
        RunError: It cannot be read, or holds none.
    """
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path}: cannot be read ({error}). Put a token there, one line.") from error
    if not token or " " in token or not token.isprintable():
        raise RunError(f"{path}: must hold one token, without spaces.")
    return token
