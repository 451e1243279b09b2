"""Arrays of a wrong shape are refused where they are handed over, not where they first fail to fit."""

import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError
from slate_worlds import B, K, N, settings

from fedrank.slates.fedslate.choice_model import fit_step
from fedrank.slates.fedslate.learner import SlateQ, federated_values, others_mean
from fedrank.slates.sums.secure_sum import total
from fedrank.slates.world.best_slate import best_slate, exact, greedy, slate_value, top_k
from fedrank.slates.world.choice import Multinomial

S = settings()
HEAD = jnp.zeros(S.federated_network.size)
CALLS = {
    "values of too few candidates": lambda: slate_value(jnp.ones(4), jnp.ones(3), jnp.arange(2)),
    "slates of numbers that are no integers": lambda: slate_value(jnp.ones(4), jnp.ones(4), jnp.ones(2)),
    "scores with an axis too many": lambda: greedy(jnp.ones((1, 4)), jnp.ones(4), 2),
    "values for other candidates, largest": lambda: top_k(jnp.ones(4), jnp.ones(5), 2),
    "values for other candidates, best": lambda: exact(jnp.ones(4), jnp.ones(5), 2),
    "values without platforms": lambda: federated_values(S, HEAD, jnp.ones(N)),
    "another number of rows": lambda: fit_step(jnp.zeros(2), jnp.ones((B, 2)), jnp.zeros(B + 1, jnp.int32), 0.1),
    "a choice model of three numbers": lambda: fit_step(jnp.zeros(3), jnp.ones((B, 2)), jnp.zeros(B, jnp.int32), 0.1),
    "replies that are not integers": lambda: total(jnp.ones((K, N)), jnp.ones(K, bool), jnp.ones(K, bool)),
    "replies of other platforms than arrived": lambda: total(
        jnp.ones((K, N), jnp.uint32), jnp.ones(K + 1, bool), jnp.ones(K, bool)
    ),
    "one score for all": lambda: best_slate(Multinomial(), jnp.ones(1), jnp.ones(4), 2, jnp.float32(0)),
}


def test_arrays_of_another_shape_are_refused():
    for wrong in CALLS:
        with pytest.raises(TypeCheckError):
            CALLS[wrong]()


def test_right_shapes_are_taken():
    assert federated_values(S, HEAD, jnp.ones((K, N))).shape == (K, N)
    assert others_mean(S, jnp.ones((K, B, N)), 0).shape == (B, N)
    assert total(jnp.ones((K, N), jnp.uint32), jnp.ones(K, bool), jnp.ones(K, bool))[0].shape == (N,)


def test_a_loss_of_targets_for_another_batch_is_refused():
    with pytest.raises(ValueError):
        SlateQ(S).loss(jnp.ones((B, N)), None, jnp.ones(B + 1), jnp.zeros(2), jnp.bool_(True))
