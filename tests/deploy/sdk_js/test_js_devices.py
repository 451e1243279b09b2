"""Devices of the JavaScript SDK and a real hub on loopback, each in a process of its own."""

import contextlib
import json
import sqlite3
import struct
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from js_sdk import LONGEST, asked, built, devices, hub

from fedrank.deploy.hub.audit import replay_log

pytestmark = pytest.mark.minutes

DEVICES, ROUNDS = 6, 3
PRIVATE = dict(mechanism="piecewise", epsilon=4.0, participations=ROUNDS, interactions=3)
RESPONSE = dict(p=0.9, ranker="mlp", hidden=4, reward="nDCG", depth=5)


def reports_of(home):
    """Reports that a hub counted, (round, message), as they stand in its log."""
    with contextlib.closing(sqlite3.connect(f"file:{home.log}?mode=ro", uri=True)) as db:
        return Counter(db.execute("SELECT round, message FROM report").fetchall())


def refused(answer):
    status, _, body = answer
    return status, json.loads(body)["error"]


@pytest.mark.parametrize("settings", [PRIVATE, RESPONSE], ids=["piecewise", "randomised-response"])
def test_devices_search_click_and_report_until_the_model_has_changed(tmp_path, settings):
    bundle, sent = built(), Counter()
    with hub(tmp_path / "hub", n_features=5, cohort=DEVICES, deadline=0.0, rounds=ROUNDS, **settings) as home:
        url, terms = home.url("hub"), home.open(read_only=True)[0].terms()
        with devices(bundle, url, home.token("enrolment")) as report:
            for number in range(ROUNDS):
                told = report(range(DEVICES - 1))
                first = told[0]
                path, body = f"/v1/report/{first['round']}", bytes.fromhex(first["body"])
                assert {one["round"] for one in told} == {number}
                # The round is still open: the same report is known again, and another one does not count.
                other = body[:1] + bytes([body[1] ^ 1]) + body[2:]  # another seed
                assert asked(url, "POST", path, first["token"], body)[0] == 200
                assert refused(asked(url, "POST", path, first["token"], other)) == (409, "conflict")
                told += report([DEVICES - 1])
                for one in told:
                    sent[number, bytes.fromhex(one["body"])] += 1
                    assert one["messages"] == number + 1 and one["epsilon"] == pytest.approx(terms.epsilon_message)
                    assert terms.reply.decode(bytes.fromhex(one["body"]))
            tokens = [one["token"] for one in told]
            assert len(set(tokens)) == DEVICES
        end = time.monotonic() + LONGEST
        while (answer := asked(url, "GET", "/v1/model", tokens[0]))[1]["Fedrank-State"] != "done":
            assert time.monotonic() < end, "training is not over"
            time.sleep(0.05)
        model = answer[2]
        assert refused(asked(url, "POST", f"/v1/report/{ROUNDS - 1}", tokens[0], other)) == (410, "done")
    assert reports_of(home) == sent and sent.total() == DEVICES * ROUNDS
    found = replay_log(home.path)
    assert found.proven
    weights = np.frombuffer(model[5:], "<f4")
    np.testing.assert_array_equal(np.asarray(found.weights, np.float32), weights)
    (round_,) = struct.unpack("<I", model[1:5])
    assert round_ == ROUNDS and np.abs(weights).max() > 0


def test_devices_send_no_more_than_the_terms_allow(tmp_path):
    settings = dict(PRIVATE, participations=1)
    with (
        hub(tmp_path / "hub", n_features=3, cohort=2, deadline=0.0, rounds=2, **settings) as home,
        devices(built(), home.url("hub"), home.token("enrolment")) as report,
    ):
        assert [one["messages"] for one in report([0, 1])] == [1, 1]
        assert [one["messages"] for one in report([2, 3])] == [1, 1]  # others have to go on
    assert sorted(round_ for round_, _ in reports_of(home).elements()) == [0, 0, 1, 1]


def test_devices_try_the_seeds_that_the_hub_draws_too(tmp_path):
    settings = dict(PRIVATE, drawn_seeds=True, participations=20)
    with (
        hub(tmp_path / "hub", n_features=3, cohort=3, deadline=5.0, **settings) as home,
        devices(built(), home.url("hub"), home.token("enrolment")) as report,
    ):
        for _ in range(3):  # a hub refuses any other seed
            assert len(report([0, 1, 2])) == 3
    rounds = [round_ for round_, _ in reports_of(home).elements()]
    assert len(rounds) == 9 and min(rounds) > 0  # in the first round everybody is new
