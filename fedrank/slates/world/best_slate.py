"""The best slate, given choice scores of items and the values of clicks on them.

Of N candidates, item i has a choice score v_i > 0 and a value q_i of being clicked; "no click" has the score v_0 ≥ 0
and is worth nothing. A user who sees the slate A clicks i with probability v_i / (v_0 + Σ_A v): the slate is worth

    Q(A) = Σ_{i∈A} v_i q_i / (v_0 + Σ_{i∈A} v_i)        (equation 5 of Deng et al. 2024; Ie et al. 2019, SlateQ)

Three ways to choose A of n items: the n largest v_i q_i (``top-k``), item by item the one that raises Q(A) most
(``greedy``, equation 8), or the best slate there is (``exact``). Of the first two, either can be the better, if mostly
greedy is. None of them is differentiated: a slate is integers.

The exact one replaces SlateQ's linear programme by Dinkelbach's method (Management Science 13, 1967): the value λ of a
slate is the largest if and only if max_A Σ_A v_i (q_i − λ) = λ v_0, and the maximiser of the left side is simply the n
largest v_i (q_i − λ). From any other slate's λ, that maximiser's value is higher: values rise until they stop.

The slate of the highest expected value for a policy that knows the user's choice model.

A click on item i is worth q_i, no click q_⊥. For models in which the odds of two items do not depend on what else is
shown (multinomial, proportional), the value Σ P(i|A) q_i is a ratio of sums, and Dinkelbach's method finds its maximum
exactly: it solves the linear programme of SlateQ (Ie et al. 2019, arXiv:1905.12767, Section 5.2) by a few selections of
the n largest. For a cascade, the best order of any set is by descending worth (exchange two neighbours), and a table
over (item, free slots) finds the set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from fedrank.core.arrays import AnyArray, JaxArray, module_of, take
from fedrank.core.arrays import AnyArray as Array
from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.core.lazy import jax, jnp
from fedrank.core.registry import Registry
from fedrank.slates.world.choice import Cascade, SlateChoice

#: A score of no click.
Score = Float[AnyArray | float, "..."]
#: A slate optimiser: from scores v, values q, the items n of a slate and the score v0 of no click to the slate.
Optimiser = Callable[[Float[Array, " candidates"], Float[Array, " candidates"], int, Score], Int[Array, " slots"]]

#: Slate optimisers by name.
OPTIMISERS: Registry[Optimiser] = Registry("slate optimiser")

#: The most steps of Dinkelbach's method, which stops by itself when the value no longer rises. In 144,000 random cases
#: (scores log-normal with σ up to 8) it took 4 at most at N = 8 and n = 3, 9 at N = 500 and n = 10, 12 at n = 100.
MAX_STEPS = 32

#: Up to this number of items, passes over the values are quicker than a partial sort (on a CPU, batches of 16 and 256).
_PASSES = 4


def largest(values: Float[AnyArray, "*lists candidates"], n: int) -> Int[AnyArray, "*lists slots"]:
    """Indices of the ``n`` largest values, largest first; of equals, the first."""
    if isinstance(values, np.ndarray) and (n > _PASSES or not np.isfinite(values).all()):
        return np.argsort(-values, axis=-1, stable=True)[..., :n].astype(np.int32)
    if isinstance(values, np.ndarray):
        left, places = np.array(values, order="C"), []
        flat, starts = left.reshape(-1), np.arange(0, left.size, left.shape[-1]).reshape(left.shape[:-1])
        for _ in range(n):
            places.append(left.argmax(axis=-1))
            flat[starts + places[-1]] = -np.inf
        return np.stack(places, axis=-1).astype(np.int32)
    if n > _PASSES:
        return jax.lax.top_k(values, n)[1].astype(jnp.int32)
    picks, free = [], jnp.ones(values.shape, bool)
    for _ in range(n):
        pick, here = _first_largest(values, free)
        picks, free = [*picks, pick], free & ~here
    return jnp.stack(picks)


def _first_largest(
    values: Float[Array, " candidates"], free: Bool[Array, " candidates"]
) -> tuple[Int[Array, ""], Bool[Array, " candidates"]]:
    """The first of the largest free values: its index, and a mask of it alone.

    A maximum and a minimum are each one vectorised pass; an arg max, which carries pairs, took three times as long at
    N = 100. What is no number counts as the least: the pick is free whatever the values are.
    """
    order = jnp.arange(values.shape[0], dtype=jnp.int32)
    least = jnp.finfo(values.dtype).min
    values = jnp.where(free, jnp.where(values > least, values, least), -jnp.inf)
    pick = jnp.min(jnp.where(values == jnp.max(values), order, values.shape[0]))
    return pick, order == pick


def slate_value(
    v: Float[AnyArray, "*#lists candidates"],
    q: Float[AnyArray, "*#lists candidates"],
    slate: Int[AnyArray, "*#lists slots"],
    v0: Score = 0.0,
) -> Float[AnyArray, "*#lists"]:
    """The value of a slate, Σ_i P(i | A) q_i (equation 5); 0 if all scores are 0.

    Args:
        v: Scores of being clicked, positive; only their ratios, with ``v0``, matter.
        q: Values of a click.
        slate: Its items, each at most once.
        v0: Score of no click; 0 if the user always clicks.
    """
    shown = take(v, slate)
    return _ratio((shown * take(q, slate)).sum(axis=-1), shown.sum(axis=-1) + v0)


def _ratio(gain: Float[Array, "*shape"], mass: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """The quotient, or 0 where there is no mass (scores that have all underflowed)."""
    xp = module_of(gain, mass)
    return xp.where(mass > 0, gain / xp.where(mass > 0, mass, np.float32(1)), np.float32(0))


@OPTIMISERS.register("top-k", summary="The n largest products of score and value.", citation="ie2019slateq")
def top_k(
    v: Float[Array, " candidates"], q: Float[Array, " candidates"], n: int, v0: Score = 0.0
) -> Int[Array, " slots"]:
    """The n largest v_i q_i, largest first; arguments as :func:`greedy`. ``v0`` changes nothing."""
    del v0
    return largest(jax.lax.stop_gradient(v * q), n)


@OPTIMISERS.register("greedy", summary="Item by item the one that raises the value most.", citation="ie2019slateq")
def greedy(
    v: Float[Array, " candidates"], q: Float[Array, " candidates"], n: int, v0: Score = 0.0
) -> Int[Array, " slots"]:
    """The next item is always the one with which the slate so far is worth most (equation 8).

    Args:
        v: Scores of being clicked, positive and finite.
        q: Values of a click, finite.
        n: Items of the slate, at most N.
        v0: Score of no click; 0 if the user always clicks.

    Returns:
        Items in the order of picking; of equals, the first.
    """
    v, q, v0 = (jax.lax.stop_gradient(jnp.asarray(x, jnp.float32)) for x in (v, q, v0))
    products, free, slate = v * q, jnp.ones(v.shape, bool), []
    gain, mass = jnp.float32(0), v0
    for _ in range(n):
        pick, here = _first_largest(_ratio(products + gain, v + mass), free)
        slate, free = [*slate, pick], free & ~here
        gain, mass = gain + products[pick], mass + v[pick]
    return jnp.stack(slate)


@OPTIMISERS.register("exact", summary="The best slate there is, by Dinkelbach's method.", citation="dinkelbach1967")
def exact(
    v: Float[Array, " candidates"], q: Float[Array, " candidates"], n: int, v0: Score = 0.0
) -> Int[Array, " slots"]:
    """The slate of n items that is worth most; arguments as :func:`greedy`.

    Returns:
        Items with the largest v_i (q_i − λ) first, where λ is the slate's value.
    """
    v, q, v0 = (jax.lax.stop_gradient(jnp.asarray(x, jnp.float32)) for x in (v, q, v0))
    return dinkelbach(v, q, v0, largest(q, n))


def best_value(
    v: Float[Array, "candidates *batch"],
    q: Float[Array, "candidates *batch"],
    n: int,
    v0: Float[Array, "*batch"],
) -> Float[Array, "*batch"]:
    """Values of the best slates of many lists, by Dinkelbach's method for all at once, without the slates.

    Candidates come first, so that a pass over them takes neighbouring lists together: several times quicker on a CPU
    than :func:`exact` for each list.

    Args:
        v: Scores of being clicked, positive and finite.
        q: Values of a click, finite.
        n: Items of a slate, at most N.
        v0: Scores of no click.
    """
    xp = module_of(v, q)

    def worth(order):
        mass = xp.where(_shown(order, n), v, np.float32(0))
        return _ratio(xp.sum(mass * q, axis=0), xp.sum(mass, axis=0) + v0)

    def improves(state):
        step, _, rising = state
        return rising & (step < MAX_STEPS)

    def improve(state):
        step, value, _ = state
        higher = worth(v * (q - value[None]))
        return step + 1, xp.maximum(value, higher), xp.any(higher > value)

    return _while(improves, improve, (xp.int32(0), worth(q), xp.bool_(True)))[1]


def _shown(values: Float[Array, "candidates *batch"], n: int) -> Bool[Array, "candidates *batch"]:
    """Places of the ``n`` largest values of each list; of equals, the first."""
    if isinstance(values, np.ndarray):
        shown = np.zeros(values.shape, bool)
        if n > _PASSES or not np.isfinite(values).all():
            np.put_along_axis(shown, np.argsort(-values, axis=0, stable=True)[:n], True, axis=0)
            return shown
        left = np.array(values)
        for _ in range(n):
            place = left.argmax(axis=0)[None]
            np.put_along_axis(left, place, -np.inf, axis=0)
            np.put_along_axis(shown, place, True, axis=0)
        return shown
    order = jax.lax.broadcasted_iota(jnp.int32, values.shape, 0)

    def one_less(_, free):
        left = jnp.where(free, values, -jnp.inf)
        largest = left == jnp.max(left, axis=0, keepdims=True)
        return free & (order != jnp.min(jnp.where(largest, order, values.shape[0]), axis=0, keepdims=True))

    return ~jax.lax.fori_loop(0, n, one_less, jnp.ones(values.shape, bool), unroll=n <= _PASSES)


def dinkelbach(
    v: Float[AnyArray, "*lists candidates"],
    q: Float[AnyArray, "*lists candidates"],
    v0: Any,
    start: Int[AnyArray, "*lists slots"],
) -> Int[AnyArray, "*lists slots"]:
    """The slate that is worth most, by steps of Dinkelbach's method from the slate ``start``; see :func:`exact`."""
    xp = module_of(v, q)

    def improves(state):
        step, _, _, better = state
        return better & (step < MAX_STEPS)

    def improve(state):
        step, slate, value, _ = state
        new = largest(v * (q - value[..., None]), start.shape[-1])
        higher = slate_value(v, q, new, v0)
        better = higher > value  # rounding may take the last step down
        return step + 1, xp.where(better[..., None], new, slate), xp.maximum(value, higher), better

    value = slate_value(v, q, start, v0)
    return _while(improves, improve, (xp.int32(0), start, value, xp.ones(value.shape, bool)))[1]


