"""What is recorded of a case: digests and summaries of the files that its commands left, and of what they printed.

A recording of a case is ``{kind: {item: entry}}``. An *item* is a file, a tensor in a file, or a number with its path;
an *entry* has ``sha``, equal where the content is equal bit for bit, and ``values``, a few floats by name that may be
compared with a tolerance. Kinds are ``weights``, ``metrics``, ``ledger``, ``privacy`` (the four essential ones),
``files`` (every other result), ``pages`` (numbers in tables of HTML pages) and ``output`` (printed JSON). Times, dates,
versions and paths are left out.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from safetensors import safe_open

from .renames import recorded, recorded_account

#: Kinds whose numbers must never change by a mere change of the code.
ESSENTIAL = ("weights", "metrics", "ledger", "privacy")
#: All kinds, in the order in which they are shown.
KINDS = (*ESSENTIAL, "files", "output", "pages")
#: JSON files that hold versions, times and settings instead of results.
LEFT_OUT = ("environment.json", "done.json", "status.json")
#: Keys of JSON objects that hold times.
TIMES = re.compile(r"seconds|per_second|_ms$|^date|^time$|speed")
#: Rows of the summary of a table of metrics: at most so many names, so that recordings stay small.
MOST = 12

Entry = dict[str, Any]
Digest = dict[str, dict[str, Entry]]


def digest(folder: Path, inputs: Iterable[str] = (), prints: str = "") -> Digest:
    """What a case left in its folder.

    Args:
        folder: The case's folder.
        inputs: Paths below it that the case itself put there.
        prints: The kind of numbers on standard output; "" leaves them out.
    """
    out: Digest = {kind: {} for kind in KINDS}
    for path in sorted(folder.rglob("*")):
        name = recorded(str(path.relative_to(folder)))
        if not path.is_file() or name in inputs or path.name in LEFT_OUT or "checkpoint" in path.parts:
            continue
        if path.suffix == ".safetensors":
            out["weights"].update(_tensors(path, name))
        elif path.suffix == ".parquet":
            out["metrics"][name] = _table(path)
        elif path.name == "ledger.jsonl":
            out["ledger"].update(_ledger(path, name))
        elif path.name == "privacy.json":
            out["privacy"].update(_numbers(json.loads(path.read_text()), name))
        elif path.suffix == ".json":
            out["files"][name] = _summary([x for _, x in _flat(json.loads(path.read_text()))])
        elif path.suffix == ".html":
            out["pages"][name] = _page(path)
    status = json.loads((folder / "status.json").read_text())
    for k, one in enumerate(status):
        if one["status"]:
            out["output"][f"status {k}"] = {"sha": str(one["status"]), "values": {}}
        if prints:
            numbers = [x for _, x in _flat(json.loads(one["out"]))]
            out[prints][f"printed {k}"] = _summary(numbers)
    return {kind: items for kind, items in out.items() if items}


def _sha(data: bytes | str) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()[:16]


def _float(x: float) -> float | str:
    """As JSON can hold it; 9 digits, since equality bit for bit is the digest's."""
    return float(f"{x:.9g}") if math.isfinite(x) else str(x)


def _tensors(path: Path, name: str) -> Iterator[tuple[str, Entry]]:
    with safe_open(path, framework="np") as file:
        for key in sorted(file.keys()):
            tensor = file.get_tensor(key)
            numbers = tensor.astype(np.float64).ravel()
            values = {"sum": numbers.sum(), "squares": (numbers**2).sum()}
            values |= {f"[{k}]": x for k, x in enumerate(numbers[:3])}
            about = f"{tensor.dtype}{list(tensor.shape)}"
            entry = {"sha": _sha(about.encode() + tensor.tobytes()), "shape": about}
            yield f"{name}: {recorded(key)}", {**entry, "values": {k: _float(float(x)) for k, x in values.items()}}


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value.hex()
    return recorded(value) if isinstance(value, str) else repr(value)


def _table(path: Path) -> Entry:
    """Rows may come in any order and columns too; ``numbers`` is equal where only names differ."""
    frame = pl.read_parquet(path)
    names = sorted((recorded(column), column) for column in frame.columns)
    columns = [column for _, column in names if not TIMES.search(column)]
    rows = sorted("\t".join(map(_cell, row)) for row in frame.select(columns).iter_rows())
    floats = [c for c in columns if frame.schema[c].is_float()]
    cells = sorted(_cell(x) for c in floats for x in frame[c])
    entry: Entry = {"sha": _sha("\n".join([" ".join(name for name, _ in names), *rows]))}
    entry |= {"numbers": _sha(" ".join(cells)), "shape": f"{frame.height} × {' '.join(name for name, _ in names)}"}
    return {**entry, "values": _means(frame, floats)}


