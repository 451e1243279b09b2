"""Two platforms, their coordinator and their users as processes on loopback learn what a simulator learns.

A platform and the coordinator are killed on the way, each by its process id, and started again.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pytest
from planning_worlds import simulated
from safetensors.numpy import load_file

from fedrank.core.ledger import Ledger
from fedrank.deploy.platforms.folder import PlatformFolder, Terms
from fedrank.deploy.platforms.planning_platform import PlanningPlatform
from fedrank.engine.settings import from_dict, to_toml

pytestmark = pytest.mark.minutes

ROUNDS, LONGEST = 40, 300.0


def started(tmp_path, *words):
    """A process of the command line; what it says goes to a file."""
    with (tmp_path / "said.txt").open("a") as said:
        # Read with: pytest --basetemp; one thread each, as there are more processes than cores.
        return subprocess.Popen(
            [sys.executable, "-m", "fedrank", *map(str, words)],
            stdout=said,
            stderr=said,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )


def until(what, processes, happened):
    """Wait until something has happened, as long as all processes live."""
    end = time.monotonic() + LONGEST
    while not happened():
        assert time.monotonic() < end, what
        assert all(process.poll() is None for process in processes), f"{what}: a process has ended"
        time.sleep(0.05)


def ended(processes):
    """End all processes, and wait for them."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()


def test_two_platforms_a_coordinator_and_their_users_are_killed_and_plan_what_a_simulator_plans(tmp_path):
    stay, rounds, explorers = 5, 40, 4
    world = {"preset": "tension", "candidates": 5, "slate": 2, "time_budget": 2 * stay}
    settings = {
        "protocol": "planned-slates",
        "slates": {"explorers": explorers, "evidence": 0.0},
        "rounds": rounds,
        "seed": 4,
    }
    agreed = Terms.of(from_dict({**settings, "world": world, "evaluation": {"every": 10}}), seeded=True)
    config, homes = tmp_path / "run.toml", [tmp_path / "a", tmp_path / "b"]
    config.write_text(to_toml(agreed.config))
    everybody = ["--config", config, "--chance", "seed"]
    which = [word for home in homes for word in ("--platform", home)]

    def platform(index, *more):
        return started(tmp_path, "slates", "serve", homes[index], "--index", index, *everybody, *more)

    def coordinator():
        return started(tmp_path, "slates", "coordinate", tmp_path / "c", *which, *everybody, "--wait")

    def users(until_round):
        out = ["--out", tmp_path / "users.jsonl", "--rounds", until_round, "--wait"]
        return started(tmp_path, "slates", "simulate", *which, *everybody, *out)

    def killed(process):
        process.send_signal(signal.SIGKILL)
        process.wait()

    def counted():
        try:
            with sqlite3.connect(f"file:{homes[0] / 'platform.db'}?mode=ro", uri=True) as db:
                return json.loads(db.execute("SELECT value FROM piece WHERE name = 'now'").fetchone()[0])["stays"]
        except (sqlite3.Error, TypeError):
            return -1

    running = {}
    try:
        running |= {home.name: platform(index) for index, home in enumerate(homes)}
        until("platforms listen", running.values(), lambda: all((home / "application.url").exists() for home in homes))
        ports = [PlatformFolder(homes[0]).url(who).rpartition(":")[2] for who in ("coordinator", "application")]
        running["c"], running["users"] = coordinator(), users(explorers * stay)
        until("a stay", running.values(), lambda: counted() >= 1)
        killed(running["a"])  # within a stay of the second user or a later one
        killed(running["c"])
        running["a"] = platform(0, "--port", ports[0], "--application-port", ports[1])
        assert running["users"].wait(LONGEST) == 0, (tmp_path / "said.txt").read_text()
        killed(running["a"])  # its sums are in its file
        running["a"] = platform(0, "--port", ports[0], "--application-port", ports[1])
        running["c"] = coordinator()
        assert running["c"].wait(LONGEST) == 0, (tmp_path / "said.txt").read_text()
        running["users"] = users(rounds)
        assert running["users"].wait(LONGEST) == 0, (tmp_path / "said.txt").read_text()
    finally:
        ended(running.values())

    state, own, seen = simulated(agreed, rounds)
    model = load_file(tmp_path / "c" / "federated.safetensors")["model"]
    np.testing.assert_array_equal(model, state.model)
    for index, home in enumerate(homes):
        store = PlatformFolder(home).open_store(f"platform {index}", agreed)
        there = PlanningPlatform(agreed, index, store)
        assert (there.begun, there.stays, there.cut_short) == (rounds // stay, explorers, 0)
        np.testing.assert_array_equal(there._own.sums, own.sums[index])
        np.testing.assert_array_equal(there._own.learnt.table, own.learnt.table[index])
    engagement = [json.loads(line)["engagement"] for line in (tmp_path / "users.jsonl").read_text().splitlines()]
    of_users = np.asarray(seen["world"]["engagement"])[:, 0].reshape(-1, stay, 2).sum(axis=1)
    np.testing.assert_allclose(engagement, of_users, rtol=1e-4)
    # Two questions and answers with five sums, and four weights to each.
    assert sum(entry.bytes for entry in Ledger.read(tmp_path / "c" / "ledger.jsonl")) == 2 * (5 + 21) + 2 * (17 + 1)
