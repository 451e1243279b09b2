"""A ranker scores from its file alone, to the bit, what the run's own evaluation ranked by."""

import dataclasses
import warnings

import numpy as np
import polars as pl
import pytest

import fedrank
from fedrank.core.errors import DataError, ModelError
from fedrank.data import load
from fedrank.metrics.online import max_rr
from fedrank.ranking.data.reader import QueryReader
from fedrank.ranking.data.splits import CONSTANT, fit_constants
from fedrank.ranking.evaluate import Evaluator
from fedrank.ranking.model import RankingModel
from fedrank.ranking.rankers.linear import Linear
from fedrank.ranking.rankers.mlp import TwoLayer

FEATURES, QUERIES, DOCUMENTS = 6, 5, 8
RANKERS = {"linear": Linear(FEATURES), "mlp": TwoLayer(FEATURES, 3)}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    features = rng.normal(50, 20, size=(QUERIES * DOCUMENTS, FEATURES))
    features[:, 1] = np.repeat(np.arange(QUERIES), DOCUMENTS)  # the same for all documents of a query
    return features, rng.integers(0, 3, len(features)), np.repeat(np.arange(QUERIES), DOCUMENTS)


HOWS = ("query-minmax", "none", *CONSTANT)


@pytest.fixture(params=[(name, how) for name in RANKERS for how in HOWS], ids="-".join)
def model(request, data):
    name, how = request.param
    ranker = RANKERS[name]
    weights = np.random.default_rng(1).normal(size=ranker.size).astype(np.float32)
    constants = fit_constants(data[0].astype(np.float32), how) if how in CONSTANT else None
    return RankingModel(ranker, weights, how, tuple(f"f{i}" for i in range(FEATURES)), constants=constants)


def test_scores_are_those_by_which_the_run_ranks(model, data, tmp_path):
    splits = load(data, QueryReader(normalise=model.normalise))
    evaluator = Evaluator(splits, model.ranker, max_rr(), (), ("nDCG(dcg='exp-log2')@10",), tie_orders=1)
    read = fedrank.load(model.save(tmp_path / "ranker.safetensors"))
    expected = evaluator.scores(model.weights[None])[0]
    np.testing.assert_array_equal(read.score(data[0], data[2]), expected)
    frame = pl.DataFrame(data[0], schema=list(model.feature_names))
    np.testing.assert_array_equal(read.score(frame.select(frame.columns[::-1]), data[2]), expected)
    told = {score.measure: score.value for score in evaluator(model.weights[None])[0]}
    assert (
        read.evaluate(data, ["nDCG(dcg='exp-log2')@10"])["train"]["nDCG(dcg='exp-log2')@10"]
        == told["nDCG(dcg='exp-log2')@10"]
    )
    assert (
        np.ptp(expected) > 0
        and read.save(tmp_path / "b.safetensors").read_bytes() == (tmp_path / "ranker.safetensors").read_bytes()
    )


def test_scores_do_not_depend_on_what_is_scored_beside(model, data):
    features, _, qid = data
    whole = model.score(features, qid)
    one = qid == 2
    np.testing.assert_array_equal(model.score(features[one]), whole[one])
    order = np.random.default_rng(3).permutation(DOCUMENTS)
    np.testing.assert_array_equal(model.score(features[one][order]), whole[one][order])
    np.testing.assert_array_equal(model.rank(features[one]), np.argsort(-whole[one], kind="stable"))
    many = np.tile(features, (40, 1))
    ids = np.repeat(np.arange(40 * QUERIES), DOCUMENTS)
    np.testing.assert_array_equal(model.score(many, ids)[: len(whole)], whole)
    assert model.score(features[:0]).shape == (0,) and model.rank(features[:0]).shape == (0,)
    if model.normalise != "query-minmax":
        np.testing.assert_array_equal(model.score(features[one][:3]), whole[one][:3])
    else:  # unnormalised features of any scale are normalised by the model
        np.testing.assert_allclose(model.score(features[one] * 8 - 3), whole[one], rtol=1e-5, atol=1e-5)


