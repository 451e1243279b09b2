"""Two rounds of every method against its equations in NumPy, on logistic regression trained with whole batches.

With one batch of all rows, E epochs are E steps along the gradient, whatever the shuffles.
"""

import numpy as np
from scipy.special import logsumexp
from silo_averaging import (
    ARRAYS,
    CLOSE,
    EPOCHS,
    FEATURES,
    NET,
    SGD,
    SILOS,
    SIZES,
    STAKES,
    area,
    averaged,
    fedavg_rounds,
    loss,
    played,
    rows,
    trained,
)
from silo_worlds import word

from fedrank.core.native import map_trees
from fedrank.core.streams import run_words
from fedrank.engine.attackers import Conditions
from fedrank.engine.native import NativeSimulator
from fedrank.silos.averaging import FedAvg, FineTuned
from fedrank_zoo.leave_one_out import Dropping, LeaveOneOut
from fedrank_zoo.local_only import LocalOnly, pool_training_rows


def test_fedavg_averages_by_rows_and_remembers_its_best_by_validation():
    protocol, keys = FedAvg(SGD, SILOS, 5), run_words([7])
    parties = protocol.parties(ARRAYS)
    simulator = NativeSimulator(protocol, parties, 16, Conditions())
    first, own = simulator.begin(keys, parties)
    state, own, seen = simulator.advance(keys, first, parties.shared, own, 0, 2)
    crossed = [[[SILOS] * 2, [SILOS] * 2], [[0, 0], [SILOS] * 2]]  # pre-training in round 0 only
    np.testing.assert_array_equal(np.asarray(seen["crossed"])[:, 0], crossed)
    first, state, party = *(map_trees(lambda leaf: leaf[0], one) for one in (first, state)), parties
    party = party._replace(own=map_trees(lambda leaf: leaf[0], own))
    (one, _), (two, local) = fedavg_rounds(np.asarray(first.weights, float), pretrain=True)
    np.testing.assert_allclose(state.weights, two, **CLOSE)
    ours, tuned = protocol.models(state, party), FineTuned(SGD, SILOS, 5).models(state, party)
    np.testing.assert_allclose(tuned["last"], np.stack(local), **CLOSE)
    for silo in range(SILOS):
        np.testing.assert_allclose(ours["last"][silo], two, **CLOSE)
        best = two if area(two, silo) > area(one, silo) else one
        np.testing.assert_allclose(ours["best"][silo], best, **CLOSE)


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


def test_a_wrong_silo_is_dropped_in_one_run_of_twenty_at_most_among_all_silos():
    """Ville's inequality with a union over the silos: a capital of 20 for each of them."""
    assert LeaveOneOut(SGD, 4, 5).evidence == 80 and LeaveOneOut(SGD, 3, 5).evidence == 60
    assert LeaveOneOut(SGD, 3, 5, personal=Dropping(evidence=7.0)).evidence == 7


def test_a_steady_harm_is_dropped_at_the_round_that_the_capital_says():
    protocol = LeaveOneOut(SGD, 4, 5, personal=Dropping(evidence=20.0))
    state = protocol.init(word(0))._replace(increments=np.array([0.02, -0.01, np.nan, 0.0], np.float32))
    dropped = None
    for number in range(1, 12):
        state = protocol.bet(state)
        capital = np.exp(logsumexp(number * np.log1p(STAKES)) - np.log(20))
        if dropped is None and capital >= 20:
            dropped = number
        np.testing.assert_array_equal(state.active, [dropped is None, True, True, True])
    assert dropped is not None and 3 < dropped < 11


def test_local_only_is_gradient_descent_from_a_network_of_its_own_and_pooled_rows_are_those_of_all():
    everybody = pool_training_rows(ARRAYS, 1)
    most = sum(SIZES["train"])
    assert everybody.train.x.shape == (1, 1, most, FEATURES) and int(everybody.train.n[0, 0]) == most
    protocol = LocalOnly(SGD, 1, most)
    fresh, words = np.array([[3, 4]], np.uint32), np.zeros((1, *SGD.rng_shape(most)), np.uint32)
    party, state = protocol.parties(everybody), protocol.init(None)
    for exchange, draws in zip(protocol.exchanges, ((words, fresh), words), strict=True):
        party, _ = exchange.respond(exchange.ask(state), party, draws)
    last, start = protocol.models(state, party)["last"][0], NET.initial(fresh[0]).astype(float)
    np.testing.assert_allclose(last, trained(start, 0, epochs=2 * EPOCHS, arrays=everybody), **CLOSE)
    one = [np.concatenate([rows(k, "train")[part] for k in range(SILOS)]) for part in (0, 1)]
    for ours, theirs in zip(rows(0, "train", everybody), one, strict=True):
        np.testing.assert_array_equal(ours, theirs)
