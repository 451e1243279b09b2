"""Fitted click models against exact pattern probabilities, simulated logs and closed forms."""

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest

from fedrank.cli.main import app
from fedrank.core.errors import ConfigError, FormatError, MissingDataError
from fedrank.ranking.clicks.browsing import user_of_file
from fedrank.ranking.clicks.cascade import CascadeUser, pattern_probabilities
from fedrank.ranking.logs.columns import LogFormat
from fedrank.ranking.logs.read import read_log
from fedrank_zoo.click_fit.models import MODELS, Fitted, Sessions, fit, write_user

DEPTH = 4
EXAMINE = np.array([[0.9, 1, 1, 1], [0.8, 0.7, 1, 1], [0.9, 0.5, 0.4, 1], [0.7, 0.6, 0.3, 0.2]])


def model_of(name):
    """Some parameters of each model, not those that it starts from."""
    rng = np.random.default_rng(3)
    alpha, sigma = rng.uniform(0.2, 0.8, 8), rng.uniform(0.1, 0.7, 8)
    browsing, go_on = EXAMINE.copy(), 1.0
    if name == "position-based":
        browsing = np.repeat(np.array([[1.0], [0.7], [0.5], [0.3]]), DEPTH, axis=1)
    if name.endswith("bayesian"):
        browsing, go_on = np.ones((DEPTH, DEPTH)), 0.8 if name == "dynamic-bayesian" else 1.0
    else:
        sigma = sigma * 0
    return Fitted(name, alpha, sigma, browsing, go_on)


def exact(fitted, pair):
    """P(pattern) of one list by the click model that simulates: each rank gets a label of its own."""
    stop = 1 - (1 - fitted.satisfaction[pair]) * fitted.perseverance
    rows = tuple(tuple(row[: rank + 1]) for rank, row in enumerate(fitted.examine))
    user = CascadeUser("one", tuple(fitted.attraction[pair]), tuple(stop), DEPTH, rows, 1 - fitted.perseverance)
    return np.asarray(pattern_probabilities(user, np.arange(DEPTH), np.ones(DEPTH, bool)), np.float64)


def simulated(fitted, n):
    rng = np.random.default_rng(5)
    lists = np.stack([rng.permutation(8)[:DEPTH] for _ in range(40)])
    table = np.stack([exact(fitted, pair) for pair in lists])
    which = rng.integers(0, 40, n)
    patterns = (rng.random((n, 1)) > np.cumsum(table / table.sum(1, keepdims=True), axis=1)[which]).sum(axis=1)
    return Sessions(lists[which], (patterns[:, None] >> np.arange(DEPTH) & 1).astype(bool))


def test_likelihood_and_click_probabilities_are_exact():
    for name in MODELS[1:]:
        fitted, pair = model_of(name), np.array([5, 0, 3, 6])
        patterns = np.arange(16)
        clicked = (patterns[:, None] >> np.arange(DEPTH) & 1).astype(bool)
        expected = exact(fitted, pair)
        likelihood = np.exp(fitted.log_likelihoods(Sessions(np.tile(pair, (16, 1)), clicked)))
        np.testing.assert_allclose(likelihood, expected, atol=1e-6)
        np.testing.assert_allclose(fitted.click_probabilities(pair[None])[0], expected @ clicked, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS[1:])
def test_a_fit_finds_what_made_the_log(name):
    truth = model_of(name)
    log = simulated(truth, 8000)
    found = fit(log, name, 150, 0.0)
    assert (np.diff(found.history) > -1e-9).all()  # expectation-maximisation never loses likelihood
    # Nobody explains a log better than its maximum: in particular not the truth.
    assert found.log_likelihoods(log).mean() >= truth.log_likelihoods(log).mean() - 2e-5
    np.testing.assert_allclose(
        found.click_probabilities(log.pair[:200]), truth.click_probabilities(log.pair[:200]), atol=0.04
    )
    if name.endswith("bayesian"):
        np.testing.assert_allclose(found.attraction, truth.attraction, atol=0.07)
        assert found.perseverance == pytest.approx(truth.perseverance, abs=0.04)


