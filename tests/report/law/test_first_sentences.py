"""What pages and commands say first: over runs of every wing with any values, and over every other kind of page."""

import math
import re

import numpy as np
import polars as pl
import pytest
from board_factory import made_up
from hypothesis import given, settings
from hypothesis import strategies as st
from report_factory import make_run
from scipy import stats
from silo_run_factory import make_silo_run
from slate_run_factory import make_slate_run
from status_examples import EXAMPLES, point, status
from text_run_factory import make_text_run

from fedrank.core.privacy_report import PrivacyReport, Promise, Unit
from fedrank.deploy.hub.status import page as status_page
from fedrank.metrics.returns import LEAST_SEEDS, MeanInterval
from fedrank.report.claims import Comparison, Measured, Percent, Share, Spent, Unseen, Verdict, range_of, say
from fedrank.report.compare import load_runs, write_comparison
from fedrank.report.load import load
from fedrank.report.page import html_of
from fedrank.report.statistics import Estimate, Interval, mean_interval
from fedrank_zoo.document_attack.page import documents_opening
from fedrank_zoo.findings import Finding
from fedrank_zoo.leaderboard.page import board_opening
from fedrank_zoo.leaderboard.standings import contrasts
from fedrank_zoo.optuna_search.page import search_opening
from fedrank_zoo.optuna_search.search import Trial
from fedrank_zoo.sketch_attack.page import attack_opening
from fedrank_zoo.slate_attacks.leak import Leak
from fedrank_zoo.slate_attacks.page import attack_opening as slate_attack_opening

WINGS = {
    "ranking": lambda folder, seeds: make_run(folder, seeds=seeds, rounds=4),
    "ranking, without noise": lambda folder, seeds: make_run(folder, seeds=seeds, rounds=4, p=1.0),
    "silos": lambda folder, seeds: make_silo_run(folder, seeds=seeds, rounds=2),
    "silos, all": lambda folder, seeds: make_silo_run(folder, target="all", seeds=seeds, rounds=2),
    "texts": lambda folder, seeds: make_text_run(folder, seeds=seeds),
    "texts, unprotected": lambda folder, seeds: make_text_run(folder, seeds=seeds, mode="plain", epsilon=None),
    "slates": lambda folder, seeds: make_slate_run(folder, seeds=seeds),
    "slates, private": lambda folder, seeds: make_slate_run(folder, seeds=seeds, epsilon=2.0),
}
NUMBER = re.compile(r"[+−]?\d+\.\d+")


def check(opening, run=None, seeds=None):
    """What holds for whatever a page says first."""
    sentence = str(opening.sentence)
    from_results = " ".join(map(str, opening.sentence.results))
    assert set(NUMBER.findall(sentence)) <= set(NUMBER.findall(from_results))
    for result in (*opening.sentence.results, *(one.value for one in opening.numbers)):
        match result:
            case Measured():
                low, high = range_of(result.measure)
                assert low - 1e-9 <= result.mean <= high + 1e-9 or math.isnan(result.mean)
                assert result.ends is None or low <= result.ends[0] <= result.ends[1] <= high
            case Comparison():
                check_verdict(result)
            case Unseen():
                assert result.comparison.verdict is Verdict.NOT_TOLD_APART
            case Share():
                assert result.part <= result.of
            case Percent():
                assert -1e-9 <= result.share <= 1 + 1e-9
            case Spent():
                promised = [one.epsilon for one in run.privacy.promises if one.unit == result.unit]
                assert result.epsilon in (promised or [math.inf])
    if seeds is not None and seeds < LEAST_SEEDS:
        said = sentence + " ".join(f"{one.figure} {one.note}" for one in opening.numbers)
        assert "±" not in said and "told apart" not in said and "would have shown" not in said
    assert "After 0 users" not in sentence and not re.search(r"\bnan\b|None\b(?! of)", sentence)


def check_verdict(found):
    low, high, words = found.difference.low, found.difference.high, str(found)
    sure = bool(re.search(rf"\b({'|'.join(found.ways)})\b", words))
    if math.isnan(found.difference.mean):
        assert not sure
    elif low is None:
        assert sure == (found.difference.mean != 0) and ("seed" in words or "too few" in words or not found.counted)
    else:
        assert sure == (low > 0 or high < 0 or found.verdict is Verdict.EQUAL)
        assert (found.ways[0] in words.split()) == (low > 0) or found.verdict is Verdict.EQUAL


def with_values(folder, draw):
    """The run with other values of all measures."""
    frame = pl.read_parquet(folder / "metrics.parquet")
    frame.with_columns(value=pl.Series(draw(len(frame)), dtype=pl.Float64)).write_parquet(folder / "metrics.parquet")
    return load(folder)


