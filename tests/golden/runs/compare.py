"""Lay two recordings side by side; exit status 1 if they differ. See the package's docstring for the commands."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .digest import ESSENTIAL, KINDS, Digest, Entry

#: What another processor's arithmetic may change in a float.
RTOL, ATOL = 1e-4, 1e-6


def differences(
    ours: Mapping[str, Digest], theirs: Mapping[str, Digest], *, exact: bool
) -> dict[str, dict[str, list[str]]]:
    """What differs, by case and kind; an empty list where nothing does.

    Args:
        ours: The recording before.
        theirs: The recording after. Cases that only one of the two has are left out.
        exact: Whether digests must be equal, or floats close.
    """
    cases = [name for name in ours if name in theirs]
    return {
        name: {
            kind: _kind(kind, ours[name].get(kind, {}), theirs[name].get(kind, {}), exact)
            for kind in KINDS
            if kind in ours[name] or kind in theirs[name]
        }
        for name in cases
    }


def failing(found: Mapping[str, Mapping[str, Sequence[str]]], pages: bool = False) -> bool:
    """Whether an essential kind differs; with ``pages``, whether any does."""
    return any(lines and (pages or kind in ESSENTIAL) for kinds in found.values() for kind, lines in kinds.items())


def _kind(kind: str, ours: Mapping[str, Entry], theirs: Mapping[str, Entry], exact: bool) -> list[str]:
    pairs, lines = _paired(ours, theirs)
    for one, other in pairs:
        name = one if one == other else f"{one} → {other}"
        lines += [f"{name}: {text}" for text in _entry(kind, ours[one], theirs[other], exact)]
    return lines


def _paired(ours: Mapping[str, Entry], theirs: Mapping[str, Entry]) -> tuple[list[tuple[str, str]], list[str]]:
    """Items by name; what is left by content, then by the name without folders, so that a file may move."""
    pairs = [(name, name) for name in ours if name in theirs]
    left = [name for name in ours if name not in theirs]
    new = [name for name in theirs if name not in ours]
    tests = (
        lambda name, other: theirs[other]["sha"] == ours[name]["sha"],
        lambda name, other: other.rsplit("/")[-1] == name.rsplit("/")[-1],
    )
    for same in tests:
        for name in list(left):
            found = next((other for other in new if same(name, other)), None)
            if found is not None:
                pairs.append((name, found))
                left.remove(name)
                new.remove(found)
    return pairs, [f"{name}: gone" for name in left] + [f"{name}: new" for name in new]


def _entry(kind: str, one: Entry, other: Entry, exact: bool) -> list[str]:
    if one["sha"] == other["sha"]:
        return []
    if kind == "pages":
        parts, now = Counter(one["parts"]), Counter(other["parts"])
        gone, new = sum((parts - now).values()), sum((now - parts).values())
        return [f"{sum((parts & now).values())} tables the same, {gone} gone or changed, {new} new or changed"]
    if one.get("shape") != other.get("shape"):
        return [f"{one.get('shape')} → {other.get('shape')}"]
    lines = _values(one["values"], other["values"])
    if not exact:
        return lines
    if "numbers" in one and one["numbers"] == other.get("numbers"):
        return ["names differ, numbers are equal", *lines[:3]]
    return lines[:3] or ["not equal bit for bit, but close"]


def _values(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, x in ours.items():
        y = theirs.get(name)
        if y is None or not _close(float(x), float(y)):
            lines.append(f"{name} {x} → {y}".strip())
    return lines + [f"{name} {y} is new" for name, y in theirs.items() if name not in ours]


def _close(x: float, y: float) -> bool:
    if not (math.isfinite(x) and math.isfinite(y)):
        return x == y or (math.isnan(x) and math.isnan(y))
    return math.isclose(x, y, rel_tol=RTOL, abs_tol=ATOL)


def table(found: Mapping[str, Mapping[str, Sequence[str]]]) -> str:
    """Case by kind, and the first differences of each case below."""
    widest = max(map(len, found), default=0)
    lines = [" " * widest + "  " + " ".join(f"{kind:8s}" for kind in KINDS)]
    for name, kinds in found.items():
        words = ("–" if kind not in kinds else "differs" if kinds[kind] else "equal" for kind in KINDS)
        lines.append(f"{name:{widest}s}  " + " ".join(f"{word:8s}" for word in words))
    for name, kinds in found.items():
        for kind, differing in kinds.items():
            lines += [f"{name}, {kind}: {text}" for text in differing[:5]]
            if len(differing) > 5:
                lines.append(f"{name}, {kind}: and {len(differing) - 5} more")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.runs.compare", description=__doc__)
    parser.add_argument("before", type=Path, help="a recording")
    parser.add_argument("after", type=Path, help="another one")
    parser.add_argument("--exact", action="store_true", help="bit for bit, as on one machine")
    parser.add_argument("--pages", action="store_true", help="pages, printed results and other files count as well")
    given = parser.parse_args(arguments)
    ours, theirs = (json.loads(path.read_text(encoding="utf-8")) for path in (given.before, given.after))
    found = differences(ours, theirs, exact=given.exact)
    print(table(found))
    for names, where in ((ours.keys() - theirs.keys(), given.before), (theirs.keys() - ours.keys(), given.after)):
        if names:
            print(f"only in {where}: {' '.join(sorted(names))}")
    failed = failing(found, given.pages) or not found
    print(f"{len(found)} cases: {'DIFFERENT' if failed else 'equal' if given.exact else 'equal within the tolerance'}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
