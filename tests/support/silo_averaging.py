"""Silos of logistic regressions, and two rounds of an averaging method on them; the equations written out in NumPy."""

import numpy as np
from scipy.special import expit
from silo_worlds import for_all, word
from sklearn.metrics import log_loss as sk_log_loss
from sklearn.metrics import roc_auc_score

from fedrank.silos.data.splits import Rows, SiloArrays
from fedrank.silos.local_sgd import LocalSgd
from fedrank.silos.network import TabularNetwork

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
    """First state, last state, silos, what was watched and the last replies, of two rounds.

    As a simulator plays them, without its randomness: the order of rows does not matter to a batch of all.
    """
    party, first = protocol.parties(ARRAYS), protocol.init(word(seed))
    state, watched, replies = first, [], None
    for number in range(2):
        for exchange in protocol.exchanges:
            if exchange.due(number):
                draws = np.zeros((SILOS, *exchange.rng_shape()), np.uint32) if exchange.trains else ()
                party, replies = exchange.respond(for_all(exchange.ask(state), SILOS), party, draws)
                state = exchange.tell(state, replies, np.ones(SILOS, bool))
        watched.append(protocol.watch(state) | {"replies": replies})
    return first, state, party, watched


def fedavg_rounds(theta, pretrain=False):
    """θ after each of two rounds, and what the silos had."""
    first, history = [trained(theta, k) if pretrain else theta for k in range(SILOS)], []
    for number in range(2):
        local = [trained(first[k] if number == 0 else theta, k) for k in range(SILOS)]
        theta = averaged(local)
        history.append((theta, local))
    return history
