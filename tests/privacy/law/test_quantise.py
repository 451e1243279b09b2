"""Laws of whole steps: no norm grows, and no sum runs over."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrank.core.errors import ConfigError
from fedrank.privacy.quantise import ROUNDINGS, check_sum, clip_to_norm, dequantise, quantise

singles = st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False)


def exact_norm(values, norm):
    values = [abs(float(v)) for v in values]
    return math.fsum(values) if norm == "l1" else math.sqrt(math.fsum(v * v for v in values))


@settings(max_examples=300, deadline=None)
@given(st.lists(singles, min_size=1, max_size=60), st.floats(1e-3, 1e3), st.sampled_from(["l1", "l2"]))
def test_a_clipped_norm_is_never_above_its_bound(values, bound, norm):
    vector = np.array(values, np.float32)
    clipped = clip_to_norm(vector, bound, norm)
    assert exact_norm(clipped, norm) <= bound
    before = exact_norm(vector, norm)
    if before < 0.999 * bound:
        np.testing.assert_array_equal(clipped, vector)
    elif before < 1e38:  # the direction stays, and the length is the bound but for a hair
        assert exact_norm(clipped, norm) >= (1 - 1e-4) * min(bound, before)
        largest = np.abs(vector).argmax()
        assert np.sign(clipped[largest]) == np.sign(vector[largest])


def test_vectors_without_a_length_become_zero():
    for wrong in (np.nan, np.inf, -np.inf):
        assert clip_to_norm(np.array([1.0, wrong], np.float32), 1.0).tolist() == [0.0, 0.0]
    assert clip_to_norm(np.zeros(3, np.float32), 1.0).tolist() == [0.0, 0.0, 0.0]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(-8, 8, width=32, allow_subnormal=False), min_size=1, max_size=40),
    st.sampled_from([1, 16, 2**16]),
)
def test_rounding_down_shortens_every_norm(values, steps):
    vector = np.array(values, np.float32)
    whole = quantise(vector, steps, 8.0)
    for norm in ("l1", "l2"):
        assert exact_norm(whole, norm) <= steps * exact_norm(vector, norm) * (1 + 1e-15)
    assert (np.abs(whole) <= 8 * steps).all()
    assert np.abs(dequantise(whole, steps) - vector).max() <= 1 / steps


def test_rounding_against_whole_numbers():
    for steps in [1, 8, 2**16]:
        values = np.random.default_rng(0).uniform(-3, 3, 1000).astype(np.float32)
        exact = [float(v) * steps for v in values]  # exact: a power of two, in double precision
        assert quantise(values, steps, 4.0).tolist() == [int(v) for v in exact]
        assert quantise(values, steps, 4.0, "nearest").tolist() == [round(v) for v in exact]


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_numpy_and_jax_agree(rounding):
    values = np.array([0.3, -0.3, 1.49, -7.0, 7.0, np.nan, np.inf], np.float32)
    here = quantise(values, 16, 2.0, rounding)
    there = quantise(jnp.asarray(values), 16, 2.0, rounding, xp=jnp)
    assert here.tolist() == there.tolist()
    assert here[5] == 0 and here[6] == 32  # not a number is nothing; beyond the clip is the clip
    assert here.dtype == there.dtype == np.int32
    np.testing.assert_array_equal(dequantise(here, 16), dequantise(there, 16, xp=jnp))
    vector = values[:5]
    for norm in ("l1", "l2"):
        clipped = jax.jit(lambda v, norm=norm: clip_to_norm(v, 1.5, norm, xp=jnp))(vector)
        np.testing.assert_allclose(clipped, clip_to_norm(vector, 1.5, norm), rtol=1e-6)


def test_a_sum_modulo_two_to_the_32_comes_back():
    values = np.random.default_rng(3).uniform(-2, 2, (50, 6)).astype(np.float32)
    whole = quantise(values, 2**20, 2.0)
    check_sum(50, 2.0, 2**20)
    total = whole.astype(np.uint32).sum(axis=0, dtype=np.uint32)  # negative numbers wrap around
    np.testing.assert_allclose(dequantise(total, 2**20), values.astype(float).sum(axis=0), atol=50 / 2**20)
    np.testing.assert_array_equal(dequantise(total, 2**20), dequantise(whole.sum(axis=0, dtype=np.int32), 2**20))


def test_sums_that_could_run_over_are_refused():
    check_sum(1023, 2.0, 2**20)
    with pytest.raises(ConfigError, match=r"1,024 parties .* can reach 2,147,483,648, beyond the 2\*\*31 - 1"):
        check_sum(1024, 2.0, 2**20)
    check_sum(1023, 2.0, 2**20, noise=2**21 - 1)
    with pytest.raises(ConfigError, match="with noise up to 2,097,152 steps"):
        check_sum(1023, 2.0, 2**20, noise=2**21)
    with pytest.raises(ConfigError, match="can reach"):  # in single precision this clip is 2³¹
        quantise(np.zeros(1, np.float32), 1, 2.0**31 - 1)


def test_arguments_out_of_range():
    values = np.zeros(2, np.float32)
    for steps in (0, 3, -4, 2**31):
        with pytest.raises(ConfigError, match="power of two"):
            quantise(values, steps, 1.0)
    with pytest.raises(ConfigError, match="rounding must be one of down, nearest, got 'up'"):
        quantise(values, 4, 1.0, "up")
    for bound, norm in ((0.0, "l2"), (math.inf, "l2"), (1.0, "l3")):
        with pytest.raises(ConfigError, match="norm must be"):
            clip_to_norm(values, bound, norm)
