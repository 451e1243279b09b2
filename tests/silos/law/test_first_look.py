"""The first look: what messages find is what the rows at one place give, in a simulator and over a network."""

import json

import numpy as np
import pytest

from fedrank.core.errors import RunError
from fedrank.engine.deployment import NodeSettings
from fedrank.engine.simulator import run_setup
from fedrank.silos.build import build_silos
from fedrank.silos.data.tables import Silo, SiloTable
from fedrank.silos.first_look import FirstLook, pack, unpack
from fedrank.silos.sceptic import summary
from fedrank.silos.sceptic.compare import answer
from fedrank.silos.sceptic.learners import Own
from fedrank_flower.rounds import LocalNetwork
from fedrank_flower.server_app import serve
from fedrank_flower.settings import read_run

WAYS = ("alone", "as-they-are", "averaged", "shrunk")


@pytest.fixture(autouse=True)
def one_penalty(monkeypatch):
    """Choosing a penalty takes most of the time, and is the same function everywhere."""
    monkeypatch.setattr(summary, "choose_penalty", lambda own, rng: 3.0)


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


def at_one_place(silos, target):
    rows = tuple(Silo(f"s{k}", own.x, own.y.astype(np.int8), person=own.person) for k, own in enumerate(silos))
    columns = tuple(f"column {k + 1}" for k in range(silos[0].x.shape[1]))
    return answer(SiloTable("made", rows, columns, "y"), target, seed=7, ways=WAYS)


def spoilt(kind):
    silos = federation()
    x, y, _ = silos[1]
    silos[1] = {
        "inverted": lambda: Own(x, 1 - y),
        "constant": lambda: Own(x, np.ones(len(y))),
        "twice": lambda: Own(np.concatenate([x, x]), np.concatenate([y, y])),
        "units": lambda: Own(x * [1, 39.37, 1, 1], y),
        "visits": lambda: Own(x, y, np.arange(len(y)) // 2),
    }[kind]()
    return silos


@pytest.mark.parametrize(
    ("target", "kind"), [(0, "inverted"), (3, "units"), (0, "twice"), (3, "constant"), (1, "visits")]
)
def test_what_messages_find_is_what_the_rows_at_one_place_give(target, kind):
    silos = spoilt(kind)
    state, _, ledger = looked(silos, target, through_bytes=True)
    expected, found = at_one_place(silos, target), state.looked
    for mine, theirs in zip(found.verdicts, expected.verdicts, strict=True):
        assert mine.silo == theirs.silo and mine.word == theirs.word
        np.testing.assert_allclose([*mine.gain, mine.p, mine.visible], [*theirs.gain, theirs.p, theirs.visible], 1e-12)
    assert [(one.silo, one.kind) for one in found.probes.alarms] == [
        (one.silo, one.kind) for one in expected.probes.alarms
    ]
    assert kind == "visits" or (1, kind) in [(one.silo, one.kind) for one in found.probes.alarms]
    np.testing.assert_allclose([*found.auc, *found.over_alone], [*expected.auc, *expected.over_alone], 1e-12)
    assert list(found.weights.values()) == pytest.approx(list(expected.partners.values()))
    names = [f"s{k}" for k in range(4)]
    told = found.as_json(names)
    assert told["target"] == names[target] and set(told["silos"]) == set(names) - {names[target]}
    sent = {entry.exchange: entry.messages for entry in ledger if entry.sender == "parties"}
    assert sent == {"look-summaries": 4, "look-judge": 1}


def test_numbers_cross_as_they_are():
    values = np.array([[0.1, -1e300], [np.nan, 5e-324]])
    np.testing.assert_array_equal(unpack(pack(values)), values)


def test_without_a_silo_there_is_no_look():
    with pytest.raises(RunError, match="not heard"):
        looked(federation(), 0, absent=[("look-summaries", 2)])


def test_few_rows_of_one_label_leave_folds_empty():
    silos = federation(3)
    silos[0] = Own(silos[0].x, (np.arange(60) < 4).astype(float))
    state, _, _ = looked(silos, 0)
    expected = at_one_place(silos, 0)
    gains = [v.gain.value for v in expected.verdicts]
    np.testing.assert_allclose([v.gain.value for v in state.looked.verdicts], gains, 1e-12)


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
    expected = answer(table, 1, seed=config.seed, ways=WAYS)
    assert set(told["silos"]) == {table.names[k] for k in (0, 2, 3)}
    assert told["auc"]["value"] == pytest.approx(expected.auc.value, abs=1e-12)
    for one in expected.verdicts:
        mine = told["silos"][table.names[one.silo]]
        assert mine["verdict"] == one.word
        assert mine["gain"] == pytest.approx(one.gain.value, abs=1e-12)
        assert mine["p"] == pytest.approx(one.p, rel=1e-9)
        assert mine["weight"] == pytest.approx(expected.partners[table.names[one.silo]])
