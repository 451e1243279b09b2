"""MAB-FL against Algorithm 7 of the thesis written out in NumPy, local training and AUC included.

The silos learn a logistic regression on all their rows at once, so that training is a closed form.
"""

from typing import NamedTuple

import numpy as np
import pytest
from silo_worlds import FEATURES, SILOS, TRAIN, deep_sgd, linear_sgd, make_rule, played, tiny_bandit, tiny_silos

from fedrank.core.native import map_trees
from fedrank.silos.messages import Candidates, Model
from fedrank.silos.party import rows_of as own_rows
from fedrank.silos.party import some_of

ROUNDS = 5
EPOCHS, RATE, INITIAL = 2, 0.3, 0.05
ARRAYS = tiny_silos()
#: The target and which others, in the documented order: nobody, each, … or all sets in binary order.
PAIRS = ((), (0,), (1,))
ALL = ((), (0,), (1,), (0, 1))


class Round(NamedTuple):
    theta: np.ndarray
    locals: np.ndarray
    increments: np.ndarray
    played: int
    values: np.ndarray
    best: tuple


def rows_of(arrays, part, silo):
    rows = getattr(arrays, part)
    n = rows.n[0, silo]
    return rows.x[0, silo, :n].astype(np.float64), rows.y[0, silo, :n]


def trained(theta, x, y):
    """Two epochs of one batch of logistic regression with two logits."""
    for _ in range(EPOCHS):
        odds = np.exp(x @ theta[: 2 * FEATURES].reshape(FEATURES, 2) + theta[2 * FEATURES :])
        gap = odds / odds.sum(1, keepdims=True) - np.stack([1 - y, y], 1)
        theta = theta - RATE * np.concatenate([(x.T @ gap / len(y)).reshape(-1), gap.mean(0)])
    return theta


def auc(theta, x, y):
    """Pairs of a positive and a negative row in the right order."""
    logits = x @ theta[: 2 * FEATURES].reshape(FEATURES, 2) + theta[2 * FEATURES :]
    gap = (logits[:, 1] - logits[:, 0])[y == 1][:, None] - (logits[:, 1] - logits[:, 0])[y == 0][None]
    return ((gap > 0) + 0.5 * (gap == 0)).mean()


class Federation:
    """What the silos and the server of the thesis do, one step after the other."""

    def __init__(self, fresh, target, sets, arrays=ARRAYS, target_weight=None):
        others = [silo for silo in range(SILOS) if silo != target]
        self.arms = [[target, *(others[i] for i in chosen)] for chosen in sets]
        self.target, self.arrays, self.weight = target, arrays, target_weight
        self.theta = fresh.astype(np.float64)
        self.train = [rows_of(arrays, "train", silo) for silo in range(SILOS)]
        self.models = np.array([trained(self.theta, *rows) for rows in self.train])
        self.sum, self.pulls = np.zeros(len(sets)), np.zeros(len(sets))
        self.best = (-np.inf, -1, self.theta)

    def judged(self, theta):
        return auc(theta, *rows_of(self.arrays, "vali", self.target))

    def estimates(self):
        return np.where(self.pulls > 0, self.sum / np.maximum(self.pulls, 1), INITIAL)

    def train_at(self, silos, number):
        for silo in silos:
            start = self.models[silo] if number == 0 else self.theta
            self.models[silo] = trained(start, *self.train[silo])

    def average(self, arm):
        amounts = np.array([TRAIN[silo] if silo in self.arms[arm] else 0 for silo in range(SILOS)], float)
        if self.weight is not None and len(self.arms[arm]) > 1:
            amounts[self.target] = 0
            amounts *= (1 - self.weight) / amounts.sum()
            amounts[self.target] = self.weight
        return amounts @ self.models / amounts.sum()

    def learn(self, rewards):
        seen = np.isfinite(rewards)
        self.sum[seen] += rewards[seen]
        self.pulls[seen] += 1

    def remember(self, value, number, theta):
        if value > self.best[0]:
            self.best = (value, number, theta)

    def highest(self, *scores):
        """The arm of the highest first score; of those the highest second, and so on; then the first."""
        return max(range(len(self.arms)), key=lambda arm: (*(round(score[arm], 6) for score in scores), -arm))


def algorithm_7(federation, arm=None, against="own", threshold=None, patience=None):
    """Rounds of one fixed arm, or of Extreme Explore."""
    f, history, previous = federation, [], np.nan
    for number in range(ROUNDS):
        tried = range(len(f.arms)) if arm is None else [arm]
        f.train_at(sorted({silo for a in tried for silo in f.arms[a]}), number)
        averages = {a: f.average(a) for a in tried}
        values = np.array([f.judged(averages[a]) if a in averages else np.nan for a in range(len(f.arms))])
        own = f.judged(f.models[f.target])
        increments = values - (own if against == "own" else previous)
        rewards = increments
        if threshold is not None:
            rewards = np.where(np.isnan(increments), np.nan, (increments > threshold).astype(float))
        f.learn(rewards)
        if arm is None:
            won = f.highest(*((values, values) if np.isnan(rewards).all() else (rewards, increments)), f.estimates())
        else:
            won = arm
        f.theta = averages[won]
        previous = values[won]
        f.remember(values[won], number, f.theta)
        history.append(Round(f.theta, f.models.copy(), increments, won, f.estimates(), f.best))
        if patience is not None and number - f.best[1] >= patience:
            nothing = history[-1]._replace(increments=np.full(len(f.arms), np.nan))
            history += [nothing] * (ROUNDS - 1 - number)
            break
    return history


