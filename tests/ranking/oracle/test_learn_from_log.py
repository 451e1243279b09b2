"""Position bias, off-policy estimates and a ranker learnt from a log: other software, loops, simulated truth."""

import json

import numpy as np
import pytest

import fedrank
from fedrank.cli.main import app
from fedrank.core.errors import ConfigError, DataError
from fedrank.ranking.data.reader import generate_queries
from fedrank.ranking.logs.generate import generate_log
from fedrank.ranking.logs.learn import _Pairs, learn_from_log, log_opening, write_page
from fedrank.ranking.logs.off_policy import GROUPS, OffPolicy, estimate_bias, given_bias, jackknife_error
from fedrank.ranking.logs.read import ClickLog
from fedrank.ranking.rankers.linear import Linear
from fedrank.ranking.rankers.mlp import TwoLayer


def log_of(sessions, pairs, queries=None, features=None):
    """A log of sessions, each a list of (pair, position, clicked)."""
    rows = [row for session in sessions for row in session]
    pair, position, clicked = (np.array(column) for column in zip(*rows, strict=True))
    offsets = np.cumsum([0, *map(len, sessions)])
    draw = np.random.default_rng(1).integers(0, 2**32, len(sessions), dtype=np.uint32)
    query = np.zeros(pairs, np.int32) if queries is None else np.asarray(queries, np.int32)
    features = np.zeros((pairs, 0), np.float32) if features is None else np.asarray(features, np.float32)
    return ClickLog(
        offsets, pair.astype(np.int32), position.astype(np.uint8), clicked.astype(bool), draw, query, features
    )


@pytest.fixture(scope="module")
def made():
    queries = generate_queries(0, 300, 12).train
    log = generate_log(queries, 20_000, eta=0.8, seed=3)
    return queries, log, log.log(queries)


# ------------------------------------------------------------------------------------------------------ position bias


def test_two_positions_in_closed_form():
    """One pair, shown as often at both: the ratio of clicks."""
    sessions = [[(0, 1, i < 40)] for i in range(100)] + [[(0, 2, i < 13)] for i in range(100)]
    assert estimate_bias(log_of(sessions, 1)).theta[1:] == pytest.approx([1, 13 / 40])


def test_the_estimate_is_statsmodels_poisson_regression_with_a_constant_for_each_pair():
    import statsmodels.api as sm

    rng = np.random.default_rng(4)
    theta, alpha = np.array([1, 0.6, 0.3, 0.2]), rng.uniform(0.2, 0.9, 12)
    sessions = []
    for _ in range(1500):
        order = rng.permutation(12)[:4]
        sessions.append([(p, k + 1, rng.random() < theta[k] * alpha[p]) for k, p in enumerate(order)])
    log = log_of(sessions, 12)
    shown, clicks = np.zeros((12, 4)), np.zeros((12, 4))
    np.add.at(shown, (log.pair, log.position - 1), 1)
    np.add.at(clicks, (log.pair, log.position - 1), log.clicked)
    pair, position = np.nonzero(shown)
    design = np.concatenate([np.eye(12)[pair], np.eye(4)[position][:, 1:]], axis=1)
    fitted = sm.GLM(clicks[pair, position], design, sm.families.Poisson(), offset=np.log(shown[pair, position])).fit()
    np.testing.assert_allclose(np.log(estimate_bias(log).theta[2:]), fitted.params[12:], atol=1e-6)


def test_bias_is_found_and_its_error_too():
    queries = generate_queries(1, 200, 8).train
    found = [estimate_bias(generate_log(queries, 3000, seed=seed).log(queries)) for seed in range(30)]
    logs = np.log([bias.theta[1:8] for bias in found])
    truth = np.log(1 / np.arange(1, 8))
    spread = logs.std(axis=0, ddof=1)
    assert (np.abs(logs.mean(axis=0) - truth) < 4 * spread / np.sqrt(30) + 1e-9).all()
    errors = np.mean([bias.error[1:8] for bias in found], axis=0)
    assert (errors[1:] / spread[1:] > 0.7).all() and (errors[1:] / spread[1:] < 1.5).all()


