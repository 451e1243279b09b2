"""What an app may rely on: a device never raises, never loops, says a thing once, and is silent when told to."""

import os
import sqlite3
import ssl
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from device_worlds import EPSILON, FEATURES, TERMS, X, clock, hub, make, ready, use  # noqa: F401
from fake_hub import ANYTHING, ENROLMENT, FakeHub, Fault, fault

from fedrank.deploy.device import Device


def test_opting_out_ends_everything_that_has_not_left(hub, make):
    device = ready(make)
    assert device.opt_out()
    requests = len(hub.seen)
    use(device, 8)
    told = device.sync()
    assert told.state == "SILENT" and "opted out" in told.why
    device.close()
    device = make()
    assert device.sync().state == "SILENT" and len(hub.seen) == requests  # after a restart too
    np.testing.assert_array_equal(device.rank(X).order, np.argsort(-(X @ np.arange(FEATURES)), kind="stable"))
    assert not device.ledger() and device.privacy()["discarded"]["messages"] == 1
    assert device.opt_in() and device.wants_clicks
    use(device, 4)
    assert device.sync().sent == 1 and hub.issued == 1


def test_opting_out_while_the_hub_is_being_asked_comes_in_time(hub, make):
    device = ready(make)
    hub.faults.append(Fault("GET /v1/model", before=lambda: device.opt_out()))
    assert device.sync().state == "SILENT" and not hub.reports and not device.ledger()


@pytest.mark.parametrize("erase", [True, False])
def test_leaving_is_forgetting_on_both_sides(hub, make, erase):
    device = ready(make)
    device.sync()
    assert device.leave(erase)
    assert hub.tokens == [] and hub.asked("DELETE /v1/device") == 1
    assert len(device.ledger()) == (0 if erase else 1)
    assert device.sync().state == "SILENT" and device.rank(X).order.tolist() == list(range(12))
    device.close()
    device = make()
    assert device.sync().state == "SILENT" and hub.asked("POST /v1/enrol") == 1  # it does not come back by itself
    assert device.opt_in() and device.sync().state == "OK" and hub.issued == 2


def test_a_hub_that_cannot_be_reached_is_told_later(hub, make, clock):
    device = ready(make)
    hub.faults.append(fault("DELETE /v1/device", 503, "unavailable"))
    assert not device.leave()
    assert hub.tokens == ["device-token-0001"] and not device.ledger() and not device.wants_clicks
    device.close()
    clock[0] += 10
    device = make()
    device._conversation.backoff.reset()
    assert device.sync().state == "SILENT" and hub.tokens == []
    requests = len(hub.seen)
    device.sync()
    assert len(hub.seen) == requests


def test_leaving_before_arriving_needs_nobody(hub, make):
    assert make().leave() and not hub.seen


def test_leaving_a_hub_that_has_forgotten_already_is_done(hub, make):
    device = ready(make)
    hub.tokens.clear()
    assert device.leave() and device.sync().state == "SILENT"


def test_leaving_while_the_model_comes_keeps_nothing_of_it(hub, make):
    device = ready(make)
    hub.move_on()
    hub.faults.append(Fault("GET /v1/model", before=lambda: device.leave()))
    assert device.sync().state == "SILENT" and device._memory.outbox.get("model") is None
    assert device.rank(X).order.tolist() == list(range(12))
    device.sync()
    assert hub.tokens == []


def test_leaving_while_enrolling_leaves_no_token_behind(hub, make, clock):
    device = make()
    hub.faults.append(Fault("POST /v1/enrol", before=lambda: device.leave()))
    assert device.sync().state == "SILENT"
    device.sync()
    assert hub.tokens == [] and hub.asked("DELETE") == 1


def test_an_interaction_ends_after_a_while(hub, make, clock):
    device = make(patience=60.0)
    device.sync()
    use(device, 3)
    ranking = device.rank(X)
    clock[0] += 59
    assert device.log_click(ranking, 2)
    clock[0] += 59
    assert device.sync().sent == 0  # 59 s after a click
    clock[0] += 2
    assert device.sync().sent == 1


