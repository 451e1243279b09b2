"""AUC and cross-entropy against scikit-learn, SciPy's ranks, and counting pairs."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata
from sklearn import metrics

from fedrank.metrics.offline import host_auc, host_log_loss

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
        got = host_auc(*padded(scores, labels, fill))
        np.testing.assert_allclose(got, expected, rtol=2e-7)


def test_auc_is_that_of_scikit_learn_and_of_middle_ranks():
    for distinct in [2, 7, 10**6]:
        rng = np.random.default_rng(distinct)
        scores = rng.integers(distinct, size=(5, 4000)).astype(np.float32) / distinct
        labels = (rng.random((5, 4000)) < 0.2 + 0.5 * scores).astype(np.float32)
        got = host_auc(scores, labels, np.ones_like(labels, bool))
        assert got.dtype == np.float32
        for one, scored, labelled in zip(got, scores, labels, strict=True):
            np.testing.assert_allclose(one, metrics.roc_auc_score(labelled, scored), rtol=2e-7)
            np.testing.assert_allclose(one, by_ranks(scored, labelled), rtol=2e-7)


def test_auc_of_masked_rows_is_that_of_the_others_under_any_leading_axes():
    rng = np.random.default_rng(3)
    scores = rng.integers(5, size=(2, 3, ROWS)).astype(np.float32)
    labels = rng.integers(2, size=(2, 3, ROWS)).astype(np.float32)
    where = rng.random((2, 3, ROWS)) < 0.7
    expected = [
        [metrics.roc_auc_score(labels[i, j][where[i, j]], scores[i, j][where[i, j]]) for j in range(3)]
        for i in range(2)
    ]
    np.testing.assert_allclose(host_auc(scores, labels, where), expected, rtol=2e-7)


def test_auc_of_one_class_of_no_rows_and_of_a_model_that_diverged_is_undefined():
    good = [0.1, 0.2, 0.3]
    for scores, labels in ((good, [1, 1, 1]), (good, [0, 0, 0]), ([], []), ([0.1, np.nan, 0.3], [1, 0, 0])):
        assert np.isnan(host_auc(*padded(scores, labels)))


def test_auc_is_exact_where_counts_pass_what_float32_holds():
    """100,000 rows of two scores: 2·10⁹ pairs, counted twice."""
    scores = np.zeros(100_000, np.float32)
    scores[:100] = 1
    labels = np.zeros(100_000, np.float32)
    labels[:50] = labels[70_000:] = 1
    n1, n0, up1, up0 = 30_050, 69_950, 50, 50
    expected = (up1 * (n0 - up0) + 0.5 * (up1 * up0 + (n1 - up1) * (n0 - up0))) / (n1 * n0)
    np.testing.assert_allclose(host_auc(scores, labels, np.ones_like(labels, bool)), expected, rtol=2e-7)


def test_log_loss_is_that_of_scikit_learn_and_padding_is_of_no_effect():
    rng = np.random.default_rng(4)
    margins = rng.normal(0, 4, ROWS).astype(np.float32)
    labels = rng.integers(2, size=ROWS).astype(np.float32)
    where = np.arange(ROWS) < 17
    shares = 1 / (1 + np.exp(-margins[:17].astype(np.float64)))
    expected = metrics.log_loss(labels[:17], shares, labels=[0, 1])
    margins[17:] = np.nan
    np.testing.assert_allclose(host_log_loss(margins, labels, where), expected, rtol=1e-5)


def test_log_loss_of_a_guess_is_log_2_of_certainty_0_and_of_nothing_undefined():
    labels, both = np.array([0.0, 1.0]), np.ones(2, bool)
    loss = lambda *margins: host_log_loss(np.array(margins, np.float32), labels, both)  # noqa: E731
    np.testing.assert_allclose(loss(0, 0), np.log(2), rtol=1e-6)
    assert loss(-198, 198) == 0
    np.testing.assert_allclose(loss(1000, 0), (1000 + np.log(2)) / 2, rtol=1e-6)
    assert np.isnan(host_log_loss(np.zeros(2, np.float32), labels, ~both))
