"""What the page of silos with texts says in words: who gains, over what, and what noise took."""

import json

import polars as pl
import pytest
from text_pages import (
    about,
    one,  # noqa: F401 - a fixture
    page_of,
)
from text_run_factory import make_text_run

from fedrank.cli.report import compare
from fedrank.core.errors import RunError
from fedrank.report import words
from fedrank.report.compare import load_runs
from fedrank.report.load import load
from fedrank.report.statistics import mean_interval
from fedrank.texts.report import privacy as text_privacy
from fedrank.texts.report import tables as text_tables
from fedrank.texts.report import verdicts as texts_verdicts
from fedrank.texts.report.verdicts import direction, verdicts


def test_a_federation_helps_only_where_it_beats_all_that_a_silo_has_without_it(tmp_path):
    for ours, bm25, says, not_says in [
        (0.05, 0.02, "The federation helps.", "plain BM25"),
        (
            0.05,
            0.08,
            "It is better than Local, but plain BM25, which needs no training, no labels and no federation, "
            "does better.",
            "helps",
        ),
        (0.05, 0.05, "is not told apart from it by these seeds.", "as well"),
        (
            -0.05,
            0.05,
            "The federation harms: plain BM25, which needs no training, no labels and no federation, does "
            "better; so does",
            "helps",
        ),
        (0.0, 0.05, "Plain BM25, which needs no training, no labels and no federation, does better.", "helps"),
        (-0.05, -0.1, "It is better than BM25, but a silo’s own ranker does better.", "helps"),
    ]:
        worth = {"CS-F-LTR": (ours, 0.1), "BM25": (bm25, 0.06)}
        run = load(make_text_run(tmp_path / "run", worth=worth, noise=0.002, seeds=4))
        said = about(verdicts(run), "Ranking a silo’s own documents")
        assert says in said and not_says not in said
        values = {m: run.details.values(m, "nDCG(dcg='exp-log2')@10") for m in ("CS-F-LTR", "BM25")}
        mean = sum(values["CS-F-LTR"][s] - values["BM25"][s] for s in range(4)) / 4
        assert f"minus BM25 {mean:+.3f}".replace("-", "−") in said


def test_a_search_s_gain_is_parted_into_what_the_search_gives_and_what_training_adds(tmp_path):
    worth = {"CS-F-LTR": (0.03, 0.10), "BM25": (0.03, 0.15), "exact features": (0.0, 0.2), "BM25, exact": (0.0, 0.26)}
    run = load(make_text_run(tmp_path / "run", worth=worth, noise=0.0, seeds=3))
    said = verdicts(run)
    search, parts = about(said, "Searching all"), about(said, "Of this the search")
    assert "minus BM25 at home +0.100" in search and "Searching together helps." in search
    assert "minus BM25 at home, +0.150" in parts and "minus BM25 in the same search: −0.050" in parts
    assert "needs no training and no labels, does better" in parts
    assert "exact features minus BM25, exact: −0.060" in parts


def test_what_cross_pairs_add_is_told_apart_from_what_all_labels_add(tmp_path):
    worth = {"CS-F-LTR": (0.03, 0.10), "Global (β = 0)": (0.05, 0.06)}
    said = verdicts(load(make_text_run(tmp_path / "run", worth=worth, noise=0.0)))
    own = about(said, "What cross pairs and guessed labels add on own documents")
    search = about(said, "What cross pairs and guessed labels add in the search")
    assert "−0.020" in own and own.endswith("They harm.") and "+0.040" in search and search.endswith("They help.")


def test_a_run_without_bm25_does_not_say_that_the_federation_helps(tmp_path):
    folder = make_text_run(tmp_path / "run")
    frame = pl.read_parquet(folder / "methods.parquet").filter(~pl.col("method").str.starts_with("BM25"))
    frame.write_parquet(folder / "methods.parquet")
    run = load(folder)
    assert "This run has no BM25 to compare with." in about(verdicts(run), "Ranking")
    assert "helps" not in " ".join(verdicts(run))
    assert "lead" not in [column.key for column in text_tables.methods_table(run).columns]


def test_what_a_method_does_not_do_is_a_dash(one):
    table = text_tables.search_table(one[0])
    rows = {row["method"]: row for row in table.rows}
    columns = {column.key: column for column in table.columns}
    for method, keys in (("Local", ("everywhere", "difference", "gain", "lead")), ("BM25, exact", ("home",))):
        assert all(table.text(rows[method], columns[key]) == "–" for key in keys)
    assert rows["BM25, exact"]["everywhere"].mean > 0 and rows["Local"]["home"].mean > 0


def test_collections_that_nobody_judged_for_each_other_get_no_verdict_about_their_search(tmp_path):
    folder = make_text_run(tmp_path / "run", data="cranfield+cisi", foreign_share=0.0, worth={"CS-F-LTR": (0.03, -0.1)})
    run = load(folder)
    said = verdicts(run)
    assert about(said, "Searching").endswith(text_tables.UNJUDGED) and not any("together" in line for line in said)
    assert not any(
        line.startswith(("Of this the search", "What cross pairs and guessed labels add in")) for line in said
    )
    assert text_tables.UNJUDGED in text_tables.search_table(run).notes
    assert text_tables.UNJUDGED not in text_tables.search_table(load(make_text_run(tmp_path / "cut"))).notes


