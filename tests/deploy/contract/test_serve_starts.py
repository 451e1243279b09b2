"""A hub starts in a process in which nothing else was imported before."""

import subprocess
import sys

import pytest

PROGRAM = """
from fedrank.deploy.hub.settings import HubSettings
from fedrank.deploy.hub.learning import learning_of
learning = learning_of(HubSettings(n_features=5).protocol())
learning.warm(learning.init(), 4)
"""


@pytest.mark.slow
def test_rounds_are_compiled_in_a_fresh_process():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
