"""Rules and defences refuse arrays of a wrong shape or dtype before they compute anything."""

import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError

from fedrank.aggregation.differences import ES_DEFENCES, coefficients, in_range, median_of_means
from fedrank.aggregation.robust import AGGREGATORS, krum_scores

VECTORS, WEIGHTS, ARRIVED = jnp.ones((5, 3)), jnp.ones(5), jnp.ones(5, bool)
SUMS = jnp.ones(5, jnp.int32)
SETTING = {"mean": (), "clip": (0.5,), "clip-quantile": (0.5,), "median-of-means": (2,)}

RIGHT = {entry.name: (entry.obj, (VECTORS, WEIGHTS, ARRIVED, 1)) for entry in AGGREGATORS}
RIGHT |= {f"defence {e.name}": (e.obj, (WEIGHTS, ARRIVED, *SETTING[e.name])) for e in ES_DEFENCES}
RIGHT |= {
    "krum_scores": (krum_scores, (VECTORS, ARRIVED, 1)),
    "in_range": (in_range, (SUMS, SUMS, 3)),
    "median_of_means": (median_of_means, (VECTORS, ARRIVED)),
    "coefficients": (coefficients, ("mean", WEIGHTS, ARRIVED, 1.0, 1)),
}
_RULE = [(0, VECTORS[0]), (0, SUMS[:, None]), (1, WEIGHTS[:4]), (2, ARRIVED[:4]), (2, WEIGHTS)]
WRONG = {entry.name: _RULE for entry in AGGREGATORS}
WRONG |= {f"defence {e.name}": [(0, VECTORS), (0, SUMS), (1, ARRIVED[:4]), (1, WEIGHTS)] for e in ES_DEFENCES}
WRONG |= {
    "krum_scores": [(0, VECTORS[0]), (1, ARRIVED[:4]), (2, SUMS)],
    "in_range": [(0, SUMS[:4]), (1, WEIGHTS)],
    "median_of_means": [(0, WEIGHTS), (1, ARRIVED[:4])],
    "coefficients": [(1, VECTORS), (2, ARRIVED[:4])],
}


def test_a_right_shape_is_taken():
    for name in RIGHT:
        function, arguments = RIGHT[name]
        function(*arguments)


def test_a_wrong_shape_is_refused():
    for name, place, wrong in [(n, p, w) for n, cases in WRONG.items() for p, w in cases]:
        function, arguments = RIGHT[name]
        with pytest.raises(TypeCheckError):
            function(*arguments[:place], wrong, *arguments[place + 1 :])
