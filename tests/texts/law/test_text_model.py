"""A model of texts scores from its file alone, to the bit, what the run's own evaluation saw."""

import itertools
import json

import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from text_worlds import setup_of, small_federation, small_texts

import fedrank
from fedrank.core.errors import ConfigError, DataError, MissingDataError, ModelError, UnknownNameError
from fedrank.engine.model import blocks
from fedrank.engine.model import scores as scored
from fedrank.texts.config import Texts
from fedrank.texts.data.features import NAMES, statistics_of
from fedrank.texts.data.generate import generate_texts
from fedrank.texts.graded import LOSSES, GradedLearner
from fedrank.texts.model import TextModel
from fedrank.texts.scores import ROWS
from fedrank.texts.silo_sketch.setup.rows import moments, own_rows, scale_of, scale_rows

N = len(NAMES)


def _rows(number):
    """The rows of a silo before and after they are scaled."""
    silo, federation = small_texts()[number], small_federation()
    settings = setup_of("plain", rows={"depth": 4, "negatives": 1})
    raw = own_rows(silo, lambda words: statistics_of(federation.silos, words), settings)
    shape = (*raw["where"].shape[:1], 1)
    empty = {"cross_x": np.zeros((*shape, N), np.float32), "cross_where": np.zeros(shape, bool)}
    return raw, {how: scale_rows(raw | empty, how) for how in ("silo", "query")}


@pytest.fixture(scope="module")
def rows():
    return [_rows(number) for number in range(2)]


def _model(rows, loss="listwise", scaling="silo"):
    learner = GradedLearner(N, 3, loss)
    weights = np.random.default_rng(4).normal(size=learner.size).astype(np.float32)
    scales = {f"silo {i}": tuple(after["silo"][k] for k in ("mean", "deviation")) for i, (_, after) in enumerate(rows)}
    return TextModel(learner, weights, Texts(scale=scaling), scales if scaling == "silo" else {})


@pytest.mark.parametrize("loss", LOSSES)
def test_scores_are_those_by_which_the_run_ranks(loss, rows, tmp_path):
    model = fedrank.load(_model(rows, loss).save(tmp_path / "texts.safetensors"))
    for number, (raw, after) in enumerate(rows):
        where = raw["where"]
        x = after["silo"]["x"]
        everything = scored(model.learner, model.weights, blocks(x.reshape(-1, N), ROWS), where.size)
        found = model.score(raw["x"][where], silo=f"silo {number}")
        np.testing.assert_array_equal(found, everything.reshape(where.shape)[where])
        assert np.ptp(found) > 1e-3


def test_lists_scaled_by_themselves_are_scored_as_in_the_run(rows):
    model = _model(rows, scaling="query")
    raw, after = rows[0]
    where = raw["where"]
    qid = np.repeat(np.arange(len(where)), where.sum(axis=1))
    expected = scored(model.learner, model.weights, blocks(after["query"]["x"].reshape(-1, N), ROWS), where.size)
    np.testing.assert_array_equal(model.score(raw["x"][where], qid), expected.reshape(where.shape)[where])
    frame = pl.DataFrame(raw["x"][where], schema=list(NAMES)).with_columns(qid=pl.Series(qid))
    np.testing.assert_array_equal(model.score(frame), model.score(raw["x"][where], qid))
    np.testing.assert_array_equal(model.rank(frame), model.rank(raw["x"][where], qid))
    with pytest.raises(DataError, match="qid"):
        model.score(raw["x"][where], [0])
    with pytest.raises(ModelError, match="silo 0"):
        model.for_party("silo 0")


def test_a_file_gives_the_same_bits_whatever_is_scored_beside(rows, tmp_path):
    model = _model(rows).for_party("silo 1")
    read = fedrank.load(model.save(tmp_path / "a.safetensors"))
    features = np.random.default_rng(0).normal(size=(9, N)).astype(np.float32)
    found = model.score(features)
    np.testing.assert_array_equal(read.score(features), found)
    np.testing.assert_array_equal(read.score(features[::-1])[::-1], found)
    np.testing.assert_array_equal(read.score(features[3:4]), found[3:4])
    np.testing.assert_array_equal(read.score(pl.DataFrame(features[:, ::-1], schema=list(NAMES[::-1]))), found)
    assert read.score(features[:0]).shape == (0,)
    assert read.save(tmp_path / "b.safetensors").read_bytes() == (tmp_path / "a.safetensors").read_bytes()


