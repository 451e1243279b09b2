"""Mechanisms refuse arrays of a wrong shape or dtype before they compute anything."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from fedrank.privacy.noise.simulated import simulated_discrete_laplace
from fedrank.privacy.noisy_values import ValueNoise
from fedrank.privacy.quantise import clip_to_norm, dequantise, quantise
from fedrank.privacy.randomised_response import privatise
from fedrank.privacy.secure_sum.party import rows, to_array

VALUES, WORDS = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.uint32)
INDEX, PAIRS, KEY = np.zeros(4, np.int32), np.zeros((4, 2), np.uint32), jax.random.key(0)
NOISE = ValueNoise(1.0, 2.0)

RIGHT = {
    "privatise": (privatise, (INDEX, PAIRS, 0.5, 3)),
    "clip_to_norm": (clip_to_norm, (VALUES[0], 1.0)),
    "quantise": (quantise, (VALUES, 4, 2.0)),
    "dequantise": (dequantise, (WORDS, 4)),
    "simulated_discrete_laplace": (simulated_discrete_laplace, (KEY, (3,), 2.0)),
    "value noise": (NOISE.apply, (jnp.zeros((2, 3)), jnp.zeros((2, 3), jnp.int32))),
    "rows": (rows, (to_array(bytes(6)).reshape(2, 3), 3)),
}
WRONG = {
    "privatise": [(0, INDEX[:3]), (0, INDEX.astype(np.float32)), (1, PAIRS[:, :1]), (1, PAIRS.astype(np.int32))],
    "clip_to_norm": [(0, VALUES[0, 0]), (0, INDEX)],
    "quantise": [(0, WORDS)],
    "dequantise": [(0, VALUES)],
    "simulated_discrete_laplace": [(0, jax.random.split(KEY))],
    "value noise": [(0, jnp.zeros(3)), (1, jnp.zeros((2, 3)))],
    "rows": [(0, VALUES)],
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
