"""Read LETOR files: SVMlight rows with queries.

One row is one document::

    2 qid:10032 1:0.056537 2:0.000000 3:0.666667 ... 46:0.076923 #docid = GX029-35-5894638 ...

label, query, ascending ``index:value`` pairs, an optional comment. Features missing on a row are 0. The rows
of a query are next to each other. Indices begin at 1 in most published sets and at 0 in some;
``zero_based="auto"`` takes the latter only if an index 0 occurs. Files may be packed with gzip, bzip2 or xz.
LightGBM's form, without ``qid`` and with the queries' sizes in a separate file, is read with ``groups``.

The numbers are those of scikit-learn's ``load_svmlight_file``, bit by bit. What no ranker can use is refused with the
file and the line, even where that function accepts it: NaN, labels that are not grades, queries in pieces, cut files.
"""

from __future__ import annotations

import math
import os
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np

from fedrank.core.errors import ConfigError, FormatError
from fedrank.data.lines import Lines, explain, read_lines, shown
from fedrank.ranking.data.queries import TO_GRADES, QuerySet

Source = str | os.PathLike[str]
ZeroBased = bool | Literal["auto"]

#: Features of a document at most: every feature of every document is held in memory.
MOST_FEATURES = 1_000_000
#: Rows whose numbers are converted at once: few enough that their text and its parts stay small beside the result.
_BLOCK = 256
#: Features of rows, one row after another. What a value is, ``float`` decides.
_FEATURES = re.compile(rb"\s*+(?:\d++:[^\s:]++\s++)*+")


def read(
    path: Source,
    *,
    n_features: int | None = None,
    max_label: int | None = None,
    zero_based: ZeroBased = "auto",
    groups: Source | None = None,
    name: str = "",
) -> QuerySet:
    """The queries of one file.

    Args:
        path: Plain text, .gz, .bz2 or .xz.
        n_features: Number of features; higher indices are refused, missing ones are 0. By default the highest
            index that occurs decides.
        max_label: Highest label allowed; by default any.
        zero_based: Whether indices begin at 0; ``"auto"``: if an index 0 occurs.
        groups: File with the number of rows of each query, one a line, for files without ``qid``.
        name: Name of the set; by default the path.

    Raises:
        MissingDataError: There is no such file.
        FormatError: A line cannot be used; says which and why.
        ConfigError: A setting is out of range.
    """
    return read_parts(
        [path],
        n_features=n_features,
        max_label=max_label,
        zero_based=zero_based,
        groups=None if groups is None else [groups],
        names=[name] if name else None,
    )[0]


def read_parts(
    paths: Sequence[Source],
    *,
    n_features: int | None = None,
    max_label: int | None = None,
    zero_based: ZeroBased = "auto",
    groups: Sequence[Source | None] | None = None,
    names: Sequence[str] | None = None,
) -> list[QuerySet]:
    """One set a file, all with the same features.

    Where indices begin and how many there are is decided over all files together, because a single sparse
    file may lack the first or the last feature. Arguments and errors as :func:`read`.
    """
    if zero_based not in (True, False, "auto"):
        raise ConfigError(f"zero_based must be True, False or 'auto', got {zero_based!r}.")
    if n_features is not None and n_features < 1:
        raise ConfigError(f"n_features must be at least 1, got {n_features}. Use None to take what the file has.")
    if max_label is not None and max_label < 0:
        raise ConfigError(f"max_label must be at least 0, got {max_label}. Use None to allow any.")
    sizes = groups or [None] * len(paths)
    files = [_parse(Path(path), size, max_label) for path, size in zip(paths, sizes, strict=True)]
    if zero_based == "auto":
        zero_based = any(file.indices.min(initial=1) == 0 for file in files)
    first = 0 if zero_based else 1
    width = n_features or max(int(file.indices.max(initial=first - 1)) for file in files) - first + 1
    if width < 1:
        raise FormatError("no row has a feature (index:value).", files[0].lines.path)
    _check_size(files, first, width)
    return [
        file.dense(first, width, name)
        for file, name in zip(files, names or [os.fspath(path) for path in paths], strict=True)
    ]


@dataclass(frozen=True)
class _Parsed:
    """A file as it was read: values, indices and row pointers of a sparse matrix, labels, and the lines behind."""

    lines: Lines
    values: np.ndarray
    indices: np.ndarray
    pointers: np.ndarray
    labels: np.ndarray

    def row_of(self, place: int) -> int:
        """Row that the entry at this place of ``values`` belongs to."""
        return int(np.searchsorted(self.pointers, place, side="right")) - 1

    def error(self, row: int, message: str) -> FormatError:
        return self.lines.error(message, self.lines.line_of(row))

    def dense(self, first: int, width: int, name: str) -> QuerySet:
        """The query set, features counted from ``first``."""
        from scipy.sparse import csr_array

        beyond = (self.indices < first) | (self.indices >= first + width)
        if beyond.any():
            place = int(np.argmax(beyond))
            raise self.error(
                self.row_of(place),
                f"feature index {self.indices[place]} is outside {first}..{first + width - 1}, "
                f"the {width} features expected here.",
            )
        shape = (len(self.labels), width)
        features = csr_array((self.values, self.indices - first, self.pointers), shape).toarray()
        offsets = np.array([*self.lines.starts, self.lines.rows], np.int64)
        documents = np.array(self.lines.documents) if self.lines.documents else None
        labels = self.labels.astype(np.int32)
        return QuerySet(features, labels, offsets, np.array(self.lines.qids), name, documents=documents)


