"""Query sets and their layouts against hand-written arrays and loops."""

import jax
import numpy as np
import pytest

from fedrank.core.errors import DataError
from fedrank.ranking.data.queries import PaddedQueries, QuerySet, concatenate
from fedrank.ranking.data.splits import Splits

LENGTHS = [3, 1, 20, 9, 16, 40]


def make(lengths=LENGTHS, n_features=3, name="made"):
    rng = np.random.default_rng(3)
    n = sum(lengths)
    return QuerySet(
        rng.random((n, n_features), dtype=np.float32),
        rng.integers(3, size=n),
        np.cumsum([0, *lengths]),
        np.array([f"q{i}" for i in range(len(lengths))]),
        name,
    )


def rows(queries, query):
    return slice(queries.offsets[query], queries.offsets[query + 1])


def test_counts():
    queries = QuerySet(
        np.array([[0.5, 1], [2, 3], [4, 5]]), np.array([0, 2, 0]), np.array([0, 2, 3]), np.array(["a", "b"])
    )
    assert (queries.n_queries, queries.n_documents, queries.n_features) == (2, 3, 2)
    assert (queries.longest, queries.max_label) == (2, 2)
    assert queries.lengths.tolist() == [2, 1] and queries.lengths.dtype == np.int64
    assert queries.has_relevant.tolist() == [True, False]
    assert queries.features.dtype == np.float32 and queries.labels.dtype == np.int32
    assert queries.offsets.dtype == np.int64 and queries.qids.dtype.kind == "U"
    assert not queries.generated


def test_select_takes_queries_in_the_order_given():
    queries = make()
    chosen = queries.select([4, 0, 4])
    assert chosen.qids.tolist() == ["q4", "q0", "q4"]
    expected = np.concatenate([queries.features[rows(queries, i)] for i in (4, 0, 4)])
    np.testing.assert_array_equal(chosen.features, expected)
    np.testing.assert_array_equal(chosen.labels, np.concatenate([queries.labels[rows(queries, i)] for i in (4, 0, 4)]))
    assert chosen.lengths.tolist() == [16, 3, 16] and chosen.name == "made"


def test_select_by_mask():
    queries = make()
    assert queries.select(np.array([0, 1, 0, 0, 0, 1], bool)).qids.tolist() == ["q1", "q5"]


def test_select_refuses():
    for indices in [[], [6], [-1], np.zeros(5, bool), np.array([0.5]), np.array([[0]])]:
        with pytest.raises(DataError):
            make().select(indices)


def test_padded():
    queries = make()
    padded = queries.padded()
    assert padded.features.shape == (6, 40, 3) and padded.features.dtype == np.float32
    assert padded.labels.dtype == np.int32 and padded.length.dtype == np.int32
    assert np.asarray(padded.length).tolist() == LENGTHS
    for query, length in enumerate(LENGTHS):
        np.testing.assert_array_equal(padded.features[query, :length], queries.features[rows(queries, query)])
        np.testing.assert_array_equal(padded.labels[query, :length], queries.labels[rows(queries, query)])
        assert not np.asarray(padded.features[query, length:]).any()
        assert not np.asarray(padded.labels[query, length:]).any()
        assert np.asarray(padded.where[query]).tolist() == [True] * length + [False] * (40 - length)


def test_padded_is_a_pytree():
    padded = make().padded()
    assert len(jax.tree.leaves(padded)) == 3
    counted = jax.jit(lambda p: p.where.sum(axis=-1))(padded)
    assert counted.tolist() == LENGTHS
    one = jax.vmap(lambda p: p.where.sum())(padded)
    assert one.tolist() == LENGTHS
    assert isinstance(jax.tree.map(lambda x: x[:2], padded), PaddedQueries)


def test_buckets_hold_every_query_once_and_waste_less_than_half():
    rng = np.random.default_rng(0)
    queries = make(rng.integers(1, 150, size=60).tolist())
    groups = queries.buckets(smallest=16)
    assert sorted(np.concatenate([chosen for chosen, _ in groups]).tolist()) == list(range(60))
    for chosen, padded in groups:
        assert np.asarray(padded.length).tolist() == queries.lengths[chosen].tolist()
        np.testing.assert_array_equal(padded.features, queries.select(chosen).padded().features)
        width = padded.labels.shape[1]
        assert width == queries.lengths[chosen].max()
        if width > 16:
            assert (queries.lengths[chosen] * 2 > width).all()
    assert [len(chosen) for chosen, _ in make([16, 17, 32, 33]).buckets()] == [1, 2, 1]


