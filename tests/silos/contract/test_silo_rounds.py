"""Draws of NumPy are those of JAX bit by bit, and rounds of silos do not depend on how many train at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from silo_worlds import FEATURES, ROWS, SILOS, deep_sgd, linear_sgd, tiny_bandit, tiny_silos

from fedrank.core.errors import AnswerError
from fedrank.core.native import map_trees
from fedrank.core.rng import party_key
from fedrank.core.streams import fold_words, normals, run_words, stream, uniforms
from fedrank.engine.attackers import Conditions
from fedrank.engine.native import NativeSimulator
from fedrank.silos.averaging import FedAvg, FineTuned
from fedrank.silos.local_sgd import LocalSgd
from fedrank.silos.network import TabularNetwork
from fedrank.silos.records.private_sgd import PrivateSgd
from fedrank.silos.rounds import SiloEvaluator

SEEDS = (3, 2**32 - 1)
ARRAYS = map_trees(lambda leaf: np.repeat(leaf, 2, axis=0), tiny_silos())


def test_uniform_and_normal_numbers_are_those_of_jax():
    keys = run_words(SEEDS)
    typed = jax.vmap(jax.random.key)(jnp.asarray(SEEDS, jnp.uint32))
    for number in (0, 1):
        second = jax.vmap(lambda key, number=number: jax.random.split(key)[number])(typed)
        np.testing.assert_array_equal(fold_words(keys, number), jax.random.key_data(second))
    np.testing.assert_array_equal(
        uniforms(stream(keys, 9)), jax.vmap(lambda key: jax.random.uniform(key, (9,), jnp.float32))(typed)
    )
    reference = jax.vmap(lambda key: jax.random.normal(key, (5000,), jnp.float32))(typed)
    np.testing.assert_allclose(normals(stream(keys, 5000)), reference, rtol=1e-6, atol=1e-7)
    assert np.abs(reference).max() > 3.5  # both branches of the quantile
    silos = fold_words(np.broadcast_to(fold_words(keys, 4)[:, None], (2, 5, 2)), np.broadcast_to(np.arange(5), (2, 5)))
    wanted = [[jax.random.key_data(party_key(key, 4, silo)) for silo in range(5)] for key in typed]
    np.testing.assert_array_equal(silos, wanted)


def rounds(protocol, chunk, debug=False, number=2):
    parties = protocol.parties(ARRAYS, (0, 1))
    simulator = NativeSimulator(protocol, parties, chunk, Conditions(), debug)
    keys = run_words(SEEDS)
    each = [protocol.init(key) for key in fold_words(keys, 2**32 - 1)]
    states = map_trees(lambda *leaves: np.stack(leaves), *each)
    return simulator.advance(keys, states, parties.shared, parties.own, 0, number)[:2]


def private_protocol():
    return FineTuned(PrivateSgd(TabularNetwork(FEATURES, (4,), "layer"), 2, 4, 0.1).for_rows({4, 7, 12}), SILOS, ROWS)


# Made in the test: the least noise for an epsilon takes seconds to find.
@pytest.mark.parametrize(
    "make",
    [lambda: FedAvg(deep_sgd(), SILOS, ROWS), lambda: tiny_bandit(arms="all"), private_protocol],
    ids=["fedavg", "bandit", "private"],
)
def test_a_chunk_bounds_what_is_trained_at_once_and_changes_nothing(make, monkeypatch):
    protocol = make()
    most, train = [], LocalSgd.train

    def counted(self, models, *more):
        most.append(len(models))
        return train(self, models, *more)

    monkeypatch.setattr(LocalSgd, "train", counted)
    found = rounds(protocol, 16)
    for debug in (False, True):
        most.clear()
        for large, small in zip(found, rounds(protocol, 1, debug), strict=True):
            name = "weights" if hasattr(large, "weights") else "model"
            np.testing.assert_allclose(getattr(small, name), getattr(large, name), rtol=1e-5, atol=1e-6)
        if type(protocol.sgd) is LocalSgd:
            assert max(most) == (1 if debug else len(SEEDS))


def test_an_error_in_debug_mode_names_exchange_party_and_round(monkeypatch):
    def broken(self, models, *more):
        raise ZeroDivisionError("no rows")

    monkeypatch.setattr(LocalSgd, "train", broken)
    with pytest.raises(AnswerError, match="'pretrain' failed at party 0 in round 0: ZeroDivisionError"):
        rounds(FedAvg(linear_sgd(), SILOS, ROWS), 16, debug=True)


def test_the_evaluation_is_the_one_that_silos_make():
    """The run scores rows in blocks: the same rows, the same measure."""
    protocol = FedAvg(deep_sgd(), SILOS, ROWS)
    model = protocol.net.initial(run_words([2]))
    evaluator = SiloEvaluator(protocol, ARRAYS, np.array([0]), np.array([[2]]))
    party = protocol.parties(ARRAYS)
    party = party._replace(own=map_trees(lambda leaf: leaf[[2]], party.own))
    for part in ("vali", "test"):
        found = evaluator({"last": model[None]})[f"{part}: last"]
        np.testing.assert_allclose(found, protocol.performance(model[None], party, part), rtol=1e-6)
