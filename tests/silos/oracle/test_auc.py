"""AUC and cross-entropy against scikit-learn, SciPy's ranks, and counting pairs."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata
from sklearn import metrics

from fedrank.metrics.auc import auc, log_loss

VALUES = [-np.inf, -1.5, -0.0, 0.0, 0.25, 3e8, np.inf]
ROWS = 24  # one shape for all lists: shorter ones are padded


def padded(scores, labels, fill=np.nan):
    scores, labels = np.asarray(scores, np.float32), np.asarray(labels, np.float32)
    extra = ROWS - len(scores)
    where = np.arange(ROWS) < len(scores)
    return np.pad(scores, (0, extra), constant_values=fill), np.pad(labels, (0, extra), constant_values=1), where


def pairs(scores, labels):
    """The share of pairs in order, ties one half."""
    won = [(a > b) + 0.5 * (a == b) for a in scores[labels] for b in scores[~labels]]
    return sum(won) / len(won)


def by_ranks(scores, labels):
    ranks, n1 = rankdata(scores), labels.sum()
    return (ranks[labels > 0].sum() - n1 * (n1 + 1) / 2) / (n1 * (len(labels) - n1))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(VALUES), st.booleans()), max_size=ROWS))
def test_auc_counts_pairs_whatever_the_ties_and_the_padding(rows):
    scores, labels = np.array([s for s, _ in rows]), np.array([y for _, y in rows], bool)
    expected = pairs(scores, labels) if 0 < labels.sum() < len(labels) else np.nan
    for fill in (np.nan, np.inf, -np.inf):
        got = auc(*map(jnp.asarray, padded(scores, labels, fill)))
        np.testing.assert_allclose(got, expected, rtol=2e-7)


def test_auc_is_that_of_scikit_learn_and_of_middle_ranks():
    for distinct in [2, 7, 10**6]:
        rng = np.random.default_rng(distinct)
        scores = rng.integers(distinct, size=(5, 4000)).astype(np.float32) / distinct
        labels = (rng.random((5, 4000)) < 0.2 + 0.5 * scores).astype(np.float32)
        got = auc(jnp.asarray(scores), jnp.asarray(labels))
        assert got.dtype == jnp.float32
        for one, scored, labelled in zip(got, scores, labels, strict=True):
            np.testing.assert_allclose(one, metrics.roc_auc_score(labelled, scored), rtol=2e-7)
            np.testing.assert_allclose(one, by_ranks(scored, labelled), rtol=2e-7)


def test_auc_of_masked_rows_is_that_of_the_others_under_vmap_and_any_leading_axes():
    rng = np.random.default_rng(3)
    scores = rng.integers(5, size=(2, 3, ROWS)).astype(np.float32)
    labels = rng.integers(2, size=(2, 3, ROWS)).astype(np.float32)
    where = rng.random((2, 3, ROWS)) < 0.7
    expected = [
        [metrics.roc_auc_score(labels[i, j][where[i, j]], scores[i, j][where[i, j]]) for j in range(3)]
        for i in range(2)
    ]
    arrays = tuple(map(jnp.asarray, (scores, labels, where)))
    np.testing.assert_allclose(auc(*arrays), expected, rtol=2e-7)
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.vmap(auc)))(*arrays), expected, rtol=2e-7)


def test_auc_of_one_class_of_no_rows_and_of_a_model_that_diverged_is_undefined():
    good = [0.1, 0.2, 0.3]
    for scores, labels in ((good, [1, 1, 1]), (good, [0, 0, 0]), ([], []), ([0.1, np.nan, 0.3], [1, 0, 0])):
        assert np.isnan(auc(*map(jnp.asarray, padded(scores, labels))))


def test_auc_is_exact_where_counts_pass_what_float32_holds():
    """100,000 rows of two scores: 2·10⁹ pairs, counted twice."""
    scores = np.zeros(100_000, np.float32)
    scores[:100] = 1
    labels = np.zeros(100_000, np.float32)
    labels[:50] = labels[70_000:] = 1
    n1, n0, up1, up0 = 30_050, 69_950, 50, 50
    expected = (up1 * (n0 - up0) + 0.5 * (up1 * up0 + (n1 - up1) * (n0 - up0))) / (n1 * n0)
    np.testing.assert_allclose(auc(jnp.asarray(scores), jnp.asarray(labels)), expected, rtol=2e-7)


def test_log_loss_is_that_of_scikit_learn_and_padding_is_of_no_effect():
    rng = np.random.default_rng(4)
    logits = rng.normal(0, 3, (ROWS, 2)).astype(np.float32)
    labels = rng.integers(2, size=ROWS).astype(np.float32)
    where = np.arange(ROWS) < 17
    shares = np.exp(logits[:17].astype(np.float64))
    shares /= shares.sum(axis=1, keepdims=True)
    expected = metrics.log_loss(labels[:17], shares, labels=[0, 1])
    logits[17:] = np.nan
    arrays = tuple(map(jnp.asarray, (logits, labels, where)))
    np.testing.assert_allclose(log_loss(*arrays), expected, rtol=1e-5)
    slope = jax.jit(jax.grad(log_loss))(*arrays)
    assert np.isfinite(slope).all() and not slope[17:].any() and slope[:17].any()


def test_log_loss_of_a_guess_is_log_2_of_certainty_0_and_of_nothing_undefined():
    labels = jnp.array([0.0, 1.0])
    np.testing.assert_allclose(log_loss(jnp.zeros((2, 2)), labels), np.log(2), rtol=1e-6)
    assert log_loss(jnp.array([[99.0, -99.0], [-99.0, 99.0]]), labels) == 0
    np.testing.assert_allclose(log_loss(jnp.array([[-500.0, 500.0], [-500.0, 500.0]]), labels), 500)
    assert np.isnan(log_loss(jnp.zeros((2, 2)), labels, jnp.zeros(2, bool)))
