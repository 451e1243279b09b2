"""Wrong shapes and types of arrays are refused where a function is called, with the names of function and argument."""

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from fedrank.texts.data.features import Statistics, bm25, search_list
from fedrank.texts.graded import Batch, GradedLearner
from fedrank.texts.scores import gate
from fedrank.texts.silo_sketch.setup.rows import scale_of
from fedrank.texts.sketch.noise import SketchNoise
from fedrank_zoo.sketch_size.sizing import row_error

LEARNER = GradedLearner(features=3, grades=2)
STATISTICS = Statistics(9.0, np.ones((2, 2)), np.ones((2, 2)), np.ones(2))


def _bm25(documents=5):
    return bm25(np.ones((2, 5, 2)), np.ones((documents, 2)), STATISTICS)


def _step(grades=2):
    x, where = jnp.ones((4, 3)), jnp.ones(4, bool)
    batch = Batch(x, jnp.ones((4, grades)) / grades, where)
    return LEARNER.step(LEARNER.initial(), batch, batch, jnp.float32(0.5))


def test_right_shapes_are_taken():
    assert _bm25().shape == (5, 2) and _step().shape == (LEARNER.size,)


def test_wrong_shapes_are_refused_by_name():
    for call, argument in [
        (lambda: row_error(np.ones((2, 3), int), 8), "counts"),
        (lambda: _bm25(documents=4), "lengths"),
        (lambda: LEARNER.scores(jnp.zeros((2, LEARNER.size)), jnp.ones((4, 3))), "model"),
        (lambda: LEARNER.of_grades(jnp.ones(4)), "y"),
        (lambda: search_list(np.zeros((2, 3)), 1), "scores"),
        (lambda: scale_of(3.0, np.zeros(4), np.zeros(5)), "squares"),
        (lambda: SketchNoise("publish-once", 1.0, 3).publish(np.zeros((2, 3))), "sketches"),
        (lambda: gate({}, np.zeros((2, 3), np.int8), "nDCG(dcg='exp-log2')@10", [0], ["a"]), "part"),
    ]:
        with pytest.raises(TypeCheckError, match=f"parameter '{argument}'"):
            call()
