"""COLTR's estimates by brute force over all rankings, and its steps against a loop over NumPy."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import FEATURES, tiny_parties, tiny_queries

from fedrank.core.errors import ConfigError
from fedrank.core.protocol import Party
from fedrank.ranking.clicks.cascade import cascade
from fedrank.ranking.data import partition
from fedrank.ranking.learners import document_bits, sample_ranking
from fedrank.ranking.rankers.linear import Linear
from fedrank_zoo.coltr import (
    COLTR,
    Comparison,
    FoltrCOLTR,
    LogDraws,
    coltr_steps,
    estimates,
    log_propensities,
    losses,
    unit_directions,
)

SCORES = np.array([0.3, -1.2, 0.9, 0.1, 50.0])  # the last is padding
OTHER = np.array([-0.6, 0.8, 0.2, 1.1, -7.0])
WHERE, DEPTH = np.array([True, True, True, True, False]), 3

pytestmark = pytest.mark.slow


def chances(scores, ranking):
    """Probability of each choice of a ranking, from the documents that are left."""
    left, found = [0, 1, 2, 3], []
    for document in ranking:
        found.append(np.exp(scores[document]) / np.exp(scores[left]).sum())
        left.remove(document)
    return np.array(found)


def test_propensities_are_those_of_each_choice():
    for ranking in itertools.permutations(range(4), DEPTH):
        logs = log_propensities(jnp.asarray([SCORES, OTHER]), WHERE, jnp.asarray(ranking))
        np.testing.assert_allclose(np.exp(logs), [chances(SCORES, ranking), chances(OTHER, ranking)], rtol=2e-6)
    with_padding = log_propensities(jnp.asarray(SCORES), WHERE, jnp.asarray([2, 0, 1, 3, 4]))
    np.testing.assert_allclose(with_padding[3:], 0, atol=1e-6)  # the last document is certain; padding is none


def test_weighted_losses_are_unbiased():
    """The mean of Σ w δ over what is logged is what the candidate would lose at each rank, by enumeration."""
    loss = np.array([0.0, 1.0, 0.3, 0.7])  # of a document, wherever it is shown
    estimated = expected = 0.0
    for ranking in itertools.permutations(range(4), DEPTH):
        p = chances(SCORES, ranking)
        logs = np.asarray(log_propensities(jnp.asarray([SCORES, OTHER]), WHERE, jnp.asarray(ranking)), float)
        estimated += p.prod() * np.exp(logs[1] - logs[0]) @ loss[list(ranking)]
        left = [0, 1, 2, 3]
        for document in ranking:
            q = np.exp(OTHER[left]) / np.exp(OTHER[left]).sum()
            expected += p.prod() * q @ loss[left]
            left.remove(document)
    np.testing.assert_allclose(estimated, expected, rtol=1e-5)


def test_the_estimates_are_the_papers():
    logs, shown = np.log([[0.2, 0.5, 0.1], [0.3, 0.1, 0.9]]), np.log([0.4, 0.25, 0.5])
    loss, caution = np.array([1.0, 0.0, 1.0]), 0.7
    w = np.exp(logs - shown)
    mean = (w * loss).sum(1) / w.sum(1)
    variance = ((loss - mean[:, None]) ** 2 * w**2).sum(1) / (w**2).sum(1)
    found = estimates(
        jnp.asarray(logs, jnp.float32), jnp.asarray(shown, jnp.float32), jnp.asarray(loss), jnp.ones(3, bool), caution
    )
    np.testing.assert_allclose(found, mean + caution * np.sqrt(variance / 3), rtol=1e-5)


@pytest.mark.parametrize(
    ("pattern", "expected"), [(0, [0, 0, 0, 0]), (0b0001, [0, 0, 0, 0]), (0b0100, [1, 1, 0, 0]), (0b1010, [1, 0, 1, 0])]
)
def test_what_is_skipped_is_a_loss(pattern, expected):
    np.testing.assert_array_equal(losses(jnp.int32(pattern), jnp.ones(4, bool)), expected)


def by_hand(queries, weights, about, bits, how, step):
    """The steps of COLTR with explicit loops; rankings and clicks come from the draws as elsewhere."""
    data, user = queries.padded(), cascade("perfect")
    for k, query in enumerate(about):
        x, labels, where = (np.asarray(a)[query] for a in (data.features, data.labels, data.where))
        noise = document_bits(bits.documents[k, 0], bits.documents[k, 1], len(where))
        scores = x.astype(float) @ weights
        ranking = np.asarray(sample_ranking(jnp.asarray(scores / how.temperature, jnp.float32), where, noise, 10))
        ranking = ranking[where[ranking]]
        clicked = np.array([(bits.clicks[k, i] >> 8) * 2.0**-24 < user.click[labels[d]] for i, d in enumerate(ranking)])
        if not clicked.any():
            continue
        loss = np.where(np.arange(len(ranking)) < np.flatnonzero(clicked)[-1], 1.0 - clicked, 0.0)
        directions = np.asarray(unit_directions(bits.directions[k], how.candidates, len(weights)), float)

        def cautious(model, ranking=ranking, loss=loss, x=x, where=where, base=weights):
            w, left = [], [d for d in range(len(where)) if where[d]]
            for document in ranking:
                p, q = (np.exp(x[[document, *left]] @ m / how.smoothing) for m in (model, base))
                w.append(p[0] / p[1:].sum() / (q[0] / q[1:].sum()))
                left.remove(document)
            w = np.array(w)
            mean = w @ loss / w.sum()
            return mean + how.caution * np.sqrt(w**2 @ (loss - mean) ** 2 / (w**2).sum() / len(w))

        own = cautious(weights)
        wins = np.array([cautious(weights + how.radius * u) < own - 1e-9 for u in directions])
        if wins.any():
            weights = weights + step * directions[wins].mean(axis=0)
    return weights


@pytest.mark.slow
def test_steps_against_a_loop():
    queries, random = tiny_queries(), np.random.default_rng(1)
    how, about = Comparison(7, 0.8, 0.5, 0.9, 0.3), np.array([3, 5, 7, 1, 9], np.int32)
    bits = LogDraws(*(random.integers(0, 2**32, shape, dtype=np.uint32) for shape in ((5, 2), (5, 10), (5,))))
    start = random.normal(size=FEATURES).astype(np.float32)
    steps = jax.jit(
        lambda active: coltr_steps(
            Linear(FEATURES), (cascade("perfect"),), 0, queries.padded(), start, 0.2, about, active, bits, how
        )
    )
    found = steps(jnp.ones(5, bool))
    np.testing.assert_allclose(found.weights, by_hand(queries, start.astype(float), about, bits, how, 0.2), atol=2e-5)
    assert np.abs(np.asarray(found.weights) - start).max() > 0.01
    half = steps(jnp.asarray([True, True, False, False, False]))
    np.testing.assert_allclose(
        half.weights, by_hand(queries, start.astype(float), about[:2], bits, how, 0.2), atol=2e-5
    )
    assert not np.asarray(half.sessions.patterns)[2:].any()


@pytest.mark.slow
def test_a_device_does_what_the_service_does():
    """With the same words, the weights that a device sends are those that a service of its interactions keeps."""
    how = Comparison(candidates=9)
    device = FoltrCOLTR(Linear(FEATURES), cascade("perfect"), interactions=3, kernels=False, compare=how)
    parties, (exchange,) = tiny_parties(device, 2), device.exchanges  # type: ignore[arg-type]
    party = Party(parties.shared, jax.tree.map(lambda leaf: leaf[0], parties.own))
    draws, request = exchange.draw(jax.random.key(2)), exchange.ask(device.init(jax.random.key(0)))
    sent = exchange.respond(request, party, draws)[1]
    service = COLTR(Linear(FEATURES), cascade("perfect"), interactions=3, kernels=False, compare=how)
    words = jnp.concatenate(
        [draws.queries, draws.documents[:, :2].ravel(), draws.clicks.ravel(), draws.documents[:, 2]]
    )
    queries = tiny_queries()
    alone = service.devices(queries.padded(), partition.uniform(queries.n_queries, 1))
    party = Party(alone.shared, jax.tree.map(lambda leaf: leaf[0], alone.own))
    kept = service.exchanges[0].respond(request, party, service.exchanges[0].cut(words))[1]
    np.testing.assert_allclose(sent.weights, kept.weights, rtol=1e-6)
    assert np.abs(np.asarray(sent.weights)).max() > 0
    assert exchange.reply.nbytes == 1 + 4 * FEATURES + 2


def test_wrong_settings():
    common = (Linear(2), cascade("perfect"))
    for settings, said in (
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"caution": -1.0}, "caution must be at least 0"),
        ({"radius": float("nan")}, "radius must be positive"),
    ):
        with pytest.raises(ConfigError, match=said):
            Comparison(**settings)
    for kind in (COLTR, FoltrCOLTR):
        with pytest.raises(ConfigError, match="no compiled kernel"):
            kind(*common, kernels=True)
