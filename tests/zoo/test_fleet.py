"""A fleet's people click like the click model, and its processes end when they are told to."""

import json
import subprocess
import sys
import time

import numpy as np
import pytest
from worlds import tiny_queries

from fedrank.cli.main import call
from fedrank.core.errors import ConfigError, RunError
from fedrank.ranking.clicks.cascade import cascade, pattern_probabilities
from fedrank_zoo.fleet import command
from fedrank_zoo.fleet.device import Person
from fedrank_zoo.fleet.processes import FleetSettings, crashes, fleet, look, write_world

NOWHERE = "http://127.0.0.1:9"  # the discard port: nobody listens


@pytest.mark.parametrize("name", ["perfect", "navigational", "informational"])
def test_people_click_like_their_model(tmp_path, name):
    user = cascade(name, depth=3)
    write_world(tmp_path, tiny_queries(), user)
    person = Person(tmp_path, 0, 1, False, seed=1)
    labels = np.array([1, 0, 2, 2])  # the fourth is not read
    expected = pattern_probabilities(user, labels[:3], np.ones(3, bool))
    n = 20_000
    counts = np.zeros(8)
    for _ in range(n):
        counts[sum(1 << position for position in person.clicks(labels))] += 1
    # Each frequency within five standard deviations: a wrong model fails, a right one once in 10^5 runs.
    assert (np.abs(counts / n - expected) <= 5 * np.sqrt(expected * (1 - expected) / n) + 1e-12).all()


def test_people_ask_about_their_own_share(tmp_path):
    queries = tiny_queries()
    write_world(tmp_path, queries, cascade("perfect"))
    shares = [set(Person(tmp_path, number, 5, True, 0).queries.tolist()) for number in range(5)]
    assert set.union(*shares) == set(range(queries.n_queries))
    assert sum(map(len, shares)) == queries.n_queries
    person = Person(tmp_path, 2, 5, True, 0)
    for _ in range(20):
        features, labels = person.ask()
        found = [
            q
            for q in shares[2]
            if np.array_equal(features, np.float32(queries.features[queries.offsets[q] : queries.offsets[q + 1]]))
        ]
        assert found and len(labels) == len(features)
    assert Person(tmp_path, 13, 20, True, 0).ask()  # more devices than queries


def test_what_people_do_follows_from_the_seed_and_the_device(tmp_path):
    write_world(tmp_path, tiny_queries(), cascade("informational"))

    def life(number, seed):
        person = Person(tmp_path, number, 2, False, seed)
        return [tuple(person.clicks(person.ask()[1])) for _ in range(30)]

    assert life(0, 1) == life(0, 1)
    assert life(0, 1) != life(1, 1) != life(1, 2)


def test_devices_end_with_their_fleet(tmp_path):
    settings = FleetSettings(NOWHERE, "enrolment-token", devices=2)
    with fleet(settings, tiny_queries(), cascade("perfect"), tmp_path) as processes:
        end = time.monotonic() + 60  # a device makes its folder once it can be told to end
        while sum(1 for _ in tmp_path.glob("device-*")) < 2 and time.monotonic() < end:
            time.sleep(0.1)
        assert [p.poll() for p in processes] == [None, None]  # they try, and nobody answers
    assert [p.poll() for p in processes] == [0, 0]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["device-0000", "device-0001", "world"]


def test_devices_that_crash_are_named_with_how(tmp_path):
    programs = ("", "raise SystemExit(3)", "import os; os.kill(os.getpid(), 11)", "import os; os.kill(os.getpid(), 9)")
    processes = [subprocess.Popen([sys.executable, "-c", program]) for program in programs]
    running = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    for process in processes:
        process.wait(60)
    try:
        assert crashes([*processes, running]) == [
            "device 1: status 3",
            "device 2: signal SIGSEGV",
            "device 3: signal SIGKILL",
        ]
    finally:
        running.communicate(b"\n")


def test_a_device_ends_when_its_parent_is_gone(tmp_path):
    write_world(tmp_path / "world", tiny_queries(), cascade("perfect"))
    told = {
        "hub": NOWHERE,
        "enrolment": "enrolment-token",
        "pause": 0.1,
        "share": False,
        "seed": 0,
        "most_epsilon": 1.0,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "fedrank_zoo.fleet.device", str(tmp_path), "0", "1"], stdin=subprocess.PIPE
    )
    process.stdin.write(json.dumps(told).encode() + b"\n")
    process.stdin.close()  # as when the parent was killed
    assert process.wait(20) == 0


def test_a_fleet_is_checked(tmp_path):
    for wrong in (dict(devices=0), dict(seconds=-1.0), dict(pause=0.0), dict(most_epsilon=0.0)):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            FleetSettings(NOWHERE, "token", **wrong)
    assert look(NOWHERE) is None


def test_a_fleet_without_a_hub_says_so(tmp_path, capsys):
    assert call(["hub", "simulate", str(tmp_path / "hub")]) == 1
    assert "no hub is being served" in capsys.readouterr().err
    assert call(["hub", "simulate", "http://127.0.0.1:9"]) == 1
    assert "--enrolment" in capsys.readouterr().err
    (tmp_path / "enrolment.token").write_text("x" * 20)
    enrolment = ["--enrolment", str(tmp_path / "enrolment.token")]
    assert call(["hub", "simulate", "http://127.0.0.1:9", *enrolment, "--devices", "0"]) == 1
    assert "devices must be" in capsys.readouterr().err


def test_an_enrolment_token_is_read_from_a_file(tmp_path):
    """Every user of a machine can read the words of a command."""
    file = tmp_path / "enrolment.token"
    file.write_text("token-of-this-test\n", encoding="ascii")
    hub = "http://127.0.0.1:9"
    assert command._where(hub, file) == (hub, "token-of-this-test")
    file.write_bytes(b"\xff")
    with pytest.raises(RunError, match="cannot be read"):
        command._where(hub, file)