def _while(improves: Callable[[Any], Any], improve: Callable[[Any], Any], state: Any) -> Any:
    """``jax.lax.while_loop``, also for lists together: a step leaves those as they are that improve no more."""
    if isinstance(state[1], JaxArray):
        return jax.lax.while_loop(improves, improve, state)
    while np.any(improves(state)):
        state = improve(state)
    return state


def best_slate(
    choice: SlateChoice,
    scores: Float[AnyArray, "*lists candidates"],
    worth: Float[AnyArray, "*lists candidates"],
    n: int,
    nothing: Float[AnyArray, "*lists"],
) -> Int[AnyArray, "*lists slots"]:
    """The n candidates, in slot order, that maximise the expected value of what is clicked.

    Args:
        choice: The user's choice model.
        scores: The user's scores of the candidates.
        worth: Value of a click on each.
        n: Length of the slate, at most N.
        nothing: Value of no click.
    """
    gain = worth - nothing[..., None]  # probabilities sum to 1: what all share makes no difference
    if isinstance(choice, Cascade):  # which takes JAX
        return _best_cascade(jax.vmap(lambda score: choice.weights(score[None])[0])(scores), gain, n)
    weights = choice.weights(scores)
    v = weights[..., :-1]
    start = largest(v * (gain - gain.max(axis=-1, keepdims=True)), n)  # no slate is worth more than its best click
    slate = dinkelbach(v, gain, weights[..., -1], start)
    # By rounding the last steps may be taken or not: they change no slate, but the order in which it stands.
    value = slate_value(v, gain, slate, weights[..., -1])
    return take(slate, largest(take(v * (gain - value[..., None]), slate), n))


