"""A hub's folder: made once, opened by one process at a time.

::

    hub.toml            settings; what devices agreed to cannot change
    hub.db              the log (SQLite, with hub.db-wal and hub.db-shm beside it while it runs)
    checkpoints/        the newest states of the server
    enrolment.token     devices enrol with it; replace the file to change it
    admin.token         for the operator
    hub.url             where it listens, while it runs
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from fedrank.core.errors import ConfigError, RunError
from fedrank.deploy.hub.settings import HubSettings, changed, fingerprint, new_hub, read_settings, write_settings
from fedrank.deploy.hub.store import Store, StoreError
from fedrank.engine.checkpoint import write_atomically


class HubFolder:
    """Paths of a hub's files.

    Args:
        path: The folder.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)

    @property
    def settings(self) -> Path:
        """The settings."""
        return self.path / "hub.toml"

    @property
    def log(self) -> Path:
        """The log."""
        return self.path / "hub.db"

    @property
    def url(self) -> Path:
        """Where the hub listens."""
        return self.path / "hub.url"

    def token(self, name: str) -> str:
        """The ``"enrolment"`` or ``"admin"`` token.

        Raises:
            RunError: The file cannot be read, or holds none.
        """
        path = self.path / f"{name}.token"
        try:
            token = path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise RunError(f"{path}: cannot be read ({error}). Put a token of your own there, one line.") from error
        if len(token) < 16 or not token.isprintable() or " " in token:
            raise RunError(f"{path}: must hold one token of at least 16 characters, without spaces.")
        return token

    def prepare(self, wanted: HubSettings) -> None:
        """Make a new hub, finish one whose making was interrupted, or take up the one that is here.

        Raises:
            ConfigError: A setting cannot be used, or one would change that devices agreed to.
            RunError: The folder cannot be made, or holds something else.
        """
        if self.settings.exists():
            self._again(wanted)
            return
        wanted.terms()  # complete?
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            strange = [p.name for p in self.path.iterdir() if p.name not in _OURS and p.suffix != ".partial"]
        except OSError as error:
            raise RunError(f"{self.path}: cannot be made or read ({error.strerror}). Choose another folder.") from error
        if strange:
            raise RunError(f"{self.path}: holds other things ({strange[0]}, …). Choose an empty folder for a hub.")
        self._make_log(wanted)
        for name in ("enrolment", "admin"):
            with contextlib.suppress(RunError):
                self.token(name)  # one that the operator put there, or that was made before, stays
                continue
            write_atomically(self.path / f"{name}.token", secrets.token_urlsafe(32).encode() + b"\n", 0o600)
        write_settings(self.settings, wanted)  # last: with it, the hub is complete

    def _make_log(self, wanted: HubSettings) -> None:
        if self.log.exists() and self.log.stat().st_size:
            store = Store(self.log, name=new_hub())
            used, there = store.last_device(), json.loads(store.settings)
            whole = there == fingerprint(wanted, store.name)
            store.shut()
            if used:
                raise RunError(f"{self.path}: has a log with devices, and no hub.toml. Put hub.toml back from a copy.")
            if whole:
                return
            for name in _LOGS:  # made for other settings, and nobody has used it
                (self.path / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # SQLite gives its other files the rights of this one, and says what fails
            os.close(os.open(self.log, os.O_WRONLY | os.O_CREAT, 0o600))
        hub = new_hub()
        Store(self.log, name=hub, settings=json.dumps(fingerprint(wanted, hub)), relay=wanted.relay).shut()

    def _again(self, wanted: HubSettings) -> None:
        here = read_settings(self.settings)
        if fixed := changed(here, wanted):
            raise ConfigError(
                f"{self.path}: {', '.join(fixed)} cannot be changed: devices agreed to the hub's terms, and its log "
                "means what it was made with. Make another hub in another folder, or leave the setting out."
            )
        if wanted != here:
            write_settings(self.settings, wanted)

    def open(self, *, read_only: bool = False) -> tuple[HubSettings, Store]:
        """The settings and the log of the hub that is here.

        Raises:
            RunError: There is none, or settings and log do not belong together.
        """
        if not self.settings.exists():
            raise StoreError(f"{self.path}: there is no hub here (no hub.toml). Make one: fedrank serve {self.path}")
        settings, store = read_settings(self.settings), Store(self.log, read_only=read_only)
        if json.loads(store.settings) != fingerprint(settings, store.name):
            store.shut()
            raise RunError(
                f"{self.settings}: says something else than the log was made with: "
                f"{store_differences(json.loads(store.settings), fingerprint(settings, store.name))}. Put it back."
            )
        return settings, store

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One process serves a hub; the lock of a process that was killed is free again.

        Raises:
            RunError: Another process serves it.
        """
        from filelock import FileLock, Timeout

        lock = FileLock(self.path / "hub.lock", timeout=0)
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock.acquire()
        except Timeout as error:
            raise RunError(
                f"{self.path}: another process serves this hub. Stop it, or choose another folder."
            ) from error
        except OSError as error:
            raise RunError(f"{self.path}: cannot be used ({error}). Choose another folder.") from error
        try:
            yield
        finally:
            lock.release()


_LOGS = ("hub.db", "hub.db-wal", "hub.db-shm", "hub.db-journal")
_OURS = ("hub.toml", "hub.url", "hub.lock", *_LOGS, "checkpoints", "enrolment.token", "admin.token")


def store_differences(log: dict, settings: dict) -> str:
    """Which entries differ, in words."""
    names = [name for name in {**log, **settings} if log.get(name) != settings.get(name)]
    return ", ".join(f"{name} is {settings.get(name)!r}, was {log.get(name)!r}" for name in names)