def test_positions_that_nothing_connects_are_named():
    """Pairs move between 1 and 2, and between 3 and 4; nothing joins the two."""
    rng = np.random.default_rng(0)
    sessions = []
    for _ in range(400):
        top, low = rng.permutation(2), 2 + rng.permutation(2)
        sessions.append([(p, k + 1, rng.random() < 0.5) for k, p in enumerate([*top, *low])])
    bias = estimate_bias(log_of(sessions, 4))
    assert bias.usable.tolist() == [False, True, True, False, False]
    assert np.isinf(bias.error[3:]).all() and "3 to 4" in bias.warnings[0]
    fixed = [[(p, p + 1, rng.random() < 0.5) for p in range(4)] for _ in range(100)]
    with pytest.raises(DataError, match="cannot be told from relevance"):
        estimate_bias(log_of(fixed, 4))


def test_a_position_whose_bias_a_few_clicks_tell_is_left_out():
    """Of one click and three the logarithm's variance is 1 / 1 + 1 / 3: a weight of it could be of nearly any size."""
    rng = np.random.default_rng(0)
    sessions = [[(0, 1 + i % 2, rng.random() < 0.3)] for i in range(4000)]
    sessions += [[(1, 3, i == 50), (1, 1, i % 49 == 0)] for i in range(100)]
    bias = estimate_bias(log_of(sessions, 2))
    assert bias.usable.tolist() == [False, True, True, False] and bias.theta[3] == 0
    assert (bias.replicates[:, 3] == 0).all() and np.isinf(bias.error[3])


def test_the_jackknife_of_a_mean_is_its_standard_error():
    values = np.random.default_rng(0).normal(size=GROUPS)
    without = (values.sum() - values) / (GROUPS - 1)
    assert jackknife_error(without) == pytest.approx(values.std(ddof=1) / np.sqrt(GROUPS))


# -------------------------------------------------------------------------------------------------------- off policy


def test_estimates_are_their_formulas():
    rng = np.random.default_rng(2)
    sessions = []
    for _ in range(300):
        length = rng.integers(1, 5)
        positions = np.sort(rng.permutation(6)[:length]) + 1
        order = rng.permutation(7)[:length]
        sessions.append([(p, k, rng.random() < 0.4) for p, k in zip(order, positions, strict=True)])
    log, theta = log_of(sessions, 7), np.array([0, 1, 0.8, 0.5, 0.4, 0.3, 0.2])
    scores, model = rng.normal(size=7).astype(np.float32), rng.uniform(0.1, 0.9, 7).astype(np.float32)
    for measure in ("DCG@10", "clicks"):
        worth = theta if measure == "clicks" else np.concatenate([[0], 1 / np.log2(np.arange(1, 7) + 1)])
        found = OffPolicy(log, given_bias(theta), model, measure).judge(scores)
        seen = {p: [k for s in sessions for q, k, _ in s if q == p] for p in range(7)}
        placed, terms, weights = {p: [] for p in range(7)}, [], []
        for session in sessions:
            places = sorted(k for _, k, _ in session)
            for place, (p, k, c) in zip(places, sorted(session, key=lambda row: -scores[row[0]]), strict=True):
                placed[p].append(worth[place])
                terms.append((p, k, c, worth[place]))
                weights += [worth[place] / theta[k]] * c
        rho = {p: np.mean(theta[seen[p]]) for p in range(7)}
        mean = {p: np.mean(placed[p]) for p in range(7)}
        ips = sum(w * c / theta[k] for p, k, c, w in terms)
        dr = sum(w * model[p] + mean[p] * (c - theta[k] * model[p]) / rho[p] for p, k, c, w in terms)
        expected = {
            "ips": ips / 300,
            "snips": ips / sum(c / theta[k] for p, k, c, w in terms),
            "dr": dr / 300,
            "dm": sum(w * model[p] for p, k, c, w in terms) / 300,
        }
        assert {name: e.value for name, e in found.estimates.items()} == pytest.approx(expected, rel=1e-5)
        assert found.effective_clicks == pytest.approx(sum(weights) ** 2 / np.square(weights).sum(), rel=1e-6)


