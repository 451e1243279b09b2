"""A model of silos scores from its file alone, to the bit, what the run's own evaluation saw."""

import numpy as np
import polars as pl
import pytest
from short_settings import run_of

import fedrank
from fedrank.core.errors import DataError, ModelError
from fedrank.engine.layers import Affine
from fedrank.engine.model import ModelParts
from fedrank.metrics.offline import host_auc
from fedrank.silos.build import build_silos, sizes
from fedrank.silos.config import Network, Silos, SilosEvaluation
from fedrank.silos.data.coding import Coding
from fedrank.silos.data.files import table_of
from fedrank.silos.data.splits import standardise_rows, standards
from fedrank.silos.model import SiloModel
from fedrank.silos.network import TabularNetwork, blocks
from fedrank.silos.network import scores as scored
from fedrank.silos.rounds import SiloEvaluator
from fedrank.silos.run import silo_model

NORMS = ("batch", "layer", "none")


def _config(norm="batch", crossing="average"):
    return run_of(
        "fedavg",
        seeds=2,
        silos=Silos(train=20.0, count=3, rows=60),
        network=Network(widths=(4,), norm=norm, crossing=crossing),
        evaluation=SilosEvaluation(baselines=()),
    ).resolved()


def _weights(network, seed=0):
    """Weights that are no accident of a fresh network: every tensor varies, variances are positive."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=network.size).astype(np.float32)
    for name, places in network.tensors(np.arange(network.size)).items():
        if name.endswith("running_var"):
            weights[places] = rng.uniform(0.5, 2, places.shape)
    return weights


@pytest.fixture(scope="module", params=NORMS)
def trained(request):
    experiment = build_silos(_config(request.param))
    weights = _weights(experiment.protocol.net)
    return experiment, weights, silo_model(experiment, weights, seed=1, target=2)


@pytest.fixture(scope="module")
def read(trained, tmp_path_factory):
    return fedrank.load(trained[2].save(tmp_path_factory.mktemp("models") / "silo.safetensors"))


def test_scores_of_rows_are_those_by_which_the_run_judges(trained, read):
    experiment, weights, _ = trained
    silo, seed, target = experiment.table.silos[2], 1, 2
    evaluator = SiloEvaluator(experiment.protocol, experiment.arrays, np.array([seed]), np.array([[target]]))
    told = evaluator({"last": weights[None, None]})
    found = read.score(silo.features)
    for part in ("vali", "test"):
        rows = getattr(experiment.arrays, part)
        n = int(rows.n[seed, target])
        x = np.asarray(rows.x[seed, target, :n])
        seen = scored(experiment.protocol.net, weights, blocks(x), n)
        mean, deviation = standards(experiment.table, seed, sizes(experiment.config), False, target)
        places = {row.tobytes(): place for place, row in enumerate(standardise_rows(silo.features, mean, deviation))}
        mine = [places[row.tobytes()] for row in x]
        np.testing.assert_array_equal(found[mine], seen)
        assert told[f"{part}: last"][0, 0] == host_auc(found[mine], silo.labels[mine], np.ones(len(mine), bool))
    assert np.ptp(found) > 0.1


def test_a_file_gives_the_same_bits_whatever_is_scored_beside(trained, read, tmp_path):
    features = trained[0].table.silos[2].features
    found = trained[2].score(features)
    np.testing.assert_array_equal(read.score(features), found)
    order = np.random.default_rng(0).permutation(len(features))
    np.testing.assert_array_equal(read.score(features[order]), found[order])
    np.testing.assert_array_equal(read.score(features[7:9]), found[7:9])
    np.testing.assert_array_equal(read.score(np.tile(features, (5, 1)))[: len(features)], found)
    assert read.score(features[:0]).shape == (0,)
    frame = pl.DataFrame(features, schema=list(read.feature_names)).select(sorted(read.feature_names, reverse=True))
    np.testing.assert_array_equal(read.score(frame), found)
    odds = np.log(read.probability(features)) - np.log1p(-read.probability(features))
    np.testing.assert_allclose(odds, found, rtol=1e-6, atol=1e-6)
    first, second = trained[2].save(tmp_path / "a.safetensors"), read.save(tmp_path / "b.safetensors")
    assert first.read_bytes() == second.read_bytes()


def test_onnx_gives_the_same_scores(trained, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    model = trained[2]
    features = np.array(trained[0].table.silos[2].features)
    features[0, 0] = np.nan
    session = runtime.InferenceSession(model.to_onnx(tmp_path / "silo.onnx"), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"features": features})
    expected = model.score(features)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
    norms = [layer for layer in model.layers() if isinstance(layer, Affine)]
    assert len(norms) == (model.network.norm == "batch")


def test_recalibrated_statistics_score():
    experiment = build_silos(_config(crossing="recalibrate"))
    network = experiment.protocol.net
    usable = _weights(network)
    model = silo_model(experiment, usable, 0, 0)
    features = experiment.table.silos[0].features
    again = SiloModel.from_parts(ModelParts(model.architecture, model.tensors, model.about))
    plain = SiloModel(network, usable, model.mean, model.deviation)
    np.testing.assert_array_equal(again.score(features), plain.score(features))


def test_text_columns_are_coded_as_in_training():
    columns = {
        "silo": ["a", "a", "a", "b", "b", "b"],
        "ill": ["no", "yes", "no", "yes", "no", "yes"],
        "age": ["30", "41", None, "22", "65", "57"],
        "ward": ["x", "y", "z", "x", None, "y"],
        "sex": ["f", "m", "f", "f", "m", "m"],
        "code": ["1", "2", "1.0", "3", "2", "1"],
    }
    table = table_of(columns, "mine", Silos(label="ill", categorical=("code",)))
    network = TabularNetwork(table.n_features, (), "none")
    n = table.n_features
    model = SiloModel(
        network, _weights(network), np.zeros(n), np.ones(n), names=table.feature_names, coding=table.coding
    )
    model = SiloModel.from_parts(ModelParts(model.architecture, model.tensors, {}))
    everything = np.concatenate([silo.features for silo in table.silos])
    typed = pl.DataFrame({**columns, "age": [30, 41, None, 22, 65, 57]})
    np.testing.assert_array_equal(model.score(typed), model.score(everything))
    np.testing.assert_array_equal(model.rank(typed), np.argsort(-model.score(everything), kind="stable"))
    np.testing.assert_array_equal(model.score(typed[2:4]), model.score(everything[2:4]))
    found = model.evaluate(typed, silo="silo")
    assert [found[name]["rows"] for name in ("all", "a", "b")] == [6, 3, 3]
    assert found["all"]["AUC"] == float(
        host_auc(model.score(everything), np.array([0, 1, 0, 1, 0, 1]), np.ones(6, bool))
    )
    with pytest.raises(DataError, match=r"ward.*'q'"):
        model.score(typed.with_columns(ward=pl.lit("q")))
    with pytest.raises(DataError, match="'sex'"):
        model.score(typed.drop("sex"))
    with pytest.raises(DataError, match="'age'"):
        model.score(typed.with_columns(age=pl.lit("old")))


def test_what_does_not_fit_is_refused_by_name():
    model = SiloModel(TabularNetwork(2, (), "none"), np.ones(6, np.float32), np.zeros(2), np.ones(2), names=("a", "b"))
    with pytest.raises(DataError, match="'b'"):
        model.score(pl.DataFrame({"a": [1.0]}))
    with pytest.raises(DataError, match=r"\(1, 3\)"):
        model.score(np.zeros((1, 3)))
    with pytest.raises(DataError, match=r"'b'.*row 1"):
        model.score([[0, 0], [0, 1e300]])
    with pytest.raises(DataError, match="names"):
        SiloModel(model.network, model.weights, model.mean, model.deviation).score(pl.DataFrame({"a": [1.0]}))
    with pytest.raises(DataError, match="label"):
        model.evaluate(pl.DataFrame({"a": [1.0], "b": [1.0], "y": [1]}))
    without = SiloModel(model.network, model.weights)
    with pytest.raises(ModelError, match="fitted"):
        without.score(np.zeros((1, 2)))
    rows = np.array([[0.0, 5.0], [2.0, 5.0]])
    np.testing.assert_array_equal(without.fitted(rows).deviation, [1, 0])
    assert np.isfinite(model.score([[3e38, -3e38]])).all() and Coding().as_json()["levels"] == {}
