"""Queries among decoys: an owner gets several queries at once and is not told which of them a person has asked.

Decoys are taken from a list of queries that people like the asker ask: a decoy that nobody would search for convinces
nobody. A query has the same decoys whenever it is asked, so that two questions laid side by side tell nothing; they
follow from a key that owners do not have, or they would compute whose decoys are whose.

**What decoys hide**: which of n + 1 queries it was, from an owner that takes each for as likely as the others. **What
they do not hide**: that it was one of them; a document that is fetched, which only one of the lists holds; and what
an owner concludes from what it knows of the asker.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from fedrank.core.errors import ConfigError, RunError
from fedrank.texts.served.owner import LONGEST_QUERY, MOST_AT_ONCE

#: Bytes of a key.
KEY = 32


class Decoys:
    """Chooses decoys.

    Args:
        queries: Queries that people like the asker ask, as they are typed.
        number: Decoys of a query.
        key: 32 bytes that no owner has.

    Raises:
        ConfigError: There are too few different queries, or too many decoys are wanted.
    """

    def __init__(self, queries: Sequence[str], number: int, key: bytes):
        self._queries = sorted({" ".join(query.split())[:LONGEST_QUERY] for query in queries} - {""})
        self._number, self._key = number, key
        if not 1 <= number < MOST_AT_ONCE:
            raise ConfigError(f"decoys of a query must be in 1..{MOST_AT_ONCE - 1}, got {number}.")
        if len(self._queries) <= number:
            raise ConfigError(
                f"{number} decoys need a list of more than {number} different queries, got {len(self._queries)}."
            )
        if len(key) != KEY:
            raise ConfigError(f"a key of decoys has {KEY} bytes, got {len(key)}.")

    def of(self, query: str) -> list[str]:
        """The decoys of a query; the same ones whenever it is asked."""
        asked = " ".join(query.split())
        others = (other for other in self._queries if other != asked)
        return sorted(others, key=lambda other: self._place(asked, other))[: self._number]

    def among(self, query: str) -> tuple[list[str], int]:
        """The query among its decoys in an order drawn anew, and its place in it."""
        queries = [query, *self.of(query)]
        secrets.SystemRandom().shuffle(queries)
        return queries, queries.index(query)

    def _place(self, asked: str, other: str) -> bytes:
        text = b"\0".join(part.encode("utf-8", "surrogatepass") for part in (asked, other))
        return hmac.new(self._key, text, hashlib.sha256).digest()


def decoys_of(queries: Path, number: int) -> Decoys:
    """Decoys from a file with a query a line; the key lies beside it, in ``decoys.key``, and is made if missing.

    Raises:
        ConfigError: The file cannot be read or is too short, or the key is damaged.
        RunError: A key cannot be written.
    """
    try:
        lines = queries.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{queries}: cannot be read as a list of queries, one a line ({error}).") from error
    path = queries.parent / "decoys.key"
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as out:
            out.write(os.urandom(KEY))
    except FileExistsError:
        pass
    except OSError as error:
        raise RunError(f"{path}: cannot be written ({error.strerror}).") from error
    try:
        return Decoys(lines, number, path.read_bytes())
    except ConfigError as error:
        raise ConfigError(f"{queries}: {error}") from error