def _means(frame: pl.DataFrame, floats: list[str]) -> dict[str, float | str]:
    """Means of each column of floats; of ``value``, by split and measure in the last round."""
    values: dict[str, float] = {}
    for column in floats:
        numbers = frame[column].drop_nulls().to_numpy()
        if len(numbers):
            values[f"mean {recorded(column)}"] = float(np.mean(numbers))
            values[f"squares {recorded(column)}"] = float(np.sum(numbers**2))
    if {"value", "measure"} <= set(frame.columns):
        last = frame.filter(pl.col("round") == pl.col("round").max()) if "round" in frame.columns else frame
        by = [c for c in ("split", "scope", "method", "ranker", "measure") if c in frame.columns]
        means = last.group_by(by).agg(pl.col("value").mean()).sort(by)
        named = {"/".join(recorded(str(part)) for part in row[:-1]): row[-1] for row in means.iter_rows()}
        values |= dict(list(named.items())[:MOST])
    return {name: _float(x) for name, x in values.items() if x is not None}


def _ledger(path: Path, name: str) -> Iterator[tuple[str, Entry]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    total: dict[str, dict[str, int]] = {}
    content = []
    for line in lines:
        line = {recorded(key): recorded(x) if isinstance(x, str) else x for key, x in line.items()}
        content.append(json.dumps(line, sort_keys=True))
        who = f"{name}: {line.get('exchange')}, {line.get('sender')} to {line.get('receiver')}"
        sums = total.setdefault(who, {"messages": 0, "bytes": 0})
        for key in sums:
            sums[key] += int(line.get(key) or 0)
    yield name, {"sha": _sha("\n".join(content)), "values": {"lines": len(lines)}}
    for who, sums in total.items():
        yield who, {"sha": f"{sums['messages']} {sums['bytes']}", "values": sums}


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a JSON value with its path, times left out."""
    if isinstance(value, Mapping):
        if "promises" in value:
            value = recorded_account(value)
        for key, one in value.items():
            if not TIMES.search(key):
                yield from _flat(one, f"{path}.{recorded(key)}" if path else recorded(key))
    elif isinstance(value, list):
        for k, one in enumerate(value):
            yield from _flat(one, f"{path}[{k}]")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, float(value)


def _numbers(value: Any, name: str) -> Iterator[tuple[str, Entry]]:
    for path, x in _flat(value):
        yield f"{name}: {path}", {"sha": x.hex(), "values": {"": _float(x)}}


def _summary(numbers: list[float]) -> Entry:
    """The multiset of some numbers."""
    cells = sorted(f"{x:.12g}" for x in numbers)
    finite = [x for x in numbers if math.isfinite(x)]
    values = {"count": len(numbers), "sum": _float(math.fsum(finite)), "sizes": _float(math.fsum(map(abs, finite)))}
    return {"sha": _sha(" ".join(cells)), "values": values}


_NUMBER = re.compile(r"(?<![\w@.,\-/])[-−+]?\d[\d,]*(?:\.\d+)?(?:e[-−+]?\d+)?(?![\w@])")


class _Tables(HTMLParser):
    """The texts of the cells of each table of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[str]] = []
        self._inside = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "table":
            self.tables.append([])
        elif tag in ("td", "th") and self.tables:
            self.tables[-1].append("")
            self._inside += 1

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._inside:
            self._inside -= 1

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.tables[-1][-1] += data


def _page(path: Path) -> Entry:
    """Numbers of each table of a page, and the digest of each; tables of settings and of versions are left out."""
    parser = _Tables()
    parser.feed(path.read_text(encoding="utf-8"))
    tables = []
    for cells in parser.tables:
        if any("config.toml" in cell for cell in cells) or "numpy" in [cell.strip() for cell in cells]:
            continue
        numbers = sorted(x.replace(",", "").replace("−", "-") for cell in cells for x in _NUMBER.findall(cell))
        if numbers:
            tables.append((len(numbers), _sha(" ".join(numbers))))
    tables.sort()
    values = {"tables": len(tables), "numbers": sum(count for count, _ in tables)}
    parts = [f"{count}:{sha[:8]}" for count, sha in tables]
    return {"sha": _sha(" ".join(sha for _, sha in tables)), "parts": parts, "values": values}
