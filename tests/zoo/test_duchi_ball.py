"""The L2 ball of Duchi, Jordan and Wainwright against its closed form in two and three dimensions."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import Unit
from fedrank.ranking.mechanisms.weights import WeightsReply
from fedrank_zoo.duchi_ball import DuchiBall


def replies(made, vector, trials=40_000):
    rng = np.random.default_rng(3)
    noise = rng.random(trials), rng.random(trials), rng.normal(size=(trials, len(vector)))
    vectors = np.broadcast_to(np.asarray(vector, np.float32), (trials, len(vector)))
    return np.asarray(made.message(vectors, np.ones(trials, np.int32), noise).weights, np.float64)


# On a circle a coordinate's mean absolute value is 2/π, on a sphere 1/2.
@pytest.mark.parametrize(("vector", "mean_part"), [((0.3, -0.4), 2 / math.pi), ((0.0, 0.0, 2.0), 0.5)])
def test_replies_have_one_length_and_the_vectors_mean(vector, mean_part):
    made = DuchiBall(epsilon=1.5, clip=2.0, size=len(vector))
    sent = replies(made, vector)
    radius = 2.0 * (math.exp(1.5) + 1) / (math.exp(1.5) - 1) / mean_part
    np.testing.assert_allclose(np.linalg.norm(sent, axis=1), radius, rtol=1e-5)
    error = sent.std(axis=0) / math.sqrt(len(sent))
    assert (np.abs(sent.mean(axis=0) - vector) < 4 * error).all()


def test_the_side_is_as_likely_as_epsilon_allows_and_no_likelier():
    sent = replies(DuchiBall(epsilon=1.0, clip=1.0, size=2), (0.0, 5.0))  # clipped
    share = (sent[:, 1] > 0).mean()
    assert abs(share - math.e / (1 + math.e)) < 4 * math.sqrt(0.25 / len(sent))


def test_a_device_without_a_change_says_either_side():
    sent = replies(DuchiBall(epsilon=1.0, size=2), (0.0, 0.0))
    assert np.isfinite(sent).all() and abs((sent[:, 0] > 0).mean() - 0.5) < 4 * math.sqrt(0.25 / len(sent))


def test_rounds_add_up_and_the_audit_finds_no_more():
    made = DuchiBall(epsilon=0.5, size=4)
    assert made.account(6, 1e-6).epsilon(Unit.USER) == 3.0
    found = DuchiBall.audit(1.0)
    first, second = (found.sample(world, 40_000).mean() for world in (0, 1))
    assert abs(math.log(first / second) - 1.0) < 0.06


def test_the_server_adds_the_mean_change_to_its_weights():
    made, state = DuchiBall(size=2), SimpleNamespace(weights=np.array([5.0, 7.0], np.float32), noise=None)
    sent = WeightsReply(np.array([[1.0, 0.0], [2.0, -2.0], [9.0, 9.0]], np.float32), np.ones(3, np.int32))
    weights, heard, _ = made.combine(state, sent, np.array([True, True, False]), "mean", 0)
    assert heard and weights.tolist() == [6.5, 6.0]


def test_an_attacker_moves_the_model_no_further_than_an_honest_device():
    made, state = DuchiBall(epsilon=1.0, size=2), SimpleNamespace(weights=np.zeros(2, np.float32), noise=None)
    sent = WeightsReply(np.array([[1e6, 0.0]], np.float32), np.ones(1, np.int32))
    moved = made.combine(state, sent, np.array([True]), "mean", 0)[0]
    np.testing.assert_allclose(moved, [math.pi / 2 / math.tanh(0.5), 0.0], rtol=1e-4)


@pytest.mark.parametrize("wrong", [{"epsilon": 0.0}, {"epsilon": float("nan")}, {"clip": 0.0}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ConfigError):
        DuchiBall(**wrong)