def test_onnx_gives_the_same_scores(model, data, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model.to_onnx(tmp_path / "r.onnx"), providers=["CPUExecutionProvider"])
    features = data[0][:DOCUMENTS].astype(np.float32)
    (found,) = session.run(None, {"features": features})
    expected = model.score(features)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


def test_a_trec_run_is_worth_to_another_tool_what_the_model_says(model, data):
    measures = pytest.importorskip("ir_measures")
    weights = np.abs(model.weights)
    weights[-6:-3] += 20 * isinstance(model.ranker, TwoLayer)  # no unit is silent, so that nothing ties
    model = dataclasses.replace(model, weights=weights)
    run = [line.split() for line in model.trec_run(data)]
    assert len({float(line[4]) for line in run}) == len(run), "ties would be ordered in another way"
    qid = data[2]
    grades = [
        measures.Qrel(str(qid[row]), f"{qid[row]}-{row % DOCUMENTS + 1}", int(label))
        for row, label in enumerate(data[1])
    ]
    scored = [measures.ScoredDoc(query, document, float(score)) for query, _, document, _, score, _ in run]
    gains = {0: 0, 1: 1, 2: 3}
    found = measures.calc_aggregate([measures.nDCG(gains=gains) @ 10], grades, scored)
    expected = model.evaluate(data, ["nDCG(dcg='exp-log2')@10"])["train"]["nDCG(dcg='exp-log2')@10"]
    np.testing.assert_allclose(next(iter(found.values())), expected, rtol=1e-6)


def test_what_does_not_fit_is_refused_by_name(data, tmp_path):
    names = tuple(f"f{i}" for i in range(FEATURES))
    model = RankingModel(Linear(FEATURES), np.ones(FEATURES, np.float32), "none", names)
    frame = pl.DataFrame(data[0], schema=list(names))
    with pytest.raises(DataError, match="'f3'"):
        model.score(frame.drop("f3"))
    with pytest.raises(DataError, match="5"):
        model.score(data[0][:, :5])
    with pytest.raises(DataError, match="qid"):
        model.score(data[0], [1])
    with pytest.raises(DataError, match="7"):
        model.evaluate((np.hstack([data[0], data[0][:, :1]]), *data[1:]))
    with pytest.raises(DataError, match="test"):
        list(model.trec_run(data, part="test"))
    with pytest.raises(ModelError, match="6"):
        RankingModel(Linear(FEATURES), np.ones(3, np.float32))
    assert np.isfinite(model.score(np.full((2, FEATURES), 1e37))).all()


def test_a_frame_is_scored_by_its_own_queries(model, data):
    features, _, qid = data
    frame = pl.DataFrame(features, schema=list(model.feature_names)).with_columns(qid=pl.Series(qid))
    np.testing.assert_array_equal(model.score(frame), model.score(features, qid))
    np.testing.assert_array_equal(model.rank(frame), model.rank(features, qid))
    other = np.arange(len(qid)) // 4  # what is handed over wins over the frame's column
    np.testing.assert_array_equal(model.score(frame, other), model.score(features, other))
    with pytest.raises(DataError, match="every row"):
        model.score(frame.with_columns(qid=pl.when(pl.col("qid") > 2).then(pl.col("qid"))))


def test_a_frame_whose_queries_may_be_in_a_column_of_another_name_is_refused(model, data):
    features, _, qid = data
    frame = pl.DataFrame(features, schema=list(model.feature_names))
    np.testing.assert_array_equal(model.score(frame[:DOCUMENTS]), model.score(features[:DOCUMENTS]))  # nothing but them
    other = frame.with_columns(search=pl.Series(qid))
    np.testing.assert_array_equal(model.rank(other, qid), model.rank(features, qid))
    with pytest.raises(DataError, match="search"):
        model.rank(other)
    if model.normalise != "query-minmax":
        np.testing.assert_array_equal(model.score(other), model.score(features, qid))
    else:
        with pytest.raises(DataError, match="search"):
            model.score(other)


