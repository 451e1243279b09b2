"""The first look: verdicts of messages are those of the rows at one place, in a simulator and over a network."""

import json

import numpy as np
import pytest

from fedrank.core.errors import RunError
from fedrank.deploy.flower.rounds import LocalNetwork
from fedrank.deploy.flower.server_app import serve
from fedrank.deploy.flower.settings import read_run
from fedrank.engine.deployment import NodeSettings
from fedrank.engine.setup import run_setup
from fedrank.silos import first_look as protocol
from fedrank.silos.build import build_silos
from fedrank.silos.first_look import FirstLook, pack, unpack
from fedrank.silos.sceptic import verdicts as verdict_module
from fedrank.silos.sceptic.learners import Own, rows_of
from fedrank.silos.sceptic.verdicts import draw_of, verdicts


@pytest.fixture(autouse=True)
def one_penalty(monkeypatch):
    """Choosing a penalty takes most of the time, and is the same function everywhere."""
    for module in (protocol, verdict_module):
        monkeypatch.setattr(module, "choose_penalty", lambda own, rng: 3.0)


def federation(seed=0, sizes=(60, 50, 70, 40), columns=4):
    rng = np.random.default_rng(seed)
    out = []
    for rows in sizes:
        x = rng.standard_normal((rows, columns)) * [1, 100, 0.01, 1] + [0, 3, 5, 0]
        y = (rng.random(rows) < 1 / (1 + np.exp(-2 * x[:, 0] + 1))).astype(float)
        x[rng.random(x.shape) < 0.05] = np.nan
        out.append(Own(x, y))
    return out


def looked(silos, target, **how):
    look = FirstLook(len(silos), silos[0].x.shape[1], target, seed=7)
    parties = [look.party(own, number) for number, own in enumerate(silos)]
    return run_setup(look, parties, np.random.default_rng(0), **how)


@pytest.mark.parametrize("target", [0, 3])
def test_verdicts_of_messages_are_those_of_the_rows_at_one_place(target):
    silos = federation()
    silos[1] = Own(silos[1].x, 1 - silos[1].y)
    state, _, ledger = looked(silos, target, through_bytes=True)
    expected = verdicts(silos, target, draw_of(7, target))
    for mine, theirs in zip(state.looked.verdicts, expected, strict=True):
        assert mine.silo == theirs.silo and mine.word == theirs.word
        np.testing.assert_allclose([*mine.gain, mine.p, mine.visible], [*theirs.gain, theirs.p, theirs.visible], 1e-9)
    assert 1 in state.looked.inverted
    names = [f"s{k}" for k in range(4)]
    told = state.looked.as_json(names)
    assert told["target"] == names[target] and set(told["silos"]) == set(names) - {names[target]}
    assert any("inverted" in said for said in told["warnings"])
    sent = {entry.exchange: entry.messages for entry in ledger if entry.sender == "parties"}
    asked = [sent[f"look-newton-{number + 1}"] for number in range(7)]
    assert sent["look-judge"] == 1 and sent["look-totals"] == 4
    assert set(asked) == {0, 4} and asked == sorted(asked, reverse=True), "nobody is asked once models stand still"


def test_numbers_cross_as_they_are():
    values = np.array([[0.1, -1e300], [np.nan, 5e-324]])
    np.testing.assert_array_equal(unpack(pack(values)), values)


def test_without_a_silo_there_is_no_look():
    with pytest.raises(RunError, match="not heard"):
        looked(federation(), 0, absent=[("look-newton-2", 2)])


def test_few_rows_of_one_label_leave_folds_empty():
    silos = federation(3)
    silos[0] = Own(silos[0].x, (np.arange(60) < 3).astype(float))
    state, _, _ = looked(silos, 0)
    expected = verdicts(silos, 0, draw_of(7, 0))
    np.testing.assert_allclose([v.gain.value for v in state.looked.verdicts], [v.gain.value for v in expected], 1e-9)


def test_a_network_of_four_nodes_finds_what_the_rows_say(tmp_path):
    values = {
        "protocol": "bandit-fedavg",
        "silos-target": "1",
        "silos-rows": 80,
        "silos-first-look": True,
        "network-widths": "2",
        "network-norm": "none",
        "network-epochs": 1,
        "bandit-rule": "ucb",
        "bandit-pretrain": False,
        "num-server-rounds": 1,
        "min-available-nodes": 4,
        "checkpoint-dir": str(tmp_path / "kept"),
    }
    nodes = [NodeSettings(k, 4, chance="seed", state_dir=str(tmp_path / str(k))) for k in range(4)]
    serve(values, LocalNetwork(values, nodes))
    (told,) = json.loads((tmp_path / "kept" / "first_look.json").read_text()).values()
    config, _ = read_run(values)
    table = build_silos(config).table
    expected = verdicts(rows_of(table), 1, draw_of(config.seed, 1))
    assert set(told["silos"]) == {table.names[k] for k in (0, 2, 3)}
    for one in expected:
        mine = told["silos"][table.names[one.silo]]
        assert mine["verdict"] == one.word
        assert mine["gain"] == pytest.approx(one.gain.value, abs=1e-12)
        assert mine["p"] == pytest.approx(one.p, rel=1e-9)
