"""RankGuard: how well a ranker explains clicks, by hand; whom a device believes; and that lies are not merged."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import FEATURES, tiny_parties

from fedrank.core.errors import ConfigError
from fedrank.engine.simulator import Simulator, run_keys
from fedrank.ranking.clicks.cascade import cascade
from fedrank.ranking.data.queries import PaddedQueries
from fedrank.ranking.mechanisms.weights import WeightsReply
from fedrank.ranking.rankers.linear import Linear
from fedrank_zoo.rankguard import Log, RankGuard, explained, ranks, screened

USER = cascade("perfect")
#: Two queries of three documents and two features; the last document of the second is padding.
DATA = PaddedQueries(
    np.array([[[1, 0], [0, 1], [1, 1]], [[0, 2], [2, 0], [9, 9]]], np.float32),
    np.zeros((2, 3), np.int32),
    np.array([3, 2], np.int32),
)
#: Clicked: of query 0 document 2 at rank 2 and document 0 at rank 3; of query 1 document 1 at rank 1; nothing.
LOG = Log(np.array([0, 1, 0]), np.array([[1, 2, 0], [1, 0, 2], [0, 1, 2]]), np.array([0b110, 0b001, 0]))

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        # Scores 1, 0, 1 and 0, 2: documents 2 and 0 share ranks 1 and 2; document 1 of query 1 is first.
        ([1.0, 0.0], [2 / np.log2(2.5) + 3 / np.log2(2.5), 1 / np.log2(2), 0]),
        # Scores 0, 1, 1 and 2, 0: document 2 shares rank 1, document 0 is third; document 1 of query 1 is second.
        ([0.0, 1.0], [2 / np.log2(2.5) + 3 / np.log2(4), 1 / np.log2(3), 0]),
        ([-1.0, -2.0], [2 / np.log2(4) + 3 / np.log2(2), 1 / np.log2(2), 0]),
    ],
)
def test_what_a_ranker_explains(model, expected):
    np.testing.assert_allclose(worth(model), expected, rtol=1e-5)


def worth(model):
    """What a linear ranker explains of the log."""
    found = [
        ranks(DATA.features[q] @ np.float32(model), DATA.where[q], s) for q, s in zip(LOG.query, LOG.shown, strict=True)
    ]
    return explained(np.array(found), LOG)


def test_whom_a_device_believes():
    """Paired differences of the two interactions with a click: mean and standard error by hand."""
    own = np.array([0.0, 1.0], np.float32)
    peers = np.array([[1, 0], [0, 1], [-1, -2], [np.nan, 0]], np.float32)
    a, b, c = (np.asarray(worth(m), float)[:2] for m in peers[:3])
    statistics = [np.mean(x - b) / max(np.std(x - b, ddof=1) / np.sqrt(2), 1e-12) for x in (a, c)]
    for threshold in (0.0, 0.9 * statistics[0], 1.1 * statistics[0]):
        found = screened(Linear(2), own, peers, DATA, LOG, threshold)
        assert found.tolist() == [statistics[0] > threshold, False, statistics[1] > threshold, False]
    one = Log(LOG.query, LOG.shown, np.array([0b110, 0, 0]))
    assert not screened(Linear(2), own, peers, DATA, one, 0.0).any()  # one interaction has no standard error


def protocol(**settings):
    return RankGuard(Linear(FEATURES), USER, kernels=False, **{"history": 8, "peers": 3, **settings})


def test_the_server_relays():
    p = protocol()
    sent = np.random.default_rng(0).normal(size=(5, FEATURES)).astype(np.float32)
    sent[3] = np.inf
    reply = WeightsReply(jnp.asarray(sent), jnp.asarray([4, 4, 4, 4, 4], jnp.uint16))
    arrived = np.array([True, True, False, True, True])
    tell = p.exchanges[0].tell
    state = tell(p.init(jax.random.key(0)), reply, jnp.asarray(arrived))
    honest = {tuple(row) for row in sent[[0, 1, 4]]}
    assert {tuple(row) for row in np.asarray(state.peers)} == honest
    np.testing.assert_allclose(state.weights, sent[[0, 1, 4]].mean(axis=0), rtol=1e-5)
    silent = tell(state, reply, jnp.zeros(5, bool))
    np.testing.assert_array_equal(silent.peers, state.peers)
    np.testing.assert_array_equal(silent.weights, state.weights)
    assert p.exchanges[0].request.nbytes == 1 + 4 + 4 * FEATURES * 4
    assert p.exchanges[0].reply.nbytes == 1 + 4 * FEATURES + 2


@pytest.mark.slow
def test_rankers_that_rank_backwards_are_not_merged():
    """After some rounds devices know enough: a ranker that is their own reversed is refused, and their own merged."""
    p = protocol(interactions=8, history=48)
    parties, simulator, keys = tiny_parties(p, 4), Simulator(p), run_keys((1,))
    states, own = simulator.start(keys, parties)
    states, own, _ = simulator.advance(keys, states, parties.shared, own, 0, 6)
    assert np.asarray(own.kept.accepted).max() > 0
    assert (np.asarray(own.kept.log.pattern)[0, :, -8:] > 0).any(axis=1).all()
    for party in range(4):
        mine = jax.tree.map(lambda leaf, party=party: leaf[0, party], own)
        found = screened(p.ranker, -mine.kept.model, mine.kept.model[None], parties.shared[0], mine.kept.log, 0.0)
        against = screened(p.ranker, mine.kept.model, -mine.kept.model[None], parties.shared[0], mine.kept.log, 0.0)
        assert found.tolist() == [True] and against.tolist() == [False]


def test_wrong_settings():
    for settings, said in (
        ({"peers": 0}, "peers must be in"),
        ({"history": 3}, "history must be in"),
        ({"threshold": -1.0}, "threshold must be at least 0"),
        ({"kernels": True}, "no compiled kernel"),
    ):
        with pytest.raises(ConfigError, match=said):
            dataclasses.replace(protocol(), **settings)
