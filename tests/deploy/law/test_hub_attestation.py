"""A hub that wants a statement of the platform: who gets in, with which challenge, how often."""

import asyncio
import base64
import contextlib
import json
import math
import secrets
from dataclasses import dataclass

import pytest
from hub_fakes import ENROLMENT, FakeHub, app_of, ask
from hubs import make, running, trial_settings

from fedrank.core.errors import ConfigError
from fedrank.deploy.device import Device
from fedrank.deploy.hub import attestation as challenges
from fedrank.deploy.hub.admission import NotAdmittedError
from fedrank.deploy.hub.attestation import MOST_STATEMENT, Attestor, Challenges, Door, NotAttestedError, door_of
from fedrank.deploy.hub.service import hub_app
from fedrank.deploy.hub.store import Store
from fedrank_zoo.threaded_server import ThreadedServer


@dataclass(frozen=True)
class Echo(Attestor):
    """Accepts statements that repeat the challenge."""

    def check(self, statement, challenge, now):
        if statement["of"] == "crash":
            raise KeyError
        if statement["said"] != challenge.hex():
            raise NotAttestedError("wrong-challenge")
        return str(statement["of"]).encode()


def a_door(at=(1000.0,), **kinds):
    now, used = list(at), set()

    def use(digest, until, at):
        return digest not in used and not used.add(digest)

    return Door(kinds or {"echo": Echo()}, "hub", Challenges(secrets.token_bytes(32), use), lambda: now[0]), now


def body(given, of="phone", kind="echo", **more):
    challenge = base64.urlsafe_b64decode(given["challenge"])
    made = {"kind": kind, "challenge": given["challenge"], "statement": {"said": challenge.hex(), "of": of}, **more}
    return json.dumps(made).encode()


def why(door, token, sent):
    try:
        door.identity(token, sent)
    except NotAttestedError as error:
        return error.reason
    return ""


def test_a_challenge_is_good_once_for_its_time_and_for_its_token():
    door, now = a_door()
    first, second, third = (door.challenge("token") for _ in range(3))
    assert len({one["challenge"] for one in (first, second, third)}) == 3
    assert why(door, "other token", body(first)) == "challenge-unknown"
    assert why(door, "token", body(first)) == ""
    assert why(door, "token", body(first)) == "challenge-used"
    assert why(door, "token", body(second, of="crash")) == "malformed"
    assert why(door, "token", body(second)) == "challenge-used"  # what was refused used it up
    now[0] += challenges.GOOD_FOR
    assert why(door, "token", body(third)) == "challenge-expired"
    assert why(a_door()[0], "token", body(door.challenge("token"))) == "challenge-unknown"  # after a restart


def test_a_challenge_with_any_byte_changed_is_not_one():
    door, _ = a_door()
    whole = base64.urlsafe_b64decode(door.challenge("token")["challenge"])
    for at in range(len(whole)):
        changed = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        given = {"challenge": base64.urlsafe_b64encode(changed).decode()}
        assert why(door, "token", body(given)) == "challenge-unknown"


def test_used_challenges_are_forgotten_when_they_would_have_ended(tmp_path):
    with contextlib.closing(Store(tmp_path / "hub.db", name="hub")) as store:
        for number in range(50):
            now, digest = 60.0 * number, bytes([number])
            assert store.use_challenge(digest, now + 300.0, now) and not store.use_challenge(digest, now + 300.0, now)
        assert len(store.query("SELECT * FROM challenge")) <= 6


def test_an_application_asks_for_a_statement_and_says_why_it_refuses_one():
    door, _ = a_door()
    hub = FakeHub()
    hub.tickets |= {"code.of-one-device": 1, "code.of-another": 1}
    app = app_of(hub, door=door)
    for token in (ENROLMENT, "code.of-one-device"):
        bare = ask(app, "POST", "/v1/enrol", token)
        assert (bare.code, bare.error) == (403, "attestation-needed") and hub.tickets["code.of-one-device"] == 1
        given = ask(app, "POST", "/v1/challenge", token)
        assert given.code == 201 and given.json["kinds"] == ["echo"]
        wrong = ask(app, "POST", "/v1/enrol", "code.of-another", body(given.json))
        assert (wrong.code, wrong.error, wrong.json["why"]) == (403, "not-attested", "challenge-unknown")
        assert ask(app, "POST", "/v1/enrol", token, body(given.json)).code == 201
        again = ask(app, "POST", "/v1/enrol", token, body(given.json))
        assert (again.code, again.json["why"]) == (403, "challenge-used")
    for path in ("/v1/enrol", "/v1/challenge"):
        assert ask(app, "POST", path, "wrong token, as ever").code == 401
    large = ask(app, "POST", "/v1/enrol", ENROLMENT, b"x" * (MOST_STATEMENT + 1))
    assert large.code == 413 and len(hub.tokens) == 2
    without = app_of(FakeHub())
    assert ask(without, "POST", "/v1/challenge", ENROLMENT).code == 404
    assert ask(without, "POST", "/v1/enrol", ENROLMENT, b"{}").code == 400


