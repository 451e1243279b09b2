"""What a simulation leaves out of a secure sum changes nothing: the real one on the same replies, the same model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from secure_sums import secure_sum
from short_settings import pdgd_settings
from worlds import FEATURES, tiny_queries

from fedrank.core.errors import ConfigError
from fedrank.engine.simulator import Conditions, Simulator, run_keys
from fedrank.privacy.quantise import dequantise
from fedrank.ranking.clicks.cascade import cascade
from fedrank.ranking.data.partition import uniform
from fedrank.ranking.foltr_pdgd import FoltrPDGD
from fedrank.ranking.rankers.linear import Linear

PARTIES = 8


def protocol(**settings):
    given = {"secure_sum": True, "clip": 5.0, "parties": PARTIES, "noise": "polya", "epsilon": 4.5, "absent": 0.25}
    return FoltrPDGD(Linear(FEATURES), cascade("navigational"), **pdgd_settings(**{**given, **settings}))


def recorded(protocol, **conditions):
    queries = tiny_queries()
    parties = protocol.devices(queries.blocks(), uniform(queries.n_queries, PARTIES))
    simulator = Simulator(protocol, conditions=Conditions(**conditions), record=True)
    keys = run_keys([0])
    states, own = simulator.start(keys, parties)
    states, _, seen = simulator.advance(keys, states, parties.shared, own, 0, 1)
    return states, seen["replies"][0]


@pytest.mark.parametrize("dropped", [(), (2,)], ids=["all there", "one drops out"])
def test_masks_and_all_the_model_is_the_same(dropped):
    settings = protocol()
    absent = tuple(i in dropped for i in range(PARTIES))
    states, replies = recorded(settings, absent=absent)
    vectors = np.asarray(replies.values[0, 0])
    whole = secure_sum(vectors, 6, dropped_before_masking=dropped)
    assert sorted(whole.survivors) == [i for i in range(PARTIES) if i not in dropped]
    amounts = int(np.asarray(replies.interactions[0, 0])[~np.asarray(absent)].sum())
    mean = (
        np.asarray(dequantise(jnp.asarray(whole.total), settings.privacy.grid, jnp)) * settings.interactions / amounts
    )
    np.testing.assert_allclose(states.weights[0], mean, rtol=1e-6)
    assert np.abs(mean).max() > 0


def test_a_sum_with_too_few_shares_of_noise_is_not_made():
    """Six of eight shares are the noise that was promised; with five the round must leave no trace."""
    settings = protocol()
    assert settings.privacy.enough == 6
    for missing, moved in ((2, True), (3, False)):
        states, _ = recorded(settings, absent=tuple(i < missing for i in range(PARTIES)))
        assert bool(np.any(np.asarray(states.weights[0]))) is moved
        assert int(states.round[0]) == 1


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"parties": 1, "absent": 0.0}, "at least 2"),
        ({"aggregate": "median", "byzantine": 1}, "single messages"),
    ],
)
def test_what_would_show_single_messages_is_refused(settings, says):
    with pytest.raises(ConfigError, match=says):
        protocol(**settings)


def test_the_server_clips_what_attackers_do_not():
    settings = protocol(secure_sum=False, noise="none", epsilon=None, absent=0.0, clip=1.0, clip_norm="l2")
    (exchange,) = settings.exchanges
    state = settings.init(jax.random.key(0))
    _, replies = recorded(settings)
    honest = jax.tree.map(lambda leaf: leaf[0, 0], replies)
    lie = honest.weights.at[0].set(1e6)
    before = exchange.tell(state, honest, jnp.ones(PARTIES, bool)).weights
    after = exchange.tell(state, type(honest)(lie, honest.interactions), jnp.ones(PARTIES, bool)).weights
    # One of N moves a mean of vectors of norm s by 2s/N at most.
    assert np.linalg.norm(after - before) <= 2 * 1.0 / PARTIES + 1e-6