def test_bucket_size_is_checked():
    with pytest.raises(DataError, match="at least 1"):
        make().buckets(smallest=0)


def test_blocks_are_feature_major():
    queries = make()
    blocks = queries.blocks()
    assert blocks is queries.blocks()
    assert blocks.n_features == 3 and blocks.stride.tolist() == [8, 8, 24, 16, 16, 40]
    assert blocks.start.tolist() == [0, 24, 48, 120, 168, 216] and len(blocks.values) == 336
    assert blocks.length.tolist() == LENGTHS and blocks.label_start.tolist() == queries.offsets[:-1].tolist()
    assert [a.dtype.name for a in (blocks.values, blocks.start, blocks.stride, blocks.labels, blocks.length)] == [
        "float32",
        "int64",
        "int32",
        "int32",
        "int32",
    ]
    for query, length in enumerate(LENGTHS):
        start, stride = blocks.start[query], blocks.stride[query]
        for feature in range(3):
            column = blocks.values[start + feature * stride : start + (feature + 1) * stride]
            expected = queries.features[rows(queries, query), feature].tolist() + [0.0] * (stride - length)
            assert column.tolist() == expected


def test_blocks_are_static_in_jax():
    blocks = make().blocks()
    assert jax.tree.leaves(blocks) == []
    assert blocks == blocks and blocks != make().blocks() and hash(blocks) == hash(blocks)
    traced = []

    @jax.jit
    def count(blocks, x):
        traced.append(blocks)
        return x + blocks.n_features

    assert int(count(blocks, 1)) == 4 and int(count(blocks, 2)) == 5
    assert len(traced) == 1


def test_construction_is_checked():
    for changed, match in [
        ({"features": np.zeros(3)}, "shape"),
        ({"features": np.array([[np.nan], [0], [0]])}, "row 0, feature 1 is nan"),
        ({"features": np.array([[0.0], [1e39], [0]])}, "row 1, feature 1 is inf"),
        ({"features": np.array([["a"], ["b"], ["c"]])}, "numbers"),
        ({"labels": np.array([0, -1, 0])}, "got -1 in row 1"),
        ({"labels": np.array([0, 0.5, 0])}, "whole numbers"),
        ({"labels": np.array([0, 1])}, "2 labels for 3 rows"),
        ({"offsets": np.array([0, 1, 4])}, "0 to 4"),
        ({"offsets": np.array([1, 2, 3])}, "1 to 3"),
        ({"offsets": np.array([0, 0, 3])}, "query number 0 goes from 0 to 0"),
        ({"offsets": np.array([0])}, "at least one query"),
        ({"qids": np.array(["a"])}, "2 queries but qids"),
    ]:
        good = {
            "features": np.zeros((3, 1)),
            "labels": np.array([0, 1, 0]),
            "offsets": np.array([0, 1, 3]),
            "qids": np.array(["a", "b"]),
        }
        assert QuerySet(**good).n_queries == 2
        with pytest.raises(DataError, match=match):
            QuerySet(**{**good, **changed})


def test_concatenate():
    first, second = make([2, 3], name="one"), make([4], name="two")
    second = QuerySet(second.features, second.labels, second.offsets, np.array(["other"]), "two")
    both = concatenate([first, second], "both")
    assert both.offsets.tolist() == [0, 2, 5, 9] and both.qids.tolist() == ["q0", "q1", "other"]
    np.testing.assert_array_equal(both.features, np.concatenate([first.features, second.features]))
    assert both.name == "both"


def test_concatenate_refuses():
    with pytest.raises(DataError, match="q0 occurs in two parts"):
        concatenate([make(name=""), make(name="")])
    with pytest.raises(DataError, match="same number of features"):
        concatenate([make(), make(n_features=2)])
    with pytest.raises(DataError, match="at least one"):
        concatenate([])


def test_splits_agree_on_features():
    train, test = make(), make([5, 2])
    splits = Splits(train, None, test, "x")
    assert list(splits.parts()) == ["train", "test"] and splits.max_label == 2
    assert splits.map(lambda q: q.select([0])).test.n_queries == 1
    with pytest.raises(DataError, match="train has 3, vali has 4"):
        Splits(train, make(n_features=4), None, "x")
