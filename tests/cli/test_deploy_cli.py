"""``fedrank hub serve``, ``simulate`` and ``replay`` as a person at a terminal sees them."""

import dataclasses
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pytest
from hubs import trial_settings
from scipy.stats import binom, poisson

from fedrank.cli.main import call
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.hub.service import why_reset, why_void
from fedrank.deploy.hub.settings import HubSettings, expect_messages, fit_private
from fedrank.privacy.piecewise import clipped_second_moment
from fedrank.ranking.schedule import Schedule, choose_schedule


def fedrank(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "fedrank", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        **options,
    )


def test_a_hub_and_a_fleet_learn_together(tmp_path):
    """The tutorial's two commands, in small; then the log is replayed and looked into."""
    home = HubFolder(tmp_path / "hub")
    hub = fedrank(
        "hub",
        "serve",
        home.path,
        "--trial",
        "--n-features",
        46,
        "--cohort",
        3,
        "--rounds",
        2,
        "--deadline",
        0,
        "--port",
        0,
        "--least",
        1,
    )
    try:
        end = time.monotonic() + 60
        while not home.url_path("hub").exists():
            assert hub.poll() is None and time.monotonic() < end
            time.sleep(0.05)
        people = fedrank("hub", "simulate", home.path, "--devices", 3, "--pause", 0.1, "--json")
        out, err = people.communicate(timeout=90)
        assert people.returncode == 0, err
        seen = json.loads(out)
        assert (seen["state"], seen["round"], seen["devices"]) == ("done", 2, 3)
        assert seen["bytes"]["reports"] == 2 * 3 * 6
        assert "3 devices running" in err
        hub.send_signal(signal.SIGTERM)
        out, err = hub.communicate(timeout=30)
        assert hub.returncode == 0, err
        assert out.splitlines()[1].endswith("/status") and "enrolment.token" in out
        assert not home.url_path("hub").exists()
    finally:
        for process in (hub,):
            if process.poll() is None:
                process.kill()
                process.communicate()
    with sqlite3.connect(home.log) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        of_devices = {"device", "report", "member", "credential", "code", "admission"}
        of_rounds = {"hub", "round", "judgement", "watch", "halt", "entry", "node", "rotation", "sqlite_sequence"}
        of_tokens = {"issuer", "purchase", "secret"}  # empty in a trial
        assert tables == of_devices | of_rounds | of_tokens | {"challenge", "state"}
        assert [row[1] for row in db.execute("PRAGMA table_info(report)")] == ["round", "device", "message"]
        assert [row[1] for row in db.execute("PRAGMA table_info(device)")] == ["number", "token", "day"]
        assert {len(m) for (m,) in db.execute("SELECT message FROM report")} == {6}
    assert call(["hub", "replay", str(home.path)]) == 0


def test_a_replay_says_what_it_found(tmp_path, capsys):
    home = HubFolder(tmp_path / "hub")
    home.prepare(trial_settings(n_features=5, cohort=2))
    assert call(["hub", "replay", str(home.path), "--json", "--out", str(tmp_path / "model.safetensors")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rounds"], found["reports"], found["proven"], found["weights"]) == (0, 0, None, [0.0] * 5)
    assert (tmp_path / "model.safetensors").stat().st_size > 5 * 4
    assert call(["hub", "replay", str(home.path), "--without", "1"]) == 1
    assert "device 1 has no report" in capsys.readouterr().err
    assert call(["hub", "replay", str(tmp_path)]) == 1
    assert "no hub here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "n_features"),
        (["--n-features", "5", "--certificate", "a.pem"], "both --certificate and --key"),
        (["--n-features", "5", "--certificate", "a.pem", "--key", "b.pem"], "a.pem"),
        (["--n-features", "5", "--p", "0.9", "--interactions", "3"], "even"),
        (["--n-features", "5", "--host", "192.0.2.1"], "192.0.2.1"),
    ],
)
def test_a_hub_that_cannot_be_says_why(tmp_path, capsys, monkeypatch, flags, words):
    monkeypatch.chdir(tmp_path)
    assert call(["hub", "serve", "hub", *flags]) in (1, 2)
    assert words in capsys.readouterr().err


