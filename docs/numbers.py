"""Numbers that stand in README and documentation: run the commands that give them, and write them where they stand.

``make numbers`` runs each command of :data:`RUNS` anew, keeps what it found in ``numbers.json`` beside this file, and
writes it between the marks in the Markdown files::

    <!--n demo.up-->9<!--/n-->

Tests hold that the marked numbers are those of ``numbers.json`` and that the commands still give them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KEPT = Path(__file__).with_name("numbers.json")

_MARK = re.compile(r"<!--n ([a-z0-9.-]+)-->(.*?)<!--/n-->", flags=re.DOTALL)


def _final(shown: dict[str, Any], split: str, measure: str) -> dict[str, Any]:
    (row,) = (row for row in shown["final"] if (row["split"], row["measure"]) == (split, measure))
    return row


def _demo(folder: Path, shown: dict[str, Any]) -> dict[str, str]:
    """Numbers of ``fedrank demo``."""
    test = _final(shown, "test", "nDCG@10")
    ledger = [json.loads(line) for line in (folder / "ledger.jsonl").read_text(encoding="utf-8").splitlines()]
    size = {entry["sender"]: entry["bytes_each"] for entry in ledger}
    promises = {(p["unit"], p["basis"]): p["epsilon"] for p in shown["privacy"]["promises"]}
    learnt, gain = test["ranker"]["mean"], test["gain"]["mean"]
    return {
        "learnt": f"{learnt:.3f}",
        "half": f"{test['ranker']['high'] - learnt:.3f}",
        "untrained": f"{learnt - gain:.3f}",
        "labels": f"{test['baseline']:.3f}",
        "up": f"{size['parties']:,}",
        "down": f"{size['server']:,}",
        "epsilon": f"{promises['interaction', 'a single release']:.1f}",
        "user": f"{promises['user', 'basic composition']:,.0f}",
    }


#: By name: the command, and what its ``--json`` and its run folder say.
RUNS: dict[str, tuple[list[str], Callable[[Path, dict[str, Any]], dict[str, str]]]] = {"demo": (["demo"], _demo)}


def pages() -> list[Path]:
    """The Markdown files with marked numbers."""
    made = {"_build", "generated", "gallery"}
    found = [*ROOT.glob("*.md"), *(p for p in (ROOT / "docs").rglob("*.md") if not made & set(p.parts))]
    return sorted(page for page in found if _MARK.search(page.read_text(encoding="utf-8")))


def marked(page: Path) -> list[tuple[str, str]]:
    """Name and text of each marked number of a page."""
    return _MARK.findall(page.read_text(encoding="utf-8"))


def measure(name: str) -> dict[str, str]:
    """Run a command of :data:`RUNS` in a folder that goes again, and return its numbers."""
    command, read = RUNS[name]
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) / "run"
        line = [sys.executable, "-m", "fedrank", *command, "--out", str(out), "--quiet", "--json"]
        shown = subprocess.run(line, check=True, capture_output=True, text=True, cwd=temporary).stdout
        return {f"{name}.{key}": value for key, value in read(out, json.loads(shown)).items()}


def write(numbers: dict[str, str]) -> None:
    """Keep the numbers and write them between their marks."""
    KEPT.write_text(json.dumps(numbers, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    for page in pages():
        text = page.read_text(encoding="utf-8")
        filled = _MARK.sub(lambda mark: f"<!--n {mark[1]}-->{numbers[mark[1]]}<!--/n-->", text)
        page.write_text(filled, encoding="utf-8")


if __name__ == "__main__":
    found: dict[str, str] = {}
    for each in RUNS:
        found |= measure(each)
    write(found)
    print("\n".join(f"{name} = {value}" for name, value in sorted(found.items())))
