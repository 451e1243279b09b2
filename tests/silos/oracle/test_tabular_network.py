"""The network for tables against the same network written out in NumPy, in double precision."""

from itertools import pairwise

import numpy as np
import pytest

from fedrank.core.errors import ConfigError
from fedrank.core.streams import run_words
from fedrank.silos.network import Gradient, TabularNetwork

FEATURES, WIDTHS, ROWS = 6, (4, 3), 8
NORMS = ("batch", "layer", "none")
EPSILON = 1e-5  # PyTorch's default
#: Numbers that gradients change, counted by hand: 6·4+4 + 4·3+3 + 3·2+2 = 51, and γ and β of 7 units.
TRAINABLE = {"batch": 51 + 14, "layer": 51 + 14, "none": 51}


def network(norm, widths=WIDTHS, **settings):
    return TabularNetwork(FEATURES, widths, norm, **settings)


def vector(norm, seed=0):
    """Some weights, statistics included, that are nothing special."""
    random = np.random.default_rng(seed)
    net = network(norm)
    weights = random.normal(0, 0.7, net.size)
    if norm == "batch":
        weights[-10:] = np.abs(weights[-10:]) + 0.3  # more than the 4 + 3 variances, which are within
    return weights.astype(np.float32)


def table(seed=1, rows=ROWS):
    random = np.random.default_rng(seed)
    x = random.normal(0.5, 2, (rows, FEATURES)).astype(np.float32)
    return x, (random.random(rows) < 0.5).astype(np.float32)


def written_out(weights, x, norm, where=None, running=False, widths=WIDTHS):
    """Logits, and the statistics [mean, unbiased variance, …] of the rows that count; read from the vector by hand."""
    weights, x = np.asarray(weights, np.float64), np.asarray(x, np.float64)
    where = np.ones(len(x), bool) if where is None else np.asarray(where)
    x = x[where]
    sizes, at = (x.shape[1], *widths, 2), 0
    affine = 0 if norm == "none" else 2
    stats_at = sum(a * b + b for a, b in pairwise(sizes)) + affine * sum(widths)
    statistics = []
    for layer, (before, after) in enumerate(pairwise(sizes)):
        matrix = np.array([[weights[at + i * after + j] for j in range(after)] for i in range(before)])
        at += before * after
        x = x @ matrix + weights[at : at + after]
        at += after
        if layer == len(widths):
            break
        if affine:
            gamma, beta = weights[at : at + after], weights[at + after : at + 2 * after]
            at += 2 * after
            if norm == "layer":
                x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + EPSILON)
            elif running:
                mean, variance = weights[stats_at : stats_at + after], weights[stats_at + after : stats_at + 2 * after]
                stats_at += 2 * after
                x = (x - mean) / np.sqrt(variance + EPSILON)
            else:
                unbiased = x.var(0, ddof=1) if len(x) > 1 else np.zeros(after)
                statistics += [x.mean(0), unbiased]
                x = (x - x.mean(0)) / np.sqrt(x.var(0) + EPSILON)
            x = gamma * x + beta
        x = np.maximum(x, 0)
    return x, np.concatenate(statistics) if statistics else np.zeros(0)


def cross_entropy(logits, y):
    odds = np.exp(logits - logits.max(1, keepdims=True))
    return -np.log((odds / odds.sum(1, keepdims=True))[np.arange(len(y)), np.asarray(y, int)]).mean()


def key(seed):
    return run_words([seed])[0]


def gradient_of(norm, weights, x, y):
    """Gradient and batch statistics of one model and one batch."""
    gradient = Gradient(network(norm), weights[None])
    return gradient(x[None], y[None] > 0.5)[0], gradient.statistics[0]


def masks():
    return {"all": np.ones(ROWS, bool), "first five": np.arange(ROWS) < 5, "every other": np.arange(ROWS) % 2 == 0}