def _check_size(files: Sequence[_Parsed], first: int, width: int) -> None:
    """Refuse features that would not fit into memory; what is at fault is mostly one index that is no index.

    Raises:
        FormatError: Names the line with the highest index, and the memory that the features would need.
    """
    rows = sum(file.lines.rows for file in files)
    needed, there = 4 * rows * width, _memory()
    if width <= MOST_FEATURES and needed <= there:
        return
    file = max(files, key=lambda one: int(one.indices.max(initial=0)))
    place = int(np.argmax(file.indices))
    limit = (
        f"there may be {MOST_FEATURES:,} features at most"
        if width > MOST_FEATURES
        else f"this machine has {there / 1e9:,.1f} GB of memory"
    )
    raise file.error(
        file.row_of(place),
        f"feature index {file.indices[place]} makes {width:,} features a document, {needed / 1e9:,.1f} GB for {rows:,} "
        f"documents; {limit}. Is it an index? Number the features from {first} without large gaps.",
    )


def _memory() -> float:
    """Bytes of this machine's memory; infinite where the system does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return math.inf


def _parse(path: Path, groups: Source | None, max_label: int | None) -> _Parsed:
    """Read one file and check every row."""
    lines = Lines(path, groups=groups is not None)
    rows, head = iter(lines), 1 if groups is not None else 2
    numbers: tuple[array, ...] = array("d"), array("q"), array("i"), array("f")
    while block := list(islice(rows, _BLOCK)):
        try:
            for total, new in zip(numbers, _convert(block, head), strict=True):
                total.extend(new)
        except (ValueError, OverflowError) as cause:
            row = next(number for number, row in enumerate(block) if not _is_row(row, head))
            line = lines.line_of(lines.rows - len(block) + row)
            raise lines.error(explain(block[row], qid=groups is None), line) from cause
    if not lines.rows:
        raise FormatError("the file has no rows, only blank lines or comments.", path)
    labels, counts, indices, values = map(np.asarray, numbers)
    file = _Parsed(lines, values, indices, np.concatenate([[0], np.cumsum(counts)]), labels)
    _check(file, np.iinfo(np.int32).max if max_label is None else max_label)
    if groups is not None:
        _apply_groups(lines, Path(groups))
    return file


def _convert(rows: Sequence[bytes], head: int) -> tuple[array, array, array, array]:
    """The numbers of rows.

    Args:
        rows: The lines.
        head: Tokens of a row before its features: the label, and the query where rows name it.

    Returns:
        Labels and numbers of features [rows]; indices (32 bits) and values (32 bits) of all features [features].

    Raises:
        ValueError: A row is not as described at the top.
        OverflowError: An index is beyond 32 bits.
    """
    parts = [row.split(b"#", 1)[0].split(None, head) for row in rows]
    features = [part[head] if len(part) > head else b"" for part in parts]
    text = b"\n".join([*features, b""])
    if _FEATURES.fullmatch(text) is None:
        raise ValueError("features are written index:value")
    tokens = text.replace(b":", b" ").split()
    counts = np.array([feature.count(b":") for feature in features])
    indices = array("i", map(int, tokens[::2]))
    rises = np.diff(indices, prepend=-1) > 0
    rises[(np.cumsum(counts) - counts)[counts > 0]] = True  # the first of a row
    if not rises.all():
        raise ValueError("indices ascend")
    labels = array("d", (float(part[0]) for part in parts))
    return labels, array("q", counts.tolist()), indices, array("f", map(float, tokens[1::2]))


def _is_row(row: bytes, head: int) -> bool:
    try:
        _convert([row], head)
    except (ValueError, OverflowError):
        return False
    return True


def _check(file: _Parsed, max_label: int) -> None:
    """Refuse what the parser accepts and no ranker can use."""
    labels, lines = file.labels, file.lines
    good = (labels >= 0) & (labels <= max_label) & (labels == np.floor(labels))
    if not good.all():
        row = int(np.argmin(good))
        limit = "" if max_label == np.iinfo(np.int32).max else f" of at most {max_label}"
        to_do = "" if labels[row] == np.floor(labels[row]) else f" {TO_GRADES}"
        raise file.error(row, f"the label must be a whole number{limit}, 0 or above, got {labels[row]:g}.{to_do}")
    finite = np.isfinite(file.values)
    if not finite.all():
        place = int(np.argmin(finite))
        raise file.error(
            file.row_of(place),
            f"the value of feature {file.indices[place]} is not a finite 32-bit number ({file.values[place]}). "
            "Leave missing values out of the row, which makes them 0.",
        )
    if not lines.text.endswith(b"\n") and lines.rows > 1:
        # All rows alike but the last one. A file with rows of all lengths may well end without a line end.
        counts = np.diff(file.pointers)
        alike = counts[:-1].min() == counts[:-1].max()
        if alike and (counts[-1] < counts[0] or (b"#" in lines.before and b"#" not in lines.text)):
            raise lines.error(
                f"the last line ends early, without a line end and after {counts[-1]} features: the file was cut off. "
                "Get it again."
            )


def _apply_groups(lines: Lines, path: Path) -> None:
    """Give the rows their queries from a file of sizes: one number a line."""
    size = 0
    for number, text in enumerate(read_lines(path), start=1):
        token = text.strip()
        if not token:
            continue
        if not token.isdigit() or int(token) < 1:
            raise FormatError(
                f"the size of a query must be a whole number of at least 1, got {shown(token[:40])!r}.", path, number
            )
        lines.starts.append(lines.starts[-1] + size if lines.starts else 0)
        lines.qids.append(str(len(lines.starts)))
        size = int(token)
    total = lines.starts[-1] + size if lines.starts else 0
    if total != lines.rows:
        raise FormatError(f"the sizes add up to {total} rows, but {lines.path} has {lines.rows}.", path)
