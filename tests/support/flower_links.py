"""A real SuperLink and SuperNodes on this machine, for tests.

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

APPS = Path(__file__).resolve().parents[2] / "apps"
PROGRAMS = Path(sys.executable).parent
#: Seconds until a run hangs: each of its messages starts a process a node, seconds of a busy processor.
LIMIT = 800


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


@contextlib.contextmanager
def linked(folder, app, tables):
    """A link and a node for each of these tables (``--node-config``); runs the app: settings -> what it printed."""
    port, *local = free_ports(1 + len(tables))
    home = folder / "flower"
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
        "XDG_CACHE_HOME": str(folder / "cache"),
        "JAX_ENABLE_COMPILATION_CACHE": "1",
    }
    processes = []

    def start(name, *arguments):
        with open(folder / f"{name}.log", "w") as log:
            processes.append(
                subprocess.Popen([PROGRAMS / arguments[0], *arguments[1:]], env=env, stdout=log, stderr=log, cwd=folder)
            )

    def run(**settings):
        table = " ".join(f"{name}={json.dumps(value)}" for name, value in settings.items())
        command = [PROGRAMS / "flwr", "run", APPS / app, "lo", "--stream", "-c", table]
        ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT, cwd=folder)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    try:
        start("link", "flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(port))
        wait_for(f"http://127.0.0.1:{port}/health", folder / "link.log")
        for i, (own, told) in enumerate(zip(local, tables, strict=True)):
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
