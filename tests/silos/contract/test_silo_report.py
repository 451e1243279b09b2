"""The page of a run over silos: who helps whom, a warning where somebody harms, and every damaged file by name."""

import json
import re

import polars as pl
import pytest
from silo_run_factory import make_silo_run
from text_pages import Page

from fedrank.cli.report import report
from fedrank.core.errors import RunError
from fedrank.report import tables, words
from fedrank.report.compare import comparison_table, load_runs, write_comparison
from fedrank.report.load import load
from fedrank.report.page import html_of, write_page
from fedrank.report.statistics import Interval
from fedrank.silos.report import figures as silo_figures
from fedrank.silos.report import opening as silo_opening
from fedrank.silos.report import page as silo_page
from fedrank.silos.report import tables as silo_tables


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    folder = make_silo_run(tmp_path_factory.mktemp("silos") / "one", inverted="cleveland", seeds=3, rounds=3)
    text = write_page(folder).read_text(encoding="utf-8")
    return load(folder), text, Page(text)


@pytest.fixture(scope="module")
def every(tmp_path_factory):
    names = ("a <b>", "cleveland", "c")
    folder = make_silo_run(tmp_path_factory.mktemp("silos") / "all", target="all", names=names, seeds=3, rounds=2)
    run = load(folder)
    drawn = silo_page.SHOWN.charts(run)
    return run, html_of(run, {name: drawn[name] for name in ("who-helps-whom", "increment-1", "played-2")})


def words_of(folder):
    """What the page says, without drawing its figures."""
    return Page(html_of(load(folder), {})).words


def changed(folder, name, change):
    """Change a JSON file of a run."""
    file = folder / name
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value))


# -- what a reader gets ----------------------------------------------------------------------------------------------


def test_a_harmful_silo_is_named_with_all_of_its_evidence(one):
    box = one[1][one[1].index('class="warning"') :]
    box = box[: box.index("</ul>")]
    for said in (
        "cleveland harms hungarian",
        "−0.090",
        "−0.110 to −0.065",
        "p = 0.0004",
        "9 paired",
        "look inverted",
        "0.23",
    ):
        assert said in box
    assert "long-beach" not in box and "switzerland" not in box


def test_where_nobody_harms_there_is_no_warning(tmp_path):
    folder = make_silo_run(tmp_path / "run", names=("hungarian", "long-beach"), seeds=2, rounds=2)
    assert silo_page.warnings(load(folder)) == []
    assert "warning" not in Page(html_of(load(folder), {})).classes


def test_labels_that_look_inverted_are_told_even_without_proof_of_harm(tmp_path):
    folder = make_silo_run(tmp_path / "run", inverted="long-beach", names=("hungarian", "long-beach"), rounds=2)
    (said,) = silo_page.warnings(load(folder))
    assert said.startswith("long-beach for hungarian: its labels look inverted (AUC 0.23")


def test_what_matters_comes_first(one):
    text = one[1]
    places = [
        text.index(mark)
        for mark in (
            'class="sentence"', 'class="caveats"', 'class="warning"', 'class="opening"', 'id="helps"',
            'id="curves"', 'id="arms"', 'id="final"',
            'id="left"', 'id="privacy"', 'id="repeat"', 'id="configuration"', 'id="citation"',
        )
    ]  # fmt: skip
    assert places == sorted(places)


def test_caveats_are_said(one, every):
    for said in ("The labels of cleveland are inverted on purpose", "switzerland has rows of one label only",
                 "switzerland: all validation rows have label 1, AUC is undefined", "Few seeds: 3"):  # fmt: skip
        assert said in one[2].words


def test_nothing_is_fetched_or_run_and_names_are_text(one, every):
    for text in (one[1], every[1]):
        assert len(text.encode()) < 2_000_000
        assert text.count("<script") == 1 and not re.search(r"<img|@import|url\(\s*['\"]?(?!#)", text)
        ids = re.findall(r'\bid="([^"]+)"', text)
        assert len(ids) == len(set(ids)) and set(re.findall(r'href="#([^"]+)"', text)) <= set(ids)
        assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(ids)
        assert not re.search(r"\b(NaN|nan|None|inf)\b", Page(text).words)
    assert "a &lt;b&gt;" in every[1] and "a <b>" not in every[1]


def test_silos_send_messages_and_have_no_interactions(one):
    assert "interactions" not in one[2].words


# -- numbers ---------------------------------------------------------------------------------------------------------