def test_a_run_needs_no_labels_and_writes_ids_as_they_are(model, data):
    features, _, qid = data
    numbers = np.arange(len(qid)) + 2**60
    frame = pl.DataFrame(features, schema=list(model.feature_names)).with_columns(qid=pl.Series(qid.astype(float)))
    for docid in (pl.Series(numbers), pl.Series(list(map(str, numbers)))):
        run = [line.split() for line in model.trec_run(frame.with_columns(docid=docid))]
        assert [line[2] for line in run] == [str(numbers[row]) for row in model.rank(features, qid)]
        assert [line[0] for line in run] == [str(one) for one in qid]
    with pytest.raises(ModelError, match="white space"):
        list(model.trec_run(frame.with_columns(docid=pl.Series([f"page {n}" for n in numbers]))))


def test_a_run_has_the_names_of_the_documents(data, tmp_path):
    model = RankingModel(Linear(FEATURES), np.ones(FEATURES, np.float32), "query-minmax")
    features, labels, qid = data
    names = [f"GX{row:03d}-00" for row in range(len(labels))]
    pairs = [" ".join(f"{k + 1}:{value}" for k, value in enumerate(row)) for row in features]
    lines = [f"{y} qid:{q} {x} #docid = {n} inc = 1" for y, q, x, n in zip(labels, qid, pairs, names, strict=True)]
    (tmp_path / "named.txt").write_text("\n".join(lines) + "\n")
    frame = pl.DataFrame(features, schema=[f"f{i}" for i in range(FEATURES)])
    frame = frame.with_columns(label=pl.Series(labels), qid=pl.Series(qid), docid=pl.Series(names))
    for source in (tmp_path / "named.txt", frame):
        run = [line.split() for line in model.trec_run(source)]
        assert [line[2] for line in run] == [names[row] for row in model.rank(features, qid)]
    half = [line if row else line.partition("#")[0] for row, line in enumerate(lines)]  # one row without a name
    (tmp_path / "half.txt").write_text("\n".join(half) + "\n")
    assert next(iter(model.trec_run(tmp_path / "half.txt"))).split()[2].startswith(f"{qid[0]}-")
    queries = load(frame, QueryReader()).train
    assert queries.select([3, 1]).document_names(0) == [names[row] for row in np.flatnonzero(qid == 3)]


def test_a_lone_document_is_told_to_have_no_score(model, data):
    features = data[0][:3]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = model.score(features, [1, 2, 3])
    assert bool(told) == (model.normalise == "query-minmax") == bool((found == found[0]).all())


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_model_without_finite_weights_is_not_loaded(tmp_path, value):
    weights = np.ones(FEATURES, np.float32)
    weights[2] = value
    RankingModel(Linear(FEATURES), weights).save(tmp_path / "odd.safetensors")
    with pytest.raises(ModelError, match="diverged"):
        fedrank.load(tmp_path / "odd.safetensors")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ids_that_floats_cannot_tell_apart_are_refused(dtype):
    limit = 2 ** (np.finfo(dtype).nmant + 1)  # from there on two integers in a row are one float
    assert dtype(limit) == dtype(limit + 1) and dtype(limit - 2) != dtype(limit - 1)
    features, labels = np.eye(4), np.array([0, 1, 0, 1])
    fine = np.repeat(np.array([limit - 2, limit - 1], dtype), 2)
    assert load((features, labels, fine), "ranking").train.qids.tolist() == [str(limit - 2), str(limit - 1)]
    for odd in (limit, -limit):
        with pytest.raises(DataError, match="stands"):
            load((features, labels, np.repeat(np.array([odd, 7], dtype), 2)), "ranking")
