"""What each command says first is what its page and its JSON say first; every command and every page is in the list."""

import ast
import html
import inspect
import json
import re
import shlex
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from report_factory import make_run
from result_commands import COLUMNS, PAGES, SENTENCES, SILENT, TABLES, put, write_table
from scipy import stats
from slate_run_factory import make_slate_run
from text_run_factory import make_text_run

import fedrank
from fedrank.cli.main import _offer_settings, app, call
from fedrank.metrics.returns import LEAST_SEEDS
from fedrank.report.load import load

ROOT = Path(fedrank.__file__).parent
FIRST = re.compile('<p class="sentence">(.*?)</p>', re.DOTALL)
NEXT = re.compile('<p class="next">.*?<code>(.*?)</code>', re.DOTALL)
OF_A_SHARE = re.compile(r"\b(?:nDCG|MaxRR|AUC|MAP)\S*(?: of| is| reaches)? (−?\d+\.\d+)")


def commands(group=app, words=()):
    for name in group:
        if not name.startswith("-"):
            yield from commands(group[name], (*words, name))
    if words and group.default_command is not None:
        yield " ".join(words), group.default_command


def test_every_command_is_in_one_list():
    found = dict(commands())
    opens = {command for command, _ in SENTENCES}
    assert opens | set(TABLES) | SILENT == set(found)
    assert not opens & set(TABLES) and not SILENT & (opens | set(TABLES))
    for command, function in found.items():
        assert ("as_json" in inspect.signature(function).parameters) == (command not in SILENT), command


