"""Public functions of the wing refuse arrays of a wrong shape or dtype before they compute anything."""

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from fedrank.metrics.online import max_rr
from fedrank.ranking.clicks.cascade import cascade, decision_tables, pattern_from
from fedrank.ranking.data.queries import pad
from fedrank.ranking.evaluate import expected_values
from fedrank.ranking.learners import pair_weights
from fedrank.ranking.rankers.linear import Linear
from fedrank.ranking.sessions.reference import Interactions, Perturbed, rank
from fedrank_zoo.dueling.multileaving import credit

USER = cascade("perfect", depth=4)
TABLES = [table[0] for table in decision_tables((USER,))]
SCORES, WHERE, ORDER = jnp.zeros(6), jnp.ones(6, bool), jnp.arange(6, dtype=jnp.uint32)
LABELS, SHOWN, BITS = jnp.zeros(4, jnp.int32), jnp.ones(4, bool), jnp.zeros(4, jnp.uint32)

QUERIES = pad(np.zeros((6, 3), np.float32), np.zeros(6, np.int32), np.array([4, 2]))
LIST_BITS = jnp.zeros((2, 3), jnp.int32), jnp.zeros((2, 3, 4), jnp.uint32), jnp.zeros((2, 3), jnp.uint32)

RIGHT = {
    "perturbed": (Perturbed, (Linear(3), (USER,), jnp.int32(0), QUERIES, jnp.zeros(3), jnp.uint32(0))),
    "interactions": (Interactions, LIST_BITS),
    "rank": (rank, (SCORES, WHERE, ORDER, 4)),
    "pattern_from": (pattern_from, (*TABLES, LABELS, SHOWN, BITS)),
    "expected_values": (expected_values, (USER, max_rr(4), np.zeros((2, 4), np.int32), np.ones((2, 4), bool))),
    "pair_weights": (pair_weights, (SCORES, WHERE, jnp.arange(4), jnp.int32(1))),
    "credit": (credit, (jnp.zeros((3, 4)), SHOWN)),
    "scores": (Linear(3).scores, (jnp.zeros(3), jnp.zeros((6, 3)))),
    "pad": (pad, (np.zeros((6, 3), np.float32), np.zeros(6, np.int32), np.array([4, 2]))),
}
WRONG = {
    "perturbed": [(4, jnp.zeros(3, jnp.int32)), (5, jnp.int32(0)), (2, jnp.float32(0))],
    "interactions": [(0, jnp.zeros((2, 3))), (1, jnp.zeros((2, 2, 4), jnp.uint32)), (2, jnp.zeros((2, 3), jnp.int32))],
    "rank": [(1, WHERE[:5]), (2, ORDER[None]), (0, SCORES.astype(jnp.int32)), (2, ORDER.astype(jnp.int32))],
    "pattern_from": [(2, LABELS[:3]), (4, BITS.astype(jnp.float32)), (3, SHOWN[None])],
    "expected_values": [(3, np.ones((2, 2), bool)), (2, np.zeros((2, 4), np.float32))],
    "pair_weights": [(1, WHERE[:3]), (2, jnp.arange(4)[None]), (3, jnp.zeros(2, jnp.int32))],
    "credit": [(1, SHOWN[:3]), (0, jnp.zeros(4))],
    "scores": [(0, jnp.zeros((1, 3))), (1, jnp.zeros((6, 3), jnp.int32))],
    "pad": [(1, np.zeros(5, np.int32)), (0, np.zeros(6, np.float32))],
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
