"""A learner of somebody else, in one file: handed over as an object, and named by an installed package."""

import dataclasses
import json
import sys
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

import fedrank
from fedrank.core import registry
from fedrank.core.errors import ConfigError, ModelError, UnknownNameError
from fedrank.engine.settings import from_dict
from fedrank.slates.build import experiment_of
from fedrank.slates.fedslate.learner import SlateQ, ValueLearner
from fedrank.slates.sums import SummedSlates, SumSharing
from fedrank.slates.sums.learner import SumLearner, item_feature
from fedrank.slates.world.satisfaction import Satisfaction

WORLD = Satisfaction(candidates=4, slate=2, time_budget=6)
FEEDBACK = (True, False)


@dataclass(frozen=True)
class MeanOfItem(SumLearner):
    """A click is worth what items like it engaged on the whole: linear in the item's feature."""

    name = "mean-of-item"
    numbers = 2
    parameters = 2

    def contribution(self, own, item, engagement):
        return jnp.stack([engagement, engagement * item])

    def solve(self, sums, rounds, model, noise):
        return sums / jnp.maximum(rounds, 1.0)

    def values(self, own):
        return own.model[0] + own.model[1] * item_feature(own.view.documents)


def test_a_learner_that_makes_no_model_is_refused_where_it_is_written():
    with pytest.raises(TypeError, match=r"Nothing .*solve_platforms"):

        class Nothing(SumLearner):
            name = "nothing"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    protocol = SummedSlates(MeanOfItem(WORLD, FEEDBACK, explorers=(3,), clip=1e4))
    settings = {"rounds": 12, "seeds": 2, "evaluation": {"every": 6, "episodes": 3, "baselines": ["random"]}}
    return fedrank.run(protocol, folder=tmp_path_factory.mktemp("own") / "run", **settings).path


@pytest.mark.slow
def test_its_model_is_of_the_engagement_that_users_brought(folder):
    from safetensors.numpy import load_file

    users = pl.read_parquet(folder / "episodes.parquet").filter((pl.col("platform") == "A") & (pl.col("episode") < 3))
    for seed in range(2):
        brought = users.filter(pl.col("seed") == seed)["engagement"].sum()
        model = load_file(folder / "weights" / f"seed{seed}.safetensors")["federated"]
        # Three users of three rounds; sums are rounded towards zero in steps of clip / 2^14.
        assert model[0] == pytest.approx(brought / 9, abs=1e4 / 2**14)


@pytest.mark.slow
def test_what_crosses_and_what_is_promised_follow_from_its_numbers(folder):
    ledger = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    crossed = {line["message"]: line["bytes"] for line in ledger}
    assert crossed == {"RoundStart": 5, "Statistics": 1 + 8, "SharedModel": 2 * (1 + 8), "Done": 2}
    assert json.loads((folder / "privacy.json").read_text())["epsilon_round"] is None


def test_noise_is_measured_by_its_numbers_whatever_they_are():
    noisy = SummedSlates(MeanOfItem(WORLD, FEEDBACK), SumSharing(epsilon=2.0))
    # The classical bound for ε ≤ 1 is far above at ε = 2: σ lies between half of it and it.
    classical = noisy.sensitivity * np.sqrt(2 * np.log(1.25 / noisy.delta)) / 2.0
    assert classical / 2 < noisy.sigma < classical


def _configured(learner, **slates):
    settings = {"protocol": "planned-slates", "world": {"candidates": 4, "slate": 2, "time_budget": 6}, "rounds": 60}
    return experiment_of(from_dict(settings | {"slates": {"learner": learner, **slates}}).resolved()).protocol


@pytest.fixture
def installed(tmp_path, monkeypatch):
    about = tmp_path / "mine-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[fedrank.slate_learners]\nmine = {__name__}:MeanOfItem\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    registry._points.cache_clear()
    registry.get.cache_clear()
    yield
    registry._points.cache_clear()
    registry.get.cache_clear()


def test_an_installed_package_names_it(installed):
    learner = _configured("mine", explorers=5, releases=2).learner
    assert learner == MeanOfItem(learner.world, FEEDBACK, explorers=(3, 2))


def test_learners_are_found_by_name_and_refused_where_they_do_not_fit():
    with pytest.raises(UnknownNameError, match="planned-slates"):
        _configured("planned-slate")
    with pytest.raises(ConfigError, match="vertical-slate"):
        _configured("slateq")


def test_a_protocol_made_for_other_users_is_refused():
    """It would learn from its own users and be judged by those that are handed over."""
    protocol = SummedSlates(MeanOfItem(WORLD, FEEDBACK, explorers=(3,), clip=1e4))
    config = from_dict({"protocol": "planned-slates", "rounds": 200}).resolved()
    assert experiment_of(config, protocol, WORLD).world == WORLD == experiment_of(config, protocol).world
    with pytest.raises(ConfigError, match="other users"):
        experiment_of(config, protocol, Satisfaction(candidates=5, slate=2, time_budget=6))


def test_arrays_without_a_model_are_said_to_be_such(folder):
    with pytest.raises(ModelError, match="does not say how they score"):
        fedrank.load(folder)


class Twice(SlateQ):
    """Values are twice those of the network: an own critic of values in one class."""

    def values_of(self, weights, user, items):
        return 2 * super().values_of(weights, user, items)


def test_a_critic_of_values_is_one_class():
    settings = {"protocol": "vertical-slate", "world": {"candidates": 4, "slate": 2, "time_budget": 6}}
    experiment = experiment_of(from_dict(settings).resolved())
    plain = experiment.protocol
    mine = dataclasses.replace(plain, critic=Twice)
    assert isinstance(mine.learner, ValueLearner) and all(e.learner == mine.learner for e in mine.exchanges)
    own = plain.platform(jax.random.key(0), 0)
    np.testing.assert_allclose(mine.learner.values(own), 2 * plain.learner.values(own), rtol=1e-6)