DRAWS = {
    "random": lambda rng, n: rng.random(n),
    "equal": lambda rng, n: np.full(n, 0.5),
    "extreme": lambda rng, n: rng.integers(0, 2, n).astype(float),
    "close": lambda rng, n: 0.5 + 1e-4 * rng.standard_normal(n),
}


@pytest.mark.parametrize("wing", WINGS)
def test_runs_with_any_values_say_nothing_that_their_results_do_not(wing, tmp_path):
    rng = np.random.default_rng(0)
    for seeds in (1, 2, 3, 5):
        folder = WINGS[wing](tmp_path / str(seeds), seeds)
        check(load(folder).shown.opening(load(folder)), load(folder), seeds)
        for draw in DRAWS.values():
            run = with_values(folder, lambda n, draw=draw: draw(rng, n))
            check(run.shown.opening(run), run, seeds)
            if (
                run.privacy is not None
                and (spent := np.nanmax(run.metrics["epsilon"], initial=0.0))
                and "ranking" in wing
            ):
                assert spent <= run.privacy.epsilon(Unit.USER, basis="basic composition") * (1 + 1e-9)


@pytest.mark.parametrize("wing", WINGS)
def test_pages_of_two_seeds_have_single_values_and_no_interval_over_them(wing, tmp_path):
    run = load(WINGS[wing](tmp_path / "run", 2))
    text = html_of(run, run.shown.charts(run))
    assert not re.search(r"interval over (1|2|one|two) seed|one seed, no interval", text)


@given(st.lists(st.floats(0, 1, allow_subnormal=False), min_size=1, max_size=8), st.floats(0, 1))
@settings(max_examples=200, deadline=None)
def test_the_reading_is_that_of_students_t(values, other):
    found = Comparison(mean_interval(values).minus(other), "it", other)
    check_verdict(found)
    if len(values) < LEAST_SEEDS:
        assert found.verdict is Verdict.FEW_SEEDS and found.difference.half is None
    elif np.std(values) > 1e-6:
        p = stats.ttest_1samp(values, other).pvalue
        if abs(p - 0.05) > 1e-6:
            assert (found.verdict is Verdict.NOT_TOLD_APART) == (p > 0.05)
            assert found.verdict is Verdict.NOT_TOLD_APART or (found.verdict is Verdict.BETTER) == (
                np.mean(values) > other
            )


@given(st.lists(st.floats(-1, 1, allow_subnormal=False), min_size=3, max_size=8), st.floats(0.01, 2))
@settings(max_examples=200, deadline=None)
def test_equal_is_two_one_sided_tests_against_the_bound(values, within):
    assert Comparison(mean_interval(values), "it").verdict is not Verdict.EQUAL
    if np.std(values) > 1e-6:
        p = max(
            stats.ttest_1samp(values, end, alternative=side).pvalue
            for end, side in ((-within, "greater"), (within, "less"))
        )
        if abs(p - 0.025) > 1e-6:
            found = Comparison(mean_interval(values), "it", within=within)
            assert (found.verdict is Verdict.EQUAL) == (p < 0.025)


def test_a_slate_page_says_equal_within_a_part_of_the_way_to_the_optimum(tmp_path):
    said = {}
    for short in (0.5, 8.0):
        run = load(make_slate_run(tmp_path / str(short), seeds=5, gains=(100.0 - short, 100.0 - short)))
        best, own = run.details.mark("optimum"), run.metrics.where(measure="engagement", split="test")
        own = own.where(round=own["round"].max()).sort("seed")
        theirs = [best.runs["engagement"][seed] for seed in own["seed"]]
        lines = run.details.lines("engagement", ("random", "optimum"))
        bound = 0.02 * (lines["optimum"] - lines["random"])
        gap = own["value"] - theirs
        ends = stats.t.interval(0.95, 4, gap.mean(), gap.std(ddof=1) / np.sqrt(5)) if gap.std() > 1e-9 else gap[:2]
        said[short] = "equal to the best possible" in str(run.shown.opening(run).sentence)
        assert said[short] == (-bound <= min(ends) and max(ends) <= bound)
    assert said == {0.5: True, 8.0: False}


@pytest.mark.parametrize(
    "refused",
    [
        lambda: Measured(1.2, "nDCG(dcg='exp-log2')@10"),
        lambda: Measured(-0.1, "expected MaxRR (navigational)"),
        lambda: Measured(-1.0, "engagement (A)"),
        lambda: Measured(Estimate(0.841, 0.432, 2), "AUC"),
        lambda: Comparison(Estimate(0.1, 0.05, 2), "BM25"),
        lambda: Unseen(Comparison(Estimate(0.1, 0.05, 3), "BM25")),
        lambda: Share(3, 2),
        lambda: Percent(1.2),
        lambda: say("nDCG is 0.324"),
        lambda: say("it is better than BM25"),
        lambda: say("0 ± 1"),
    ],
)
def test_what_cannot_be_is_refused(refused):
    with pytest.raises(ValueError):
        refused()


