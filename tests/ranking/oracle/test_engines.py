"""Rankers in search engines' forms: values printed by the plugins' documentation and tests, and ONNX Runtime."""

import json

import numpy as np
import pytest

import fedrank
from fedrank.cli.main import app
from fedrank.core.errors import ModelError, UnknownNameError
from fedrank.ranking.data.splits import Constants, fit_constants
from fedrank.ranking.engines import FORMS, export_for_engine
from fedrank.ranking.model import RankingModel
from fedrank.ranking.rankers.linear import Linear
from fedrank.ranking.rankers.mlp import TwoLayer

NAMES = ("title_bm25", "body_bm25", "age")


def ltr_scores(body, features):
    """Scores as the plugins compute them, in 32 bits: (x − mean) / deviation, or (x − minimum) / (maximum − minimum),
    times the weight (their LinearRanker, StandardFeatureNormalizer, MinMaxFeatureNormalizer).
    """
    model = body["model"]["model"]
    total = np.float32(0)
    for name, weight in json.loads(model["definition"]).items():
        x = np.asarray(features[name], np.float32)
        for kind, c in model.get("feature_normalizers", {}).get(name, {}).items():
            one, two = ("mean", "standard_deviation") if kind == "standard" else ("minimum", "maximum")
            centre, other = np.float32(c[one]), np.float32(c[two])
            x = (x - centre) / (other if kind == "standard" else other - centre)
        total = total + np.float32(weight) * x
    return total


def a_model(how="standard", ranker=Linear(3), names=NAMES):  # noqa: B008 - it never changes
    features = np.random.default_rng(0).lognormal(1, 1, (60, 3)).astype(np.float32)
    weights = np.random.default_rng(1).normal(size=ranker.size).astype(np.float32)
    constants = fit_constants(features, how) if how in ("standard", "min-max", "log") else None
    return RankingModel(ranker, weights, how, names, constants=constants), features


def test_values_that_the_plugins_print(tmp_path):
    """LinearRankerTests.testScore: 1·2 + 2·3 + 3·4; a standard normaliser of mean 1970 and deviation 30 and a min_max
    of 0 to 10 map the ends as "Uploading trained models" of OpenSearch's documentation says.
    """
    x = {"a": np.array([2.0]), "b": np.array([3.0]), "c": np.array([4.0])}
    plain = RankingModel(Linear(3), np.array([1, 2, 3], np.float32), "none", ("a", "b", "c"))
    export_for_engine(plain, tmp_path / "m.json", "elasticsearch-ltr")
    body = json.loads((tmp_path / "m.json").read_text())
    assert ltr_scores(body, x) == [20.0]
    assert body == {
        "model": {"name": "m", "model": {"type": "model/linear", "definition": '{"a": 1.0, "b": 2.0, "c": 3.0}'}}
    }
    year = Constants("standard", np.array([1970.0]), np.array([30.0]))
    vote = Constants("min-max", np.array([0.0]), np.array([10.0]))
    for constants, name, normaliser, values, expected in (
        (year, "release_year", {"standard": {"mean": 1970, "standard_deviation": 30}}, [1970, 2000, 1940], [0, 1, -1]),
        (vote, "vote_average", {"min_max": {"minimum": 0, "maximum": 10}}, [0, 10, 2.5], [0, 1, 0.25]),
    ):
        model = RankingModel(Linear(1), np.array([0.3], np.float32), constants.how, (name,), constants=constants)
        export_for_engine(model, tmp_path / "n.json", "opensearch-ltr")
        body = json.loads((tmp_path / "n.json").read_text())
        assert body["model"]["model"]["feature_normalizers"] == {name: normaliser}
        np.testing.assert_allclose(ltr_scores(body, {name: np.array(values)}), np.float32(0.3) * np.array(expected))


@pytest.mark.parametrize("how", ["none", "standard", "min-max"])
def test_a_plugin_scores_as_onnx_runtime_does(how, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    model, features = a_model(how)
    if model.constants is not None:
        model.constants.spread[2] = 0.0  # a constant feature
    export_for_engine(model, tmp_path / "ranker.json", "elasticsearch-ltr")
    body = json.loads((tmp_path / "ranker.json").read_text())
    found = ltr_scores(body, dict(zip(NAMES, features.T, strict=True)))
    session = runtime.InferenceSession(model.to_onnx(tmp_path / "r.onnx"), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"features": features})
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())
    np.testing.assert_allclose(model.score(features), expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("ranker", [Linear(3), TwoLayer(3, 4)])
@pytest.mark.parametrize("how", ["none", "standard", "min-max", "log"])
def test_vespas_file_scores_a_document_alone_as_among_others(how, ranker, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    model, features = a_model(how, ranker)
    files = export_for_engine(model, tmp_path / "ranker.onnx", "vespa-onnx")
    session = runtime.InferenceSession(files[0], providers=["CPUExecutionProvider"])
    expected = model.score(features)
    for row in range(5):  # the tensor of one document, d0[1], d1[3]
        (found,) = session.run(None, {"features": features[row : row + 1]})
        np.testing.assert_allclose(found, expected[row : row + 1], atol=1e-6 * np.abs(expected).max())
        assert model.score(features[row : row + 1])[0] == expected[row]
    schema = files[1].read_text()
    assert "tensor<float>(d0[1],d1[3])" in schema and all(name in schema for name in NAMES)
    assert schema.count("{") == schema.count("}") and "file: files/ranker.onnx" in schema


@pytest.mark.parametrize(
    ("form", "change", "said"),
    [
        ("elasticsearch-ltr", {"how": "query-minmax"}, "query-minmax"),
        ("vespa-onnx", {"how": "query-minmax"}, "query-minmax"),
        ("elasticsearch-ltr", {"how": "log"}, "no normaliser 'log'"),
        ("opensearch-ltr", {"ranker": TwoLayer(3, 2)}, "TwoLayer"),
        ("opensearch-ltr", {"names": ()}, "names"),
        ("vespa-onnx", {"names": ()}, "names"),
    ],
)
def test_what_a_form_cannot_express_is_refused_by_name(form, change, said, tmp_path):
    path = tmp_path / ("m.onnx" if form == "vespa-onnx" else "m.json")
    with pytest.raises(ModelError, match=said):
        export_for_engine(a_model(**change)[0], path, form)
    assert not path.exists()


def test_files_and_forms_of_other_names(tmp_path):
    model, _ = a_model()
    for form, name in (("elasticsearch-ltr", "m.onnx"), ("vespa-onnx", "m.json"), ("vespa-onnx", "my-model.onnx")):
        with pytest.raises(ModelError, match="must"):
            export_for_engine(model, tmp_path / name, form)
    with pytest.raises(UnknownNameError, match="opensearch-ltr"):
        export_for_engine(model, tmp_path / "m.json", "opensearch")
    assert set(FORMS) == {"elasticsearch-ltr", "opensearch-ltr", "vespa-onnx"}


def test_the_command(tmp_path, capsys):
    model, features = a_model()
    path = model.save(tmp_path / "m.safetensors")
    app(["export", str(path), str(tmp_path / "m.json"), "--to", "opensearch-ltr"], result_action="return_value")
    assert str(tmp_path / "m.json") in capsys.readouterr().out
    assert fedrank.load(path).score(features).tolist() == model.score(features).tolist()
