"""What MAB-FL does when silos are silent, broken, alike, tiny or many, and which messages cross."""

import numpy as np
import pytest
from silo_worlds import (
    ROWS,
    SILOS,
    TRAIN,
    changed,
    deep_sgd,
    fields_of,
    linear_sgd,
    make_rule,
    played,
    tiny_bandit,
    tiny_silos,
    word,
)

from fedrank.core.errors import ConfigError
from fedrank.core.native import map_trees
from fedrank.core.rng import FATE
from fedrank.core.streams import fold_words, run_words, stream, uniforms
from fedrank.engine.attackers import Conditions
from fedrank.engine.native import NativeSimulator, stack_states
from fedrank.silos.bandit_fedavg import Tell
from fedrank.silos.bandits.rules import members_of
from fedrank.silos.messages import Candidates, Told
from fedrank.silos.network import TabularNetwork
from fedrank.silos.party import some_of
from fedrank.silos.rounds import begin_runs, models_of_runs
from fedrank.silos.sceptic.learners import fit_glm
from fedrank.silos.sceptic.shrinkage import Quadratic, shrink

ROUNDS = 5
ARRAYS = tiny_silos()
PAIRS = tiny_bandit(evaluates="either")
LATE = tiny_bandit(linear_sgd(epochs=30, rate=1.0), arms="all", evaluates="all", delayed=True, probe=True)
PATIENT = tiny_bandit(evaluates="either", patience=2)
EVERYTHING = make_rule("extreme-explore")


def run(rule, protocol=PAIRS, arrays=ARRAYS, **settings):
    return played(protocol, arrays, rule, ROUNDS, **settings)


def pulls(one):
    return np.asarray(one.state.estimates.pulls)


def assert_same_run(first, second):
    np.testing.assert_allclose(first.weights, second.weights, atol=1e-5)
    np.testing.assert_allclose(first.watched["increments"], second.watched["increments"], atol=1e-5)
    np.testing.assert_array_equal(pulls(first), pulls(second))
    np.testing.assert_array_equal(first.watched["arm"], second.watched["arm"])


# drop-outs


def test_an_arm_that_lacks_a_silo_is_no_observation_and_its_average_is_of_who_was_heard():
    one = run(make_rule("fixed", fixed=1), heard={1: [1]})
    np.testing.assert_array_equal(pulls(one)[:, 1], [1, 1, 2, 3, 4])
    assert np.isnan(one.watched["increments"][1]).all()
    assert np.isfinite(one.watched["increments"][2][1])
    np.testing.assert_array_equal(one.watched["estimates"][1], one.watched["estimates"][0])
    np.testing.assert_allclose(one.weights[1], one.models[1][0], atol=1e-6)


def test_of_an_extreme_explore_round_only_the_arms_that_lack_a_silo_are_not_observed():
    one = run(EVERYTHING, heard={1: [2], 3: [1]})
    np.testing.assert_array_equal(pulls(one), [[1, 1, 1], [2, 2, 1], [3, 3, 2], [4, 3, 3], [5, 4, 4]])
    assert one.watched["arm"][1] != 2 and one.watched["arm"][3] != 1


@pytest.mark.parametrize("rule", [make_rule("fixed", fixed=1), EVERYTHING], ids=["one", "all"])
@pytest.mark.parametrize("silent", [[0], [0, 1, 2]], ids=["target", "everybody"])
def test_without_the_target_nothing_is_learnt_and_the_model_stays(rule, silent):
    one = run(rule, heard={2: silent})
    for field in ("weights", "best", "best_weights", "best_round", "previous"):
        np.testing.assert_array_equal(getattr(one, field)[2], getattr(one, field)[1], err_msg=field)
    map_trees(lambda leaf: np.testing.assert_array_equal(leaf[2], leaf[1]), one.state.estimates)
    np.testing.assert_array_equal(one.state.round, range(1, ROUNDS + 1))
    assert np.isnan(one.watched["increments"][2]).all() and np.isfinite(one.watched["increments"][3]).any()


def test_nobody_heard_in_the_first_round_leaves_the_fresh_network():
    one = run(EVERYTHING, heard={0: range(SILOS)}, opening=range(SILOS))
    np.testing.assert_array_equal(one.weights[0], one.fresh)
    assert pulls(one)[0].sum() == 0 and pulls(one)[1].sum() == 3