def true_worth(queries, made, scores, measure="DCG@10"):
    """The expected worth of the new order of the sessions' lists, from what made the log."""
    depth = made.documents.shape[1]
    rank = np.argsort(np.argsort(-np.where(made.documents < 0, -np.inf, scores[made.documents]), axis=1), axis=1)
    worth = 1 / np.log2(np.arange(depth) + 2) if measure == "DCG@10" else made.theta
    return float((np.where(made.documents < 0, 0, made.attraction[made.documents]) * worth[rank]).sum(axis=1).mean())


def test_estimates_of_the_truth(made):
    queries, log, read = made
    bias = estimate_bias(read)
    scores = (log.attraction + np.random.default_rng(0).normal(0, 0.2, len(log.attraction))).astype(np.float32)
    for measure in ("DCG@10", "clicks"):
        found = OffPolicy(read, bias, np.full(len(scores), 0.3, np.float32), measure).judge(scores)
        truth = true_worth(queries, log, scores, measure)
        for name in ("ips", "dr"):
            assert found.estimates[name].low < truth < found.estimates[name].high
    logged = OffPolicy(read, bias, np.full(len(scores), 0.3, np.float32), "clicks").judge(None)
    assert logged.estimates["ips"].value == pytest.approx(log.clicked.sum() / read.n_sessions)  # what was clicked


def test_equal_scores_do_not_follow_the_logged_order(made):
    """A ranker without an opinion is worth a ranking by chance, not the ranking that was shown."""
    _, log, read = made
    theta = given_bias(np.concatenate([[0], log.theta]))
    judge = OffPolicy(read, theta, log.attraction.astype(np.float32))
    chance = [judge.judge(np.random.default_rng(i).random(len(log.attraction), np.float32)) for i in range(5)]
    without = judge.judge(np.zeros(len(log.attraction), np.float32)).estimates["dm"].value
    values = [one.estimates["dm"].value for one in chance]
    assert (
        abs(without - np.mean(values)) < 4 * np.std(values, ddof=1) < judge.judge(None).estimates["dm"].value - without
    )


# ----------------------------------------------------------------------------------------------------------- learning


@pytest.mark.parametrize("ranker", [Linear(12), TwoLayer(12, 3)])
def test_a_fit_is_a_maximum_of_the_formula(made, ranker):
    queries, _, read = made
    pairs = _Pairs(read, estimate_bias(read))
    target = pairs.by_propensity()
    found = pairs.fit(ranker, read.features, target, 0).astype(np.float64)
    seen = np.unique(read.pair)
    of_query = [seen[read.query[seen] == q] for q in np.unique(read.query[seen])]
    times = np.bincount(read.query[read.pair[read.offsets[:-1]]], minlength=queries.n_queries)

    def objective(w):
        if isinstance(ranker, Linear):
            scores = read.features @ w
        else:
            into, b, out = w[:36].reshape(3, 12), w[36:39], w[39:]
            scores = np.maximum(read.features @ into.T + b, 0) @ out
        value = -w @ w / 2
        for rows in of_query:
            s = scores[rows]
            value += times[read.query[rows[0]]] * target[rows] @ (s - s.max() - np.log(np.exp(s - s.max()).sum()))
        return value

    best = objective(found)
    rng = np.random.default_rng(0)
    for _ in range(20):
        assert objective(found + rng.normal(0, 0.01, ranker.size)) < best


def test_the_model_of_attraction_is_the_likeliest(made):
    _, log, read = made
    bias = given_bias(np.concatenate([[0], log.theta]))
    q = _Pairs(read, bias).attraction_model(read.features)

    def likelihood(q):
        p = log.theta[read.position.astype(int) - 1] * q[read.pair]
        return np.where(read.clicked, np.log(p), np.log1p(-p)).sum()

    logit = np.log(q / (1 - q)).astype(np.float64)
    best, rng = likelihood(q), np.random.default_rng(0)
    for _ in range(20):
        moved = logit + read.features @ rng.normal(0, 0.1, 12) + rng.normal(0, 0.1)
        assert likelihood(1 / (1 + np.exp(-moved))) < best + 1


