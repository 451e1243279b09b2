"""A real SuperLink and two SuperNodes on this machine: the model of a simulator, and a run that goes on.

Every process is stopped by its id and waited for, and what it started must be gone as well.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from flower_nodes import simulated
from safetensors.numpy import load_file

from fedrank.core.ledger import Ledger

APP = Path(__file__).resolve().parents[2] / "apps" / "foltr-es"
PROGRAMS = Path(sys.executable).parent
NODES, CLIENTS = 2, 9

pytestmark = pytest.mark.slow


def free_ports(count):
    """Ports that the system has free now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def below(roots):
    """The ids of these processes and of all that they have started."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in listed.splitlines()]
    alive = {int(pid): int(parent) for pid, parent, state in rows if not state.startswith("Z")}
    found = set(roots)
    while more := {pid for pid, parent in alive.items() if parent in found} - found:
        found |= more
    return found & set(alive)


def stop(processes):
    """Ask each to end, wait for it, and see that nothing is left; what does not end is killed, and that is an error."""
    everything = below([process.pid for process in processes])
    for process in reversed(processes):  # the SuperLink last: nodes say goodbye to it
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
    deadline = time.monotonic() + 30
    while (left := everything & below(everything)) and time.monotonic() < deadline:
        time.sleep(0.2)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for process in processes:
        process.wait(30)
    assert not left, f"processes {sorted(left)} did not end when they were asked to"


@pytest.fixture
def federation(tmp_path):
    """Runs the app: settings -> what it printed."""
    pytest.importorskip("flwr", reason="needs flwr: pip install 'fedrank[flower]'")
    port, *local = free_ports(1 + NODES)
    home = tmp_path / "flower"
    home.mkdir()
    (home / "config.toml").write_text(f'[superlink.lo]\naddress = "127.0.0.1:{port}"\ninsecure = true\n')
    env = {
        **os.environ,
        "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05",
        "JAX_PLATFORMS": "cpu",
    }
    processes = []

    def start(name, *arguments):
        with open(tmp_path / f"{name}.log", "w") as log:
            processes.append(
                subprocess.Popen(
                    [PROGRAMS / arguments[0], *arguments[1:]], env=env, stdout=log, stderr=log, cwd=tmp_path
                )
            )

    def run(**settings):
        table = " ".join(f"{name}={json.dumps(value)}" for name, value in settings.items())
        command = [PROGRAMS / "flwr", "run", APP, "lo", "--stream", "-c", table]
        ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=400, cwd=tmp_path)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    try:
        start("link", "flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(port))
        wait_for(f"http://127.0.0.1:{port}/health", tmp_path / "link.log")
        for i, own in enumerate(local):
            told = f'partition-id={i} num-partitions={NODES} chance="seed" state-dir="{tmp_path}/node{i}"'
            link = ("--superlink", f"127.0.0.1:{port}", "--port", str(own))
            start(f"node{i}", "flower-supernode", "--insecure", *link, "--node-config", told)
        yield run
    finally:
        stop(processes)


def wait_for(url, log):
    for _ in range(300):
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=1) as answer:
            if answer.status == 200:
                return
        time.sleep(0.2)
    raise AssertionError(f"{url} does not answer\n{log.read_text()}")


def test_two_supernodes_learn_what_a_simulator_learns_and_go_on(federation, tmp_path):
    kept = tmp_path / "kept"
    table = {"clients": CLIENTS, "checkpoint-dir": str(kept), "n-features": 46}
    for done, rounds in ((0, 2), (2, 3)):
        values = {**table, "num-server-rounds": rounds}
        said = federation(**values)
        assert f"{done} of {rounds} rounds are done" in said
        weights = load_file(kept / "weights" / "seed0.safetensors")["weight"]
        expected, _ = simulated(values)
        assert np.abs(expected).max() > 0
        np.testing.assert_allclose(weights.ravel(), expected, rtol=1e-5, atol=1e-8)
    rows = [json.loads(line) for line in (kept / "metrics.jsonl").read_text().splitlines()]
    heard = [(row["round"], row["exchanges"][0]["heard"], row["exchanges"][0]["parties"]) for row in rows[1:]]
    assert heard == [(number, NODES, CLIENTS) for number in (1, 2, 3)]
    ledger = Ledger.read(kept / "ledger.jsonl")
    assert ledger.bytes_from("parties") == 3 * CLIENTS * 9
    assert ledger.bytes_from("server") == 3 * NODES * (1 + 4 + 4 * 46)
    assert all(any((tmp_path / f"node{i}").rglob("state-00000003.npz")) for i in range(NODES)), "parties remember"
