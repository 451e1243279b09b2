"""Two rounds of the further methods of silos against their equations in NumPy, and what holds of all of them.

The equations are those of logistic regression trained with whole batches: with one batch of all rows, E epochs are E
steps along the gradient, whatever the shuffles.
"""

import dataclasses

import numpy as np
import pytest
from silo_averaging import (
    CLOSE,
    EPOCHS,
    RATE,
    SGD,
    SILOS,
    averaged,
    fedavg_rounds,
    gradient,
    loss,
    played,
    rows,
    trained,
)
from silo_worlds import word

from fedrank.core.errors import ConfigError
from fedrank.silos.averaging import PersonalisedProtocol
from fedrank.silos.local_sgd import LocalSgd
from fedrank.silos.network import TabularNetwork
from fedrank_zoo.apfl import Apfl, ApflSettings
from fedrank_zoo.ditto import Ditto, DittoSettings
from fedrank_zoo.fedbn import FedBn
from fedrank_zoo.fedfomo import FedFomo, FedFomoSettings
from fedrank_zoo.ifca import Ifca, IfcaSettings

pytestmark = pytest.mark.slow


def test_ditto_pulls_its_personal_model_to_what_was_handed_out():
    pull = 0.7
    protocol = Ditto(SGD, SILOS, 5, measure="log-loss", pretrain=False, personal=DittoSettings(pull=pull))
    first, state, party, _ = played(protocol)
    theta = np.asarray(first.weights, float)
    (one, _), (two, _) = fedavg_rounds(theta)
    np.testing.assert_allclose(state.weights, two, **CLOSE)
    ours = protocol.models(state, party)["last"]
    for silo in range(SILOS):
        v = trained(theta, silo, theta, pull)
        v = trained(v, silo, one, pull)
        np.testing.assert_allclose(ours[silo], v, **CLOSE)


def test_apfl_moves_both_models_and_its_share():
    protocol = Apfl(SGD, SILOS, 5, measure="log-loss", pretrain=False, personal=ApflSettings(share=0.6))
    first, state, party, _ = played(protocol)
    theta = np.asarray(first.weights, float)
    shares, ours = [], protocol.models(state, party)["last"]
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
        np.testing.assert_allclose(party.own.share[silo], share, **CLOSE)
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
    first, state, party, seen = played(protocol)
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
    np.testing.assert_allclose(protocol.models(state, party)["last"], np.stack(last), rtol=2e-3, atol=2e-4)


def test_ifca_trains_the_model_that_fits_and_averages_within_clusters():
    protocol = Ifca(SGD, SILOS, 5, measure="log-loss", pretrain=False, personal=IfcaSettings(clusters=2))
    first, state, party, seen = played(protocol, seed=0)  # of which both clusters are chosen
    thetas = [np.asarray(w, float) for w in first.weights]
    for number in range(2):
        chosen = np.array([np.argmin([loss(w, k, "train") for w in thetas]) for k in range(SILOS)])
        np.testing.assert_array_equal(seen[number]["replies"].cluster, chosen)
        local = [trained(thetas[c], k) for k, c in enumerate(chosen)]
        thetas = [averaged(local, chosen == c) if np.any(chosen == c) else w for c, w in enumerate(thetas)]
    assert len(set(chosen.tolist())) == 2  # or the test says nothing of clusters
    np.testing.assert_allclose(state.weights, np.stack(thetas), **CLOSE)
    best = [thetas[np.argmin([loss(w, k, "train") for w in thetas])] for k in range(SILOS)]
    np.testing.assert_allclose(protocol.models(state, party)["last"], np.stack(best), **CLOSE)


# ------------------------------------------------------------------------------------------------- what holds of all

