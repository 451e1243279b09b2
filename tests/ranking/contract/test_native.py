"""Rounds without JAX and in JAX: the same draws bit by bit, the same clicks and replies, sums within rounding."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from short_settings import pdgd_settings
from worlds import FEATURES, tiny_parties, tiny_protocol, tiny_queries

from fedrank.aggregation.server_steps import Adam, FedAdagrad, FedYogi
from fedrank.core.errors import ConfigError
from fedrank.core.kernels import normals, party_words
from fedrank.core.native import NotNativeError
from fedrank.core.rng import party_key
from fedrank.core.streams import fold_words, run_words, stream
from fedrank.engine.native import NativeSimulator, rounds_of
from fedrank.engine.simulator import Conditions, Simulator
from fedrank.metrics.online import REWARDS
from fedrank.privacy.noise.parties import PartyNoise, _below
from fedrank.privacy.noise.simulated import simulated_discrete_gaussian
from fedrank.privacy.piecewise import Piecewise
from fedrank.ranking.central import PDGD
from fedrank.ranking.clicks.cascade import cascade
from fedrank.ranking.data.partition import uniform
from fedrank.ranking.foltr_pdgd import FedOptPDGD, FedProxPDGD, FoltrPDGD, Proximal
from fedrank.ranking.rankers.linear import Linear
from fedrank.ranking.rankers.mlp import TwoLayer
from fedrank_zoo.dueling import DBGD, MGD

SEEDS, DEVICES, ROUNDS = (3, 2**32 - 1), 40, 2


def test_keys_and_words_are_those_of_jax():
    keys = run_words(SEEDS)
    typed = jax.vmap(jax.random.key)(jnp.asarray(SEEDS, jnp.uint32))
    np.testing.assert_array_equal(keys, jax.random.key_data(typed))
    np.testing.assert_array_equal(
        fold_words(keys, 7, 2**32 - 2), [jax.random.key_data(party_key(key, 7, np.uint32(2**32 - 2))) for key in typed]
    )
    np.testing.assert_array_equal(stream(keys, 5), [jax.random.bits(key, (5,), "uint32") for key in typed])
    reference = jax.vmap(lambda key: jax.random.normal(key, (1000,), jnp.float32))(typed)
    np.testing.assert_allclose(normals(keys, 1000), reference, rtol=1e-5, atol=1e-7)
    ours = party_words(keys, 9, 100, 3, 6), party_words(keys, 9, 100, 3, 6, folds=(0,))
    for run, key in enumerate(typed):
        for i in range(3):
            mine = party_key(key, np.uint32(9), np.uint32(100 + i))
            np.testing.assert_array_equal(ours[0][run, i], jax.random.bits(mine, (6,), "uint32"))
            np.testing.assert_array_equal(ours[1][run, i], jax.random.bits(jax.random.split(mine)[0], (6,), "uint32"))


def test_adam_is_that_of_optax():
    random, rate = np.random.default_rng(0), 0.01
    reference, ours = optax.adam(rate), Adam(rate)
    weights = jnp.asarray(random.normal(size=(2, 5)), jnp.float32)
    state, mine = jax.vmap(reference.init)(weights), np.asarray(weights)
    moments, heard = ours.init(mine), np.array([True, True])
    for _ in range(20):
        gradient = random.normal(size=(2, 5)).astype(np.float32)
        step, state = jax.vmap(reference.update)(-jnp.asarray(gradient), state)
        weights = optax.apply_updates(weights, step)
        mine, moments = ours.step(moments, mine, gradient, heard)
        np.testing.assert_allclose(mine, weights, rtol=2e-6, atol=1e-7)
    moved, kept = ours.step(moments, mine, gradient, np.array([False, True]))
    np.testing.assert_array_equal(moved[0], mine[0])
    assert (moved[1] != mine[1]).any() and kept.count.tolist() == [20, 21]
    np.testing.assert_array_equal(kept.first[0], moments.first[0])


def both(protocol, parties, conditions=None, rounds=ROUNDS, chunk=16):
    """Models, experience and what devices keep after some rounds: native, and in JAX."""
    conditions = conditions or Conditions()
    out = []
    for simulator in (
        NativeSimulator(protocol, parties, chunk, conditions),
        Simulator(protocol, chunk, False, conditions),
    ):
        keys = simulator.keys(SEEDS)
        states, own = simulator.begin(keys, parties)
        states, own, seen = simulator.advance(keys, states, parties.shared, own, 5, rounds)
        out.append((simulator.models(states), simulator.on_host(seen), simulator.on_host(own)))
    return out


def assert_alike(found, moved=1e-4):
    (models, seen, own), (models2, seen2, own2) = found
    np.testing.assert_allclose(models, models2, rtol=1e-5, atol=1e-7)
    assert np.abs(models).max() > moved
    assert seen.keys() == seen2.keys()
    for name in seen:
        np.testing.assert_allclose(seen[name], seen2[name], rtol=1e-5, atol=1e-7)
    for ours, theirs in zip(*map(jax.tree.leaves, (own, own2)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)


SETTINGS = {
    "linear": {},
    "two-layer": {"ranker": "mlp"},
    "privatised": {"p": 0.8},
    "random ties": {"ties": "random"},
    "one half": {"antithetic": False, "p": 0.9},
    "gain of clicks": {"metric": REWARDS.get("DCG")(10), "p": 0.9},
    "one number": {"mechanism": "piecewise", "piecewise": Piecewise(2.0, 2, 4), "clip": 0.25},
    "one number, interleaved": {"mechanism": "piecewise", "piecewise": Piecewise(1.0), "interleaved": True},
    "Laplace noise": {"mechanism": "laplace", "epsilon": 1.0, "p": 1.0},
    "Gaussian noise": {"mechanism": "gaussian", "epsilon": 5e3, "p": 1.0},
    "interleaved": {"interleaved": True},
    "two-layer, interleaved": {"ranker": "mlp", "interleaved": True, "ties": "random"},
}


def test_settings_of_foltr_es():
    for name in SETTINGS:
        protocol = tiny_protocol(**SETTINGS[name])
        assert_alike(both(protocol, tiny_parties(protocol, DEVICES)))


def test_users_amounts_and_silence_of_foltr_es():
    protocol = tiny_protocol(others=(cascade("informational"),), interactions=6, p=0.9)
    queries, random = tiny_queries(), np.random.default_rng(0)
    which, amounts = random.integers(0, 2, DEVICES), 2 * random.integers(1, 4, DEVICES)
    parties = protocol.devices(queries.blocks(), uniform(queries.n_queries, DEVICES), which, amounts)
    absent = tuple(bool(x) for x in random.random(DEVICES) < 0.2)
    assert_alike(both(protocol, parties, Conditions(dropout=0.4, absent=absent)))


def tiny_pdgd(ranker=None, **settings):
    ranker = ranker or Linear(FEATURES)
    users = {"others": (cascade("informational"),)}
    return FoltrPDGD(ranker, cascade("navigational"), **users, **pdgd_settings(**settings))


@pytest.mark.parametrize("ranker", [Linear(FEATURES), TwoLayer(FEATURES, 3)], ids=["linear", "two-layer"])
def test_fpdgd_learns_the_same(ranker):
    protocol, queries, random = tiny_pdgd(ranker), tiny_queries(), np.random.default_rng(0)
    which, amounts = random.integers(0, 2, DEVICES), random.integers(1, 5, DEVICES)
    parties = protocol.devices(queries.blocks(), uniform(queries.n_queries, DEVICES), which, amounts)
    assert_alike(both(protocol, parties, Conditions(dropout=0.3)), moved=1e-3)


VARIANTS = {
    "adam": FedOptPDGD,
    "yogi": functools.partial(FedOptPDGD, server=FedYogi(beta_1=0.5, beta_2=0.9)),
    "adagrad": functools.partial(FedOptPDGD, server=FedAdagrad()),
    "near": functools.partial(FedProxPDGD, objective=Proximal(2.0)),
}


def test_servers_and_devices_of_other_kinds_learn_the_same():
    for name in VARIANTS:
        protocol = VARIANTS[name](Linear(FEATURES), cascade("navigational"), interactions=3)
        queries, amounts = tiny_queries(), np.random.default_rng(0).integers(1, 4, DEVICES)
        parties = protocol.devices(queries.blocks(), uniform(queries.n_queries, DEVICES), None, amounts)
        assert_alike(both(protocol, parties, Conditions(dropout=0.3)), moved=1e-3)


def test_clipped_summed_and_noised_weights_are_the_same():
    for settings in [
        {"clip": 0.05},
        {"clip": 0.05, "clip_norm": "l1", "secure_sum": True, "parties": DEVICES},
        {
            **{"clip": 0.05, "clip_norm": "l2", "secure_sum": True, "parties": DEVICES, "absent": 0.5, "grid": 2**10},
            **{"noise": "gaussian", "epsilon": 8.0, "times": 2, "rounds": 2},
        },
        {
            **{"clip": 0.05, "clip_norm": "l1", "secure_sum": True, "parties": DEVICES, "absent": 0.5, "grid": 2**10},
            **{"noise": "polya", "epsilon": 8.0},
        },
        {
            "clip": 0.05,
            "clip_norm": "l2",
            "parties": DEVICES,
            "noise": "server",
            "epsilon": 8.0,
            "times": 2,
            "rounds": 3,
        },
    ]:
        protocol, queries, random = tiny_pdgd(**settings), tiny_queries(), np.random.default_rng(0)
        amounts = random.integers(1, 5, DEVICES)
        parties = protocol.devices(queries.blocks(), uniform(queries.n_queries, DEVICES), None, amounts)
        assert_alike(both(protocol, parties, Conditions(dropout=0.3)), moved=1e-3)


def test_much_gaussian_noise_is_the_same_but_for_rounding():
    keys = run_words(SEEDS)
    ours, small = (PartyNoise(keys, 5, 3, 2).gaussian(sigma, 400) for sigma in (5000.0, 3.0))
    for run, seed in enumerate(SEEDS):
        for i in range(2):
            key = jax.random.fold_in(party_key(jax.random.key(np.uint32(seed)), np.uint32(5), np.uint32(3 + i)), 1)
            theirs = np.asarray(simulated_discrete_gaussian(key, (400,), 5000.0))
            assert np.abs(ours[run, i] - theirs).max() <= 1 and (ours[run, i] == theirs).mean() > 0.98
            np.testing.assert_array_equal(small[run, i], simulated_discrete_gaussian(key, (400,), 3.0))


def test_central_learners_learn_the_same():
    for learner in [PDGD, DBGD, MGD]:
        protocol = learner(TwoLayer(FEATURES, 3), cascade("navigational"), interactions=30)
        queries = tiny_queries()
        assert_alike(
            both(protocol, protocol.devices(queries.blocks(), uniform(queries.n_queries, 1), None, [20]), chunk=1)
        )


@pytest.mark.parametrize("settings", [{"aggregate": "median"}])
def test_other_settings_of_fpdgd_are_left_to_jax(settings):
    protocol, queries = tiny_pdgd(**settings), tiny_queries()
    parties = protocol.devices(queries.blocks(), uniform(queries.n_queries, 5))
    assert rounds_of(protocol, parties, 4, Conditions(), "auto").backend == "jax"


def test_nobody_heard_changes_nothing():
    protocol = tiny_protocol()
    parties = tiny_parties(protocol, 3)
    for models, *_ in both(protocol, parties, Conditions(absent=(True,) * 3)):
        np.testing.assert_array_equal(models, np.zeros((2, FEATURES)))


def test_what_the_kernels_do_not_know_is_left_to_jax_and_said():
    for settings, conditions, said in [
        ({"aggregate": "median-of-means"}, Conditions(), "median-of-means"),
        ({"kernels": False}, Conditions(), "kernels"),
        ({}, Conditions(late=0.5, delay=1), "late"),
    ]:
        protocol = tiny_protocol(**settings)
        parties = tiny_parties(protocol, 4)
        with pytest.raises(NotNativeError, match=said):
            NativeSimulator(protocol, parties, 4, conditions)
        with pytest.raises(ConfigError, match=said):
            rounds_of(protocol, parties, 4, conditions, "numba")
        found = rounds_of(protocol, parties, 4, conditions, "auto")
        assert isinstance(found, Simulator) and said in found.why


def test_a_choice_of_backends():
    protocol = tiny_protocol()
    parties = tiny_parties(protocol, 4)
    found = [rounds_of(protocol, parties, 4, Conditions(), backend) for backend in ("auto", "numba", "jax")]
    assert [one.backend for one in found] == ["numba", "numba", "jax"]


def test_places_of_noise_are_those_that_jax_draws():
    """``jax.random.randint`` in 32 bits, whose factor wraps to 0 above 65,536."""
    for bound in [3, 65_536, 65_537, 70_201]:
        key = jax.random.key(5)
        high, low = (np.asarray(jax.random.bits(k, (50,), jnp.uint32)) for k in jax.random.split(key))
        np.testing.assert_array_equal(_below(high, low, bound), jax.random.randint(key, (50,), 0, bound))