def test_sizes_are_those_counted_by_hand():
    for norm in NORMS:
        net = network(norm)
        assert net.trainable == TRAINABLE[norm]
        assert net.statistics == (14 if norm == "batch" else 0)
        assert net.size == net.trainable + net.statistics == net.initial(key(0)).shape[0]


def test_the_thesis_network_has_four_linear_layers_and_three_normalisations():
    net = TabularNetwork(153)
    assert net.layers == ((153, 64), (64, 32), (32, 16), (16, 2))
    assert net.trainable == 153 * 64 + 64 + 64 * 32 + 32 + 32 * 16 + 16 + 16 * 2 + 2 + 2 * (64 + 32 + 16)
    assert net.statistics == 2 * (64 + 32 + 16)


@pytest.mark.parametrize("norm", NORMS)
def test_a_finished_model_gives_the_logits_of_the_network_written_out(norm):
    weights, (x, _) = vector(norm), table()
    wanted, _ = written_out(weights, x, norm, running=True)
    np.testing.assert_allclose(network(norm).logits(weights, x), wanted, rtol=2e-4, atol=2e-5)
    scores = network(norm).scores(weights, x)
    np.testing.assert_allclose(scores, wanted[:, 1] - wanted[:, 0], rtol=2e-4, atol=4e-5)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("mask", masks())
def test_gradient_and_statistics_of_a_batch_are_those_of_the_network_written_out(norm, mask):
    """The gradient by finite differences, in double precision."""
    where, weights, (x, y) = masks()[mask], vector(norm), table()
    gradient, statistics = gradient_of(norm, weights, x[where], y[where])
    np.testing.assert_allclose(statistics, written_out(weights, x, norm, where)[1], rtol=1e-4, atol=1e-5)
    cut, step = network(norm).trainable, 1e-6

    def loss(at, by):
        moved = weights.astype(np.float64)
        moved[at] += by
        return cross_entropy(written_out(moved, x, norm, where)[0], y[where])

    wanted = [(loss(at, step) - loss(at, -step)) / (2 * step) for at in range(cut)]
    np.testing.assert_allclose(gradient, wanted, rtol=2e-3, atol=2e-5)
    assert np.abs(wanted).max() > 0.05


def test_the_gradients_of_many_models_are_those_of_each():
    """Also where all rows of a batch are batches by themselves, of one model: a view of it."""
    for norm in NORMS:
        weights, (x, y) = np.stack([vector(norm, seed) for seed in range(3)]), table(rows=6)
        xs, ys = x.reshape(3, 2, -1), y.reshape(3, 2)
        each = [gradient_of(norm, *one)[0] for one in zip(weights, xs, ys, strict=True)]
        np.testing.assert_allclose(Gradient(network(norm), weights)(xs, ys > 0.5), each, rtol=1e-5, atol=1e-6)
        if norm != "batch":
            views = np.broadcast_to(weights[:, None], (3, 2, weights.shape[1]))
            rows = Gradient(network(norm), views)(xs[:, :, None], ys[:, :, None] > 0.5)
            np.testing.assert_allclose(rows.mean(1), each, rtol=1e-4, atol=1e-6)


def test_recalibrated_statistics_are_those_of_the_rows_layer_by_layer_and_nothing_else_changes():
    where, weights, (x, _) = masks()["first five"], vector("batch"), table()
    new = network("batch").recalibrate(weights, x, where)
    cut = TRAINABLE["batch"]
    np.testing.assert_array_equal(new[:cut], weights[:cut])
    np.testing.assert_allclose(new[cut:], written_out(weights, x, "batch", where)[1], rtol=1e-4, atol=1e-5)
    assert np.abs(new[cut:] - weights[cut:]).max() > 0.1
    np.testing.assert_allclose(network("batch").recalibrate(new, x, where), new, rtol=1e-6)


