"""Natural evolution strategies and CMA-ES: hand-made small cases, closed forms, and the ``cma`` package."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import FEATURES, tiny_parties

from fedrank.core.errors import ConfigError
from fedrank.core.protocol import Party
from fedrank.core.rng import perturbation
from fedrank.privacy.piecewise import Piecewise
from fedrank.ranking.clicks.cascade import cascade
from fedrank.ranking.mechanisms.piecewise import PiecewiseNumber
from fedrank.ranking.mechanisms.randomised_response import NoPrivacy
from fedrank.ranking.on_device import Reply
from fedrank.ranking.rankers.linear import Linear
from fedrank_zoo.adaptive_es import Pairs, shared_utilities
from fedrank_zoo.foltr_cma import FoltrCMA, Rates, adapted, rates, recombination, start
from fedrank_zoo.foltr_nes import FoltrNES, shaped

N = 3
SETTINGS = {"ranker": Linear(N), "user": cascade("perfect"), "privacy": NoPrivacy(), "kernels": False}
SEEDS = np.array([5, 6, 7, 8], np.uint32)
V = np.stack([perturbation(int(seed), N) for seed in SEEDS]).astype(float)
PLUS, MINUS = np.array([2520, 0, 1260, 9]), np.array([0, 0, 1260, 5040])
ARRIVED = np.array([True, True, True, False])

pytestmark = pytest.mark.slow


def told(protocol, state, arrived=ARRIVED):
    """The server's state after replies of four devices, the last of which was not heard."""
    reply = Reply(jnp.asarray(SEEDS), jnp.asarray(PLUS, jnp.int32), jnp.asarray(MINUS, jnp.int32))
    return protocol.exchanges[0].tell(state, reply, jnp.asarray(arrived))


def by_hand(given):
    """u⁺ and u⁻ of the three devices that were heard, from the utilities of the ranks 1 to 6.

    The values are 2520, 0, 1260 and 0, 0, 1260: one first, two that share ranks 2 and 3, three that share 4 to 6.
    """
    middle, low = np.mean(given[1:3]), np.mean(given[3:6])
    return np.array([given[0], low, middle]), np.array([low, low, middle])


def test_equal_values_share_their_utilities():
    given = np.array([5.0, 3.0, 2.0, 1.0, 0.5, 0.0, 0.0], np.float32)
    values = jnp.asarray([1.0, 4.0, 1.0, 9.0, 1.0, 0.0, 2.0])
    there = jnp.asarray([True, True, True, False, True, True, True])
    found = shared_utilities(values, there, jnp.asarray(given))
    np.testing.assert_allclose(np.asarray(found)[[0, 2, 4]], np.mean(given[2:5]), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(found)[[1, 6, 5, 3]], [5, 3, 0, 0], rtol=1e-6)


