"""The generated set: shape, repetition, and how hard it is."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from fedrank.core.errors import ConfigError
from fedrank.ranking.data.reader import generate_queries


@pytest.fixture(scope="module")
def splits():
    return generate_queries(seed=1, n_queries=400)


def ndcg_at_10(queries, scores):
    """Mean over the queries that have a relevant document; gain 2^label − 1."""
    values = []
    for first, last in zip(queries.offsets[:-1], queries.offsets[1:], strict=True):
        gains = 2.0 ** queries.labels[first:last] - 1
        if gains.any():
            top = np.argsort(-scores[first:last], kind="stable")[:10]
            discounts = 1 / np.log2(np.arange(2, len(top) + 2))
            values.append(gains[top] @ discounts / (np.sort(gains)[::-1][:10] @ discounts))
    return np.mean(values)


def test_shape_of_the_default():
    whole = generate_queries()
    parts = list(whole.parts().values())
    assert [q.n_queries for q in parts] == [1015, 338, 339] and sum(q.n_queries for q in parts) == 1692
    assert all(q.n_features == 46 and q.generated for q in parts) and whole.generated
    lengths = np.concatenate([q.lengths for q in parts])
    assert lengths.min() >= 5 and lengths.max() <= 147 and 38 < lengths.mean() < 44
    labels = np.bincount(np.concatenate([q.labels for q in parts]))
    np.testing.assert_allclose(labels / labels.sum(), [0.74, 0.20, 0.06], atol=0.01)
    features = np.concatenate([q.features for q in parts])
    assert features.min() == 0 and features.max() == 1
    assert (~features.any(axis=0)).sum() == 6
    unjudged = 1 - np.concatenate([q.has_relevant for q in parts]).mean()
    assert 0.02 < unjudged < 0.3
    assert len({qid for q in parts for qid in q.qids.tolist()}) == 1692
    assert [q.name for q in parts] == ["generated/train", "generated/vali", "generated/test"]
    assert "Generated" in whole.notes[0]


def test_learnable_but_not_given_away(splits):
    train, test = splits.train, splits.test
    random = ndcg_at_10(test, np.random.default_rng(0).random(test.n_documents))
    single = max(ndcg_at_10(test, test.features[:, feature]) for feature in range(test.n_features))
    ridge = ndcg_at_10(test, Ridge().fit(train.features, train.labels).predict(test.features))
    assert random + 0.15 < ridge < 0.85
    assert single + 0.05 < ridge


def test_noise_makes_it_harder():
    scores = []
    for noise in (0.0, 2.0):
        splits = generate_queries(seed=2, n_queries=200, noise=noise)
        model = Ridge().fit(splits.train.features, splits.train.labels)
        scores.append(ndcg_at_10(splits.test, model.predict(splits.test.features)))
    assert scores[0] > scores[1] + 0.1
    # Without noise a linear ranker still errs: the truth is not linear and the features are blurred.
    assert scores[0] < 0.95


def test_seed_decides_everything(splits):
    again, other = generate_queries(seed=1, n_queries=400), generate_queries(seed=3, n_queries=400)
    for part, queries in splits.parts().items():
        np.testing.assert_array_equal(queries.features, again.parts()[part].features)
        np.testing.assert_array_equal(queries.labels, again.parts()[part].labels)
    assert splits.train.n_documents != other.train.n_documents


@pytest.mark.parametrize("grades", [2, 5])
def test_grades(grades):
    splits = generate_queries(n_queries=300, grades=grades)
    assert splits.max_label == grades - 1


def test_smallest():
    splits = generate_queries(n_queries=5, n_features=1)
    assert [q.n_queries for q in splits.parts().values()] == [3, 1, 1]
    assert splits.train.features.any()


def test_refused():
    for settings in [{"n_queries": 4}, {"n_features": 0}, {"grades": 1}, {"noise": -1.0}, {"noise": float("nan")}]:
        with pytest.raises(ConfigError, match="got"):
            generate_queries(**settings)
