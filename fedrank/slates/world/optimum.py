"""The optimum of a world by dynamic programming, which regret is measured against.

The best total engagement of all platforms together that anybody could reach who knows the world and sees the user's
exposure at every tick. With x the exposure before a tick and u = 1 − 2c the step that a click on chocolate c gives it::

    V_t(x) = E_candidates max_A Σ_i P(i | A) [ r(c_i, x) + E_η V_{t+1}(β x + u_i + η) ]  (+ the term of "nothing")

Nothing is discounted, and after the last tick there is nothing to come. Where platforms share their candidates, all of
a round choose from one list, and who acts first foresees it: the expectation is then taken at the round's beginning.

Three things make it quick. The value is smooth in x: a Chebyshev series, from few nodes. The bracket is smooth in u on
[−1, 1]: for each x a short series Σ_d a_d(x) T_d(u), so that a slate matters only through Σ_i P(i | A) T_d(u_i), its
moments, which depend neither on x nor on t. And where the odds of two items do not depend on the rest of the slate, the
best one is a run of neighbours among the candidates in the order of chocolate, or a few from either end: N slates to
compare, not N over n. (The best slate holds the n largest of v(u)(q(u) − λ) for some λ; runs suffice where that
function has one hump or one dip, as in all presets.) For a cascade every slate is considered, at more cost.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped, UInt32
from numpy.polynomial.chebyshev import chebpts1, chebvander
from typing_extensions import override

from fedrank.core.arrays import AnyArray, module_of, take
from fedrank.core.arrays import AnyArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import dataclass_of_arrays, jax, jit, jnp
from fedrank.core.streams import run_words, split, stream, uniforms, wrap_keys
from fedrank.slates.world.best_slate import best_slate
from fedrank.slates.world.choice import Cascade
from fedrank.slates.world.policies import Policy, by_turns, expected_exposure, plays_together
from fedrank.slates.world.satisfaction import Satisfaction

#: Terms of the series in u.
_DEGREES = 8
#: Nodes of the Gauss–Hermite rule for the innovation.
_HERMITE = 5
#: Standard deviations of the exposure's wandering that the grid leaves room for.
_MARGIN = 4.0
#: Points of the midpoint rule over new users.
_NEWCOMERS = 256
_EXACT = "highest"


class Solution(NamedTuple):
    """The value of every tick of an episode, all platforms together.

    Attributes:
        series: Chebyshev series of the value over exposure / bound, by ticks left: 0, 1, …
        bound: The grid covers exposures in ± this.
        total: Mean return of a new user.
        error: Standard error of ``total``, from drawing candidates.
    """

    series: Float[Array, "ticks grid"]
    bound: Float[AnyArray, ""]
    total: Float[Array, ""]
    error: Float[Array, ""]

    def value(
        self, exposure: Float[AnyArray | float, "*shape"], left: Shaped[AnyArray | int, "..."] = -1
    ) -> Float[Array, "*shape"]:
        """The mean engagement to come.

        Args:
            exposure: Clipped to the grid.
            left: Ticks left; −1: all of them.
        """
        xp = module_of(exposure, self.series, left)
        x = xp.clip(xp.asarray(exposure, xp.float32) / self.bound, -1.0, 1.0)
        row: Any = xp.asarray(self.series)[left]
        if xp is np:  # of each user another row, of which the exposures are the last axis
            row = row if np.ndim(left) == 0 else np.moveaxis(row, -1, 0)[..., None]
            first, second = np.zeros_like(x), np.zeros_like(x)
            last = int(np.flatnonzero(row.reshape(len(row), -1).any(axis=1)).max(initial=0))
            for term in row[last:0:-1]:
                first, second = term + 2.0 * x * first - second, first
            return row[0] + x * first - second

        def one_term(back, sums):  # Clenshaw's recurrence: several times quicker than cosines
            return row[-1 - back] + 2.0 * x * sums[0] - sums[1], sums[0]

        first, second = jax.lax.fori_loop(0, len(row) - 1, one_term, (jnp.zeros_like(x), jnp.zeros_like(x)))
        return row[0] + x * first - second


class _Operators(NamedTuple):
    """The linear operators of a world: on values at the nodes of a grid in x, with series of ``terms`` terms in u.

    Attributes:
        series: From values at the nodes to their series in x.
        now: Series in u of the expected engagement, of one tick for all, or of each tick in the order of ticks left.
        onward: From values after the tick to the series in u of what is to come.
        nothing: From values after the tick to what is to come if nothing is clicked.
        newcomers: Mean over new users.
    """

    series: Float[AnyArray, "grid grid"]
    now: Float[AnyArray, "ticks grid terms"]
    onward: Float[AnyArray, "grid terms grid"]
    nothing: Float[AnyArray, "grid grid"]
    newcomers: Float[AnyArray, " grid"]


def solve(world: Satisfaction, grid: int = 65, samples: int = 256, seed: int = 0) -> Solution:
    """The optimum of a world.

    Args:
        world: The world. Turns and what platforms observe make no difference.
        grid: Nodes in the exposure. 33 are enough for sensitivities up to 0.1, 65 up to 1.
        samples: Lists of candidates that stand for all, new ones in every round, so that ``error`` is small.
        seed: Of the lists.

    Raises:
        ConfigError: Less than four nodes or two samples, or platforms of different sensitivities act in an order by
            lot.
    """
    if grid < 4 or samples < 2:
        raise ConfigError(f"The optimum needs at least 4 grid nodes and 2 samples, got {grid} and {samples}.")
    if world.sensitivities and world.turns == "shuffled":
        raise ConfigError("The optimum of platforms with different sensitivities needs turns in order.")
    # Settings that only change numbers in the operators are left out: one compiled program for all sensitivities.
    kept = ("candidates", "slate", "platforms", "time_budget", "semantics", "choice", "shared_candidates")
    own = type(world) is not Satisfaction  # whose methods may be others
    shape = world if own else Satisfaction(**{name: getattr(world, name) for name in kept})
    solved = _solve_together if plays_together(world) else _solve
    series, total, error = solved(shape, samples, _operators(world, grid), run_words([seed])[0])
    return Solution(series, np.asarray(_bound(world), np.float32), total, error)


def _bound(world: Satisfaction) -> float:
    """Bound of the exposure's absolute value that practically no user passes."""
    beta = world.memory_discount
    return 1.0 / (1.0 - beta) + _MARGIN * world.innovation / (1.0 - beta**2) ** 0.5


