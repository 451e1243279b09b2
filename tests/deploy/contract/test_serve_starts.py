"""A hub starts in a process in which nothing else was imported before."""

import subprocess
import sys

import pytest

PROGRAM = """
from fedrank.deploy.hub.settings import HubSettings
from fedrank.deploy.hub.learning import Learning
learning = Learning(HubSettings(n_features=5).protocol())
learning.tell(learning.init(), [])
"""


@pytest.mark.slow
def test_a_round_is_learnt_in_a_fresh_process():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
