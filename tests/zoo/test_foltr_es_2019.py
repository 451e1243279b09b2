"""The published code's stream against NumPy's RandomState, which that code uses, drawn in the order that it draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import FEATURES, tiny_parties, tiny_protocol, tiny_queries

from fedrank_zoo import foltr_es_2019 as published

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [0, 1, 5489, 2**32 - 1])
def test_the_twister_is_numpys(seed):
    state, ours = np.empty(625, np.uint32), np.random.RandomState(seed)
    published.seed_twister(state, np.uint32(seed))
    for _ in range(200):
        assert published.next_double(state) == ours.uniform()
        assert published.next_below(state, 612) == ours.randint(0, 612)
        assert published.next_below(state, 1) == 0
    normals = np.empty(700, np.float32)
    published.seed_twister(state, np.uint32(seed))
    published.fill_normals(state, normals)
    np.testing.assert_array_equal(normals, np.random.RandomState(seed).standard_normal(700).astype(np.float32))


@pytest.mark.parametrize("antithetic", [True, False])
def test_sessions_follow_the_order_of_its_draws(antithetic):
    shown = published.PublishedHalves() if antithetic else published.PublishedOneSided()
    protocol = tiny_protocol(kind=published.FoltrES2019, sigma=0.5, presentation=shown)
    queries, user, devices = tiny_queries(), protocol.user, 40
    parties = tiny_parties(protocol, devices)
    seeds = np.random.default_rng(0).integers(0, 2**32, devices, dtype=np.uint32)
    center = np.random.default_rng(1).normal(size=FEATURES).astype(np.float32)
    data, chosen = parties.shared
    found = jax.vmap(
        lambda seed, own: published.published_sessions(
            protocol.ranker, user, data, jnp.asarray(center), seed, (0.5, -0.5)[: protocol.shown.halves],
            chosen, own.first, own.count, protocol.per_half,
        )
    )(jnp.asarray(seeds), parties.own)  # fmt: skip
    for seed, patterns in zip(seeds, np.asarray(found.patterns), strict=True):
        noise = np.random.RandomState(seed).standard_normal(FEATURES).astype(np.float32)
        chance = np.random.RandomState(seed)
        for half, sign in enumerate((1, -1)[: protocol.shown.halves]):
            weights = center + np.float32(sign * 0.5) * noise
            for k in range(protocol.per_half):
                query = chance.randint(0, queries.n_queries)
                rows = slice(queries.offsets[query], queries.offsets[query + 1])
                scores = queries.features[rows].astype(np.float64) @ weights.astype(np.float64)
                order = np.argsort(scores, kind="stable")[::-1]
                pattern = 0
                for rank, label in enumerate(queries.labels[rows][order][:10]):
                    if chance.uniform() < user.click[label]:
                        pattern |= 1 << rank
                        if chance.uniform() < user.stop[label]:
                            break
                assert patterns[half, k] == pattern