DEEP = LocalSgd(TabularNetwork(2, (2,)), epochs=2, batch=2, learning_rate=0.2)
P, READY = DEEP.network.size, 5
SENT, KEPT = (5 + 4 * P, READY), (5 + 4 * P, 5 + 4 * P)
#: Bytes of request and reply of each exchange, counted by hand: header 1, round 4, rows 4.
SIZES = {
    Ditto(DEEP, 3, 5): [SENT, KEPT],
    Apfl(DEEP, 3, 5): [SENT, KEPT],
    FedBn(DEEP, 3, 5): [(5 + 4 * (P - 8), READY), (5 + 4 * (P - 8), 5 + 4 * (P - 8))],
    Ifca(DEEP, 3, 5): [(5 + 8 * P, READY), (5 + 8 * P, 9 + 4 * P)],
    FedFomo(DEEP, 3, 5): [KEPT, (5 + 12 + 12 * P, 5 + 4 * P + 12)],
    FedFomo(DEEP, 3, 5, personal=FedFomoSettings(downloads=1)): [KEPT, *[(5 + 4 + 4 * P, 5 + 4 * P + 4)] * 3],
}


@pytest.mark.parametrize("protocol", SIZES, ids=lambda protocol: protocol.name)
def test_bytes_of_a_round_by_hand(protocol: PersonalisedProtocol):
    assert [(e.request.nbytes, e.reply.nbytes) for e in protocol.exchanges] == SIZES[protocol]


@pytest.mark.parametrize("method", [FedFomo, Ifca])
def test_a_silo_that_is_not_heard_does_not_matter(method):
    protocol = method(SGD, SILOS, 5)
    _, state, _, seen = played(protocol)
    replies, exchange = seen[-1]["replies"], protocol.exchanges[-1]
    without = np.array([True, False, True])
    broken = dataclasses.replace(replies, weights=np.where(without[:, None], replies.weights, np.nan))
    heard = exchange.tell(state, replies, without)
    np.testing.assert_array_equal(
        protocol.weights(exchange.tell(state, broken, np.ones(3, bool))), protocol.weights(heard)
    )
    nobody = exchange.tell(state, replies, np.zeros(3, bool))
    np.testing.assert_array_equal(protocol.weights(nobody), protocol.weights(state))


def test_a_mixture_of_all_own_is_local_training_and_of_none_federated_averaging():
    for share, wanted in ((1.0, LocalSgd), (0.0, None)):
        protocol = Apfl(SGD, SILOS, 5, personal=ApflSettings(share=share, adaptive=False), pretrain=False)
        first, state, party, _ = played(protocol)
        ours, theta = protocol.models(state, party)["last"], first.weights.astype(float)
        for silo in range(SILOS):
            alone = trained(theta, silo, epochs=2 * EPOCHS)
            np.testing.assert_allclose(ours[silo], alone if wanted else fedavg_rounds(theta)[1][0], **CLOSE)


def test_a_fedfomo_silo_is_sent_other_silos_models_and_those_it_likes_first():
    protocol = FedFomo(SGD, 5, 5, personal=FedFomoSettings(downloads=2, explore=0.0))
    liked = np.zeros((5, 5), np.float32)
    liked[0, 3], liked[0, 2], liked[4, 0] = 0.5, 0.2, 0.1
    chosen = np.stack(
        [protocol.choose_models(protocol.init(word(seed))._replace(affinity=liked)).chosen for seed in range(20)]
    )
    np.testing.assert_array_equal(chosen[:, 0], np.tile([3, 2], (20, 1)))
    assert np.all(chosen[:, 4, 0] == 0) and set(chosen[:, 4, 1].tolist()) == {1, 2, 3}
    assert np.all(chosen != np.arange(5)[None, :, None]) and np.all(chosen[..., 0] != chosen[..., 1])


@pytest.mark.parametrize(
    ("method", "settings", "words"),
    [
        (Ditto, DittoSettings(pull=-1.0), "pull"),
        (Apfl, ApflSettings(share=1.5), "share"),
        (FedFomo, FedFomoSettings(downloads=3), "downloads"),
        (FedFomo, FedFomoSettings(explore=2.0), "explore"),
        (Ifca, IfcaSettings(clusters=0), "clusters"),
    ],
)
def test_settings_out_of_range_are_refused(method, settings, words):
    with pytest.raises(ConfigError, match=words):
        method(SGD, 3, 5, personal=settings)
