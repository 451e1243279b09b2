"""Every command, by what it prints: made-up results behind those that open with a sentence, reasons for the others."""

from __future__ import annotations

import functools
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from board_factory import made_up
from report_factory import make_run
from silo_run_factory import NAMES, make_silo_run
from slate_run_factory import make_slate_run
from text_run_factory import make_text_run

from fedrank.data import load
from fedrank.metrics.returns import MeanInterval
from fedrank.privacy.audit import Audited
from fedrank.ranking import plan as planning
from fedrank.ranking.schedule import Schedule
from fedrank.silos.sceptic.compare import answer
from fedrank_zoo.findings import Finding
from fedrank_zoo.linking.world import Linked
from fedrank_zoo.noisy_statistics.ways import private_answer
from fedrank_zoo.optuna_search.search import Trial
from fedrank_zoo.record_attack.membership import Membership
from fedrank_zoo.reproduce.study import plan_runs
from fedrank_zoo.slate_attacks.leak import Leak

FINDINGS = [
    Finding("distinguish", "paper", "accuracy", 1.0, 0.998, 1.0, 0.622, True, 4000, "told in all cases"),
    Finding("distinguish", "publish-once", "accuracy", 0.52, 0.5, 0.54, 0.622, False, 4000, "as good as guessing"),
    Finding(
        "distinguish", "independent 1/ε", "accuracy", 0.75, 0.72, 0.78, 0.622, True, 2000, "too little noise", True
    ),
    Finding("another owner", "plain", "words read", 0.93, 0.9, 0.96, 0.2, True, 50, "reads most words"),
]
LEAKS = [
    Leak(mode, attacker, "engagement", "all messages", dict.fromkeys(("r2", "rank", "error", "blind", "exact"), value))
    for mode, attacker, value in (
        ("corrected", "platform B", MeanInterval(0.977, 0.971, 0.984)),
        ("team", "platform B", MeanInterval(0.4, 0.1, 0.7)),
        ("corrected", "coordinator", MeanInterval(1.0, 1.0, 1.0)),
    )
]
MEMBERS = [
    Membership("model", None, 0.91, 0.88, 0.94, 0.4, 1.0),
    Membership("noisy-model", 1.0, 0.52, 0.49, 0.55, 0.06, 0.7),
]
LINKS = {"simple": [Linked("token", 1.0, 1.0, 1.0, 0.01)], "relay": [Linked("order", 0.012, 0.008, 0.016, 0.01)]}
AUDITED = Audited("piecewise", "message", "two users", 1.0, 0.0, 0.8, 5.1, 0.99, 2000)
PLANNED = planning.Predicted(Schedule(25, 4, 2000), 25.0, 1.0, (50_000, 1.0), 0.62, 0.58, 0.66)

STUDY = """
seeds = {seeds}

[[case]]
name = "ES"

[[case]]
name = "other"

[study]
title = "Table 1"
measures = ["test: nDCG(dcg='exp-log2')@10"]
against = {{ case = "ES" }}
"""

#: Flags of the table that :func:`write_table` writes.
COLUMNS = ("--silo", "hospital", "--label", "ill", "--positive", "yes", "--drop", "id")
TABLE = {"silo": "hospital", "label": "ill", "positive": "yes", "drop": ("id",)}
RANGES = ("--range", "age=20:80", "--levels", "sex=f,m")


@dataclass(frozen=True)
class Made:
    """What a command is called with.

    Attributes:
        arguments: The command line.
        page: Page that it writes; None: none.
        seeds: Seeds behind its numbers; None: none.
    """

    arguments: tuple[str, ...]
    page: Path | None = None
    seeds: int | None = None


#: Makes a command line in a folder, with a function that replaces attributes of the package, for a number of seeds.
Maker = Callable[[Path, Callable[[str, Any], None], int], Made]


def put(patched: Any, name: str, value: Any) -> None:
    """Replace an attribute in its module, and in the commands' modules, which may have imported it before.

    Args:
        patched: Puts things back, as pytest's ``monkeypatch`` does.
        name: Dotted name.
        value: What stands in its place.
    """
    patched.setattr(name, value)
    attribute = name.rpartition(".")[2]
    for module in [module for key, module in sys.modules.items() if key.startswith("fedrank.cli.")]:
        if hasattr(module, attribute):
            patched.setattr(module, attribute, value)


