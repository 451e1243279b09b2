"""Arrays of a wrong shape are refused where the signature says the shape; the tests check all calls."""

import numpy as np
import pytest
from jaxtyping import TypeCheckError
from silo_worlds import make_rule

from fedrank.silos.averaging import average
from fedrank.silos.bandits.rules import cluster_arms, members_of, start, update
from fedrank.silos.data.splits import Rows
from fedrank.silos.evidence import differences
from fedrank.silos.local_sgd import LocalSgd
from fedrank.silos.network import Gradient, TabularNetwork
from fedrank.silos.party import finite_or, update_rows

NETWORK = TabularNetwork(3, (2,))
RULE = make_rule("ucb")


def zeros(*shape):
    return np.zeros(shape, np.float32)


def rows(n):
    return Rows(zeros(1, n, 3), zeros(1, n), np.array([n], np.int32))


WRONG = {
    "models of as many silos as have rows": lambda: average(
        np.zeros((3, 5)), np.ones(2), np.ones(3, bool), np.zeros(5)
    ),
    "an average like the models": lambda: average(np.zeros((3, 5)), np.ones(3), np.ones(3, bool), np.zeros(4)),
    "a row of features": lambda: NETWORK.logits(np.zeros(NETWORK.size), np.zeros(3)),
    "a label a row": lambda: Gradient(NETWORK, zeros(1, NETWORK.size))(zeros(1, 4, 3), np.zeros((1, 5), bool)),
    "rows that are marked": lambda: NETWORK.recalibrate(
        np.zeros(NETWORK.size), np.zeros((4, 3)), np.ones((4, 1), bool)
    ),
    "random bits of every epoch": lambda: LocalSgd(NETWORK).train(
        zeros(1, NETWORK.size), rows(4), np.zeros((1, 4), np.uint32)
    ),
    "random bits and not numbers": lambda: LocalSgd(NETWORK).train(zeros(1, NETWORK.size), rows(4), zeros(1, 6, 4)),
    "an increment an arm": lambda: update(RULE, start(RULE, 3), np.zeros(3), np.ones(4, bool)),
    "updates of silos": lambda: cluster_arms(np.zeros(7), 0, 1),
    "one target": lambda: members_of(np.ones((2, 3), bool), np.zeros(2, np.int32), 4),
    "members of every arm": lambda: differences(np.zeros((2, 3)), np.ones((2, 3), bool), np.ones((4, 2), bool), 0),
    "increments by round": lambda: differences(np.zeros(3), np.ones(3, bool), np.ones((3, 2), bool), 0),
    "models alike": lambda: finite_or(zeros(2, 3), zeros(2, 4)),
    "rows of silos": lambda: update_rows(np.zeros(3), np.zeros(3, np.uint32), np.ones(2, bool)),
}


def test_a_wrong_shape_or_type_is_refused():
    for what in WRONG:
        with pytest.raises(TypeCheckError):
            WRONG[what]()
