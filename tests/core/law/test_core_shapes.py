"""The generator refuses arrays of a wrong shape or dtype; its types of arrays know JAX and NumPy."""

from typing import Literal

import jax
import jax.numpy as jnp
import lazy_checks
import numpy as np
import pytest
from jaxtyping import Float, TypeCheckError

from fedrank.core.arrays import AnyArray, JaxArray
from fedrank.core.rng import below, party_key, perturbation, perturbation_jax, threefry_2x32, uniform

WORDS, KEY = np.arange(3, dtype=np.uint32), jax.random.key(0)

WRONG = {
    "words are unsigned": lambda: uniform(WORDS.astype(np.int32)),
    "words to choose with are unsigned": lambda: below(WORDS.astype(np.float32), np.uint32(3)),
    "one seed a perturbation": lambda: perturbation(WORDS, 4),
    "a seed is a whole number": lambda: perturbation(1.0, 4),
    "one seed, mapped over by vmap": lambda: perturbation_jax(jnp.asarray(WORDS), 4),
    "one key of a run": lambda: party_key(jax.random.split(KEY), 0, 0),
    "one number of a party": lambda: party_key(KEY, 0, jnp.arange(3)),
    "blocks of a shape": lambda: threefry_2x32((WORDS, WORDS), (WORDS, WORDS[:2])),
}


def test_a_wrong_shape_or_type_is_refused():
    for what in WRONG:
        with pytest.raises(TypeCheckError):
            WRONG[what]()


def test_arrays_are_those_of_jax_and_of_numpy():
    assert isinstance(jnp.zeros(3), JaxArray) and not isinstance(np.zeros(3), JaxArray)
    assert isinstance(jnp.zeros(3), AnyArray) and isinstance(np.zeros(3), AnyArray)
    assert isinstance(np.float32(1), AnyArray) and not isinstance([1.0], AnyArray) and not isinstance(1.0, AnyArray)
    seen = []
    jax.jit(lambda x: seen.append(isinstance(x, JaxArray) and isinstance(x, AnyArray)))(jnp.zeros(3))
    assert seen == [True]


def test_a_call_of_a_form_that_has_passed_is_refused_where_its_result_or_an_item_is_wrong():
    checked = lazy_checks.jaxtyped(typechecker=lazy_checks.beartyped)

    def made(wrong):
        @checked
        def first(rows: list[Float[np.ndarray, " n"]], kind: Literal["a", "b"] | None = None) -> np.ndarray:
            return rows[0]

        @checked
        def doubled(x: Float[np.ndarray, " n"], so: object) -> Float[np.ndarray, " n"]:
            return np.append(x, 0) if wrong[0] else 2 * x

        return first, doubled

    wrong = [False]
    for _ in range(3):  # functions made anew share what has passed
        first, doubled = made(wrong)
        wrong[0] = False
        for _ in range(3):
            first([np.ones(2), np.ones(2)], "b")
            np.testing.assert_array_equal(doubled(np.ones(3), []), 2 * np.ones(3))
        wrong[0] = True
        for _ in range(2):
            with pytest.raises(TypeCheckError):
                doubled(np.ones(3), [])
        for bad in ([np.ones((2, 2))], [np.arange(2)], (np.ones(2),)):
            with pytest.raises(TypeCheckError):
                first(bad)
        with pytest.raises(TypeCheckError):
            first([np.ones(2)], "c")
