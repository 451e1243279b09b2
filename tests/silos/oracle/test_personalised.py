"""Two rounds of every method against its equations in NumPy, on logistic regression trained with whole batches.

With one batch of all rows, E epochs are E steps along the gradient, whatever the shuffles.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit, logsumexp
from sklearn.metrics import log_loss as sk_log_loss
from sklearn.metrics import roc_auc_score

from fedrank.core.protocol import Party
from fedrank.engine.simulator import Simulator, run_keys
from fedrank.silos.data.rows import Rows
from fedrank.silos.data.splits import SiloArrays, pooled
from fedrank.silos.fedfomo import FedFomo
from fedrank.silos.ifca import Ifca
from fedrank.silos.leave_one_out import LeaveOneOut
from fedrank.silos.local_sgd import LocalSgd
from fedrank.silos.network import TabularNetwork
from fedrank.silos.personalised import Apfl, Ditto, FedAvg, FineTuned, LocalOnly

FEATURES, SILOS, EPOCHS, RATE = 2, 3, 2, 0.4
NET = TabularNetwork(FEATURES, widths=(), norm="none")
SGD = LocalSgd(NET, EPOCHS, 100, RATE)
SIZES = {"train": (5, 3, 1), "vali": (8, 6, 7), "test": (8, 6, 7)}
#: Shares of the capital that leave-one-out stakes.
STAKES = (np.arange(20) + 0.5) / 20
CLOSE = {"rtol": 2e-4, "atol": 2e-5}


def world(seed=3):
    rng, parts = np.random.default_rng(seed), []
    for sizes in SIZES.values():
        most = max(sizes)
        x, y = np.zeros((1, SILOS, most, FEATURES), np.float32), np.zeros((1, SILOS, most), np.float32)
        for silo, n in enumerate(sizes):
            x[0, silo, :n] = rng.normal(size=(n, FEATURES))
            sign = -1 if silo == 1 else 1  # one silo learns the opposite
            y[0, silo, :n] = sign * x[0, silo, :n, 0] + 0.3 * rng.normal(size=n) > 0
            y[0, silo, 0], y[0, silo, n - 1] = 0, 1
        parts.append(Rows(x, y, np.array([sizes], np.int32)))
    return SiloArrays(*parts)


ARRAYS = world()


def rows(silo, part, arrays=ARRAYS):
    x, y, n = (np.asarray(a)[0, silo] for a in getattr(arrays, part))
    return x[:n].astype(float), y[:n].astype(float)


def margin(w, x):
    layer, bias = w[: 2 * FEATURES].reshape(FEATURES, 2), w[2 * FEATURES :]
    return x @ (layer[:, 1] - layer[:, 0]) + bias[1] - bias[0]


def gradient(w, x, y):
    wrong = expit(margin(w, x)) - y
    of_layer, of_bias = x.T @ wrong / len(y), wrong.mean()
    return np.concatenate([np.stack([-of_layer, of_layer], 1).reshape(-1), [-of_bias, of_bias]])


def trained(w, silo, anchor=None, pull=0.0, epochs=EPOCHS, arrays=ARRAYS):
    for _ in range(epochs):
        towards = pull * (w - anchor) if anchor is not None else 0.0
        w = w - RATE * (gradient(w, *rows(silo, "train", arrays)) + towards)
    return w


def loss(w, silo, part):
    x, y = rows(silo, part)
    return sk_log_loss(y, expit(margin(w, x)), labels=[0, 1])


def area(w, silo, part="vali"):
    x, y = rows(silo, part)
    return roc_auc_score(y, margin(w, x))


def averaged(models, which=None):
    n = np.array(SIZES["train"], float)
    n = n if which is None else np.where(which, n, 0)
    return n @ np.stack(models) / n.sum()


def played(protocol, seed=7):
    """First state, last state, own, what was watched and the last replies, of two rounds.

    As a simulator plays them, without its randomness: the order of rows does not matter to a batch of all.
    """
    parties, first = protocol.parties(ARRAYS), protocol.init(jax.random.key(seed))

    @partial(jax.jit, static_argnums=0)
    def exchanged(exchange, state, own):
        request, words = exchange.ask(state), jnp.zeros(exchange.rng_shape(), jnp.uint32) if exchange.trains else ()

        def answer(mine):
            after, reply = exchange.respond(request, Party(parties.shared, mine), words)
            return after.own, reply

        own, replies = jax.vmap(answer)(own)
        return exchange.tell(state, replies, jnp.ones(SILOS, bool)), own, replies

    state, own, watched, replies = first, parties.own, [], None
    for number in range(2):
        for exchange in protocol.exchanges:
            if exchange.due(number):
                state, own, replies = exchanged(exchange, state, own)
        watched.append(protocol.watch(state) | {"replies": replies})
    return first, state, own, watched


def models(protocol, state, own):
    """Of every silo."""
    shared = jax.tree.map(jnp.asarray, ARRAYS)
    return jax.jit(jax.vmap(lambda mine: protocol.models(state, Party(shared, mine))))(own)


def fedavg_rounds(theta, pretrain=False):
    """θ after each of two rounds, and what the silos had."""
    first, history = [trained(theta, k) if pretrain else theta for k in range(SILOS)], []
    for number in range(2):
        local = [trained(first[k] if number == 0 else theta, k) for k in range(SILOS)]
        theta = averaged(local)
        history.append((theta, local))
    return history


def test_fedavg_averages_by_rows_and_remembers_its_best_by_validation():
    protocol, keys = FedAvg(SGD, SILOS, 5), run_keys([7])
    parties, simulator = protocol.parties(ARRAYS), Simulator(protocol)
    first, own = simulator.start(keys, parties)
    state, own, seen = simulator.advance(keys, first, parties.shared, own, 0, 2)
    crossed = [[[SILOS] * 2, [SILOS] * 2], [[0, 0], [SILOS] * 2]]  # pre-training in round 0 only
    np.testing.assert_array_equal(np.asarray(seen["crossed"])[:, 0], crossed)
    first, state, own = jax.tree.map(lambda leaf: leaf[0], (first, state, own))
    (one, _), (two, local) = fedavg_rounds(np.asarray(first.weights, float), pretrain=True)
    np.testing.assert_allclose(state.weights, two, **CLOSE)
    ours, tuned = models(protocol, state, own), models(FineTuned(SGD, SILOS, 5), state, own)
    np.testing.assert_allclose(tuned["last"], np.stack(local), **CLOSE)
    for silo in range(SILOS):
        np.testing.assert_allclose(ours["last"][silo], two, **CLOSE)
        best = two if area(two, silo) > area(one, silo) else one
        np.testing.assert_allclose(ours["best"][silo], best, **CLOSE)


def test_ditto_pulls_its_personal_model_to_what_was_handed_out():
    pull = 0.7
    protocol = Ditto(SGD, SILOS, 5, measure="log-loss", pretrain=False, pull=pull)
    first, state, own, _ = played(protocol)
    theta = np.asarray(first.weights, float)
    (one, _), (two, _) = fedavg_rounds(theta)
    np.testing.assert_allclose(state.weights, two, **CLOSE)
    ours = models(protocol, state, own)["last"]
    for silo in range(SILOS):
        v = trained(theta, silo, theta, pull)
        v = trained(v, silo, one, pull)
        np.testing.assert_allclose(ours[silo], v, **CLOSE)


def test_apfl_moves_both_models_and_its_share():
    protocol = Apfl(SGD, SILOS, 5, measure="log-loss", pretrain=False, share=0.6)
    first, state, own, _ = played(protocol)
    theta = np.asarray(first.weights, float)
    shares, ours = [], models(protocol, state, own)["last"]
    for silo in range(SILOS):
        x, y = rows(silo, "train")
        w = v = theta
        share = 0.6
        for number in range(2):
            if number:
                w = fedavg_rounds(theta)[0][0]
            step = gradient(share * v + (1 - share) * w, x, y) @ (v - w)
            share = np.clip(share - RATE * step, 0, 1)
            for _ in range(EPOCHS):
                mixed = gradient(share * v + (1 - share) * w, x, y)
                w, v = w - RATE * gradient(w, x, y), v - RATE * share * mixed
        shares.append(share)
        expected = share * v + (1 - share) * fedavg_rounds(theta)[1][0]
        np.testing.assert_allclose(own.share[silo], share, **CLOSE)
        np.testing.assert_allclose(ours[silo], expected, **CLOSE)
    assert any(abs(share - 0.6) > 1e-3 for share in shares)


def mixed_by_fomo(before, candidates, silo):
    gains = [loss(before, silo, "vali") - loss(c, silo, "vali") for c in candidates]
    moves = [c - before for c in candidates]
    worth = np.array([max(0, g / np.linalg.norm(m)) if np.any(m) else 0 for g, m in zip(gains, moves, strict=True)])
    share = worth / worth.sum() if worth.sum() else worth
    return before + share @ np.stack(moves), share


def test_fedfomo_mixes_by_gain_over_distance():
    protocol = FedFomo(SGD, SILOS, 5, measure="log-loss")
    first, state, own, seen = played(protocol)
    theta = np.asarray(first.models[0], float)
    before, newest = [theta] * SILOS, [trained(theta, k) for k in range(SILOS)]
    for number in range(2):
        both = [mixed_by_fomo(before[k], newest, k) for k in range(SILOS)]
        before = [mix for mix, _ in both]
        shares = np.stack([share for _, share in both])
        np.testing.assert_allclose(seen[number]["mixed"], shares * ~np.eye(SILOS, dtype=bool), rtol=5e-3, atol=1e-4)
        newest = [trained(before[k], k) for k in range(SILOS)]
    assert shares.max() > 0
    np.testing.assert_allclose(state.models, np.stack(newest), rtol=2e-3, atol=2e-4)
    last = [mixed_by_fomo(before[k], newest, k)[0] for k in range(SILOS)]
    np.testing.assert_allclose(models(protocol, state, own)["last"], np.stack(last), rtol=2e-3, atol=2e-4)


def test_ifca_trains_the_model_that_fits_and_averages_within_clusters():
    protocol = Ifca(SGD, SILOS, 5, measure="log-loss", pretrain=False, clusters=2)
    first, state, own, seen = played(protocol, seed=0)  # of which both clusters are chosen
    thetas = [np.asarray(w, float) for w in first.weights]
    for number in range(2):
        chosen = np.array([np.argmin([loss(w, k, "train") for w in thetas]) for k in range(SILOS)])
        np.testing.assert_array_equal(seen[number]["replies"].cluster, chosen)
        local = [trained(thetas[c], k) for k, c in enumerate(chosen)]
        thetas = [averaged(local, chosen == c) if np.any(chosen == c) else w for c, w in enumerate(thetas)]
    assert len(set(chosen.tolist())) == 2  # or the test says nothing of clusters
    np.testing.assert_allclose(state.weights, np.stack(thetas), **CLOSE)
    best = [thetas[np.argmin([loss(w, k, "train") for w in thetas])] for k in range(SILOS)]
    np.testing.assert_allclose(models(protocol, state, own)["last"], np.stack(best), **CLOSE)


def test_leave_one_out_takes_the_average_of_the_best_median_and_bets_on_its_sign():
    protocol = LeaveOneOut(SGD, SILOS, 5, measure="log-loss", pretrain=False)
    first, state, _, seen = played(protocol)
    theta, x = np.asarray(first.weights, float), []
    for _ in range(2):
        local = [trained(theta, k) for k in range(SILOS)]
        arms = [averaged(local)] + [averaged(local, np.arange(SILOS) != j) for j in range(SILOS)]
        value = np.array([[-loss(w, k, "vali") for w in arms] for k in range(SILOS)])
        x.append(np.median(value[:, 1:] - value[:, :1], axis=0))
        theta = arms[int(np.argmax(np.concatenate([[0], x[-1]])))]
    np.testing.assert_allclose(np.stack([one["increments"] for one in seen]), x, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(state.weights, theta, **CLOSE)
    for silo in range(SILOS):
        signs = np.sign(np.array(x)[:, silo])
        capital = [np.mean([np.prod(1 + bet * signs[: n + 1]) for bet in STAKES]) for n in range(2)]
        np.testing.assert_allclose([float(one["evidence"][silo]) for one in seen], capital, rtol=1e-4)


def test_a_steady_harm_is_dropped_at_the_round_that_the_capital_says():
    protocol = LeaveOneOut(SGD, 4, 5)
    state = protocol.init(jax.random.key(0))._replace(increments=jnp.array([0.02, -0.01, jnp.nan, 0.0], jnp.float32))
    bet = jax.jit(protocol.bet)
    dropped = None
    for number in range(1, 12):
        state = bet(state)
        capital = np.exp(logsumexp(number * np.log1p(STAKES)) - np.log(20))
        if dropped is None and capital >= 20:
            dropped = number
        np.testing.assert_array_equal(state.active, [dropped is None, True, True, True])
    assert dropped is not None and 3 < dropped < 11


def test_local_only_is_gradient_descent_from_a_network_of_its_own_and_pooled_rows_are_those_of_all():
    everybody = pooled(ARRAYS, 1)
    most = sum(SIZES["train"])
    assert everybody.train.x.shape == (1, 1, most, FEATURES) and int(everybody.train.n[0, 0]) == most
    protocol = LocalOnly(SGD, 1, most)
    fresh, words = jnp.array([3, 4], jnp.uint32), jnp.zeros(SGD.rng_shape(most), jnp.uint32)
    parties = protocol.parties(everybody)

    @jax.jit
    def last():
        state = protocol.init(jax.random.key(0))
        me = Party(parties.shared, jax.tree.map(lambda leaf: leaf[0], parties.own))
        for exchange, draws in zip(protocol.exchanges, ((words, fresh), words), strict=True):
            me, _ = exchange.respond(exchange.ask(state), me, draws)
        return protocol.models(state, me)["last"]

    start = np.asarray(NET.initial(jax.random.wrap_key_data(fresh)), float)
    np.testing.assert_allclose(last(), trained(start, 0, epochs=2 * EPOCHS, arrays=everybody), **CLOSE)
    one = [np.concatenate([rows(k, "train")[part] for k in range(SILOS)]) for part in (0, 1)]
    for ours, theirs in zip(rows(0, "train", everybody), one, strict=True):
        np.testing.assert_array_equal(ours, theirs)