def test_a_round_of_natural_evolution_strategies():
    protocol = FoltrNES(**SETTINGS, sigma=0.5, learning_rate=0.8)
    count = 6
    raw = np.array([max(0.0, math.log(count / 2 + 1) - math.log(k)) for k in range(1, count + 1)])
    given = raw / raw.sum() - 1 / count
    np.testing.assert_allclose(shaped(jnp.arange(1.0, 9), jnp.float32(count))[:count], given, atol=1e-6)
    plus, minus = by_hand(given)
    v, sigma = V[:3], np.full(N, 0.5)
    weights = 0.8 * sigma * ((plus - minus) @ v)
    rate = (3 + math.log(N)) / (5 * math.sqrt(N))
    sigma = sigma * np.exp(rate / 2 * ((plus + minus) @ (v**2 - 1)))
    state = told(protocol, protocol.init(None))
    np.testing.assert_allclose(state.weights, weights, rtol=1e-5)
    np.testing.assert_allclose(state.sigma, sigma, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("covariance", ["separable", "full"])
def test_a_round_of_cma(covariance):
    """The tutorial's formulas in NumPy with explicit candidates, two rounds long."""
    protocol = FoltrCMA(**SETTINGS, sigma=0.5, covariance=covariance)
    state, matrix = protocol.init(None), covariance == "full"
    theta, s, p_s, p_c, c = np.zeros(N), 0.5, np.zeros(N), np.zeros(N), np.eye(N)
    w = np.array([max(0.0, math.log(3.5) - math.log(k)) for k in range(1, 7)])
    w /= w.sum()
    mass, faster = 1 / (w**2).sum(), 1.0 if matrix else (N + 2) / 3
    c_s = (mass + 2) / (N + mass + 5)
    d_s = 1 + 2 * max(0.0, math.sqrt((mass - 1) / (N + 1)) - 1) + c_s
    c_c = (4 + mass / N) / (N + 4 + 2 * mass / N)
    c_1 = min(1.0, faster * 2 / ((N + 1.3) ** 2 + mass))
    c_m = min(1 - c_1, faster * 2 * (0.25 + mass - 2 + 1 / mass) / ((N + 2) ** 2 + mass))
    usual = math.sqrt(N) * (1 - 1 / (4 * N) + 1 / (21 * N * N))
    plus, minus = by_hand(w)
    for g in (1, 2):
        values, vectors = np.linalg.eigh(c)
        root = vectors @ np.diag(np.sqrt(values)) @ vectors.T
        candidates, weight = np.concatenate([V[:3], -V[:3]]), np.concatenate([plus, minus])
        z = weight @ candidates
        m = 1 / ((plus - minus) ** 2).sum()
        y = root @ z
        theta = theta + s * y
        p_s = (1 - c_s) * p_s + math.sqrt(c_s * (2 - c_s) * m) * z
        length = np.linalg.norm(p_s)
        h = float(length / math.sqrt(1 - (1 - c_s) ** (2 * g)) < (1.4 + 2 / (N + 1)) * usual)
        p_c = (1 - c_c) * p_c + h * math.sqrt(c_c * (2 - c_c) * m) * y
        tried = sum(u * np.outer(root @ v, root @ v) for u, v in zip(weight, candidates, strict=True))
        c = (1 - c_1 - c_m + (1 - h) * c_1 * c_c * (2 - c_c)) * c + c_1 * np.outer(p_c, p_c) + c_m * tried
        c = c if matrix else np.diag(np.diag(c))
        s *= math.exp(min(1.0, c_s / d_s * (length / usual - 1)))
        state = told(protocol, state)
        np.testing.assert_allclose(state.weights, theta, rtol=2e-4, atol=1e-6)
        np.testing.assert_allclose(state.sigma, s, rtol=2e-4)
        np.testing.assert_allclose(state.covariance, c if matrix else np.diag(c), rtol=2e-3, atol=1e-5)
    spread = np.asarray(protocol.exchanges[0].ask(state).spread)
    square = spread @ spread if matrix else spread**2
    np.testing.assert_allclose(square, s * s * (c if matrix else np.diag(c)), rtol=3e-3, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [FoltrNES, FoltrCMA])
def test_who_is_not_heard_and_what_is_impossible_does_not_count(kind):
    protocol = kind(**SETTINGS)
    state = protocol.init(None)
    silent = told(protocol, state, np.zeros(4, bool))
    jax.tree.map(np.testing.assert_array_equal, silent, state._replace(round=state.round + 1))
    forged = Reply(jnp.asarray(SEEDS), jnp.asarray(PLUS, jnp.int32).at[3].set(10**6), jnp.asarray(MINUS, jnp.int32))
    with_forged = protocol.exchanges[0].tell(state, forged, jnp.ones(4, bool))
    jax.tree.map(np.testing.assert_array_equal, with_forged, told(protocol, state))


@pytest.mark.slow
def test_cma_steps_as_the_package_does():
    """Twelve generations of the ``cma`` package on a rotated ellipsoid, with its own candidates and rates."""
    cma = pytest.importorskip("cma")
    n, many = 5, 12
    random = np.random.default_rng(0)
    rotation = np.linalg.qr(random.normal(size=(n, n)))[0]

    def cost(x):
        return float(np.sum((10.0 ** np.arange(n) / 100) * (rotation @ x - 1) ** 2))

    options = {"seed": 1, "popsize": many, "CMA_active": False, "verbose": -9, "CMA_eigenmethod": np.linalg.eigh}
    es = cma.CMAEvolutionStrategy(np.zeros(n), 0.5, options)
    weights = np.asarray(es.sp.weights.positive_weights)
    np.testing.assert_allclose(
        recombination(jnp.arange(1.0, many + 1), jnp.float32(many))[: len(weights)], weights, rtol=1e-4
    )
    state = start(jnp.zeros(n, jnp.float32), 0.5, True)
    for _ in range(12):
        before, root, s = np.array(es.mean), np.asarray(state.root, float), float(state.sigma)
        candidates = es.ask()
        costs = [cost(x) for x in candidates]
        es.tell(candidates, costs)
        z = np.linalg.solve(root, ((np.array(candidates) - before) / s).T).T[np.argsort(costs)][: len(weights)]
        theirs = Rates(es.adapt_sigma.cs, es.adapt_sigma.damps, es.sp.cc, es.sp.c1, es.sp.cmu)
        second = np.einsum("k,ka,kb->ab", weights, z, z)
        state = adapted(
            state,
            jnp.asarray(weights @ z, jnp.float32),
            jnp.asarray(second, jnp.float32),
            jnp.float32(1.0),
            jnp.float32(es.sp.weights.mueff),
            theirs,
        )
        np.testing.assert_allclose(state.weights, es.mean, atol=2e-3)
        np.testing.assert_allclose(state.sigma, es.sigma, rtol=2e-2)
    np.testing.assert_allclose(state.covariance, es.sm.C, atol=0.05 * np.abs(es.sm.C).max())


def test_paths_of_pairs_have_unit_variance_where_ranks_are_drawn_by_lot():
    """E‖p‖² = n for steps that mean nothing: with μ_w of independent candidates it would be a quarter less."""
    n, parties = 8, 200
    random, lengths = np.random.default_rng(3), []
    weights = np.asarray(recombination(jnp.arange(1.0, 2 * parties + 1), jnp.float32(2 * parties)))
    for _ in range(300):
        u = weights[random.permutation(2 * parties)]
        apart = u[:parties] - u[parties:]
        z = apart @ random.normal(size=(parties, n))
        lengths.append((np.sum(z**2) / np.sum(apart**2), np.sum(z**2) / np.sum(weights**2)))
    ours, independent = np.mean(lengths, axis=0)
    assert abs(ours - n) < 0.6  # four standard errors
    assert independent < 0.85 * n


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"covariance": "full"}, None], ids=["separable", "full", "nes"])
def test_a_quadratic_is_climbed(settings):
    """Noiseless values −Σ aⱼ(θⱼ − 1)² of 40 pairs: the optimum is found, and spreads follow the curvatures a."""
    a, parties = np.array([1.0, 10.0, 100.0]), 40
    kind: Any = FoltrNES if settings is None else FoltrCMA
    protocol = kind(**SETTINGS, sigma=0.5, **(settings or {}))
    state, step = protocol.init(None), jax.jit(protocol.step)
    for number in range(60):
        seeds = np.arange(parties, dtype=np.uint32) + parties * number
        v = np.stack([perturbation(int(seed), N) for seed in seeds])
        spread = np.asarray(protocol.spread(state))
        away = v @ spread if spread.ndim == 2 else v * spread
        if number == 20:
            widths = np.sqrt(np.diag(spread @ spread)) if spread.ndim == 2 else spread
        values = [-np.sum(a * (np.asarray(state.weights) + sign * away - 1) ** 2, axis=1) for sign in (1, -1)]
        state = step(
            state, Pairs(jnp.asarray(seeds), *(jnp.asarray(x, jnp.float32) for x in values), jnp.ones(parties, bool))
        )
    np.testing.assert_allclose(state.weights, 1, atol=2e-3)
    assert widths[0] > 2 * widths[2]


