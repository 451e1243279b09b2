"""Rankers of the caller's own: a function of JAX, a module of PyTorch."""

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

import fedrank
from fedrank.core.errors import ConfigError, ModelError
from fedrank.engine.run import build, resume_experiment
from fedrank.engine.settings import from_dict
from fedrank.engine.task import Given
from fedrank.ranking.clicks.cascade import USERS
from fedrank.ranking.rankers.given import as_ranker
from fedrank.ranking.rankers.mlp import TwoLayer
from fedrank.ranking.rankers.own import FunctionRanker

FEATURES, HIDDEN = 4, 3
SMALL = {
    "clients": 6,
    "rounds": 4,
    "seeds": 2,
    "compute": {"kernels": "off"},
    "evaluation": {"every": 2, "measures": ["nDCG(dcg='exp-log2')@10"], "baselines": []},
}


def _two_layers(parameters, features):
    """The built-in two-layer ranker once more."""
    into, bias, out = parameters
    hidden = jnp.einsum("...f,hf->...h", features, into, precision=jax.lax.Precision.HIGHEST)
    hidden = jax.nn.relu(hidden + jnp.broadcast_to(bias, hidden.shape))
    return jnp.einsum("...h,h->...", hidden, out, precision=jax.lax.Precision.HIGHEST)


def _twin(features=FEATURES):
    start = (np.zeros((HIDDEN, features)), np.zeros(HIDDEN), np.zeros(HIDDEN))
    return FunctionRanker(_two_layers, start, n_features=features)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(60, FEATURES))
    return features, (features[:, 0] > 0).astype(int) + (features[:, 1] > 1), np.repeat(np.arange(12), 5)


def test_a_function_scores_and_differentiates_as_the_built_in_ranker_that_it_is():
    rng = np.random.default_rng(1)
    own, built_in = _twin(), TwoLayer(FEATURES, HIDDEN)
    assert own.size == built_in.size and not own.initial().any()
    weights, features = rng.normal(size=own.size).astype(np.float32), rng.normal(size=(7, 5, FEATURES))
    features = features.astype(np.float32)
    np.testing.assert_allclose(own.scores(weights, features), built_in.scores(weights, features), rtol=1e-6)
    slopes = [
        jax.grad(lambda w, r=r: jnp.sum(r.scores(w, features) ** 2))(jnp.asarray(weights)) for r in (own, built_in)
    ]
    np.testing.assert_allclose(*slopes, rtol=1e-5, atol=1e-5)
    assert {name: part.shape for name, part in own.tensors(weights).items()} == {"0": (3, 4), "1": (3,), "2": (3,)}


@pytest.mark.parametrize("protocol", ["foltr-es", "foltr-pdgd"])
@pytest.mark.slow
def test_a_function_trains_to_the_curve_of_the_built_in_ranker(protocol, data, tmp_path):
    ours = fedrank.run(protocol, data, folder=tmp_path / "own", ranker=_twin(), **SMALL).path
    built = fedrank.run(protocol, data, folder=tmp_path / "built", ranker="mlp", hidden=HIDDEN, **SMALL).path
    one, other = (pl.read_parquet(folder / "metrics.parquet") for folder in (ours, built))
    key = ["seed", "round", "split", "measure"]
    one, other = one.sort(key), other.sort(key)
    assert one.select(key).equals(other.select(key)) and one["value"].std() > 0
    np.testing.assert_allclose(one["value"], other["value"], rtol=1e-6, atol=1e-6)
    assert 'ranker = "own"' in (ours / "config.toml").read_text()
    with pytest.raises(ModelError, match="own"):
        fedrank.load(ours)
    model, twin = fedrank.load(ours, own=_twin()), fedrank.load(built)
    np.testing.assert_allclose(model.score(data[0], data[2]), twin.score(data[0], data[2]), rtol=1e-5, atol=1e-6)
    assert np.ptp(model.weights) > 0


