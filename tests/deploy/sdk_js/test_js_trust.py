"""The JavaScript SDK at a hub that nobody has to trust: tokens, a relay, statements of a platform, checks."""

import contextlib
import dataclasses
import hashlib
import json
import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from hubs import make
from js_sdk import built, devices, hub
from relay_worlds import FEATURES, relayed
from token_worlds import ENROLMENT, token_app

from fedrank.deploy.http.routes import json_response
from fedrank.deploy.hub import service
from fedrank.deploy.hub.attestation import Attestor, Door, NotAttestedError
from fedrank.deploy.hub.audit import audit_folder, replay_log
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.hub.tokens import new_offer
from fedrank.deploy.oblivious.relay import RelaySettings
from fedrank_zoo.threaded_server import ThreadedServer

pytestmark = pytest.mark.minutes

PRIVATE = dict(mechanism="piecewise", epsilon=4.0, interactions=1)


def rows(home, query):
    with closing(sqlite3.connect(f"file:{home.log}?mode=ro", uri=True)) as db:
        return db.execute(query).fetchall()


def test_devices_report_with_tokens_whose_keys_and_draws_the_log_has(tmp_path):
    with (
        hub(tmp_path / "hub", n_features=4, tokens=2, cohort=99, least=1, deadline=1.0, **PRIVATE) as home,
        devices(built(), home.url("hub"), home.token("enrolment")) as report,
    ):
        told = [one for _ in range(3) for one in report([0, 1, 2])]
    sent = {(one["round"], bytes.fromhex(one["body"])) for one in told}
    counted = rows(home, "SELECT round, message, device FROM report")
    assert len(told) == 9 and sent <= {row[:2] for row in counted}
    numbers = {number for _, _, number in counted}
    assert len(numbers) == len(counted) and not numbers & {n for (n,) in rows(home, "SELECT number FROM device")}
    assert replay_log(home.path).proven and audit_folder(home.path).wrong == []


def test_pages_from_before_and_after_a_backup_go_on_with_the_hub_that_is_put_back(tmp_path):
    """A hub with tokens and a log; its copy listens where it did."""
    home = make(tmp_path / "hub", n_features=4, tokens=1, cohort=99, least=1, deadline=1.0, **PRIVATE)
    with contextlib.ExitStack() as stack:
        with ThreadedServer(service.hub_app(home)[1]) as first:
            report = stack.enter_context(devices(built(), first.url, home.token("enrolment")))
            assert not any(one["putBack"] for one in report([0, 1]))
            home.back_up(tmp_path / "copy")
            assert not any(one["putBack"] for one in report([0, 1, 2]))
        HubFolder(tmp_path / "copy").restore(tmp_path / "restored", home.path / "operator.key")
        stack.enter_context(ThreadedServer(service.hub_app(HubFolder(tmp_path / "restored"))[1], port=first.port))
        told = report([0, 1, 2])
    found = audit_folder(tmp_path / "restored")
    assert [one["putBack"] for one in told] == [list(found.put_back)] * 3 and len(found.put_back) == 1
    assert found.wrong == [] and replay_log(tmp_path / "restored").proven


def test_through_a_relay_the_hub_sees_one_size_and_nobody(tmp_path):
    through = RelaySettings(batch=1, seconds=2.0, company=0.05, trial=True)
    everything = dict(due=0.9, drawn_seeds=True, checks=0.4, least_sales=2, **PRIVATE)
    settings = dict(tokens=2, cohort=99, deadline=7.0, batch=1, relay=through, **everything)
    with relayed(tmp_path, **settings) as world:
        seen, original = [], world.app.__class__.__call__

        async def watched(self, scope, receive, send):
            if scope["type"] == "http" and scope["client"] != ("", 0):
                headers = dict(scope["headers"])
                seen.append((scope["path"], headers.get(b"content-length"), b"authorization" in headers))
            await original(self, scope, receive, send)

        world.app.__class__.__call__ = watched
        try:
            with devices(built(), world.url, ENROLMENT, relay=world.relay, together=True) as report:
                told = [one for _ in range(3) for one in report(range(6))]
        finally:
            world.app.__class__.__call__ = original
        assert set(seen) == {("/v1/oblivious", b"1079", False)}
        with closing(sqlite3.connect(tmp_path / "hub" / "hub.db")) as db:
            counted = db.execute("SELECT round, message, device FROM report").fetchall()
        sent = {(one["round"], bytes.fromhex(one["body"])) for one in told}
        assert len(told) == 18 and sent <= {row[:2] for row in counted} and {one[0] & 31 for _, one in sent} == {5, 7}
        assert len({number for *_, number in counted}) == len(counted) and min(row[2] for row in counted) > 2**32
        assert "not-due" not in world.app.counters.refusals_by_reason()


