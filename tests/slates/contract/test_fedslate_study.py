"""The study of FedSlate: the publication's metrics against a loop, and the tables beside those of its measures."""

import math
from collections import deque
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats
from slate_run_factory import POLICIES, SPREAD, make_slate_run
from text_pages import Page

from fedrank.core.errors import ConfigError
from fedrank.engine.settings import from_dict
from fedrank.engine.variations import variations
from fedrank.report.load import load
from fedrank_zoo.reproduce.page import StudyRuns, study_opening, study_tables, write_study_page
from fedrank_zoo.reproduce.study import Paper, Study, load_file

FOLDER = Path(__file__).parents[3] / "reproductions" / "fedslate_2024"
LEGACY = load_file(FOLDER / "legacy.py")
max_of_moving_mean = LEGACY.max_of_moving_mean


def logged(returns, window, every):
    """As a training script logs it: a queue of the last returns, a record each so many episodes."""
    last, records = deque(maxlen=window), []
    for episode, value in enumerate(returns, start=1):
        last.append(value)
        if episode % every == 0 and len(last) == window:
            records.append((sum(last) / window, episode))
    best = max(value for value, _ in records)
    return best, next(episode for value, episode in records if value == best)


def test_the_moving_maximum_is_what_a_training_log_shows():
    for episodes, window, every in [(500, 100, 20), (130, 7, 3), (40, 5, 5), (9, 1, 1), (25, 10, 4)]:
        returns = np.random.default_rng(episodes).integers(0, 50, size=(3, episodes)).astype(float)
        ours = max_of_moving_mean(returns, window, every)
        for row, value, episode in zip(returns, ours.optimal_reward, ours.etror, strict=True):
            assert (value, episode) == (pytest.approx(logged(row, window, every)[0]), logged(row, window, every)[1])


def test_the_legacy_metrics_rise_above_the_truth_although_nothing_is_learnt():
    returns = np.random.default_rng(1).normal(1000, 178, size=(200, 5000))
    found = max_of_moving_mean(returns)
    # 49 non-overlapping means of sd 17.8 alone would have an expected maximum of 2.24 sd = 40.
    assert 1000 + 40 < np.median(found.optimal_reward) < 1000 + 3.5 * 17.8
    # Wherever it falls, it falls by chance: as often in each half.
    assert stats.binomtest(int((found.etror <= 2550).sum()), 200).pvalue > 1e-4


def test_the_first_of_equal_records_counts():
    assert max_of_moving_mean(np.ones(60), window=20, every=20).etror == 20


def test_what_makes_no_sense_is_refused():
    for call, says in [
        (lambda: max_of_moving_mean(np.ones(99)), "needs 100 episodes"),
        (lambda: max_of_moving_mean(np.ones(9), 0), "at least 1"),
    ]:
        with pytest.raises(ConfigError, match=says):
            call()


def run_with_users(folder, users=120, **settings):
    """A run whose users while learning are known: 100 of 1015, then 20 that bring less."""
    folder = make_slate_run(folder, users=users, **settings)
    seeds, names = load(folder).seeds, load(folder).details.names
    rows = [
        {"seed": seed, "episode": user, "round": 61 * (user + 1), "platform": name,
         "engagement": 1025.0 if user < 100 else 1000.0, "first": 10.0}
        for seed in seeds for name in names for user in range(users)
    ]  # fmt: skip
    pl.DataFrame(rows).write_parquet(folder / "episodes.parquet")
    return load(folder)


def test_a_policy_that_never_changes_has_an_optimal_reward_above_its_mean(tmp_path):
    details = load(make_slate_run(tmp_path / "run")).details
    found = LEGACY.constant_metrics(details, "A", 5000)
    mean = 1040 * 60 / 61
    deviation = SPREAD * math.sqrt(60 / 61) / 10  # of a mean of 100 users
    assert found.mean == pytest.approx(mean)
    # The largest of many such means: above the truth by two to three of their deviations.
    assert mean + 2 * deviation < found.reward.mean < mean + 3.5 * deviation
    assert found.reward.low < found.reward.mean < found.reward.high
    assert found.etror.low < 1200 and found.etror.high > 3800  # anywhere in the run
    assert LEGACY.constant_metrics(details, "A", 150) is None


