"""A model of platforms scores and serves from its file alone what the platforms' policy does in a run."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedrank
from fedrank.core.errors import ConfigError, DataError, ModelError, UnknownNameError
from fedrank.engine.settings import as_dict, from_dict
from fedrank.slates.build import experiment_of
from fedrank.slates.fedslate.learner import SlateQ, federated_values, others_mean
from fedrank.slates.learner import LearnedPolicy
from fedrank.slates.model import SlateModel
from fedrank.slates.run import slate_model

pytestmark = pytest.mark.slow

SMALL = {
    "protocol": "vertical-slate",
    "seeds": 1,
    "world": {"candidates": 5, "slate": 2, "time_budget": 8},
    "slates": {"local_widths": [4], "head_widths": [3], "batch": 2, "memory": 12, "burn_in": 5, "choice": "learned"},
}


@pytest.fixture(scope="module")
def played():
    """An experiment, platforms with different networks, and the view of a user who has just come."""
    experiment = experiment_of(from_dict(SMALL).resolved())
    s, learner = experiment.protocol.slates, experiment.protocol.learner
    keys = jax.random.split(jax.random.key(3), 4)
    own = jax.tree.map(lambda leaf: leaf[0], experiment.protocol.parties(keys[:1]).own)
    weights = s.federated_network.init(keys[1]) + 0.1 * jax.random.normal(keys[2], (s.federated_network.size,))
    scene = s.world.first(s.world.draw(keys[3]))
    views = jax.vmap(learner.first_view)(own, scene.observed, scene.documents)
    return experiment, own._replace(view=views), weights, scene


@pytest.fixture(scope="module")
def model(played):
    experiment, own, weights, _ = played
    names = experiment.names
    parts = [{n: np.asarray(leaf[i]) for i, n in enumerate(names)} for leaf in (own.weights, own.choice)]
    return slate_model(experiment, np.asarray(weights), *parts, 0)


@pytest.fixture(scope="module")
def read(model, tmp_path_factory):
    return fedrank.load(model.save(tmp_path_factory.mktemp("models") / "slates.safetensors"))


def _views(own):
    return [jax.tree.map(lambda leaf, p=p: leaf[p], own.view) for p in range(len(own.number))]


def test_values_and_slates_are_those_of_the_policy(played, read):
    experiment, own, weights, scene = played
    s, learner = experiment.protocol.slates, experiment.protocol.learner
    policy = LearnedPolicy(learner, weights, own)
    slates = jax.jit(policy.act)(policy.begin(), scene, jax.random.key(0))
    local = jax.jit(jax.vmap(learner.values))(own)
    values = jax.jit(functools.partial(federated_values, s))(weights, local)
    whole = jax.jit(lambda w, o: federated_values(s, w, jax.vmap(learner.values)(o)))(weights, own)
    got, served = read.act(_views(own))
    np.testing.assert_array_equal(served, slates)
    np.testing.assert_array_equal(got, whole)
    np.testing.assert_array_equal(got, values)
    for place, (name, view) in enumerate(zip(read.platforms, _views(own), strict=True)):
        np.testing.assert_array_equal(read.own_values(view, platform=name), local[place])
        others = others_mean(s, local, place)
        np.testing.assert_array_equal(read.score(view, others, platform=name), values[place])
        np.testing.assert_array_equal(read.slate(view, others, platform=name), slates[place])
    assert np.ptp(values, axis=1).min() > 0, "values that are all alike would show nothing"


def test_a_file_gives_the_same_bits_as_the_model(played, model, read, tmp_path):
    views = _views(played[1])
    for one, other in zip(model.act(views), read.act(views), strict=True):
        np.testing.assert_array_equal(one, other)
    assert read.settings == model.settings and as_dict(from_dict(dict(read.config))) == read.config
    assert read.about["protocol"] == "vertical-slate" and read.privacy is not None
    again = read.save(tmp_path / "again.safetensors")
    assert again.read_bytes() == model.save(tmp_path / "first.safetensors").read_bytes()


def test_permuted_candidates_have_permuted_values(read):
    documents = np.array([0.1, 0.9, 0.4, 0.7, 0.3])
    order = np.array([3, 0, 4, 1, 2])
    others = np.linspace(-1, 1, 5).astype(np.float32)
    values = read.score(read.view(documents), others, platform="B")
    np.testing.assert_allclose(
        read.score(read.view(documents[order]), others[order], platform="B"), values[order], rtol=1e-6
    )
    assert not np.array_equal(values, read.score(read.view(documents), -others, platform="B"))


def test_what_does_not_fit_is_refused_by_name(read):
    view = read.view(np.full(5, 0.5))
    with pytest.raises(DataError, match="others"):
        read.score(view)
    with pytest.raises(DataError, match="5"):
        read.score(view, np.zeros(4))
    with pytest.raises(DataError, match="5"):
        read.view(np.zeros(6))
    with pytest.raises(DataError, match="observed"):
        read.view(np.zeros(5), observed=np.nan)
    with pytest.raises(UnknownNameError, match="nobody"):
        read.score(view, np.zeros(5), platform="nobody")
    with pytest.raises(DataError, match="2"):
        read.act([view])
    with pytest.raises(ModelError):
        SlateModel(read.settings, np.zeros(1, np.float32), read.platforms, read.choices)
    assert jnp.isfinite(read.score(view, np.full(5, 1e20), platform="A")).all()
    with pytest.raises(ModelError, match="no chain of layers"):
        read.to_onnx("nowhere.onnx")


class Contrary(SlateQ):
    """Values are those of the network with the other sign, and slates are in the candidates' order."""

    def values_of(self, weights, user, items):
        return -super().values_of(weights, user, items)

    def best(self, own, values):
        return jnp.sort(super().best(own, values))


