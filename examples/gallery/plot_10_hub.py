"""
A hub and its devices
=====================

The same protocol with real processes on this machine: a hub, and devices with the SDK and a simulated person each. A
device needs NumPy only, and draws its random numbers from the operating system.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import fedrank

temporary = tempfile.TemporaryDirectory()
hub = Path(temporary.name) / "hub"
command, silent = [sys.executable, "-m", "fedrank"], subprocess.DEVNULL
settings = ["--trial", "--n-features", "46", "--cohort", "5", "--rounds", "2", "--deadline", "60"]
serve = [*command, "hub", "serve", str(hub), *settings]
server = subprocess.Popen(serve, stdout=silent, stderr=silent)
try:
    while not (hub / "hub.url").exists():
        assert server.poll() is None, "the hub did not start"
        time.sleep(0.1)
    fleet = [*command, "hub", "simulate", str(hub), "--devices", "8", "--seconds", "20"]
    print(subprocess.run(fleet, capture_output=True, text=True, check=True).stdout)
finally:
    server.terminate()
    server.wait()

# %%
# The log makes the model again, to the last bit, and writes it to a file that scores.

file = hub / "model.safetensors"
replay = [*command, "hub", "replay", str(hub), "--out", str(file)]
print(subprocess.run(replay, capture_output=True, text=True, check=True).stdout)
print(fedrank.load(file))
temporary.cleanup()
