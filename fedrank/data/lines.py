"""The lines of a LETOR file on their way to the parser: unpacked, counted, and divided into queries.

:class:`Lines` takes the query of each row, so that the parser of numbers (:mod:`fedrank.ranking.data.letor`) sees
features only, and any text may be a query's name.

Checksums prove that a file is the published one.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import hashlib
import lzma
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedrank.core.errors import ChecksumError, ConfigError, FormatError, MissingDataError

_PACKED = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
_ARCHIVES = {b"PK\x03\x04": "zip", b"Rar!": "rar", b"7z\xbc\xaf": "7z"}
#: What UTF-8 text of some editors begins with: a byte-order mark, which is no part of the first line.
_MARK = codecs.BOM_UTF8
#: The name of a row's document in its comment, as LETOR writes it.
_DOCUMENT = re.compile(rb"#[^\n]*?\bdocid\s*=\s*(\S+)")
_WIDE = {codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a plain, .gz, .bz2 or .xz file; what it is, its first bytes say, not its name.

    A line ends with a line feed, a carriage return, or both; it is yielded with a line feed. A byte-order mark of UTF-8
    is passed over.

    Raises:
        MissingDataError: There is no such file.
        FormatError: It is empty, an archive of several files, UTF-16, or a packed file that is cut or damaged.
    """
    for number, line in enumerate(read_pieces(path)):
        if number == 0:
            wide = next((name for mark, name in _WIDE.items() if line.startswith(mark)), None)
            if wide is not None:
                raise FormatError(f"the text is {wide}; save it as UTF-8 or ASCII.", path, 1)
            line = line.removeprefix(_MARK)
        if b"\r" not in line:
            yield line
            continue
        for part in line.splitlines(keepends=True):
            yield part.rstrip(b"\r\n") + b"\n" if part.endswith((b"\r", b"\n")) else part


def read_pieces(path: Path) -> Iterator[bytes]:
    """The bytes of a plain, .gz, .bz2 or .xz file, each piece up to a line feed; errors as :func:`read_lines`."""
    if not path.is_file():
        what = "this is a folder, not a file" if path.is_dir() else "there is no such file"
        raise MissingDataError(f"{what}; give the path of a LETOR file.", path)
    with open(path, "rb") as file:
        magic = file.read(6)
    if not magic:
        raise FormatError("the file is empty; was its download cut off?", path)
    for start, kind in _ARCHIVES.items():
        if magic.startswith(start):
            raise FormatError(f"this is a {kind} archive; unpack it and give the text files in it.", path)
    opener = next((opener for start, opener in _PACKED.items() if magic.startswith(start)), None)
    if opener is None:
        with open(path, "rb") as file:
            yield from file
        return
    count = 0
    try:
        with opener(path, "rb") as file:
            for count, line in enumerate(file, start=1):  # noqa: B007 - the error below says how far it got
                yield line
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as cause:
        raise FormatError(
            f"the packed file is cut or damaged after line {count} ({cause}); get it again.", path
        ) from cause


