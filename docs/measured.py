"""Numbers and curves in README and documentation: run the commands that give them, and write them where they stand.

``make numbers`` runs each command of :data:`RUNS` anew, keeps what it found in ``numbers.json`` beside this file, and
writes it between the marks in the Markdown files::

    <!--n demo.up-->9<!--/n-->

Tests hold that the marked numbers are those of ``numbers.json`` and that the commands still give them. Pictures of runs
(:data:`CHARTS`) and what :func:`correlations` finds are kept in ``pictures/kept``. ``python docs/measured.py NAME``
measures one of them only.
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
PICTURES = Path(__file__).with_name("pictures") / "kept"
IMAGES = Path(__file__).with_name("images")

#: A marked number: its name and its text.
MARK = re.compile(r"<!--n ([a-z0-9.-]+)-->(.*?)<!--/n-->", flags=re.DOTALL)


def _final(shown: dict[str, Any], split: str, measure: str) -> dict[str, Any]:
    (row,) = (row for row in shown["final"] if (row["split"], row["measure"]) == (split, measure))
    return row


def _demo(folder: Path, shown: dict[str, Any]) -> dict[str, str]:
    """Numbers of ``fedrank demo``."""
    test = _final(shown, "test", "nDCG(dcg='exp-log2')@10")
    ledger = [json.loads(line) for line in (folder / "ledger.jsonl").read_text(encoding="utf-8").splitlines()]
    size = {entry["sender"]: entry["bytes_each"] for entry in ledger}
    (epsilon,) = (p["epsilon"] for p in shown["privacy"]["promises"] if p["unit"] == "user")
    learnt, gain = test["ranker"]["mean"], test["gain"]["mean"]
    return {
        "learnt": f"{learnt:.3f}",
        "half": f"{test['ranker']['high'] - learnt:.3f}",
        "untrained": f"{learnt - gain:.3f}",
        "labels": f"{test['baseline']:.3f}",
        "up": f"{size['parties']:,}",
        "down": f"{size['server']:,}",
        "user": f"{epsilon:.3g}",
    }


#: By name: the command, and what its ``--json`` and its run folder say.
RUNS: dict[str, tuple[list[str], Callable[[Path, dict[str, Any]], dict[str, str]]]] = {"demo": (["demo"], _demo)}

#: By name: the command, and which chart of its report is kept; empty: the one that the report opens with.
CHARTS = {
    "demo": (["demo"], ""),
    "who-helps-whom": (["run", "bandit-fedavg", "--silos.target", "all", "--bandit.arms", "all"], "who-helps-whom"),
}

#: Charts that are also kept as PNG, which any viewer of the README shows.
IN_README = ("demo",)


def pages() -> list[Path]:
    """The Markdown files with marked numbers."""
    made = {"_build", "generated", "gallery"}
    found = [*ROOT.glob("*.md"), *(p for p in (ROOT / "docs").rglob("*.md") if not made & set(p.parts))]
    return sorted(page for page in found if MARK.search(page.read_text(encoding="utf-8")))


def marked(page: Path) -> list[tuple[str, str]]:
    """Name and text of each marked number of a page."""
    return MARK.findall(page.read_text(encoding="utf-8"))


def run(command: list[str], out: Path) -> dict[str, Any]:
    """Run a command that leaves a run folder, and return what it says as JSON."""
    line = [sys.executable, "-m", "fedrank", *command, "--out", str(out), "--quiet", "--json"]
    return json.loads(subprocess.run(line, check=True, capture_output=True, text=True, cwd=out.parent).stdout)


def measure(name: str) -> dict[str, str]:
    """Run a command of :data:`RUNS` in a folder that goes again, and return its numbers."""
    command, read = RUNS[name]
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) / "run"
        return {f"{name}.{key}": value for key, value in read(out, run(command, out)).items()}


def keep_chart(name: str) -> None:
    """Run a command of :data:`CHARTS` and keep its chart: in the page's colours, and as PNG."""
    from fedrank.report import figures
    from fedrank.report.load import load

    command, chart = CHARTS[name]
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) / "run"
        run(command, out)
        loaded = load(out)
        charts = loaded.shown.charts(loaded)
        drawn = charts[chart or loaded.shown.page(loaded, charts).opening.chart]
        PICTURES.mkdir(exist_ok=True)
        markup = str(drawn.inline("")).replace(' aria-label=""', "")
        (PICTURES / f"{name}.svg").write_text(markup + "\n", encoding="utf-8")
        if name in IN_README:
            figures.save(drawn, IMAGES / f"{name}.png")


