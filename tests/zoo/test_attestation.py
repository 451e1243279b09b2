"""Statements that Apple's servers signed for real devices, and made ones with one thing wrong each."""

import base64
import datetime
import json
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("webauthn", reason="the extra attestation is not installed")
pytest.importorskip("joserfc", reason="the extra attestation is not installed")

from statements import Authority, app_attest, play_integrity, play_keys, webauthn

from fedrank.core.errors import ConfigError
from fedrank.deploy.hub.attestation import NotAttestedError
from fedrank_zoo.attestation.app_attest import AppAttest
from fedrank_zoo.attestation.play_integrity import PlayIntegrity
from fedrank_zoo.attestation.web_authn import WebAuthn

RECORDED = Path(__file__).parent / "attestation"
APP, SITE, ORIGIN, PACKAGE = "ABCDE12345.example.shop", "shop.example", "https://shop.example", "example.shop"
CHALLENGE, NOW = bytes(range(48)), time.time()


def recorded(name):
    return json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))


def why(attestor, statement, challenge=CHALLENGE, now=NOW):
    """The word of a refusal; empty if the statement is accepted."""
    try:
        attestor.check(statement, challenge, now)
    except NotAttestedError as error:
        return error.reason
    return ""


# ------------------------------------------------------------------------------------------------------- App Attest


@pytest.mark.parametrize(("environment", "day"), [("development", (2024, 3, 1)), ("production", (2024, 3, 1))])
def test_a_recorded_statement_of_app_attest_is_accepted_as_what_it_is(environment, day):
    sample, now = recorded(f"app-attest-{environment}"), datetime.datetime(*day, tzinfo=datetime.UTC).timestamp()
    challenge = base64.b64decode(sample["challenge"])
    all_of_them = AppAttest(apps=(sample["app"],), development=True)
    assert base64.b64encode(all_of_them.check(sample, challenge, now)).decode() == sample["keyId"]
    strict = AppAttest(apps=(sample["app"],))
    assert why(strict, sample, challenge, now) == ("wrong-environment" if environment == "development" else "")
    assert why(all_of_them, sample, challenge + b" ", now) == "wrong-challenge"
    assert why(AppAttest(apps=(APP,), development=True), sample, challenge, now) == "wrong-app"
    assert why(all_of_them, sample, challenge, NOW) == "expired"
    assert why(all_of_them, sample, challenge, now - 365 * 86400) == "expired"


def test_a_recorded_statement_of_app_attest_with_any_byte_changed_is_refused():
    sample = recorded("app-attest-production")
    now = datetime.datetime(2024, 3, 1, tzinfo=datetime.UTC).timestamp()
    whole = base64.b64decode(sample["attestation"])
    receipt = (whole.index(b"receipt"), whole.index(b"authData"))  # Apple's own: it is not looked at
    attestor, accepted = AppAttest(apps=(sample["app"],)), []
    for at in range(60, len(whole), 23):
        if not receipt[0] <= at < receipt[1]:
            changed = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
            try:
                attestor.check(
                    {"attestation": base64.b64encode(changed).decode()}, base64.b64decode(sample["challenge"]), now
                )
                accepted.append(at)
            except Exception:  # a library's, or ours: the door refuses either
                continue
    assert accepted == []


@pytest.fixture(scope="module")
def authority():
    return Authority()


