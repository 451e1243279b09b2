"""Folders and files of platforms and of their coordinator.

::

    config.toml          the configuration that all agreed on, resolved
    platform.db          a platform's sessions, sums, items and plan (coordinator.db: the coordinator's state)
    coordinator.token    token with which the coordinator asks the platform: give it to the coordinator
    application.token    token of the platform's own application
    coordinator.url      URLs at which the platform listens for each of them, while it runs
    application.url

The state is one SQLite file of named values, written together or not at all, in write-ahead mode with ``synchronous =
NORMAL``: a process that is killed loses nothing that it has acknowledged. A power cut may undo the last commits;
platforms and coordinator notice this and continue as after any interruption.

The terms that platforms and their coordinator agree on before the first round are one configuration file. A coordinator
asks every platform for its :attr:`Terms.fingerprint`, and refuses platforms with another one. Steps are those of
:mod:`fedrank.slates.sums`, computed with NumPy; requests are decoded from bytes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError, RunError, WireError
from fedrank.core.messages import WIRE_VERSION, Layout
from fedrank.core.protocol import Exchange
from fedrank.core.rng import WORLD
from fedrank.core.streams import AnyKey, fold, run_words
from fedrank.deploy.database import VersionError, create_private, open_database, transaction
from fedrank.deploy.folder import ServedFolder
from fedrank.deploy.http.guard import RefusedError
from fedrank.engine.checkpoint import leaves_of, plain_array, tree_like, write_atomically
from fedrank.engine.config import RunConfig
from fedrank.engine.settings import to_toml
from fedrank.slates.build import experiment_of
from fedrank.slates.config import SlatesRun
from fedrank.slates.sums.stays import plays_stays

#: Path of requests to a platform: ``/v1/exchange/<round>/<index of the exchange in the protocol>``.
EXCHANGE_PATH = "/v1/exchange/"
#: Path of requests of a secure sum: ``/v1/sum/<round>/<index of the exchange>/<step>``.
SUM_PATH = "/v1/sum/"
#: Most bytes of a request of a platform's own application, and most calls of a batch.
LARGEST_REQUEST, MOST_CALLS = 1 << 25, 1000


@dataclass(frozen=True, eq=False)
class Terms:
    """A configuration and its protocol.

    Attributes:
        config: The configuration, resolved.
        protocol: The protocol.
        seeded: Draw from the run's seed, as a simulator does; nothing is protected then.

    Raises:
        ConfigError: The configuration has no platforms that serve by themselves, or they take JAX.
    """

    config: SlatesRun
    protocol: Any  # SummedSlates of a learner that plays with NumPy
    seeded: bool = False

    @classmethod
    def of(cls, config: RunConfig, seeded: bool = False) -> Terms:
        """The terms of a configuration, resolved or not; errors as the class."""
        filled = config.resolved() if isinstance(config, SlatesRun) and config.played.plans else None
        protocol = None if filled is None else experiment_of(filled).protocol
        if filled is None or not plays_stays(protocol):
            raise ConfigError(
                f"protocol {config.protocol!r} with these settings has no platforms to serve: they would ask each "
                "other in every round, or take JAX. Take planned-slates, and users who choose by a multinomial."
            )
        return cls(filled, protocol, seeded)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of protocol and settings, and of the numbers of a model to start from: 16 hexadecimal digits."""
        tensors = {} if self.protocol.start is None else self.protocol.start.tensors
        agreed = hashlib.sha256(repr((self.protocol.name, dataclasses.replace(self.protocol, start=None))).encode())
        for name, values in sorted(tensors.items()):
            agreed.update(name.encode() + np.ascontiguousarray(values, np.float32).tobytes())
        return agreed.hexdigest()[:16]

    def compute(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """The value of a step; numbers that are not finite are refused elsewhere, and not warned about."""
        with np.errstate(over="ignore", invalid="ignore"):
            return step(*arguments)

    @cached_property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The protocol's exchanges; the index of an exchange is its number on the wire."""
        return self.protocol.exchanges

    @cached_property
    def meeting(self) -> int:
        """Index of the exchange after which users act; those after it learn."""
        return next(place for place, exchange in enumerate(self.exchanges) if exchange.environment is not None)

    @property
    def platforms(self) -> int:
        """Number of platforms that share users, K, at least 1."""
        return self.protocol.world.platforms

    # -- randomness ------------------------------------------------------------------------------------------------

    def key(self, *path: int) -> AnyKey:
        """The run's random key folded with these numbers, as a simulator does.

        Unless it is seeded: a new key with 32 bits of entropy, for draws that protect no user, such as initial weights.
        """
        seed = self.config.seed if self.seeded else secrets.randbits(32)
        return functools.reduce(fold, path, run_words([seed])[0])

    def draws(self, place: int, platform: int, number: int) -> PyTree:
        """A platform's random draws in an exchange: from the operating system, unless it is seeded.

        Args:
            place: Index of the exchange.
            platform: Number of the platform.
            number: Number of the round.
        """
        exchange = self.exchanges[place]
        return exchange.draw(self.key(number, platform, place)) if self.seeded else exchange.draw_from_os()

    def world_key(self, number: int | None) -> AnyKey:
        """Random key of the users' behaviour in a round: a new one at every call, unless it is seeded.

        Args:
            number: Number of the round; None: before the first.
        """
        return self.key(WORLD) if number is None else self.key(number, WORLD)


class NotYetError(RefusedError):
    """A platform refuses a request now, but will not once something else has happened."""


def blank_message(layout: Layout) -> bytes:
    """A message of this layout whose numbers are all 0."""
    return bytes([WIRE_VERSION << 5 | layout.kind]) + bytes(layout.nbytes - 1)


def decode_as(layout: Layout, body: bytes) -> Any:
    """Decode a message of a layout.

    Raises:
        RefusedError: It has another size or kind, or a number out of range.
    """
    if len(body) != layout.nbytes or body[0] != WIRE_VERSION << 5 | layout.kind:
        raise RefusedError("malformed")
    try:
        return layout.decode(body)
    except WireError as error:
        raise RefusedError("out-of-range") from error


#: SQL that leads from each version of the file to the next; append, and change none that was released.
_STEPS = ("CREATE TABLE piece (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID",)


class KeyValueStore:
    """Named values in one SQLite file; for one thread at a time.

    Args:
        path: The file, made if it is not there.
        about: What it belongs to, as text; a file that belongs to something else is refused.

    Raises:
        RunError: It is not such a file, belongs to something else, or cannot be written.
    """

    def __init__(self, path: Path, about: str):
        self.path = Path(path)

        def fill(db: sqlite3.Connection) -> None:
            db.execute("INSERT INTO piece VALUES ('about', ?)", (about.encode(),))

        with self._errors():
            create_private(self.path)  # what users did must not be readable for others
            self._db = open_database(self.path, _STEPS, synchronous="NORMAL", fill=fill)
        try:
            found = (self.get("about") or b"").decode(errors="replace")
            if found != about:
                raise RunError(
                    f"{self.path}: belongs to {found}, and not to {about}. Give another folder, or the settings it was "
                    "made with."
                )
        except BaseException:
            self._db.close()
            raise

    def get(self, name: str) -> bytes | None:
        """The value of a name; None if there is none."""
        with self._errors():
            row = self._db.execute("SELECT value FROM piece WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def below(self, prefix: str) -> list[tuple[str, bytes]]:
        """Names that begin with ``prefix``, without it, and their values; sorted by name."""
        with self._errors():
            select = "SELECT name, value FROM piece WHERE name >= ? AND name < ? ORDER BY name"
            rows = self._db.execute(select, (prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1))).fetchall()
        return [(name[len(prefix) :], value) for name, value in rows]

    def put(self, values: Mapping[str, bytes], without: Iterable[str] = ()) -> None:
        """Write values and remove others, all of them or none.

        Args:
            values: New values by name.
            without: Names to remove first.

        Raises:
            RunError: The disk is full, or the file cannot be written; nothing has changed.
        """
        with self._errors(), transaction(self._db):
            self._db.executemany("DELETE FROM piece WHERE name = ?", [(name,) for name in without])
            self._db.executemany("INSERT OR REPLACE INTO piece VALUES (?, ?)", list(values.items()))

    def close(self) -> None:
        """Close the file; the store cannot be used afterwards."""
        self._db.close()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of SQLite and of the file system into :class:`RunError`."""
        try:
            yield
        except VersionError as error:
            raise RunError(f"{self.path}: written by a later version of this program. Use that one.") from error
        except (sqlite3.Error, OSError) as error:
            raise RunError(f"{self.path}: cannot be used ({error}). Make room, or mend its permissions.") from error


def pack_tree(tree: PyTree) -> bytes:
    """The arrays of a pytree, one after the other; of typed keys, their words."""
    return b"".join(plain_array(leaf).tobytes() for leaf in leaves_of(tree))


def unpack_tree(data: bytes, like: PyTree) -> Any:
    """The inverse of :func:`pack_tree`.

    Args:
        data: The bytes.
        like: A pytree of the same shapes and types.

    Raises:
        RunError: Another number of bytes.
    """
    plain = [plain_array(leaf) for leaf in leaves_of(like)]
    if sum(one.nbytes for one in plain) != len(data):
        raise RunError(f"what was kept has {len(data)} bytes, and not as many as these settings need.")
    found, at = [], 0
    for one in plain:
        found.append(np.frombuffer(data[at : at + one.nbytes], one.dtype).reshape(one.shape))
        at += one.nbytes
    return tree_like(like, found)


#: Those who have a token of a platform, and a URL to ask it at.
CLIENTS = ("coordinator", "application")


class PlatformFolder(ServedFolder):
    """Paths of a platform's files, or of a coordinator's; arguments as of the base class."""

    kind, command = "platform", "fedrank slates serve"

    def open_store(self, name: str, terms: Terms) -> KeyValueStore:
        """Open the database of ``"platform 0"``, ``"coordinator"`` and so on; it is made if it is not there.

        Raises:
            RunError: It belongs to something else, or cannot be written.
        """
        seed = f", draws from seed {terms.config.seed}" if terms.seeded else ""
        store = KeyValueStore(self.path / f"{name.split()[0]}.db", f"{name} of terms {terms.fingerprint}{seed}")
        try:
            write_atomically(self.path / "config.toml", to_toml(terms.config).encode())
        except BaseException:
            store.close()
            raise
        return store