def delayed_extreme_explore(federation):
    """Rewards a round late (Section 8.3.2): θ is the average of the arm with the highest estimate so far."""
    f, history, averages, won = federation, [], None, None
    for number in range(ROUNDS):
        increments = np.full(len(f.arms), np.nan)
        if averages is not None:
            values = np.array([f.judged(average) for average in averages])
            increments = values - f.judged(f.models[f.target])
            f.learn(increments)
            f.remember(values[won], number - 1, f.theta)
        f.train_at(range(SILOS), number)
        averages = [f.average(arm) for arm in range(len(f.arms))]
        won = f.highest(f.estimates())
        f.theta = averages[won]
        history.append(Round(f.theta, f.models.copy(), increments, won, f.estimates(), f.best))
    return history


def assert_same(run, history, late=0):
    """Round by round; ``late`` is by how many rounds arm and increments are behind."""
    for number, wanted in enumerate(history):
        np.testing.assert_allclose(run.weights[number], wanted.theta, atol=1e-5)
        np.testing.assert_allclose(run.models[number], wanted.locals, atol=1e-5)
        np.testing.assert_allclose(run.watched["increments"][number], wanted.increments, atol=1e-5)
        np.testing.assert_allclose(run.watched["estimates"][number], wanted.values, atol=1e-5)
        if number >= late:
            assert run.watched["arm"][number] == history[number - late].played
        value, at, weights = wanted.best
        assert run.watched["best_round"][number] == at
        if at >= 0:
            assert run.best[number] == pytest.approx(value, abs=1e-5)
            np.testing.assert_allclose(run.best_weights[number], weights, atol=1e-5)


BY_PAIRS = tiny_bandit(evaluates="either")
LATE = tiny_bandit(arms="all", evaluates="all", delayed=True)
OTHERWISE = tiny_bandit(arms="all", evaluates="either", against="previous", target_weight=0.7, patience=2)


def test_the_world_tells_arms_apart():
    """Otherwise the comparisons below would compare nothing with nothing."""
    run = played(BY_PAIRS, ARRAYS, make_rule("extreme-explore"), ROUNDS)
    assert len(set(run.watched["arm"])) > 1
    assert (np.abs(run.watched["increments"]) > 0.01).any(axis=0)[1:].all()


def test_a_fixed_arm_is_algorithm_7():
    for arm in range(3):
        for target in range(SILOS):
            run = played(BY_PAIRS, ARRAYS, make_rule("fixed", fixed=arm), ROUNDS, target)
            assert_same(run, algorithm_7(Federation(run.fresh, target, PAIRS), arm))


def test_extreme_explore_over_pairs_is_the_best_of_all_averages_in_every_round():
    for seed in range(3):
        for target in range(SILOS):
            run = played(BY_PAIRS, ARRAYS, make_rule("extreme-explore"), ROUNDS, target, seed)
            assert_same(run, algorithm_7(Federation(run.fresh, target, PAIRS)))


@pytest.mark.parametrize("threshold", [0.0, 0.02])
def test_binary_rewards_that_tie_are_broken_by_the_increment(threshold):
    run = played(BY_PAIRS, ARRAYS, make_rule("extreme-explore", threshold=threshold), ROUNDS, 2)
    assert_same(run, algorithm_7(Federation(run.fresh, 2, PAIRS), threshold=threshold))


@pytest.mark.parametrize("target", range(SILOS))
@pytest.mark.parametrize("arm", [None, 0, 2, 3])
def test_all_combinations_with_a_weighted_target_against_the_previous_round_and_with_patience(arm, target):
    rule = make_rule("extreme-explore") if arm is None else make_rule("fixed", fixed=arm)
    run = played(OTHERWISE, ARRAYS, rule, ROUNDS, target)
    wanted = algorithm_7(Federation(run.fresh, target, ALL, target_weight=0.7), arm, "previous", patience=2)
    assert_same(run, wanted)


@pytest.mark.parametrize("target", range(SILOS))
@pytest.mark.parametrize("seed", range(2))
def test_rewards_a_round_late_choose_by_the_estimates(seed, target):
    run = played(LATE, ARRAYS, make_rule("extreme-explore"), ROUNDS, target, seed)
    assert_same(run, delayed_extreme_explore(Federation(run.fresh, target, ALL)), late=1)