def test_differences_to_alone_and_everyone_are_those_of_the_best_model(tmp_path):
    folder = make_silo_run(tmp_path / "run", seeds=3, rounds=2)
    run = load(folder)
    assert silo_tables.against(run, "hungarian", "alone") == Interval(0.04, 0.03, 0.05)
    assert silo_tables.against(run, "hungarian", "everyone") == Interval(0.02, -0.01, 0.05)
    said = words_of(folder)
    assert "+0.040 95 % interval +0.030 to +0.050: a gain" in said


def test_without_paired_differences_there_is_no_interval(tmp_path):
    folder = make_silo_run(tmp_path / "run", seeds=2, rounds=2, marks=False)
    assert silo_tables.against(load(folder), "hungarian", "alone") is None
    values = [{"split": "test", "measure": "AUC", "value": 0.5}]
    (folder / "baselines.json").write_text(json.dumps({"baselines": [{"name": "alone", "values": values}]}))
    run = load(folder)
    mean = run.metrics.where(measure="AUC, best so far", split="test", round=2)["value"].mean()
    found = silo_tables.against(run, "hungarian", "alone")
    assert found.mean == pytest.approx(mean - 0.5) and found.low is None and found.high is None
    assert "AUC against training alone" in words_of(folder) and "no interval" in words_of(folder)


def test_less_log_loss_is_better(tmp_path):
    folder = make_silo_run(tmp_path / "run", seeds=2, rounds=2, marks=False)
    frame = pl.read_parquet(folder / "metrics.parquet")
    frame.with_columns(pl.col("measure").str.replace("AUC", "log-loss")).write_parquet(folder / "metrics.parquet")
    values = [{"split": "test", "measure": "log-loss, best so far", "value": 10.0}]
    (folder / "baselines.json").write_text(json.dumps({"baselines": [{"name": "alone", "values": values}]}))
    run = load(folder)
    assert silo_tables.against(run, "hungarian", "alone").mean > 9
    assert "Test log-loss" in words_of(folder) and "Test AUC" not in words_of(folder)
    assert set(silo_page.SHOWN.charts(run)) >= {"auc-round-0", "played-0"}


def test_a_helper_s_share_adds_up_the_sets_that_it_is_in(tmp_path):
    folder = make_silo_run(tmp_path / "run", rounds=2)

    def change(found):
        found["hungarian"]["played"] = {"1110": 0.25, "0110": 0.5, "0100": 0.25}

    changed(folder, "evidence.json", change)
    table = silo_tables.helpers_table(load(folder), "hungarian")
    assert [row["played"] for row in table.rows] == ["25 %", "75 %", "0 %"]
    assert any("alone was played in 25 %" in note for note in table.notes)


def test_arms_told_by_clusters_are_named_by_their_silos(tmp_path):
    folder = make_silo_run(tmp_path / "run", rounds=2, seeds=3)
    changed(folder, "silos.json", lambda silos: silos.update(arms={}))
    assert "hungarian + long-beach" in silo_page.SHOWN.charts(load(folder))["increment-0"].svg


def test_a_silo_that_was_never_compared_has_no_verdict(tmp_path):
    folder = make_silo_run(tmp_path / "run", rounds=2)
    nothing = {"n": 0, "mean": None, "low": None, "high": None, "verdict": "no evidence"}
    changed(folder, "evidence.json", lambda found: found["hungarian"]["silos"]["switzerland"].update(nothing))
    table = silo_tables.helpers_table(load(folder), "hungarian")
    row = next(row for row in table.rows if row["silo"] == "switzerland")
    cells = {column.key: table.text(row, column) for column in table.columns}
    assert (cells["verdict"], cells["difference"], cells["evidence"]) == ("not compared", "–", "–")
    assert any("never judged" in note for note in table.notes)


def test_a_page_of_one_seed_says_that_there_is_no_verdict(tmp_path):
    folder = make_silo_run(tmp_path / "run", rounds=2)
    of_rounds = {"unit": "rounds", "p": 1.0, "verdict": "no evidence"}
    changed(folder, "evidence.json", lambda found: found["hungarian"]["silos"]["cleveland"].update(of_rounds))
    run = load(folder)
    assert "Fewer than three seeds give no verdict" in " ".join(silo_tables.explain_columns(run.details))


def test_the_matrix_has_a_cell_for_each_pair_and_a_symbol_for_each_verdict(every):
    drawn = silo_figures.matrix_figure(every[0]).svg
    # Of three silos two are helped by cleveland's absence; its own row has the other two, of unknown worth.
    assert drawn.count(">▼ −0.090<") == 2 and len(re.findall(r"<rect[^>]*><title>", drawn)) == 9
    assert drawn.count(">· +0.000<") == 4
    assert "▼ −0.090" in every[1]  # three decimals on the page, too


