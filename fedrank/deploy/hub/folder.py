"""A hub's folder: created once, served by one process at a time.

::

    hub.toml            settings; what devices agreed to cannot change
    hub.db              the store (SQLite, with hub.db-wal and hub.db-shm beside it while it runs)
    enrolment.token     token that devices enrol with; replace the file to change it
    admin.token         token of the operator
    attestation.toml    with attestation: settings of the statements that devices need; put there by the operator
    log.key             private key of the public log of terms and models
    gateway.key         with a relay: private key of the gateway
    operator.key        signs that a hub was put back, and a change of the log's key; to be kept elsewhere
    database.password   of a hub on PostgreSQL, if its database wants one; put there by the operator
    hub.url             URL of the hub while it runs
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import secrets
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from fedrank.core.errors import ConfigError, RunError
from fedrank.deploy.database import copy_database, create_private, sync_folder
from fedrank.deploy.folder import ServedFolder, read_token
from fedrank.deploy.http.client import ClientResponse, PersistentClient
from fedrank.deploy.http.guard import SHORTEST_TOKEN
from fedrank.deploy.hub.keys import (
    GATEWAY_FILE,
    LOG_FILE,
    OPERATOR_FILE,
    ask_rotation,
    make_key,
    operator_of,
    private_keys,
)
from fedrank.deploy.hub.settings import (
    NO_LOG,
    HubSettings,
    differing,
    fingerprint,
    new_hub,
    read_settings,
)
from fedrank.deploy.hub.store import Server, Store, StoreError
from fedrank.deploy.log.proof import newest_keys, newest_log_key
from fedrank.deploy.log.tree import GATEWAY_KEY, ISSUER_KEY, LOG_KEY, recovery_statement
from fedrank.engine.checkpoint import write_atomically
from fedrank.engine.settings import write_settings

_log = logging.getLogger("fedrank.hub")


class HubFolder(ServedFolder):
    """Paths of a hub's files; arguments as of :class:`~fedrank.deploy.folder.ServedFolder`.

    Attributes:
        settings: The hub's settings.
        log: The hub's log, an SQLite file.
        start: A copy of the model that the hub starts from, if it starts from one.
    """

    kind = "hub"
    lock_name = "hub.lock"
    shortest_token = SHORTEST_TOKEN

    def __init__(self, path: str | os.PathLike[str]):
        super().__init__(path)
        self.settings, self.log, self.start = (self.path / name for name in ("hub.toml", "hub.db", _START))

    def prepare(self, wanted: HubSettings) -> None:
        """Create a hub, finish one whose creation was interrupted, or change the settings of the one that is here.

        Raises:
            ConfigError: A setting cannot be used, or one would change that devices agreed to.
            RunError: The folder cannot be made, or holds something else.
        """
        wanted = self._with_copy(wanted)
        if self.settings.exists():
            self._change_settings(wanted)
            return
        wanted.terms()  # refuses settings that are not complete
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            foreign = [p.name for p in self.path.iterdir() if p.name not in _HUB_FILES and p.suffix != ".partial"]
        except OSError as error:
            raise RunError(f"{self.path}: cannot be made or read ({error.strerror}). Choose another folder.") from error
        if foreign:
            raise RunError(f"{self.path}: holds other things ({foreign[0]}, …). Choose an empty folder for a hub.")
        if wanted.database:
            wanted = self._check_joins(wanted)
        if wanted.batch and not wanted.gateway:
            wanted = dataclasses.replace(wanted, gateway=make_key(self.path / GATEWAY_FILE))
        wanted = self._with_log(wanted)
        self._make_log(wanted)
        for name in ("enrolment", "admin"):
            with contextlib.suppress(RunError):
                self.token(name)  # one that the operator put there, or that was made before, stays
                continue
            self.make_token(name)
        if wanted.start_from:
            write_atomically(self.start, Path(wanted.start_from).read_bytes())
        self._write(wanted)  # last: with it, the hub is complete

    def _with_copy(self, wanted: HubSettings) -> HubSettings:
        """The settings with the whole path of the copy's folder, which is apart from the hub's."""
        if not wanted.copy_to:
            return wanted
        home, copy = self.path.resolve(), Path(wanted.copy_to).absolute()
        if home in (there := copy.resolve(), *there.parents) or there in home.parents:
            raise ConfigError(f"copy_to: {copy} and the hub's folder hold one another. Choose one on another disk.")
        return dataclasses.replace(wanted, copy_to=str(copy))

    def _with_log(self, wanted: HubSettings) -> HubSettings:
        """The settings with the public keys of the hub's log and of its operator, which are made if there are none."""
        if wanted.log:
            return wanted
        operator = wanted.operator or make_key(self.path / OPERATOR_FILE)
        return dataclasses.replace(wanted, log=make_key(self.path / LOG_FILE), operator=operator)

    def _place(self, told: HubSettings) -> Path | Server:
        """The file or the database of the hub's store."""
        if not told.database:
            return self.log
        file = self.path / _PASSWORD
        return Server(told.database, read_token(file) if file.exists() else None)

    def _check_joins(self, wanted: HubSettings) -> HubSettings:
        """Refuse to join a hub in the database without the files that all of its processes need alike.

        Returns:
            The settings, with the keys that the hub's terms name.

        Raises:
            RunError: A file is missing.
        """
        try:
            store = Store(self._place(wanted), read_only=True)
        except StoreError:
            return wanted  # there is none yet, or the next who opens it says why it cannot be
        with contextlib.closing(store):
            terms, changed = json.loads(store.settings), {row.entry[1] for row in store.rotations() if row.ends}
        needed = ["enrolment.token", "admin.token"]
        needed += [LOG_FILE] if terms.get("log") and LOG_KEY not in changed else []
        needed += [GATEWAY_FILE] if terms.get("batch") and GATEWAY_KEY not in changed else []
        missing = [name for name in needed if not (self.path / name).exists()]
        if missing:
            raise RunError(
                f"{self.path / missing[0]}: is not there, and the database holds a hub already. All its processes need "
                f"the same files: copy {', '.join(missing)} from the folder that it was made with."
            )
        names = [name for name in ("log", "operator", "gateway") if terms.get(name) and not getattr(wanted, name)]
        return dataclasses.replace(wanted, **{name: terms[name] for name in names})

    def _join(self, wanted: HubSettings) -> None:
        """Make the hub in the database, or join the existing one."""
        with contextlib.closing(self._new(wanted)) as store:
            there, ours = json.loads(store.settings), fingerprint(wanted, store.name)
        if there != ours:
            raise ConfigError(
                f"database: holds a hub with other settings: {_differences(there, ours)}. Use another database, or the "
                "hub's settings."
            )

    def _new(self, wanted: HubSettings) -> Store:
        """The store of a new hub; in a database, of the hub that is there."""
        hub = new_hub()
        terms = json.dumps(wanted.terms(hub).as_json(), sort_keys=True, separators=(",", ":")).encode()
        return Store(
            self._place(wanted),
            name=hub,
            settings=json.dumps(fingerprint(wanted, hub)),
            collect=wanted.collect,
            start=_start_weights(wanted),
            terms=b"" if wanted.log == NO_LOG else terms,
        )

    def _make_log(self, wanted: HubSettings) -> None:
        if wanted.database:
            self._join(wanted)
            return
        if self.log.exists() and self.log.stat().st_size:
            with contextlib.closing(Store(self.log, name=new_hub())) as store:
                used, there = store.used(), json.loads(store.settings)
                complete = there == fingerprint(wanted, store.name) and store.start() == _start_weights(wanted)
            if used:
                raise RunError(f"{self.path}: has a log with devices, and no hub.toml. Put hub.toml back from a copy.")
            if complete:
                return
            for name in _LOG_FILES:  # made for other settings, and not used yet
                (self.path / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # SQLite says what fails
            create_private(self.log)
        self._new(wanted).close()

    def _change_settings(self, wanted: HubSettings) -> None:
        here = read_settings(self.settings)
        if wanted.batch == here.batch and not wanted.gateway:
            wanted = dataclasses.replace(wanted, gateway=here.gateway)
        if not wanted.log:
            wanted = dataclasses.replace(wanted, log=here.log, operator=here.operator)
        if fixed := differing(here, wanted):
            raise ConfigError(
                f"{self.path}: {', '.join(fixed)} cannot be changed: devices agreed to the hub's terms, and its log "
                "means what it was made with. Make another hub in another folder, or leave the setting out."
            )
        self._write(wanted, here)

    def _write(self, wanted: HubSettings, here: HubSettings | None = None) -> None:
        """Write settings that differ from those that are here; a folder that was not the copy before becomes it.

        Hub and copy share a random mark, new with each change of the folder: a former copy, or one that another hub
        was restored from, has not the mark of this hub, which writes no more into it. The order lets a start that was
        interrupted be repeated: the mark of the new copy, the settings, the mark of the former copy, the store.

        Raises:
            ConfigError: The folder of the copy holds other things.
            RunError: Something cannot be written.
        """
        before, mark = wanted.copy_to, ""
        if not wanted.database and (self.log.exists() or wanted.copy_to):
            with contextlib.closing(Store(self.log, read_only=True)) as store:
                before, name = store.copied_to()[0], store.name
                if wanted.copy_to != before:
                    self._refuse_former(wanted, store)
                    mark = _new_mark(store)
                    if wanted.copy_to:
                        _mark_copy(Path(wanted.copy_to), name, mark)
        if wanted != here:
            about = "A fedrank hub. What devices agreed to cannot change; the rest is read at the start."
            write_settings(self.settings, wanted, about)
        if wanted.copy_to == before:
            return
        if before:
            try:
                (Path(before) / _COPY).unlink(missing_ok=True)
            except OSError as error:
                _log.warning("%s: is no copy any more, and its file %r cannot be deleted (%s)", before, _COPY, error)
        with contextlib.closing(Store(self.log)) as store:
            store.begin_copy(wanted.copy_to, mark)

    def update_copy(self, copy: Path, mark: str) -> int:
        """Make a copy of the hub the same as the hub, on the disk; called by the writer, in no transaction.

        Args:
            copy: Folder of the copy.
            mark: What the hub and this folder share.

        Returns:
            Bytes of the database.

        Raises:
            StoreError: It cannot be written, its disk is not there, or it is another hub's. The copy is what it was.
        """
        partial = copy / f"{self.log.name}.partial"
        try:
            if not (copy / _COPY).exists():
                raise OSError("it is not the folder that was given; is its disk mounted?")
            if (copy / _COPY).read_bytes().strip() != mark.encode():
                raise OSError(
                    "it is not this hub's any more: a hub was restored from it, or has it as its copy. If so, never "
                    "serve this one again; else give another folder, --copy-to"
                )
            for left in copy.glob("*.partial"):  # such as of a key that is over by now
                left.unlink()
            write_atomically(copy / _BACKUP, _HOW, 0o600)
            copy_database(self.log, partial)
            self._copy_files(copy)
            partial.replace(copy / self.log.name)
            for name in _BACKED_UP:
                if not (self.path / name).exists():  # such as a key that is over
                    (copy / name).unlink(missing_ok=True)
            sync_folder(copy)
            return (copy / self.log.name).stat().st_size
        except (OSError, sqlite3.Error, RunError) as error:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise StoreError(f"the copy at {copy} cannot be written, and heads wait for it: {error}") from error

    def open(self, *, read_only: bool = False) -> tuple[HubSettings, Store]:
        """The settings and the log of the hub that is here.

        Raises:
            RunError: There is none, or settings and log do not belong together.
        """
        if not self.settings.exists():
            raise StoreError(
                f"{self.path}: there is no hub here (no hub.toml). Make one: fedrank hub serve {self.path}"
            )
        if not read_only and (self.path / _BACKUP).exists():
            raise RunError(
                f"{self.path}: is a backup. Devices may have seen more than it has: fedrank hub restore {self.path} "
                "makes a hub of it that they go on with."
            )
        settings = read_settings(self.settings)
        if settings.tokens and not settings.database and not read_only:
            with contextlib.closing(Store(self.log, read_only=True)) as store:  # before it is brought to this version
                self._refuse_former(settings, store)
        store = Store(self._place(settings), read_only=read_only)
        there, here = json.loads(store.settings), fingerprint(settings, store.name)
        if there == here or (read_only and _is_former(settings, store)):
            return settings, store
        with contextlib.closing(store):
            self._refuse_former(settings, store)
        raise RunError(f"{self.settings}: is not what the log was made with: {_differences(there, here)}. Put it back.")

    def _refuse_former(self, settings: HubSettings, store: Store) -> None:
        if _is_former(settings, store):
            raise RunError(
                f"{self.path}: the devices of this hub buy tokens as earlier versions sold them, and its terms cannot "
                f"change. Make another hub that begins with its model: fedrank hub replay {self.path} --out "
                "model.safetensors, then fedrank hub serve NEW --start-from model.safetensors."
            )

    def back_up(self, out: str | os.PathLike[str]) -> list[str]:
        """Copy the hub into a new folder that :meth:`restore` makes a hub of; this one may be running.

        The store is copied as of one moment, and checked. A copy that fails leaves nothing behind. A store in
        PostgreSQL is not copied: ``pg_dump`` makes a consistent copy of a running database, ``pg_restore`` puts it
        back.

        Args:
            out: The new folder; only its owner can read it.

        Returns:
            Names of the files in it.

        Raises:
            ConfigError: ``out`` exists.
            RunError: Something cannot be read, written, or does not belong together.
        """
        out = Path(out)
        settings, store = self.open(read_only=True)
        store.close()
        with self._copy_to(out, settings) as partial:
            write_atomically(partial / _BACKUP, _HOW, 0o600)
            HubFolder(partial)._check_whole()
        return sorted(path.name for path in out.iterdir())

    def restore(
        self, out: str | os.PathLike[str], operator: Path | None = None, has_every_head: bool = False
    ) -> int | None:
        """Make a hub of this backup, in a new folder, that devices go on with whatever they saw since.

        Its public log says that it was put back, and tokens of the epochs that were open are void: those that were
        spent since the backup would count again, and what they draw is known. The lost hub must not be served any more.

        The log of a hub made of its copy (``copy_to``) goes on as it is, if whoever restores it knows that the copy has
        every head that was shown: it cannot be told from an older copy of itself. Only tokens of the next epoch are
        void, as who bought one since the newest head is not known. The copy gets another mark, so that the lost hub
        shows no further head if it comes back.

        Args:
            out: The new folder; an existing one has to be empty, such as a volume of a container.
            operator: File of the operator's key, which signs that the hub was put back, where its terms name one.
            has_every_head: This is the copy that the hub wrote until it was lost; in place of ``operator``.

        Returns:
            When it was put back, in seconds since 1970, as the log says it; None where it need not say so.

        Raises:
            ConfigError: ``out`` exists and is not empty, this folder is no backup, the operator's key is missing, or
                ``has_every_head`` is said of what is no copy.
            RunError: Something cannot be read, written, or does not belong together; or processes serve the database.
        """
        settings, store = self.open(read_only=True)
        with contextlib.closing(store):
            size, last = store.log_size(), store.last_round()
            terms, notices = settings.terms(store.name), store.notices(size)
        if not (self.path / _BACKUP).exists():
            raise ConfigError(
                f"{self.path}: is no backup (it has no file {_BACKUP!r}), but a hub that is served or was. Restore a "
                "folder that fedrank hub backup made."
            )
        copied = (self.path / _COPY).exists()
        if has_every_head and (operator is not None or not copied):
            raise ConfigError(f"{self.path}: --has-every-head is for the folder of copy_to, and without --operator.")
        sign: Callable[[bytes, bytes], bytes] = lambda entry, place: b""  # noqa: E731
        if terms.operator and not has_every_head:
            if operator is None:
                when = "none" if last is None else f"{datetime.fromtimestamp(last.opened, UTC):%Y-%m-%d %H:%M:%S} UTC"
                every = (
                    f" Or, if this is the copy that the hub wrote until it was lost, --has-every-head: its newest head "
                    f"has {size} entries, of {when}; wrongly said, devices that saw a later one are lost for good."
                )
                raise ConfigError(
                    f"{self.path}: its devices go on with a hub that was put back only where its operator signed that. "
                    f"Give --operator FILE, the operator.key that was made with the hub.{every if copied else ''}"
                )
            signer = operator_of(operator, terms)
            key = newest_log_key(terms, newest_keys(terms, [entry for _, entry in notices])).public
            sign = lambda entry, place: signer.sign(recovery_statement(terms.hub, entry, place, key))  # noqa: E731
        with self._copy_to(Path(out), settings, into_empty=True) as partial:
            store = Store(HubFolder(partial)._place(settings))
            with contextlib.closing(store):
                if not store.lead():
                    raise RunError(f"{self.path}: a process serves its database. Stop all of them first.")
                mark, goes_on = _new_mark(store), copied and Path(settings.copy_to).resolve() == self.path.resolve()
                if not settings.database:
                    store.begin_copy(settings.copy_to if goes_on else "", mark)
                if has_every_head:
                    with contextlib.suppress(ConfigError):  # no tokens are sold, or that was asked for before
                        ask_rotation(partial, store, terms, ISSUER_KEY, Path())
                    put_back = None
                else:
                    last = store.last_round()
                    epoch = terms.epoch_of(last.number) if last and terms.tokens else 0
                    put_back = store.recover(epoch, int(time.time()), sign)
            if copied:  # from here on the hub that wrote it shows no further head
                write_atomically(self.path / _COPY, mark.encode() + b"\n", 0o600)
        return put_back

    def _copy_files(self, to: Path) -> None:
        for name in _BACKED_UP:
            if (self.path / name).exists():
                write_atomically(to / name, (self.path / name).read_bytes(), 0o600)

    @contextlib.contextmanager
    def _copy_to(self, out: Path, settings: HubSettings, into_empty: bool = False) -> Iterator[Path]:
        """A folder with the hub's files, which takes its place when the block ends well, and else is deleted.

        An existing empty folder may be a mounted one, which no other takes the place of: the files are moved into
        it, the settings last, which make a hub of it.
        """
        partial, there = None, out.exists() or out.is_symlink()
        if there and not (into_empty and out.is_dir() and not any(out.iterdir())):
            wanted = "that does not exist, or is empty" if into_empty else "that does not exist"
            raise ConfigError(f"{out}: exists already; nothing is written over. Choose a folder {wanted}.")
        try:
            beside = out if there else out.absolute().parent
            beside.mkdir(parents=True, exist_ok=True)
            partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".partial", dir=beside))
            if not settings.database:
                copy_database(self.log, partial / self.log.name)
            self._copy_files(partial)
            yield partial
            if there:
                for path in sorted(partial.iterdir(), key=lambda path: path.name == self.settings.name):
                    path.rename(out / path.name)
            else:
                partial.rename(out)
            sync_folder(beside)
        except (OSError, sqlite3.Error) as error:
            raise RunError(f"{out}: the copy cannot be made ({error}). Nothing was written.") from error
        finally:
            if partial is not None and partial.exists():
                shutil.rmtree(partial, ignore_errors=True)

    def _check_whole(self) -> None:
        """Check that a hub can be served from this folder.

        Raises:
            RunError: A file is missing, damaged, or does not belong to the others.
        """
        settings, store = self.open(read_only=True)
        with contextlib.closing(store):
            found = [("ok",)] if settings.database else store.query("PRAGMA integrity_check")
            if found != [("ok",)]:
                raise RunError(f"{self.log.name}: is damaged ({found[0][0]}).")
            terms = settings.terms(store.name)
            for what, there in ((LOG_KEY, terms.log), (GATEWAY_KEY, terms.gateway)):
                if there:
                    private_keys(self.path, store, terms, what)
        for name in ("enrolment", "admin"):
            self.token(name)


