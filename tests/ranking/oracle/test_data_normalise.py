"""Normalisation against numbers worked out by hand."""

import json

import numpy as np
import pytest

from fedrank.core.errors import UnknownNameError
from fedrank.ranking.data.queries import QuerySet
from fedrank.ranking.data.splits import Constants, fit_constants, in_unit_range, normalise


def make(features, lengths):
    features = np.asarray(features, np.float32)
    n = len(features)
    return QuerySet(features, np.zeros(n, int), np.cumsum([0, *lengths]), np.arange(len(lengths)).astype(str), "n")


def test_query_minmax():
    queries = make([[1, 5], [3, 5], [2, 7], [10, -4], [10, 4]], [3, 2])
    normal = normalise(queries, "query-minmax")
    assert normal.features.tolist() == [[0, 0], [1, 0], [0.5, 1], [0, 0], [0, 1]]
    assert normal.features.dtype == np.float32 and normal.name == "n"
    assert queries.features[0].tolist() == [1, 5]


def test_none_and_auto():
    inside, outside = make([[0, 1], [0.5, 0.2]], [2]), make([[0, 1], [0.5, 1.5]], [2])
    below = make([[0, -0.001]], [1])
    assert normalise(inside, "none") is inside and normalise(outside, "none") is outside
    assert normalise(inside, "auto") is inside
    assert normalise(outside, "auto").features.tolist() == [[0, 0], [1, 1]]
    assert [in_unit_range(q) for q in (inside, outside, below)] == [True, False, False]


def test_huge_and_tiny_ranges():
    largest, smallest = np.finfo(np.float32).max, np.float32(1e-45)
    queries = make([[-largest, 0, 2e8], [largest, smallest, 1], [0, 0, 1e8]], [3])
    with np.errstate(all="raise"):
        normal = normalise(queries, "query-minmax").features
    np.testing.assert_allclose(normal, [[0, 0, 1], [1, 1, 0], [0.5, 0, (1e8 - 1) / (2e8 - 1)]], rtol=1e-6)


def test_single_document_is_zero():
    assert normalise(make([[5, -3]], [1]), "query-minmax").features.tolist() == [[0, 0]]


def test_unknown():
    with pytest.raises(UnknownNameError, match="Did you mean 'query-minmax'"):
        normalise(make([[1]], [1]), "query-min-max")


def test_constants_are_scikit_learns():
    from sklearn.preprocessing import MinMaxScaler, StandardScaler

    x = np.random.default_rng(0).lognormal(3, 2, (200, 5)).astype(np.float32)
    x[:, 3] = 7  # constant
    logs = np.sign(-x) * np.log1p(np.abs(x))
    for how, scaler, given, seen in (
        ("standard", StandardScaler(), x, x),
        ("min-max", MinMaxScaler(), x, x),
        ("log", StandardScaler(), -x, logs),
    ):
        constants = fit_constants(given, how)
        np.testing.assert_allclose(constants.apply(given), scaler.fit_transform(seen.astype(float)), atol=1e-5)
        again = Constants.from_json(json.loads(json.dumps(constants.as_json())))
        np.testing.assert_array_equal(again.apply(given), constants.apply(given))
        assert (constants.apply(given[:1]) == constants.apply(given)[:1]).all()  # alone as among others
    with pytest.raises(UnknownNameError):
        fit_constants(x, "query-minmax")
