"""Prove that a file is the published one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedrank.core.errors import ChecksumError, ConfigError
from fedrank.data.lines import read_pieces

_KINDS = {"md5": hashlib.md5, "sha256": hashlib.sha256, "git": hashlib.sha1}


def digest(path: Path, kind: str, unix: bool = False) -> str:
    """The checksum of a file's content; a .gz, .bz2 or .xz is unpacked on the way.

    Args:
        path: The file.
        kind: ``md5``, ``sha256`` or ``git`` (the id of a git blob: SHA-1 of ``blob <bytes>``, a zero byte,
            the content).
        unix: Whether Windows line ends are taken as Unix ones.

    Returns:
        Hexadecimal, lower case.

    Raises:
        ConfigError: No such kind.
        FormatError: The packed file is cut or damaged.
        MissingDataError: There is no such file.
    """
    if kind not in _KINDS:
        raise ConfigError(f"checksum kind must be one of {', '.join(_KINDS)}, got {kind!r}.")
    total = _KINDS[kind](usedforsecurity=False)
    if kind == "git":
        total.update(b"blob %d\0" % sum(len(line) for line in _content(path, unix)))
    for line in _content(path, unix):
        total.update(line)
    return total.hexdigest()


def verify(path: Path, expected: Sequence[str]) -> bool:
    """Check a file against the checksums it may have, each ``kind:hex``.

    Returns:
        True if one matches, False if none is known.

    Raises:
        ChecksumError: None matches; says what was expected and what the file has.
    """
    got: dict[str, str] = {}
    for unix in (False, True):
        for kind, _, value in (known.partition(":") for known in expected):
            found = digest(path, kind, unix)
            if found == value:
                return True
            got.setdefault(kind, found)
    if not expected:
        return False
    raise ChecksumError(
        f"this is not the published file: expected {' or '.join(expected)}, "
        f"got {', '.join(f'{kind}:{value}' for kind, value in got.items())} ({path.stat().st_size:,} bytes on disk). "
        "It was cut, edited or mixed up: get it again, or give its path instead of the set's name.",
        path,
    )


def _content(path: Path, unix: bool) -> Iterator[bytes]:
    for line in read_pieces(path):
        yield line[:-2] + b"\n" if unix and line.endswith(b"\r\n") else line
