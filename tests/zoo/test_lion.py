"""Lion as a server's step, against Optax."""

import numpy as np
import optax
import pytest

from fedrank import FoltrPDGD
from fedrank.core.errors import ConfigError
from fedrank.engine.settings import from_table
from fedrank_zoo.lion import Lion


@pytest.mark.parametrize("settings", [{}, {"learning_rate": 0.02, "beta_1": 0.8, "beta_2": 0.95}])
def test_steps_are_those_of_optax(settings):
    rng, ours = np.random.default_rng(5), Lion(**settings)
    theirs = optax.lion(ours.learning_rate, ours.beta_1, ours.beta_2, weight_decay=0.0)
    weights = expected = rng.normal(size=6).astype(np.float32)
    state, other = ours.init(weights), theirs.init(weights)
    for _ in range(5):
        way = rng.normal(size=6).astype(np.float32)
        weights, state = ours.step(state, weights, way, np.asarray(True))
        update, other = theirs.update(-way, other, expected)
        expected = np.asarray(optax.apply_updates(expected, update))
        np.testing.assert_allclose(weights, expected, rtol=1e-5)


def test_nothing_moves_without_replies():
    step, weights = Lion(), np.ones((2, 3), np.float32)
    moved, state = step.step(step.init(weights), weights, weights, np.array([False, True]))
    assert (moved[0] == 1).all() and (state[0] == 0).all()
    assert (moved[1] > 1).all() and (state[1] > 0).all()


def test_it_is_a_server_step_of_runs():
    assert from_table({"server": {"name": "lion", "beta_2": 0.9}}, FoltrPDGD()).server == Lion(beta_2=0.9)


@pytest.mark.parametrize("wrong", [{"learning_rate": 0.0}, {"beta_1": 1.0}, {"beta_2": -0.1}, {"beta_1": float("nan")}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ConfigError, match="beta_1"):
        Lion(**wrong)
