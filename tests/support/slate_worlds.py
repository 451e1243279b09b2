"""A tiny federation of two platforms that share a user, played by hand: what tests of FedSlate look at.

One shape for all tests, each exchange compiled once. Rounds are played here exchange by exchange, so that every message
is kept; that a simulator plays the same is a test of its own. Below, networks, losses and what platforms know are
written a second time, in NumPy.
"""

from __future__ import annotations

import dataclasses
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedrank.core.protocol import Party
from fedrank.slates.config import World
from fedrank.slates.fedslate import FedSlate, LocalSlateQ
from fedrank.slates.fedslate.settings import FederatedSlates, Slates
from fedrank.slates.fedslate.state import Transition
from fedrank.slates.learner import UserVisits
from fedrank.slates.world.satisfaction import Satisfaction
from fedrank_zoo.fedslate_2024 import FedSlate2024
from fedrank_zoo.fedslate_2024.settings import PublishedSlates

#: Candidates, items of a slate, moments in a batch, moments kept, rounds of an episode, platforms, hidden units.
N, SLATE, B, MEMORY, EPISODE, K, WIDTH = 5, 2, 3, 12, 5, 2, 4
#: Rounds that are played, those that end with learning, and those that end with a copy to the target networks.
ROUNDS, LEARNS, COPIES = 14, (7, 9, 11, 13), (4, 9)
RATE, DISCOUNT, SCALE, EXPLORES = 0.02, 0.9, 15.0, 0.5
#: Folds of a run's key that a simulator keeps for the server's first state and for the world.
_INIT, _WORLD = 0xFFFFFFFF, 0xFFFFFFFC


def settings(kind: type[Slates] = FederatedSlates, **given: Any) -> Any:
    """Tiny settings: fields of ``kind``, and ``world``, fields of the world."""
    world = Satisfaction(**{"candidates": N, "slate": SLATE, "time_budget": EPISODE * K, **given.pop("world", {})})
    usual: dict[str, Any] = {
        "sees": (True,) + (False,) * (world.platforms - 1),
        "local_widths": (WIDTH,),
        "batch": B,
        "memory": MEMORY,
        "burn_in": 6,
        "learn_every": 2,
        "copy_every": 5,
        "learning_rate": RATE,
        "discount": DISCOUNT,
        "reward_scale": SCALE,
        "choice": "learned",
        "explore": EXPLORES,
        "decay": 1.0,
        "floor": EXPLORES,
    }
    if issubclass(kind, FederatedSlates):
        usual["head_widths"] = (WIDTH,)
    return dataclasses.replace(kind(**{**usual, **given}).resolved(1000, World()), world=world)


def slates(kind: type[Slates] = FederatedSlates, **given: Any) -> Any:
    """FedSlate, or of ``LocalSlates`` SlateQ, with :func:`settings`."""
    return (FedSlate if kind is FederatedSlates else LocalSlateQ)(settings(kind, **given))


def published(**given: Any) -> FedSlate2024:
    """FedSlate with :func:`settings` and with faults of the published code."""
    return FedSlate2024(settings(PublishedSlates, mode="corrected", **given))


PROTOCOL = slates()


class Told(NamedTuple):
    """One exchange.

    Attributes:
        request: As it was asked.
        state: The coordinator's state after it.
        own: What the platforms have after it, [K, ...].
        replies: Leaves [K, ...]; zeros of those that were not asked.
    """

    request: Any
    state: Any
    own: Any
    replies: Any


class Round(NamedTuple):
    """One round.

    Attributes:
        state: The coordinator's state before it.
        own: What the platforms have before it.
        scene: What there was before it.
        shown: int32 [K, n], slates.
        turns: What users did, leaves [K].
        over: bool.
        after: The scene after it.
        told: The exchanges that took place, by name and platform: ``"look"``, ``"compare 0"``.
    """

    state: Any
    own: Any
    scene: Any
    shown: Any
    turns: Any
    over: Any
    after: Any
    told: dict[str, Told]


def called(e: Any) -> str:
    """Name of an exchange, and the platform that it is with, where there is one each."""
    return f"{e.name} {e.platform}" if hasattr(e, "platform") else e.name


def exchange(name: str, protocol: FedSlate = PROTOCOL) -> Any:
    """An exchange by :func:`called`."""
    return next(e for e in protocol.exchanges if called(e) == name)


