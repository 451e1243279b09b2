"""Value networks against their layers written out in NumPy, their sizes by hand, and the symmetry they claim."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedrank.core.errors import ConfigError
from fedrank.slates.networks import (
    IdentityHead,
    ItemHead,
    ItemLinearHead,
    ItemQ,
    mish,
)
from fedrank_zoo.fedslate_2024.networks import PositionalHead, PositionalLinearHead, PositionalQ

USER, ITEM, CANDIDATES = 2, 3, 5

LOCAL = {
    "item": ItemQ(USER, ITEM, (4, 3)),
    "item linear": ItemQ(USER, ITEM, ()),
    "positional": PositionalQ(USER, ITEM, CANDIDATES, (4, 3)),
    "positional unsquashed": PositionalQ(USER, ITEM, CANDIDATES, (4,), squash=False),
}
HEADS = {
    "item": ItemHead((4, 3)),
    "item linear": ItemLinearHead(),
    "none": IdentityHead(),
    "positional": PositionalHead(CANDIDATES, (4, 3)),
    "positional unsquashed": PositionalHead(CANDIDATES, (4,), squash=False),
    "positional linear": PositionalLinearHead(CANDIDATES),
}


def _mish(x):
    return x * np.tanh(np.logaddexp(0, x))


def perceptron(weights, x, sizes):
    """One row through layers of these sizes; the vector holds W [inputs, outputs] row by row, then b, of each."""
    weights, at = np.asarray(weights, np.float64), 0
    for before, after in itertools.pairwise(sizes):
        matrix = np.array([[weights[at + i * after + j] for j in range(after)] for i in range(before)])
        at += before * after
        x = x @ matrix + weights[at : at + after]
        at += after
        x = _mish(x) if at < len(weights) else x
    assert at == len(weights)
    return x


def local_by_hand(name, weights, user, items):
    if name.startswith("item"):
        hidden = {"item": (4, 3), "item linear": ()}[name]
        sizes = (USER + ITEM, *hidden, 1)
        return [perceptron(weights, np.concatenate([user, item]), sizes)[0] for item in items]
    hidden = (4, 3) if name == "positional" else (4,)
    together = np.concatenate([user, *items])
    out = perceptron(weights, together, (USER + CANDIDATES * ITEM, *hidden, CANDIDATES))
    return np.tanh(out) if name == "positional" else out


def head_by_hand(name, weights, own, others):
    if name == "none":
        return own
    seen = [np.array([a, b, own.mean(), others.mean()]) for a, b in zip(own, others, strict=True)]
    if name == "item linear":
        return [row @ weights[:4] + weights[4] for row in seen]
    if name.startswith("item"):
        return (
            weights[-2] * own + weights[-1] * others + [perceptron(weights[:-2], row, (4, 4, 3, 1))[0] for row in seen]
        )
    hidden = {"positional": (4, 3), "positional unsquashed": (4,), "positional linear": ()}[name]
    out = perceptron(weights, np.concatenate([own, others]), (2 * CANDIDATES, *hidden, CANDIDATES))
    return np.tanh(out) if name == "positional" else out


def drawn(seed=0):
    """The user, the items, own values, others' values."""
    random = np.random.default_rng(seed)
    shapes = (USER, (CANDIDATES, ITEM), CANDIDATES, CANDIDATES)
    return [random.normal(0, 0.7, shape).astype(np.float32) for shape in shapes]


@functools.cache
def weights_of(net):
    return np.random.default_rng(net.size).normal(0, 0.7, net.size).astype(np.float32)


@jax.jit
def all_values(user, items, own, others, scale):
    """Of every network, compiled at once: local values by name, and joint values by name."""
    local = {name: net.values(scale * weights_of(net), user, items) for name, net in LOCAL.items()}
    return local, {name: net.values(scale * weights_of(net), own, others) for name, net in HEADS.items()}


def test_local_values_are_those_of_the_layers_written_out():
    user, items, own, others = drawn()
    for name, values in all_values(user, items, own, others, 1.0)[0].items():
        assert values.shape == (CANDIDATES,) and values.dtype == jnp.float32
        wanted = local_by_hand(name, weights_of(LOCAL[name]), user, items)
        np.testing.assert_allclose(values, wanted, rtol=1e-5, atol=1e-6, err_msg=name)


def test_joint_values_are_those_of_the_layers_written_out():
    user, items, own, others = drawn()
    for name, values in all_values(user, items, own, others, 1.0)[1].items():
        assert values.shape == (CANDIDATES,) and values.dtype == jnp.float32
        wanted = head_by_hand(name, weights_of(HEADS[name]), own, others)
        np.testing.assert_allclose(values, wanted, rtol=1e-5, atol=1e-6, err_msg=name)


def test_item_networks_permute_with_the_candidates_and_positional_ones_do_not():
    user, items, own, others = drawn()
    turn = np.array([3, 0, 4, 1, 2])
    before = all_values(user, items, own, others, 1.0)
    after = all_values(user, items[turn], own[turn], others[turn], 1.0)
    for part in (0, 1):
        for name, values in before[part].items():
            apart = np.abs(after[part][name] - values[turn]).max()
            assert apart > 0.05 if name.startswith("positional") else apart < 2e-6, name
            assert np.ptp(values) > 0.05, name