_PASSWORD = "database.password"
#: Copy of the model that the hub starts from, whose normalisation its models have.
_START = "start.safetensors"
#: File that says that a folder is a backup, its words; and the one with the mark that a hub and its copy share.
_BACKUP, _HOW, _COPY = "backup", b"fedrank hub restore makes a hub of this folder\n", "copy"
_LOG_FILES = ("hub.db", "hub.db-wal", "hub.db-shm", "hub.db-journal")
_SMALL_FILES = ("hub.toml", "enrolment.token", "admin.token", LOG_FILE, GATEWAY_FILE, _PASSWORD, _START)
#: Files that a folder may have in which a hub is made, and those that a backup has beside the databases.
_HUB_FILES = (*_SMALL_FILES, *_LOG_FILES, "hub.url", "hub.lock", "checkpoints", OPERATOR_FILE)
_BACKED_UP = (*_SMALL_FILES, "attestation.toml")


def _new_mark(store: Store) -> str:
    """A mark that a hub and its copy share from now on: the hub's name, and random digits."""
    return f"{store.name} {secrets.token_hex(16)}"


def _mark_copy(copy: Path, hub: str, mark: str) -> None:
    """Make a folder a hub's copy; it is new, empty, or has only a mark of this hub from a start that failed.

    Raises:
        ConfigError: It holds other things.
        RunError: It cannot be written.
    """
    file = copy / _COPY
    try:
        copy.mkdir(mode=0o700, parents=True, exist_ok=True)
        there = [path.name for path in copy.iterdir() if path.suffix != ".partial"]
        if there and not (there == [_COPY] and file.read_bytes().startswith(f"{hub} ".encode())):
            raise ConfigError(f"copy_to: {copy} holds other things ({there[0]}, …). Choose an empty folder.")
        with contextlib.suppress(PermissionError):  # the root of a disk that is root's
            copy.chmod(0o700)
    except OSError as error:
        raise RunError(f"copy_to: {copy} cannot be made or read ({error}). Choose another folder.") from error
    write_atomically(file, mark.encode() + b"\n", 0o600)


