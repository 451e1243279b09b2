"""Arrays of a wrong shape are refused where the signature says the shape; the tests check all calls."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from fedrank.silos.averaging import average
from fedrank.silos.bandits.arms import clustered, members_of
from fedrank.silos.bandits.rules import choose, make_rule, start, update
from fedrank.silos.bandits.statistics import differences
from fedrank.silos.data.rows import Rows
from fedrank.silos.local_sgd import LocalSgd
from fedrank.silos.network import TabularNetwork
from fedrank.silos.party import finite_or, update_rows

NETWORK = TabularNetwork(3, (2,))
RULE = make_rule("ucb")
KEY = jax.random.key(0)


def rows(n):
    return Rows(jnp.zeros((n, 3)), jnp.zeros(n), jnp.int32(n))


WRONG = {
    "models of as many silos as have rows": lambda: average(
        jnp.zeros((3, 5)), jnp.ones(2), jnp.ones(3, bool), jnp.zeros(5)
    ),
    "an average like the models": lambda: average(jnp.zeros((3, 5)), jnp.ones(3), jnp.ones(3, bool), jnp.zeros(4)),
    "a row of features": lambda: NETWORK.logits(jnp.zeros(NETWORK.size), jnp.zeros(3)),
    "a label a row": lambda: NETWORK.loss(
        jnp.zeros(NETWORK.trainable), jnp.zeros((4, 3)), jnp.zeros(5), jnp.ones(4, bool)
    ),
    "rows that are marked": lambda: NETWORK.recalibrated(
        jnp.zeros(NETWORK.size), jnp.zeros((4, 3)), jnp.ones((4, 1), bool)
    ),
    "random bits of every epoch": lambda: LocalSgd(NETWORK).train(
        jnp.zeros(NETWORK.size), rows(4), jnp.zeros(4, jnp.uint32)
    ),
    "random bits and not numbers": lambda: LocalSgd(NETWORK).train(jnp.zeros(NETWORK.size), rows(4), jnp.zeros((6, 4))),
    "an increment an arm": lambda: update(RULE, start(RULE, 3), jnp.zeros(3), jnp.ones(4, bool)),
    "one key": lambda: choose(RULE, start(RULE, 3), jnp.ones(3, bool), jax.random.split(KEY)),
    "updates of silos": lambda: clustered(jnp.zeros(7), 0, 1),
    "one target": lambda: members_of(jnp.ones((2, 3), bool), jnp.zeros(2, jnp.int32), 4),
    "members of every arm": lambda: differences(np.zeros((2, 3)), np.ones((2, 3), bool), np.ones((4, 2), bool), 0),
    "increments by round": lambda: differences(np.zeros(3), np.ones(3, bool), np.ones((3, 2), bool), 0),
    "models alike": lambda: finite_or(jnp.zeros(3), jnp.zeros(4)),
    "rows of silos": lambda: update_rows(jnp.zeros(3), jnp.zeros(3, jnp.uint32), jnp.ones(2, bool)),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_shape_or_type_is_refused(what):
    with pytest.raises(TypeCheckError):
        WRONG[what]()