@pytest.mark.parametrize("scaling", ["silo", "query"])
@pytest.mark.parametrize("loss", LOSSES)
def test_onnx_gives_the_same_scores(loss, scaling, rows, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    model = _model(rows, loss, scaling)
    if scaling == "silo":
        with pytest.raises(ModelError, match="silo 0, silo 1"):
            model.to_onnx(tmp_path / "whose.onnx")
        model = model.for_party("silo 0")
    features = rows[0][0]["x"][0][rows[0][0]["where"][0]]  # the documents of one query
    features[:, 3] = features[0, 3]  # a constant column has the deviation 1
    session = runtime.InferenceSession(model.to_onnx(tmp_path / "texts.onnx"), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"features": features})
    expected = model.score(features)
    assert np.ptp(expected) > 1e-3
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


def test_texts_are_ranked_by_what_they_say(rows):
    learner = GradedLearner(N, 3, "regression")
    weights = np.zeros(learner.size, np.float32)
    weights[NAMES.index("body BM25")] = 1
    model = TextModel(learner, weights, Texts(), {"mine": (np.zeros(N), np.ones(N))})
    documents = ["Boats at sea.", ("Cats", "The cat sleeps; cats purr."), "A dog barks at the cat in the garden."]
    assert model.rank_texts("cats", documents).tolist() == [1, 2, 0]
    assert model.score_texts("cats", documents)[0] == 0
    with pytest.raises(DataError):
        model.score_texts("cats", [])


def test_what_does_not_fit_is_refused_by_name(rows):
    model = _model(rows)
    with pytest.raises(ModelError, match="silo"):
        model.score(np.zeros((1, N)))
    with pytest.raises(UnknownNameError, match="nowhere"):
        model.score(np.zeros((1, N)), silo="nowhere")
    with pytest.raises(DataError, match=NAMES[3]):
        model.score(pl.DataFrame({name: [0.0] for name in NAMES if name != NAMES[3]}), silo="silo 0")
    with pytest.raises(DataError, match=NAMES[2]):
        model.score([[0, 0, 1e300, *[0] * (N - 3)]], silo="silo 0")
    with pytest.raises(ModelError, match="fitted"):
        TextModel(model.learner, model.weights).score(np.zeros((1, N)))
    raw, after = rows[0]
    training = raw["x"][raw["where"] & (raw["part"] == 0)[:, None]]
    fitted = TextModel(model.learner, model.weights).fitted(training, "mine")
    np.testing.assert_array_equal(fitted.scales["mine"], scale_of(*moments(raw)))
    np.testing.assert_array_equal(fitted.scales["mine"][0], after["silo"]["mean"])
    assert jnp.isfinite(fitted.score(np.full((1, N), 1e30))).all()


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    """A folder as BEIR has it, of generated texts whose judgements are 0 or 1."""
    texts = generate_texts(seed=3, documents=60, queries=12)
    folder = tmp_path_factory.mktemp("collection")
    _write_jsonl(folder / "corpus.jsonl", ("_id", "title", "text"), texts.document_ids, texts.titles, texts.bodies)
    _write_jsonl(folder / "queries.jsonl", ("_id", "text"), texts.query_ids, texts.queries)
    places = zip(texts.judged_queries, texts.judged_documents, texts.grades, strict=True)
    lines = [f"{texts.query_ids[q]} 0 {texts.document_ids[d]} {min(int(grade), 1)}\n" for q, d, grade in places]
    (folder / "qrels").write_text("".join(lines))
    return folder


def _write_jsonl(path, names, *columns):
    rows = zip(*columns, strict=True)
    path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))


