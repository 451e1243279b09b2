"""Nothing waits in front of the first round: no JAX is imported, no scikit-learn, little memory and time are taken."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, resource, sys
from fedrank.engine.run import config_of, run_experiment
from fedrank.engine.progress import Listener

class First(Listener):
    def progress(self, progress):
        used = resource.getrusage(resource.RUSAGE_SELF)
        loaded = [name for name in ("jax", "optax", "sklearn", "scipy.signal") if name in sys.modules]
        # Not ru_maxrss: that is at least what the process which started this one had.
        memory = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
        print(json.dumps([loaded, memory / 1024, used.ru_utime + used.ru_stime]))

config = config_of(sys.argv[2], {"rounds": 1, "seeds": 1, "ranker": sys.argv[3]})
run_experiment(config, sys.argv[1], listener=First())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "ranker"), [("foltr-es", "linear"), ("foltr-es", "mlp"), ("foltr-pdgd", "linear")]
)
def test_a_run_on_a_cpu_needs_no_jax(tmp_path, protocol, ranker):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), protocol, ranker]
    for _ in range(2):  # the first may have to compile the kernels
        told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
        loaded, memory, seconds = json.loads(told.stdout)
        assert loaded == []
        if seconds < 6 and memory < 300:  # about 1.5 on a quiet core
            break
    assert memory < 300 and seconds < 6
