"""What compiled kernels read: shapes and indices are checked where a kernel is entered, and crashes leave a trace."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from fedrank.core.kernels import check_range, check_shapes, host_weighted_sum
from fedrank.metrics.online import max_rr
from fedrank.ranking.evaluate import row_scores
from fedrank.ranking.on_device import ClicksToReply
from fedrank.ranking.sessions.devices import private_sums


def test_an_array_of_another_shape_is_refused():
    for wanted in [(2, 4), (3,), (None, 2), (2, 3, 1)]:
        with pytest.raises(ValueError):
            check_shapes(words=(np.zeros((2, 3)), wanted))


def test_an_array_of_the_shape_is_taken():
    for wanted in [(2, 3), (None, 3), (None, None)]:
        check_shapes(words=(np.zeros((2, 3)), wanted))


def test_an_index_out_of_an_array_is_refused():
    for numbers in [[-1], [0, 5], [5]]:
        with pytest.raises(ValueError):
            check_range("queries", np.array(numbers), 5)
        check_range("queries", np.array([0, 4]), 5)
        check_range("queries", np.array([], int), 0)


@pytest.fixture
def clicks():
    """Click patterns of 2 runs, 3 devices, 2 halves and 4 interactions, and which took place."""
    rng = np.random.default_rng(3)
    return rng.integers(0, 1024, (2, 3, 2, 4), dtype=np.int32), rng.random((2, 3, 2, 4)) < 0.7


def test_sums_without_randomised_response_read_no_words(clicks):
    """Devices of interleaved lists have three words a message: there are none to read for each interaction."""
    patterns, active = clicks
    found = private_sums(ClicksToReply(max_rr(), 4), patterns, None, active)
    reward = np.asarray(max_rr().numerators)[np.asarray(max_rr().index)[patterns]]
    assert np.array_equal(found, np.where(active, reward, 0).sum(axis=-1))


@pytest.mark.parametrize("words", [None, np.zeros((2, 3, 3), np.uint32), np.zeros((2, 3, 2, 4), np.uint32)])
def test_randomised_response_refuses_fewer_than_two_words_an_interaction(clicks, words):
    patterns, active = clicks
    with pytest.raises((ValueError, TypeError)):  # where annotations are checked, they refuse it first
        private_sums(ClicksToReply(max_rr(), 4, p=0.9), patterns, words, active)


def test_perturbations_that_do_not_fit_the_seeds_are_refused():
    seeds, coefficients = np.arange(6, dtype=np.uint32), np.ones(6, np.float32)
    made = np.zeros((5, 8), np.float32)
    with pytest.raises(ValueError):
        host_weighted_sum(seeds, coefficients, 8, made)


def test_weights_that_do_not_fit_the_features_are_refused():
    with pytest.raises(ValueError):
        row_scores(np.zeros(4, np.float32), np.zeros((3, 5), np.float32), 0)


@pytest.mark.slow
def test_a_crash_of_the_command_leaves_a_trace():
    """A segmentation fault in compiled code ends a process without a Python exception."""
    crash = (
        "import os, signal, fedrank.cli.main as m; m.call = lambda _: os.kill(os.getpid(), signal.SIGSEGV); m.main([])"
    )
    done = subprocess.run([sys.executable, "-c", crash], capture_output=True, env=os.environ)
    assert done.returncode == -11 and b"Segmentation fault" in done.stderr