def write_table(file: Path) -> Path:
    """A table of three hospitals with a number, a name of two levels, and a label."""
    rng, lines = np.random.default_rng(0), ["hospital,id,age,sex,ill"]
    for row in range(90):
        age, sex = rng.integers(20, 80), rng.integers(2)
        ill = rng.random() < 1 / (1 + np.exp(-(0.04 * (age - 50) + 0.8 * sex)))
        lines.append(f"{'abc'[row % 3]},{row},{age},{'fm'[sex]},{'yes' if ill else 'no'}")
    file.write_text("\n".join(lines) + "\n")
    return file


def _trains(*words: str) -> Maker:
    """A command that trains: a made-up run in place of training."""

    def make(folder: Path, replace: Callable[[str, Any], None], seeds: int) -> Made:
        def trained(config: Any, out: Path, **_: Any) -> None:
            make_run(out, seeds=seeds)

        replace("fedrank.engine.run.run_experiment", trained)
        return Made((*words, "--out", str(folder / "run"), "--quiet"), folder / "run" / "report.html", seeds)

    return make


def _resume(folder: Path, replace: Callable[[str, Any], None], seeds: int) -> Made:
    replace("fedrank.engine.run.resume_experiment", lambda out, **_: out)
    run = make_run(folder / "run", seeds=seeds)
    return Made(("resume", str(run), "--quiet"), run / "report.html", seeds)


def _reports(wing: Callable[..., Path], **how: Any) -> Maker:
    def make(folder: Path, replace: Callable[[str, Any], None], seeds: int) -> Made:
        run = wing(folder / "run", seeds=seeds, **how)
        return Made(("report", str(run)), run / "report.html", seeds)

    return make


def _two_runs(folder: Path, seeds: int) -> list[Path]:
    return [make_run(folder / name, seeds=seeds, lift=lift) for name, lift in (("first", 0.0), ("second", 0.05))]


def _compare(folder: Path, replace: Callable[[str, Any], None], seeds: int) -> Made:
    runs = map(str, _two_runs(folder, seeds))
    return Made(("compare", *runs, "--out", str(folder / "page")), folder / "page" / "compare.html", seeds)


def _sweep(folder: Path, replace: Callable[[str, Any], None], seeds: int) -> Made:
    out = folder / "sweep"
    replace("fedrank.engine.sweep.run_sweep", lambda *_, **__: _two_runs(out, seeds))
    words = ("sweep", "--vary", "clients=10,20", "--out", str(out), "--quiet")
    return Made(words, out / "compare.html", seeds)


def _search(folder: Path, replace: Callable[[str, Any], None], seeds: int) -> Made:
    first, second = _two_runs(folder / "search", seeds)
    trials = [Trial(0, {"sigma": 0.1}, 0.41, first), Trial(1, {"sigma": 0.2}, None, folder, "refused")]
    trials.append(Trial(2, {"sigma": 0.4}, 0.45, second))
    replace("fedrank_zoo.optuna_search.command.run_search", lambda *_, **__: trials)
    words = ("sweep", "--search", "optuna", "--vary", "sigma=0.1..0.5", "--out", str(folder / "search"), "--quiet")
    return Made(words, folder / "search" / "compare.html", seeds)


def _reproduce(folder: Path, replace: Callable[[str, Any], None], seeds: int) -> Made:
    paper = folder / "paper"
    paper.mkdir()
    (paper / "one.toml").write_text(STUDY.format(seeds=seeds))
    printed = {
        "study": "one",
        "where": {"case": "ES"},
        "split": "test",
        "measure": "nDCG(dcg='exp-log2')@10",
        "value": 0.6,
    }
    about = {"name": "mine", "title": "Mine", "citation": "", "studies": ["one"]}
    (paper / "expected.json").write_text(json.dumps({**about, "values": [{**printed, "source": "Table 1"}]}))

    def run_study(study: Any, out: Path, fraction: float, listener: Any) -> list[tuple[Any, Path]]:
        return list(zip(plan_runs(study, fraction), _two_runs(out, seeds), strict=True))

    replace("fedrank_zoo.reproduce.study.run_study", run_study)
    words = ("reproduce", str(paper), "--out", str(folder / "out"), "--quiet")
    return Made(words, folder / "out" / "report.html", seeds)