def _best_cascade(
    click: Float[Array, " candidates"], gain: Float[Array, " candidates"], n: int
) -> Int[Array, " slots"]:
    """The slate of the highest expected gain for a user who examines slots in order, by dynamic programming."""
    # Best value of the slots from here on, by the number of slots still to fill; items in ascending worth, so that
    # every new item goes in front of those already placed.
    order = jnp.argsort(gain)

    def place(best, item):
        with_it = click[item] * gain[item] + (1.0 - click[item]) * best[:-1]
        takes = with_it > best[1:]
        return best.at[1:].set(jnp.where(takes, with_it, best[1:])), takes

    def unfold(free, takes):
        taken = (free > 0) & takes[jnp.maximum(free, 1) - 1]
        return free - taken.astype(jnp.int32), jnp.where(taken, n - free, n)

    start = jnp.full(n + 1, -jnp.inf, jnp.float32).at[0].set(0.0)
    takes = jax.lax.scan(place, start, order)[1]
    # From the most worthy item down: the first that was taken with all slots free is slot 0.
    slots = jax.lax.scan(unfold, jnp.int32(n), takes, reverse=True)[1]
    return jnp.zeros(n + 1, jnp.int32).at[slots].set(order.astype(jnp.int32))[:n]


#: Names of the next slates that a target can be made with.
TARGETS = ("sarsa", "greedy", "top-k", "optimal")

_CHOSEN = {"greedy": greedy, "top-k": top_k, "optimal": exact}


def next_value(
    kind: str,
    v: Float[Array, " candidates"],
    q: Float[Array, " candidates"],
    v0: Score,
    n: int,
    slate: Int[Array, " slots"] | None = None,
) -> Float[Array, ""]:
    """The value of the next state: that of a slate there.

    Args:
        kind: One of :data:`TARGETS`.
        v: Choice scores of the next candidates, positive.
        q: Their values, from the target network, at the next state.
        v0: Score of no click; 0 if the user always clicks.
        n: Items of a slate.
        slate: The slate that was shown next; only ``"sarsa"`` looks at it.

    Raises:
        UnknownNameError: No such target.
        ConfigError: ``"sarsa"`` without a slate.
    """
    if kind not in TARGETS:
        raise UnknownNameError("target", kind, TARGETS)
    if kind != "sarsa":
        return slate_value(v, q, _CHOSEN[kind](v, q, n, v0), v0)
    if slate is None:
        raise ConfigError("the target 'sarsa' needs the slate that was shown next, got None.")
    return slate_value(v, q, slate, v0)
