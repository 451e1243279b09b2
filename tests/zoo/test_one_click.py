"""Users who click once: the probability of each click against the product of the paper."""

import numpy as np

from fedrank.ranking.clicks.browsing import attraction
from fedrank.ranking.clicks.cascade import cascade, pattern_probabilities


def test_one_click_comes_from_the_first_result_that_attracts():
    labels = np.array([0, 1, 1, 0], np.int32)
    got = pattern_probabilities(cascade("one-click", grades=3, depth=4), labels, np.ones(4, bool))
    expected, reached = np.zeros(16), 1.0
    for rank, label in enumerate(labels):
        expected[1 << rank] = reached * attraction(3)[label]
        reached *= 1 - attraction(3)[label]
    expected[0] = reached
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_who_is_certain_to_click_reads_no_further():
    got = pattern_probabilities(cascade("one-click", 3, 3), np.array([2, 2, 0], np.int32), np.ones(3, bool))
    assert got[0b001] == 1