def test_arms_beyond_what_a_figure_can_show_are_summed_up(tmp_path):
    names = tuple(f"s{i}" for i in range(9))
    run = load(make_silo_run(tmp_path / "run", target="s0", names=names, seeds=9, rounds=2, explores=False))
    plays = run.details.plays
    spread = plays.with_columns({"played": plays["arm"] == plays["seed"]})  # nine arms, each played by one seed
    object.__setattr__(run.details, "plays", spread)
    drawn = silo_figures.played_figure(run, "s0").svg
    first = re.findall(r"<title>Round 1: ([^<]*) in (\d+)%</title>", drawn)
    assert ("other arms", "33") in first and len(first) == 7
    heights = re.findall(r'height="([\d.]+)"[^>]*><title>Round 1:', drawn)
    assert sum(map(float, heights)) == pytest.approx(230, abs=0.1)  # the whole height of the panel


# -- what left the silos ---------------------------------------------------------------------------------------------


def test_the_ledger_in_words_counts_messages_models_and_bytes(tmp_path):
    # 4 silos send "Ready"; a round: 4 models out, 4 back, 3 averages in one message to the target, and its judgement.
    run = load(make_silo_run(tmp_path / "run", seeds=2, rounds=3))
    *exchanges, total = words.ledger_words(run)
    assert exchanges == [
        "Exchange “pretrain” (before the first round every silo trains by itself): silos sent 4 messages Ready, "
        "5 bytes each.",
        "Exchange “train” (silos train the model on their own rows): the server sent 12 messages Model with 1 model "
        "each, 4.75 kB each; silos sent 12 messages Trained with 1 model each, 4.75 kB each, in 3 rounds.",
        "Exchange “judge-all” (every average that is tried is judged): the server sent 3 messages "
        "Candidates with 3 models each, 14.2 kB each; silos sent 3 messages Judged, 17 bytes each, in 3 rounds.",
    ]
    # 4 + 3 · (4 + 4 + 1 + 1) messages; 3 · (4 + 4 + 3) models; 4 · 5 + 3 · (4 · 4749 + 17) and 3 · (4 · 4749 + 14233).
    assert total.startswith("3 rounds made 34 messages, 33 transfers of a model, 57.1 kB up and 99.7 kB down")


def test_a_figure_of_each_kind_and_a_file_for_each(one):
    names = {path.stem for path in (one[0].path / "figures").glob("*.svg")}
    assert names == {
        "opening",
        "auc-round-0",
        "played-0",
        "increment-0",
    }


def test_what_a_rule_expects_is_drawn_where_it_decides(tmp_path):
    folder = make_silo_run(tmp_path / "run", rounds=2, seeds=2, rule="ucb")
    assert {"estimate-0", "increment-0"} <= set(silo_page.SHOWN.charts(load(folder)))


# -- other runs ------------------------------------------------------------------------------------------------------


def test_a_protocol_without_arms_has_a_page_too(tmp_path):
    folder = make_silo_run(tmp_path / "run", protocol="fedavg", rounds=2)
    assert set(silo_page.SHOWN.charts(load(folder))) == {"opening", "auc-round-0"}
    said = words_of(folder)
    assert "Who helps whom" not in said and "Which arms" not in said and "Final values" in said


def test_an_unfinished_run_is_shown_as_far_as_it_got(tmp_path):
    folder = make_silo_run(tmp_path / "run", rounds=2, done=False)
    for name in ("arms.parquet", "evidence.json", "ledger.jsonl", "privacy.json", "model.json", "messages.json"):
        (folder / name).unlink()
    assert silo_page.SHOWN.charts(load(folder))
    assert "Unfinished" in words_of(folder) and "Who helps whom" not in words_of(folder)


def test_notes_that_are_null_are_none(tmp_path):
    folder = make_silo_run(tmp_path / "run")
    changed(folder, "silos.json", lambda silos: silos.update(notes=None, undefined=None))
    found = load(folder).details
    assert found.notes == found.undefined == ()


def test_a_value_that_is_undefined_is_no_value(tmp_path):
    folder = make_silo_run(tmp_path / "run", rounds=2)
    frame = pl.read_parquet(folder / "metrics.parquet")
    test = pl.col("split") == "test"
    frame.with_columns(pl.when(test).then(float("nan")).otherwise("value").alias("value")).write_parquet(
        folder / "metrics.parquet"
    )
    assert silo_page.SHOWN.charts(load(folder)) and "model is undefined" in words_of(folder)
    assert not re.search(r"\bnan\b", words_of(folder))
    frame.with_columns(value=pl.lit(None, pl.Float64)).write_parquet(folder / "metrics.parquet")
    with pytest.raises(RunError, match="no AUC is defined"):
        load(folder)