@pytest.mark.parametrize("protocol", [PAIRS, LATE], ids=["at once", "late"])
@pytest.mark.parametrize("silo", [0, 1], ids=["target", "helper"])
def test_weights_that_are_no_numbers_are_as_if_nobody_had_sent_them(protocol, silo):
    bad = run(EVERYTHING, protocol, broken={1: [silo]})
    for weights in (bad.weights, bad.best_weights, bad.state.models):
        assert np.isfinite(weights).all()
    if silo == 1:
        assert_same_run(bad, run(EVERYTHING, protocol, heard={1: [silo]}))
    else:
        np.testing.assert_array_equal(bad.weights[1], bad.weights[0])
    lacking = pulls(run(EVERYTHING, protocol))[-1] - pulls(bad)[-1]
    arms = np.asarray(bad.state.members)[0]
    np.testing.assert_array_equal(lacking, arms[:, silo])


def test_rewards_that_are_late_are_lost_with_the_target_and_no_others():
    one = run(EVERYTHING, LATE, heard={2: [0]})
    assert np.isnan(one.watched["increments"][2]).all() and np.isnan(one.watched["increments"][3]).all()
    assert np.isfinite(one.watched["increments"][4]).all()
    np.testing.assert_array_equal(one.weights[2], one.weights[1])


def test_a_silo_that_was_silent_before_the_first_round_is_averaged_like_the_others():
    assert_same_run(run(EVERYTHING, opening=[1, 2]), run(EVERYTHING))


# probe


def test_the_probe_shows_inverted_labels_and_says_nothing_of_who_was_not_heard():
    arrays = tiny_silos(0)
    x, y = arrays.train.x[0, 0], arrays.train.y[0, 0]
    arrays = changed(arrays, "train", 1, x=x, y=1 - y, n=TRAIN[0])
    one = run(EVERYTHING, LATE, arrays, broken={-1: [2]})
    probe = np.asarray(one.opening.probe)
    assert probe[0] > 0.6 and probe[1] < 0.4 and np.isnan(probe[2])


# messages


def messages(one):
    """Requests and replies of every round where everybody is heard."""
    return 2 * one.asked.sum(axis=(1, 2))


def test_a_pair_is_six_messages_and_the_target_alone_four():
    for arm, count in ((0, 4), (1, 6), (2, 6)):
        np.testing.assert_array_equal(messages(run(make_rule("fixed", fixed=arm))), count)


def test_extreme_explore_with_late_rewards_is_two_messages_a_silo():
    one = run(EVERYTHING, LATE)
    np.testing.assert_array_equal(messages(one), 2 * SILOS)
    np.testing.assert_array_equal(one.asked[:, 0], np.tile([False, True, True], (ROUNDS, 1)))
    np.testing.assert_array_equal(one.asked[:, 1], np.tile([True, False, False], (ROUNDS, 1)))


def test_an_arm_asks_its_silos_and_the_target_judges():
    for target in range(SILOS):
        one = run(make_rule("fixed", fixed=2), target=target)
        helper = [silo for silo in range(SILOS) if silo != target][1]
        train, judge, judge_all = (one.asked[:, index] for index in range(3))
        np.testing.assert_array_equal(train, np.tile(np.isin(range(SILOS), [target, helper]), (ROUNDS, 1)))
        np.testing.assert_array_equal(judge, np.tile(np.arange(SILOS) == target, (ROUNDS, 1)))
        assert not judge_all.any()


@pytest.mark.parametrize("silos", [2, 3, 4, 6])
def test_over_all_combinations_drawn_alike_the_mean_is_k_plus_three(silos):
    protocol = tiny_bandit(silos=silos, arms="all", evaluates="one")
    members = members_of(protocol.table, 1, silos)
    state, counts = run(EVERYTHING).opening._replace(members=members, target=np.int32(1)), []
    for arm in range(2 ** (silos - 1)):
        now = state._replace(arm=np.int32(arm), explore=np.False_)
        asked = [exchange.asked(now, silos) for exchange in protocol.exchanges[1:]]
        counts.append(2 * sum(int(who.sum()) for who in asked))
    assert np.mean(counts) == silos + 3


