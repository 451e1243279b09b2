"""A default run of silos imports no JAX and no Numba, and what it computes stays a small number of array operations."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys
from fedrank.engine.run import config_of, run_experiment
from fedrank.engine.progress import Listener
from fedrank.silos.network import Gradient
from fedrank.silos.party import SiloProtocol

steps, looks = [], []
gradient, performance = Gradient.__call__, SiloProtocol.performance

def counted(self, x, y):
    steps.append(len(x))
    return gradient(self, x, y)

def judged(self, models, *rest):
    looks.append(len(models))
    return performance(self, models, *rest)

Gradient.__call__, SiloProtocol.performance = counted, judged
run_experiment(config_of(sys.argv[2], {"rounds": 3, "evaluation": {"sceptic": False}}), sys.argv[1])
loaded = [name for name in ("jax", "numba", "optax", "sklearn", "scipy.stats") if name in sys.modules]
print(json.dumps([loaded, len(steps), sum(steps), len(looks)]))
"""


@pytest.mark.parametrize("protocol", ["bandit-fedavg", "fedavg"])
def test_a_default_run_needs_no_jax_and_trains_all_silos_of_all_seeds_at_once(tmp_path, protocol):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "run"), protocol]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    loaded, steps, trained, looks = json.loads(told.stdout.splitlines()[-1])
    assert loaded == []
    # Pre-training and three rounds of 6 epochs of 3 batches, once for the run and once for what it is compared with:
    # the number of steps does not grow with 4 silos and 5 seeds.
    epochs, batches, trainings = 6, 3, 4
    assert steps == 2 * trainings * epochs * batches
    # Everybody in the run; to compare, everybody before the first round, then everybody or the target by itself.
    mine, theirs = 20 * trainings, 40 + (20 + 5) * (trainings - 1)
    assert trained == (mine + theirs) * epochs * batches
    if protocol == "bandit-fedavg":
        assert looks == 2 * 3  # one judgement a round for all runs
