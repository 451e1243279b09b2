"""Tiny federations of silos that several tests share, and a plain loop over a protocol's exchanges.

The loop is not the simulator's: one program per protocol plays any rule, target, drop-out and broken reply, so that
compilations are few. What a silo that is not heard "sends" is made garbage on purpose: nobody may look at it.
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from fedrank.core.protocol import Party
from fedrank.silos.bandit_fedavg import BanditFedAvg
from fedrank.silos.bandits.rules import KINDS
from fedrank.silos.data.rows import Rows
from fedrank.silos.data.splits import SiloArrays
from fedrank.silos.local_sgd import LocalSgd
from fedrank.silos.network import TabularNetwork

SILOS, FEATURES, ROWS, VALI = 3, 6, 12, 24
#: Training rows of each silo.
TRAIN = (12, 7, 4)

#: A generator whose code compiles in half the time, for the shuffles of local training.
_GENERATOR = "unsafe_rbg"


def padded(parts):
    """Rows of silos, (x, y) each, with a leading axis of silos; padding is zeros."""
    most = max(len(y) for _, y in parts)
    x = np.stack([np.pad(x, ((0, most - len(y)), (0, 0))) for x, y in parts]).astype(np.float32)
    y = np.stack([np.pad(y, (0, most - len(y))) for _, y in parts]).astype(np.float32)
    return Rows(x, y, np.array([len(y) for _, y in parts], np.int32))


def tiny_silos(seed=6, train=TRAIN, vali=VALI, features=FEATURES):
    """Silos whose labels follow from directions that differ; both classes everywhere; leading axes [1, silos]."""
    random = np.random.default_rng(seed)
    common = random.standard_normal(features)
    parts = {"train": [], "vali": [], "test": []}
    for rows in train:
        direction = common + 1.2 * random.standard_normal(features)
        for part, many in (("train", rows), ("vali", vali), ("test", vali)):
            x = random.standard_normal((many, features))
            y = (x @ direction + 1.5 * random.standard_normal(many) > 0).astype(float)
            y[: min(2, many)] = [0, 1][: min(2, many)]
            parts[part].append((x, y))
    return SiloArrays(*(Rows(*(leaf[None] for leaf in padded(parts[part]))) for part in ("train", "vali", "test")))


def changed(arrays, part, silo, **fields):
    """The arrays with other ``x``, ``y`` or ``n`` in one silo's part."""
    rows = getattr(arrays, part)
    new = {name: np.array(getattr(rows, name)) for name in fields}
    for name, value in fields.items():
        new[name][0, silo] = value
    return arrays._replace(**{part: rows._replace(**new)})


def linear_sgd(epochs=2, rate=0.3, rows=ROWS, features=FEATURES, **settings):
    """Logistic regression on all rows at once: what training does is a closed form and takes no chance."""
    return LocalSgd(TabularNetwork(features, (), "none"), epochs, rows, rate, **settings)


def deep_sgd(epochs=2, batch=4, rate=0.1, features=FEATURES, norm="batch", **settings):
    """One hidden layer with batch norm."""
    return LocalSgd(TabularNetwork(features, (4,), norm), epochs, batch, rate, **settings)


def tiny_bandit(sgd=None, silos=SILOS, rows=ROWS, **settings):
    """MAB-FL on :func:`tiny_silos`; any rule but Thompson sampling, whose draws take long to compile."""
    settings.setdefault("kinds", tuple(number for number, kind in enumerate(KINDS) if kind != "thompson"))
    return BanditFedAvg(sgd or linear_sgd(), silos, rows, **settings)


def _beside(flags, leaf):
    return flags.reshape(flags.shape + (1,) * (leaf.ndim - 1))


def _garbage(leaf, bad):
    value = jnp.nan if jnp.issubdtype(leaf.dtype, jnp.floating) else 12345
    return jnp.where(_beside(bad, leaf), jnp.asarray(value, leaf.dtype), leaf)


@partial(jax.jit, static_argnums=0)
def _played(protocol, seed, rule, target, party, heard, broken):
    silos, key = protocol.silos, jax.random.key(seed, impl=_GENERATOR)

    def exchanged(index, exchange, state, own, number, heard, broken):
        asked = exchange.asked(state, silos)
        asked = jnp.ones(silos, bool) if asked is None else asked
        request = exchange.ask(state)
        keys = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, number), index), silos)
        after, replies = jax.vmap(
            lambda own, key: exchange.answer(request, Party(party.shared, own), key), out_axes=(Party(None, 0), 0)
        )(own, keys)
        own = jax.tree.map(lambda new, old: jnp.where(_beside(asked, new), new, old), after.own, own)
        if hasattr(replies, "weights"):
            replies = dataclasses.replace(replies, weights=_garbage(replies.weights, broken))
        replies = jax.tree.map(lambda leaf: _garbage(leaf, ~(asked & heard)), replies)
        return exchange.tell(state, replies, asked & heard), own, asked

    state, own = protocol.begin(jax.random.key(seed), rule, target), party.own
    fresh = state.weights
    split = sum(exchange.due(1) is not True for exchange in protocol.exchanges)
    for index, exchange in enumerate(protocol.exchanges[:split]):
        state, own, _ = exchanged(index, exchange, state, own, 0, heard[0], broken[0])
    opened = state, own

    def step(carry, inputs):
        state, own = carry
        number, heard, broken = inputs
        asked = []
        for index, exchange in enumerate(protocol.exchanges[split:], split):
            state, own, who = exchanged(index, exchange, state, own, number, heard, broken)
            asked.append(who)
        return (state, own), (state, own.model, jnp.stack(asked), protocol.watch(state))

    numbers = jnp.arange(1, len(heard))
    _, history = jax.lax.scan(step, (state, own), (numbers, heard[1:], broken[1:]))
    return fresh, opened, history


class Played:
    """A run: ``fresh`` weights; state and models after the ``opening``; then, by round, ``state``, ``models`` of the
    silos, who was ``asked`` in each exchange, and what the server ``watched``."""

    def __init__(self, fresh, opened, history):
        self.fresh = np.asarray(fresh)
        self.opening, own = opened
        self.first_models = np.asarray(own.model)
        self.state, self.models, self.asked, self.watched = history
        self.models, self.asked = np.asarray(self.models), np.asarray(self.asked)
        self.watched = {name: np.asarray(value) for name, value in self.watched.items()}

    def __getattr__(self, name):
        """A field of the server's state, by round."""
        return np.asarray(getattr(self.state, name))


def played(protocol, arrays, rule, rounds=4, target=0, seed=0, heard=None, broken=None, opening=()):
    """Rounds of a protocol.

    Args:
        protocol: The protocol; its own rule and target do not matter.
        arrays: The silos.
        rule: The rule that plays.
        rounds: How many.
        target: T.
        seed: Of everything.
        heard: {round: silos that are not heard}.
        broken: {round: silos that send weights that are not numbers}; -1 is what comes before the first round.
        opening: Silos that are not heard before the first round.
    """
    there = np.ones((rounds + 1, protocol.silos), bool)
    bad = ~there
    for number, silos in (heard or {}).items():
        there[number + 1, list(silos)] = False
    for number, silos in (broken or {}).items():
        bad[number + 1, list(silos)] = True
    there[0, list(opening)] = False
    party = protocol.parties(arrays)
    return Played(*_played(protocol, seed, rule, jnp.int32(target), party, there, bad))