def test_scheduled_extreme_explore_rounds_ask_for_all_and_the_others_for_one():
    one = run(make_rule("ucb", every=2))
    explored = np.arange(ROUNDS) % 2 == 0
    np.testing.assert_array_equal(one.watched["explored"], explored)
    np.testing.assert_array_equal(one.asked.sum(-1)[:, 1], ~explored)
    np.testing.assert_array_equal(one.asked.sum(-1)[:, 2], explored)
    np.testing.assert_array_equal(one.asked.sum(-1)[explored, 0], 3)
    np.testing.assert_array_equal(np.diff(pulls(one).sum(1), prepend=0), np.where(explored, 3, 1))


def test_nothing_crosses_and_nothing_changes_after_the_stop():
    one = run(make_rule("fixed", fixed=0), PATIENT, tiny_silos(0), target=2)
    last = int(np.argmax(one.stopped))
    assert one.stopped[last] and last < ROUNDS - 2, "this world stops"
    assert last - one.best_round[last] == 2
    assert not one.asked[last + 1 :].any() and one.asked[: last + 1].any(axis=(1, 2)).all()
    for field in ("weights", "best_weights", "best", "round", "arm"):
        np.testing.assert_array_equal(getattr(one, field)[-1], getattr(one, field)[last], err_msg=field)


def test_bytes_are_those_counted_by_hand():
    """14 numbers a model: 6·2 + 2; header 1, round 4, rows 4, a number about a model 4."""
    sizes = {
        exchange.name: (exchange.request.nbytes, exchange.reply.nbytes)
        for protocol in (PAIRS, LATE)
        for exchange in protocol.exchanges
    }
    model = 14 * 4
    assert sizes == {
        "pretrain": (1 + 4 + model, 1 + model + 4),  # of LATE, whose probe needs the models
        "probe": (1 + 3 * model, 1 + 4 + 3 * 4),
        "train": (1 + 4 + model, 1 + model + 4),
        "judge": (1 + model, 1 + 4 + 4),
        "judge-all": (1 + 2 * model, 1 + 4 + 2 * 4),
        "train-others": (1 + 4 + model, 1 + model + 4),
        "train-and-judge": (1 + 4 + model + 3 * model, 1 + model + 4 + 4 + 3 * 4),
    }
    assert (PAIRS.exchanges[0].request.nbytes, PAIRS.exchanges[0].reply.nbytes) == (1 + 4 + model, 1 + 4)


def test_every_reply_can_cross_even_where_auc_is_undefined():
    arrays = changed(ARRAYS, "vali", 0, y=0.0)
    target, judge = some_of(PAIRS.parties(arrays), [0]), PAIRS.exchanges[2]
    _, reply = judge.respond(Candidates(np.zeros((1, 1, 14), np.float32)), target, ())
    judge.reply.encode(fields_of(reply, lambda leaf: leaf[0]))


# strange data


def test_one_class_in_the_targets_validation_rows_is_never_an_observation():
    one = run(EVERYTHING, PATIENT, changed(ARRAYS, "vali", 0, y=0.0))
    assert np.isfinite(one.weights).all() and np.isnan(one.watched["increments"]).all()
    assert pulls(one).sum() == 0 and not one.stopped.any() and (one.best_round == -1).all()
    assert np.abs(one.weights[-1] - one.fresh).max() > 0.01
    np.testing.assert_array_equal(one.best_weights[-1], one.weights[-1])


def test_one_class_in_a_helper_is_trained_on_like_any_other():
    one = run(EVERYTHING, arrays=changed(ARRAYS, "train", 1, y=1.0))
    assert np.isfinite(one.weights).all() and (pulls(one)[-1] == ROUNDS).all()


def test_a_silo_without_rows_has_no_weight_in_the_average():
    one = run(make_rule("fixed", fixed=1), arrays=changed(ARRAYS, "train", 1, x=0.0, y=0.0, n=0))
    np.testing.assert_allclose(one.weights, one.models[:, 0], atol=1e-6)


def test_silos_with_the_same_rows_have_nothing_to_give():
    arrays = ARRAYS
    for silo in (1, 2):
        for part in ("train", "vali"):
            rows = getattr(arrays, part)
            arrays = changed(arrays, part, silo, x=rows.x[0, 0], y=rows.y[0, 0], n=rows.n[0, 0])
    one = run(EVERYTHING, arrays=arrays)
    np.testing.assert_array_equal(one.watched["increments"], 0.0)
    np.testing.assert_allclose(one.models[-1][1:], one.models[-1][:1].repeat(2, 0), atol=1e-5)