def _start_weights(wanted: HubSettings) -> bytes:
    """Weights of the model that a new hub starts from, little-endian float32; empty: none is named.

    Raises:
        ModelError: There is no such file, or it is no ranking model.
        ConfigError: Its ranker is another.
    """
    if not wanted.start_from:
        return b""
    from fedrank.engine.model import read_model
    from fedrank.ranking.model import RankingModel

    model, ranker = read_model(wanted.start_from), wanted.protocol().ranker
    if not isinstance(model, RankingModel) or model.ranker != ranker:
        found = model.ranker if isinstance(model, RankingModel) else f"a {type(model).__name__}"
        raise ConfigError(f"start_from: {wanted.start_from} is {found}, and the hub's ranker is {ranker}.")
    return np.asarray(model.weights, "<f4").tobytes()


def _is_former(settings: HubSettings, store: Store) -> bool:
    """True if a hub sold tokens as a former version did, which differs in nothing else that its log means."""
    there = json.loads(store.settings)
    return bool(settings.tokens) and there == {**fingerprint(settings, store.name), "wire": 2}


def _differences(log: dict, settings: dict) -> str:
    """The entries in which the settings differ from those in the log, as text."""
    names = [name for name in {**log, **settings} if log.get(name) != settings.get(name)]
    return ", ".join(f"{name} is {settings.get(name)!r}, was {log.get(name)!r}" for name in names)


