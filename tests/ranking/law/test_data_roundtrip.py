"""Whatever is written as LETOR comes back, whoever writes it and however it is packed."""

import bz2
import gzip
import lzma

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file

from fedrank.ranking.data import letor
from fedrank.ranking.data.queries import QuerySet
from fedrank.ranking.data.splits import normalise

PACK = {"plain": bytes, "gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}
values = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def query_sets(draw):
    lengths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    n, f = sum(lengths), draw(st.integers(1, 4))
    features = np.array(draw(st.lists(st.lists(values, min_size=f, max_size=f), min_size=n, max_size=n)), np.float32)
    labels = np.array(draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)))
    qids = draw(st.lists(st.integers(0, 10**9), min_size=len(lengths), max_size=len(lengths), unique=True))
    return QuerySet(features, labels, np.cumsum([0, *lengths]), np.array(qids).astype(str))


@pytest.mark.parametrize("zero_based", [True, False])
@given(queries=query_sets(), pack=st.sampled_from(sorted(PACK)), blank=st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_scikit_learn_writes_is_read(tmp_path, zero_based, queries, pack, blank):
    path = tmp_path / "file"
    query_id = np.repeat(queries.qids.astype(np.int64), queries.lengths)
    dump_svmlight_file(
        queries.features.astype(np.float64), queries.labels, str(path), query_id=query_id, zero_based=zero_based
    )
    text = path.read_bytes()
    path.write_bytes(PACK[pack](text.replace(b"\n", b" # doc\n\n") if blank else text))
    back = letor.read(path, n_features=queries.n_features, zero_based=zero_based)
    np.testing.assert_array_equal(back.features, queries.features)
    np.testing.assert_array_equal(back.labels, queries.labels)
    assert back.offsets.tolist() == queries.offsets.tolist() and back.qids.tolist() == queries.qids.tolist()


@given(query_sets())
@settings(max_examples=100, deadline=None)
def test_normalised_features_lie_in_the_unit_range_and_keep_their_order(queries):
    with np.errstate(all="raise", under="ignore"):
        normal = normalise(queries, "query-minmax")
    assert normal.features.min() >= 0 and normal.features.max() <= 1
    for first, last in zip(queries.offsets[:-1], queries.offsets[1:], strict=True):
        raw, new = queries.features[first:last], normal.features[first:last]
        constant = raw.min(axis=0) == raw.max(axis=0)
        np.testing.assert_array_equal(new.max(axis=0), np.where(constant, 0, 1))
        np.testing.assert_array_equal(new.min(axis=0), 0)
        order = np.argsort(raw, axis=0, kind="stable")
        assert (np.diff(np.take_along_axis(new, order, axis=0), axis=0) >= 0).all()
