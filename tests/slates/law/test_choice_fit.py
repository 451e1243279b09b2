"""The learnt choice model finds the slope that the users have, with a no-click option and without."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedrank.slates.fedslate.choice_model import fit_step, fitted_choice_scores, log_likelihood

ROWS, SLOTS, STEPS, RATE = 2000, 3, 250, 3.9


def _utilities(slope, no_click, kaleness, clickless):
    """Logits [rows, slots + 1] in double precision; −∞ for no click if there is none."""
    nothing = np.full((len(kaleness), 1), -np.inf if clickless else no_click)
    return np.hstack([slope * kaleness.astype(np.float64), nothing])


def _chances(slope, no_click, kaleness, clickless):
    odds = np.exp(_utilities(slope, no_click, kaleness, clickless))
    return odds / odds.sum(axis=1, keepdims=True)


def clicks(slope, no_click, clickless, seed=0):
    """Kaleness of slates, and the slots that users with these preferences click; ``SLOTS``: none."""
    random = np.random.default_rng(seed)
    kaleness = random.random((ROWS, SLOTS)).astype(np.float32)
    chances = _chances(slope, no_click, kaleness, clickless)
    slots = (random.random((ROWS, 1)) > np.cumsum(chances, axis=1)).sum(axis=1)
    return kaleness, np.minimum(slots, SLOTS - clickless).astype(np.int32)


def standard_errors(slope, no_click, kaleness, clickless):
    """Of both numbers, from the Fisher information: the covariance of what multiplies them, summed over the rows."""
    chances = _chances(slope, no_click, kaleness, clickless)
    seen = np.stack([np.hstack([kaleness, np.zeros((ROWS, 1))]), np.tile([0.0] * SLOTS + [1.0], (ROWS, 1))])
    centred = seen - (seen * chances).sum(axis=2, keepdims=True)
    information = np.einsum("ars,brs,rs->ab", centred, centred, chances)
    if clickless:
        return np.array([information[0, 0] ** -0.5, np.inf])
    return np.sqrt(np.diag(np.linalg.inv(information)))


@jax.jit
def both_fitted(kaleness, slots):
    """With a no-click option and without: the parameters after many steps, and the likelihood before each."""

    def step(both, _):
        before = [log_likelihood(params, kaleness, slots, clickless) for clickless, params in enumerate_bools(both)]
        return [fit_step(p, kaleness, slots, RATE, clickless) for clickless, p in enumerate_bools(both)], before

    (some, none), likelihood = jax.lax.scan(step, [jnp.zeros(2, jnp.float32)] * 2, None, length=STEPS)
    return {False: (some, likelihood[0]), True: (none, likelihood[1])}


def enumerate_bools(both):
    return zip((False, True), both, strict=True)


@pytest.mark.parametrize(("slope", "no_click", "clickless"), [(-1.0, -0.5, False), (2.0, 1.0, False), (-1.0, 0, True)])
def test_the_slope_and_the_logit_of_no_click_are_found_within_four_standard_errors(slope, no_click, clickless):
    kaleness, slots = clicks(slope, no_click, clickless)
    params, likelihood = both_fitted(kaleness, slots)[clickless]
    error = standard_errors(slope, no_click, kaleness, clickless)
    assert error[0] < 0.2 and (clickless or error[1] < 0.2)
    assert abs(params[0] - slope) < 4 * error[0]
    if clickless:
        assert params[1] == 0.0
    else:
        assert abs(params[1] - no_click) < 4 * error[1]
    assert np.diff(likelihood).min() > -1e-5  # a rate below 4 only ever climbs
    np.testing.assert_allclose(likelihood[0], -np.log(SLOTS + (not clickless)), rtol=1e-5)


@pytest.mark.parametrize("clickless", [False, True])
def test_the_end_of_the_climb_is_the_maximum_that_scipy_finds(clickless):
    from scipy.optimize import minimize

    kaleness, slots = clicks(-1.0, -0.5, clickless, seed=4)

    def loss(point):
        chances = _chances(point[0], point[1], kaleness, clickless)
        return -np.log(chances[np.arange(ROWS), slots]).mean()

    best = minimize(loss, [0.0, 0.0], tol=1e-10)
    params, likelihood = both_fitted(kaleness, slots)[clickless]
    np.testing.assert_allclose(params, best.x if not clickless else [best.x[0], 0.0], atol=5e-3)
    assert likelihood[-1] == pytest.approx(-best.fun, abs=1e-6)


def test_scores_are_the_exponentials_up_to_a_factor_and_never_overflow():
    kaleness = np.float32([0.0, 0.5, 1.0])
    both = jax.jit(
        lambda params, kaleness: [fitted_choice_scores(params, kaleness, clickless) for clickless in (False, True)]
    )
    (v, v0), (alone, nothing) = both(np.float32([-2.0, 0.3]), kaleness)
    np.testing.assert_allclose(v / v0, np.exp([-0.3, -1.3, -2.3]), rtol=1e-6)
    np.testing.assert_allclose(alone / alone[2], np.exp([2.0, 1.0, 0.0]), rtol=1e-6)
    assert nothing == 0.0
    for params in ([1e4, 0.0], [-1e4, 0.0], [0.0, 1e4], [0.0, -1e4]):
        for v, v0 in both(np.float32(params), kaleness):
            assert np.isfinite(v).all() and max(float(v.max()), float(v0)) == 1.0


def test_rows_that_do_not_count_change_nothing_and_without_any_nothing_is_learnt():
    kaleness, slots = (part[:6] for part in clicks(-1.0, -0.5, False))
    some, nobody = np.arange(6) < 4, np.zeros(6, bool)
    params = np.float32([0.4, -0.2])

    @jax.jit
    def steps(kaleness, slots, where):
        start = jnp.asarray(params)
        return [fit_step(start, kaleness, slots, 1.0, clickless, where) for clickless in (False, True)]

    other = np.where(some[:, None], kaleness, 0.9).astype(np.float32)
    moved = steps(kaleness, slots, some)
    assert all(np.abs(one - params).max() > 1e-3 for one in moved)
    np.testing.assert_array_equal(moved, steps(other, slots, some))
    np.testing.assert_array_equal(steps(kaleness, slots, nobody), [params, params])
    np.testing.assert_array_equal(steps(kaleness, np.full(6, SLOTS, np.int32), some)[1], params)
    lost = np.where(np.arange(6) < 2, SLOTS, np.minimum(slots, SLOTS - 1)).astype(np.int32)
    everybody = np.ones(6, bool)
    np.testing.assert_array_equal(steps(kaleness, lost, everybody)[1], steps(kaleness, lost, lost < SLOTS)[1])
    assert np.isfinite(steps(kaleness, lost, everybody)[1]).all()
