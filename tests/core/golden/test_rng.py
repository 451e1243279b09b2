"""The random bits of a seed: known answers of the generator, and vectors for clients in other languages."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from fedrank.core import rng
from fedrank.core.kernels import fill_perturbation

VECTORS = json.loads(Path(__file__).with_name("threefry.json").read_text())


def test_threefry_known_answers_of_random123():
    for case in VECTORS["threefry_2x32_20"]:
        key, counter = (
            tuple(np.uint32(int(w, 16)).reshape(1) for w in case[name].split()) for name in ("key", "counter")
        )
        x0, x1 = rng.threefry_2x32(key, counter)
        assert f"{x0[0]:08x} {x1[0]:08x}" == case["words"]


def test_perturbation_vectors():
    for case in VECTORS["perturbations"]:
        v = rng.perturbation(case["seed"], 8)
        assert [f"{h:04x}" for h in rng.perturbation_halves(np.uint32(case["seed"]), 8)] == case["halves"]
        assert v.view(np.uint32).tolist() == [int(bits, 16) for bits in case["float32_bits"]]


def test_numpy_jax_and_kernel_give_the_same_bits():
    for seed in [0, 1, 7, 2**31, 2**32 - 1]:
        for size in [1, 2, 3, 4, 5, 46, 480]:
            expected = rng.perturbation(seed, size)
            blocks = -(-size // 4)
            kernel = np.empty(size, np.float32)
            fill_perturbation(
                np.uint32(seed), rng.normal_table(), np.empty(blocks, np.uint32), np.empty(blocks, np.uint32), kernel
            )
            jitted = jax.jit(rng.perturbation_jax, static_argnums=1)(jnp.uint32(seed), size)
            np.testing.assert_array_equal(expected, kernel)
            np.testing.assert_array_equal(expected, np.asarray(jitted))


def test_the_table_is_the_normal_quantile():
    h = np.arange(65536)
    np.testing.assert_array_equal(rng.normal_table(), ndtri((h + 0.5) / 65536).astype(np.float32))


def test_a_longer_perturbation_begins_with_the_shorter_one():
    np.testing.assert_array_equal(rng.perturbation(5, 10), rng.perturbation(5, 100)[:10])


def test_moments_over_many_seeds():
    v = np.stack([rng.perturbation(s, 64) for s in range(4000)])
    n = v.size
    assert abs(v.mean()) < 4 / np.sqrt(n)
    assert abs(v.var() - 1) < 4 * np.sqrt(2 / n)
    correlation = np.corrcoef(v.T) - np.eye(64)
    assert np.abs(correlation).max() < 5 / np.sqrt(4000)


def test_below_and_uniform_at_the_edges():
    words = np.array([0, 2**32 - 1, 2**31], np.uint32)
    for bound in (1, 2, 3, 1000, 65535):
        assert rng.below(words, np.uint32(bound)).tolist() == [int(w) * bound // 2**32 for w in words]
    u = rng.uniform(words)
    assert u[0] == 0 and u[1] < 1 and u[2] == 0.5


def test_a_partys_key_depends_on_run_round_and_party_only():
    key = jax.random.key(3)
    expected = jax.random.fold_in(jax.random.fold_in(key, 4), 5)
    assert jax.random.key_data(rng.party_key(key, 4, 5)).tolist() == jax.random.key_data(expected).tolist()
