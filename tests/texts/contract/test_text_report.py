"""The page of silos with texts: what stands where, what protects nobody, and what bad files come to."""

import json
import math
import re

import polars as pl
import pytest
from text_pages import (
    Page,
    changed,
    one,  # noqa: F401 - a fixture
    page_of,
)
from text_run_factory import METHODS, make_text_run

from fedrank.cli.report import show
from fedrank.cli.terminal import Lines
from fedrank.core.errors import RunError
from fedrank.engine.progress import Progress
from fedrank.engine.settings import from_dict
from fedrank.engine.variations import variations
from fedrank.report import describe, tables, words
from fedrank.report.compare import comparison_table, load_runs, write_comparison
from fedrank.report.load import load
from fedrank.texts.build import CONTROLS
from fedrank.texts.report import files as texts
from fedrank.texts.report import privacy as text_privacy
from fedrank.texts.report import tables as text_tables
from fedrank.texts.report.tables import queries_table
from fedrank.texts.report.verdicts import gate_table, verdicts
from fedrank.texts.scores import UNTRAINED
from fedrank.texts.silo_sketch import FEDERATED
from fedrank_zoo.reproduce.page import StudyRuns, budget_table, study_tables, write_study_page
from fedrank_zoo.reproduce.study import Paper, Study


def test_names_of_methods_modes_and_measures_are_those_that_runs_write():
    assert texts.FEDERATED == FEDERATED
    ours = {FEDERATED, "Local+", UNTRAINED, f"{UNTRAINED}, exact", *(variant.name for variant in CONTROLS.values())}
    assert set(texts.METHODS) == set(METHODS) == ours and texts.BM25 == UNTRAINED


def test_the_gain_and_what_it_rests_on_come_first(one):
    run, _, page = one
    shown = page.words
    first = shown[: shown.index("Methods, on the silos")]
    gain = text_tables.lead(run, "CS-F-LTR", "BM25", scope="federation", at="home")
    assert f"{gain.mean:+.3f}" in first and "3 seeds, each with its own cut and split of queries" in first
    assert "against BM25 at home" in first


def test_a_gain_is_the_mean_difference_paired_by_seed(one):
    run = one[0]
    last = pl.DataFrame(run.details.methods).filter((pl.col("round") == 20) & (pl.col("split") == "test"))
    last = last.filter(pl.col("measure") == "nDCG(dcg='exp-log2')@10")
    by = {
        (m, s): g["value"].mean()
        for (m, s), g in last.filter(pl.col("scope") == "own").group_by("method", "seed", maintain_order=True)
    }
    each = [by["CS-F-LTR", seed] - by["Local", seed] for seed in range(3)]
    found = text_tables.gain(run)
    assert found.mean == pytest.approx(sum(each) / 3) and found.n == 3
    spread = (sum((e - found.mean) ** 2 for e in each) / 2 / 3) ** 0.5
    assert found.half == pytest.approx(4.302653 * spread, rel=1e-5)  # Student's t, two degrees of freedom
    home = last.filter((pl.col("scope") == "home") & (pl.col("method") == "Local"))["value"].mean()
    far = last.filter((pl.col("scope") == "federation") & (pl.col("method") == "CS-F-LTR"))["value"].mean()
    assert text_tables.gain(run, scope="federation").mean == pytest.approx(far - home)


def test_every_method_has_every_measure_and_a_cost_is_called_one(one):
    table = text_tables.methods_table(one[0])
    assert [row["method"] for row in table.rows] == list(METHODS[:-1])  # exact BM25 is a search of all documents only
    assert [c.title for c in table.columns][1:4] == [
        "nDCG(dcg='exp-log2')@10",
        "MAP",
        "MAP-JOS (1 is best, larger is worse)",
    ]
    assert all(row[f"m{i}"] is not None for row in table.rows for i in range(3))
    assert "1 is best and larger is worse" in " ".join(table.notes)


def test_tests_by_query_are_paired_and_corrected_together(one):
    table = queries_table(one[0])
    against = [(row["about"], row["against"]) for row in table.rows]
    assert against == [
        *(("own documents", m) for m in METHODS[1:-1]),
        *(("all silos’ documents", m) for m in ("Local at home", "BM25 at home", "BM25", "Global (β = 0)")),
        *(("all silos’ documents", m) for m in ("exact features", "pooled data")),
    ]
    frame = pl.read_parquet(one[0].path / "per_query.parquet")
    mean = {key: g["value"].mean() for key, g in frame.group_by("ranker", "measure", maintain_order=True)}
    expected = mean["learnt", "nDCG(dcg='exp-log2')@10"] - mean["Local", "nDCG(dcg='exp-log2')@10"]
    assert table.rows[1]["difference"].mean == pytest.approx(expected) and table.rows[1]["queries"] == 12
    far = (
        mean["learnt", "nDCG(dcg='exp-log2')@10, all documents"]
        - mean["Local", "nDCG(dcg='exp-log2')@10, all documents, searched at home"]
    )
    assert table.rows[6]["difference"].mean == pytest.approx(far)
    assert "corrected for the 12 rows" in table.notes[0]