def test_an_epsilon_is_that_of_the_account():
    report = PrivacyReport("randomised response", "nobody", (Promise(Unit.USER, 2.0), Promise(Unit.MESSAGE, 0.5)))
    assert [Spent(report, unit).epsilon for unit in (Unit.USER, Unit.MESSAGE, Unit.RECORD)] == [2.0, 0.5, math.inf]


def test_measures_that_disagree_are_both_said(tmp_path):
    folder = make_run(tmp_path / "run", seeds=5, rounds=4)
    frame = pl.read_parquet(folder / "metrics.parquet")
    falls = pl.when(pl.col("measure").str.starts_with("nDCG")).then(-1.0).otherwise(1.0)
    moved = 0.5 + falls * 0.05 * pl.col("round") + 0.001 * pl.col("seed")
    frame.with_columns(value=moved).write_parquet(folder / "metrics.parquet")
    run = load(folder)
    sentence = str(run.shown.opening(run).sentence)
    assert "better than the one it started as" in sentence
    assert re.search(r"By nDCG\(dcg='exp-log2'\)@10 it is \d+ % worse than the one it started as", sentence)


def test_where_nothing_was_learnt_that_is_said(tmp_path):
    folder = make_run(tmp_path / "run", seeds=5, rounds=4)
    rng = np.random.default_rng(1)
    run = with_values(folder, lambda n: 0.5 + 0.01 * rng.standard_normal(n))
    assert "no ranker was learnt that" in str(run.shown.opening(run).sentence)


# -- pages of other kinds ----------------------------------------------------------------------------------------------


def leak(mode, r2):
    return Leak(mode, "platform B", "engagement", "all messages", {"r2": r2})


def finding(mode, measured, broken):
    return Finding(
        "distinguish", mode, "words read", measured, measured - 0.1, measured + 0.1, 0.6, broken, 100, "said"
    )


def test_pages_of_findings_boards_searches_and_comparisons(tmp_path):
    board = made_up()
    openings = [board_opening(board, contrasts(board), ())]
    for value in (-0.2, 0.0, 0.4, 1.0):
        openings.append(slate_attack_opening([leak("team", MeanInterval(value, value - 0.1, value + 0.1))], 3))
        openings.append(slate_attack_opening([leak("team", MeanInterval(value, math.nan, math.nan))], 1))
        found = [finding("paper", value, True), finding("publish-once", value / 2, False)]
        openings += [attack_opening(found, 0.5), documents_opening(found, "cranfield")]
    openings.append(slate_attack_opening([], 3))
    trials = [Trial(i, {"sigma": 0.1}, value, tmp_path) for i, value in enumerate((0.4, None, 0.5))]
    openings += [
        search_opening(trials, "vali: nDCG(dcg='exp-log2')@10"),
        search_opening(trials, "vali: loss", minimise=True),
    ]
    for opening in openings:
        check(opening)
    for seeds in (1, 2, 4):
        runs = [make_run(tmp_path / f"{seeds} {lift}", seeds=seeds, lift=lift) for lift in (0.0, 0.05)]
        text = write_comparison(load_runs(runs), tmp_path / str(seeds)).read_text(encoding="utf-8")
        sentence = re.search('<p class="sentence">(.*?)</p>', text)[1]
        assert ("in the" in sentence and "run" in sentence) == (seeds < LEAST_SEEDS)


def test_a_hub_says_better_and_worse_only_beyond_noise():
    rng = np.random.default_rng(2)
    for _ in range(40):
        half = float(rng.choice([0.01, 0.1]))
        history = [point(i, float(rng.random()), half) for i in range(int(rng.integers(1, 30)))]
        text = status_page(status(history=history), {})
        sentence = re.search('<p class="sentence">(.*?)</p>', text)[1]
        if len(history) == 1:
            assert "the only one so far" in sentence
            continue
        n = min(10, len(history) // 2)
        first, last = (np.array([p["reward"] for p in part]) for part in (history[:n], history[-n:]))
        change, wide = last.mean() - first.mean(), math.hypot(half, half) / math.sqrt(n)
        word = "No change beyond noise" if abs(change) <= wide else "improved" if change > 0 else "deteriorated"
        assert word in sentence
    for example in EXAMPLES.values():
        assert not re.search(
            r"\bnan\b|None\b(?! of)", re.search('<p class="sentence">(.*?)</p>', status_page(example, {}))[1]
        )


def test_intervals_without_seeds_are_of_rows():
    found = Comparison(Interval(0.01, -0.02, 0.04), "it", unit="rows")
    assert str(found).endswith("(the rows would have shown a difference of more than 0.030)")
