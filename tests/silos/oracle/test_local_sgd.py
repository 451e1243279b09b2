"""Local training against gradient steps in closed form, and batches counted one by one."""

import numpy as np
import pytest
from silo_worlds import FEATURES, ROWS, deep_sgd, linear_sgd

from fedrank.core.errors import ConfigError
from fedrank.silos.data.splits import Rows
from fedrank.silos.local_sgd import LocalSgd
from fedrank.silos.network import TabularNetwork

LINEAR, DEEP = linear_sgd(epochs=1), deep_sgd()


def train_one(sgd, theta, rows, words, stepper=None):
    """Training of one silo."""
    return sgd.train(theta[None], Rows(rows.x[None], rows.y[None], rows.n[None]), words[None], stepper)[0]


def silo(n=ROWS, rows=ROWS, seed=0, padding=0.0, features=FEATURES):
    random = np.random.default_rng(seed)
    x, y = random.standard_normal((rows, features)), (random.random(rows) < 0.4).astype(float)
    x[n:], y[n:] = padding, float(padding > 0)
    return Rows(x.astype(np.float32), y.astype(np.float32), np.array(n, np.int32))


def words(sgd, seed=0, rows=ROWS):
    return np.random.default_rng(seed).integers(0, 2**32, sgd.rng_shape(rows), dtype=np.uint32)


def start(sgd, seed=5):
    weights = np.random.default_rng(seed).normal(0, 0.4, sgd.network.size).astype(np.float32)
    if sgd.network.statistics:
        weights[-sgd.network.statistics :] = 1
    return weights


def stepped(theta, x, y, rate, decay=0.0):
    """One step of multinomial logistic regression: the gradient of the mean cross-entropy is xᵀ(p − onehot)/n."""
    theta, x, y = (np.asarray(a, np.float64) for a in (theta, x, y))
    w, b = theta[: 2 * x.shape[1]].reshape(-1, 2), theta[2 * x.shape[1] :]
    odds = np.exp(x @ w + b)
    gap = odds / odds.sum(1, keepdims=True) - np.stack([1 - y, y], 1)
    gradient = np.concatenate([(x.T @ gap / len(y)).reshape(-1), gap.mean(0)]) + decay * theta
    return theta - rate * gradient


def test_one_epoch_of_one_batch_is_one_gradient_step_on_the_valid_rows():
    for n in [ROWS, 7, 1]:
        rows, theta = silo(n, padding=9.0), start(LINEAR)
        wanted = stepped(theta, rows.x[:n], rows.y[:n], 0.3)
        np.testing.assert_allclose(train_one(LINEAR, theta, rows, words(LINEAR)), wanted, rtol=1e-5, atol=1e-6)
        assert np.abs(wanted - theta).max() > 0.01


def test_weight_decay_enters_the_step():
    sgd, rows = linear_sgd(epochs=1, weight_decay=0.5), silo()
    theta = start(sgd)
    wanted = stepped(theta, rows.x, rows.y, 0.3, 0.5)
    np.testing.assert_allclose(train_one(sgd, theta, rows, words(sgd)), wanted, rtol=1e-5, atol=1e-6)


def test_epochs_are_steps_after_each_other():
    sgd, rows = linear_sgd(epochs=3), silo()
    theta = start(sgd)
    wanted = theta
    for _ in range(3):
        wanted = stepped(wanted, rows.x, rows.y, 0.3)
    np.testing.assert_allclose(train_one(sgd, theta, rows, words(sgd)), wanted, rtol=1e-5, atol=1e-6)


def batches_of(n, batch, chance):
    """Which rows each batch has, in order; rows come as unit vectors, the k-th row of a silo as e_k."""
    net, taken = TabularNetwork(ROWS, (), "none"), []
    rows = Rows(np.eye(ROWS, dtype=np.float32), np.zeros(ROWS, np.float32), np.array(n, np.int32))

    def recording(models):
        return lambda x, y: taken.append(x[0])

    train_one(LocalSgd(net, len(chance), batch, 0.1), np.zeros(net.size, np.float32), rows, chance, recording)
    assert all((x.sum(1) == 1).all() for x in taken)
    return [np.argmax(x, axis=1).tolist() for x in taken]