def test_a_fit_is_a_maximum():
    log = simulated(model_of("dynamic-bayesian"), 3000)
    found = fit(log, "dynamic-bayesian", 400, 0.0)
    best = found.log_likelihoods(log).mean()
    for field in ("attraction", "satisfaction"):
        for change in (-0.02, 0.02):
            moved = getattr(found, field).copy()
            moved[2] += change
            assert dataclasses.replace(found, **{field: moved}).log_likelihoods(log).mean() < best
    for change in (-0.02, 0.02):
        other = dataclasses.replace(found, perseverance=found.perseverance + change)
        assert other.log_likelihoods(log).mean() < best


def test_clicks_by_rank_in_closed_form():
    log = simulated(model_of("user-browsing"), 1000)
    p = log.clicked.mean(axis=0)
    got = fit(log, "by-rank").perplexity(log)
    np.testing.assert_allclose(got, 2 ** -(p * np.log2(p) + (1 - p) * np.log2(1 - p)), rtol=1e-9)  # 2 to the entropy


def test_pairs_without_a_session_get_the_mean():
    log = simulated(model_of("position-based"), 500)
    found = fit(log, "position-based", 5, 1.0, pairs=9)
    assert 0.05 < found.attraction[8] < 0.95


def padded(log, depth):
    """The sessions with room for longer lists; what fills it up is never to be looked at."""
    more = ((0, 0), (0, depth - log.pair.shape[1]))
    return Sessions(np.pad(log.pair, more), np.pad(log.clicked, more), log.lengths)


def test_room_for_longer_lists_changes_nothing():
    for name in MODELS:
        log = simulated(model_of(name if name != "by-rank" else "user-browsing"), 300)
        alone, roomy = fit(log, name, 10, 2.0), fit(padded(log, DEPTH + 3), name, 10, 2.0)
        np.testing.assert_allclose(roomy.attraction, alone.attraction, rtol=1e-9)
        np.testing.assert_allclose(roomy.satisfaction, alone.satisfaction, rtol=1e-9)
        np.testing.assert_allclose(roomy.log_likelihoods(padded(log, DEPTH + 3)), alone.log_likelihoods(log), rtol=1e-9)
        np.testing.assert_allclose(roomy.perplexity(padded(log, DEPTH + 3))[:DEPTH], alone.perplexity(log), rtol=1e-9)
        assert roomy.perseverance == pytest.approx(alone.perseverance, rel=1e-9)


def test_the_likelihood_of_a_short_list_is_the_sum_over_what_is_below_its_end():
    """Clicks on the first two ranks of a list that ends there: all patterns of a longer list that begin so."""
    for name in MODELS[1:]:
        fitted, pair = model_of(name), np.array([5, 0, 3, 6])
        whole = exact(fitted, pair)
        starts = np.arange(4)
        clicked = (starts[:, None] >> np.arange(DEPTH) & 1).astype(bool)
        short = Sessions(np.tile(pair, (4, 1)), clicked, np.full(4, 2))
        expected = [whole[np.arange(16) % 4 == start].sum() for start in starts]
        np.testing.assert_allclose(np.exp(fitted.log_likelihoods(short)), expected, atol=1e-6)


@pytest.mark.slow
def test_a_fit_to_lists_of_unequal_length_finds_what_made_them():
    truth = model_of("dynamic-bayesian")
    log = simulated(truth, 12_000)
    length = np.random.default_rng(8).integers(2, DEPTH + 1, len(log.pair))
    cut = Sessions(log.pair, log.clicked & (np.arange(DEPTH) < length[:, None]), length)
    found = fit(cut, "dynamic-bayesian", 150, 0.0)
    assert (np.diff(found.history) > -1e-9).all()
    np.testing.assert_allclose(found.attraction, truth.attraction, atol=0.07)
    assert found.perseverance == pytest.approx(truth.perseverance, abs=0.06)


