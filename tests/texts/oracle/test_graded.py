"""The graded learner against its formulas in double precision, with gradients by finite differences."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedrank.core.errors import ConfigError
from fedrank.texts.graded import LOSSES, Batch, GradedLearner

FEATURES, GRADES = 3, 3
L2, RATE = 0.3, 0.5


def _softmax(values):
    e = np.exp(values - values.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _classifier(model):
    """Weights [features, grades] and intercepts [grades]: the last numbers of a model."""
    matrix = model[-(FEATURES + 1) * GRADES :].reshape(FEATURES + 1, GRADES)
    return matrix[:FEATURES], matrix[FEATURES]


def _cross_entropy(model, x, grades):
    """-sum_g y_g ln p_g of single documents."""
    weights, intercepts = _classifier(model)
    return -(grades * np.log(_softmax(x @ weights + intercepts))).sum(axis=-1)


def _ranknet(s, y):
    """Burges et al. 2005 with the known order of each pair, a pair weighing as much as its grades are apart."""
    total = weight = 0.0
    for i in range(len(s)):
        for j in range(len(s)):
            if y[i] > y[j]:
                total += (y[i] - y[j]) * math.log(1 + math.exp(-(s[i] - s[j])))
                weight += y[i] - y[j]
    return total / weight if weight else None


def _listnet(s, y):
    """Cross-entropy of top-one chances: those of the scores, and shares of the gains 2^y - 1."""
    gain = 2.0**y - 1
    return -(gain / gain.sum() * np.log(_softmax(s))).sum() if gain.sum() else None


def _loss(kind, model, x, grades, where):
    """The mean loss of a batch, in plain loops."""
    if kind == "classification":
        values = _cross_entropy(model, x, grades)[where]
        return values.mean() if values.size else 0.0
    s = x @ model[:FEATURES] + model[FEATURES]
    y = grades @ np.arange(GRADES)
    if kind == "regression":
        values = 0.5 * (s - y)[where] ** 2
        return values.mean() if values.size else 0.0
    ranked = [
        value
        for lists in range(len(x))
        if (value := (_ranknet if kind == "pairwise" else _listnet)(s[lists][where[lists]], y[lists][where[lists]]))
        is not None
    ]
    pointwise = _cross_entropy(model, x, grades)[where]
    return (np.mean(ranked) if ranked else 0.0) + (pointwise.mean() if pointwise.size else 0.0)


def _gradient(function, model, step=1e-5):
    out = np.zeros_like(model)
    for place in range(len(model)):
        moved = np.eye(len(model))[place] * step
        out[place] = (function(model + moved) - function(model - moved)) / (2 * step)
    return out


def _case(kind, soft, seed=0):
    """A model and two batches; lists with padding, one whose grades are all equal, one empty."""
    rng = np.random.default_rng(seed)
    size = {"classification": 12, "regression": 4}.get(kind, 16)
    lead = (6,) if kind in ("classification", "regression") else (4, 5)
    model = rng.normal(size=size)

    def batch():
        x = rng.normal(size=(*lead, FEATURES))
        chances = rng.dirichlet(np.ones(GRADES), lead)
        grades = chances if soft else np.eye(GRADES)[chances.argmax(axis=-1)]
        where = rng.random(lead) < 0.7
        if len(lead) == 2:
            grades[1], where[2] = np.eye(GRADES)[0], False
        return x, grades, where

    return model, batch(), batch()


def _jax(batch):
    x, grades, where = batch
    return Batch(jnp.asarray(x, jnp.float32), jnp.asarray(grades, jnp.float32), jnp.asarray(where))


@functools.cache
def _compiled(kind):
    """The loss of the first batch, and the model after a step."""
    learner = GradedLearner(FEATURES, GRADES, kind, l2=L2, learning_rate=RATE)

    def both(model, own, cross, weight):
        return learner.loss_of(model, own), learner.step(model, own, cross, weight)

    return jax.jit(both)


def _ran(kind, model, own, cross, weight):
    value, after = _compiled(kind)(jnp.asarray(model, jnp.float32), _jax(own), _jax(cross), jnp.float32(weight))
    return float(value), np.asarray(after)


def _penalised(kind):
    """1 for weights, 0 for intercepts: after the line's weights, and in the last row of the classifier's matrix."""
    intercepts = {"classification": [9, 10, 11], "regression": [3]}.get(kind, [3, 13, 14, 15])
    weights = np.ones({"classification": 12, "regression": 4}.get(kind, 16))
    weights[intercepts] = 0
    return weights


@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
@pytest.mark.parametrize("kind", LOSSES)
def test_a_loss_and_a_step_are_those_of_the_formulas(kind, soft):
    model, own, cross = _case(kind, soft)
    assert GradedLearner(FEATURES, GRADES, kind).size == len(model)
    value, after = _ran(kind, model, own, cross, 0.7)
    assert value == pytest.approx(_loss(kind, model, *own), rel=2e-6)
    penalised = _penalised(kind)

    def objective(m):
        return _loss(kind, m, *own) + 0.7 * _loss(kind, m, *cross) + L2 * (penalised * m**2).sum()

    np.testing.assert_allclose(after, model - RATE * _gradient(objective, model), rtol=2e-5, atol=5e-6)


def test_what_padding_holds_moves_no_model():
    for kind in LOSSES:
        model, (x, grades, where), cross = _case(kind, soft=False)
        other = np.where(where[..., None], x, 1e3)
        assert (x != other).any()
        first, second = (_ran(kind, model, (values, grades, where), cross, 0.0) for values in (x, other))
        assert first[0] == second[0]
        np.testing.assert_array_equal(first[1], second[1])


def test_with_nothing_to_learn_from_weights_shrink_and_intercepts_stay():
    """A step of the penalty alone multiplies a weight by 1 - 2 eta lambda."""
    for kind in LOSSES:
        model, (x, grades, where), _ = _case(kind, soft=False)
        nothing = x, grades, np.zeros_like(where)
        value, after = _ran(kind, model, nothing, nothing, 0.7)
        assert value == 0
        np.testing.assert_allclose(after, model * (1 - 2 * RATE * L2 * _penalised(kind)), rtol=1e-6)


def test_scores_are_the_mean_grade_or_the_line():
    model, (x, _, _), _ = _case("classification", soft=False)
    weights, intercepts = _classifier(model)
    mean = _softmax(x @ weights + intercepts) @ np.arange(GRADES)
    scores = GradedLearner(FEATURES, GRADES).scores(jnp.asarray(model, jnp.float32), jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(scores, mean, rtol=1e-5)
    for kind in ("regression", "pairwise", "listwise"):
        model, (x, _, _), _ = _case(kind, soft=False)
        scores = GradedLearner(FEATURES, GRADES, kind).scores(
            jnp.asarray(model, jnp.float32), jnp.asarray(x, jnp.float32)
        )
        np.testing.assert_allclose(scores, x @ model[:FEATURES] + model[FEATURES], rtol=1e-4, atol=1e-5)


def test_guesses_of_a_classifier_are_its_likeliest_grade_or_its_distribution():
    for kind in ["classification", "pairwise", "listwise"]:
        model, (x, _, _), _ = _case(kind, soft=False, seed=4)
        weights, intercepts = _classifier(model)
        chances = _softmax(x @ weights + intercepts)
        given = jnp.asarray(model, jnp.float32), jnp.asarray(x, jnp.float32)
        hard = np.asarray(GradedLearner(FEATURES, GRADES, kind).labels(*given))
        np.testing.assert_array_equal(hard, np.eye(GRADES)[chances.argmax(axis=-1)])
        assert len(set(hard.argmax(axis=-1).reshape(-1).tolist())) > 1
        soft = GradedLearner(FEATURES, GRADES, kind, guess="soft").labels(*given)
        np.testing.assert_allclose(soft, chances, rtol=1e-5)


def test_guesses_of_a_regression_are_the_nearest_grade_or_keep_its_value():
    model = jnp.array([1.0, 0.0, 0.0, 0.0])
    values = np.array([-3.0, 0.2, 0.7, 1.25, 1.9, 7.0])
    x = jnp.asarray(np.stack([values, 0 * values, 0 * values], axis=-1), jnp.float32)
    hard = GradedLearner(FEATURES, GRADES, "regression").labels(model, x)
    np.testing.assert_array_equal(np.asarray(hard).argmax(axis=-1), [0, 0, 1, 1, 2, 2])
    soft = np.asarray(GradedLearner(FEATURES, GRADES, "regression", guess="soft").labels(model, x))
    np.testing.assert_allclose(soft.sum(axis=-1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(soft @ np.arange(GRADES), np.clip(values, 0, 2), rtol=1e-6)
    np.testing.assert_allclose(soft[3], [0, 0.75, 0.25], rtol=1e-6)


def test_grades_beyond_the_scale_count_as_its_largest():
    made = GradedLearner(FEATURES, GRADES).of_grades(jnp.array([0, 2, 5]))
    np.testing.assert_array_equal(made, np.eye(3)[[0, 2, 2]])


def test_wrong_settings_are_refused_by_name():
    for wrong in [{"loss": "hinge"}, {"guess": "firm"}, {"grades": 1}, {"l2": -1.0}, {"learning_rate": 0.0}]:
        with pytest.raises(ConfigError, match=next(iter(wrong)).replace("guess", "guessed labels")):
            GradedLearner(**{"features": FEATURES, "grades": GRADES} | wrong)
