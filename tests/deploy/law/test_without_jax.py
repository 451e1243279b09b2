"""Servers of the default protocols where JAX, optax and scikit-learn are not installed."""

import json
import subprocess
import time

import pytest
from blocked import call_without, command_without, run_without

from fedrank.deploy.hub.folder import HubFolder

BLOCKED = "jax jaxlib optax sklearn"

pytestmark = pytest.mark.slow

#: Platforms that plan, their coordinator and their users, in one process: prints models and engagement.
PLATFORMS = """
import json, tempfile
from pathlib import Path
import numpy as np
from fedrank.deploy.platforms.client import visits
from fedrank.deploy.platforms.folder import Terms
from fedrank.engine.settings import from_dict
from planning_worlds import Application, Direct, coordinator_in, platform_in, seeded, simulated

stay, explorers, rounds = 3, 3, 15
world = {"preset": "tension", "candidates": 4, "slate": 2, "time_budget": 2 * stay}
settings = {"protocol": "planned-slates", "rounds": rounds, "seed": 5, "world": world}
agreed = Terms.of(from_dict({**settings, "slates": {"explorers": explorers, "hold": 0.5, "evidence": 0.0}}))
folder, models = Path(tempfile.mkdtemp()), []
platforms = {index: platform_in(folder, agreed, index) for index in range(2)}

def before(users):
    if users == explorers and not models:
        peers = [Direct(platforms, index) for index in range(2)]
        with coordinator_in(folder, agreed, peers) as coordinator:
            coordinator.run()
        models.append(coordinator.state.model)

clients = [Application(platforms, index, None, before) for index in range(2)]
earned = [one.engagement for one in visits(seeded(agreed), clients, rounds // stay)]
state, _, seen = simulated(agreed, rounds)
np.testing.assert_allclose(models[0], state.model, rtol=1e-5)
np.testing.assert_allclose(earned, seen["world"]["engagement"][:, 0], rtol=1e-5)
"""

#: A server of bandit-fedavg and three nodes, in one process, with the messages that Flower carries.
FLOWER = """
import tempfile
from pathlib import Path
from fedrank_flower.answers import answer_for
from fedrank_flower.messages import Question
from fedrank_flower.rounds import Came, Network
from fedrank_flower.server_app import serve
from fedrank_flower.settings import read_node, read_run
from safetensors.numpy import load_file

folder = Path(tempfile.mkdtemp())
values = {"protocol": "bandit-fedavg", "silos-rows": 120, "num-server-rounds": 2, "min-available-nodes": 3,
          "checkpoint-dir": str(folder / "kept")}
config, _ = read_run(values)

class Nodes(Network):
    def nodes(self):
        return range(3)

    def ask(self, questions, seconds):
        self.asked = {node: Question.from_record(one.as_record()) for node, one in questions.items()}

    def answers(self):
        asked, self.asked = self.asked, {}
        for node, question in asked.items():
            table = {"partition-id": node, "num-partitions": 3, "state-dir": str(folder / str(node))}
            yield Came(node, dict(answer_for(config, read_node(table), question).as_record()))

serve(values, Nodes())
assert any(tensor.any() for tensor in load_file(folder / "kept" / "weights" / "seed0.safetensors").values())
"""

#: Owners, a broker and an asker over HTTP.
SEARCH = """
import tempfile
from pathlib import Path
from search_worlds import search_world

with search_world(Path(tempfile.mkdtemp())) as (asked, _, _):
    assert {hit.title for hit in asked.search("a wing").hits} == {"Lift of wings", "Wings and flutter"}
"""


def test_platforms_silos_on_flower_and_a_search_are_served(tmp_path):
    done = run_without(BLOCKED, tmp_path, program="\n".join((PLATFORMS, FLOWER, SEARCH)))
    assert done.returncode == 0, done.stderr


def test_a_hub_learns(tmp_path):
    home = HubFolder(tmp_path / "hub")
    asked = ["--trial", "--n-features", 46, "--cohort", 2, "--rounds", 2, "--least", 1, "--deadline", 0, "--port", 0]
    hub = subprocess.Popen(command_without(BLOCKED, "hub", "serve", home.path, *asked), stderr=subprocess.PIPE)
    try:
        end = time.monotonic() + 60
        while not home.url_path("hub").exists():
            assert hub.poll() is None and time.monotonic() < end
            time.sleep(0.05)
        people = run_without(BLOCKED, tmp_path, "hub", "simulate", home.path, "--devices", 2, "--pause", 0.1, "--json")
        assert people.returncode == 0, people.stderr
        hub.terminate()
        assert hub.wait(30) == 0, hub.stderr.read()
    finally:
        hub.kill()
        hub.communicate()
    replayed = run_without(BLOCKED, tmp_path, "hub", "replay", home.path, "--json")
    assert replayed.returncode == 0, replayed.stderr
    assert json.loads(replayed.stdout)["rounds"] == 2


def test_what_needs_jax_says_so(tmp_path):
    on_flower = FLOWER.replace("bandit-fedavg", "foltr-pdgd").replace('"silos-rows": 120, ', "")
    done = run_without(BLOCKED, tmp_path, program=on_flower)
    assert done.returncode == 1 and "fedrank[jax]" in done.stderr


def test_platforms_that_would_need_it_are_refused_before_anything_is_made(tmp_path):
    (tmp_path / "run.toml").write_text('protocol = "vertical-slate"\n', encoding="utf-8")
    files = ["--config", "run.toml"]
    commands = [
        ["slates", "serve", "a", "--index", "0", *files],
        ["slates", "coordinate", "c", "--platform", "a", *files],
    ]
    for status, said in call_without(BLOCKED, tmp_path, commands):
        assert status == 1 and "planned-slates" in said, said
        assert not (tmp_path / "a").exists() and not (tmp_path / "c").exists()