@pytest.mark.parametrize(
    ("changed", "through", "said"),
    [
        ({}, False, "go through a relay"),
        ({"batch": 3}, True, "passes on 1 reports"),
        ({"gateway": "ab" * 32}, True, "not those that the hub gave"),  # the log has the terms of all devices
    ],
)
def test_without_the_relay_of_the_terms_nothing_is_sent(tmp_path, changed, through, said):
    with relayed(tmp_path, relay=RelaySettings(batch=1, seconds=1.0, company=0.05), tokens=1, batch=1) as world:
        enrol = world.app._enrol

        async def other_terms(request):
            response = await enrol(request)
            given = json.loads(response.payload["body"])
            return json_response(201, {**given, "terms": {**given["terms"], **changed}})

        world.app._exact["/v1/enrol"] = dataclasses.replace(world.app._exact["/v1/enrol"], respond=other_terms)
        with devices(built(), world.url, ENROLMENT, **({"relay": world.relay} if through else {})) as report:
            told = report([-1])[0]
        assert said in told["told"][1]["why"] and told["ledger"] == []
        assert world.hub.status()["reports"] == 0


def test_no_token_is_bought_with_a_key_that_the_log_does_not_have(tmp_path):
    app = token_app(make(tmp_path / "hub", n_features=FEATURES, tokens=1, cohort=2, **PRIVATE))
    with relayed(tmp_path, app=app, tokens=1) as world:
        app._issuer.offer = lambda _: (1, new_offer()[0])
        with devices(built(), world.url, ENROLMENT) as report:
            for _ in range(60):  # a device tries to buy at a random moment
                told = report([-1])[0]
                if told["said"]:
                    break
        assert [one["state"] for one in told["told"]] == ["OK", "OK"] and told["ledger"] == []
        assert any("the log does not say that" in line for line in told["said"])
        assert not [code for (route, code) in app.counters.requests if route == "token"]


@dataclass(frozen=True)
class Echo(Attestor):
    """Accepts statements that repeat the challenge, of one phone."""

    def check(self, statement, challenge, now):
        if statement["said"] != challenge.hex():
            raise NotAttestedError("wrong-challenge")
        if statement["of"] != "phone":
            raise NotAttestedError("wrong-device")
        return hashlib.sha256(challenge).digest()


def test_a_device_answers_a_challenge_of_its_hub(tmp_path, monkeypatch):
    monkeypatch.setattr(service, "door_of", lambda folder, kinds, hub, made: Door({"echo": Echo()}, "hub", made))
    home = make(tmp_path / "hub", n_features=FEATURES, cohort=1, attestation=("webauthn",), **PRIVATE)
    _, app = service.hub_app(home)
    with ThreadedServer(app) as server:
        for options, why in (({}, "attestation-needed"), ({"echo": "toaster"}, "not-attested, wrong-device")):
            with devices(built(), server.url, home.token("enrolment"), **options) as report:
                told = report([-1])[0]["told"][0]
            assert told["state"] == "RETRY" and why in told["why"]
        with devices(built(), server.url, home.token("enrolment"), echo="phone") as report:
            assert [one["messages"] for one in report([0])] == [1]
    assert len(rows(home, "SELECT number FROM device")) == 1


@pytest.mark.parametrize("mechanism", [PRIVATE, dict(p=0.9, interactions=2)], ids=["piecewise", "randomised-response"])
def test_devices_compare_the_newest_model_with_the_best(tmp_path, mechanism):
    settings = dict(n_features=4, cohort=8, checks=0.3, deadline=1.5, least=1, **mechanism)
    with (
        hub(tmp_path / "hub", **settings) as home,
        devices(built(), home.url("hub"), home.token("enrolment")) as report,
    ):
        told = [one for _ in range(5) for one in report(range(8))]
    counted = rows(home, "SELECT round, message FROM report")
    sent = [(one["round"], bytes.fromhex(one["body"])) for one in told]
    assert len(sent) == 40 and set(sent) <= set(counted)
    check = 7 if mechanism is PRIVATE else 6
    made = [round_ for round_, message in sent if message[0] & 31 == check]
    assert 1 <= len(made) <= 25 and 0 not in made  # about 0.3 of 32; the first round has none
    judged = dict(rows(home, "SELECT round, checks FROM judgement"))
    assert {round_: made.count(round_) for round_ in judged if round_ in made}.items() <= judged.items()
    assert judged and replay_log(home.path).proven