def test_app_attest_refuses_what_has_one_thing_wrong(authority, tmp_path):
    (tmp_path / "root.pem").write_bytes(authority.pem)
    attestor = AppAttest(apps=(APP,), root="root.pem", folder=str(tmp_path))
    assert why(attestor, app_attest(authority, CHALLENGE, APP)) == ""
    for statement, reason in (
        (app_attest(authority, bytes(48), APP), "wrong-challenge"),
        (app_attest(authority, CHALLENGE, APP + "2"), "wrong-app"),
        (app_attest(Authority(), CHALLENGE, APP), "wrong-root"),  # the same names, other keys
        (app_attest(authority, CHALLENGE, APP, count=1), "used-key"),
        (app_attest(authority, CHALLENGE, APP, aaguid=b"appattestdevelop"), "wrong-environment"),
        (app_attest(authority, CHALLENGE, APP, other_key=True), "wrong-key"),
    ):
        assert why(attestor, statement) == reason
    assert why(attestor, app_attest(authority, CHALLENGE, APP), now=NOW + 4 * 86400) == "expired"
    assert why(AppAttest(apps=(APP,)), app_attest(authority, CHALLENGE, APP)) == "wrong-root"  # it is not Apple's


# --------------------------------------------------------------------------------------------------------- WebAuthn


def test_a_recorded_credential_of_webauthn_is_accepted_on_its_days(monkeypatch):
    from OpenSSL.crypto import X509Store

    sample = recorded("webauthn-apple")
    challenge = base64.urlsafe_b64decode(sample["challenge"] + "==")
    attestor = WebAuthn(site=sample["site"], origins=(sample["origin"],), formats=("apple",))
    assert why(attestor, sample["credential"], challenge) == "wrong-root"  # by today's clock the leaf has expired

    def then():
        store = X509Store()
        store.set_time(datetime.datetime.fromtimestamp(sample["made"], datetime.UTC).replace(tzinfo=None))
        return store

    module = sys.modules["webauthn.helpers.validate_certificate_chain"]  # hidden by its function of the same name
    monkeypatch.setattr(module, "_generate_new_cert_store", then)
    found = attestor.check(sample["credential"], challenge, sample["made"])
    assert base64.urlsafe_b64encode(found).decode().rstrip("=") == sample["credential"]["id"]
    assert why(attestor, sample["credential"], challenge[1:]) == "wrong-challenge"
    elsewhere = WebAuthn(site=SITE, origins=(sample["origin"],), formats=("apple",))
    assert why(elsewhere, sample["credential"], challenge) == "wrong-app"
    elsewhere = WebAuthn(site=sample["site"], origins=(ORIGIN,), formats=("apple",))
    assert why(elsewhere, sample["credential"], challenge) == "wrong-app"


def test_webauthn_refuses_what_no_maker_stands_for(authority, tmp_path):
    (tmp_path / "root.pem").write_bytes(authority.pem)
    attestor = WebAuthn(site=SITE, origins=(ORIGIN,), formats=("packed",), roots=("root.pem",), folder=str(tmp_path))
    assert why(attestor, webauthn(authority, CHALLENGE, SITE, ORIGIN)) == ""
    for statement, reason in (
        (webauthn(authority, CHALLENGE, SITE, ORIGIN, own=True), "wrong-root"),  # signed by the new key itself
        (webauthn(authority, CHALLENGE, SITE, ORIGIN, fmt="none"), "wrong-format"),
        (webauthn(Authority(), CHALLENGE, SITE, ORIGIN), "wrong-root"),
        (webauthn(authority, bytes(48), SITE, ORIGIN), "wrong-challenge"),
        (webauthn(authority, CHALLENGE, "else.example", ORIGIN), "wrong-app"),
        (webauthn(authority, CHALLENGE, SITE, "https://else.example"), "wrong-app"),
    ):
        assert why(attestor, statement) == reason
    with pytest.raises(ConfigError, match="needs roots"):
        WebAuthn(site=SITE, origins=(ORIGIN,), formats=("packed",))


# --------------------------------------------------------------------------------------------------- Play Integrity