def test_squashed_values_lie_within_one_and_the_others_do_not():
    for part in all_values(*drawn(1), 20.0):
        for name, values in part.items():
            squashed = name == "positional"
            most = np.abs(values).max()
            assert 0.99 < most <= 1.0 if squashed else most > 1.2 or name == "none", name


def test_the_published_networks_have_as_many_weights_as_counted_by_hand():
    engaged = 5 * 3  # five rounds of three slots; a place has its kaleness and its document's number
    local = PositionalQ(1 + engaged, 2, 10)
    assert local.size == (36 * 4096 + 4096) + 4 * (4096 * 4096 + 4096) + (4096 * 10 + 10) == 67_317_770
    assert PositionalHead(10).size == (20 * 2048 + 2048) + 3 * (2048**2 + 2048) + (2048 * 10 + 10) == 12_652_554
    assert PositionalLinearHead(10).size == 20 * 10 + 10
    assert ItemQ(1, 1).size == (2 * 64 + 64) + (64 * 64 + 64) + 65
    assert ItemHead().size == (4 * 32 + 32) + (32 * 32 + 32) + 33 + 2
    assert ItemLinearHead().size == 5


def test_weights_start_uniform_within_one_over_the_root_of_the_inputs():
    deep, flat = PositionalQ(50, 1, 50, (200,)), PositionalLinearHead(50)
    start = jax.jit(lambda key: (deep.init(key), flat.init(key)))
    weights, single = (np.asarray(part) for part in start(jax.random.key(1)))
    assert weights.shape == (deep.size,) and single.shape == (flat.size,) and weights.dtype == np.float32
    for inputs, part in ((100, weights[: 101 * 200]), (200, weights[101 * 200 :]), (100, single)):
        scaled = part * np.sqrt(inputs)
        assert np.abs(scaled).max() <= 1.0
        assert abs(scaled.mean()) < 4 * np.sqrt(1 / 3 / scaled.size)
        assert abs((scaled**2).mean() - 1 / 3) < 4 * np.sqrt((1 / 5 - 1 / 9) / scaled.size)
    assert not np.array_equal(weights, start(jax.random.key(2))[0])


def test_item_heads_start_as_a_mean_of_both_platforms_values_and_can_move():
    _, _, own, others = (jnp.asarray(part) for part in drawn())
    heads = {
        0.5: (ItemHead((4, 3)), ItemLinearHead()),
        0.2: (ItemHead((4, 3), share=0.2), ItemLinearHead(share=0.2)),
        0.0: (ItemHead((4, 3), share=0.0), IdentityHead()),
    }

    def start(head, key):
        weights = head.init(key)
        return head.values(weights, own, others), jax.grad(lambda w: head.values(w, own, others).sum())(weights)

    @jax.jit
    def starts(key):
        return {share: [start(head, key) for head in both] for share, both in heads.items()}

    for share, both in starts(jax.random.key(3)).items():
        for (values, slope), head in zip(both, heads[share], strict=True):
            np.testing.assert_allclose(values, (1 - share) * own + share * others, rtol=1e-6)
            assert np.asarray(slope).any() == (head != IdentityHead())


def test_gradients_of_a_batch_are_those_that_follow_from_the_values_of_each_row():
    random = np.random.default_rng(5)
    user, items, along = (
        random.normal(0, 0.7, (3, *shape)).astype(np.float32) for shape in ((USER,), (CANDIDATES, ITEM), (CANDIDATES,))
    )
    nets = {name: net for name, net in LOCAL.items() if name.startswith("item")}

    def with_gradients(values, net, user, items, along):
        found, back = jax.vjp(values, jnp.asarray(weights_of(net)), user, items)
        return found, *back(along)

    @jax.jit
    def both(*batch):
        return {
            name: [with_gradients(f, net, *batch) for f in (net.of_batch, jax.vmap(net.values, in_axes=(None, 0, 0)))]
            for name, net in nets.items()
        }

    found = both(user, items, along)
    assert len(found) == 2
    for name, (ours, derived) in found.items():
        for a, b in zip(ours, derived, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6, err_msg=name)


def test_mish_and_its_slope_are_the_formulas_at_every_magnitude():
    x = np.concatenate([-np.logspace(2, -6, 60), [0.0], np.logspace(-6, 2, 60), [1e4, -1e4]]).astype(np.float32)
    wide = x.astype(np.float64)
    value, got = jax.jit(jax.vmap(jax.value_and_grad(mish)))(x)
    np.testing.assert_allclose(value, _mish(wide), rtol=2e-6, atol=1e-30)
    t = np.tanh(np.logaddexp(0, wide))
    slope = t + wide * (1 - t**2) / (1 + np.exp(-np.clip(wide, -700, 700)))
    np.testing.assert_allclose(got, slope, rtol=2e-5, atol=2e-6)


def test_settings_that_make_no_network_are_refused():
    for make in [
        lambda: ItemQ(0, 1),
        lambda: ItemQ(1, 0),
        lambda: ItemQ(1, 1, (4, 0)),
        lambda: PositionalQ(1, 1, 0),
        lambda: PositionalHead(0),
        lambda: PositionalLinearHead(0),
        lambda: ItemHead((0,)),
        lambda: ItemHead(share=1.5),
        lambda: ItemLinearHead(share=-0.1),
    ]:
        with pytest.raises(ConfigError, match="got"):
            make()