def test_legacy_metrics_are_what_the_users_brought(tmp_path):
    found = LEGACY.legacy_metrics(run_with_users(tmp_path / "run"))
    assert set(found) == {"A", "B"} and found["A"].reward.mean == pytest.approx(1015.0)
    assert set(found["A"].etror) == {100}
    assert LEGACY.legacy_metrics(run_with_users(tmp_path / "few", users=40)) == {}


def test_a_study_has_policies_by_users_and_the_papers_number_with_what_it_is(tmp_path):
    config = from_dict({"protocol": "vertical-slate"})
    sweep = variations(config, {"world.candidates": [10, 100]})
    shifted = {name: value + 20 for name, value in POLICIES.items()}
    runs = tuple(
        (v, run_with_users(tmp_path / v.name, candidates=n, policies=p))
        for v, n, p in zip(sweep, (10, 100), (POLICIES, shifted), strict=True)
    )
    measures = (("test", "engagement"), ("test", "engagement (A)"))
    curves, against = (*measures[:1], ("online", "engagement")), {"world.candidates": 10}
    study = Study(
        "table1",
        "Table I",
        FOLDER / "small.toml",
        tables="legacy.py:study_tables",
        measures=measures,
        curves=curves,
        against=against,
    )
    printed = [
        {"study": "table1", "where": {"world.candidates": 100}, "split": split, "measure": measure, "value": value,
         "source": "Table I"}
        for split, measure, value in (
            ("test", "engagement (A)", 1106.57), ("legacy", "optimal reward (A)", 1106.57),
            ("legacy", "ETROR (A)", 2340),
        )
    ]  # fmt: skip
    paper = Paper("p", "A paper", "deng2024fedslate", tmp_path, (study,), tuple(printed))
    values, policies, legacy = study_tables(paper, StudyRuns(study, runs))
    first, second = ({key: getattr(of, "mean", of) for key, of in row.items()} for row in policies.rows)
    assert (first["random"], first["optimum"], first["way"]) == (pytest.approx(100), pytest.approx(-100), "50")
    assert (second["random"], second["optimum"], second["way"]) == (pytest.approx(60), pytest.approx(-140), "30")
    assert {column.key for column in policies.columns} == {"run", "value", *POLICIES, "way"}
    ours = {(row["world.candidates"], row["measure"]): row for row in values.rows[:2] + values.rows[12:14]}
    assert ours[100, "engagement (A)"]["paper"] == 1106.57 and ours[10, "engagement (A)"]["paper"] is None
    assert "another quantity" in " ".join(values.notes) and "All queries" not in " ".join(values.notes)
    random = [row for row in values.rows if "random" in str(row["world.candidates"]) and row["measure"] == "engagement"]
    assert sorted(row["ours"].mean for row in random) == [1900, 1940]  # of each world its own
    assert len({row["world.candidates"] for row in random}) == 2
    rows = {(row["run"], row["platform"]): row for row in legacy.rows}
    mine = rows[sweep[1].name, "A"]
    assert (mine["reward"].mean, mine["paper"], mine["paper_etror"]) == (pytest.approx(1015.0), 1106.57, "2,340")
    assert mine["etror"].startswith("100 ")
    assert "Paper: Table I." in legacy.notes
    of_legacy = Paper("p", "A paper", "deng2024fedslate", tmp_path, (study,), tuple(printed[1:]))
    assert "beside ours: 2." in str(study_opening(of_legacy, [StudyRuns(study, runs)]).sentence)
    page = write_study_page(paper, [StudyRuns(study, runs)], tmp_path / "page").read_text(encoding="utf-8")
    assert Page(page).tags.count("svg") == 3  # the one at the top, too