def test_the_gate_counts_who_gained_and_who_would_have_lost(tmp_path):
    folder = make_text_run(tmp_path / "run")
    found = [("silo-1", 0.1, 0.2, True), ("silo-1", 0.1, -0.3, True), ("silo-1", -0.1, -0.1, False)]
    found += [("silo-2", -0.1, 0.4, False), ("silo-2", 0.2, 0.1, True), ("silo-2", 0.0, -0.2, False)]
    decisions = [
        {"seed": i % 3, "silo": s, "vali": v, "test": t, "adopted": a, "kept": t if a else 0.0}
        | {"against": "BM25" if i < 4 else "Local"}
        for i, (s, v, t, a) in enumerate(found)
    ]
    changed(folder, "gate.json", lambda gate: gate.update(decisions=decisions))
    run = load(folder)
    first, second, every = gate_table(run).rows
    keys = ("adopts", "gained", "lost", "spared", "missed")
    assert [first[k] for k in keys] == ["2 of 3", "1", "1", "1", "0"]
    assert [second[k] for k in keys] == ["1 of 3", "1", "0", "1", "1"]
    assert [every[k] for k in keys] == ["3 of 6", "2", "1", "2", "1"]
    assert every["offered"].mean == pytest.approx(0.1 / 6) and every["kept"].mean == pytest.approx(0.0)
    assert [row["against"] for row in (first, second, every)] == [
        "BM25",
        "Local (2) or BM25 (1)",
        "BM25 (4) or Local (2)",
    ]
    assert every["kept"].n == 3  # seeds, not silos, are independent
    (said,) = [line for line in verdicts(run) if line.startswith("Do no harm")]
    assert (
        "of 6 decisions (2 silos, 3 seeds), each against BM25 (4) or Local (2), 3 adopt" in said
        and "2 of these gained and 1 lost" in said
    )
    assert "whether to show others’ documents beside them it does not decide" in said


# -- what a silo has without a federation ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "title"),
    [("paper", "nothing protects the documents"), ("plain", "nothing protects the documents")],
)
def test_a_mode_that_protects_nobody_warns_before_all_numbers(tmp_path, mode, title):
    folder = make_text_run(tmp_path / "run", mode=mode, epsilon=0.5 if mode == "paper" else None)
    page = page_of(folder)
    assert "warning" in page.classes
    assert title in page.words[: page.words.index("nDCG(dcg='exp-log2')@10")]
    run = load(folder)
    values = {row["what"]: row["epsilon"] for row in text_privacy.epsilon_table(run).rows}
    assert values["one occurrence of a word, all in all"] == "∞"
    assert any(said.startswith(f"Mode {mode}") for said in describe.caveats(run))


def test_noise_that_is_published_once_has_no_warning_and_all_of_its_numbers(one):
    run, _, page = one
    assert "warning" not in page.classes
    values = {row["what"]: row["epsilon"] for row in text_privacy.epsilon_table(run).rows}
    assert values == {
        "one occurrence of a word, all in all": "8.00",
        "a word replaced by another": "16.00",
        "a whole document of 407 words": "3,256",
    }
    assert "scale 0.4688" in page.words and "The models that a silo sends." in page.words
    assert [row["error"] for row in text_privacy.errors_table(run).rows] == ["0.25", "1"]  # means over seeds


@pytest.mark.parametrize(("read", "readable"), [(0.91, True), (0.03, False)])
def test_what_another_silo_reads_stands_beside_epsilon_and_names_the_mode(tmp_path, read, readable):
    page = page_of(make_text_run(tmp_path / "run", read=read))
    assert ("warning" in page.classes) == readable
    run = load(tmp_path / "run")
    table = text_privacy.epsilon_table(run)
    assert f"{100 * read:.0f} %" in table.notes[-1] and ("not readable" in table.notes[-1]) == (not readable)
    assert f"{100 * read:.0f} %" in text_privacy.privacy_number(run).note
    budget = text_privacy.budgets_table({"a": run})
    assert budget.rows[0]["read"].endswith("(readable)") == readable
    without = text_privacy.budgets_table({"a": load(make_text_run(tmp_path / "old"))})
    assert "read" not in [column.key for column in without.columns]