def _operators(world: Satisfaction, grid: int) -> _Operators:
    bound, beta = _bound(world), world.memory_discount
    x, u = chebpts1(grid) * bound, chebpts1(_DEGREES)
    series, in_u = np.linalg.inv(chebvander(x / bound, grid - 1)), np.linalg.inv(chebvander(u, _DEGREES - 1))
    points, mass = np.polynomial.hermite_e.hermegauss(_HERMITE)

    def after(exposure: np.ndarray) -> np.ndarray:
        """Values at the nodes to the expected value one innovation after these exposures."""
        wander = exposure[..., None] + world.innovation * points
        basis = chebvander(np.clip(wander / bound, -1.0, 1.0), grid - 1)
        return np.einsum("...hg,h->...g", basis, mass / mass.sum()) @ series

    of_world = _of_world if plays_together(world) else _of_world_compiled
    # chocolate() maps kaleness to chocolate and, being its own inverse, chocolate to kaleness.
    uniform = (np.arange(_NEWCOMERS) + 0.5) / _NEWCOMERS
    now, new = (
        np.asarray(found, np.float64)
        for found in of_world(world, *(np.asarray(one, np.float32) for one in ((1.0 - u) / 2.0, x, uniform)))
    )
    arrays = (
        series,
        now @ in_u.T,
        np.einsum("dc,gch->gdh", in_u, after(beta * x[:, None] + u)),
        after(beta * x),
        chebvander(new / bound, grid - 1).mean(axis=0) @ series,
    )
    return _Operators(*(np.asarray(array, np.float32) for array in arrays))


def _of_world(
    world: Satisfaction,
    chocolate: Float[AnyArray, " terms"],
    exposure: Float[AnyArray, " grid"],
    uniform: Float[AnyArray, " newcomers"],
) -> tuple[Float[AnyArray, "ticks grid terms"], Float[AnyArray, " newcomers"]]:
    """Expected engagement at the nodes, and exposures of new users."""
    ticks = range(1 if world.even else world.time_budget)
    taus = (
        [None] if world.even else [world.tau(left + 1, world.platforms - 1 - left % world.platforms) for left in ticks]
    )
    kaleness = world.chocolate(chocolate)
    now = [world.mean_engagement(kaleness[None, :], exposure[:, None], tau) for tau in taus]
    return module_of(exposure).stack(now), world.new_user(uniform).exposure


_of_world_compiled = jit(_of_world, quick=True, static_argnums=0)  # one program for both


