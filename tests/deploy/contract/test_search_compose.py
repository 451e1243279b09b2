"""The services of docker/compose/search.yml, as processes on loopback: from nothing to the first hit."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

pytest.importorskip("tantivy")

FILE = Path(__file__).parents[3] / "docker" / "compose" / "search.yml"
CODE = "c" * 48


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def test_secrets_are_files():
    """Compose gives a service with a read-only root no secret of the environment."""
    given = yaml.safe_load(FILE.read_text())
    assert all([*secret] == ["file"] for secret in given["secrets"].values())
    assert "--choose" not in given["services"]["portal"]["command"]  # its volume is mounted to be read


@pytest.mark.minutes
def test_the_composed_services_find_documents(tmp_path):
    services = yaml.safe_load(FILE.read_text())["services"]
    ports = dict(zip(services, free_ports(len(services)), strict=True))
    texts = {"north": "the lift of a heated wing", "south": "flutter of a wing", "west": "roses in gardens"}

    def command(name):
        """A service's command with this machine's folders, ports and host in place of the container's."""
        words = []
        mounted = [part.split(":")[0] for part in services[name]["volumes"]]
        for word in services[name]["command"]:
            word = word.replace("${FEDRANK_JOIN}", CODE).replace("0.0.0.0", "127.0.0.1")
            word = re.sub(r"http://(\w+):\d+", lambda found: f"http://127.0.0.1:{ports[found[1]]}", word)
            place = {"/folder": tmp_path / "folders" / mounted[0], "/documents": tmp_path / "texts" / name}
            words.append(str(place.get(word, word)))
        words[words.index("--port") + 1] = str(ports[name])
        return words

    (tmp_path / "folders" / "broker").mkdir(parents=True)
    (tmp_path / "folders" / "broker" / "join.token").write_text(CODE)
    for name, text in texts.items():
        (tmp_path / "texts" / name).mkdir(parents=True)
        (tmp_path / "texts" / name / "one.txt").write_text(text)
    env, running = {**os.environ, "OMP_NUM_THREADS": "1"}, []

    def start(name):
        with (tmp_path / f"{name}.log").open("w") as log:
            words = [sys.executable, "-m", "fedrank", *command(name)]
            running.append(subprocess.Popen(words, stdout=log, stderr=log, env=env))

    try:
        start("broker")
        began = time.monotonic()
        while "join" not in (tmp_path / "broker.log").read_text():  # Compose starts owners again until it is there
            assert time.monotonic() < began + 120, (tmp_path / "broker.log").read_text()
            time.sleep(0.3)
        for name in services:
            if name not in ("broker", "portal"):
                start(name)
        asked = ["search", "ask", "--owner", str(tmp_path / "folders" / "north"), "--allow-http", "heated", "wing"]
        until, found = time.monotonic() + 240, ""
        while "south" not in found:
            assert time.monotonic() < until, [path.read_text() for path in tmp_path.glob("*.log")]
            time.sleep(1)
            done = subprocess.run([sys.executable, "-m", "fedrank", *asked], capture_output=True, text=True, env=env)
            found = done.stdout
        lines = [line for line in found.splitlines() if re.match(" +[0-9]", line)]
        assert len(lines) == 2 and {line.split()[3] for line in lines} == {"north", "south"}
        start("portal")
        while f":{ports['portal']}" not in (tmp_path / "portal.log").read_text():
            assert time.monotonic() < until
            time.sleep(0.3)
    finally:
        for one in running:
            one.send_signal(signal.SIGINT)
        for one in running:
            one.wait(30)