def test_a_port_that_is_taken_is_named(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert call(["hub", "serve", str(tmp_path / "hub"), "--n-features", "5", "--port", str(port)]) == 1
    assert f"port {port}" in capsys.readouterr().err
    assert not HubFolder(tmp_path / "hub").url_path("hub").exists()


def test_the_flags_of_the_first_start_are_kept(tmp_path, capsys):
    folder = str(tmp_path / "hub")
    with socket.create_server(("127.0.0.1", 0)) as taken:  # so that the command ends
        port = ["--port", str(taken.getsockname()[1])]
        assert call(["hub", "serve", folder, "--trial", "--n-features", "5", "--cohort", "7", *port]) == 1
        assert call(["hub", "serve", folder, "--deadline", "60", *port]) == 1
        settings = HubFolder(folder).open()[0]
        assert (settings.n_features, settings.cohort, settings.deadline) == (5, 7, 60.0)
        capsys.readouterr()
        assert call(["hub", "serve", folder, "--sigma", "0.5", *port]) == 1
        assert "sigma cannot be changed" in capsys.readouterr().err
        assert call(["hub", "serve", folder, "--cohort", "100", *port]) == 1
        assert HubFolder(folder).open()[0].cohort == 100  # a default can be gone back to


def test_a_new_hub_is_private_and_what_is_not_said_fits_the_number_of_devices(tmp_path, capsys):
    """Divisions of all messages as the schedule of runs has them; a round as long as its searches take."""
    with socket.create_server(("127.0.0.1", 0)) as taken:  # so that the command ends
        port = ["--port", str(taken.getsockname()[1])]
        for name, flags in {
            "default": (),
            "few": ("--devices", "50"),
            "busy": ("--devices", "1000000", "--searches", "10", "--participations", "2", "--epsilon", "0.5"),
        }.items():
            assert call(["hub", "serve", str(tmp_path / name), "--n-features", "5", *flags, *port]) == 1
    read = {name: HubFolder(tmp_path / name).open()[0] for name in ("default", "few", "busy")}
    for one, devices, searches, life in (
        (read["default"], 200_000, 3.0, 1),
        (read["few"], 50, 3.0, 1),
        (read["busy"], 1_000_000, 10.0, 2),
    ):
        terms = one.terms()
        assert terms.epsilon_life == 1.0 and terms.number_mechanism is not None and terms.interleaved and terms.log
        assert terms.tokens == 1 and terms.drawn_seeds and terms.checks == 0.1 and not one.trial
        learning = one.rounds - 1  # in the first round tokens are sold
        sending = one.due * binom.cdf(life - 1, np.arange(learning), one.due)  # part of the devices, in each round
        assert one.cohort == int(0.9 * devices * sending[0]) and sending[0] == sending.max()
        moment = clipped_second_moment(terms.epsilon_message)
        made = choose_schedule(int(0.9 * devices * sending.sum()), moment, 365 * searches / 1.5)
        assert (one.interactions, learning, one.learning_rate) == (made.interactions, made.rounds, made.learning_rate)
        assert one.learning_rate == pytest.approx(0.4 / learning)
        assert one.round_seconds == one.deadline == pytest.approx(1.5 * 86_400 * one.interactions / searches)
        assert learning * (one.interactions - 1) <= 365 * searches / 1.5  # a year, but for whole searches
    assert read["default"] == HubSettings(n_features=5, log=read["default"].log, operator=read["default"].operator)


@pytest.mark.parametrize("life", [1, 2, 5])
@pytest.mark.parametrize("devices", [2_000, 200_000])
def test_the_rounds_of_a_new_hub_have_messages_enough_to_the_end(devices, life):
    """The draw that makes the noise of all steps least, by search; the messages of devices, by simulation."""
    made = fit_private(devices, days=10_000.0, participations=life)
    rounds = made["rounds"] - 1

    def noise(due):
        return np.sum(1 / (due * binom.cdf(life - 1, np.arange(rounds), due)))

    assert noise(made["due"]) < 1.005 * min(noise(due) for due in np.linspace(0.5, 3.0, 500) * life / rounds)
    draws = np.random.default_rng(0).random((4000, rounds)) < made["due"]
    sent = np.minimum(draws.sum(axis=1), life)
    assert expect_messages(made["due"], rounds, life) == pytest.approx(sent.mean(), abs=4 * sent.std() / 4000**0.5)
    assert sent.mean() > 0.78 * life and made["cohort"] == int(0.9 * devices * made["due"])


def test_a_hub_whose_devices_are_too_few_for_its_tokens_is_refused(tmp_path, capsys):
    few = ["--n-features", "5", "--devices", "15"]
    with socket.create_server(("127.0.0.1", 0)) as taken:  # so that the command ends
        port = ["--port", str(taken.getsockname()[1])]
        assert call(["hub", "serve", str(tmp_path / "no"), *few, *port]) == 1
        assert "least_sales = 20" in capsys.readouterr().err and not (tmp_path / "no").exists()
        for name, flags in {
            "lower": [*few, "--least-sales", "15"],
            "trial": [*few, "--trial"],
            "more": ["--n-features", "5", "--devices", "20"],
        }.items():
            assert call(["hub", "serve", str(tmp_path / name), *flags, *port]) == 1
            assert why_void(HubFolder(tmp_path / name).open()[0]) == ""
    before = dataclasses.replace(HubFolder(tmp_path / "lower").open()[0], least_sales=20)
    assert why_void(before)  # as hubs were made before they were refused


def test_a_round_is_long_enough_for_most_users(monkeypatch):
    for interactions, least in ((4, 0.84), (22, 0.98), (128, 0.999)):
        monkeypatch.setattr("fedrank.deploy.hub.settings.choose_schedule", lambda *_: Schedule(50, interactions, 99))  # noqa: B023
        days = fit_private(searches=2.0)["round_seconds"] / 86_400
        assert poisson.sf(interactions - 1, 2.0 * days) > least


@pytest.mark.parametrize(
    ("status", "host", "proxies", "public"),
    [
        ("auto", "127.0.0.1", [], True),
        ("auto", "::1", [], True),
        ("auto", "127.0.0.1", ["127.0.0.1"], False),
        ("auto", "0.0.0.0", [], False),
        ("public", "0.0.0.0", ["127.0.0.1"], True),
        ("admin", "127.0.0.1", [], False),
    ],
)
def test_the_status_is_everybodys_only_where_nobody_else_comes(tmp_path, monkeypatch, status, host, proxies, public):
    served = []

    def serve(app, **options):
        served.append((app._exact["/status"].authorise is None, options["proxies"]))

    monkeypatch.setattr("fedrank.deploy.http.server.serve", serve)
    more = [word for proxy in proxies for word in ("--proxies", proxy)]
    assert call(["hub", "serve", str(tmp_path), "--n-features", "5", "--status", status, "--host", host, *more]) == 0
    assert served == [(public, tuple(proxies))]


@pytest.mark.parametrize(
    ("flags", "trial"),
    [
        (["--trial"], True),
        (["--trial=true"], True),
        (["--no-trial"], False),
        (["--trial=false"], False),
        (["--no-collect"], False),
        ([], False),
    ],
)
def test_the_value_of_a_switch_decides_on_the_settings_of_a_trial(tmp_path, capsys, flags, trial):
    folder = str(tmp_path / "hub")
    with socket.create_server(("127.0.0.1", 0)) as taken:  # so that the command ends
        port = ["--port", str(taken.getsockname()[1])]
        assert call(["hub", "serve", folder, "--n-features", "5", *flags, *port]) == 1
        settings = HubFolder(folder).open()[0]
        assert (settings.trial, settings.tokens, settings.participations) == (trial, 1 - trial, 1 - trial)
        capsys.readouterr()
        assert call(["hub", "serve", folder, "--no-trial" if trial else "--trial", *port]) == 1
        assert "trial cannot be changed" in capsys.readouterr().err


def test_a_hub_warns_while_the_operators_key_lies_in_its_folder(tmp_path):
    home = HubFolder(tmp_path / "hub")
    home.prepare(trial_settings(n_features=3))
    assert "operator.key" in why_reset(home.path)
    (home.path / "operator.key").rename(tmp_path / "operator.key")
    assert why_reset(home.path) == ""
