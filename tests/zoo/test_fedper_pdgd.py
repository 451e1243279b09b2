"""What stays on a device with FedPer, and what does not: against FPDGD, whose steps it divides."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from worlds import FEATURES, tiny_parties

from fedrank.core.errors import ConfigError
from fedrank.core.protocol import Party
from fedrank.core.trees import nest
from fedrank.engine.run import build, run_experiment
from fedrank.engine.settings import from_dict
from fedrank.engine.simulator import Simulator, run_keys
from fedrank.ranking.clicks.cascade import cascade
from fedrank.ranking.foltr_pdgd import FoltrPDGD
from fedrank.ranking.mechanisms import Bounds
from fedrank.ranking.mechanisms.secure_sum import SecureSum
from fedrank.ranking.on_device import Request
from fedrank.ranking.rankers.linear import Linear
from fedrank.ranking.rankers.mlp import TwoLayer
from fedrank.ranking.rankers.residual import Residual
from fedrank_zoo.fedper_pdgd import FedPerPDGD
from fedrank_zoo.reproduce.study import load_file

OWN_RANKERS = load_file(Path(__file__).parents[2] / "reproductions" / "foltr_study_2021" / "own_rankers.py")
USER = cascade("perfect")
HIDDEN = 3


def answer(protocol, weights, personal=None):
    """The first device's reply and what it keeps, from given weights, with the same draws for all protocols."""
    parties, (exchange,) = tiny_parties(protocol, 2), protocol.exchanges
    own = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), parties.own)
    if personal is not None:
        own = own._replace(kept=jnp.asarray(personal))
    request = Request(jnp.uint32(0), jnp.asarray(weights))
    after, reply = jax.jit(exchange.respond)(request, Party(parties.shared, own), exchange.draw(jax.random.key(3)))
    return np.asarray(reply.weights), after.own


@pytest.mark.slow
def test_the_steps_of_a_linear_ranker_are_divided():
    """θ + p learns as FPDGD does from there, and the change is shared out by ρ; ρ = 0 has a test of whole rounds."""
    theta, p = np.linspace(-0.4, 0.4, FEATURES).astype(np.float32), np.full(FEATURES, 0.2, np.float32)
    plain = FoltrPDGD(Linear(FEATURES), USER, interactions=6, kernels=False)
    change = answer(plain, theta + p)[0] - (theta + p)
    assert np.abs(change).max() > 0.01
    for rho in (0.3, 1.0):
        protocol = FedPerPDGD(Linear(FEATURES), USER, interactions=6, kernels=False, personal=rho)
        sent, kept = answer(protocol, theta, p)
        np.testing.assert_allclose(sent, theta + (1 - rho) * change, atol=1e-6)
        np.testing.assert_allclose(kept.kept, p + rho * change, atol=1e-6)


@pytest.mark.slow
def test_the_output_layer_stays():
    ranker = TwoLayer(FEATURES, HIDDEN)
    weights = np.random.default_rng(0).normal(0, 0.3, ranker.size).astype(np.float32)
    whole = answer(FoltrPDGD(ranker, USER, interactions=6, kernels=False), weights)[0]
    protocol = FedPerPDGD(ranker, USER, interactions=6, kernels=False)
    body = ranker.size - HIDDEN
    sent, kept = answer(protocol, weights[:body], weights[body:])
    np.testing.assert_allclose(sent, whole[:body], atol=1e-6)
    np.testing.assert_allclose(kept.kept, whole[body:], atol=1e-6)
    (exchange,) = protocol.exchanges
    assert exchange.request.nbytes == 1 + 4 + 4 * body and exchange.reply.nbytes == 1 + 4 * body + 2
    assert protocol.init(jax.random.key(0)).weights.shape == (body,)
    newcomer = np.asarray(protocol.weights(protocol.init(jax.random.key(0))))
    assert newcomer.shape == (ranker.size,) and set(np.sign(newcomer[body:])) == {-1, 1}


@pytest.mark.slow
def test_devices_end_with_rankers_of_their_own():
    """ρ = 0: all have the server's, which is FPDGD's; ρ = 1: the server learns nothing, and no two are alike."""
    found = {}
    for rho in (0.0, 1.0):
        protocol = FedPerPDGD(Linear(FEATURES), USER, kernels=False, personal=rho)
        parties, keys = tiny_parties(protocol, 3), run_keys((4,))
        simulator = Simulator(protocol)
        states, own = simulator.advance(keys, *_begun(simulator, keys, parties), 0, 3)[:2]
        found[rho] = (np.asarray(states.weights), np.asarray(jax.vmap(protocol.own_models)(states, own))[0])
    plain = FoltrPDGD(Linear(FEATURES), USER, kernels=False)
    parties, simulator, keys = tiny_parties(plain, 3), Simulator(plain), run_keys((4,))
    states = simulator.advance(keys, *_begun(simulator, keys, parties), 0, 3)[0]
    np.testing.assert_allclose(found[0.0][0], states.weights, atol=1e-6)
    np.testing.assert_allclose(found[0.0][1], np.repeat(found[0.0][0], 3, axis=0), atol=1e-7)
    assert not found[1.0][0].any()
    assert len(np.unique(found[1.0][1].round(6), axis=0)) == 3


@pytest.mark.slow
def test_a_run_measures_the_rankers_of_its_devices(tmp_path):
    """The mean over devices of what each one's ranker is worth, as it comes out one by one."""
    settings = {"data": "generated", "clients": 6, "rounds": 3, "evaluation.baselines": [], "seeds": 2}
    config = from_dict(nest({"protocol": "fedper-pdgd", **settings})).resolved()
    folder, experiment = run_experiment(config, tmp_path / "run"), build(config)
    rows = pl.read_parquet(folder / "metrics.parquet").filter(
        (pl.col("round") == 3) & pl.col("measure").str.ends_with("(own rankers)")
    )
    assert set(rows["seed"]) == set(config.all_seeds) and len(rows) == len(rows.unique())
    for (split, measure), values in OWN_RANKERS.worth(experiment, OWN_RANKERS.train(experiment))[config.clicks].items():
        if "(judged)" in measure:
            continue
        name = f"{measure} ({config.clicks})" if measure.startswith("expected") else measure
        found = rows.filter((pl.col("split") == split) & (pl.col("measure") == f"{name} (own rankers)")).sort("seed")
        np.testing.assert_allclose(found["value"], values, atol=1e-6)
    queries = pl.read_parquet(folder / "per_query.parquet").filter(pl.col("ranker") == "own rankers")
    assert queries.height and not queries["value"].is_null().any()


def _begun(simulator, keys, parties):
    states, own = simulator.start(keys, parties)
    return states, parties.shared, own


def test_wrong_settings():
    linear = FedPerPDGD(Linear(2), USER, kernels=False)
    for settings, said in (
        ({"personal": 1.5}, "personal must be in"),
        ({"ranker": Residual(2)}, "not in Residual"),
        ({"privacy": SecureSum(clip=1.0), "bounds": Bounds(clients=3)}, "no secure sum"),
    ):
        with pytest.raises(ConfigError, match=said):
            dataclasses.replace(linear, **settings)