@partial(jax.jit, static_argnums=0)
def _asked(e, state, own, key, heard, sent):
    request, who = e.ask(state), e.asked(state, K)
    who = jnp.ones(K, bool) if who is None else who

    def answer(own, number):
        mine = jax.tree.map(lambda leaf: leaf[number], request) if e.personal else request
        place = [called(one) for one in FedSlate(e.settings).exchanges].index(called(e))
        mixed = jax.random.fold_in(jax.random.fold_in(key, number), place)
        party, reply = e.answer(mine, Party(None, own), mixed)
        return party.own, reply

    after, replies = jax.vmap(answer)(own, jnp.arange(K))

    def only(new, old):
        return jnp.where(who.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

    after = jax.tree.map(only, after, own)

    def spoilt(leaf):
        if leaf.dtype == jnp.float32:
            instead = sent.reshape(-1, *(1,) * (leaf.ndim - 1))
            leaf = jnp.where(instead == 0, leaf, instead)
        return only(leaf, jnp.zeros_like(leaf))

    replies = jax.tree.map(spoilt, replies)
    return Told(request, e.tell(state, replies, heard & who), after, replies)


def asked(e: Any, state: Any, own: Any, key: Any = None, heard: Any = (True,) * K, sent: Any = (0.0,) * K) -> Told:
    """One exchange with all platforms that it asks.

    Args:
        e: The exchange.
        state: The coordinator's state.
        own: What the platforms have, [K, ...].
        key: Of the round.
        heard: Whose replies arrive.
        sent: What platforms send in place of every number; 0: they are honest.
    """
    key = jax.random.key(9) if key is None else key
    return _asked(e, state, own, key, jnp.asarray(heard), jnp.asarray(sent, jnp.float32))


def learnt(state: Any, own: Any, **conditions: Any) -> tuple[Any, Any]:
    """The states after a batch has been learnt from; conditions as of :func:`asked`."""
    for e in PROTOCOL.exchanges[2:-1]:
        told = asked(e, state, own, **conditions)
        state, own = told.state, told.own
    return state, own


@dataclasses.dataclass(frozen=True)
class Misheard(Satisfaction):
    """Users as they are, of whom some platforms are told something else.

    Attributes:
        loud: bool [K], which.
        truth: What there was is appended here.
    """

    loud: Any = None
    truth: list[Any] = dataclasses.field(default_factory=list)

    def round(self, scene, slates, draws):
        """Ten times the engagement, with another item at another place of the slate."""
        after, turns, over = super().round(scene, slates, draws)
        self.truth.append(turns)
        other = turns._replace(
            slot=(turns.slot + 1) % SLATE, item=(turns.item + 1) % N, engagement=10 * turns.engagement
        )
        return after, jax.tree.map(lambda wrong, right: jnp.where(self.loud, wrong, right), other, turns), over


@jax.jit
def _first(key):
    own = jax.tree.map(lambda leaf: leaf[0], PROTOCOL.parties(key[None]).own)
    scene, own = UserVisits(PROTOCOL.learner).begin(jax.random.fold_in(key, _WORLD), own)
    return PROTOCOL.init(jax.random.fold_in(key, _INIT)), own, scene


@jax.jit
def _lived(scene, own, key, number, loud):
    s = PROTOCOL.slates
    fields = {f.name: getattr(s.world, f.name) for f in dataclasses.fields(s.world)}
    world, key = Misheard(**fields, loud=loud), jax.random.fold_in(key, _WORLD)
    after, own, seen = UserVisits(PROTOCOL.learner, world).happen(scene, own, key, number)
    return after, own, world.truth[-1], seen["over"]


@cache
def played(loud: tuple[bool, ...] = (False,) * K) -> tuple[Round, ...]:
    """A run, round by round; one more entry for the states in the end.

    Args:
        loud: Which platforms are told of other clicks and engagement than there are.
    """
    seed = jax.random.key(3)
    state, own, scene = _first(seed)
    history, happened = [], {}
    for number in range(ROUNDS):
        before, key, told = (state, own, scene), jax.random.fold_in(seed, number), {}
        for e in PROTOCOL.exchanges:
            if not e.due(number):
                continue
            told[called(e)] = one = asked(e, state, own, key)
            state, own = one.state, one.own
            if e.environment is not None:
                scene, own, turns, over = _lived(scene, own, key, number, jnp.asarray(loud))
                happened = {"shown": own.slate, "turns": turns, "over": over, "after": scene}
        plain = partial(jax.tree.map, np.asarray)
        told = {name: one._replace(replies=plain(one.replies)) for name, one in told.items()}
        history.append(Round(*before[:2], plain(before[2]), **plain(happened), told=told))
    return (*history, Round(state, own, jax.tree.map(np.asarray, scene), None, None, None, None, {}))


def raw(tree: Any) -> Any:
    """A pytree with keys as numbers, which NumPy can compare."""

    def plain(leaf):
        typed = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(leaf) if typed else leaf)

    return jax.tree.map(plain, tree)


def same(a: Any, b: Any) -> bool:
    """Whether two pytrees are equal to the bit."""
    pairs = zip(jax.tree.leaves(raw(a)), jax.tree.leaves(raw(b)), strict=True)
    return all(np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in pairs)


# -- the same again, in NumPy ----------------------------------------------------------------------------------------


def f64(tree):
    """A pytree in double precision; integers stay."""
    return jax.tree.map(lambda x: np.asarray(x, np.float64 if np.asarray(x).dtype.kind == "f" else None), tree)


def mish(x):
    return x * np.tanh(np.log1p(np.exp(x)))