@pytest.mark.slow
def test_a_run_with_a_ranker_of_its_own_goes_on_with_it_and_not_without(data, tmp_path):
    from fedrank.engine.progress import Listener

    class Stop(Listener):
        def progress(self, progress):
            if progress.round >= 2:
                raise KeyboardInterrupt

    whole = fedrank.run("foltr-es", data, folder=tmp_path / "whole", ranker=_twin(), **SMALL).path
    with pytest.raises(KeyboardInterrupt):
        fedrank.run("foltr-es", data, folder=tmp_path / "half", ranker=_twin(), listener=Stop(), **SMALL)
    with pytest.raises(ConfigError, match="ranker"):
        resume_experiment(tmp_path / "half", data=data)
    half = resume_experiment(tmp_path / "half", data=data, own={"ranker": _twin()})
    one, other = (fedrank.load(folder, own=_twin()).weights for folder in (whole, half))
    np.testing.assert_array_equal(one, other)


def test_a_click_model_may_be_an_object(data):
    user = USERS.get("perfect")(5, 10)
    config = from_dict({"protocol": "foltr-es", "clicks": "own", **SMALL})
    from fedrank.ranking.task import TASK

    made = TASK.build(config, Given(data=data, own={"clicks": user}))
    assert made.protocol.user is user
    with pytest.raises(ConfigError, match="clicks"):
        TASK.build(config, Given(data=data, own={"clicks": "perfect"}))
    with pytest.raises(ConfigError, match="clicks"):
        build(config)


def test_what_is_no_ranker_is_refused():
    with pytest.raises(ConfigError, match="4"):
        as_ranker(TwoLayer(3), 4)
    with pytest.raises(ConfigError, match="dict"):
        as_ranker({}, 4)
    with pytest.raises(ConfigError, match=r"\(3, 4\)"):
        FunctionRanker(lambda p, x: x * p, np.zeros(4), n_features=4)
    with pytest.raises(ConfigError, match="parameters"):
        FunctionRanker(lambda p, x: x[:, 0], (), n_features=4)
    with pytest.raises(ConfigError, match="own word"):
        FunctionRanker(lambda p, x: int("own word"), np.zeros(4), n_features=4)


def test_a_module_of_pytorch_scores_as_pytorch_does():
    torch = pytest.importorskip("torch")
    from torch import nn

    class Averaged(nn.Module):
        def forward(self, x):
            return x.mean(1)

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm = nn.Linear(FEATURES, 8), nn.LayerNorm(8)
            self.second, self.last = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.5)), nn.Linear(16, 1)
            self.scale = nn.Parameter(torch.full((8,), 0.5))

        def forward(self, x):
            hidden = torch.tanh(self.norm(self.first(x)))
            return self.last(torch.cat([hidden, hidden + self.second(hidden) * self.scale], 1)).squeeze(-1)

    torch.manual_seed(0)
    module = Plain()
    ranker = as_ranker(module, FEATURES)
    features = np.random.default_rng(2).normal(size=(6, FEATURES)).astype(np.float32)
    with torch.no_grad():
        expected = module.eval()(torch.from_numpy(features)).numpy()
    np.testing.assert_allclose(ranker.scores(ranker.initial(), features), expected, rtol=1e-5, atol=1e-6)
    assert ranker.size == sum(p.numel() for p in module.parameters())
    with pytest.raises(ConfigError, match="BatchNorm1d"):
        as_ranker(nn.Sequential(nn.Linear(FEATURES, 2), nn.BatchNorm1d(2), nn.Linear(2, 1)), FEATURES)
    with pytest.raises(ConfigError, match="mean"):
        as_ranker(Averaged(), FEATURES)


@pytest.mark.slow
def test_a_module_of_pytorch_trains_to_the_curve_of_the_built_in_ranker(data, tmp_path):
    torch = pytest.importorskip("torch")
    from torch import nn

    module = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1, bias=False))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    ours = fedrank.run("foltr-es", data, folder=tmp_path / "own", ranker=module, **SMALL)
    built = fedrank.run("foltr-es", data, folder=tmp_path / "built", ranker="mlp", hidden=HIDDEN, **SMALL)
    key = ["seed", "round", "split", "measure"]
    one, other = ours.metrics.sort(key), built.metrics.sort(key)
    np.testing.assert_allclose(one["value"], other["value"], rtol=1e-6, atol=1e-6)
    assert one["value"].std() > 0
    np.testing.assert_allclose(
        ours.model().score(data[0], data[2]), built.model().score(data[0], data[2]), rtol=1e-5, atol=1e-6
    )
