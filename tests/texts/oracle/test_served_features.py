"""The numbers of a hit, against counting by hand."""

import numpy as np

from fedrank.texts.data.features import Statistics
from fedrank.texts.served.documents import Words
from fedrank.texts.served.features import NAMES, features_of


def statistics(frequencies, documents=100.0):
    frequency = np.column_stack([frequencies, frequencies]).astype(float)
    return Statistics(documents, frequency, frequency, np.array([1000.0, 100.0]))


def test_numbers_are_what_counting_gives():
    query = ["red", "wing", "lift"]
    documents = [
        Words(["wing"], ["a", "red", "wing", "is", "lift"]),
        Words([], ["lift", "wing", "red"]),
        Words(["red", "wing", "lift"], []),
    ]
    idf = np.log(100 / np.array([1.0, 10.0, 50.0]))
    by_field = np.array([[3.0, 1.0], [0.0, 0.0], [0.0, 2.0]])
    got = features_of(query, documents, statistics([1.0, 10.0, 50.0]), by_field, np.array([0.123, -0.5, 1.0]))
    dense, covered, adjacent, title = got.T
    assert got.shape == (3, len(NAMES))
    np.testing.assert_allclose(dense, [0.12, -0.5, 1.0])
    np.testing.assert_allclose(covered, 1.0)
    np.testing.assert_allclose(adjacent, [0.5, 0.0, 1.0])  # red wing, not wing lift
    np.testing.assert_allclose(title, [0.25, 0.0, 1.0])
    (only,) = features_of(query, [Words([], ["wing"])], statistics([1.0, 10.0, 50.0]), np.array([[1.0, 0.0]]), None)
    np.testing.assert_allclose(only, [0.0, np.round(idf[1] / idf.sum(), 2), 0.0, 0.0])


def test_queries_of_one_word_and_words_that_stand_everywhere():
    common = statistics([100.0])
    got = features_of(["the"], [Words([], ["the"])], common, np.zeros((1, 2)), None)
    np.testing.assert_array_equal(got, 0.0)
    assert features_of(["the"], [], common, np.zeros((0, 2)), None).shape == (0, len(NAMES))