@pytest.mark.parametrize(("found", "told"), [(0.9, True), (0.52, False)])
def test_whether_another_silo_finds_a_text_is_said_warned_of_and_stands_in_the_opening(tmp_path, found, told):
    folder = make_text_run(tmp_path / "run", read=0.01)
    content = json.loads((folder / "federation.json").read_text())
    content["insider"] |= {"found": found, "found_low": found - 0.1, "found_high": found + 0.1, "texts": 200}
    (folder / "federation.json").write_text(json.dumps(content))
    page = page_of(folder)
    assert ("warning" in page.classes) == told and ("can tell whether a text is among" in page.words) == told
    assert (
        "It tells" if told else "It does not tell"
    ) + f" whether a text is among them: AUC {found:.2f}" in page.words
    assert ("were not seen to read the documents" in page.words) == (not told)


def test_the_size_of_true_counts_stands_beside_the_error_where_the_run_wrote_it(tmp_path):
    folder = make_text_run(tmp_path / "run", names=("a",))
    changed(folder, "federation.json", lambda f: f.update(true_count={"all": [0.1] * 3, "held": [1.5, None, 2.5]}))
    assert [row["count"] for row in text_privacy.errors_table(load(folder)).rows] == ["0.1", "2"]


# -- the other parts of the page ---------------------------------------------------------------------------------------


def test_curves_have_what_silos_reach_alone_as_lines(one):
    run, text, page = one
    assert page.tags.count("svg") == 4
    for name in ("opening", "curve-own", "curve-search", "gate"):
        assert (run.path / "figures" / f"{name}.svg").stat().st_size > 1000
    own, search = (re.sub(r"<[^>]*>", "|", svg) for svg in re.findall(r"<svg.*?</svg>", text, re.S)[2:])
    assert all(f"|{mark}|" in own for mark in ("BM25", "Local", "Local+"))
    assert "|Local at home|" in search and "|BM25 at home|" in search and "|BM25|" in search
    assert run.details.baseline_values("test", "nDCG(dcg='exp-log2')@10") == pytest.approx(
        {m: sum(run.details.values(m, "nDCG(dcg='exp-log2')@10").values()) / 3 for m in ("BM25", "Local", "Local+")}
    )


def test_what_crossed_is_told_of_the_setup_and_of_training_apart(one):
    run = one[0]
    setup, training, every = words.ledger_words(run)
    assert "a silo sent 20.1 kB and received 51 kB" in setup and "“receive”" in setup
    assert "a silo sent 7.17 kB and received 6.9 kB" in training  # 345 + 20 · 341 and 20 · 345
    assert every.startswith("In all: 90 messages, 54.6 kB up from 2 silos and 116 kB down")
    rows = {row["exchange"]: row for row in text_tables.crossed_table(run).rows}
    assert (rows["publish"]["part"], rows["publish"]["up"], rows["step"]["times"]) == ("setup", "20 kB", 20)


def test_settings_are_those_of_silos_with_texts(one):
    keys = {row["key"] for row in tables.config_table(one[0]).rows}
    assert {"sketch.mode", "training.beta", "texts.cut", "privacy.delta"} <= keys
    assert not keys & {"clicks", "clients", "silos.train", "privacy.mechanism"}


def test_nothing_is_fetched_or_run_and_names_are_text(one):
    _, _, page = one
    assert page.tags.count("script") == 1 and "i" not in page.tags and "a <i>" in page.words
    assert "Documents <without> a word: 2." in page.words


def test_generated_data_is_called_so(tmp_path):
    page = page_of(make_text_run(tmp_path / "run", generated=True, data="generated"))
    assert "Generated data: no real collection." in page.words


def test_collections_that_are_silos_are_not_said_to_be_cut(tmp_path):
    page = page_of(make_text_run(tmp_path / "run", data="cranfield+cisi", names=("cranfield", "cisi")))
    assert "each with its own split of queries" in page.words and "own cut" not in page.words


def test_an_unfinished_run_is_shown_as_far_as_it_got(tmp_path):
    page = page_of(make_text_run(tmp_path / "run", done=False))
    assert "Unfinished" in page.words and "has not written its privacy statement yet" in page.words


def test_a_run_whose_rounds_are_not_all_evaluated_is_not_cut_short(one):
    assert describe.caveats(one[0]) == ["Few seeds: 3"]


