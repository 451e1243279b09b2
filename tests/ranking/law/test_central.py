"""Laws of central learners, and of their sums of performance."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import FEATURES, tiny_queries

from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Party
from fedrank.engine.simulator import Simulator, run_keys
from fedrank.metrics.offline import offline_metric
from fedrank.metrics.returns import discounted_cumulative
from fedrank.ranking.central import PDGD
from fedrank.ranking.clicks.cascade import CascadeUser, cascade
from fedrank.ranking.data.partition import uniform
from fedrank.ranking.data.queries import QuerySet
from fedrank.ranking.data.reader import generate_queries
from fedrank.ranking.rankers.linear import Linear
from fedrank.ranking.rankers.mlp import TwoLayer
from fedrank_zoo.dueling import DBGD, MGD

LEARNERS = {"pdgd": PDGD, "dbgd": DBGD, "mgd": MGD}
RANDOM = CascadeUser("random", (0.5, 0.5, 0.5), (0.0, 0.0, 0.0))


def central(learner, ranker="linear", user="navigational", **settings):
    shape = TwoLayer(FEATURES, 3) if ranker == "mlp" else Linear(FEATURES)
    user = cascade(user) if isinstance(user, str) else user
    return LEARNERS[learner](shape, user, **{"interactions": 8, **settings})


def service(protocol, queries, **devices):
    data = queries.blocks() if protocol.kernels else queries.padded()
    return protocol.devices(data, uniform(queries.n_queries, 1), **devices)


def run(protocol, queries, rounds, seeds=(0, 1), **simulator):
    parties, simulator, keys = service(protocol, queries), Simulator(protocol, **simulator), run_keys(seeds)
    states, own = simulator.start(keys, parties)
    return simulator.advance(keys, states, parties.shared, own, 0, rounds)


def answers(protocol, queries, weights, count):
    """Weights after the first round from given weights, ``count`` times with new chance: float [count, n]."""
    (exchange,) = protocol.exchanges
    parties = service(protocol, queries)
    me = Party(parties.shared, jax.tree.map(lambda leaf: leaf[0], parties.own))
    request = dataclasses.replace(exchange.ask(protocol.init(jax.random.key(0))), weights=jnp.asarray(weights))
    keys = jax.random.split(jax.random.key(1), count)
    return np.asarray(jax.jit(jax.vmap(lambda key: exchange.answer(request, me, key)[1].weights))(keys), float)


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("ranker", ["linear", "mlp"])
def test_what_users_see_and_the_model_get_better(learner, ranker):
    queries = generate_queries(0, n_queries=60, n_features=FEATURES).train
    protocol = central(learner, ranker, "perfect", interactions=200)
    states, _, seen = run(protocol, queries, 40, seeds=(0, 1, 2))
    shown = np.asarray(seen["nDCG(dcg='exp-log2')@10"])  # [rounds, runs]
    assert shown[-10:].mean() > shown[:3].mean() + 0.02
    data, ndcg = queries.padded(), offline_metric("nDCG(dcg='exp-log2')@10")

    def quality(weights):
        return float(
            np.mean(ndcg(protocol.ranker.scores(weights, data.features), data.labels, data.where, dcg="exp-log2"))
        )

    start = quality(jnp.zeros(protocol.ranker.size))  # the order of the data
    assert min(quality(weights) for weights in states.weights) > start + 0.1


def mirrored(queries=100, documents=6, seed=0):
    """Labels grow with feature 0; with each query comes the one whose features are all negated.

    So no direction is distinguished but by the labels.
    """
    x = np.random.default_rng(seed).normal(size=(queries, documents, FEATURES))
    x = np.concatenate([x, -x])
    labels = np.digitize(x[..., 0], [0.5, 1.2]).ravel()
    offsets = np.arange(2 * queries + 1) * documents
    return QuerySet(x.reshape(-1, FEATURES), labels, offsets, np.arange(2 * queries).astype(str))


@pytest.mark.parametrize("learner", LEARNERS)
def test_clicks_that_do_not_depend_on_documents_teach_nothing(learner):
    queries, t = mirrored(), {}
    for user in (RANDOM, cascade("perfect")):
        protocol = central(learner, user=user, interactions=1, **({"candidates": 3} if learner == "mgd" else {}))
        step = answers(protocol, queries, np.zeros(FEATURES, np.float32), 20_000)
        t[user.name] = step.mean(0) / (step.std(0) / len(step) ** 0.5)
    assert np.abs(t["random"]).max() < 4  # standard errors
    assert t["perfect"][0] > 20  # the same measurement sees what there is to learn


def test_away_from_zero_random_clicks_do_move_dueling_bandits():
    """Rankers near and far from the others win unequally often; pairs of documents do not."""
    queries, weights = mirrored(), np.eye(FEATURES, dtype=np.float32)[1]
    t = {}
    for learner in ("pdgd", "mgd"):
        protocol = central(learner, user=RANDOM, interactions=1)
        step = answers(protocol, queries, weights, 30_000) - weights
        t[learner] = step.mean(0) / (step.std(0) / len(step) ** 0.5)
    assert np.abs(t["pdgd"]).max() < 4
    assert np.abs(t["mgd"][1]) > 4 and np.abs(np.delete(t["mgd"], 1)).max() < 4


@pytest.mark.parametrize("learner", LEARNERS)
def test_equal_seeds_give_equal_runs_alone_and_in_company(learner):
    queries = tiny_queries()
    protocol = central(learner)
    together, again, alone = (run(protocol, queries, 3, seeds)[0].weights for seeds in ((4, 5), (4, 5), (5,)))
    np.testing.assert_array_equal(together, again)
    np.testing.assert_allclose(together[1], alone[0], rtol=1e-5, atol=1e-7)
    assert np.abs(together[0] - together[1]).max() > 1e-3
    slowly = run(protocol, queries, 3, (5,), debug=True)[0].weights
    np.testing.assert_allclose(slowly, alone, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("learner", LEARNERS)
def test_kernels_and_jax_learn_the_same(learner):
    queries = tiny_queries()
    learnt = [run(central(learner, kernels=kernels), queries, 2) for kernels in (True, False)]
    for one, other in zip(jax.tree.leaves(learnt[0]), jax.tree.leaves(learnt[1]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert np.abs(learnt[0][0].weights).max() > 0.005


def test_a_batch_is_the_sum_of_gradients_at_the_start():
    """K interactions of one round with ``batch`` against each by itself from the same weights, same chance."""
    queries, k = tiny_queries(), 8
    weights = np.random.default_rng(0).normal(size=FEATURES).astype(np.float32)
    moves = {}
    for batch, amount in ((True, k), (False, k), (False, 1)):
        (exchange,) = central("pdgd", interactions=k, batch=batch, user="informational").exchanges
        parties = service(exchange.settings, queries, amounts=[amount])
        me = Party(parties.shared, jax.tree.map(lambda leaf: leaf[0], parties.own))
        request = exchange.request.message(np.uint32(0), weights)
        draws = exchange.draw(jax.random.key(3))
        starts = range(k) if amount == 1 else [0]  # each interaction in turn comes first, and is the only one
        respond = jax.jit(lambda d, e=exchange, r=request, me=me: e.respond(r, me, d)[1].weights)
        turned = [jax.tree.map(lambda leaf, i=i: jnp.roll(leaf, -i, axis=0), draws) for i in starts]
        moves[batch, amount] = sum(np.asarray(respond(d)) - weights for d in turned)
    np.testing.assert_allclose(moves[True, k], moves[False, 1], rtol=1e-4, atol=1e-6)
    assert np.abs(moves[True, k] - moves[False, k]).max() > 1e-3  # one after another is something else


@pytest.mark.parametrize("learner", LEARNERS)
def test_what_moves_inside_the_service_fits_its_layouts(learner):
    protocol, queries = central(learner), tiny_queries()
    (exchange,) = protocol.exchanges
    assert (protocol.name, exchange.request.nbytes, exchange.reply.nbytes) == (learner, 25, 21)
    parties = service(protocol, queries)
    me = Party(parties.shared, jax.tree.map(lambda leaf: leaf[0], parties.own))
    state = protocol.init(jax.random.key(0))
    first, second = exchange.draw_from_os(), exchange.draw_from_os()
    assert not np.array_equal(first[0], second[0])
    after, reply = exchange.respond(exchange.ask(state), me, first)
    back = exchange.reply.decode(exchange.reply.encode(reply))
    replies = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], back)
    told = exchange.tell(state, replies, jnp.ones(1, bool))
    np.testing.assert_array_equal(told.weights, reply.weights)
    assert int(told.round) == 1 and 0 < float(protocol.experience(after)["nDCG(dcg='exp-log2')@10"]) <= 1
    np.testing.assert_array_equal(exchange.tell(state, replies, jnp.zeros(1, bool)).weights, state.weights)


@pytest.mark.parametrize("learner", LEARNERS)
def test_no_word_of_chance_serves_two_purposes(learner, monkeypatch):
    (exchange,) = central(learner).exchanges
    asked = []
    monkeypatch.setattr("os.urandom", lambda n: asked.append(n) or np.arange(n // 4, dtype=np.uint32).tobytes())
    words = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(exchange.draw_from_os())])
    assert asked == [4 * len(words)] and sorted(words.tolist()) == list(range(len(words)))


def test_nothing_is_promised():
    account = central("mgd").account(7, 1e-6)
    assert isinstance(account, PrivacyReport) and account.epsilon_round == np.inf
    content = account.as_json()
    assert (
        content["details"] == {"rounds": 7}
        and content["epsilon_round"] is None
        and not content["promises"]
        and not content["covers"]
    )
    assert "clear" in content["words"][0]


def test_settings_out_of_range_are_refused():
    for settings, says in [
        ({"interactions": 0}, "interactions"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"radius": float("nan")}, "radius"),
        ({"learner": "mgd", "candidates": 0}, "candidates of mgd"),
        ({"user": cascade("perfect", depth=5)}, "looks at 10 ranks"),
    ]:
        with pytest.raises(ConfigError, match=says):
            central(**{"learner": "dbgd", **settings})


def test_one_party_with_data_in_the_layout_of_its_path():
    queries, protocol = tiny_queries(), central("dbgd")
    with pytest.raises(ConfigError, match="one party"):
        protocol.devices(queries.blocks(), uniform(queries.n_queries, 2))
    with pytest.raises(ConfigError, match=r"queries\.blocks"):
        protocol.devices(queries.padded(), uniform(queries.n_queries, 1))
    assert (protocol.learning_rate, protocol.candidates) == (0.01, 1)
    assert central("pdgd").learning_rate == 0.1
    assert (central("mgd").candidates, central("mgd", candidates=49).candidates) == (9, 49)


def test_discounted_sums_in_closed_form():
    """Of a constant: a geometric series. Of a single round: its value, discounted by the rounds before it."""
    gamma, rounds = 0.9995, 5000
    r = np.arange(1, rounds + 1)
    np.testing.assert_allclose(
        discounted_cumulative(np.full(rounds, 0.5)), 0.5 * (1 - gamma**r) / (1 - gamma), rtol=1e-10
    )
    one = np.zeros((10, 2))
    one[3] = [2.0, -1.0]
    expected = np.where(np.arange(10)[:, None] >= 3, 0.9**3 * np.array([[2.0, -1.0]]), 0.0)
    np.testing.assert_allclose(discounted_cumulative(one, 0.9), expected)
    np.testing.assert_array_equal(discounted_cumulative([1.0, 2.0, 4.0], gamma=1), [1, 3, 7])
    for wrong in ({"gamma": 0.0}, {"gamma": 1.1}, {"values": np.array(1.0)}):
        with pytest.raises(ConfigError, match="discounted sum"):
            discounted_cumulative(**{"values": [1.0], **wrong})