@pytest.mark.slow
def test_two_silos_with_one_row_each_work():
    arrays = tiny_silos(train=(1, 1))
    one = run(EVERYTHING, tiny_bandit(silos=2, rows=1, evaluates="all"), arrays)
    assert np.isfinite(one.weights).all() and pulls(one).shape == (ROUNDS, 2)


@pytest.mark.slow
def test_a_hundred_silos_propose_clusters_as_arms():
    arrays = tiny_silos(train=(3,) * 100, vali=6)
    protocol = tiny_bandit(silos=100, rows=3, arms="clusters", clusters=5)
    one = played(protocol, arrays, make_rule("ucb"), 7, target=42, broken={-1: [3, 7]})
    members = np.asarray(one.state.members)[0]
    assert members.shape == (6, 100) and members[:, 42].all() and members[0].sum() == 1
    # Who sent nonsense before the first round is in a cluster all the same: it may be heard in a later one.
    assert (np.delete(members[1:], 42, axis=1).sum(0) == 1).all()
    assert np.isfinite(one.weights).all()


# many runs at once


RULES = (
    make_rule("fixed", fixed=2),
    EVERYTHING,
    make_rule("ucb", c=0.1),
    make_rule("epsilon-greedy", epsilon=0.5, alpha=0.5, every=3),
    make_rule("bayesian-extreme-explore", threshold=0.01),
    make_rule("ucb", threshold=0.0, alpha=0.75),
)
TARGETS = (0, 1, 2, 0, 1, 2)


def simulated(protocol, conditions=None):
    runs = len(RULES)
    parties, keys = protocol.parties(ARRAYS, np.zeros(runs, int)), run_words(range(runs))
    simulator = NativeSimulator(protocol, parties, 16, conditions or Conditions())
    each = [(word(seed), rule, target) for seed, (rule, target) in enumerate(zip(RULES, TARGETS, strict=True))]
    states = stack_states([protocol.begin(*one) for one in each])
    return keys, *simulator.advance(keys, states, parties.shared, parties.own, 0, ROUNDS)


def test_many_rules_and_targets_at_once_are_each_of_them_by_itself():
    """The simulator against the plain loop of these tests, which runs one rule for one target at a time."""
    _, states, own, seen = simulated(PAIRS)
    for index, (rule, target) in enumerate(zip(RULES, TARGETS, strict=True)):
        one = run(rule, target=target, seed=index)
        np.testing.assert_allclose(states.weights[index], one.weights[-1], atol=1e-5)
        np.testing.assert_allclose(own.model[index], one.models[-1], atol=1e-5)
        for name in ("arm", "increments", "estimates", "best_round", "explored"):
            np.testing.assert_allclose(seen["watched"][name][:, index], one.watched[name], atol=1e-5, err_msg=name)
        crossed = np.asarray(seen["crossed"])[:, index]
        np.testing.assert_array_equal(crossed[:, 1:, 0], one.asked.sum(-1))
        np.testing.assert_array_equal(crossed[:, 1:, 1], one.asked.sum(-1))
        np.testing.assert_array_equal(crossed[:, 0], [[SILOS, SILOS]] + [[0, 0]] * (ROUNDS - 1))


def test_with_drop_outs_the_simulator_that_answers_only_for_who_is_asked_does_the_same():
    """The plain loop answers for everybody."""
    keys, states, _, seen = simulated(PAIRS, Conditions(dropout=0.3))
    there = np.stack(
        [uniforms(stream(fold_words(keys, number, FATE), SILOS)) >= np.float32(0.3) for number in range(ROUNDS)]
    )
    assert not there.all() and there.any()
    for index, (rule, target) in enumerate(zip(RULES, TARGETS, strict=True)):
        silent = {number: np.flatnonzero(~there[number, index]) for number in range(ROUNDS)}
        one = run(rule, target=target, seed=index, heard=silent, opening=silent[0])
        np.testing.assert_allclose(states.weights[index], one.weights[-1], atol=1e-5)
        np.testing.assert_allclose(seen["watched"]["increments"][:, index], one.watched["increments"], atol=1e-5)
        crossed = np.asarray(seen["crossed"])[:, index]
        np.testing.assert_array_equal(crossed[:, 1:, 0], one.asked.sum(-1))
        heard = one.asked & there[:, index][:, None]
        np.testing.assert_array_equal(crossed[:, 1:, 1], heard.sum(-1))