def _solve_together(
    world: Satisfaction, samples: int, operators: _Operators, key: UInt32[np.ndarray, "2"]
) -> tuple[Any, ...]:
    """As :func:`_solve`, with NumPy."""
    shared, rounds = world.shared_candidates, world.rounds_per_episode
    now = np.broadcast_to(operators.now, (world.time_budget, *operators.now.shape[1:]))
    rows, variance = [np.zeros(operators.series.shape[0], np.float32)], np.float32(0)
    for number, round_key in enumerate(split(key, rounds)):
        kaleness = uniforms(stream(round_key, samples * world.candidates)).reshape(samples, world.candidates)
        candidates = _candidates(world, kaleness)
        values = np.broadcast_to(rows[-1][:, None], (len(rows[-1]), samples))
        for place in range(world.platforms):
            level = values.mean()  # passes through as it is; taken off, it costs no digits
            later = values - level
            ahead = np.moveaxis(operators.onward @ later, 2, 1)
            worth = now[number * world.platforms + place][:, None, :] + ahead
            values = level + _best_values(world, candidates, worth, operators.nothing @ later)
            rows.append(values.mean(axis=1))
            if not shared or place == world.platforms - 1:
                variance += values.var(axis=1, ddof=1).mean() / samples
                values = np.broadcast_to(rows[-1][:, None], values.shape)
    return np.stack(rows) @ operators.series.T, operators.newcomers @ rows[-1], np.sqrt(variance)


@functools.partial(jit, quick=True, static_argnums=(0, 1))
def _solve(world: Satisfaction, samples: int, operators: _Operators, words: UInt32[AnyArray, "2"]) -> tuple[Array, ...]:
    key = wrap_keys(words)

    def one_tick(candidates, later, now):
        """Values [G, S] before a tick, from those after it."""
        level = jnp.mean(later)  # passes through as it is; taken off, it costs no digits
        later = later - level
        ahead = jnp.einsum("gdh,hs->gsd", operators.onward, later, precision=_EXACT)
        worth = now[:, None, :] + ahead
        nothing = jnp.einsum("gh,hs->gs", operators.nothing, later, precision=_EXACT)
        return level + _best_values(world, candidates, worth, nothing)

    def one_round(later, row):
        key, now = row
        kaleness = jax.random.uniform(key, (samples, world.candidates))
        candidates = _candidates(world, kaleness)
        values, rows, variance = jnp.broadcast_to(later[:, None], (later.shape[0], samples)), [], jnp.float32(0)
        for place in range(world.platforms):
            values = one_tick(candidates, values, now[place])
            rows.append(jnp.mean(values, axis=1))
            if not world.shared_candidates or place == world.platforms - 1:
                variance += jnp.mean(jnp.var(values, axis=1, ddof=1)) / samples
                values = jnp.broadcast_to(rows[-1][:, None], values.shape)
        return rows[-1], (jnp.stack(rows), variance)

    end = jnp.zeros(operators.series.shape[0], jnp.float32)
    rounds = world.rounds_per_episode
    now = jnp.broadcast_to(operators.now, (world.time_budget, *operators.now.shape[1:]))
    now = now.reshape(rounds, world.platforms, *now.shape[1:])
    first, (rows, variance) = jax.lax.scan(one_round, end, (jax.random.split(key, rounds), now))
    values = jnp.concatenate([end[None], rows.reshape(-1, end.shape[0])])
    series = jnp.einsum("gh,th->tg", operators.series, values, precision=_EXACT)
    return series, jnp.vdot(operators.newcomers, first, precision=_EXACT), jnp.sqrt(jnp.sum(variance))


class _Candidates(NamedTuple):
    """Lists of candidates, S of them.

    Attributes:
        scores: The user's scores.
        terms: T_d(u) of each candidate.
        moments: Σ P(i|A) T_d(u_i) of the N runs A of neighbours, then P(nothing|A).
    """

    scores: Float[Array, "lists candidates"]
    terms: Float[Array, "terms lists candidates"]
    moments: Float[Array, "terms+1 lists candidates"]


