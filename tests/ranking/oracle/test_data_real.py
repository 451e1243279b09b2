"""The reader and loader on real collections, against counts from the sets' own descriptions."""

import io
import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_svmlight_file

from fedrank.data import load
from fedrank.data.lines import read_lines
from fedrank.ranking.data.letor import read, read_parts
from fedrank.ranking.data.queries import concatenate

pytestmark = pytest.mark.realdata


@pytest.fixture(scope="module")
def ltr():
    root = os.environ.get("FEDRANK_DATA", "")
    if not root:
        pytest.skip("needs the real data sets: set FEDRANK_DATA")
    return Path(root) / "ltr"


def need(folder):
    if not folder.exists():
        pytest.skip(f"needs {folder}, which is not there")
    return folder


def test_numbers_are_those_of_scikit_learn_bit_by_bit(ltr):
    for file, sizes in (
        ("mq2008/S1.txt.xz", None),
        ("mslr-web10k-sample/fold1.train.5k.txt.xz", None),
        ("lightgbm-lambdarank/rank.train.xz", "lightgbm-lambdarank/rank.train.query"),
    ):
        path = need(ltr / file)
        matrix, labels = load_svmlight_file(io.BytesIO(b"".join(read_lines(path))), dtype=np.float32, zero_based=False)
        found = read(path, zero_based=False, groups=sizes and ltr / sizes)
        expected = matrix.toarray()
        assert found.features.dtype == expected.dtype and found.features.tobytes() == expected.tobytes()
        assert found.labels.tolist() == labels.tolist()


def test_mq2008_parts(mq2008):
    files = [next(mq2008.glob(f"S{k}.txt*")) for k in range(1, 5)]
    whole = concatenate(read_parts(files, n_features=46, max_label=2))
    assert (whole.n_queries, whole.n_documents, whole.n_features) == (628, 12_337, 46)
    assert int(whole.has_relevant.sum()) == 459
    assert (whole.lengths.min(), whole.longest) == (5, 121)
    constant = np.flatnonzero(whole.features.min(axis=0) == whole.features.max(axis=0)) + 1
    assert constant.tolist() == [6, 7, 8, 9, 10, 43]
    assert np.bincount(whole.labels).shape == (3,)
    assert whole.qids[0] == "10002"
    np.testing.assert_allclose(whole.features[0, [0, 2, 4, 10]], [0.007477, 1, 0.00747, 0.471076])


def test_mq2008_folds(mq2008):
    first, second = load("mq2008", "ranking", folder=mq2008), load("mq2008", "ranking", fold=2, folder=mq2008)
    # LETOR 4.0: the training part of Fold1 has 9,630 rows; every part has 157 queries but the fifth.
    assert (first.train.n_queries, first.train.n_documents) == (471, 9630)
    assert first.vali is not None and first.vali.n_queries == 157
    assert second.test is not None and second.test.n_queries == 157
    assert first.train.features.max() <= 1 and first.citation == "qin2013letor4"
    assert not any("checksum" in note for note in first.notes)
    assert second.train.qids[:157].tolist() == first.train.qids[157:314].tolist()
    assert second.test.qids.tolist() == first.train.qids[:157].tolist()


def test_clueweb09(ltr):
    splits = load("clueweb09-ltr", "ranking", folder=need(ltr / "clueweb09-webis"))
    train = splits.train
    assert (train.n_queries, train.n_documents, train.n_features, train.max_label) == (36, 15_579, 42, 4)
    assert train.lengths.min() >= 230 and train.longest <= 702
    assert train.features.min() >= 0 and train.features.max() <= 1


def test_mslr_ranges(ltr):
    path = need(ltr / "mslr-web10k-sample") / "fold1.train.5k.txt.xz"
    raw, normal = load(path, "ranking", normalise="none").train, load(path, "ranking").train
    assert (raw.n_queries, raw.n_documents, raw.n_features, raw.max_label) == (43, 5000, 136, 4)
    assert raw.features.max() > 2e8
    assert np.isfinite(normal.features).all() and normal.features.min() == 0 and normal.features.max() == 1
    assert raw.qids[:3].tolist() == ["1", "16", "31"]
    # The first row's first features, as in Microsoft's description of the set.
    assert raw.features[0, :5].tolist() == [3, 3, 0, 0, 3]


def test_trec_news_has_missing_features(ltr):
    splits = load(need(ltr / "trecnews2018"), "ranking", normalise="none")
    assert (splits.train.n_queries, splits.train.n_documents, splits.train.n_features) == (45, 782, 5)
    assert (splits.test.n_queries, splits.test.n_documents) == (5, 41)
    # Row 2 of the training file: 1 qid:321 1:-1 3:-1 4:4.467956841272084e-08 5:0.03703703703703703
    np.testing.assert_allclose(splits.train.features[1], [-1, 0, -1, 4.467956841272084e-08, 1 / 27], rtol=1e-6)


def test_lightgbm_groups(ltr):
    folder = need(ltr / "lightgbm-lambdarank")
    train = read(folder / "rank.train.xz", groups=folder / "rank.train.query")
    assert (train.n_queries, train.n_documents, train.n_features, train.max_label) == (201, 3005, 300, 4)
    assert train.lengths[:3].tolist() == [1, 13, 5]
