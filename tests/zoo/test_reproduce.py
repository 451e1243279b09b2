"""Studies: a paper's numbers beside ours, from a folder of one's own."""

import json
import shutil
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from report_factory import make_run

from fedrank.cli.main import call
from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.engine.settings import with_setting
from fedrank.ranking.report import RankingShown
from fedrank.report.load import load
from fedrank.report.statistics import final_values
from fedrank_zoo.reproduce.study import expected_value, papers, plan_runs, read_paper, read_study, shorten_run
from fedrank_zoo.reproduce.tasks import StudiedTask, studied_task

MEASURE = "nDCG(dcg='exp-log2')@10"
STUDY = """
data = {data}
clients = 4
rounds = 10
seeds = 2

[evaluation]
every = 5
measures = ["nDCG(dcg='exp-log2')@10"]

[[case]]
name = "ES"

[[case]]
name = "PDGD"
protocol = "pdgd"

[vary]
data_seed = [0, 1]
clicks = ["navigational", "perfect"]

[study]
title = "Mine: a study"
measures = ["online: MaxRR", "train: expected MaxRR ({{clicks}})", "test: nDCG(dcg='exp-log2')@10"]
curves = ["online: MaxRR"]
panels = ["clicks"]
pool = ["data_seed"]
against = {{ case = "PDGD" }}
"""


@pytest.fixture(scope="module")
def paper(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paper")
    random = np.random.default_rng(0)
    lines = [
        f"{random.integers(0, 3)} qid:{q} 1:{random.random():.3f} 2:{random.random():.3f}"
        for q in range(8)
        for _ in range(4)
    ]
    data = folder / "data.txt"
    data.write_text("\n".join(lines) + "\n")
    (folder / "one.toml").write_text("holdout = 0.5\n" + STUDY.format(data=json.dumps(str(data))))
    (folder / "lost.toml").write_text(STUDY.format(data='"istella"'))
    value = {"study": "one", "where": {"clicks": "perfect", "case": "ES"}, "split": "test", "measure": MEASURE}
    about = {"name": "mine", "title": "Mine", "citation": "", "studies": ["one", "lost"]}
    (folder / "expected.json").write_text(
        json.dumps({**about, "values": [{**value, "value": 0.5, "source": "Table 1"}]})
    )
    return folder


@pytest.fixture(scope="module")
def reproduced(paper, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    assert call(["reproduce", str(paper), "--fraction", "0.5", "--out", str(out), "--quiet"]) == 0
    return out


def test_ours_is_the_mean_over_what_is_pooled_and_seeds(reproduced):
    results = json.loads((reproduced / "results.json").read_text())["studies"]["one"]
    assert results["fraction"] == 0.5 and results["seeds"] == [0, 1]
    values, tests = results["tables"]
    (row,) = (
        r for r in values["rows"]
        if (r["case"], r["clicks"], r["split"], r["measure"]) == ("ES", "perfect", "test", "nDCG(dcg='exp-log2')@10")
    )  # fmt: skip
    runs = [load(reproduced / "one" / f"case=ES,data_seed={seed},clicks=perfect") for seed in (0, 1)]
    assert {run.setting("rounds") for run in runs} == {5}
    by_seed = [final_values(run.metrics, "test", "nDCG(dcg='exp-log2')@10") for run in runs]
    means = [np.mean([values[seed] for values in by_seed]) for seed in (0, 1)]
    assert row["ours"]["mean"] == pytest.approx(np.mean(means))
    assert row["ours"]["low"] is None and row["ours"]["high"] is None  # two seeds
    assert row["paper"] == 0.5 and row["gap"]["mean"] == pytest.approx(np.mean(means) - 0.5)
    (mark,) = (
        r for r in values["rows"]
        if (r["case"], r["clicks"], r["split"], r["measure"]) == ("MSE (labels)", "perfect", "test", MEASURE)
    )  # fmt: skip
    apart = [run.baseline.values["test", "nDCG(dcg='exp-log2')@10"] for run in runs]
    assert apart[0] != apart[1] and mark["ours"]["mean"] == pytest.approx(np.mean(apart))
    other = [load(reproduced / "one" / f"case=PDGD,data_seed={seed},clicks=perfect") for seed in (0, 1)]
    theirs = [final_values(run.metrics, "test", "nDCG(dcg='exp-log2')@10") for run in other]
    theirs = np.mean([value for values in theirs for value in values.values()])
    assert row["against"]["mean"] == pytest.approx(np.mean(means) - theirs)
    assert {r["name"] for r in tests["rows"]} == {"ES", "MSE (labels)"}
    assert "4 comparisons" in " ".join(tests["notes"])


def test_the_page_says_what_a_reader_must_know(reproduced):
    page = (reproduced / "report.html").read_text()
    for said in ("A quick look: 50 % of the rounds", "Not run:", "Paper: Table 1", "of the 2 seeds", "(Holm)"):
        assert said in page
    assert list((reproduced / "figures").glob("one-online-maxrr-*.svg"))


def test_started_again_it_runs_nothing_twice(paper, reproduced, capsys):
    done = {path: path.stat().st_mtime_ns for path in reproduced.glob("one/*/done.json")}
    assert len(done) == 8
    command = [
        "reproduce",
        str(paper),
        "--only",
        "one",
        "--fraction",
        "0.5",
        "--out",
        str(reproduced),
        "--quiet",
        "--json",
    ]
    assert call(command) == 0
    assert {path: path.stat().st_mtime_ns for path in reproduced.glob("one/*/done.json")} == done
    assert json.loads(capsys.readouterr().out)["studies"]["one"]["tables"]


def test_values_by_query_average_to_the_final_ones(reproduced):
    folder = reproduced / "one" / "case=PDGD,data_seed=0,clicks=perfect"
    frame = pl.read_parquet(folder / "per_query.parquet")
    learnt = frame.filter(
        (pl.col("ranker") == "learnt") & (pl.col("measure") == "nDCG(dcg='exp-log2')@10") & (pl.col("split") == "test")
    )
    final = final_values(load(folder).metrics, "test", "nDCG(dcg='exp-log2')@10")
    assert learnt["value"].mean() == pytest.approx(np.mean(list(final.values())), rel=1e-6)
    assert set(frame["ranker"]) == {"learnt", "MSE"}


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (("measures", "measure"), UnknownNameError, "measures"),
        ((f'"test: {MEASURE}"', f'"{MEASURE}"'), ConfigError, "must look like"),
        (('protocol = "pdgd"', 'protocol = "pdg"'), ConfigError, "pdgd"),
        (('name = "PDGD"', 'name = "ES"'), ConfigError, "a distinct name"),
    ],
)
def test_a_wrong_study_is_named(tmp_path, change, error, says):
    path = tmp_path / "wrong.toml"
    text = STUDY.format(data='"generated"').replace(*change)
    assert text != STUDY.format(data='"generated"')
    path.write_text(text)
    with pytest.raises(error, match=says):
        plan_runs(read_study(path))