def test_a_critic_of_somebody_else_scores_by_itself_and_by_no_other(played, model, tmp_path):
    experiment, own, weights, _ = played
    protocol = dataclasses.replace(experiment.protocol, critic=Contrary)
    mine = slate_model(
        experiment_of(experiment.config, protocol), np.asarray(weights), dict(model.platforms), dict(model.choices), 0
    )
    file = mine.save(tmp_path / "contrary.safetensors")
    view = _views(own)[1]
    for one in (mine, fedrank.load(file, own=protocol)):
        np.testing.assert_allclose(one.own_values(view, platform="B"), -model.own_values(view, platform="B"))
        shown = one.slate(view, np.zeros(5), platform="B")
        assert shown.tolist() == sorted(shown.tolist())
    with pytest.raises(ModelError, match="Contrary"):
        fedrank.load(file)
    with pytest.raises(ModelError, match="Contrary"):
        fedrank.load(model.save(tmp_path / "plain.safetensors"), own=protocol)


def test_a_run_starts_from_a_saved_model_and_refuses_others(model, tmp_path):
    """Before the burn-in no network steps, so that those of the file are what the run ends with."""
    start, few = str(model.save(tmp_path / "start.safetensors")), {"episodes": 2, "baselines": ["random"]}
    again = {**SMALL, "rounds": 8, "start_from": start, "slates": {**SMALL["slates"], "burn_in": 100}}
    run = fedrank.train(**{**again, "evaluation": few}, folder=tmp_path / "run")
    warm = fedrank.load(run.path)
    for name, values in model.tensors.items():
        if not name.startswith("choice"):  # which learns from every click
            np.testing.assert_array_equal(warm.tensors[name], values)
    alone = {name: value for name, value in again["slates"].items() if name != "head_widths"}
    for other, what in (
        ({"slates": {**again["slates"], "local_widths": [5]}}, "network"),
        ({"world": {**SMALL["world"], "candidates": 6}}, "candidates"),
        ({"protocol": "slateq", "slates": alone}, "joined by"),
        ({"protocol": "planned-slates", "slates": {}}, "learner"),
    ):
        with pytest.raises(ConfigError, match=what):
            experiment_of(from_dict({**again, **other}).resolved())