class Lines:
    """Iterates the lines that hold rows; blank lines and comments are passed over.

    Args:
        path: The file.
        groups: Whether the file's queries come from elsewhere, so that its rows have no ``qid``.

    Attributes:
        number: 1-based number of the line read last.
        text: That line.
        rows: Rows so far.
        skipped: Numbers of the lines without a row, ascending.
        qids: The queries, in order.
        starts: Row at which each query begins.
        documents: The document's name of each row, from a comment such as ``#docid = GX000-00-0000001``; empty if a row
            has none.
    """

    def __init__(self, path: Path, groups: bool):
        self.path, self.groups = path, groups
        self.number, self.text, self.before, self.rows = 0, b"", b"", 0
        self.skipped: list[int] = []
        self.qids: list[str] = []
        self.starts: list[int] = []
        self.documents: list[str] = []
        self._named = True
        self._seen: set[bytes] = set()

    def __iter__(self) -> Iterator[bytes]:
        query = b""
        for line in read_lines(self.path):
            self.number += 1
            head = line.split(None, 2)
            if not head or head[0].startswith(b"#"):
                self.skipped.append(self.number)
                continue
            self.before, self.text = self.text, line
            token = head[1] if len(head) > 1 else b""
            if self.groups:
                if token.startswith(b"qid"):
                    raise self.error("this row has a qid; leave out the group sizes, or take the qids out.")
            elif token != query:
                self._begin(token)
                query = token
            self.rows += 1
            if self._named:
                self._name(line)
            yield line

    def _name(self, line: bytes) -> None:
        """Keep the name of the row's document; all names are dropped at the first row without."""
        found = _DOCUMENT.search(line)
        if found is None:
            self._named, self.documents = False, []
        else:
            self.documents.append(shown(found[1]))

    def _begin(self, token: bytes) -> None:
        """A row whose second token is not the one of the row above: a new query, or a fault."""
        qid = token.split(b"#", 1)[0]
        if not qid.startswith(b"qid:") or qid == b"qid:":
            raise self.error(explain(self.text, qid=True))
        if qid in self._seen:
            raise self.error(
                f"the rows of query {shown(qid[4:])} are not next to each other: it began at line "
                f"{self.line_of(self.starts[self.qids.index(shown(qid[4:]))])} and ended before this row. "
                "Sort the file by query."
            )
        self._seen.add(qid)
        self.qids.append(shown(qid[4:]))
        self.starts.append(self.rows)

    def error(self, message: str, line: int | None = None) -> FormatError:
        """An error at a line, by default the one read last."""
        return FormatError(message, self.path, self.number if line is None else line)

    def line_of(self, row: int) -> int:
        """1-based line of a 0-based row."""
        line = row + 1
        for skipped in self.skipped:
            if skipped > line:
                break
            line += 1
        return line


def shown(token: bytes) -> str:
    """A token as text for messages and names, whatever bytes it has."""
    return token.decode("utf-8", "backslashreplace")


def explain(text: bytes, qid: bool) -> str:
    """The fault of a row that could not be read, in words for an error.

    Args:
        text: The line.
        qid: Whether the row must have a query.
    """
    if b"\0" in text or sum(byte < 9 or 13 < byte < 32 for byte in text[:1000]) > 2:
        return "this is a binary file, not LETOR text (label qid:query index:value ...)."
    cut = "" if text.endswith(b"\n") else " The file ends with this line: it was probably cut off here."
    return _fault(text.split(b"#", 1)[0].split(), qid) + cut


def _fault(tokens: list[bytes], qid: bool) -> str:
    label, features = tokens[0], tokens[1:]
    if b":" in label:
        return f"the label is missing: the row begins with {shown(label)!r}."
    if not _is_number(label):
        return f"the label must be a number, got {shown(label[:40])!r}; is this a LETOR file?"
    if qid:
        if not features or not features[0].startswith(b"qid:") or features[0] == b"qid:":
            got = f"got {shown(features[0][:40])!r}" if features else "got nothing"
            return (
                f"the label must be followed by the query, as qid:NAME; {got}. qid is in small letters; sizes of "
                "queries in a separate file are given in Python, as groups."
            )
        features = features[1:]
    last = -1
    for token in features:
        index, colon, value = token.partition(b":")
        if not colon or not index.lstrip(b"-").isdigit():
            return f"expected index:value, got {shown(token[:40])!r}."
        if not 0 <= int(index) < 2**31:
            return f"feature index {shown(index)} is out of range."
        if int(index) == last:
            return f"feature {last} occurs twice."
        if int(index) < last:
            return f"feature indices must ascend, got {int(index)} after {last}."
        if not _is_number(value):
            return f"the value of feature {int(index)} must be a number, got {shown(value[:40])!r}."
        last = int(index)
    return "the row cannot be read; expected label qid:query index:value ..."


def _is_number(token: bytes) -> bool:
    try:
        float(token)
    except ValueError:
        return False
    return True


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