def _board(*words: str) -> Maker:
    def make(folder: Path, replace: Callable[[str, Any], None], seeds: int) -> Made:
        standings, out = made_up(3), folder / "board"
        replace("fedrank_zoo.leaderboard.board.run_board", lambda *_, **__: standings)
        replace("fedrank_zoo.leaderboard.board.standings_of", lambda *_: standings)
        replace("fedrank_zoo.leaderboard.board.read_grid", lambda *_: standings.grid)
        replace("fedrank_zoo.leaderboard.submitted.submit", lambda *_: [0])
        more = ("--executor", "here", "--quiet") if "submit" not in words else ("rows.csv",)
        return Made((*words, *more, "--out", str(out)), out / "leaderboard.html")

    return make


def _replaced(name: str, result: Any, *words: str, page: str = "") -> Maker:
    """A command whose computation is replaced by one that returns a made-up result."""

    def make(folder: Path, replace: Callable[[str, Any], None], seeds: int) -> Made:
        replace(name, lambda *_, **__: result)
        if not page:
            return Made(words)
        return Made((*words, "--out", str(folder / page)), folder / page)

    return make


def _attack_records(folder: Path, replace: Callable[[str, Any], None], seeds: int) -> Made:
    replace("fedrank_zoo.record_attack.membership.attack_records", lambda *_: MEMBERS)
    return Made(("privacy", "attack", "records", str(write_table(folder / "table.csv")), *COLUMNS))


def _attack_links(folder: Path, replace: Callable[[str, Any], None], seeds: int) -> Made:
    replace("fedrank_zoo.linking.world.observe", lambda settings, mode: mode)
    replace("fedrank_zoo.linking.world.attack", lambda mode, *_: LINKS[mode])
    return Made(("privacy", "attack", "links", "--modes", "simple", "relay"))


@functools.cache
def _answer(target: int) -> Any:
    """The answer for a silo of the table, computed once for the terminal and JSON."""
    with tempfile.TemporaryDirectory() as folder:
        table = load(str(write_table(Path(folder) / "table.csv")), "silos", **TABLE)
    return answer(table, target, ways=("alone", "federated"))


def _silos_compare(*targets: str) -> Maker:
    def make(folder: Path, replace: Callable[[str, Any], None], seeds: int) -> Made:
        replace("fedrank.silos.sceptic.compare.answer", lambda table, number, *, seed: _answer(number))
        table, page = write_table(folder / "table.csv"), folder / "answer.html"
        words = ("silos", "compare", str(table), *COLUMNS, "--out", str(page))
        return Made((*words, "--target", *targets) if targets else words, page)

    return make


def _silos_private(folder: Path, replace: Callable[[str, Any], None], seeds: int) -> Made:
    kept: list[Any] = []

    def compute(*given: Any) -> Any:
        kept[:] = kept or [private_answer(*given)]
        return kept[0]

    replace("fedrank_zoo.noisy_statistics.ways.private_answer", compute)
    table = write_table(folder / "table.csv")
    return Made(("silos", "private", str(table), *COLUMNS, *RANGES, "--epsilon", "4"))


def _silos_analyse(folder: Path, replace: Callable[[str, Any], None], seeds: int) -> Made:
    table = write_table(folder / "table.csv")
    words = (
        "silos",
        "analyse",
        str(table),
        "--formula",
        "ill ~ age + sex",
        "--site",
        "hospital",
        "--out",
        str(folder / "out"),
    )
    return Made(words, folder / "out" / "report.html")


def _slates_evaluate(folder: Path, replace: Callable[[str, Any], None], seeds: int) -> Made:
    from fedrank_zoo.slate_logs.estimates import write_logs

    write_logs(folder / "logs")
    return Made(("slates", "evaluate", str(folder / "logs"), "--policy", "uniform", "best-5"))


def _learn_from_log(folder: Path, replace: Callable[[str, Any], None], seeds: int) -> Made:
    from fedrank.cli.main import call

    assert call(["data", "clicks", "generate", str(folder / "log.parquet"), "--sessions", "4000"]) == 0
    page = folder / "log.html"
    return Made(("learn-from-log", str(folder / "log.parquet"), "--no-compare", "--page", str(page)), page)