def correlations(messages: int = 40_000, features: int = 46) -> dict[str, list[float]]:
    """T values of the correlation of each coordinate of the perturbation with the reward, where no ranking is better.

    All documents have the same label, so that the gradient is 0.

    Args:
        messages: Devices that are asked, once each.
        features: Weights of the linear ranker.

    Returns:
        A value for each coordinate, by how random numbers are drawn.
    """
    import jax
    import numpy as np

    from fedrank.core.protocol import Party
    from fedrank.core.rng import party_key, perturbation
    from fedrank.ranking.clicks.cascade import cascade
    from fedrank.ranking.data.partition import uniform
    from fedrank.ranking.data.queries import QuerySet
    from fedrank.ranking.foltr_es import FoltrES
    from fedrank.ranking.mechanisms.randomised_response import NoPrivacy
    from fedrank.ranking.rankers.linear import Linear
    from fedrank_zoo.foltr_es_2019 import FoltrES2019

    queries, documents = 40, 8
    chance = np.random.default_rng(0)
    rows = chance.random((queries * documents, features), dtype=np.float32)
    data = QuerySet(rows, np.ones(len(rows)), np.arange(0, len(rows) + 1, documents), np.arange(queries))
    found = {}
    methods = {"as published: one stream for all": FoltrES2019, "here: a stream for each purpose": FoltrES}
    for title, cls in methods.items():
        protocol = cls(ranker=Linear(features), user=cascade("navigational"), privacy=NoPrivacy())
        parties = protocol.devices(data.blocks() if protocol.kernels else data.padded(), uniform(queries, messages))
        (exchange,) = protocol.exchanges
        request = exchange.ask(protocol.init(jax.random.key(0)))

        def one(own: Any, number: Any, exchange: Any = exchange, request: Any = request, shared: Any = parties.shared):
            return exchange.answer(request, Party(shared, own), party_key(jax.random.key(0), 0, number))[1]

        numbers = np.arange(messages, dtype=np.uint32)
        reply = jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(parties.own, numbers))
        made = np.random.RandomState if cls is FoltrES2019 else None
        noise = np.stack(
            [made(s).standard_normal(features) if made else perturbation(int(s), features) for s in reply.seed]
        )
        reward = (reply.plus - reply.minus).astype(float)
        r = (noise - noise.mean(0)).T @ (reward - reward.mean()) / (messages * noise.std(0) * reward.std())
        found[title] = [round(float(t), 2) for t in r * np.sqrt(messages / (1 - r**2))]
    return found


def keep_correlations() -> None:
    """Keep what :func:`correlations` finds."""
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / "correlations.json").write_text(json.dumps(correlations(), indent=1) + "\n", encoding="utf-8")


def write(numbers: dict[str, str]) -> None:
    """Keep the numbers and write them between their marks."""
    KEPT.write_text(json.dumps(numbers, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    for page in pages():
        text = page.read_text(encoding="utf-8")
        filled = MARK.sub(lambda mark: f"<!--n {mark[1]}-->{numbers[mark[1]]}<!--/n-->", text)
        page.write_text(filled, encoding="utf-8")


if __name__ == "__main__":
    wanted = sys.argv[1:] or [*{**RUNS, **CHARTS}, "correlations"]
    numbers: dict[str, str] = json.loads(KEPT.read_text(encoding="utf-8"))
    for each in wanted:
        if each in RUNS:
            numbers |= measure(each)
        if each in CHARTS:
            keep_chart(each)
        if each == "correlations":
            keep_correlations()
    write(numbers)
    print("\n".join(f"{name} = {value}" for name, value in sorted(numbers.items())))