def test_a_user_who_closes_the_app_has_finished_looking(hub, make):
    device = make()
    device.sync()
    use(device, 3)
    device.log_click(device.rank(X), 0)
    device.close()
    assert make().sync().sent == 1


def test_a_restarted_app_goes_on_with_its_round(hub, tmp_path):
    """The same chance with a restart between all steps, and without any: the same bytes."""
    random = np.random.default_rng(1)
    privacy = random.integers(0, 2**32, (4, 2), dtype=np.uint32)

    def words(left):
        return lambda shape: left.pop(0).reshape(shape)

    whole = [np.array([77], np.uint32), *privacy]
    whole_again = list(whole)
    with Device(hub.url, ENROLMENT, tmp_path / "whole", _words=words(whole), **ANYTHING) as device:
        device.sync()
        for click in (0, 3, 1, 7):
            use(device, 1, click)
        device.sync()
    for number, click in enumerate((0, 3, 1, 7)):
        left = [privacy[number]] if number else whole_again[:2]  # the seed is drawn at the first start only
        device = Device(hub.url, ENROLMENT, tmp_path / "parts", _words=words(left), **ANYTHING)
        device.sync()
        use(device, 1, click)
        if number % 2:  # else the process dies
            device.close()
    with Device(hub.url, ENROLMENT, tmp_path / "parts", **ANYTHING) as device:
        assert device.sync().sent == 1
    one, other = hub.reports.values()
    assert one == other