@pytest.mark.parametrize("scaling", ["silo", "query"])
def test_measures_are_those_of_ir_measures_on_the_run_that_is_written(scaling, rows, collection, tmp_path):
    # The exponential gain is gdeval's there, which takes whole numbers as query ids only.
    ir_measures = pytest.importorskip("ir_measures")
    model, silo = _model(rows, "listwise", scaling), "silo 1" if scaling == "silo" else None
    names = ("nDCG@10", "RR@10", "AP@10", "nDCG@3")
    found = model.evaluate(collection, names, silo=silo, depth=7)["all"]
    run = model.write_trec_run(collection, tmp_path / "run.txt", silo=silo, depth=7)
    qrels = list(ir_measures.read_trec_qrels(str(collection / "qrels")))
    wanted = [ir_measures.parse_measure(name) for name in names]
    per_query = {name: {} for name in names}
    for one in ir_measures.iter_calc(wanted, qrels, ir_measures.read_trec_run(str(run))):
        per_query[str(one.measure)][one.query_id] = one.value
    judged = {one.query_id for one in qrels if one.relevance > 0}
    queries = len((collection / "queries.jsonl").read_text().splitlines())
    for name in names:
        total = sum(per_query[name][query] for query in judged)
        assert found[name] == pytest.approx(total / queries, abs=1e-6)
        assert found[f"{name} (judged)"] == pytest.approx(total / len(judged), abs=1e-6)
    assert 0 < found["nDCG@10"] < 1
    lines = [line.split() for line in run.read_text().splitlines()]
    assert [int(line[3]) for line in lines] == [*range(1, 8)] * queries
    assert all(float(a[4]) >= float(b[4]) for a, b in itertools.pairwise(lines) if a[0] == b[0])


def test_documents_that_are_not_found_are_no_hits(rows, collection):
    learner = GradedLearner(N, 2, "regression")
    weights = np.zeros(learner.size, np.float32)
    weights[NAMES.index("body BM25")] = 1
    model = TextModel(learner, weights, Texts(), {"mine": (np.zeros(N), np.ones(N))})
    shallow, deep = (model.evaluate(collection, ["AP@100"], depth=depth)["all"]["AP@100"] for depth in (1, 60))
    assert 0 < shallow < deep < 1
    assert model.evaluate(collection, ["AP@100"], depth=0)["all"]["AP@100"] == 0


def test_a_collection_is_searched_without_judgements_and_measured_only_with_them(rows, collection, tmp_path):
    model = _model(rows).for_party("silo 0")
    for name in ("corpus.jsonl", "queries.jsonl"):
        (tmp_path / name).write_bytes((collection / name).read_bytes())
    assert list(model.trec_run(tmp_path)) == list(model.trec_run(collection))
    with pytest.raises(MissingDataError, match="judgements"):
        model.evaluate(tmp_path)
    letor = tmp_path / "letor.txt"
    letor.write_text("1 qid:1 1:0.5\n")
    with pytest.raises(DataError, match=r"queries\.jsonl"):
        model.evaluate(letor)
    with pytest.raises(DataError, match="relevant"):
        model.evaluate(({"d": "cats"}, {"q": "cats"}, {}))
    with pytest.raises(ConfigError, match="AP@30"):
        model.evaluate(collection, ["AP"])
    with pytest.raises(ModelError, match="one word"):
        model.trec_run(collection, name="two words")
    with pytest.raises(ModelError, match="silo 0, silo 1"):
        _model(rows).evaluate(collection)


def test_documents_are_ranked_within_their_queries(rows):
    model, features = _model(rows).for_party("silo 0"), np.random.default_rng(1).normal(size=(7, N))
    found, qid = model.score(features), np.array([3, 3, 3, 1, 1, 2, 2])
    assert model.rank(features).tolist() == np.argsort(-found).tolist()
    ranked = model.rank(features, qid)
    np.testing.assert_array_equal(qid[ranked], qid)
    assert all(found[a] >= found[b] for a, b in itertools.pairwise(ranked) if qid[a] == qid[b])
