"""Unlearning devices, measured."""

from dataclasses import replace

import numpy as np
import pytest

from fedrank.core.errors import ConfigError
from fedrank.ranking.config import Attack, Evaluation, FoltrESConfig, FoltrESPrivacy, PDGDConfig
from fedrank.ranking.unlearning import unlearn


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
    return FoltrESConfig(
        data=str(path), clicks="perfect", clients=200, rounds=10, seeds=3, learning_rate=0.02, sigma=0.1,
        privacy=FoltrESPrivacy(p=1.0), evaluation=Evaluation(measures=("nDCG@10",)),
        attack=Attack(kind="inverted-metric", share=0.4),
    )  # fmt: skip


@pytest.mark.slow
def test_replay_takes_out_what_attackers_said(config):
    """Two of five devices report good as bad: the model learns a fifth of what it could."""
    ways = {way.name: way for way in unlearn(config, 0.4, 5)}
    assert list(ways) == ["as trained", "replay", "fine-tuning, 5 rounds", "retraining"]
    quality = {name: way.values["train", "nDCG@10"].mean() for name, way in ways.items()}
    assert quality["replay"] > quality["as trained"] and quality["retraining"] > quality["as trained"]
    assert (ways["retraining"].distance == 0).all()
    # It removes the messages, not the part they had in the others' rewards: closer, and not the same.
    assert 0 < ways["replay"].distance.mean() < ways["as trained"].distance.mean()
    assert all(way.seconds > 0 for way in ways.values())


@pytest.mark.slow
def test_replay_goes_astray_where_learning_has_ended(config):
    """The replayed model runs ahead of the one that the rewards were measured at, and nothing calls it back."""
    ways = {way.name: way for way in unlearn(replace(config, rounds=40, learning_rate=0.01), 0.4, 5)}
    assert ways["replay"].distance.mean() > 2 * ways["as trained"].distance.mean()


def test_other_protocols_have_no_log_to_replay(config):
    with pytest.raises(ConfigError, match="log of seeds"):
        unlearn(PDGDConfig(data=config.data), 0.1, 5)


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
