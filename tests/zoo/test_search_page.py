"""The page of a search: the best trial on top, all trials in a table, and nothing of the test part."""

import re
from pathlib import Path

import pytest
from report_factory import make_run

from fedrank.core.errors import RunError
from fedrank_zoo.optuna_search.page import in_words, progress_figure, search_opening, trials_table, write_search
from fedrank_zoo.optuna_search.search import Trial

TRIALS = [
    Trial(0, {"sigma": 0.1}, 0.40, Path()),
    Trial(1, {"sigma": 0.2}, None, Path(), "refused"),
    Trial(2, {"sigma": 0.3}, 0.50, Path()),
    Trial(3, {"sigma": 0.4}, 0.45, Path()),
]


def test_the_opening_names_the_best_trial_and_what_it_gained_on_the_first():
    opening = search_opening(TRIALS, "vali: nDCG(dcg='exp-log2')@10")
    assert "Of 4 trials the best is trial 2 with sigma = 0.3" in str(opening.sentence) and "too high" in str(
        opening.sentence
    )
    assert [one.figure for one in opening.numbers] == ["0.5000", "+0.1000", "4"]
    assert opening.numbers[2].note == "1 failed"


def test_less_is_better_where_that_is_asked_for():
    opening = search_opening(TRIALS, "vali: log-loss", minimise=True)
    assert "the best is trial 0" in str(opening.sentence) and "too low" in str(opening.sentence)


@pytest.mark.parametrize(("minimise", "reached"), [(False, [0.40, 0.50, 0.50]), (True, [0.40, 0.40, 0.40])])
def test_the_line_is_the_best_so_far_without_the_trials_that_failed(minimise, reached):
    drawn = progress_figure(TRIALS, "vali: nDCG(dcg='exp-log2')@10", minimise=minimise).svg
    dots = [(float(x), float(y)) for x, y in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', drawn)]
    known = [trial.value for trial in TRIALS if trial.value is not None]
    place = dict(zip(known, dots, strict=True))
    assert place[0.5][1] < place[0.45][1] < place[0.4][1]  # from the upper edge
    assert place[0.45][1] == pytest.approx((place[0.4][1] + place[0.5][1]) / 2, abs=0.01)
    assert [x for x, _ in dots] == pytest.approx([0, 400 * 2 / 3, 400], abs=0.01)
    (path,) = re.findall(r'<path d="M0\.00,([\d.]+)((?:H[\d.]+V[\d.]+)*)"', drawn)
    levels = [float(path[0]), *map(float, re.findall(r"V([\d.]+)", path[1]))]
    assert levels == pytest.approx([place[value][1] for value in reached], abs=0.01)


def test_the_table_has_a_row_a_trial_and_says_why_one_failed():
    table = trials_table(TRIALS, "vali: nDCG(dcg='exp-log2')@10")
    assert [column.title for column in table.columns][-2:] == [
        "validation nDCG(dcg='exp-log2')@10",
        "why there is no value",
    ]
    assert [row["failed"] for row in table.rows] == ["", "refused", "", ""]
    assert in_words("online: MaxRR").endswith("MaxRR")


def test_the_page_orders_runs_by_their_value_and_leaves_the_test_part_out(tmp_path):
    low, high = make_run(tmp_path / "low"), make_run(tmp_path / "high", lift=0.05)
    trials = [Trial(0, {"sigma": 0.1}, 0.4, low), Trial(1, {"sigma": 0.2}, 0.45, high)]
    text = write_search(trials, "vali: nDCG(dcg='exp-log2')@10", tmp_path / "page").read_text(encoding="utf-8")
    assert re.search('<p class="about">(.*?)</p>', text)[1].startswith("high, low")
    assert ">validation<" in text and ">test<" not in text
    assert (tmp_path / "page" / "figures" / "trials.svg").exists()


def test_a_search_without_a_value_has_no_page(tmp_path):
    with pytest.raises(RunError, match="all 1 trials failed"):
        write_search(TRIALS[1:2], "vali: nDCG(dcg='exp-log2')@10", tmp_path)
