"""A real SuperLink and SuperNodes on this machine, for tests.

Every process is stopped by its id and waited for, and what it started must be gone as well.
"""

import contextlib
import json
import os
import signal
import socket
import ssl
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


class Link:
    """A running link; to call it runs the app: settings -> what the run printed.

    Attributes:
        nodes: The process of each node, by the number of its table.
    """

    def __init__(self, folder, app, env, port):
        self.folder, self.app, self.env, self.port = folder, app, env, port
        self.processes, self.nodes = [], {}

    def start(self, name, *arguments, **more):
        """Start a program, whose log is appended to a file of that name."""
        with open(self.folder / f"{name}.log", "a") as log:
            command = [PROGRAMS / arguments[0], *arguments[1:]]
            own = subprocess.Popen(command, env={**self.env, **more}, stdout=log, stderr=log, cwd=self.folder)
        self.processes.append(own)
        return own

    def start_node(self, number, told):
        """Start a node with this table."""
        (own,) = free_ports(1)
        link = ("--insecure", "--superlink", f"127.0.0.1:{self.port}", "--port", str(own))
        self.nodes[number] = self.start(f"node{number}", "flower-supernode", *link, "--node-config", told)

    def kill_node(self, number):
        """Kill a node and all that it has started, as a power cut does."""
        node = self.nodes.pop(number)
        self.processes.remove(node)
        kill_all([node.pid])
        node.wait(30)

    def flwr(self, *arguments):
        """Run a command of Flower's to its end."""
        command = [PROGRAMS / "flwr", *arguments]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=120, cwd=self.folder)
        assert done.returncode == 0, done.stdout + done.stderr

    def begin(self, **settings):
        """Begin a run, whose process is returned; what it prints comes through its pipe."""
        table = " ".join(f"{name}={json.dumps(value)}" for name, value in settings.items())
        command = [PROGRAMS / "flwr", "run", APPS / self.app, "lo", "--stream", "-c", table]
        return subprocess.Popen(
            command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder
        )

    def __call__(self, **settings):
        return self.end(self.begin(**settings))

    def end(self, run, *, fails=False):
        """What a run printed, once it has ended."""
        said, _ = run.communicate(timeout=LIMIT)
        assert fails or run.returncode == 0, said
        return said


def kill_all(pids):
    """Kill processes and all that they have started."""
    for pid in below(pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def make_certificates(folder, *hosts):
    """An authority ``ca.crt``, and a certificate ``server.pem`` of a link with these names, as on Flower's page."""
    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-384", "-nodes")
    (folder / "names").write_text(f"subjectAltName={','.join(f'DNS:{host}' for host in hosts)},IP:127.0.0.1")
    signing = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30", "-extfile", "names")
    for command in (
        ("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.crt", "-days", "30", "-subj", "/CN=our CA"),
        ("req", *new, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=server"),
        ("x509", "-req", "-in", "server.csr", *signing, "-out", "server.pem"),
    ):
        subprocess.run(["openssl", *command], cwd=folder, check=True, capture_output=True, timeout=60)


@contextlib.contextmanager
def linked(folder, app, tables, *, secure=False):
    """A link and a node for each table (``--node-config``), as :class:`Link`; secure: TLS, and only known nodes."""
    (port,) = free_ports(1)
    home = folder / "flower"
    home.mkdir()
    trust = f'root-certificates = "{folder}/ca.crt"' if secure else "insecure = true"
    (home / "config.toml").write_text(f'[superlink.lo]\naddress = "127.0.0.1:{port}"\n{trust}\n')
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
    link = Link(folder, app, env, port)
    try:
        served = ("--insecure",)
        if secure:
            served = ("--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.pem", "--ssl-keyfile", "server.key",
                      "--enable-supernode-auth")  # fmt: skip
        link.start("link", "flower-superlink", *served, "--host", "127.0.0.1", "--port", str(port))
        health = f"{'https' if secure else 'http'}://127.0.0.1:{port}/health"
        wait_for(health, folder / "link.log", folder / "ca.crt" if secure else None)
        for number, told in enumerate(tables):
            link.start_node(number, told)
        yield link
    finally:
        stop(link.processes)


def wait_for(url, log, authority=None):
    context = ssl.create_default_context(cafile=authority) if authority else None
    for _ in range(300):
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=1, context=context) as answer:
            if answer.status == 200:
                return
        time.sleep(0.2)
    raise AssertionError(f"{url} does not answer\n{log.read_text()}")
