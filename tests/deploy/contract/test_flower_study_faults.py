"""A real SuperLink and SuperNodes on this machine: faults in the middle of a study, and a node behind a proxy.

Each study ends with the result of an undisturbed one, to the last bit.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import time

import pytest
import yaml
from connect_proxy import ConnectProxy
from flower_links import below, free_ports, kill_all, linked, make_certificates
from releases import ROOT
from studies import SILOS, codebook, csv, node, rows

from fedrank.silos.studies.codebook import Question, codebook_toml
from fedrank.silos.studies.coordinator import run_study
from fedrank.silos.studies.keys import KEY, make_key

pytestmark = pytest.mark.minutes

RISK = Question(name="risk", formula="ill ~ age + sex")
LINEAR = Question(name="linear", model="linear", formula="crp ~ age + sex")


class Silos:
    """Files of three silos in a folder, with keys, a codebook, and the result of an undisturbed study."""

    def __init__(self, folder, *questions):
        pytest.importorskip("flwr", reason="needs flwr: pip install -e ./flower")
        parts = {silo: rows(100, k) for k, silo in enumerate(SILOS)}
        keys = {silo: make_key(folder / f"node-{silo}" / KEY) for silo in SILOS}
        self.folder, self.book = folder, codebook(*questions, keys={silo: key.public for silo, key in keys.items()})
        for silo, part in parts.items():
            csv(part, folder / f"{silo}.csv")
        (folder / "codebook.toml").write_text(codebook_toml(self.book))
        nodes = [node(self.book, silo, part, key=keys[silo]) for silo, part in parts.items()]
        self.expected = run_study(self.book, lambda asked: [one.answer(asked) for one in nodes])
        self.study = folder / "study"
        self.settings = {"codebook": f"{folder}/codebook.toml", "study-dir": str(self.study), "round-timeout": 120.0}

    def table(self, silo):
        own = f'data="{self.folder}/{silo}.csv" state-dir="{self.folder}/node-{silo}"'
        return f'silo="{silo}" {own} codebook-sha256="{self.book.sha}"'

    def check(self):
        """The results are those of the undisturbed study."""
        found = json.loads((self.study / "results" / "results.json").read_text())["questions"]
        for one, (name, progress) in zip(found, self.expected.progress.items(), strict=True):
            assert [c["estimate"] for c in one["coefficients"]] == progress.result.estimate.tolist(), name

    def answered(self, number, silos, seconds=120):
        """Wait until these silos' answers to a round are there."""
        end = time.monotonic() + seconds
        files = [self.study / "rounds" / f"{number:03d}" / "answers" / f"{silo}.json" for silo in silos]
        while not all(file.exists() for file in files):
            assert time.monotonic() < end, f"no answers of {silos} to round {number}"
            time.sleep(0.1)


def serverapp(link):
    """The process of the run at the link's machine."""
    found = []
    for pid in below([link.processes[0].pid]):
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            if b"flwr-serverapp" in file.read():
                found.append(pid)
    return found


def test_a_late_node_a_killed_coordinator_a_hanging_and_a_killed_node(tmp_path):
    silos = Silos(tmp_path, RISK)
    with linked(tmp_path, "study", [silos.table(silo) for silo in "ab"]) as link:
        run = link.begin(**silos.settings)
        silos.answered(1, "ab")
        link.start_node(2, silos.table("c"))  # comes late, and is asked
        silos.answered(2, "a")
        kill_all(serverapp(link))  # the coordinator, in the middle of a round
        run.kill()
        run.wait(30)
        os.kill(link.nodes[0].pid, signal.SIGSTOP)  # a node that hangs: the round is not answered in time
        said = link.end(link.begin(**silos.settings | {"round-timeout": 20.0}), fails=True)
        assert "no answer of a to round" in said
        os.kill(link.nodes[0].pid, signal.SIGCONT)
        reached = len(list((silos.study / "rounds").iterdir()))
        run = link.begin(**silos.settings)
        silos.answered(reached + 1, "a")
        link.kill_node(1)  # in the middle of a round, and started again
        link.start_node(1, silos.table("b"))
        link.end(run)
    silos.check()


def in_container(silo, silos, secrets):
    """Command and environment of the container of a silo's node, with this machine's places for those inside it."""
    service = yaml.safe_load((ROOT / "docker" / "compose" / "silo.yml").read_text())["services"]["silo"]
    told = {"FEDRANK_SILO": silo, "FEDRANK_TABLE": f"{silo}.csv", "FEDRANK_CODEBOOK_SHA256": silos.book.sha}
    places = {"/run/secrets": str(secrets), "/data": str(silos.folder), '"/silo"': f'"{silos.folder}/node-{silo}"'}
    words = []
    for word in service["command"]:
        word = re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: told.get(found[1], found[2]), word)
        for inside, outside in places.items():
            word = word.replace(inside, outside)
        words.append(word)
    return ["flower-supernode", *words], {"NO_PROXY": service["environment"]["NO_PROXY"]}


def make_secrets(folder, authority):
    """The files of a silo's container, made by the commands in its compose file."""
    (folder / "secrets").mkdir(parents=True)
    text = re.sub(r"\\\n#", " ", (ROOT / "docker" / "compose" / "silo.yml").read_text())
    for command in (re.search(r"openssl req.*", text)[0], re.search(r"ssh-keygen [^)]*", text)[0]):
        subprocess.run(shlex.split(command), cwd=folder, check=True, capture_output=True, timeout=60)
    (folder / "secrets" / "link.crt").write_bytes(authority.read_bytes())
    return folder / "secrets"


def test_the_container_s_command_behind_a_proxy_that_lets_out_to_one_host_alone(tmp_path):
    """The link's name is known to the proxy alone, so that no node can go past it; TLS reaches from end to end."""
    silos = Silos(tmp_path, LINEAR)
    make_certificates(tmp_path, "fleet.example.org")
    host = "fleet.example.org:443"
    with linked(tmp_path, "study", [], secure=True) as link, ConnectProxy({host: link.port}) as proxy:
        for silo, port in zip(SILOS, free_ports(3), strict=True):
            secrets = make_secrets(tmp_path / f"hospital-{silo}", tmp_path / "ca.crt")
            link.flwr("supernode", "register", str(secrets / "node.pub"), "lo")
            command, environment = in_container(silo, silos, secrets)
            environment["HTTPS_PROXY"] = f"http://127.0.0.1:{proxy.port}"
            link.start(f"node-{silo}", *command, "--port", str(port), **environment)
        link(**silos.settings)
    silos.check()
    assert len(proxy.asked) >= len(SILOS) and set(proxy.asked) == {host} and not proxy.refused
    assert min(proxy.bytes) > 1000