def test_a_run_without_local_rankers_has_a_page_without_gains(tmp_path):
    folder = make_text_run(tmp_path / "run")
    frame = pl.read_parquet(folder / "methods.parquet").filter(pl.col("method") == "CS-F-LTR")
    frame.write_parquet(folder / "methods.parquet")
    changed(folder, "gate.json", lambda gate: gate.update(decisions=[]))
    page = page_of(folder)
    assert "Gain over Local, own" not in page.words and "CS-F-LTR" in page.words


# -- several runs, terminals, machines ---------------------------------------------------------------------------------


def test_runs_are_compared_by_what_all_silos_reach(tmp_path):
    one, other = make_text_run(tmp_path / "one"), make_text_run(tmp_path / "two", worth={"CS-F-LTR": (0.1, 0.2)})
    runs = load_runs([one, other])
    table = comparison_table(runs, most_telling=True)
    assert {row["measure"] for row in table.rows} == {
        "nDCG(dcg='exp-log2')@10",
        "nDCG(dcg='exp-log2')@10, all documents",
    }
    (row,) = [r for r in table.rows if r["measure"] == "nDCG(dcg='exp-log2')@10" and r["run"] == "two"]
    assert row["difference"].mean == pytest.approx(0.07, abs=1e-9)  # 0.1 − 0.03, with the same draws
    assert not any("silo-1" in row["measure"] for row in comparison_table(runs).rows)
    page = Page(write_comparison(load_runs([one, other]), tmp_path / "out").read_text(encoding="utf-8"))
    assert page.tags.count("svg") == 2
    equal = budget_table(runs, ["nDCG(dcg='exp-log2')@10"])
    assert [row["rounds"] for row in equal.rows] == ["20", "20"] and equal.rows[0]["m0"] is not None


def test_a_study_of_two_budgets_has_values_differences_tests_and_curves(tmp_path):
    config = from_dict({"protocol": "silo-sketch", "data": "cranfield"})
    gains = {2.0: (0.0, 0.05), 16.0: (0.03, 0.1)}
    sweep = variations(config, {"sketch.epsilon": list(gains)})
    runs = tuple(
        (v, load(make_text_run(tmp_path / v.name, epsilon=e, worth={"CS-F-LTR": gain})))
        for v, (e, gain) in zip(sweep, gains.items(), strict=True)
    )
    measures = (("test", "nDCG(dcg='exp-log2')@10"), ("test", "nDCG(dcg='exp-log2')@10, exact features"))
    against = {"sketch.epsilon": 2.0}
    study = Study("s", "Budgets", tmp_path, measures=measures, curves=measures[:1], against=against)
    paper = Paper("p", "A paper", "shi2021csfltr", tmp_path, (study,), ())
    shown = StudyRuns(study, runs)
    values, spent, by_query = study_tables(paper, shown)
    assert [(row["mode"], row["total"], row["document"]) for row in spent.rows] == [
        ("publish-once", "2.00", "814"), ("publish-once", "16.00", "6,512"),
    ]  # fmt: skip
    rows = {(row["sketch.epsilon"], row["measure"]): row for row in values.rows}
    assert set(rows) == {(e, m) for e in gains for _, m in measures}
    assert rows[16.0, "nDCG(dcg='exp-log2')@10"]["against"].mean == pytest.approx(0.03)  # the same draws
    names = {row["name"] for row in by_query.rows if row["measure"] == "nDCG(dcg='exp-log2')@10"}
    assert names == {"sketch.epsilon 16", *METHODS[1:-1]}
    searched = Study(
        "s", "B", tmp_path, measures=(*measures, ("test", "nDCG(dcg='exp-log2')@10, all documents")), against=against
    )
    rows = study_tables(paper, StudyRuns(searched, runs))[2].rows
    pairs = [(row["name"], row["measure"]) for row in rows]  # a ranker is compared in what it does
    assert ("BM25, exact", "nDCG(dcg='exp-log2')@10, all documents") in pairs and (
        "Local",
        "nDCG(dcg='exp-log2')@10",
    ) in pairs
    assert ("Local", "nDCG(dcg='exp-log2')@10, all documents") not in pairs and (
        "BM25, exact",
        "nDCG(dcg='exp-log2')@10",
    ) not in pairs
    page = write_study_page(paper, [shown], tmp_path / "page").read_text(encoding="utf-8")
    assert Page(page).tags.count("svg") == 2  # the one at the top, too