def test_every_function_that_makes_a_page_is_in_the_list():
    """Those that call what lays an opening out, or a function that does."""
    found, known = set(), {"head", "write_findings_page", "write_comparison"}
    zoo = ROOT.parent / "zoo"
    for file in sorted([*ROOT.rglob("*.py"), *zoo.rglob("*.py")]):
        module = ".".join(file.relative_to(zoo if zoo in file.parents else ROOT.parent).with_suffix("").parts)
        text = file.read_text(encoding="utf-8")
        if not any(f"{name}(" in text for name in known):
            continue
        tree = ast.parse(text)
        imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names}
        for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
            called = {n.func.id for n in ast.walk(function) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
            if called & known & (imported | {"write_findings_page"}) and not module.startswith("fedrank.cli"):
                found.add(f"{module}.{function.name}")
    assert found == set(PAGES)
    assert set(PAGES.values()) - {""} <= {command for command, _ in SENTENCES}


def printed(capsys, arguments):
    capsys.readouterr()
    assert call(list(arguments)) == 0, capsys.readouterr().err
    return capsys.readouterr().out


@pytest.mark.parametrize("row", SENTENCES, ids=lambda row: "-".join(" ".join(row).replace(",", "").split()))
def test_terminal_json_and_page_say_the_same_first(row, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    seen = set()
    for seeds in (2, 5):
        folder = tmp_path / str(seeds)
        folder.mkdir()
        with monkeypatch.context() as patched:
            made = SENTENCES[row](folder, partial(put, patched), seeds)
            out = printed(capsys, made.arguments)
            sentence = out.splitlines()[0]
            found = json.loads(printed(capsys, (*made.arguments, "--json")))
        assert found["sentence"] == sentence and len(sentence) > 20
        if made.page is not None:
            (on_page,) = FIRST.findall(made.page.read_text(encoding="utf-8"))
            assert html.unescape(on_page) == sentence
            for command in NEXT.findall(made.page.read_text(encoding="utf-8")):
                name, *words = shlex.split(html.unescape(command))
                _offer_settings(words)
                assert name == "fedrank"
                app.parse_args(words, exit_on_error=False, print_error=False)
        assert all(0 <= float(number.replace("−", "-")) <= 1 for number in OF_A_SHARE.findall(sentence))
        if made.seeds is not None and made.seeds < LEAST_SEEDS:
            assert not re.search(r"±|told apart|would have shown|95 % interval", sentence)
        seen.add(made.seeds)
        if made.seeds is None:
            break
    assert seen in ({None}, {2, 5})


CHEAP = {
    "privacy epsilon": ("--p", "0.9"),
    "privacy sketch": (),
    "privacy mechanisms": ("--epsilon", "1"),
    "data clicks list": (),
    "data list": (),
    "data check": ("TABLE", *COLUMNS),
}


@pytest.mark.parametrize("command", CHEAP)
def test_tables_without_a_sentence_hold_no_verdict(command, tmp_path, capsys):
    table = str(write_table(tmp_path / "table.csv"))
    words = [table if word == "TABLE" else word for word in CHEAP[command]]
    out = printed(capsys, [*command.split(), *words])
    assert out.strip() and not re.search(r"\b(better|worse|told apart|beats|helps|harms|a gain|a loss)\b", out)


# -- verdicts, from the values in a run's files ------------------------------------------------------------------------


def reading(values):
    """The reading of differences by Student's t; empty for values too few."""
    if len(values) < LEAST_SEEDS:
        return ""
    values = np.asarray(values)
    p = 0.0 if values.std() < 1e-12 and values.mean() else stats.ttest_1samp(values, 0.0).pvalue
    return "more" if p < 0.05 and values.mean() > 0 else "less" if p < 0.05 and values.mean() < 0 else "unknown"


def by_seed(frame, last=True, **where):
    """Values by seed of the last or first round of some rows."""
    frame = pl.DataFrame(frame)
    for key, value in where.items():
        frame = frame.filter(pl.col(key) == value)
    frame = frame.filter(pl.col("round") == (frame["round"].max() if last else frame["round"].min()))
    return np.array([value for _, value in sorted(frame.group_by("seed").agg(pl.col("value").mean()).iter_rows())])


def shaken(folder, file, scale, rng, most=1.0):
    """The run with noise on all values, different by seed: verdicts of all kinds come up."""
    frame = pl.read_parquet(folder / file)
    moved = {seed: rng.normal(0, scale) for seed in frame["seed"].unique()}
    noise = [moved[seed] * round_ for seed, round_ in frame.select("seed", "round").iter_rows()]
    frame.with_columns(value=(pl.col("value") + pl.Series(noise)).clip(0, most)).write_parquet(folder / file)


def test_a_method_without_clicks_is_not_said_to_learn_from_them(tmp_path):
    folder = make_run(tmp_path / "mine", seeds=3, rounds=4)
    run = load(folder)
    assert "clicks" in str(run.shown.opening(run).sentence) and "clicks" in run.shown.opening(run).title
    frame = pl.read_parquet(folder / "metrics.parquet")
    frame.filter(pl.col("split") != "online").write_parquet(folder / "metrics.parquet")
    run = load(folder)
    assert "clicks" not in str(run.shown.opening(run).sentence) + run.shown.opening(run).title


def test_verdicts_of_rankers_are_those_of_the_values_in_the_files(tmp_path):
    rng, seen = np.random.default_rng(3), set()
    words = {"more": "% better than the one it started as", "less": "% worse than the one it started as"}
    for k in range(16):
        folder = make_run(tmp_path / str(k), seeds=int(rng.integers(1, 7)), rounds=4)
        shaken(folder, "metrics.parquet", [0.0, 0.01, 0.05][k % 3], rng)
        run = load(folder)
        sentence = str(run.shown.opening(run).sentence)
        of = {"split": "test", "measure": "expected MaxRR (navigational)"}
        last, first = by_seed(run.metrics, **of), by_seed(run.metrics, last=False, **of)
        found = reading(last - first)
        seen.add(found)
        told = {word: text in sentence for word, text in words.items()}
        if found == "":
            assert "run" in sentence and told["more" if last.mean() > first.mean() else "less"]
        else:
            assert told == {word: word == found for word in words}
            assert ("told from the one it started as" in sentence) == (found == "unknown")
    assert {"", "more", "unknown"} <= seen


def test_verdicts_of_comparisons_are_those_of_the_values_in_the_files(tmp_path, capsys):
    rng, seen = np.random.default_rng(4), set()
    for k in range(10):
        seeds, lift = int(rng.integers(1, 7)), float(rng.choice([-0.05, 0.0, 0.05]))
        runs = [make_run(tmp_path / f"{k} {name}", seeds=seeds, lift=add) for name, add in (("a", 0.0), ("b", lift))]
        shaken(runs[1], "metrics.parquet", 0.001, rng)
        sentence = printed(capsys, ["compare", *map(str, runs)]).splitlines()[0]
        of = {"split": "test", "measure": "expected MaxRR (navigational)"}
        a, b = (by_seed(load(run).metrics, **of) for run in runs)
        found = reading(b - a)
        seen.add(found)
        assert (" above " in sentence) == (found == "more" or (not found and (b - a).mean() > 0)), sentence
        assert (" below " in sentence) == (found == "less" or (not found and (b - a).mean() < 0)), sentence
        assert ("not told apart" in sentence) == (found == "unknown")
    assert len(seen) >= 3


def test_verdicts_of_slates_and_of_texts_are_those_of_the_values_in_the_files(tmp_path):
    rng, seen = np.random.default_rng(5), set()
    for k in range(8):
        seeds = int(rng.integers(2, 7))
        folder = make_slate_run(
            tmp_path / f"slates {k}", seeds=seeds, gains=(float(rng.choice([-1.0, 0.0, 20.0])), 0.0)
        )
        shaken(folder, "metrics.parquet", 0.001, rng, most=None)
        run = load(folder)
        ours = by_seed(run.metrics, split="test", measure="engagement")
        random = run.details.mark("random").runs["engagement"]
        found = reading(ours - [random[seed] for seed in sorted(random)])
        first, _, _ = str(run.shown.opening(run).sentence).partition(" On B")
        seen.add(found)
        assert ("above that of random" in first) == (found == "more" or (not found and "below that" not in first))
        assert ("not told apart" in first) == (found == "unknown")
        folder = make_text_run(tmp_path / f"texts {k}", seeds=seeds, noise=0.05)
        run = load(folder)
        frame = pl.read_parquet(folder / "methods.parquet").filter(pl.col("measure") == "nDCG(dcg='exp-log2')@10")
        ours, home = (
            by_seed(frame, split="test", method=method, scope=scope)
            for method, scope in (("CS-F-LTR", "federation"), ("BM25", "home"))
        )
        found = reading(ours - home)
        seen.add(found)
        first, _, _ = str(run.shown.opening(run).sentence).partition(";")
        assert ("better than searching" in first) == (found == "more" or (not found and (ours - home).mean() > 0)), (
            first
        )
        assert ("worse than searching" in first) == (found == "less" or (not found and (ours - home).mean() < 0))
    assert {"", "more", "unknown"} <= seen


@pytest.mark.parametrize("wing", [what for command, what in SENTENCES if command == "report"])
def test_every_epsilon_at_the_top_of_a_page_is_one_of_the_account(wing, tmp_path, monkeypatch, capsys):
    made = SENTENCES["report", wing](tmp_path, partial(put, monkeypatch), 3)
    printed(capsys, made.arguments)
    text = made.page.read_text(encoding="utf-8")
    tiles = re.findall(r"<dt>([^<]*ε[^<]*)</dt><dd><b>([^<]*)</b>", text)
    account = json.loads((tmp_path / "run" / "privacy.json").read_text())
    known = [one["epsilon"] for one in account["promises"] if one["epsilon"] is not None]
    assert tiles or wing == "texts without protection"
    for _, shown in tiles:
        value = float(shown.replace(",", "").replace("∞", "inf"))
        assert any(abs(value - one) <= max(0.005, 0.5 * (one >= 100)) for one in known) or (
            value == np.inf and not known
        )