def test_a_quick_look_has_fewer_rounds_and_seeds(paper):
    (first, *_) = plan_runs(read_study(paper / "one.toml"))
    config = with_setting(with_setting(first.config, "rounds", 1000), "seeds", 10)
    for fraction, rounds, seeds in ((1.0, 1000, 10), (0.5, 500, 5), (0.01, 10, 2), (1e-9, 1, 2)):
        quick = shorten_run(config, fraction)
        assert (quick.rounds, quick.seeds) == (rounds, seeds) and quick.evaluation.every <= rounds
    assert shorten_run(with_setting(config, "seeds", 1), 0.5).seeds == 1


def test_a_study_may_be_computed_by_a_function_of_ones_own(paper, tmp_path, monkeypatch, capsys):
    mine, name = tmp_path / "mine", "tables_of_my_own"
    shutil.copytree(paper, mine)
    (mine / "one.toml").write_text(f'data = "generated"\n[study]\ntitle = "T"\nprogram = "{name}:count"\n')
    (tmp_path / f"{name}.py").write_text(
        "from fedrank.report.tables import Column, Table\n"
        "def count(study, fraction, listener):\n"
        "    rows = ({'n': len(study.title)}, {'n': fraction})\n"
        "    return (Table('Counted', (Column('n', 'letters', numeric=True),), rows),), {}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    command = ["reproduce", str(mine), "--only", "one", "--fraction", "0.25", "--out", str(tmp_path / "out"), "--quiet"]
    assert call([*command, "--json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["studies"]["one"]["tables"]
    assert [row["n"] for row in table["rows"]] == [1, 0.25]
    for wrong in (f"{name}:lost", "no_such_package_here:count", "json:__name__", "not a name"):
        (mine / "one.toml").write_text(f'data = "generated"\n[study]\ntitle = "T"\nprogram = "{wrong}"\n')
        with pytest.raises(ConfigError, match="program"):
            _ = read_study(mine / "one.toml").program_function


def test_the_papers_that_come_with_it_are_in_order():
    assert set(papers()) == {"foltr-es", "foltr-study", "mab-fl", "cs-f-ltr", "fedslate", "private-foltr-es"}
    for name in papers():
        paper = read_paper(name)
        plans = {study.name: plan_runs(study) for study in paper.studies if not study.program}
        for study in paper.studies:
            assert (study.program_function is None) == (study.name in plans)
            if not study.program:
                todo = plans[study.name]
                assert len({v.name for v in todo}) == len(todo) > 1
                for variation in todo:
                    variation.config.resolved()
        # Every printed number has a run or a baseline to stand beside.
        for entry in paper.values:
            study = next(s for s in paper.studies if s.name == entry["study"])
            if study.program:  # its tables look the number up themselves
                assert expected_value(paper, study, entry["where"], entry["split"], entry["measure"]) == entry
                continue
            # A publication's own metrics of platforms have a table of their own.
            legacy = {
                ("legacy", f"{metric} ({platform})") for metric in ("optimal reward", "ETROR") for platform in "AB"
            }
            assert (entry["split"], entry["measure"]) in {*study.measures, *legacy}
            runs = [v.where for v in plans[study.name]]
            baselines = plans[study.name][0].config.evaluation.baselines
            named = {**entry["where"]}
            if named.get("ranker") in baselines:
                named.pop("ranker")
            assert any(all(where.get(k) == v for k, v in named.items()) for where in runs), entry
            where = next(w for w in runs if all(w.get(k) == v for k, v in named.items()))
            assert expected_value(paper, study, {**where, **entry["where"]}, entry["split"], entry["measure"]) == entry


def test_a_task_of_another_package_says_what_its_studies_need(tmp_path):
    class OwnShown(RankingShown):
        studied = StudiedTask(lambda run: ["shop"])

    run = load(make_run(tmp_path / "run"))
    assert studied_task(replace(run, shown=OwnShown())) is OwnShown.studied
    assert "fold" in studied_task(run).baselines_depend_on(run)