@pytest.mark.parametrize("norm", ["layer", "none"])
def test_without_batch_norm_there_is_nothing_to_recalibrate(norm):
    weights, (x, _) = vector(norm), table()
    np.testing.assert_array_equal(network(norm).recalibrate(weights, x, np.ones(ROWS, bool)), weights)


def test_a_batch_of_one_row_and_constant_features_give_finite_numbers():
    for norm in NORMS:
        weights, (x, y) = vector(norm), table()
        for rows, labels in ((x[:1], y[:1]), (np.broadcast_to(x[:1], x.shape), y)):
            gradient, statistics = gradient_of(norm, weights, rows, labels)
            assert np.isfinite(gradient).all()
            np.testing.assert_allclose(statistics, written_out(weights, rows, norm)[1], rtol=1e-4, atol=1e-5)


def test_tensors_are_the_vector_cut_in_the_documented_order():
    named = network("batch").tensors(np.arange(79))
    assert {name: part.shape for name, part in named.items()} == {
        "layer1.weight": (6, 4),
        "layer1.bias": (4,),
        "norm1.weight": (4,),
        "norm1.bias": (4,),
        "layer2.weight": (4, 3),
        "layer2.bias": (3,),
        "norm2.weight": (3,),
        "norm2.bias": (3,),
        "layer3.weight": (3, 2),
        "layer3.bias": (2,),
        "norm1.running_mean": (4,),
        "norm1.running_var": (4,),
        "norm2.running_mean": (3,),
        "norm2.running_var": (3,),
    }
    np.testing.assert_array_equal(np.concatenate([part.reshape(-1) for part in named.values()]), np.arange(79))


def test_positions_are_those_counted_by_hand():
    net = network("batch")
    gammas = [*range(28, 36), *range(51, 57)]
    np.testing.assert_array_equal(net.positions("statistics"), range(65, 79))
    np.testing.assert_array_equal(net.positions("norm"), [*gammas, *range(65, 79)])
    np.testing.assert_array_equal(net.positions("head"), range(57, 65))
    np.testing.assert_array_equal(network("layer").positions("norm"), gammas)
    assert len(network("layer").positions("statistics")) == len(network("none").positions("norm")) == 0
    np.testing.assert_array_equal(network("none", ()).positions("head"), range(14))


def test_the_last_of_ten_layers_is_not_taken_for_the_first():
    net = TabularNetwork(2, (2,) * 9, "none")
    np.testing.assert_array_equal(net.positions("head"), range(9 * 6, 10 * 6))


def test_initial_weights_are_normal_with_variance_two_by_inputs_and_normalisations_do_nothing():
    net = TabularNetwork(400, (300, 200))
    named = net.tensors(np.asarray(net.initial(key(3))))
    for layer, inputs, numbers in ((1, 400, 400 * 300), (2, 300, 300 * 200), (3, 200, 400)):
        weight = named[f"layer{layer}.weight"]
        assert abs(weight.mean()) < 4 * np.sqrt(2 / inputs / numbers)
        assert abs(weight.var() * inputs / 2 - 1) < 4 * np.sqrt(2 / numbers)
        assert not named[f"layer{layer}.bias"].any()
    for number in (1, 2):
        assert (named[f"norm{number}.weight"] == 1).all() and (named[f"norm{number}.running_var"] == 1).all()
        assert not named[f"norm{number}.bias"].any() and not named[f"norm{number}.running_mean"].any()
    other = np.asarray(net.initial(key(4)))
    assert not np.array_equal(other, net.initial(key(3)))


def test_settings_that_make_no_network_are_refused():
    for settings in [
        {"n_features": 0},
        {"n_features": 2, "widths": (3, 0)},
        {"n_features": 2, "norm": "group"},
        {"n_features": 2, "momentum": 0.0},
        {"n_features": 2, "momentum": 1.5},
    ]:
        with pytest.raises(Exception) as error:
            TabularNetwork(**settings)
        assert isinstance(error.value, ConfigError) or "norm" in settings  # types are checked before the name is