def test_the_way_from_a_file_to_a_model(made, tmp_path, capsys):
    queries, log, read = made
    path = tmp_path / "log.parquet"
    log.write(queries, path)
    out = tmp_path / "ranker.safetensors"
    page = tmp_path / "ranker.html"
    app(["learn-from-log", str(path), "--out", str(out), "--page", str(page), "--json"], result_action="return_value")
    said = json.loads(capsys.readouterr().out)
    names = [row["name"] for row in said["rankings"]]
    assert names[0] == "logged ranking" and said["chosen"] in names and "best single feature" in names
    assert said["sessions"]["learnt"] + said["sessions"]["held_out"] == 20_000
    verdicts = {row["name"]: row["verdict"] for row in said["rankings"]}
    assert verdicts[said["chosen"]] == "better"
    shown, mine = page.read_text(encoding="utf-8"), said["rankings"][names.index(said["chosen"])]
    percent = 100 * mine["gain"][0] / said["rankings"][0]["dr"][0]
    assert said["sentence"] in shown and f"{percent:.0f} % better" in shown and f"{mine['dr'][0]:.4f}" in shown
    assert all(f"{row['gain'][0]:+.3f}".replace("-", "−") in shown for row in said["rankings"][1:])
    model = fedrank.load(out)
    assert model.about["protocol"] == "learn-from-log" and model.feature_names == tuple(f"f{i}" for i in range(1, 13))
    # Freed of position bias it is nearer to the labels than clicks taken as labels are.
    biased = learn_from_log(read, position_bias="none", compare=False).model
    fair, unfair = (one.evaluate(queries, ["nDCG@10"])["train"]["nDCG@10"] for one in (model, biased))
    assert fair > unfair
    app(["learn-from-log", str(path), "--no-compare"], result_action="return_value")
    assert "better than the logged ranking" in capsys.readouterr().out


def test_a_log_that_cannot_say_is_told(made, tmp_path):
    _, _, read = made
    few = read.part(np.arange(read.n_sessions) < 120)
    found = learn_from_log(few, position_bias="none", compare=False)
    assert {row.verdict for row in found.rows} == {"cannot be said"} and "cannot say" in found.warnings[-1]
    assert "taken to be none" in found.warnings[0]
    assert "too few clicks" in str(log_opening(found).sentence)
    write_page(found, tmp_path / "few.html", "few")
    with pytest.raises(DataError, match="no features"):
        learn_from_log(log_of([[(0, 1, True)], [(0, 2, False)]], 1))
    with pytest.raises(ConfigError, match="propensities"):
        learn_from_log(read, position_bias="given")
    with pytest.raises(ConfigError, match="held_out"):
        learn_from_log(read, held_out=1.0)


def test_normalisers_are_of_the_log(made):
    read = made[2]
    wide = ClickLog(*[getattr(read, name) for name in ("offsets", "pair", "position", "clicked", "draw", "query")],
                    read.features * 1e6)  # fmt: skip
    found = learn_from_log(wide, compare=False)
    assert found.model.normalise == "standard"
    assert found.model.constants.centre == pytest.approx(wide.features.mean(axis=0, dtype=np.float64))
    alone = found.model.score(wide.features[:1])
    assert alone[0] == found.model.score(wide.features[:50], np.zeros(50, int))[0] != 0


@pytest.mark.parametrize("ranker", ["linear", "mlp"])
def test_devices_start_from_the_model(made, tmp_path, ranker):
    """A run of no step has the model that it starts from, on data that is normalised as the model needs."""
    queries, _, read = made
    start = learn_from_log(read, ranker=ranker, normalise="log", compare=False).model
    path = start.save(tmp_path / "start.safetensors")
    steps = {"linear": ("foltr-es", {"server__learning_rate": 1e-9}), "mlp": ("pdgd", {"learning_rate": 1e-9})}
    protocol, more = steps[ranker]
    result = fedrank.train(protocol, queries, rounds=1, clients=4, ranker=ranker, start_from=str(path), **more)
    model = result.model()
    np.testing.assert_allclose(model.weights, start.weights, atol=1e-6)
    np.testing.assert_allclose(model.score(queries.features), start.score(queries.features), rtol=1e-4, atol=1e-4)
    with pytest.raises(ConfigError, match="start_from"):
        other = "mlp" if ranker == "linear" else "linear"
        fedrank.train("foltr-es", queries, rounds=1, clients=4, ranker=other, start_from=str(path))