# settings


def test_settings_that_make_no_protocol_are_refused():
    for settings, words in [
        ({"target": SILOS}, "target"),
        ({"silos": 1}, "2"),
        ({"arms": "clusters", "clusters": SILOS}, "clusters"),
        ({"delayed": True}, "delayed"),
        ({"target_weight": 1.0}, "target_weight"),
        ({"probe": True, "pretrain": False}, "pretrain"),
        ({"rule": "fixed", "fixed": 3}, "fixed"),
        ({"crossing": "local"}, "batch norm"),
        ({"measure": "accuracy"}, "measure"),
    ]:
        with pytest.raises(ConfigError, match=words):
            tiny_bandit(**settings)


def test_data_that_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="12"):
        tiny_bandit(rows=ROWS + 1).parties(ARRAYS)


@pytest.mark.slow
def test_a_deep_network_with_batch_norm_survives_batches_of_one_row():
    arrays = changed(ARRAYS, "train", 2, n=1)
    one = run(EVERYTHING, tiny_bandit(deep_sgd(batch=1), evaluates="all"), arrays)
    assert np.isfinite(one.weights).all() and (pulls(one)[-1] == ROUNDS).all()


# the model of a regression


def run_once(protocol, arrays=ARRAYS, **conditions):
    """Server state after a run of one seed, and models of the target."""
    parties = protocol.parties(arrays, np.zeros(1, int))
    simulator = NativeSimulator(protocol, parties, 16, Conditions(**conditions))
    keys, states = begin_runs(protocol, [0], np.zeros(1, int))
    states, own, _ = simulator.advance(keys, states, parties.shared, parties.own, 0, 2)
    return states, models_of_runs(protocol, states, parties.shared, own, np.zeros((1, 1), int))


def design_of(silo, *parts):
    rows = [getattr(ARRAYS, part) for part in parts]
    x = np.concatenate([each.x[0, silo, : each.n[0, silo]] for each in rows]).astype(float)
    y = np.concatenate([each.y[0, silo, : each.n[0, silo]] for each in rows]).astype(float)
    return np.column_stack([np.ones(len(y)), x]), y


@pytest.mark.parametrize("absent", [(), (False, True, False)])
def test_a_regression_is_fitted_to_all_own_rows_shrunk_to_silos_that_were_heard(absent):
    _, models = run_once(tiny_bandit(refit=True, evaluates="one"), absent=absent)
    others = [Quadratic.of(fit_glm([design_of(k, "train")], 10.0)) for k in (1, 2) if not (absent and absent[k])]
    x, y = design_of(0, "train", "vali")
    beta = shrink(x, y, others).beta
    weights = models["refit"][0, 0]
    network = TabularNetwork(x.shape[1] - 1, (), "none")
    np.testing.assert_allclose(network.scores(weights, x[:, 1:]), x @ beta, rtol=1e-4, atol=1e-4)


def test_where_the_target_is_silent_the_model_is_that_of_the_rounds():
    states, models = run_once(tiny_bandit(refit=True, evaluates="one"), absent=(True, False, False))
    assert np.isnan(states.refit).all()
    np.testing.assert_array_equal(models["refit"], models["best"])


def test_sums_that_no_rows_have_are_left_out_of_the_fit(monkeypatch):
    told = Tell.respond

    def lie(self, request, party, draws):
        party, reply = told(self, request, party, draws)
        terms = np.array(reply.terms)
        terms[-1] *= -100
        return party, Told(terms)

    without = run_once(tiny_bandit(refit=True, evaluates="one"), absent=(False, False, True))[1]["refit"]
    monkeypatch.setattr(Tell, "respond", lie)
    np.testing.assert_array_equal(run_once(tiny_bandit(refit=True, evaluates="one"))[1]["refit"], without)


def test_networks_are_not_fitted_anew():
    names = [exchange.name for exchange in tiny_bandit(deep_sgd(), refit=True, evaluates="one").exchanges]
    assert "tell" not in names and "refit" not in names