def test_play_integrity_refuses_what_has_one_thing_wrong(tmp_path):
    # Google signs with a key of each app's own: there is no recorded token that others can verify.
    decryption, verification, keys = play_keys()
    (tmp_path / "d").write_bytes(decryption)
    (tmp_path / "v").write_bytes(verification)
    given = dict(packages=(PACKAGE,), decryption_key="d", verification_key="v", folder=str(tmp_path))
    attestor = PlayIntegrity(**given, certificates=("abc",))

    def made(challenge=CHALLENGE, package=PACKAGE, at=NOW, by=keys, certificate="abc", **verdicts):
        return play_integrity(by, challenge, package, at, certificate=certificate, **verdicts)

    assert attestor.check(made(), CHALLENGE, NOW) == b"" and why(attestor, made()) == ""
    _, _, (_, other) = play_keys()
    for statement, reason in (
        (made(challenge=bytes(48)), "wrong-challenge"),
        (made(package="example.other"), "wrong-app"),
        (made(certificate="abd"), "wrong-app"),
        (made(app="UNRECOGNIZED_VERSION"), "wrong-app"),
        (made(device=[]), "wrong-device"),
        (made(at=NOW - 301), "expired"),
        (made(at=NOW + 61), "expired"),
        (made(by=(keys[0], other)), "wrong-root"),
        (made(by=(bytes(32), keys[1])), "wrong-root"),
    ):
        assert why(attestor, statement) == reason
    with pytest.raises(ConfigError, match="cannot be read"):
        PlayIntegrity(**{**given, "decryption_key": "v"})


# -------------------------------------------------------------------------------------------------------- withdrawn


def test_what_was_withdrawn_is_refused_without_a_restart(tmp_path):
    authority = Authority()
    (tmp_path / "root.pem").write_bytes(authority.pem)
    file = tmp_path / "withdrawn.txt"
    file.write_text("# nothing yet\n")
    both = {"folder": str(tmp_path), "withdrawn": "withdrawn.txt"}
    apple = AppAttest(apps=(APP,), root="root.pem", **both)
    web = WebAuthn(site=SITE, origins=(ORIGIN,), formats=("packed",), roots=("root.pem",), **both)
    shown = {apple: app_attest(authority, CHALLENGE, APP), web: webauthn(authority, CHALLENGE, SITE, ORIGIN)}
    keys = {one: one.check(statement, CHALLENGE, NOW).hex() for one, statement in shown.items()}
    serial = f"{authority.below.serial_number:x}"
    for text, refused in (
        (f"key {keys[apple]}\n", {apple}),
        (f"key {keys[web].upper()} # lost\n", {web}),
        (f"certificate 00{serial.upper()}\n", {apple, web}),
        ("model " + b"a test's devices".hex() + "\n", {web}),
        (json.dumps({"entries": {serial: {"status": "REVOKED", "reason": "KEY_COMPROMISE"}}}), {apple, web}),
        (json.dumps({"entries": {"abc": {"status": "REVOKED"}}}), set()),
        (f"key {keys[apple][:-2]}\n", set()),
    ):
        file.write_text(text)
        assert {one for one in shown if why(one, shown[one]) == "withdrawn"} == refused, text
        assert {one for one in shown if why(one, shown[one]) == ""} == set(shown) - refused


def test_a_list_that_cannot_be_read_stops_the_start_and_later_changes_nothing(tmp_path, caplog):
    file = tmp_path / "withdrawn.txt"
    made = {"site": SITE, "origins": (ORIGIN,), "folder": str(tmp_path), "withdrawn": "withdrawn.txt"}
    for bad in (None, "keys 12\n", "key xyz\n", "{}", '{"entries": []}', "{"):
        if bad is not None:
            file.write_text(bad)
        with pytest.raises(ConfigError, match="withdrawn"):
            WebAuthn(**made)
    file.write_text("key ab12\n")
    found = WebAuthn(**made)._withdrawals()
    for spoil in (lambda: file.write_text("nonsense"), file.unlink):
        spoil()
        with pytest.raises(NotAttestedError):
            found.refuse(bytes.fromhex("ab12"), ())
        found.refuse(b"other", (1,))
    assert "cannot be read" in caplog.text