def test_the_average_of_all_is_that_of_federated_averaging():
    """Algorithm 1: Σ n_k/n θ_k over everybody, whose arm is the last of all combinations."""
    run = played(LATE, ARRAYS, make_rule("extreme-explore"), ROUNDS, 1)
    share = np.array(TRAIN) / sum(TRAIN)
    for number in range(ROUNDS):
        np.testing.assert_allclose(run.state.models[number][-1], share @ run.models[number], atol=1e-6)


@pytest.mark.parametrize(
    "crossing, stays", [("average", 0), ("local", 4 + 4 + 8), ("recalibrate", 8), ("head-local", 4 * 2 + 2)]
)
def test_what_stays_at_a_silo_is_its_own_and_the_rest_is_replaced(crossing, stays):
    """6·4+4, γ 4, β 4, 4·2+2, means 4, variances 4: 54 numbers in all."""
    protocol = tiny_bandit(deep_sgd(), crossing=crossing)
    assert protocol.parameters == 54 - stays
    kept = {"average": [], "local": [*range(28, 36), *range(46, 54)], "recalibrate": range(46, 54)}
    kept = np.isin(np.arange(54), kept.get(crossing, range(36, 46)))
    mine = np.random.default_rng(0).normal(0, 1, 54).astype(np.float32)
    came = np.random.default_rng(1).normal(0, 1, protocol.parameters).astype(np.float32)
    whole = protocol.whole_model(came, mine)
    np.testing.assert_array_equal(whole[kept], mine[kept])
    np.testing.assert_array_equal(whole[~kept], came)
    np.testing.assert_array_equal(protocol.shared_part(whole), came)
    layouts = {exchange.name: (exchange.request.nbytes, exchange.reply.nbytes) for exchange in protocol.exchanges}
    crosses = 4 * (54 - stays)
    assert layouts == {
        "pretrain": (1 + 4 + crosses, 1 + 4),
        "train": (1 + 4 + crosses, 1 + crosses + 4),
        "judge": (1 + crosses, 1 + 4 + 4),
    }


@pytest.mark.parametrize("crossing", ["local", "recalibrate", "head-local"])
def test_a_silo_trains_and_judges_with_what_it_kept(crossing):
    protocol = tiny_bandit(deep_sgd(), crossing=crossing)
    party, sgd, train = protocol.parties(ARRAYS), protocol.sgd, protocol.exchanges[1]
    random = np.random.default_rng(3)
    mine = np.abs(random.normal(0.5, 0.3, 54)).astype(np.float32)
    came = random.normal(0, 0.5, 54)
    came[50:] = np.abs(came[50:]) + 0.1  # variances
    came = came[protocol.shared_positions].astype(np.float32)[None]
    me = some_of(party, [1])
    me = me._replace(own=me.own._replace(model=mine[None]))
    words = random.integers(0, 2**32, (1, *sgd.rng_shape(12)), dtype=np.uint32)
    whole = np.array(mine[None])
    whole[:, protocol.shared_positions] = came
    after, reply = train.respond(Model(np.ones(1, np.uint32), came), me, words)
    wanted = sgd.train(whole, own_rows(me, "train"), words)
    np.testing.assert_allclose(after.own.model, wanted, atol=1e-6)
    np.testing.assert_allclose(reply.weights, wanted[:, protocol.shared_positions], atol=1e-6)
    assert int(reply.rows[0]) == TRAIN[1]
    said = protocol.exchanges[2].respond(Candidates(came[:, None]), after, ())[1]
    judged = np.array(after.own.model)
    judged[:, protocol.shared_positions] = came
    for model, value in ((after.own.model[0], said.own[0]), (judged[0], said.models[0, 0])):
        assert float(value) == pytest.approx(deep_auc(model, crossing == "recalibrate"), abs=1e-6)


def deep_auc(model, recalibrated, silo=1):
    """AUC on a silo's validation rows of one hidden layer with batch norm, written out."""
    model = model.astype(np.float64)
    x, y = rows_of(ARRAYS, "vali", silo)
    matrix, bias, gamma, beta = model[:24].reshape(6, 4), model[24:28], model[28:32], model[32:36]
    mean, variance = model[46:50], model[50:54]
    if recalibrated:
        seen = rows_of(ARRAYS, "train", silo)[0] @ matrix + bias
        mean, variance = seen.mean(0), seen.var(0, ddof=1)
    hidden = np.maximum(gamma * (x @ matrix + bias - mean) / np.sqrt(variance + 1e-5) + beta, 0)
    logits = hidden @ model[36:44].reshape(4, 2) + model[44:46]
    score = logits[:, 1] - logits[:, 0]
    gap = score[y == 1][:, None] - score[y == 0][None]
    return ((gap > 0) + 0.5 * (gap == 0)).mean()


def test_local_training_is_the_closed_form():
    theta = np.random.default_rng(2).normal(0, 0.5, 14)
    rows = map_trees(lambda leaf: leaf[0, [1]], ARRAYS.train)
    words = np.zeros((1, EPOCHS, 12), np.uint32)
    done = linear_sgd().train(theta[None], rows, words)
    np.testing.assert_allclose(done[0], trained(theta, *rows_of(ARRAYS, "train", 1)), atol=1e-6)
