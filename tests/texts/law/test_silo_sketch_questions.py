"""A silo shows nothing of its documents that no noise covers."""

import numpy as np
from text_worlds import published, run, setup_of, small_texts


def test_published_numbers_are_of_one_size_whatever_the_documents_hold():
    """What is not noised in the setup's messages is the same for two silos whose documents differ in a word."""
    setup = setup_of("publish-once", documents=30)
    first = small_texts()
    corpus = first[0].corpus
    changed = [counts.copy() for counts in corpus.counts]
    changed[0].data[0] += 1  # one occurrence more
    other = [first[0]._replace(corpus=_with_counts(corpus, changed)), *first[1:]]
    runs = [run(setup, texts, seed=4) for texts in (first, other)]
    plain, more = (published(setup, state, parties[0]) for state, parties, _ in runs)
    np.testing.assert_array_equal(plain.documents, more.documents)
    # The same noise was drawn: what differs is the one occurrence, in z cells, and in two sizes at most.
    off = np.abs(plain.cells.astype(int) - more.cells.astype(int))
    assert off.sum() == setup.shape.z and off[1:].sum() == 0
    assert np.abs(plain.lengths - more.lengths).sum() <= 1 and (plain.distinct == more.distinct).all()
    totals = np.abs(np.subtract(*(state.totals.astype(int) for state, _, _ in runs)))
    assert totals.sum() == setup.statistics.z + 1  # of all words, and their number; no document frequency changed


def _with_counts(corpus, counts):
    import dataclasses

    return dataclasses.replace(corpus, counts=tuple(counts))