class Operator:
    """Requests with the admin token.

    Args:
        home: Folder of the hub, which must be running.
        ca: File with the certificates to trust, in place of the hub's own, which lies on this machine.

    Raises:
        RunError: No hub runs from the folder, or its token cannot be read.
    """

    def __init__(self, home: HubFolder, ca: str | os.PathLike[str] | None = None):
        self._url = home.url("hub")
        pinned = home.certificate("hub") if ca is None else None
        self._client = PersistentClient(self._url, home.token("admin"), ca=ca, allow_http=True, pinned=pinned)

    def ask(self, method: str, path: str, *, ignore: tuple[str, ...] = ()) -> ClientResponse:
        """Send a request.

        Args:
            method: ``GET``, ``POST`` or ``DELETE``.
            path: Path below the hub's address.
            ignore: Reasons of refusals that are no error.

        Raises:
            RunError: The hub does not answer, or refuses.
        """
        try:
            answer = self._client.ask(method, path, b"" if method == "POST" else None)
        except OSError as error:
            raise RunError(f"{self._url}: the hub does not answer ({error}). Is it running?") from error
        if answer.status >= 300 and answer.reason not in ignore:
            raise RunError(f"{self._url}{path}: the hub refuses ({answer.status} {answer.reason}).")
        return answer