def _candidates(world: Satisfaction, kaleness: Float[Array, "lists candidates"]) -> _Candidates:
    xp = module_of(kaleness)
    kaleness = xp.sort(kaleness, axis=1)
    scores = world.appeal(kaleness)
    terms = xp.moveaxis(_chebyshev(1.0 - 2.0 * world.chocolate(kaleness), _DEGREES), -1, 0)
    weights = world.choice.weights(scores) if xp is np else jax.vmap(world.choice.weights)(scores)
    shown = xp.concatenate([terms * weights[None, :, :-1], weights[None, :, :-1]])
    # In a circle, so that a few from either end are a run too.
    sums = functools.reduce(xp.add, [xp.roll(shown, step, axis=2) for step in range(world.slate)])
    nothing = xp.broadcast_to(weights[:, -1:], kaleness.shape)
    all_together = xp.maximum(sums[-1] + nothing, np.finfo(np.float32).tiny)
    return _Candidates(scores, terms, xp.concatenate([sums[:-1], nothing[None]]) / all_together[None])


def _best_values(
    world: Satisfaction,
    candidates: _Candidates,
    worth: Float[Array, "grid lists terms"],
    nothing: Float[Array, "grid lists"],
) -> Float[Array, "grid lists"]:
    """The value of the best slate of each list at each node."""
    if not isinstance(world.choice, Cascade):
        if isinstance(worth, np.ndarray):
            series = np.concatenate([worth, nothing[:, :, None]], axis=2).swapaxes(0, 1)
            return (series @ np.moveaxis(np.asarray(candidates.moments), 1, 0)).max(axis=2).T
        series = jnp.concatenate([worth, nothing[:, :, None]], axis=2)
        return jnp.max(jnp.einsum("gsd,dsn->gsn", series, candidates.moments, precision=_EXACT), axis=2)

    def one(scores, terms, worth, nothing):
        each = jnp.einsum("dn,d->n", terms, worth, precision=_EXACT)
        slate = best_slate(world.choice, scores, each, world.slate, nothing)
        chances = world.choice.probabilities(scores[slate])
        return jnp.vdot(chances[:-1], each[slate]) + chances[-1] * nothing

    every_list = jax.vmap(one, (0, 1, 0, 0))
    return jax.vmap(every_list, (None, None, 0, 0))(candidates.scores, candidates.terms, worth, nothing)


def _chebyshev(x: Float[Array, "*shape"], terms: int) -> Float[Array, "*shape terms"]:
    """T_0 … T_{terms−1} of values that are clipped to [−1, 1], as a last axis."""
    xp = module_of(x)
    x = xp.clip(x, -1.0, 1.0)
    found = [xp.ones_like(x), x]
    while len(found) < terms:
        found.append(2.0 * x * found[-1] - found[-2])
    return xp.stack(found[:terms], axis=-1)


@dataclass_of_arrays
@dataclasses.dataclass(frozen=True)
class OptimalPolicy(Policy):
    """The optimum as a policy: it sees the exposure at the round's beginning and fills all slates at once.

    The platforms of a round cannot see each other's clicks: each plans with the exposure that is expected after those
    before it, in their order, and with the mean over candidates for what is to come. That is all that it loses to
    :class:`Solution`.

    Attributes:
        world: The world.
        solution: What :func:`solve` returned for it.
    """

    world: Satisfaction = dataclasses.field(metadata={"static": True})
    solution: Solution

    name = "optimum"

    @override
    def act(self, memory, scene, key):
        world, nodes = self.world, chebpts1(_DEGREES)
        in_u = np.linalg.inv(chebvander(nodes, _DEGREES - 1)).astype(np.float32)
        steps = np.append(nodes, 0.0).astype(np.float32)  # of each node, and of nothing

        def one_platform(before, acting):
            (exposure, left), (kaleness, k) = before, acting
            to_come = self.solution.value(world.memory_discount * exposure[..., None] + steps, left - 1)
            to_come = to_come - to_come[..., -1:]  # what all share makes no difference
            terms = _chebyshev(1.0 - 2.0 * world.chocolate(kaleness), _DEGREES)
            if isinstance(terms, np.ndarray):
                ahead = (terms @ (to_come[..., :-1] @ in_u.T)[..., None])[..., 0]
            else:
                ahead = jnp.einsum("nd,dc,c->n", terms, in_u, to_come[:-1], precision=_EXACT)
            tau: Any = None if world.even else world.tau(left, k)
            each = tau if np.ndim(tau) == 0 else tau[..., None]
            worth = world.mean_engagement(kaleness, exposure[..., None], each) + ahead
            slate = best_slate(world.choice, world.appeal(kaleness), worth, world.slate, to_come[..., -1])
            return (expected_exposure(world, take(kaleness, slate), exposure), left - 1), slate

        return by_turns(one_platform, tuple(scene.user)[:2], scene.documents)