def test_runs_are_compared_target_by_target(tmp_path):
    folders = [
        make_silo_run(tmp_path / "low", rounds=2, seeds=3),
        make_silo_run(tmp_path / "high", rounds=2, seeds=3, lift=0.05, protocol="fedavg"),
        make_silo_run(tmp_path / "other", rounds=2, seeds=3, target="long-beach"),
    ]
    table = comparison_table(load_runs(folders), most_telling=True)
    assert {row["split"] for row in table.rows} == {"test"}
    found = {(row["measure"], row["run"]): row["difference"] for row in table.rows}
    assert found["AUC, best so far (hungarian)", "high"].mean == pytest.approx(0.05, abs=0.02)
    assert found["AUC, best so far (long-beach)", "other"] is None
    text = write_comparison(load_runs(folders), tmp_path / "out").read_text(encoding="utf-8")
    assert "messages so far" in text and "low" in text
    assert [path.stem for path in (tmp_path / "out" / "figures").glob("*.svg")] == [
        "auc-best-so-far-heart-disease-target-hungarian-test"
    ]


# -- for machines, and when files are bad ----------------------------------------------------------------------------


def test_json_has_the_evidence_and_the_terminal_the_warning(one, capsys, monkeypatch):
    folder = one[0].path
    monkeypatch.setattr("fedrank.report.page.write_page", lambda run, out, **_: folder / "report.html")
    report(folder, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["evidence"] == json.loads((folder / "evidence.json").read_text())
    assert told["warnings"][0].startswith("cleveland harms hungarian")
    report(folder)
    said = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "Warning: cleveland harms hungarian" in said and "▼ harms" in said


def test_a_bad_file_is_named(tmp_path):
    for trouble in ["missing", "cut", "of another kind"]:
        for name in ["silos.json", "arms.parquet", "evidence.json"]:
            folder = make_silo_run(tmp_path / "run", seeds=1, rounds=1)
            file = folder / name
            if trouble == "missing":
                file.unlink()
            elif trouble == "cut":
                file.write_bytes(file.read_bytes()[:-20])
            elif name == "arms.parquet":
                pl.read_parquet(file).drop("code").write_parquet(file)
            else:
                file.write_text('{"hungarian": {"played": {}}}')
            with pytest.raises(RunError, match=re.escape(name)):
                load(folder)


def test_evidence_of_another_shape_is_refused(tmp_path):
    for change, says in [
        (lambda found: found["hungarian"]["silos"]["cleveland"].update(verdict="maybe"), "maybe"),
        (lambda found: found["hungarian"]["silos"]["cleveland"].pop("n"), "'n'"),
        (lambda found: found.update(hungarian=[]), "evidence.json"),
    ]:
        folder = make_silo_run(tmp_path / "run", seeds=1, rounds=1)
        changed(folder, "evidence.json", change)
        with pytest.raises(RunError, match=re.escape(says)):
            load(folder)


def test_tables_of_silos_go_into_json(one):
    told = tables.to_json(silo_tables.helpers_table(one[0], "hungarian"))
    assert told["rows"][0]["difference"] == {"mean": -0.09, "low": -0.11, "high": -0.065}


# -- what the page says first ----------------------------------------------------------------------------------------


def test_the_page_begins_with_the_plain_model_only_where_that_is_better(tmp_path):
    for difference, first in [
        ((-0.132, -0.2, -0.06), True),
        ((0.02, -0.01, 0.05), False),
        ((0.05, 0.01, 0.09), False),
        ((-0.02, -0.05, 0.01), False),
        ((-0.02, None, None), False),  # two seeds
    ]:
        folder = make_silo_run(tmp_path / "run", seeds=3, rounds=2)
        mean, low, high = difference
        way = {
            "title": "own logistic regression",
            "kind": "baseline",
            "mean": 0.9,
            "difference": dict(mean=mean, low=low, high=high),
        }
        about = {"rows": 185.0, "recommended": ["alone"] * 3, "best": "alone", "ways": {"alone": way}}
        (folder / "sceptic.json").write_text(json.dumps({"hungarian": about}))
        sentence = str(silo_opening.opening_of(load(folder), []).sentence)
        assert sentence.startswith("Use “own logistic regression”") == first
        reached = (
            f"{silo_tables.mean_interval(list(silo_tables.best_test(load(folder), 'hungarian').values())).mean:.3f}"
        )
        for number in ("0.900", reached, "185 rows", "0.040 above training alone"):
            assert number in sentence
        assert (f"{abs(mean):.3f} better" in sentence) == (low is not None and (low > 0 or high < 0))
