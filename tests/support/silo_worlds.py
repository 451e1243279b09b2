"""Tiny federations of silos that several tests share, and a plain loop over a protocol's exchanges.

The loop is not the simulator's: all silos answer, whether they are asked or not. What a silo that is not heard "sends"
is made garbage on purpose: no code may look at it.
"""

import dataclasses

import numpy as np

from fedrank.core.native import map_trees
from fedrank.core.streams import fold_words, run_words, split
from fedrank.engine.native import stack_states
from fedrank.silos.bandit_fedavg import Bandit, BanditFedAvg
from fedrank.silos.bandits.rules import RuleSettings
from fedrank.silos.config import Network, Silos
from fedrank.silos.data.files import read_silos
from fedrank.silos.data.splits import Rows, SiloArrays
from fedrank.silos.local_sgd import LocalSgd
from fedrank.silos.network import TabularNetwork

SILOS, FEATURES, ROWS, VALI = 3, 6, 12, 24
#: Training rows of each silo.
TRAIN = (12, 7, 4)


def read_file(path, silo="silo", label="label", **about):
    """A table of silos from a file, with settings in short."""
    return read_silos(path, Silos(silo=silo, label=label, **about))


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


def make_rule(kind, **settings):
    """A decision rule as scalars."""
    return RuleSettings(rule=kind, **settings).scalars()


def bandit_of(sgd, silos, rows, *, target=0, measure="auc", evaluates=None, crossing="average", **settings):
    """MAB-FL with settings of the bandit; where nothing is said it is ε-greedy, and there are the rounds alone."""
    bandit = Bandit(**{"rule": "epsilon-greedy", "epsilon": 0.1, "refit": False, **settings})
    return BanditFedAvg(
        sgd, silos, rows, measure, network=Network(crossing=crossing), bandit=bandit, target=target, evaluates=evaluates
    )


def tiny_bandit(sgd=None, silos=SILOS, rows=ROWS, **settings):
    """MAB-FL on :func:`tiny_silos`."""
    return bandit_of(sgd or linear_sgd(), silos, rows, **settings)


def word(seed):
    """Both words of the key of a seed."""
    return run_words([seed])[0]


def fields_of(message, function):
    """A message of the same type with a function of each field."""
    fields = {f.name: function(getattr(message, f.name)) for f in dataclasses.fields(message)}
    return type(message)(**fields)


def for_all(request, silos):
    """A request as several silos get it."""
    return fields_of(request, lambda leaf: np.stack([leaf] * silos))


def _beside(flags, leaf):
    return flags.reshape(flags.shape + (1,) * (leaf.ndim - 1))


def _garbage(leaf, bad):
    value = np.nan if np.issubdtype(leaf.dtype, np.floating) else 12345
    return np.where(_beside(bad, leaf), np.asarray(value, leaf.dtype), leaf)


def _played(protocol, seed, rule, target, party, heard, broken):
    silos, key = protocol.silos, word(seed)

    def exchanged(index, exchange, state, own, number, heard, broken):
        asked = exchange.asked(state, silos)
        asked = np.ones(silos, bool) if asked is None else asked
        keys = split(fold_words(fold_words(key, number), index), silos)
        after, replies = exchange.answer(for_all(exchange.ask(state), silos), party._replace(own=own), keys)
        own = map_trees(lambda new, old: np.where(_beside(asked, new), new, old), after.own, own)
        if hasattr(replies, "weights"):
            replies = dataclasses.replace(replies, weights=_garbage(replies.weights, broken))
        replies = fields_of(replies, lambda leaf: _garbage(leaf, ~(asked & heard)))
        return exchange.tell(state, replies, asked & heard), own, asked

    state, own = protocol.begin(word(seed), rule, target), party.own
    fresh = state.weights
    split_at = sum(exchange.due(1) is not True for exchange in protocol.exchanges)
    history = []
    with np.errstate(all="ignore"):
        for index, exchange in enumerate(protocol.exchanges[:split_at]):
            state, own, _ = exchanged(index, exchange, state, own, 0, heard[0], broken[0])
        opened = state, own
        for number in range(1, len(heard)):
            asked = []
            for index, exchange in enumerate(protocol.exchanges[split_at:], split_at):
                state, own, who = exchanged(index, exchange, state, own, number, heard[number], broken[number])
                asked.append(who)
            history.append((state, own.model, np.stack(asked), protocol.watch(state)))
    states, models, asked, watched = zip(*history, strict=True)
    watched = {name: np.stack([one[name] for one in watched]) for name in watched[0]}
    return fresh, opened, (stack_states(states), np.stack(models), np.stack(asked), watched)


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
    return Played(*_played(protocol, seed, rule, target, party, there, bad))
