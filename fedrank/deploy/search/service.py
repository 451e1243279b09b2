"""Puts an owner together from its folder, and does what its operator asks, whether it is served now or not."""

from __future__ import annotations

import json
import logging
import os
import ssl
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from fedrank.core.errors import RunError
from fedrank.deploy.http.client import HttpClient
from fedrank.deploy.search.federation import read_federation
from fedrank.deploy.search.folder import OwnerFolder
from fedrank.deploy.search.owner_app import OwnerApp
from fedrank.deploy.search.statistics import StatisticsParty
from fedrank.texts.served.documents import Document, read_documents
from fedrank.texts.served.engines import Engine

_log = logging.getLogger("fedrank.owner")

R = TypeVar("R")

#: Bytes of documents that go to a running owner in one request.
_CHUNK = 16 << 20


def owner_app(home: OwnerFolder, federation: Path | None = None, documents: Path | None = None) -> OwnerApp:
    """The application of the owner in a folder that is prepared and locked.

    Args:
        home: The folder.
        federation: The federation's file; None: the owner takes part in no statistics.
        documents: Documents to add before anything is answered.

    Raises:
        ConfigError: Settings or federation cannot be used, or the federation does not know this owner.
        RunError: Something in the folder cannot be used.
        DataError: The documents cannot be read; none of them is added.
    """
    encoder = home.encoder()
    engine, askers = home.engine(encoder), home.askers()
    try:
        if documents is not None:
            _add_given(engine, documents)
        party = None
        file = None if federation is None else read_federation(federation)
        if file is not None and len(file.owners) > 1:  # the sum over one owner would be that owner's
            party = StatisticsParty(home, home.private_key(), file, engine)
        return OwnerApp(home, home.owner(engine, askers, encoder), askers, party)
    except BaseException:
        engine.close()
        askers.close()
        raise


def _add_given(engine: Engine, documents: Path) -> None:
    """Add the documents that are given at a start, and say how many others the index holds."""
    ids = set[int]()

    def counted() -> Iterator[Document]:
        for document in read_documents(documents):
            ids.add(hash(document.id))
            yield document

    _log.info("%d documents were added", engine.add(counted()))
    if others := len(engine) - len(ids):
        _log.warning(
            "%d documents of the index are not in %s and are found all the same, from an earlier start or from fedrank "
            "owner add; fedrank owner remove takes them away",
            others,
            documents,
        )


class Operator:
    """What an operator does with an owner: through the process that serves it, or on its folder if there is none.

    Args:
        folder: Folder of the owner.

    Raises:
        RunError: There is no owner.
    """

    def __init__(self, folder: str | os.PathLike[str]):
        self._home = OwnerFolder(folder)
        self._home.public_key()
        self._client: HttpClient | None = None
        if self._home.url_path("owner").exists():
            pinned = self._home.certificate("owner")
            self._client = HttpClient(self._home.url("owner"), allow_http=True, timeout=120.0, pinned=pinned)

    def add(self, documents: Path) -> tuple[int, int]:
        """Add documents.

        Returns:
            How many were added, and how many there are.

        Raises:
            DataError: The documents cannot be read.
            RunError: They cannot be added; those of earlier chunks may have been.
        """
        if not self._served():
            return self._at_home(lambda engine: (engine.add(read_documents(documents)), len(engine)))
        added = total = 0
        for chunk in _chunks(read_documents(documents)):
            found = self._asked("POST", "/v1/documents", chunk)
            added, total = added + found["documents"], found["all"]
        return added, total

    def remove(self, ids: Iterable[str]) -> tuple[int, int]:
        """Take documents away; returns how many, and how many there are. Errors as :meth:`add`."""
        wanted = list(ids)
        if not self._served():
            return self._at_home(lambda engine: (engine.remove(wanted), len(engine)))
        found = self._asked("DELETE", "/v1/documents", "\n".join(wanted).encode())
        return found["documents"], found["all"]

    def status(self) -> dict[str, Any]:
        """Numbers of the owner."""
        if self._served():
            return self._asked("GET", "/status.json", None)
        askers = self._home.askers()
        rows = [{"name": name, "searched": s, "fetched": f} for name, s, f in askers.rows()]
        askers.close()
        table = self._home.table()
        return {
            "documents": self._at_home(len),
            "answered": 0,
            "statistics": "shared" if table else "own",
            "note": table.note() if table else "",
            "releases": self._home.releases(),
            "askers": rows,
        }

    def _served(self) -> bool:
        """Whether the process that wrote its address answers; one that was killed has left the file."""
        if self._client is None:
            return False
        try:
            return self._client.request("GET", "/healthz", "").status == 200
        except ssl.SSLError as error:
            raise RunError(
                f"{self._home.path}: what answers at {self._client.url} does not have the certificate "
                f"{self._home.certificate('owner')} ({error}). Start the owner again."
            ) from error
        except OSError:
            return False

    def _at_home(self, act: Callable[[Engine], R]) -> R:
        with self._home.locked():
            engine = self._home.engine(self._home.encoder())
            try:
                return act(engine)
            finally:
                engine.close()

    def _asked(self, method: str, path: str, body: bytes | None) -> dict[str, Any]:
        assert self._client is not None
        try:
            found = self._client.request(method, path, self._home.token("admin"), body=body, limit=1 << 20)
        except OSError as error:
            raise RunError(f"{self._home.path}: the owner's process does not answer ({error}).") from error
        if found.status != 200:
            raise RunError(f"{self._home.path}: refused: {found.json().get('detail') or found.status}")
        return found.json()


def _chunks(documents: Iterator[Document]) -> Iterator[bytes]:
    """JSON lines of documents, in pieces of about :data:`_CHUNK` bytes."""
    lines: list[bytes] = []
    size = 0
    for document in documents:
        line = json.dumps({"id": document.id, "title": document.title, "text": document.body}).encode()
        if lines and size + len(line) > _CHUNK:
            yield b"\n".join(lines)
            lines, size = [], 0
        lines.append(line)
        size += len(line) + 1
    if lines:
        yield b"\n".join(lines)