def test_json_has_every_table_and_the_terminal_the_sentences(one, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    show(one[0], one[0].path / "report.html", as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in told["final"]] == list(METHODS[:-1])
    assert told["final"][0]["gain"]["seeds"] == 3 and told["verdicts"] == verdicts(one[0])
    assert len(told["decisions"]) == 6 and len(told["by_query"]) == 12
    show(one[0], one[0].path / "report.html", as_json=False)
    out = capsys.readouterr().out
    assert "CS-F-LTR" in out and "The federation helps." in out
    assert max(map(len, out.splitlines()[:20])) <= 80


def test_progress_counts_rows_and_has_no_value_before_the_first_evaluation(capsys):
    lines = Lines(seconds=0.0)
    for now in (
        Progress(1, 9, 800, 400.0, 2.0, "nDCG(dcg='exp-log2')@10", math.nan, "rows"),
        Progress(2, 9, 800, 400.0, 2.0, "RR", 0.25),
    ):
        lines.progress(now)
    first, second = capsys.readouterr().err.splitlines()
    assert "nDCG(dcg='exp-log2')@10 –  400 rows/s" in first and "RR 0.250  400 interactions/s" in second


# -- damage ------------------------------------------------------------------------------------------------------------


def test_a_bad_file_is_named(tmp_path):
    for trouble in ["missing", "cut"]:
        for name in ["federation.json", "methods.parquet", "gate.json"]:
            folder = make_text_run(tmp_path / "run", names=("a",))
            if trouble == "missing":
                (folder / name).unlink()
            else:
                (folder / name).write_bytes((folder / name).read_bytes()[:-20])
            with pytest.raises(RunError, match=re.escape(name)):
                load(folder)


READ = {"share": 0.1, "low": 0.0, "high": 0.2}


def test_a_file_of_another_shape_is_refused(tmp_path):
    for name, change, says in [
        ("federation.json", lambda f: f.pop("sketch"), "must hold 'silos', 'mode', 'sketch'"),
        ("federation.json", lambda f: f["silos"][0].update(documents=None), "must hold 'silos'"),
        ("federation.json", lambda f: f.update(sketch={}), "must hold 'silos'"),
        ("federation.json", lambda f: f["sketch"].pop("kind"), "must hold 'silos'"),
        ("federation.json", lambda f: f.update(statistics={}), "must hold 'silos'"),
        ("federation.json", lambda f: f.update(beta=None), "must hold 'silos'"),
        ("federation.json", lambda f: f["silos"][0].update(queries={}), "must hold 'silos'"),
        ("federation.json", lambda f: f.update(insider=READ | {"other": 1}), "must hold 'silos'"),
        ("federation.json", lambda f: f.update(insider=READ | {"share": "0.1"}), "must hold 'silos'"),
        ("federation.json", lambda f: f["silos"][0].update(name="z"), "'a' is in methods.parquet or gate.json"),
        ("gate.json", lambda g: g["decisions"][0].pop("vali"), "'decisions', each with seed"),
    ]:
        folder = make_text_run(tmp_path / "run", names=("a", "b"))
        changed(folder, name, change)
        with pytest.raises(RunError, match=re.escape(says)):
            load(folder)


def test_a_file_of_an_earlier_version_is_read(tmp_path):
    folder = make_text_run(tmp_path / "run", names=("a", "b"))

    def earlier(content):
        for name in ("words", "foreign_share", "generated"):
            del content[name]
        content["notes"] = None

    changed(folder, "federation.json", earlier)
    changed(folder, "gate.json", lambda gate: gate["decisions"][0].update(vali=None))
    run = load(folder)
    found = run.details
    assert [silo.words for silo in found.silos] == [None, None] and found.notes == ()
    assert found.foreign_share is None and found.generated is False
    assert math.isnan(found.decisions[0].vali) and found.decisions[0].against in ("Local", "BM25")
    assert page_of(folder).tags.count("table") > 3


def test_an_undefined_share_of_foreign_documents_is_none(tmp_path):
    for share in (math.nan, None):
        folder = make_text_run(tmp_path / "run", names=("a", "b"), foreign_share=share)
        assert load(folder).details.foreign_share is None
        assert "nan" not in page_of(folder).words


def test_values_without_the_federation_s_ranker_or_of_an_unknown_scope_are_refused(tmp_path):
    folder = make_text_run(tmp_path / "run", names=("a",))
    frame = pl.read_parquet(folder / "methods.parquet")
    frame.filter(pl.col("method") != "CS-F-LTR").write_parquet(folder / "methods.parquet")
    with pytest.raises(RunError, match="no values of CS-F-LTR"):
        load(folder)
    frame.with_columns(scope=pl.col("scope").replace("home", "garden")).write_parquet(folder / "methods.parquet")
    with pytest.raises(RunError, match="got 'garden'"):
        load(folder)
