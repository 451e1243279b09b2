"""Choice models against their formulas written out, against every order of events, and against RecSim's own classes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.slates.world.choice import CHOICES, Cascade, Multinomial, Proportional

SCORES = np.array([0.3, 1.7, -0.4, 0.9], np.float32)
#: What runs once and briefly is compiled without LLVM's optimisations.
GRID = 20_000  # uniform numbers at the middles of equal cells: sampling without chance


def softmax(logits):
    weights = [np.exp(float(logit)) for logit in logits]
    return np.array(weights) / sum(weights)


def cascade(clicks):
    """P(first click at each slot), by summing over all 2ⁿ outcomes of looking at every slot."""
    total = np.zeros(len(clicks) + 1)
    for outcome in np.ndindex(*(2,) * len(clicks)):
        chance = np.prod([p if hit else 1 - p for p, hit in zip(clicks, outcome, strict=True)])
        total[outcome.index(1) if 1 in outcome else -1] += chance
    return total


EXACT = [
    (Multinomial(), np.append(softmax(SCORES), 0.0)),
    (Multinomial(no_click=1.0), softmax([*SCORES, 1.0])),
    (Proportional(minimum=-1.0), np.append((SCORES + 1.0) / (SCORES + 1.0).sum(), 0.0)),
    (Proportional(minimum=-1.0, no_click=0.5), np.array([1.3, 2.7, 0.6, 1.9, 1.5]) / 8.0),
    (Proportional(), np.array([0.3, 1.7, 0.0, 0.9, 0.0]) / 2.9),
    (Cascade(attention=0.65, scaling=0.1), cascade(0.065 * np.exp(SCORES.astype(float)))),
    (Cascade(0.9, 0.5, "proportional", -0.5), cascade(0.9 * 0.5 * np.array([0.8, 2.0, 0.1, 1.4]))),
    (Cascade(0.9, 1.0, "proportional", -0.5), cascade(0.9 * np.array([0.8, 1.0, 0.1, 1.0]))),  # kept within [0, 1]
]


@functools.partial(jax.jit, static_argnums=0)
def judge(model, scores, uniform):
    """Probabilities and choices of one slate, in one compiled function."""
    return model.probabilities(scores), jax.vmap(functools.partial(model.choose, scores))(uniform)


@functools.partial(jax.jit, static_argnums=0)
def last_choices(model, scores):
    """What the largest uniform number chooses, slate by slate."""
    return jax.vmap(lambda one: model.choose(one, jnp.float32(1 - 2**-24)))(scores)


def test_probabilities_are_those_of_the_formula_and_choices_follow_them():
    for model, expected in EXACT:
        found, slots = jax.device_get(judge(model, SCORES, ((np.arange(GRID) + 0.5) / GRID).astype(np.float32)))
        np.testing.assert_allclose(found, expected, rtol=3e-6, atol=1e-7)
        assert np.all(np.diff(slots) >= 0)  # the distribution function is inverted in slot order
        np.testing.assert_allclose(np.bincount(slots, minlength=5), GRID * expected, atol=1.01)


def test_what_has_no_probability_is_never_chosen_at_the_ends_of_the_interval():
    ends = np.zeros(GRID, np.float32)
    ends[1] = 1 - 2**-24
    _, slots = judge(Proportional(), np.array([0.0, 0.1, 0.7, 0.0], np.float32), ends)
    assert slots[:2].tolist() == [1, 2]
    many = np.random.default_rng(0).normal(size=(5000, 3)).astype(np.float32) * 4
    assert int(last_choices(Multinomial(), many).max()) == 2  # sums round, and nobody is pushed past the slate


def test_a_slate_on_which_nothing_has_a_weight_is_not_clicked():
    for model in (Proportional(), Proportional(no_click=0.0)):
        probabilities, slots = judge(model, np.zeros(4, np.float32), np.linspace(0, 0.99, GRID, dtype=np.float32))
        np.testing.assert_array_equal(probabilities, [0, 0, 0, 0, 1])
        assert set(slots.tolist()) == {4}


def test_large_scores_do_not_overflow():
    probabilities, _ = judge(Multinomial(), np.full(4, 500.0, np.float32), np.zeros(GRID, np.float32))
    np.testing.assert_allclose(probabilities, [0.25, 0.25, 0.25, 0.25, 0.0], rtol=1e-6)


def test_only_the_cascade_cares_for_the_order_of_the_slate():
    uniform = np.zeros(GRID, np.float32)
    for entry in CHOICES:
        ahead, back = (judge(entry.obj(), scores, uniform)[0] for scores in (SCORES, SCORES[::-1].copy()))
        same = np.allclose(ahead[:-1], back[:-1][::-1], rtol=1e-5)
        assert same == (entry.name != "cascade")


def test_models_are_found_by_name_and_say_whether_they_always_click():
    assert CHOICES.get("multinomial")() == Multinomial()
    assert CHOICES.get("multinomial-no-click")() == Multinomial(no_click=1.0)
    assert CHOICES.get("cascade")(attention=0.9) == Cascade(attention=0.9)
    assert [entry.obj().always_clicks for entry in CHOICES] == [True, False, True, False]
    with pytest.raises(UnknownNameError, match="multinomial"):
        CHOICES.get("multinomal")


def test_settings_that_are_no_probabilities_are_refused():
    for make, message in [
        (lambda: Cascade(attention=1.2), "attention"),
        (lambda: Cascade(scaling=-1.0), "scaling"),
        (lambda: Cascade(score="linear"), "exponential"),
        (lambda: Proportional(minimum=1.0, no_click=0.0), "at least the minimum"),
    ]:
        with pytest.raises(ConfigError, match=message):
            make()