def test_one_key_enrols_as_many_devices_as_the_hub_says(tmp_path):
    home = make(tmp_path / "hub", attested_devices=2, collect=True)

    async def story():
        async with running(home) as hub:
            outcomes = []
            for key in (b"a" * 32, b"a" * 32, b"a" * 32, b"b" * 32, b""):
                try:
                    assert await hub.leave(hub.device_of(await hub.enrol(None, key)))
                    outcomes.append("")
                except NotAdmittedError as error:
                    outcomes.append(error.reason)
            return outcomes

    assert asyncio.run(story()) == ["", "", "enrolment-full", "", ""]


@pytest.mark.slow
def test_a_device_has_its_platform_make_a_statement(tmp_path):
    pytest.importorskip("webauthn", reason="the extra attestation is not installed")
    from statements import Authority, app_attest

    authority, asked = Authority(), []
    home = make(tmp_path / "hub", attestation=("app-attest",))
    (home.path / "root.pem").write_bytes(authority.pem)
    text = '[app-attest]\napps = ["ABCDE12345.example.shop"]\nroot = "root.pem"\n'
    (home.path / "attestation.toml").write_text(text, encoding="utf-8")
    hub, app = hub_app(home)

    def attest(app):
        def made(challenge, kinds):
            asked.append(kinds)
            return "app-attest", app_attest(authority, challenge, app)

        return made

    def broken(challenge, kinds):
        raise OSError

    with ThreadedServer(app) as server:

        def told(name, **given):
            url = f"http://127.0.0.1:{server.port}"
            limits = dict.fromkeys(("most_epsilon", "most_search_epsilon", "lifetime_epsilon"), math.inf)
            with Device(url, home.token("enrolment"), tmp_path / name, **limits, **given) as device:
                return device.sync()

        assert told("good", attest=attest("ABCDE12345.example.shop")).state == "OK"
        assert len(hub.row.admission.devices) == 1 and asked == [("app-attest",)]
        for name, given, why in (
            ("bare", {}, "attestation-needed"),
            ("other", {"attest": attest("ABCDE12345.example.else")}, "wrong-app"),
            ("broken", {"attest": broken}, "OSError"),
        ):
            one = told(name, **given)
            assert one.state == "RETRY" and why in one.why
        assert len(hub.row.admission.devices) == 1


def test_what_is_no_statement_is_malformed():
    for sent in [
        b"",
        b"[]",
        b"{",
        b"null",
        b'{"kind": 1}',
        b'{"kind":"echo","challenge":"%%","statement":{}}',
        b"[" * 60_000,
    ]:
        assert why(a_door()[0], "token", sent) == "malformed"


def test_a_kind_that_is_not_asked_for_is_refused_and_an_identity_is_of_its_hub_and_kind():
    door, _ = a_door(echo=Echo(), other=Echo())
    assert why(door, "token", body(door.challenge("token"), kind="third")) == "wrong-kind"
    shown = [door.identity("token", body(door.challenge("token"), kind=kind)) for kind in ("echo", "other", "echo")]
    assert shown[0] == shown[2] != shown[1] and len(shown[0]) == 32
    assert door.identity("token", body(door.challenge("token"), of="")) == b""


def test_the_settings_of_a_kind_that_are_missing_or_wrong_stop_the_start(tmp_path):
    with pytest.raises(ConfigError, match="attestation"):
        trial_settings(n_features=3, attestation=("unknown",))
    made = Challenges(bytes(32), lambda *_: True)
    with pytest.raises(ConfigError, match=r"attestation\.toml"):
        door_of(tmp_path, ("app-attest",), "hub", made)
    for text, said in (("", "no table"), ("[app-attest]\napp = []\n", "app"), ("[else]\n", "does not name")):
        (tmp_path / "attestation.toml").write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=said):
            door_of(tmp_path, ("app-attest",), "hub", made)
