"""Rankers trained on labels, against closed forms, other solvers, and what the published code's SVMrank reached."""

import itertools
import sys

import numpy as np
import pytest
from scipy.optimize import minimize
from worlds import tiny_queries

from fedrank.core.errors import DataError, MissingExtraError, UnknownNameError
from fedrank.ranking import baselines as baselines
from fedrank.ranking.baselines import BASELINES, fit_baseline, label_pairs, least_hinge_loss
from fedrank.ranking.data.queries import QuerySet, concatenate
from fedrank.ranking.data.reader import generate_queries
from fedrank.ranking.data.splits import Splits


def queries(x, y, lengths):
    return QuerySet(np.asarray(x), np.asarray(y), np.cumsum([0, *lengths]), np.arange(len(lengths)).astype(str))


def alone(train):
    return Splits(train, None, None, "made")


def replaced(old, x):
    return QuerySet(x, old.labels, old.offsets, old.qids)


def all_pairs(q):
    return {
        (i, j)
        for a, b in itertools.pairwise(q.offsets)
        for i, j in itertools.permutations(range(a, b), 2)
        if q.labels[i] > q.labels[j]
    }


def objective(q, w, c):
    """‖w‖²/2 + (c/q) Σ hinge, pair by pair."""
    x = q.features.astype(float)
    return w @ w / 2 + c / q.n_queries * sum(max(0.0, 1 - w @ (x[i] - x[j])) for i, j in all_pairs(q))


def ndcg10(scores, q):
    """Mean over the queries with a relevant document; ties in the order of the data."""

    def dcg(labels):
        return sum((2.0**v - 1) / np.log2(i + 2) for i, v in enumerate(labels[:10]))

    values = []
    for a, b in itertools.pairwise(q.offsets):
        labels = q.labels[a:b]
        if labels.max():
            values.append(dcg(labels[np.argsort(-scores[a:b], kind="stable")]) / dcg(np.sort(labels)[::-1]))
    return np.mean(values)


# MSE


def test_mse_is_least_squares_with_an_intercept():
    q = tiny_queries(1, queries=20)
    design = np.column_stack([q.features.astype(float), np.ones(q.n_documents)])
    expected = np.linalg.lstsq(design, q.labels, rcond=None)[0]
    model = fit_baseline("MSE", alone(q))
    np.testing.assert_allclose(model.weights, expected[:-1], atol=1e-5)
    np.testing.assert_allclose(model.scores(q.features), q.features @ expected[:-1], atol=1e-5)
    assert model.weights.dtype == model.scores(q.features).dtype == np.float32 and model.notes == ()


def test_mse_is_the_linear_regression_of_scikit_learn_where_columns_follow_from_others():
    from sklearn.linear_model import LinearRegression

    q = tiny_queries(1, queries=40)
    first, second = q.features[:, 0], q.features[:, 1]
    x = np.column_stack([q.features, (0.37 * first + 0.21 * second).astype(np.float32)])
    expected = LinearRegression().fit(x.astype(float), q.labels).coef_
    np.testing.assert_allclose(fit_baseline("MSE", alone(replaced(q, x))).weights, expected, atol=1e-4)
    assert np.abs(expected).max() < 100


def test_mse_takes_the_solution_of_smallest_norm():
    q = tiny_queries()
    twin_and_constant = np.column_stack([q.features, q.features[:, 0], np.full(q.n_documents, 0.25)])
    x = twin_and_constant.astype(float)
    expected = np.linalg.pinv(x - x.mean(axis=0)) @ (q.labels - q.labels.mean())
    weights = fit_baseline("MSE", alone(replaced(q, x))).weights
    np.testing.assert_allclose(weights, expected, atol=1e-5)
    assert weights[-1] == 0


@pytest.mark.parametrize("name", ["MSE", "RankingSVM"])
def test_raw_features_of_any_size_give_the_ranking_of_those_of_one_size(name):
    """Raw MSLR features reach 2·10⁸, others are below 10⁻³."""
    q = tiny_queries(2, queries=20)
    x = q.features + 1.0  # outside [0, 1], so that both are standardised; eighths, so that the factors are exact
    factors = 2.0 ** np.array([28, -20, 0, 10, 3])
    plain = fit_baseline(name, alone(replaced(q, x)))
    raw = fit_baseline(name, alone(replaced(q, x * factors)))
    assert np.isfinite(raw.weights).all() and "standard deviation" in raw.notes[0]
    np.testing.assert_allclose(raw.weights * factors, plain.weights, rtol=1e-4)
    np.testing.assert_allclose(raw.scores((x * factors).astype(np.float32)), plain.scores(x), rtol=1e-4, atol=1e-4)
    if name == "MSE":  # whose fitted values no scale changes
        design = np.column_stack([x, np.ones(len(x))])
        expected = x @ np.linalg.lstsq(design, q.labels, rcond=None)[0][:-1]
        np.testing.assert_allclose(plain.scores(x.astype(np.float32)), expected, atol=1e-5)


