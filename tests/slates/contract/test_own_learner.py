"""A learner of somebody else, in one file: handed over as an object, and named by an installed package."""

import json
import sys
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

import fedrank
from fedrank.core import plugins
from fedrank.core.errors import ConfigError, ModelError, UnknownNameError
from fedrank.engine.run import run
from fedrank.engine.settings import from_dict
from fedrank.slates.build import experiment_of
from fedrank.slates.fedslate.learner import SlateQ, ValueLearner
from fedrank.slates.learners.constant import Constant
from fedrank.slates.learners.least_squares import LeastSquares
from fedrank.slates.sums import SummedSlates, SumSettings
from fedrank.slates.sums.learner import SumLearner, item_feature
from fedrank.slates.world.satisfaction import Satisfaction, Turn

WORLD = Satisfaction(candidates=4, slate=2, time_budget=6)
FEEDBACK = (True, False)


@dataclass(frozen=True)
class MeanOfItem(SumLearner):
    """A click is worth what items like it engaged on the whole: linear in the item's feature."""

    twice: bool = False

    name = "mean-of-item"
    numbers = 2
    parameters = 2

    def contribution(self, own, item, engagement):
        return jnp.stack([engagement, engagement * item])

    def solved(self, sums, rounds, model, noise):
        return sums / jnp.maximum(rounds, 1.0)

    def values(self, own):
        return own.model[0] + own.model[1] * item_feature(own.view.documents)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    protocol = SummedSlates(SumSettings(MeanOfItem(WORLD, FEEDBACK, explorers=(3,), clip=1e4)))
    settings = {"rounds": 12, "seeds": 2, "evaluation": {"every": 6, "episodes": 3, "baselines": ["random"]}}
    return run(protocol, tmp_path_factory.mktemp("own") / "run", **settings)


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
    noisy = SumSettings(MeanOfItem(WORLD, FEEDBACK), epsilon=2.0)
    # The classical bound for ε ≤ 1 is far above at ε = 2: σ lies between half of it and it.
    classical = noisy.sensitivity * np.sqrt(2 * np.log(1.25 / noisy.delta)) / 2.0
    assert classical / 2 < noisy.sigma < classical


def _configured(learner, **slates):
    settings = {"protocol": "learned-slates", "world": {"candidates": 4, "slate": 2, "time_budget": 6}, "rounds": 60}
    return experiment_of(from_dict(settings | {"slates": {"learner": learner, **slates}}).resolved()).protocol


@pytest.fixture
def installed(tmp_path, monkeypatch):
    about = tmp_path / "mine-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[fedrank.slate_learners]\nmine = {__name__}:MeanOfItem\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    plugins._points.cache_clear()
    plugins.get.cache_clear()
    yield
    plugins._points.cache_clear()
    plugins.get.cache_clear()


def test_an_installed_package_names_it_and_options_are_its_fields(installed):
    protocol = _configured("mine", explorers=5, releases=2, options=["twice=1"])
    learner = protocol.settings.learner
    assert learner == MeanOfItem(learner.world, FEEDBACK, explorers=(3, 2), hold=0.2, fade=0.81, twice=1)
    with pytest.raises(ConfigError, match="twice"):
        _configured("mine", options=["thrice=1"])


def test_learners_are_found_by_name_and_refused_where_they_do_not_fit():
    assert isinstance(_configured("least-squares", releases=2).settings.learner, LeastSquares)
    constant = _configured("constant", options=["taste=kale"])
    assert isinstance(constant.learner, Constant) and not [e for e in constant.exchanges if not e.silent]
    with pytest.raises(UnknownNameError, match="least-squares"):
        _configured("least-square")
    with pytest.raises(ConfigError, match="vertical-slate"):
        _configured("slateq")
    with pytest.raises(ConfigError, match="taste"):
        _configured("constant", options=["taste=cake"])


@pytest.mark.parametrize("option", ["ridge=x", "ridge=true", "width=1.5", "seed=soon"])
def test_an_option_of_another_type_is_refused_by_name(option):
    with pytest.raises(ConfigError, match=option):
        _configured("least-squares", options=[option])


def test_a_protocol_made_for_other_users_is_refused():
    """It would learn from its own users and be judged by those that are handed over."""
    protocol = SummedSlates(SumSettings(MeanOfItem(WORLD, FEEDBACK, explorers=(3,), clip=1e4)))
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
    mine = type(plain)(plain.settings, Twice)
    assert isinstance(mine.learner, ValueLearner) and all(e.learner == mine.learner for e in mine.exchanges)
    own = plain.platform(jax.random.key(0), 0)
    np.testing.assert_allclose(mine.learner.values(own), 2 * plain.learner.values(own), rtol=1e-6)


def test_least_squares_of_a_stay_are_what_is_still_to_come():
    """With one candidate there is one policy, and with γ = 1 what a click is worth is all that follows."""
    world = Satisfaction(candidates=1, slate=1, platforms=1, time_budget=3)
    learner = LeastSquares(world, (True,), explorers=(1,), fade=0.0, ridge=1e-6, clip=1e5, scale=1.0)
    own = learner.first_state(None, 0)
    rewards, sums = [2.0, 3.0, 7.0], np.zeros(learner.numbers)
    for round_, reward in enumerate(rewards):
        own = own._replace(view=own.view._replace(documents=jnp.asarray([0.25 * (1 + round_)])))
        turn = Turn(jnp.int32(0), jnp.int32(0), jnp.float32(reward), jnp.float32(0.5))
        item = item_feature(own.view.documents[0])
        sums += np.asarray(learner.contribution(own, item, jnp.float32(reward)), np.float64)
        own = own._replace(view=own.view._replace(left=own.view.left - 1, known=learner.known_after(own, turn)))
    model = np.asarray(learner.solved(jnp.asarray(sums, jnp.float32), jnp.float32(1.0), None, None), np.float64)
    # Features of the three clicks are independent, so that their values are met: 2 + 3 + 7, 3 + 7, 7.
    trace = [0.0, 0.5, -0.0]
    phi = [
        np.asarray(learner.features(jnp.float32(x), jnp.float32(3 - k), jnp.asarray([0.5 * (1 + k) - 1.0])))[0]
        for k, x in enumerate(trace)
    ]
    np.testing.assert_allclose(np.stack(phi) @ model, [12.0, 10.0, 7.0], rtol=0.02)