def mlp(weights, x, layers):
    """Linear layers with Mish between them; weights are W [inputs, outputs] row by row, then b, layer by layer."""
    for at, (before, after) in enumerate(layers):
        matrix, weights = weights[: before * after].reshape(before, after), weights[before * after :]
        x, weights = x @ matrix + weights[:after], weights[after:]
        x = mish(x) if at < len(layers) - 1 else x
    assert not len(weights)
    return x[..., 0]


def q_local(weights, user, items):
    """Q(s, i) [..., N] of users [..., F] and candidates [..., N, d]."""
    users = np.broadcast_to(user[..., None, :], (*items.shape[:-1], user.shape[-1]))
    return mlp(weights, np.concatenate([users, items], axis=-1), [(5, WIDTH), (WIDTH, 1)])


def omega(weights, own, others):
    """Ω([own ‖ others]) [..., N]."""
    means = [np.broadcast_to(x.mean(axis=-1, keepdims=True), x.shape) for x in (own, others)]
    correction = mlp(weights[:-2], np.stack([own, others, *means], axis=-1), [(4, WIDTH), (WIDTH, 1)])
    return weights[-2] * own + weights[-1] * others + correction


def kaleness(items):
    return items[..., 0] / 12**0.5 + 0.5


def choices(learnt, items):
    """v(s, i) of users who always click; β is the first of the learnt numbers."""
    return np.exp(learnt[0] * kaleness(items))


def worth(v, q, slate, none=0.0):
    """Equation 5 of one slate; ``none`` is the score of no click."""
    return np.sum(v[slate] * q[slate]) / (np.sum(v[slate]) + none)


def greedy(v, q, none=0.0):
    """Equation 8, item by item."""
    slate = []
    for _ in range(SLATE):
        free = [i for i in range(N) if i not in slate]
        slate.append(max(free, key=lambda i: worth(v, q, [*slate, i], none)))
    return slate


def huber(error):
    size = np.abs(error)
    return np.where(size <= 1, 0.5 * size**2, size - 0.5)


def slope(f, at, step=1e-5):
    """Central differences of a function of an array, in the array's shape."""
    found = np.zeros(at.shape)
    for place in np.ndindex(at.shape):
        there = np.zeros(at.shape)
        there[place] = step
        found[place] = (f(at + there) - f(at - there)) / (2 * step)
    return found


def adam(gradient, weights, optimiser):
    """A step of Kingma and Ba's method, from the count and the two means that are kept."""
    count, mean, square = (np.asarray(leaf, np.float64) for leaf in optimiser[0])
    mean, square, count = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2, count + 1
    return weights - RATE * (mean / (1 - 0.9**count)) / (np.sqrt(square / (1 - 0.999**count)) + 1e-8)


def count(optimiser):
    return np.asarray(optimiser[0].count).tolist()


def one(tree, platform):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[platform], tree)


def remembered(number, ages):
    """Of each age, the number of the round it means once ``number`` is over."""
    return number - np.asarray(ages, int)


def looked_up(number, ages):
    """The moments of those ages, from what was there in those rounds and not from any memory: leaves [K, B, ...]."""
    history, rounds = played(), remembered(number, ages)
    rows = []
    for r in rounds:
        h = history[r]
        told = np.asarray([1, 0])
        rows.append(
            Transition(
                user=np.stack([features(p)[r] for p in range(K)]),
                items=(f64(h.own.view.documents)[..., None] - 0.5) * 12**0.5,
                slate=np.asarray(h.shown),
                item=np.where(told, h.turns.item, -1),
                slot=np.where(told, h.turns.slot, SLATE),
                engagement=np.where(told, f64(h.turns.engagement) / SCALE, 0.0),
                over=np.full(K, float(h.over)),
            )
        )
    return jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *rows)


@cache
def features(platform):
    """What a platform's network is told of the user at the beginning of each round, [ROUNDS + 1, 4].

    The satisfaction that it sees, smoothed too, what was consumed and how engaging it was; a platform without feedback
    goes by what its own choice model expects of its slates. All begin anew with a user.
    """
    found, smooth, consumed, engaged = [], 0.0, 0.0, 0.0
    for r, h in enumerate(played()):
        observed = float(h.scene.observed[platform]) - 0.5
        if r and not played()[r - 1].over:
            before = played()[r - 1]
            k = f64(before.scene.documents)[platform]
            slate = np.asarray(before.shown)[platform]
            if platform == 0:
                eaten, paid = k[int(before.turns.item[0])], float(before.turns.engagement[0]) / SCALE - 1
            else:
                # Its choice model when the round was lived: what the last batch before it taught.
                v = np.exp(float(before.own.choice[platform][0]) * k[slate])
                eaten, paid = np.sum(v * k[slate]) / np.sum(v), 0.0
            smooth, engaged = 0.81 * smooth + 0.19 * observed, 0.81 * engaged + 0.19 * paid
            consumed = 0.81 * consumed + eaten - 0.5
        else:
            smooth, consumed, engaged = 0.0, 0.0, 0.0
        found.append([10 * observed, 10 * smooth, consumed, engaged])
    return np.asarray(found)
