"""Files of models: what is damaged, foreign or incomplete is refused in one line; layers mean what they say."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import fedrank
from fedrank.core.errors import FedrankError, ModelError
from fedrank.engine.layers import (
    Affine,
    Dense,
    LayerNorm,
    QueryMinMax,
    QueryStandardise,
    Relu,
    Softmax,
    Standardise,
    to_onnx,
    to_torch,
)
from fedrank.engine.model import model_of_run, read_model_of_run
from fedrank.ranking.model import RankingModel
from fedrank.ranking.rankers.linear import Linear


@pytest.fixture
def file(tmp_path):
    about = {"protocol": "foltr-es", "seed": 3}
    return RankingModel(Linear(4), np.arange(4, dtype=np.float32), about=about).save(tmp_path / "m.safetensors")


def _header(file):
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    return json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["fedrank"])


def _refused(path):
    with pytest.raises(FedrankError) as caught:
        fedrank.load(path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)
    return caught.value


@pytest.mark.parametrize("kept", [0, 5, 40, 200, -1])
def test_a_truncated_file_is_refused(file, kept):
    file.write_bytes(file.read_bytes()[:kept])
    assert isinstance(_refused(file), ModelError)


def test_a_file_of_something_else_is_refused(file, tmp_path):
    other = tmp_path / "text.safetensors"
    other.write_text("no model at all")
    assert isinstance(_refused(other), ModelError)
    save_file(load_file(file), other)
    assert isinstance(_refused(other), ModelError)
    assert isinstance(_refused(tmp_path / "nothing.safetensors"), ModelError)


@pytest.mark.parametrize("change", ["format", "architecture", "about", "n_features", "tensor"])
def test_a_file_whose_parts_do_not_fit_is_refused(file, change):
    header, tensors = _header(file), load_file(file)
    if change == "n_features":
        header["architecture"]["n_features"] = 5
    elif change == "tensor":
        tensors = {"other": tensors["weight"]}
    else:
        header[change] = 99 if change == "format" else {} if change == "architecture" else header.pop(change) and None
        header = {name: value for name, value in header.items() if value is not None}
    save_file(tensors, file, {"fedrank": json.dumps(header)})
    assert isinstance(_refused(file), ModelError)


def test_a_task_that_is_not_installed_is_named(file):
    header = _header(file) | {"task": "of-another-package"}
    save_file(load_file(file), file, {"fedrank": json.dumps(header)})
    with pytest.raises(FedrankError, match="of-another-package"):
        fedrank.load(file)


def test_the_model_of_a_run_is_found_by_seed_and_party(tmp_path):
    with pytest.raises(ModelError):
        model_of_run(tmp_path)
    folder = tmp_path / "weights"
    folder.mkdir()
    for name in ("0-mine-seed1", "1-yours-seed1", "0-mine-seed2", "1-yours-seed2"):
        (folder / f"{name}.safetensors").touch()
    assert model_of_run(tmp_path, 2, "yours").stem == "1-yours-seed2"
    assert model_of_run(tmp_path, party="mine").stem == "0-mine-seed1"
    with pytest.raises(ModelError, match="mine"):
        model_of_run(tmp_path)
    with pytest.raises(ModelError, match="1, 2"):
        model_of_run(tmp_path, 7)
    with pytest.raises(FedrankError, match="his"):
        model_of_run(tmp_path, 1, "his")


def test_a_model_that_all_parties_share_is_no_partys_own(file, tmp_path):
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "seed1.safetensors").write_bytes(file.read_bytes())
    assert model_of_run(tmp_path, party="mine").stem == "seed1"
    assert read_model_of_run(tmp_path).n_features == 4
    with pytest.raises(ModelError, match="mine"):
        read_model_of_run(tmp_path, party="mine")
    (folder / "seed1.safetensors").rename(folder / "0-mine-seed1.safetensors")
    assert read_model_of_run(tmp_path, party="mine").n_features == 4


def test_every_layer_means_in_onnx_what_it_says():
    runtime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    x = rng.normal(2000, 3, size=(6, 4)).astype(np.float32)
    x[1, 2] = np.nan
    mean, deviation = np.full(4, 2000.0), np.array([3.0, 0.0, 2.0, 1.0])
    scale, shift, weight = rng.normal(size=4), rng.normal(size=4), rng.normal(size=(4, 3))
    bias, last = rng.normal(size=3), rng.normal(size=(3, 1))
    layers = (
        Standardise(mean, deviation),
        QueryMinMax(),
        Affine(scale, shift),
        LayerNorm(scale, shift, 1e-5),
        Dense(weight, bias),
        Relu(),
        Dense(last),
    )
    session = runtime.InferenceSession(to_onnx(layers, 4), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"features": x})
    y = np.where(np.isnan(x) | (deviation == 0), 0, (x - mean) / np.where(deviation > 0, deviation, 1))
    span = np.ptp(y, axis=0)
    y = np.where(span > 0, (y - y.min(axis=0)) / np.where(span > 0, span, 1), 0) * scale + shift
    y = (y - y.mean(axis=1, keepdims=True)) / np.sqrt(y.var(axis=1, keepdims=True) + 1e-5) * scale + shift
    expected = (np.maximum(y @ weight + bias, 0) @ last)[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())


def test_every_layer_means_in_pytorch_what_it_says():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    x = rng.normal(2000, 3, size=(6, 4)).astype(np.float32)
    x[:, 1] = 7  # constant
    mean, deviation = np.full(4, 2000.0), np.array([3.0, 0.0, 2.0, 1.0])
    scale, shift, weight = rng.normal(size=4), rng.normal(size=4), rng.normal(size=(4, 3))
    bias, last = rng.normal(size=3), rng.normal(size=(3, 1))
    layers = (
        Standardise(mean, deviation),
        QueryMinMax(),
        QueryStandardise(1e-12),
        Affine(scale, shift),
        LayerNorm(scale, shift, 1e-5),
        Dense(weight, bias),
        Relu(),
        Softmax(),
        Dense(last),
    )
    with torch.no_grad():
        found = to_torch(layers)(torch.from_numpy(x)).numpy()
    y = np.where(deviation == 0, 0, (x - mean) / np.where(deviation > 0, deviation, 1))
    y = y.astype(np.float32).astype(np.float64)
    span = np.ptp(y, axis=0)
    y = np.where(span > 0, (y - y.min(axis=0)) / np.where(span > 0, span, 1), 0)
    y = (y - y.mean(axis=0)) / np.where(y.std(axis=0) > 1e-6, y.std(axis=0), 1) * scale + shift
    y = (y - y.mean(axis=1, keepdims=True)) / np.sqrt(y.var(axis=1, keepdims=True) + 1e-5) * scale + shift
    y = np.exp(np.maximum(y @ weight + bias, 0))
    expected = (y / y.sum(axis=1, keepdims=True) @ last)[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())