def test_a_weight_beyond_32_bits_is_refused():
    x = np.array([[0.0, 0.0], [2.0, 1e-40]])
    with pytest.raises(DataError, match="feature 2 in MSE"):
        fit_baseline("MSE", alone(queries(x, [0, 1], [2])))


# RankingSVM


def test_pairs_are_all_pairs():
    q = tiny_queries(4, queries=15)
    better, worse, total = label_pairs(q, 10**6)
    assert total == len(better) == len(all_pairs(q)) > 50
    assert set(zip(better.tolist(), worse.tolist(), strict=True)) == all_pairs(q)


def test_drawn_pairs_are_evenly_drawn():
    q = tiny_queries(4, queries=60, longest=30)
    every = sorted(all_pairs(q))
    better, worse, total = label_pairs(q, len(every) // 3)
    drawn = set(zip(better.tolist(), worse.tolist(), strict=True))
    assert total == len(every) and len(drawn) == len(better) == len(every) // 3 and drawn < set(every)
    assert all(np.array_equal(a, b) for a, b in zip(label_pairs(q, len(every) // 3)[:2], (better, worse), strict=True))
    # Pairs of the first half of the documents: hypergeometric.
    half = sum(i < q.n_documents // 2 for i, _ in every)
    n, k = len(every), len(drawn)
    mean = k * half / n
    deviation = np.sqrt(mean * (1 - half / n) * (n - k) / (n - 1))
    assert abs(sum(i < q.n_documents // 2 for i, _ in drawn) - mean) < 4 * deviation


def test_least_hinge_loss_of_one_pair():
    """By hand: w = min(c, 1/‖d‖²) d."""
    for c in [0.1, 10.0, 1000.0]:
        d = np.array([[0.3, -0.4, 0.0]])
        weights, gap = least_hinge_loss(d, c)
        np.testing.assert_allclose(weights, min(c, 4.0) * d[0], rtol=1e-4, atol=1e-9)
        assert gap <= 1e-5


def test_least_hinge_loss_of_separable_pairs_is_the_widest_margin():
    """By hand: w·(1, 0) ≥ 1 and w·(0, ½) ≥ 1, both tight; the third holds."""
    weights, _ = least_hinge_loss(np.array([[1.0, 0.0], [0.0, 0.5], [1.0, 1.0]]), 1e4)
    np.testing.assert_allclose(weights, [1, 2], rtol=1e-4)


def test_ranking_svm_against_a_quadratic_program():
    """SLSQP on the program with slack variables, which shares nothing with the solver."""
    q = tiny_queries(5, queries=8, longest=6)
    pairs, f = sorted(all_pairs(q)), q.n_features
    d = np.array([q.features[i].astype(float) - q.features[j] for i, j in pairs])
    c = 1e3 / q.n_queries
    constraints = {
        "type": "ineq",
        "fun": lambda v: d @ v[:f] + v[f:] - 1,
        "jac": lambda v: np.hstack([d, np.eye(len(d))]),
    }
    solved = minimize(  # the objective over c, for SLSQP's sake
        lambda v: v[:f] @ v[:f] / 2 / c + v[f:].sum(),
        np.concatenate([np.zeros(f), np.ones(len(d))]),
        jac=lambda v: np.concatenate([v[:f] / c, np.ones(len(d))]),
        bounds=[(None, None)] * f + [(0, None)] * len(d),
        constraints=constraints,
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-12},
    )
    assert solved.success and len(d) > 20
    model = fit_baseline("RankingSVM", alone(q))
    assert objective(q, model.weights.astype(float), 1e3) == pytest.approx(c * solved.fun, rel=1e-5)
    np.testing.assert_allclose(model.weights, solved.x[:f], rtol=0.01, atol=0.01 * np.abs(solved.x[:f]).max())


def test_ranking_svm_against_coordinate_descent():
    from sklearn.svm import LinearSVC

    q = generate_queries(3, n_queries=60, n_features=6).train
    better, worse, _ = label_pairs(q, 10**9)
    d = q.features[better].astype(float) - q.features[worse]
    side = np.where(np.arange(len(d)) % 2, 1.0, -1.0)  # it wants two classes; half of the pairs is turned round
    other = LinearSVC(loss="hinge", C=1e3 / q.n_queries, fit_intercept=False, tol=1e-2, max_iter=10**6, random_state=0)
    expected = objective(q, other.fit(d * side[:, None], side).coef_[0], 1e3)
    model = fit_baseline("RankingSVM", alone(q))
    found = objective(q, model.weights.astype(float), 1e3)
    assert expected * (1 - 1e-3) < found < expected * (1 + 2e-5) and model.notes == ()


def test_order_of_documents_and_number_of_copies_do_not_matter():
    q = tiny_queries(6)
    weights = fit_baseline("RankingSVM", alone(q)).weights
    shuffled = np.concatenate(
        [
            np.random.default_rng(i).permutation(np.arange(a, b))
            for i, (a, b) in enumerate(itertools.pairwise(q.offsets))
        ]
    )
    other = QuerySet(q.features[shuffled], q.labels[shuffled], q.offsets, q.qids)
    assert not np.array_equal(other.labels, q.labels)
    np.testing.assert_allclose(fit_baseline("RankingSVM", alone(other)).weights, weights, rtol=1e-3, atol=1e-3)
    # SVMrank divides C by the number of queries, so the same queries twice are the same problem.
    twice = concatenate([q, q], repeats=True)
    np.testing.assert_allclose(fit_baseline("RankingSVM", alone(twice)).weights, weights, rtol=1e-3, atol=1e-3)


def test_fewer_pairs_are_said_and_stand_for_all(monkeypatch):
    q = generate_queries(3, n_queries=100, n_features=6).train
    full = fit_baseline("RankingSVM", alone(q))
    total = len(all_pairs(q))
    monkeypatch.setattr(baselines, "SVM_MOST_NUMBERS", 6 * (total // 3))
    part = fit_baseline("RankingSVM", alone(q))
    assert part.notes == (f"RankingSVM: trained on {total // 3:,} of {total:,} pairs of documents, drawn at random.",)
    best = objective(q, full.weights.astype(float), 1e3)
    assert objective(q, part.weights.astype(float), 1e3) < 1.01 * best
    # The sum is scaled up. With a tiny C every pair falls short of its margin and w = C/q Σ (x − z), so that a third of
    # the pairs as they are would give a third of the weights.
    monkeypatch.setattr(baselines, "SVM_C", 1e-4)
    tiny = fit_baseline("RankingSVM", alone(q)).weights
    every = 1e-4 / q.n_queries * sum(q.features[i].astype(float) - q.features[j] for i, j in all_pairs(q))
    np.testing.assert_allclose(tiny, every, atol=0.15 * np.abs(every).max())


def test_what_has_no_solution_is_said(monkeypatch):
    q = tiny_queries(6)
    monkeypatch.setattr(baselines, "_SMOOTHING", (1.0,))
    assert "not converged" in fit_baseline("RankingSVM", alone(q)).notes[0]


# LambdaMART


def test_lambda_mart_beats_every_single_feature():
    pytest.importorskip("lightgbm")
    splits = generate_queries(1, n_queries=250, n_features=8)
    model = fit_baseline("LambdaMART", splits)
    singles = [ndcg10(sign * splits.test.features[:, f], splits.test) for f in range(8) for sign in (1, -1)]
    reached = ndcg10(model.scores(splits.test.features), splits.test)
    assert reached > max(singles) + 0.02
    assert model.weights is None and "validation queries" in model.notes[0]
    again = BASELINES.get("LambdaMART")(splits)
    np.testing.assert_array_equal(again.scores(splits.test.features), model.scores(splits.test.features))


def test_lambda_mart_keeps_the_number_of_trees_that_validates_best():
    lightgbm = pytest.importorskip("lightgbm")
    splits = generate_queries(2, n_queries=150, n_features=6)
    model = fit_baseline("LambdaMART", splits)
    trees = int(model.notes[0].split()[1])
    # The same trees without a judge, cut at every number: LightGBM's own nDCG counts queries without labels as 1, which
    # shifts all of them alike.
    data = lightgbm.Dataset(splits.train.features, splits.train.labels, group=splits.train.lengths)
    settings = {"objective": "lambdarank", "seed": 0, "deterministic": True, "force_row_wise": True, "verbosity": -1}
    booster = lightgbm.train(settings | {"num_threads": 1}, data, trees + 50)
    curve = [ndcg10(booster.predict(splits.vali.features, num_iteration=n), splits.vali) for n in range(1, trees + 51)]
    assert np.argmax(curve) + 1 == trees
    np.testing.assert_allclose(
        model.scores(splits.test.features), booster.predict(splits.test.features, num_iteration=trees), rtol=1e-6
    )


def test_lambda_mart_without_validation_queries_and_with_too_little_data():
    pytest.importorskip("lightgbm")
    splits = generate_queries(2, n_queries=50, n_features=4)
    unlabelled = QuerySet(splits.vali.features, 0 * splits.vali.labels, splits.vali.offsets, splits.vali.qids)
    for vali in (None, unlabelled):
        model = fit_baseline("LambdaMART", Splits(splits.train, vali, None, "made"))
        assert "100 trees" in model.notes[0] and "no validation queries" in model.notes[0]
    few = queries([[0.0], [0.5], [1.0]], [0, 1, 2], [3])
    model = fit_baseline("LambdaMART", Splits(few, few, None, "made"))
    assert "nothing to split by" in model.notes[1] and np.ptp(model.scores(few.features)) == 0
    with pytest.raises(DataError, match="LightGBM says"):
        fit_baseline("LambdaMART", alone(queries([[0.0], [0.5]], [0, 31], [2])))


def test_lambda_mart_needs_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(MissingExtraError, match=r"LambdaMART needs lightgbm.*pip install 'fedrank\[lambdamart\]'"):
        fit_baseline("LambdaMART", alone(tiny_queries()))


# All of them


@pytest.mark.parametrize("name", ["RankingSVM", "LambdaMART"])
@pytest.mark.parametrize("labels", [[1, 1, 1, 1], [0, 0, 2, 2]])
def test_labels_that_rank_nothing_are_refused(name, labels):
    if name == "LambdaMART":
        pytest.importorskip("lightgbm")
    with pytest.raises(DataError, match=f"{name} learns from documents of one query with different labels"):
        fit_baseline(name, alone(queries(np.eye(4), labels, [2, 2])))


def test_nothing_to_learn_gives_zeros_that_are_said():
    one_label = queries(np.eye(3), [1, 1, 1], [3])
    constant = queries(np.full((3, 2), 0.5), [0, 1, 2], [3])
    for name, q in (("MSE", one_label), ("MSE", constant), ("RankingSVM", constant)):
        model = fit_baseline(name, alone(q))
        assert not model.weights.any() and "all weights are 0" in model.notes[0]


def test_one_query_is_enough():
    q = queries([[0.0, 1.0], [0.5, 0.0], [1.0, 1.0]], [0, 1, 2], [3])
    for name in ("MSE", "RankingSVM"):
        assert np.argsort(fit_baseline(name, alone(q)).scores(q.features)).tolist() == [0, 1, 2]


def test_names_and_shapes_are_checked():
    assert BASELINES.names() == ["MSE", "RankingSVM", "LambdaMART", "BestFeature"]
    with pytest.raises(UnknownNameError, match="Did you mean 'RankingSVM'"):
        fit_baseline("rankingsvm", alone(tiny_queries()))
    model = fit_baseline("MSE", alone(tiny_queries()))
    for shape in ((2, 4), (5,)):
        with pytest.raises(DataError, match="trained on 5 features"):
            model.scores(np.zeros(shape, np.float32))


# Kharitonov 2019 on MQ2008: Table 3's two baselines (five-fold means .457/.730/.408 and .471/.736/.424 on the training
# queries, navigational / informational / perfect), fold by fold from baselines.json of the published code
# (github.com/facebookresearch/foltr-es).
SVMRANK = {
    (1, "train"): (0.46472, 0.73256, 0.41673),
    (2, "train"): (0.49307, 0.74411, 0.45048),
    (2, "test"): (0.41028, 0.71066, 0.35235),
}


@pytest.mark.realdata
def test_expected_max_rr_on_mq2008_is_the_published(mq2008):
    from fedrank.data import load
    from fedrank.metrics.online import max_rr
    from fedrank.ranking.clicks.cascade import cascade
    from fedrank.ranking.evaluate import Evaluator
    from fedrank.ranking.rankers.linear import Linear

    users = tuple(cascade(name) for name in ("navigational", "informational", "perfect"))
    least_squares = []
    for fold in (1, 2):
        splits = load("mq2008", "ranking", fold=fold, folder=mq2008)
        both = [fit_baseline(name, splits) for name in ("MSE", "RankingSVM")]
        scored = Evaluator(splits, Linear(46), max_rr(), users, ())(np.stack([model.weights for model in both]))
        tables = [{(s.split, s.measure): s.value for s in scores} for scores in scored]
        mse, svm = (
            {part: [table[part, f"expected MaxRR ({user.name})"] for user in users] for part in splits.parts()}
            for table in tables
        )
        for part in ("train", "test") if fold == 2 else ("train",):
            # SVMrank stops at 10⁻³ of a swapped pair a query, which leaves it some freedom.
            np.testing.assert_allclose(svm[part], SVMRANK[fold, part], atol=0.003)
            assert np.all(np.array(svm[part]) > mse[part])  # "RankingSVM outperforms MSE in every case" (Section 6)
        least_squares.append(mse["train"])
    # The published MSE is an unregularised solution of a system without full rank, so its folds cannot be met; the
    # difference of the solutions of the two folds from Table 3's mean of five can be bounded.
    np.testing.assert_allclose(np.mean(least_squares, axis=0), [0.457, 0.730, 0.408], atol=0.02)
