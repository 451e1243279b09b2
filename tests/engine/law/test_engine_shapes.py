"""The simulator's parts and the attacks refuse arrays of a wrong shape or dtype."""

import jax
import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError

from fedrank.engine.simulator import in_chunks, run_keys
from fedrank_zoo.weight_attacks import FangKrum, Lie

KEYS, LATE, WEIGHTS = jax.random.split(jax.random.key(0)), jnp.ones(5, bool), jnp.ones((5, 3))


def answers(own, numbers, late):
    return own, numbers


WRONG = {
    "one seed a run": lambda: run_keys(jnp.zeros((2, 2), jnp.uint32)),
    "seeds are whole numbers": lambda: run_keys(jnp.zeros(2)),
    "who is late": lambda: in_chunks(answers, WEIGHTS, jnp.ones(5), 2),
    "numbers of parties": lambda: in_chunks(answers, WEIGHTS, LATE, 2, jnp.arange(5)),
    "as many numbers as parties": lambda: in_chunks(answers, WEIGHTS, LATE, 2, jnp.arange(4, dtype=jnp.uint32)),
    "attackers are flags": lambda: Lie().shift(jnp.ones(5)),
    "attackers have one axis": lambda: Lie().shift(jnp.ones((5, 1), bool)),
    "one flag a vector of weights": lambda: FangKrum().step(WEIGHTS[0], WEIGHTS, LATE[:4]),
    "a start like the weights": lambda: FangKrum().step(WEIGHTS[0, :2], WEIGHTS, LATE),
    "one key a round": lambda: Lie().tamper(KEYS, None, None, LATE, None),
}


def test_a_wrong_shape_or_type_is_refused():
    for what in WRONG:
        with pytest.raises(TypeCheckError):
            WRONG[what]()


def test_right_shapes_are_taken():
    assert run_keys([1, 2]).shape == run_keys(range(2)).shape == (2,)
    own, numbers = in_chunks(answers, WEIGHTS, LATE, 2)
    assert own.shape == WEIGHTS.shape and numbers.tolist() == [0, 1, 2, 3, 4]
    assert FangKrum().step(WEIGHTS[0], WEIGHTS, LATE).shape == Lie().shift(LATE).shape == ()
