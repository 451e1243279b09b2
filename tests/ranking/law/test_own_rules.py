"""Rules of aggregation of the caller's own, handed over as objects."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedrank
from fedrank.aggregation import differences, robust
from fedrank.core.errors import ConfigError

SMALL = {"clients": 5, "rounds": 3, "compute": {"kernels": "off"}, "baselines": []}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    features = rng.uniform(size=(40, 3))
    return features, (features[:, 0] > 0.5).astype(int), np.repeat(np.arange(8), 5)


def _weights(protocol, data, **settings):
    return fedrank.train(protocol, data, **SMALL, **settings).model().tensors["weight"]


def test_an_own_rule_that_is_the_mean_trains_the_same_model_and_another_does_not(data, tmp_path):
    def mean(vectors, weights, arrived, byzantine):
        return robust.mean(vectors, weights, arrived, byzantine)

    def largest(vectors, weights, arrived, byzantine):
        del weights, byzantine
        return jnp.max(jnp.where(arrived[:, None], vectors, -jnp.inf), axis=0)

    built_in = _weights("foltr-pdgd", data)
    np.testing.assert_array_equal(_weights("foltr-pdgd", data, aggregate=mean), built_in)
    result = fedrank.train("foltr-pdgd", data, **SMALL, aggregate=largest, folder=tmp_path / "run")
    assert result.run.config["aggregate"] == "own"
    other = result.model().tensors["weight"]
    assert (other > built_in).all()


def test_foltr_es_takes_a_function_of_differences(data):
    def mean(values, arrived):
        return differences.mean(values, arrived)

    built_in = _weights("foltr-es", data)
    assert built_in.any()
    np.testing.assert_array_equal(_weights("foltr-es", data, aggregate=mean), built_in)
    assert not _weights("foltr-es", data, aggregate=lambda values, arrived: 0 * values).any()


@pytest.mark.parametrize(
    ("protocol", "rule", "word"),
    [
        ("foltr-pdgd", 3, "function"),
        ("foltr-pdgd", lambda differences, arrived: differences, "vectors"),
        ("foltr-pdgd", lambda vectors, weights, arrived, byzantine: vectors, r"shape \(2000, 3\)"),
        ("foltr-es", lambda values, arrived: values.sum(), "coefficients"),
        ("foltr-es", lambda values, arrived: 1, r"shape \(\)"),
        ("bandit-fedavg", lambda values, arrived: values, "means nothing to this protocol"),
    ],
)
def test_what_is_no_rule_is_refused(protocol, rule, word, data):
    with pytest.raises(ConfigError, match=word):
        fedrank.run(protocol, data if protocol.startswith("foltr") else None, aggregate=rule)


def test_a_secure_sum_takes_no_own_rule(data):
    with pytest.raises(ConfigError, match="single"):
        _weights("foltr-pdgd", data, aggregate=lambda v, w, a, b: v[0], privacy={"name": "secure-sum", "clip": 1.0})
