"""A residual ranker: the base alone at the start, and as a linear ranker whose first weight stands still."""

import numpy as np
import pytest

from fedrank.core.errors import ConfigError
from fedrank.ranking.rankers.linear import Linear
from fedrank.ranking.rankers.residual import Residual


def test_scores_are_those_of_a_linear_ranker_with_a_first_weight_of_one():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(7, 5)).astype(np.float32)
    ranker, w = Residual(5), rng.normal(size=4).astype(np.float32)
    np.testing.assert_array_equal(ranker.scores(ranker.initial(), x), x[:, 0])
    whole = Linear(5).scores(np.concatenate([[1.0], w]).astype(np.float32), x)
    np.testing.assert_allclose(ranker.scores(w, x), whole, rtol=1e-5, atol=1e-6)
    assert ranker.size == 4


def test_a_base_alone_is_no_residual_ranker():
    with pytest.raises(ConfigError, match="base score"):
        Residual(1)