def read_sessions(path):
    return Sessions.of_log(read_log(path, LogFormat(features=(), all_clicked=False)))


def test_lists_of_a_log_may_differ_in_length(tmp_path):
    (tmp_path / "log.tsv").write_text("query_id\turl_ids\tclicks\n1\t2 3 4\t1 0 1\n2\t5\t1\n")
    sessions = read_sessions(tmp_path / "log.tsv")
    assert sessions.lengths.tolist() == [3, 1] and sessions.shown.tolist() == [[True] * 3, [True, False, False]]
    np.testing.assert_array_equal(sessions.rates(), [1, 0, 1])


LOG = "query_id\turl_ids\tclicks\n" + "".join(
    f"{q}\t{' '.join(str(q * 3 + i) for i in range(3))}\t{clicks}\n"
    for q, clicks in enumerate(["1 0 0", "0 1 0", "1 0 1", "0 0 0", "1 1 0", "1 0 0", "0 0 1", "1 0 0"])
)


def test_a_log_is_read_and_a_fitted_user_written(tmp_path, capsys):
    (tmp_path / "log.tsv").write_text(LOG)
    sessions = read_sessions(tmp_path / "log.tsv")
    assert sessions.pair.shape == (8, 3) and sessions.pairs == 24
    assert sessions.clicked[2].tolist() == [True, False, True]
    out = tmp_path / "mine.json"
    command = [
        "data",
        "clicks",
        "fit",
        str(tmp_path / "log.tsv"),
        "--models",
        "dynamic-bayesian",
        "--out",
        str(out),
        "--json",
    ]
    app(command, result_action="return_value")
    said = json.loads(capsys.readouterr().out)
    assert (said["fitted"], said["held_out"], said["known"]) == (6, 2, 0.0)
    user = user_of_file(out, 3, 2)
    assert (user.name, user.depth, user.grades) == ("mine", 2, 3) and 0 < user.abandon < 1
    browsing = fit(sessions, "user-browsing", 5).user("b", 3)
    write_user(browsing, {}, out)
    assert user_of_file(out, 3, 3).examine == browsing.examine
    with pytest.raises(FormatError, match="lists of 3 results, 10"):
        user_of_file(out, 3, 10)


def test_wrong_models(tmp_path):
    with pytest.raises(ConfigError, match="model must be one of"):
        fit(simulated(model_of("position-based"), 10), "cascade")
    with pytest.raises(MissingDataError):
        user_of_file(tmp_path / "none.json", 3, 10)
    (tmp_path / "odd.json").write_text('{"format": "other"}')
    with pytest.raises(FormatError, match="no click model"):
        user_of_file(tmp_path / "odd.json", 3, 10)


@pytest.mark.realdata
@pytest.mark.slow
def test_a_real_log():
    path = Path(os.environ.get("FEDRANK_DATA", "nowhere"), "clicks/thuir2014/sessions.train.tsv.xz")
    if not path.exists():
        pytest.skip(f"needs {path}, which is not there")
    sessions = read_sessions(path)
    assert sessions.pair.shape == (7018, 10)
    order = np.random.default_rng(1).permutation(7018)
    seen, unseen = sessions.part(order[:5264]), sessions.part(order[5264:])
    found = {name: fit(seen, name, pairs=sessions.pairs) for name in MODELS}
    worth = {name: float(f.log_likelihoods(unseen).mean()) for name, f in found.items()}
    # Whole sessions are explained better by users who remember their last click than by the share of clicks at a rank.
    assert worth["user-browsing"] > worth["by-rank"] + 0.1
    assert worth["dynamic-bayesian"] > worth["by-rank"] + 0.05 > worth["simplified-dynamic-bayesian"]