def test_a_folder_that_cannot_be_used_does_not_stop_an_app(hub, tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    with Device(hub.url, ENROLMENT, tmp_path / "file" / "folder", **ANYTHING) as device:
        device.sync()
        use(device, 4)
        told = device.sync()
        assert told.sent == 1 and not told.lasting and len(device.ledger()) == 1
        assert not device.opt_out() and device.sync().state == "SILENT"
    assert "nothing outlives this process" in caplog.text
    with Device(hub.url, ENROLMENT, tmp_path / "file" / "folder", **(ANYTHING | {"lifetime_epsilon": 100.0})) as device:
        told = device.sync()  # a limit over a lifetime needs a memory of that length
        assert told.state == "SILENT" and "lifetime_epsilon" in told.why and not device.wants_clicks


def test_nobody_waits_for_the_network(hub, make):
    """While the hub takes its time, the app's thread ranks, clicks and reads the ledger."""
    device = ready(make)
    done = []

    def meanwhile():
        worker = threading.Thread(
            target=lambda: done.append(
                (device.rank(X), device.ledger(), device.privacy(), device.sync().state, device.opt_in())
            )
        )
        worker.start()
        worker.join(5)

    for where in ("GET /v1/model", "POST /v1/report"):
        hub.faults.append(Fault(where, before=meanwhile))
    assert device.sync().sent == 1
    assert len(done) == 2 and {state for *_, state, _ in done} == {"RETRY"}


def test_threads_share_a_device(hub, make):
    device = make()
    device.sync()
    errors, stop = [], threading.Event()

    def app(number):
        random = np.random.default_rng(number)
        while not stop.is_set():
            ranking = device.rank(random.random((8, FEATURES)))
            if sorted(ranking.order) != list(range(8)):
                errors.append(ranking)
            device.log_click(ranking, int(random.integers(8)))
            device.finish(ranking)

    def network():
        while not stop.is_set():
            told = device.sync()
            if told.state not in ("OK", "RETRY"):
                errors.append(told)
            if told.sent:
                hub.move_on()

    threads = [threading.Thread(target=app, args=(n,)) for n in range(2)]
    threads += [threading.Thread(target=network) for _ in range(2)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 20
    while len(hub.reports) < 12 and time.monotonic() < end:
        time.sleep(0.02)
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors and len(hub.reports) >= 12 and not device._memory._said
    rows = device.ledger()
    assert len({row.round for row in rows}) == len(rows) == len(hub.reports)
    for body in hub.reports.values():
        assert TERMS.reply.decode(body)


def test_tls_is_checked_against_the_given_certificates(tmp_path):
    certificate, key = self_signed(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with FakeHub(TERMS, np.zeros(FEATURES), tls=tls) as hub:
        with Device(hub.url, ENROLMENT, tmp_path / "a", ca=certificate, **ANYTHING) as device:
            assert device.sync().state == "OK"
        requests = len(hub.seen)
        for number, url in enumerate((hub.url, hub.url.replace("127.0.0.1", "localhost"))):
            ca = certificate if number else None  # nobody vouches for it; vouched for, but another host
            with Device(url, ENROLMENT, tmp_path / f"b{number}", ca=ca, timeout=2.0, **ANYTHING) as device:
                told = device.sync()
                assert told.state == "OFFLINE" and "SSLCertVerificationError" in told.why
        assert len(hub.seen) == requests


def self_signed(folder):
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "hub")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    (folder / "hub.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "hub.key").write_bytes(key.private_bytes(*pem))
    return folder / "hub.crt", folder / "hub.key"


def test_an_opt_out_holds_for_the_other_process_of_a_folder_at_once(hub, make):
    """Two processes, two views of one file: what was opted out in one must not go on in the other."""
    one, other = make(), make()
    other.sync()
    hub.faults.append(Fault("GET /v1/model", before=lambda: (one.opt_out(), use(other, 4))))
    other.sync()  # in the middle of a look at the hub
    assert not hub.reports and one.opt_in()
    other.sync()
    use(other, 3)
    assert one.opt_out()
    use(other, 1)  # the fourth search would make a message
    other.sync()
    assert not hub.reports and not other.ledger()
    assert one.opt_in()
    other.sync()
    one.sync()
    assert not hub.reports  # nothing of the time between waits to be sent


def test_a_file_that_may_not_be_looked_at_may_hold_an_opt_out(hub, make, monkeypatch):
    def locked(path, *arguments, **named):
        if str(path).endswith(".sqlite3"):
            raise PermissionError(13, "not before the first unlock")
        return stat(path, *arguments, **named)

    stat = os.stat
    device = make()
    device.sync()
    device.opt_out()
    device.close()
    monkeypatch.setattr(os, "stat", locked)
    monkeypatch.setattr(sqlite3, "connect", _refuses(sqlite3.connect))
    device = make()
    told = device.sync()
    assert told.state == "SILENT" and told.why and not device.wants_clicks and hub.issued == 1


def test_a_token_goes_to_no_other_hub_than_the_one_that_gave_it(hub, make):
    device = make()
    assert device.sync().state == "OK" and hub.issued == 1
    device.close()
    with FakeHub(TERMS, np.arange(FEATURES)) as other:
        device = make(url=other.url)
        assert device.sync().state == "OK" and other.issued == 1
        device.close()


def _refuses(connect):
    def opened(path, *arguments, **named):
        if path != ":memory:":
            raise sqlite3.OperationalError("unable to open database file")
        return connect(path, *arguments, **named)

    return opened


def test_what_was_spent_outlives_leaving(hub, make):
    device = ready(make, lifetime_epsilon=1.5 * EPSILON)
    device.sync()
    assert len(hub.reports) == 1
    device.leave()
    assert device.ledger() == [] and device.privacy()["epsilon_total"] == pytest.approx(EPSILON)
    device.opt_in()
    device.sync()
    assert not device.wants_clicks and "lifetime_epsilon" in device.privacy()["silent"]
    told = device.sync()
    assert told.state == "SILENT" and told.next_in == 3600


def test_settings_of_the_wrong_kind_are_refused_like_wrong_ones(tmp_path):
    """In a process of its own, as an app has it: there, nobody checks types at every call."""
    code = f"""
from fedrank.core.errors import ConfigError
from fedrank.deploy.device import Device
for wrong in (dict(most_epsilon="20"), dict(timeout="10"), dict(patience=None), dict(ca=3), dict(lifetime_epsilon=-1)):
    try:
        Device("http://127.0.0.1:9", {ENROLMENT!r}, {str(tmp_path)!r}, **wrong)
    except ConfigError as error:
        assert next(iter(wrong)) in str(error), error
    else:
        raise AssertionError(wrong)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
