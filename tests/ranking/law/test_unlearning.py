"""Unlearning devices, measured."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from short_settings import run_of

from fedrank.core.errors import ConfigError
from fedrank.engine.settings import with_setting
from fedrank.ranking.config import Attack, Evaluation
from fedrank.ranking.mechanisms.weights import WeightsReply
from fedrank_zoo.reproduce.study import load_file

UNLEARNING = load_file(Path(__file__).parents[3] / "reproductions" / "foltr_study_2021" / "unlearning.py")
unlearn, Logged, replayed_updates = UNLEARNING.unlearn, UNLEARNING.Logged, UNLEARNING.replayed_updates
ball, calibrate_updates, project_onto_ball = UNLEARNING.ball, UNLEARNING.calibrate_updates, UNLEARNING.project_onto_ball


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    random = np.random.default_rng(0)
    rows = []
    for query in range(30):
        for _ in range(6):
            x = random.random(3)
            rows.append(f"{int(x[0] > 0.6)} qid:{query} 1:{x[0]:.3f} 2:{x[1]:.3f} 3:{x[2]:.3f}")
    path = tmp_path_factory.mktemp("data") / "set.txt"
    path.write_text("\n".join(rows) + "\n")
    return run_of("foltr-es", 
        data=str(path), clicks="perfect", clients=200, rounds=10, seeds=3, server=dict(learning_rate=0.02), sigma=0.1,
        privacy=dict(p=1.0), evaluation=Evaluation(measures=("nDCG(dcg='exp-log2')@10",)),
        attack=Attack(kind="inverted-metric", share=0.4),
    )  # fmt: skip


@pytest.mark.slow
def test_replay_takes_out_what_attackers_said(config):
    """Two of five devices report good as bad: the model learns a fifth of what it could."""
    ways = {way.name: way for way in unlearn(config, 0.4, 5)}
    assert list(ways) == [
        "as trained",
        "replay",
        "fine-tuning, 5 rounds",
        "retraining",
        "retraining, another seed",
    ]
    quality = {name: way.values["train", "nDCG(dcg='exp-log2')@10"].mean() for name, way in ways.items()}
    assert quality["replay"] > quality["as trained"] and quality["retraining"] > quality["as trained"]
    assert (ways["retraining"].distance == 0).all()
    # It removes the messages, not the part they had in the others' rewards: closer, and not the same.
    assert 0 < ways["replay"].distance.mean() < ways["as trained"].distance.mean()
    assert all(way.seconds > 0 for way in ways.values())


@pytest.mark.slow
def test_replay_goes_astray_where_learning_has_ended(config):
    """The replayed model runs ahead of the one that the rewards were measured at, and nothing calls it back."""
    ways = {
        way.name: way for way in unlearn(with_setting(replace(config, rounds=40), "server.learning_rate", 0.01), 0.4, 5)
    }
    assert ways["replay"].distance.mean() > 2 * ways["as trained"].distance.mean()


@pytest.mark.slow
def test_what_is_left_of_devices_that_sent_weights(config):
    """Half of the devices click on what is worst: every method brings back quality, and takes influence away."""
    fpdgd = run_of("foltr-pdgd", 
        data=config.data, clicks="perfect", clients=20, rounds=20, seeds=2, evaluation=config.evaluation,
        attack=Attack(kind="poisoned-clicks", share=0.5),
    )  # fmt: skip
    ways = {way.name: way for way in unlearn(fpdgd, 0.5, 5)}
    assert list(ways) == [
        "as trained",
        "replay",
        "FedEraser, every round",
        "FedEraser, one round of 5",
        "gradient ascent, 5 rounds, and fine-tuning, 5",
        "fine-tuning, 5 rounds",
        "retraining",
        "retraining, another seed",
    ]
    trained, retrained = ways["as trained"], ways["retraining"]
    np.testing.assert_allclose(trained.influence, 1)
    np.testing.assert_allclose(retrained.influence, 0)
    np.testing.assert_allclose(retrained.cosine, 1)
    assert (trained.wish > retrained.wish).all()
    for name in list(ways)[1:6]:
        assert (ways[name].wish < trained.wish).all(), name
        assert (
            ways[name].values["train", "nDCG(dcg='exp-log2')@10"].mean()
            > trained.values["train", "nDCG(dcg='exp-log2')@10"].mean()
        ), name
    # 20 devices, 3 features: 17 bytes down and 15 up, in so many rounds of so many devices.
    for name, answers in (("as trained", 400), ("replay", 0), ("FedEraser, one round of 5", 40), ("retraining", 200)):
        np.testing.assert_allclose(ways[name].crossed, answers * 32 / 1e6)
    np.testing.assert_allclose(ways["gradient ascent, 5 rounds, and fine-tuning, 5"].crossed, 100 * 32 / 1e6)


def test_steps_of_the_methods_by_hand():
    stored, anew = np.array([[3.0, 4.0], [1.0, 0.0]]), np.array([[0.0, 2.0], [0.0, 0.0]])
    np.testing.assert_allclose(calibrate_updates(stored, anew), [[0, 5], [0, 0]])
    centre, radius = np.array([[1.0, 1.0]]), np.array([2.0])
    np.testing.assert_allclose(project_onto_ball(np.array([[1.0, 5.0]]), centre, radius), [[1, 3]])
    np.testing.assert_allclose(project_onto_ball(np.array([[2.0, 1.0]]), centre, radius), [[2, 1]])
    # Two rounds of three devices, the last of which is forgotten; device 1 is not heard in round 2.
    sent = np.array([[[[1.0]], [[3.0]], [[9.0]]], [[[5.0]], [[0.0]], [[8.0]]]]).transpose(0, 2, 1, 3)
    counts, arrived = np.array([[[1, 3, 4]], [[2, 2, 2]]]), np.array([[[True] * 3], [[True, False, True]]])
    log = Logged.of(np.zeros((1, 1)), WeightsReply(sent, counts), arrived)
    after = (1 * 1 + 3 * 3 + 9 * 4) / 8
    np.testing.assert_allclose(log.updates[1, 0, :, 0], [5 - after, 0, 8 - after])
    np.testing.assert_allclose(replayed_updates(log, np.array([True, True, False])), [[10 / 4 + 5 - after]])
    # Random directions of the model's length are √2 lengths away on average.
    assert abs(float(ball(np.full((1, 400), 0.1))[0]) / (2 / 3 * 2**0.5) - 1) < 0.05


def test_other_protocols_have_no_log_to_replay(config):
    with pytest.raises(ConfigError, match="log of seeds"):
        unlearn(run_of("pdgd", data=config.data), 0.1, 5)


@pytest.mark.parametrize(
    ("changes", "share", "says"),
    [
        ({"seeds": 1}, 0.4, "at least 2"),
        ({}, 0.1, "make them equal"),
        ({"attack": Attack()}, 0.0, "some must go"),
    ],
)
def test_what_cannot_be_forgotten_is_said(config, changes, share, says):
    with pytest.raises(ConfigError, match=says):
        unlearn(replace(config, **changes), share, 5)