@pytest.mark.parametrize(
    "n, batch, sizes",
    [
        (12, 5, [4, 4, 4]),
        (11, 5, [4, 4, 3]),
        (7, 5, [4, 3]),
        (5, 5, [5]),
        (1, 5, [1]),
        (12, 12, [12]),
        (12, 100, [12]),
        (7, 100, [7]),
    ],
)
def test_batches_are_cut_nearly_equally_and_every_valid_row_is_in_one_of_them(n, batch, sizes):
    many = batches_of(n, batch, np.random.default_rng(n).integers(0, 2**32, (2, ROWS), dtype=np.uint32))
    assert len(many) == 2 * len(sizes)
    for epoch in (many[: len(sizes)], many[len(sizes) :]):
        assert sorted((len(rows) for rows in epoch), reverse=True) == sizes
        assert sorted(row for rows in epoch for row in rows) == list(range(n))


def test_the_words_order_the_rows():
    chance = np.array([[5, 3, 9, 1, 7, 11, 13, 2, 4, 6, 8, 10]], np.uint32) << 8
    chance[0, 8:] = 0  # padding: does not matter
    chance = np.repeat(chance, 2, axis=0)
    assert [sorted(rows) for rows in batches_of(8, 5, chance)] == [[0, 1, 3, 7], [2, 4, 5, 6]] * 2


def test_padding_neither_its_content_nor_its_amount_matters():
    chance, theta = words(DEEP), start(DEEP)
    wanted = train_one(DEEP, theta, silo(7), chance)
    for padding in (3.0, 1e6):
        np.testing.assert_array_equal(train_one(DEEP, theta, silo(7, padding=padding), chance), wanted)
    other = chance.copy()
    other[:, 7:] = 1
    np.testing.assert_array_equal(train_one(DEEP, theta, silo(7), other), wanted)
    short = silo(7)
    less = Rows(short.x[:7], short.y[:7], short.n)
    np.testing.assert_allclose(train_one(DEEP, theta, less, chance[:, :7]), wanted, rtol=1e-5, atol=1e-6)


def test_a_silo_without_rows_returns_what_it_got_and_one_row_gives_finite_numbers():
    theta = start(DEEP)
    np.testing.assert_array_equal(train_one(DEEP, theta, silo(0), words(DEEP)), theta)
    one = np.asarray(train_one(DEEP, theta, silo(1), words(DEEP)))
    assert np.isfinite(one).all() and not np.array_equal(one, theta)


def test_other_words_are_another_training_and_the_same_words_the_same():
    theta, rows = start(DEEP), silo()
    first, second = (np.asarray(train_one(DEEP, theta, rows, words(DEEP, seed))) for seed in (0, 1))
    np.testing.assert_array_equal(train_one(DEEP, theta, rows, words(DEEP, 0)), first)
    assert np.abs(first - second).max() > 1e-3


def test_running_statistics_move_by_the_momentum_towards_each_batch():
    sgd, rows, theta = LocalSgd(TabularNetwork(FEATURES, (4,), momentum=0.3), 1, ROWS, 1e-9), silo(), start(DEEP)
    hidden = np.asarray(rows.x, np.float64) @ theta[:24].reshape(6, 4) + theta[24:28]
    seen = np.concatenate([hidden.mean(0), hidden.var(0, ddof=1)])
    trained = train_one(sgd, theta, rows, words(sgd))
    np.testing.assert_allclose(trained[-8:], 0.7 * theta[-8:] + 0.3 * seen, rtol=1e-5)
    np.testing.assert_allclose(trained[:-8], theta[:-8], atol=1e-6)


def test_settings_that_train_nothing_are_refused():
    with pytest.raises(ConfigError, match="learning_rate"):
        LocalSgd(LINEAR.network, learning_rate=0.0)
