"""The job that runs all compiled kernels with their bounds checked."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from golden.runs.bounds import checked

BEYOND = """
import numpy as np
from fedrank.core.compiled import njit, prange

@njit(parallel={parallel})
def beyond(values, out):
    for i in prange(len(out)):
        out[i] = values[i + {more}]

beyond(np.ones(8), np.zeros(8))
print("read")
"""


@pytest.mark.slow
@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize(("more", "reads"), [(0, True), (5, False)])
def test_the_job_that_checks_bounds_sees_a_read_beyond_an_array(tmp_path, parallel, more, reads):
    """Also in the last part of a parallel loop, which another thread would run."""
    code = BEYOND.format(parallel=parallel, more=more)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=os.environ | checked(tmp_path))
    assert (done.returncode == 0) == (b"read" in done.stdout) == reads
    assert (b"IndexError" in done.stderr) != reads
