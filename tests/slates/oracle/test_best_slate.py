"""The best slate against every slate in every order."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedrank.slates.world.best_slate import best_slate
from fedrank.slates.world.choice import Cascade, Multinomial, Proportional

CANDIDATES, SLATE, CASES = 7, 3, 50


def value(choice, scores, worth, nothing):
    """Expected worth of a slate, from the formulas of the choice models."""
    if isinstance(choice, Cascade):
        total, looking = 0.0, 1.0
        for score, each in zip(scores, worth, strict=True):
            click = choice.attention * min(choice.scaling * np.exp(score), 1.0)
            total, looking = total + looking * click * each, looking * (1 - click)
        return total + looking * nothing
    if isinstance(choice, Proportional):
        v, v0 = scores - choice.minimum, 0.0 if choice.no_click is None else choice.no_click - choice.minimum
    else:
        v, v0 = np.exp(scores), 0.0 if choice.no_click is None else np.exp(choice.no_click)
    return (v @ worth + v0 * nothing) / (v.sum() + v0)


@pytest.mark.parametrize(
    "choice",
    [
        Multinomial(1.0),
        Cascade(0.9, 0.4),
        pytest.param(Multinomial(), marks=pytest.mark.slow),
        pytest.param(Proportional(minimum=-3.0, no_click=1.0), marks=pytest.mark.slow),
    ],
    ids=["no-click", "cascade", "multinomial", "proportional"],
)
def test_no_slate_is_worth_more(choice):
    rng = np.random.default_rng(3)
    scores = rng.uniform(-2.5, 2.5, size=(CASES, CANDIDATES)).astype(np.float32)
    worth = rng.normal(rng.normal(0, 5, size=(CASES, 1)), 3, size=scores.shape).astype(np.float32)
    nothing = rng.normal(size=CASES).astype(np.float32)
    find = jax.jit(jax.vmap(lambda s, q, q0: best_slate(choice, s, q, SLATE, q0)))
    slates = np.asarray(find(jnp.asarray(scores), jnp.asarray(worth), jnp.asarray(nothing)))
    for x, q, q0, slate in zip(scores.astype(float), worth.astype(float), nothing.astype(float), slates, strict=True):
        assert len(set(slate.tolist())) == SLATE
        best = max(value(choice, x[list(a)], q[list(a)], q0) for a in itertools.permutations(range(CANDIDATES), SLATE))
        assert value(choice, x[slate], q[slate], q0) == pytest.approx(best, abs=1e-4)