def test_sums_are_said_to_cross_only_where_all_silos_rows_scale_features(one, tmp_path):
    setup = words.ledger_words(one[0])[0]
    other = words.ledger_words(load(make_text_run(tmp_path / "run", scale="federation")))[0]
    assert "sums" not in setup and "sums by which features are centred, without noise" in other
    stated = " ".join(text_tables.methods_table(one[0]).notes)
    assert "Local and BM25 are what a silo has by itself" in stated and "statistics, noise included" in stated


# -- what protection takes -------------------------------------------------------------------------------------------


def test_a_gain_that_noise_takes_is_said_with_the_budget(tmp_path):
    folder = make_text_run(tmp_path / "run", worth={"CS-F-LTR": (0.0, -0.1)}, noise=0.002, seeds=4)
    said = verdicts(load(folder))
    taken = [line for line in said if "takes the gain" in line]
    assert len(taken) == 2 and all("privacy budget (ε = 8)" in line for line in taken)
    assert any("Searching together harms" in line for line in said)
    assert all(line in page_of(folder).words for line in taken)


def test_a_gain_that_is_there_is_not_said_to_be_taken(one):
    said = " ".join(verdicts(one[0]))
    assert "The federation helps." in said and "takes the gain" not in said and "What sketches cost" not in said


def test_where_exact_features_do_not_gain_either_noise_is_not_blamed(tmp_path):
    lost = {"CS-F-LTR": (0.0, 0.0), "exact features": (0.0, 0.0)}
    said = verdicts(load(make_text_run(tmp_path / "run", worth=lost, noise=0.01)))
    assert not any("takes the gain" in line for line in said)
    assert any("do not tell that from no gain either" in line for line in said)


def test_noise_that_costs_nothing_told_is_not_blamed_for_a_gain_not_told(one, monkeypatch):
    """Exact features gain by seeds that agree, sketches as much by seeds that do not: nothing is known to be taken."""
    gains = {"CS-F-LTR": [0.0, 0.09, 0.01, 0.04], "exact features": [0.03, 0.04, 0.03, 0.04]}
    monkeypatch.setattr(texts_verdicts, "gain", lambda _, method="CS-F-LTR", **__: mean_interval(gains[method]))
    more = [b - a for a, b in zip(*gains.values(), strict=True)]
    monkeypatch.setattr(texts_verdicts, "lead", lambda *_, **__: mean_interval(more))
    (said,) = texts_verdicts._taken(one[0], "own")
    assert "takes the gain" not in said and "do not tell that sketches cost anything" in said
    monkeypatch.setattr(texts_verdicts, "lead", lambda *_, **__: mean_interval([0.02, 0.03, 0.02, 0.03]))
    assert "takes the gain" in texts_verdicts._taken(one[0], "own")[0]


def test_sketches_without_noise_are_not_called_noise(tmp_path):
    lost = {"CS-F-LTR": (0.0, 0.0)}
    folder = make_text_run(tmp_path / "run", mode="plain", epsilon=None, worth=lost, noise=0.002, seeds=4)
    taken = [line for line in verdicts(load(folder)) if "takes the gain" in line or "take the gain" in line]
    assert taken and all(line.startswith("What words share in the sketches") for line in taken)


def test_one_seed_says_nothing_about_spread(tmp_path):
    folder = make_text_run(tmp_path / "run", seeds=1)
    run = load(folder)
    assert direction(text_tables.gain(run)) == "unknown"
    assert "So few seeds say nothing about spread." in page_of(folder).words and "±" not in " ".join(verdicts(run))


# -- privacy ---------------------------------------------------------------------------------------------------------


def test_what_is_spent_is_told_by_mode(tmp_path, capsys):
    modes = {"publish-once": 8.0, "paper": 0.5, "plain": None}
    folders = [make_text_run(tmp_path / mode, mode=mode, epsilon=e) for mode, e in modes.items()]
    rows = {row["mode"]: row for row in text_privacy.budgets_table(load_runs(folders)).rows}
    found = {mode: (row["total"], row["document"]) for mode, row in rows.items()}
    assert found == {"publish-once": ("8.00", "3,256"), "paper": ("∞", "∞"), "plain": ("∞", "∞")}
    compare(*folders, as_json=True)
    assert len(json.loads(capsys.readouterr().out)["privacy"]["rows"]) == 3


def test_a_run_of_an_earlier_version_whose_mode_is_gone_is_refused_by_name(tmp_path):
    for mode in ("per-query", "once"):
        with pytest.raises(RunError, match=rf"federation\.json.*publish-once.*{mode}"):
            load(make_text_run(tmp_path / "run", mode=mode, epsilon=8.0))
