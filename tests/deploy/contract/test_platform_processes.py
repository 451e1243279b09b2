"""Two platforms, their coordinator and their users as processes on loopback learn what a simulator learns.

A platform and the coordinator are killed on the way, each by its process id, and started again; so are those that plan.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from platform_worlds import SETTINGS
from safetensors.numpy import load_file

from fedrank.core.ledger import Ledger
from fedrank.deploy.platforms.folder import PlatformFolder
from fedrank.deploy.platforms.planning_platform import PlanningPlatform
from fedrank.deploy.platforms.platform import Platform
from fedrank.deploy.platforms.terms import Terms
from fedrank.engine.settings import from_dict, to_toml
from fedrank.engine.simulator import Simulator, run_keys
from fedrank.slates.build import PLATFORMS

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


def rounds_of(folder):
    """Rounds of a coordinator so far, by what it has written."""
    try:
        with sqlite3.connect(f"file:{folder / 'coordinator.db'}?mode=ro", uri=True) as db:
            rows = db.execute("SELECT value FROM piece WHERE name LIKE 'crossed/%'").fetchall()
    except sqlite3.Error:
        return 0
    return sum(int(np.frombuffer(row[0], "<i8").reshape(-1, 2)[0, 0]) for row in rows) // 2


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


#: Two platforms, of which one sends its sums once; three that count norms and send sums twice, in secret.
PLANNING = {
    "once": {"protocol": "planned-slates", "slates": {"explorers": 8}},
    "twice in secret": {
        "protocol": "planned-slates",
        "world": {"platforms": 3},
        "slates": {"explorers": 6, "releases": 2, "feedback": "all", "differ": False},
        "sharing": {"bounders": 2, "secure_sum": True},
    },
}


@pytest.mark.parametrize("how", PLANNING)
def test_platforms_that_plan_are_killed_and_plan_what_a_simulator_plans(tmp_path, how):
    stay, rounds, last, given = 5, 60, 5 * 8 - 1, PLANNING[how]
    k = given.get("world", {}).get("platforms", 2)
    world = {"preset": "tension", "candidates": 5, "slate": 2, "platforms": k, "time_budget": k * stay}
    agreed = Terms.of(from_dict({**given, "rounds": rounds, "seed": 4, "world": world, "evaluation": {"every": 10}}))
    config, homes = tmp_path / "run.toml", [tmp_path / name for name in ("a", "b", "third")[:k]]
    config.write_text(to_toml(agreed.config))
    everybody = ["--config", config, "--wait", "--chance", "seed"]
    which = [word for home in homes for word in ("--platform", home)]

    def platform(index, *more):
        return started(tmp_path, "slates", "serve", homes[index], "--index", index, *everybody, *more)

    def coordinator():
        return started(tmp_path, "slates", "coordinate", tmp_path / "c", *which, *everybody)

    def killed(process):
        process.send_signal(signal.SIGKILL)
        process.wait()

    def lived():
        try:
            with sqlite3.connect(f"file:{homes[0] / 'platform.db'}?mode=ro", uri=True) as db:
                return json.loads(db.execute("SELECT value FROM piece WHERE name = 'now'").fetchone()[0])["lived"]
        except (sqlite3.Error, TypeError):
            return -1

    running = {}
    try:
        running |= {home.name: platform(index) for index, home in enumerate(homes)}
        until("platforms listen", running.values(), lambda: all((home / "application.url").exists() for home in homes))
        ports = [PlatformFolder(homes[0]).url(who).rpartition(":")[2] for who in ("coordinator", "application")]
        running["c"] = coordinator()
        running["users"] = started(
            tmp_path, "slates", "simulate", *which, *everybody, "--out", tmp_path / "users.jsonl"
        )
        until("some rounds", running.values(), lambda: lived() >= 7)
        killed(running["a"])
        running["a"] = platform(0, "--port", ports[0], "--application-port", ports[1])
        until("more rounds", running.values(), lambda: lived() >= 20)
        killed(running["c"])
        if how == "once":
            until("the explorers have left", [running["users"]], lambda: lived() == last)
        else:  # users wait for each model
            running["c"] = coordinator()
            until("the second release is near", [running["users"]], lambda: lived() >= 30)
        killed(running["a"])  # its sums are in its file
        running["a"] = platform(0, "--port", ports[0], "--application-port", ports[1])
        if how == "once":
            running["c"] = coordinator()
        assert running["c"].wait(LONGEST) == 0, (tmp_path / "said.txt").read_text()
        assert running["users"].wait(LONGEST) == 0, (tmp_path / "said.txt").read_text()
    finally:
        ended(running.values())

    simulator, keys = Simulator(agreed.protocol), run_keys([agreed.config.seed])
    own_keys = jax.vmap(lambda key: jax.random.fold_in(key, PLATFORMS))(keys)
    states, own = simulator.start(keys, agreed.protocol.parties(own_keys), per_run=True)
    states, own, seen = simulator.advance(keys, states, None, own, 0, rounds)
    expected, own = np.asarray(simulator.server(states).model)[0], jax.tree.map(lambda leaf: np.asarray(leaf)[0], own)
    np.testing.assert_allclose(load_file(tmp_path / "c" / "federated.safetensors")["model"], expected, rtol=1e-5)
    for index, home in enumerate(homes):
        there = PlanningPlatform(
            agreed, index, PlatformFolder(home).open_store(f"platform {index}", agreed, True), seeded=True
        )
        assert there.lived == rounds - 1 and there.alone == 0
        np.testing.assert_array_equal(there._own.sums, own.sums[index])
        np.testing.assert_allclose(there._own.learnt.table, own.learnt.table[index], rtol=1e-4)
    engagement = [json.loads(line)["engagement"] for line in (tmp_path / "users.jsonl").read_text().splitlines()]
    users = np.asarray(seen["world"]["engagement"])[:, 0].reshape(-1, stay, k).sum(axis=1)
    np.testing.assert_allclose(engagement, users, rtol=1e-4)
    entries = Ledger.read(tmp_path / "c" / "ledger.jsonl")
    assert max(entry.round for entry in entries) == last // 10 * 10
    if how == "once":  # two questions and answers with five sums, and four weights to each
        assert sum(entry.bytes for entry in entries) == 2 * (5 + 21) + 2 * (17 + 1)
    else:  # seven messages a platform and sum at least, each of a size that a secure sum has
        masked = [entry for entry in entries if entry.message == "MaskedVector"]
        assert sum(entry.messages for entry in masked) >= 3 * k and not any(e.message == "Statistics" for e in entries)


def test_platforms_and_coordinator_that_are_killed_learn_what_a_simulator_learns(tmp_path):
    agreed = Terms.of(from_dict({**SETTINGS, "rounds": ROUNDS, "evaluation": {"every": 10}}))
    config, homes = tmp_path / "run.toml", [tmp_path / "a", tmp_path / "b"]
    config.write_text(to_toml(agreed.config))
    everybody = ["--config", config, "--wait", "--chance", "seed"]
    which = [word for home in homes for word in ("--platform", home)]

    def platform(index):
        return started(tmp_path, "slates", "serve", homes[index], "--index", index, *everybody)

    def coordinator():
        return started(tmp_path, "slates", "coordinate", tmp_path / "c", *which, *everybody)

    def killed(process):
        process.send_signal(signal.SIGKILL)
        process.wait()

    running = {}
    try:
        running["a"], running["b"] = platform(0), platform(1)
        until("platforms listen", running.values(), lambda: all((home / "application.url").exists() for home in homes))
        ports = [PlatformFolder(home).url("coordinator").rpartition(":")[2] for home in homes]
        application = [PlatformFolder(home).url("application").rpartition(":")[2] for home in homes]
        running["users"] = started(
            tmp_path, "slates", "simulate", *which, *everybody, "--out", tmp_path / "users.jsonl"
        )
        running["c"] = coordinator()
        until("some rounds", running.values(), lambda: rounds_of(tmp_path / "c") >= 8)
        killed(running["a"])
        # At the same ports, where the others come again.
        again = ["--port", ports[0], "--application-port", application[0]]
        running["a"] = started(tmp_path, "slates", "serve", homes[0], "--index", 0, *everybody, *again)
        until("more rounds", running.values(), lambda: rounds_of(tmp_path / "c") >= 16)
        killed(running["c"])
        running["c"] = coordinator()
        assert running["c"].wait(LONGEST) == 0, (tmp_path / "said.txt").read_text()
        assert running["users"].wait(LONGEST) == 0, (tmp_path / "said.txt").read_text()
    finally:
        ended(running.values())
    assert running["a"].returncode == running["b"].returncode == 0, "a platform that is told to stop ends well"

    simulator, keys = Simulator(agreed.protocol), run_keys([agreed.config.seed])
    own_keys = jax.vmap(lambda key: jax.random.fold_in(key, PLATFORMS))(keys)
    states, own = simulator.start(keys, agreed.protocol.parties(own_keys), per_run=True)
    states, own, seen = simulator.advance(keys, states, None, own, 0, ROUNDS)
    federated = load_file(tmp_path / "c" / "federated.safetensors")
    for name in ("weights", "target"):
        expected = np.asarray(getattr(simulator.server(states), name))[0]
        np.testing.assert_allclose(federated[name], expected, rtol=1e-5, atol=1e-5, err_msg=name)
    for index, home in enumerate(homes):
        there = Platform(agreed, index, PlatformFolder(home).open_store(f"platform {index}", agreed, True), seeded=True)
        there._end_rounds(ROUNDS)
        assert there.lived == ROUNDS - 1 and there.alone == 0
        for name in ("weights", "target", "mean"):
            expected = np.asarray(getattr(own, name))[0, index]
            np.testing.assert_allclose(np.asarray(getattr(there._own, name)), expected, rtol=1e-5, atol=1e-5)
    crossed = np.asarray(seen["crossed"])[:, 0]
    got = {}
    for entry in Ledger.read(tmp_path / "c" / "ledger.jsonl"):
        key = entry.round, entry.exchange, entry.sender
        got[key] = got.get(key, 0) + entry.messages
    expected = {}
    for first in range(0, ROUNDS, 10):
        for place, exchange in enumerate(agreed.exchanges):
            for column, sender in enumerate(("server", "parties")):
                count = int(crossed[first : first + 10, place, column].sum())
                key = first, exchange.name, sender
                expected[key] = expected.get(key, 0) + count
    assert got == {key: count for key, count in expected.items() if count}