def test_rates_are_the_tutorials():
    """Table 1 at n = 10, μ_w = 5, to four digits, by hand."""
    found = rates(10, jnp.float32(5.0))
    np.testing.assert_allclose(found.c_s, 7 / 20, rtol=1e-5)
    np.testing.assert_allclose(found.d_s, 1.35, rtol=1e-5)
    np.testing.assert_allclose(found.c_c, 4.5 / 15, rtol=1e-5)
    np.testing.assert_allclose(found.c_1, 2 / (11.3**2 + 5), rtol=1e-5)
    np.testing.assert_allclose(found.c_mu, 2 * (0.25 + 5 + 0.2 - 2) / (144 + 5), rtol=1e-5)


def test_what_is_broadcast_is_counted():
    size = Linear(46)
    common = {"ranker": size, "user": cascade("perfect")}
    plain = 1 + 4 + 4 * 46
    for protocol, down in (
        (FoltrNES(**common), plain + 4 * 46),
        (FoltrCMA(**common), plain + 4 * 46),
        (FoltrCMA(**common, covariance="full"), plain + 4 * 46**2),
    ):
        (exchange,) = protocol.exchanges
        assert (exchange.request.nbytes, exchange.reply.nbytes) == (down, 9)
        assert len(exchange.request.encode(exchange.ask(protocol.init(None)))) == down


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"covariance": "full"}], ids=["separable", "full"])
def test_the_kernel_and_jax_try_the_same_models(settings):
    """Equal draws and models give equal clicks: what is sent is the same to the bit."""

    def sent(kernels):
        protocol = FoltrCMA(Linear(FEATURES), cascade("navigational"), sigma=0.3, kernels=kernels, **settings)
        parties, (exchange,) = tiny_parties(protocol, 3), protocol.exchanges
        state = protocol.init(None)
        root = state.root * 1.5 + (0.1 if settings else jnp.arange(FEATURES) / 4)
        request = exchange.ask(state._replace(root=root, weights=jnp.arange(FEATURES) / 10))
        keys = jax.random.split(jax.random.key(4), 3)
        answer = jax.vmap(lambda own, key: exchange.answer(request, Party(parties.shared, own), key)[1])
        return jax.jit(answer)(parties.own, keys)

    found = [sent(kernels) for kernels in (True, False)]
    jax.tree.map(np.testing.assert_array_equal, *found)
    assert len({int(x) for x in np.asarray(found[0].plus)}) > 1


def test_wrong_settings():
    piecewise = {"privacy": PiecewiseNumber(member=Piecewise(1.0, 1, 2))}
    for kind, settings, said in (
        (FoltrNES, {"spread_rate": -1.0}, "spread_rate"),
        (FoltrCMA, {"covariance": "some"}, "covariance must be one of"),
        (FoltrCMA, {"ranker": Linear(2000), "covariance": "full"}, "2,000"),
        (FoltrCMA, piecewise, "difference only"),
    ):
        with pytest.raises(ConfigError, match=said):
            kind(**{**SETTINGS, **settings})
