"""The SDK is NumPy and the standard library: importing it must neither need nor load anything else."""

import json
import subprocess
import sys

_LOOK = """
import json, sys, time
start = time.process_time()
import fedrank.deploy.device
spent = time.process_time() - start
tops = {name.partition(".")[0] for name in sys.modules}
ours = sorted(name for name in sys.modules if name.startswith("fedrank"))
print(json.dumps([spent, sorted(tops - set(sys.stdlib_module_names)), ours]))
"""

_BLOCKED = """
import sys

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in (*sys.stdlib_module_names, "numpy", "fedrank"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Nothing())
sys.path_importer_cache.clear()
import tempfile
import numpy as np
from fedrank.deploy.device import Device

with tempfile.TemporaryDirectory() as folder:
    with Device("http://127.0.0.1:9", "enrolment-token", folder, timeout=0.2) as device:
        print(device.rank(np.eye(3)).order.tolist(), device.sync().state, len(device.privacy()) > 5)
"""


def python(program):
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_a_device_loads_numpy_and_nothing_else():
    tries = [json.loads(python(_LOOK)) for _ in range(3)]
    spent, loaded, ours = min(tries)
    # What site hooks of an installation load before the program starts is not ours.
    assert {name for name in loaded if not name.startswith(("__", "_"))} == {"fedrank", "numpy"}
    assert "fedrank.deploy.device.trial" in ours and "fedrank.ranking.foltr_es" not in ours
    assert spent < 0.5


def test_a_device_works_where_nothing_else_is_installed():
    assert python(_BLOCKED).split("\n")[0] == "[0, 1, 2] OFFLINE True"