#: Commands that open with a sentence: command, what of it, and how it is made from made-up values.
SENTENCES: Mapping[tuple[str, str], Maker] = {
    ("run", ""): _trains("run"),
    ("resume", ""): _resume,
    ("demo", ""): _trains("demo"),
    ("report", "ranking"): _reports(make_run),
    ("report", "silos"): _reports(make_silo_run, rounds=4),
    ("report", "silos, all targets"): _reports(make_silo_run, target="all", names=NAMES, rounds=4),
    ("report", "texts"): _reports(make_text_run),
    ("report", "texts without protection"): _reports(make_text_run, mode="plain", epsilon=None),
    ("report", "slates"): _reports(make_slate_run),
    ("compare", ""): _compare,
    ("sweep", "all combinations"): _sweep,
    ("sweep", "search"): _search,
    ("reproduce", ""): _reproduce,
    ("reproduce leaderboard", ""): _board("reproduce", "leaderboard"),
    ("reproduce leaderboard submit", ""): _board("reproduce", "leaderboard", "submit"),
    ("privacy attack sketch", ""): _replaced(
        "fedrank_zoo.sketch_attack.suite.attack_sketches", FINDINGS, "privacy", "attack", "sketch", page="sketch.html"
    ),
    ("privacy attack documents", ""): _replaced(
        "fedrank_zoo.document_attack.served.attack_documents", FINDINGS,
        "privacy", "attack", "documents", "cranfield", page="documents.html",
    ),
    ("privacy attack slates", ""): _replaced(
        "fedrank_zoo.slate_attacks.suite.attack_slates", LEAKS, "privacy", "attack", "slates", page="slates.html"
    ),
    ("privacy attack records", ""): _attack_records,
    ("privacy attack links", ""): _attack_links,
    ("privacy audit", ""): _replaced(
        "fedrank.cli.attack.audit_mechanism", AUDITED, "privacy", "audit", "piecewise", "--quiet"
    ),
    ("privacy plan", ""): _replaced(
        "fedrank.ranking.plan.plan",
        planning.Plan(
            planning.Need(), planning.measure_of(planning.Need()), (PLANNED,), PLANNED, PLANNED, PLANNED, 0.4
        ),
        "privacy", "plan", "--quiet", page="plan.html",
    ),
    ("silos compare", "one target"): _silos_compare("a"),
    ("silos compare", "all targets"): _silos_compare(),
    ("silos private", ""): _silos_private,
    ("silos analyse", ""): _silos_analyse,
    ("slates evaluate", ""): _slates_evaluate,
    ("learn-from-log", ""): _learn_from_log,
}  # fmt: skip

#: Other commands that print values: why no sentence stands above them.
TABLES = {
    **dict.fromkeys(("data list", "data show", "data clicks list", "hub credential list"), "a list"),
    **dict.fromkeys(
        ("data get", "hub credential add", "reproduce leaderboard sign", "silos send"), "an action that is done"
    ),
    **dict.fromkeys(("hub simulate", "hub replay", "hub log", "hub witness"), "a check, or an error"),
    **dict.fromkeys(("search ask", "search owner status", "search owner log"), "documents"),
    **dict.fromkeys(
        ("data check", "data clicks fit", "reproduce aol4foltr", "evaluate"), "values, compared with nothing"
    ),
    **dict.fromkeys(("silos codebook", "silos answer", "silos combine"), "a step of a study"),
    **dict.fromkeys(("privacy epsilon", "privacy mechanisms", "privacy overview", "privacy sketch"), "formulas"),
}

#: Commands that print no values: servers, and writers of files.
SILENT = {
    "demo web", "rank", "export", "new", "completion", "hub serve", "hub relay", "hub credential revoke", "hub resume",
    "hub backup", "hub restore", "hub rotate",
    "silos key", "search owner serve", "search owner allow", "search owner forbid",
    "search owner add", "search owner remove", "search broker", "search portal", "search mcp",
    "search person", "search statistics",
    "slates serve", "slates coordinate", "slates simulate", "data clicks generate",
}  # fmt: skip

#: Functions that put an opening on a page, and the command of the list above whose test makes the page.
PAGES = {
    "fedrank.report.page.html_of": "report",
    "fedrank.report.page.write_findings_page": "privacy plan",
    "fedrank.report.compare.write_comparison": "compare",
    "fedrank_zoo.reproduce.page.write_study_page": "reproduce",
    "fedrank_zoo.optuna_search.page.write_search": "sweep",
    "fedrank_zoo.leaderboard.page.document_of": "reproduce leaderboard",
    "fedrank.ranking.logs.learn.write_page": "learn-from-log",
    "fedrank.silos.report.answer.write_answers": "silos compare",
    "fedrank.silos.report.study.write_study": "silos analyse",
    "fedrank_zoo.slate_attacks.page.write_page": "privacy attack slates",
    "fedrank_zoo.sketch_attack.page.write_page": "privacy attack sketch",
    "fedrank_zoo.document_attack.page.write_documents_page": "privacy attack documents",
    "fedrank.deploy.hub.status.page": "",  # a server's page: it has no command
}
