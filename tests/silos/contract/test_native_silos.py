"""Rounds of silos without JAX and in JAX: the same draws bit by bit, models and judgements within rounding."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from silo_worlds import FEATURES, ROWS, SILOS, changed, deep_sgd, linear_sgd, tiny_bandit, tiny_silos

from fedrank.core.errors import ConfigError
from fedrank.core.native import NotNativeError, mapped
from fedrank.core.rng import party_key
from fedrank.core.streams import folded, normals, run_words, stream, uniforms
from fedrank.engine.backend import rounds_of
from fedrank.engine.conditions import Conditions
from fedrank.engine.native import NativeSimulator
from fedrank.engine.simulator import Simulator
from fedrank.metrics.auc import auc, host_auc, host_log_loss, log_loss
from fedrank.silos.bandits.rules import make_rule
from fedrank.silos.data.rows import Rows
from fedrank.silos.data.splits import pooled
from fedrank.silos.evaluate import SiloEvaluator
from fedrank.silos.local_sgd import LocalSgd
from fedrank.silos.native import personalised, rounds
from fedrank.silos.native.training import trained
from fedrank.silos.network import TabularNetwork
from fedrank.silos.personalised import Apfl, Ditto, FedAvg, FineTuned, LocalOnly, Pooled
from fedrank.silos.private_sgd import PrivateSgd
from fedrank.silos.rounds import begun, models_of_runs

SEEDS, ROUNDS = (3, 2**32 - 1), 3
ARRAYS = mapped(lambda leaf: np.repeat(leaf, 2, axis=0), tiny_silos())


def test_uniform_and_normal_numbers_are_those_of_jax():
    keys = run_words(SEEDS)
    typed = jax.vmap(jax.random.key)(jnp.asarray(SEEDS, jnp.uint32))
    for number in (0, 1):
        second = jax.vmap(lambda key, number=number: jax.random.split(key)[number])(typed)
        np.testing.assert_array_equal(folded(keys, number), jax.random.key_data(second))
    np.testing.assert_array_equal(
        uniforms(stream(keys, 9)), jax.vmap(lambda key: jax.random.uniform(key, (9,), jnp.float32))(typed)
    )
    reference = jax.vmap(lambda key: jax.random.normal(key, (5000,), jnp.float32))(typed)
    np.testing.assert_allclose(normals(stream(keys, 5000)), reference, rtol=1e-6, atol=1e-7)
    assert np.abs(reference).max() > 3.5  # both branches of the quantile
    silos = folded(np.broadcast_to(folded(keys, 4)[:, None], (2, 5, 2)), np.broadcast_to(np.arange(5), (2, 5)))
    wanted = [[jax.random.key_data(party_key(key, 4, silo)) for silo in range(5)] for key in typed]
    np.testing.assert_array_equal(silos, wanted)


@pytest.mark.parametrize("norm", ["batch", "layer", "none"])
def test_training_of_many_silos_is_that_of_each(norm):
    network = TabularNetwork(FEATURES, (5, 3), norm, momentum=0.3)
    sgd = LocalSgd(network, epochs=3, batch=5, learning_rate=0.2, weight_decay=0.1)
    random = np.random.default_rng(0)
    n = np.array([ROWS, 7, 0, 1, ROWS, 5], np.int32)
    rows = Rows(
        random.normal(size=(6, ROWS, FEATURES)).astype(np.float32),
        (random.random((6, ROWS)) < 0.4).astype(np.float32),
        n,
    )
    bits = random.integers(0, 2**32, (6, *sgd.rng_shape(ROWS)), dtype=np.uint32)
    bits[:, :, :4] &= np.uint32(0xFFFFFF00)  # some words are equal but for the last bit
    models = np.asarray(jax.vmap(network.initial)(jax.random.split(jax.random.key(1), 6)))
    kept = models.copy()
    found = trained(sgd, models, rows, bits)
    wanted = jax.jit(jax.vmap(sgd.train))(models, rows, bits)
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)
    np.testing.assert_array_equal(models, kept)  # what it got stays
    np.testing.assert_array_equal(found[2], models[2])
    assert np.abs(found - models)[n > 0].max(axis=1).min() > 1e-3


def test_measures_of_the_same_scores_are_the_same():
    random = np.random.default_rng(0)
    scores = np.round(random.normal(size=(7, 40)), 1).astype(np.float32)  # ties
    scores[1, 3], scores[2, :9], scores[3, 5] = np.inf, -0.0, np.nan
    labels = (random.random((7, 40)) < 0.3).astype(np.float32)
    where = np.arange(40) < np.array([40, 40, 23, 40, 1, 0, 17])[:, None]
    labels[6] = 1
    found, wanted = host_auc(scores, labels, where), np.asarray(auc(scores, labels, where))
    np.testing.assert_array_equal(found, wanted)
    assert np.isnan(found[3:]).all() and np.isfinite(found[:3]).all()
    margins = random.normal(size=(7, 40)).astype(np.float32) * 30
    logits = np.stack([np.zeros_like(margins), margins], axis=-1)
    np.testing.assert_allclose(
        host_log_loss(margins, labels, where), log_loss(logits, labels, where), rtol=1e-5, atol=1e-6
    )


def both(protocol, arrays=ARRAYS, conditions=None, targets=(0, 1), fixed=None):
    """States, what silos keep, what was told, and models by which they are judged: without JAX, and with it."""
    conditions, out = conditions or Conditions(), []
    parties = protocol.parties(arrays, (0, 1))
    targets, fixed = np.asarray(targets), None if fixed is None else np.asarray(fixed)
    for simulator in (
        NativeSimulator(protocol, parties, 16, conditions),
        Simulator(protocol, 16, False, conditions),
    ):
        keys, states, own = begun(simulator, protocol, parties, SEEDS, targets, fixed)
        first = simulator.on_host(states)
        states, own, seen = simulator.advance(keys, states, parties.shared, own, 0, ROUNDS)
        every = np.tile(np.arange(protocol.silos), (2, 1))
        models = models_of_runs(simulator, protocol, states, parties.shared, own, every)[1]
        out.append((first, simulator.on_host(states), simulator.on_host(own), simulator.on_host(seen), models))
    return out


def assert_alike(found):
    ours, theirs = found
    assert jax.tree.structure(ours[:4]) == jax.tree.structure(theirs[:4])  # one checkpoint for both
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert mine.dtype == other.dtype and mine.shape == other.shape
        if mine.dtype.kind == "f":
            np.testing.assert_allclose(mine, other, rtol=3e-5, atol=3e-6)
        else:
            np.testing.assert_array_equal(mine, other)
    before, after = ours[0].weights, ours[1].weights
    assert not before.size or np.abs(after - before).max() > 1e-2


SETTINGS = {
    "extreme explore": {"rule": make_rule("extreme-explore")},
    "all sets, probe, FedBN": {
        "rule": make_rule("bayesian-extreme-explore", threshold=0.02, gamma=0.5),
        "arms": "all",
        "probe": True,
        "crossing": "local",
        "sgd": deep_sgd(),
    },
    "epsilon-greedy, against the round before": {
        "rule": make_rule("epsilon-greedy", epsilon=0.7, alpha=0.5),
        "against": "previous",
    },
    "ucb or all, target weight, recalibrated": {
        "rule": make_rule("ucb", c=0.5, chance=0.5),
        "target_weight": 0.7,
        "crossing": "recalibrate",
        "sgd": deep_sgd(),
    },
    "rewards a round late": {"rule": make_rule("extreme-explore"), "delayed": True},
    "fixed, without pre-training, log-loss, patience": {
        "rule": make_rule("fixed", fixed=1),
        "pretrain": False,
        "arms": "everyone",
        "measure": "log-loss",
        "patience": 1,
    },
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_bandit_plays_the_same(name):
    settings = dict(SETTINGS[name])
    protocol = tiny_bandit(**{"kinds": None, "sgd": deep_sgd(norm="layer"), **settings})
    conditions = Conditions(dropout=0.3) if "explore" in name or "ucb" in name or "late" in name else None
    found = both(protocol, conditions=conditions)
    assert_alike(found)
    told = found[0][3]
    assert told["watched"]["increments"].shape == (ROUNDS, 2, protocol.n_arms) and told["crossed"].max() > 0


def test_runs_have_targets_and_arms_of_their_own():
    protocol = tiny_bandit(kinds=None, rule=make_rule("fixed", fixed=0), arms="everyone")
    found = both(protocol, targets=(2, 1), fixed=(0, 1))
    assert_alike(found)
    asked = found[0][3]["crossed"][:, :, 1, 0]  # who trains: the target by itself, and everybody
    np.testing.assert_array_equal(asked, [[1, SILOS]] * ROUNDS)


@pytest.mark.parametrize(
    ("method", "crossing"),
    [
        *((method, crossing) for method in (FedAvg, FineTuned, Ditto) for crossing in ("average", "head-local")),
        *((method, "average") for method in (LocalOnly, Pooled)),  # nothing crosses
    ],
)
def test_methods_of_one_training_a_round_learn_the_same(method, crossing):
    arrays = ARRAYS
    protocol = method(deep_sgd(), SILOS, ROWS, crossing=crossing)
    if method is Pooled:
        arrays = pooled(ARRAYS, 1)
        protocol = dataclasses.replace(protocol, silos=1, most_rows=arrays.train.x.shape[-2])
    conditions = Conditions(dropout=0.4) if crossing == "head-local" else None
    assert_alike(both(protocol, arrays, conditions))


def test_a_training_that_diverges_is_not_heard_and_one_class_is_no_judgement():
    arrays = changed(ARRAYS, "train", 1, x=np.full((ROWS, FEATURES), 3e38, np.float32))
    arrays = changed(arrays, "vali", 2, y=np.zeros(arrays.vali.y.shape[-1], np.float32))
    found = both(FedAvg(linear_sgd(), SILOS, ROWS), arrays)
    assert_alike(found)
    assert np.isfinite(found[0][1].weights).all() and found[0][2].best[0, 2] == -np.inf
    found = both(tiny_bandit(kinds=None, rule=make_rule("extreme-explore")), arrays, targets=(2, 0))
    assert_alike(found)
    assert np.isnan(found[0][3]["watched"]["increments"][:, 0]).all()


@pytest.mark.parametrize(
    ("protocol", "why"),
    [
        (tiny_bandit(kinds=None, rule=make_rule("thompson", threshold=0.02)), "thompson"),
        (tiny_bandit(kinds=None, arms="clusters", clusters=2), "clusters"),
        (Apfl(deep_sgd(), SILOS, ROWS), "apfl"),
        (FedAvg(PrivateSgd(linear_sgd().network, epsilon=8.0), SILOS, ROWS), "record's ε"),
    ],
    ids=["thompson", "clusters", "apfl", "epsilon"],
)
def test_what_needs_jax_is_named(protocol, why):
    parties = protocol.parties(ARRAYS)
    with pytest.raises(NotNativeError, match=why):
        NativeSimulator(protocol, parties, 16, Conditions())
    assert rounds_of(protocol, parties, 16, Conditions(), "auto").backend == "jax"
    with pytest.raises(ConfigError, match=f"'numpy' cannot compute this run: .*{why}"):
        rounds_of(protocol, parties, 16, Conditions(), "numpy")


def test_the_evaluation_is_the_one_that_silos_make():
    """A silo judges by itself with JAX, the run with NumPy in blocks: the same rows, the same measure."""
    protocol = FedAvg(deep_sgd(), SILOS, ROWS)
    model = np.asarray(protocol.network.initial(jax.random.key(2)))
    evaluator = SiloEvaluator(protocol, ARRAYS, np.array([0]), np.array([[2]]))
    party = protocol.parties(ARRAYS)
    party = party._replace(own=mapped(lambda leaf: leaf[2], party.own))
    for part in ("vali", "test"):
        told = evaluator({"last": model[None, None]})[f"{part}: last"][0, 0]
        np.testing.assert_allclose(told, protocol.performance(model, party, part), rtol=1e-6)


@pytest.mark.parametrize("method", [FedAvg, Ditto])
def test_a_chunk_bounds_what_is_trained_at_once_and_changes_nothing(method, monkeypatch):
    protocol, most = method(deep_sgd(), SILOS, ROWS), []
    whole = rounds.trained

    def counted(sgd, models, *more):
        most.append(len(models))
        return whole(sgd, models, *more)

    monkeypatch.setattr(rounds, "trained", counted)
    monkeypatch.setattr(personalised, "trained", counted)
    found = []
    for chunk in (1, 16):
        parties = protocol.parties(ARRAYS, (0, 1))
        simulator = NativeSimulator(protocol, parties, chunk, Conditions())
        keys, states, own = begun(simulator, protocol, parties, SEEDS, np.zeros(2, int))
        most.clear()
        states, own, _ = simulator.advance(keys, states, parties.shared, own, 0, 2)
        assert max(most) == min(chunk, SILOS) * len(SEEDS)
        found.append((states.weights, own.model))
    for small, large in zip(*found, strict=True):
        np.testing.assert_allclose(small, large, rtol=1e-5, atol=1e-6)
