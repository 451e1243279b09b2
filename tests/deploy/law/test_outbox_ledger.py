"""What is on a device's disk: private, whole after a crash, and the same for all processes that share it."""

import json
import math
import os
import sqlite3
import threading

import numpy as np
import pytest
from fake_hub import ANYTHING, ENROLMENT, HUB, FakeHub, Fault
from outbox_worlds import FEATURES, LIE, TERMS, lying, message, pages  # noqa: F401

from fedrank.deploy.device import Device
from fedrank.deploy.device import outbox as module
from fedrank.deploy.device.outbox import FILE, Outbox
from fedrank.deploy.device.trial import Interaction, Trial, keep_order
from fedrank.deploy.terms import Terms


def test_two_devices_make_one_message_together(tmp_path):
    with FakeHub(TERMS, np.arange(FEATURES)) as hub:
        one, other = Device(hub.url, ENROLMENT, tmp_path, **ANYTHING), Device(hub.url, ENROLMENT, tmp_path, **ANYTHING)
        one.sync()
        other.sync()
        assert hub.issued == 1
        counted = []
        for _ in range(4):
            lists = [(device, device.rank(np.ones((3, FEATURES)))) for device in (one, other)]
            counted += [device.finish(ranking) for device, ranking in lists]
        # The other's first list tried another seed; its last came when the message was complete.
        assert counted == [True, False, True, True, True, False, False, False]
        assert one.sync().sent + other.sync().sent == 1
        one.close()
        other.close()


def test_a_half_has_its_interactions_and_no_more(tmp_path):
    """Three processes all showed a list of the same half: the third comes too late, though the message is not full."""
    box = Outbox(tmp_path)
    shown = [Interaction(keep_order(3), Trial(HUB, 0, 5), 0.0, 1) for _ in range(3)]
    assert [box.add(TERMS, over, None, lying)[1] for over in shown] == [True, True, False]
    assert box.trial(HUB, 0) == Trial(HUB, 0, 5, (0, 0), (2, 0)) and not box.waiting()


def test_of_two_who_enrol_at_once_one_name_is_used(tmp_path):
    with FakeHub(TERMS, np.arange(FEATURES)) as hub:
        one, other = Device(hub.url, ENROLMENT, tmp_path, **ANYTHING), Device(hub.url, ENROLMENT, tmp_path, **ANYTHING)
        hub.faults.append(Fault("POST /v1/enrol", before=lambda: other.sync()))
        assert one.sync().state == "OK" and other.sync().state == "OK"
        assert one._memory.token == other._memory.token == "device-token-0001" and hub.issued == 2
        one.close()
        other.close()


def test_what_one_process_is_told_the_other_keeps_to(tmp_path):
    with FakeHub(TERMS, np.arange(FEATURES)) as hub:
        one, other = Device(hub.url, ENROLMENT, tmp_path, **ANYTHING), Device(hub.url, ENROLMENT, tmp_path, **ANYTHING)
        one.sync()
        other.sync()
        for _ in range(4):
            other.finish(other.rank(np.ones((3, FEATURES))))
        one.opt_out()
        requests = len(hub.seen)
        assert other.sync().state == "SILENT" and len(hub.seen) == requests
        one.opt_in()
        assert other.sync().state == "OK"
        one.leave()
        assert other.sync().state == "SILENT" and not hub.reports
        one.close()
        other.close()


def test_the_file_is_its_owners(tmp_path):
    folder = tmp_path / "a" / "b"
    box = Outbox(folder)
    box.put(token="secret-token")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_what_is_erased_is_gone_from_the_disk(tmp_path):
    box = Outbox(tmp_path)
    box.put(url="https://hub.example.org", token="secret-token-1234", terms=json.dumps(TERMS.as_json()))
    message(box, 3)
    (waiting,) = box.waiting()
    assert box.sending(waiting, math.inf) and HUB.encode() in b"".join(pages(tmp_path))
    box.erase(out=1)
    left = b"".join(pages(tmp_path))
    for text in (b"secret-token", HUB.encode(), b"seed of the random", waiting.body):
        assert text not in left
    assert box.get("out") == 1 and box.ledger() == [] and box.get("token") is None


@pytest.mark.parametrize("damage", ["text", "cut", "newer"])
def test_a_file_that_cannot_be_read_means_silence(tmp_path, damage, caplog):
    """In it may stand that the user has opted out."""
    with FakeHub(TERMS, np.arange(FEATURES)) as hub:
        with Device(hub.url, ENROLMENT, tmp_path, **ANYTHING) as device:
            device.sync()
            device.opt_out()
        if damage == "text":
            (tmp_path / FILE).write_bytes(b"not a database, but long enough to be one" * 100)
        elif damage == "cut":
            os.truncate(tmp_path / FILE, 5000)
        else:
            with sqlite3.connect(tmp_path / FILE) as db:
                db.execute("PRAGMA user_version = 2")
        before, requests = (tmp_path / FILE).read_bytes(), len(hub.seen)
        with Device(hub.url, ENROLMENT, tmp_path, **ANYTHING) as device:
            told = device.sync()
            assert (told.state, told.lasting) == ("SILENT", False) and not device.wants_clicks
            assert "opted out is not known" in told.why
        assert len(hub.seen) == requests
        assert (tmp_path / FILE).read_bytes() == before  # it is not ours to mend
        assert caplog.records


def test_facts_that_make_no_sense_are_fetched_again(tmp_path):
    with FakeHub(TERMS, np.arange(FEATURES)) as hub:
        for name, value in (("terms", "{"), ("terms", 5), ("model", b"x"), ("model", "text"), ("backoff", "[[")):
            with Device(hub.url, ENROLMENT, tmp_path, **ANYTHING) as device:
                device.sync()
                device._memory.outbox.put(**{name: value})
            with Device(hub.url, ENROLMENT, tmp_path, **ANYTHING) as device:
                assert device.sync().state == "OK" and device.wants_clicks


def test_a_ledger_adds_up(tmp_path, monkeypatch):
    box, now = Outbox(tmp_path), [1_000_000_000.0]
    monkeypatch.setattr(module.time, "time", lambda: now[0])
    for round_ in range(4):
        message(box, round_)
    assert box.ledger() == [] and box.spent() == 0  # nothing has left
    one = TERMS.epsilon_message
    for number, waiting in enumerate(box.waiting()):
        assert box.sending(waiting, 3 * one) == (number < 3)  # the fourth would be too much
        now[0] += -5000.0 if number == 1 else 60.0  # the clock is set back
    first, second, third = box.ledger()
    assert [row.round for row in (first, second, third)] == [0, 1, 2]
    assert [row.total for row in (first, second, third)] == pytest.approx([one, 2 * one, 3 * one])
    assert first.when == "2001-09-09T01:46:40+00:00" and second.when == "2001-09-09T01:47:40+00:00"
    assert third.when < first.when
    assert box.sending(box.waiting()[0], 3 * one)  # again: the same bytes cost nothing more
    assert box.spent() == pytest.approx(3 * one)
    assert box.ledger()[0].when == first.when  # of the first attempt


def test_a_message_without_a_promise_costs_infinitely_much(tmp_path):
    box = Outbox(tmp_path)
    message(box, 0, Terms(hub=HUB, n_features=FEATURES, p=1.0))
    (waiting,) = box.waiting()
    assert not box.sending(waiting, 1e308)
    assert box.sending(waiting, math.inf)
    assert box.ledger()[0].total == math.inf == box.spent()


def test_an_answer_is_final(tmp_path):
    box = Outbox(tmp_path)
    message(box, 0)
    (waiting,) = box.waiting()
    box.sending(waiting, math.inf)
    box.record_answer(waiting, "counted")
    box.record_answer(waiting, "too late, not counted")
    assert box.ledger()[0].outcome == "counted"
    assert not box.sending(waiting, math.inf) and box.has_report(HUB, 0)


def test_many_threads_that_send_write_one_row(tmp_path):
    boxes = [Outbox(tmp_path) for _ in range(4)]
    message(boxes[0], 0)
    (waiting,) = boxes[0].waiting()
    threads = [threading.Thread(target=box.sending, args=(waiting, math.inf)) for box in boxes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    boxes[0].record_answer(waiting, "too late, not counted")
    (row,) = boxes[1].ledger()
    assert row.outcome == "no answer came; it may have been counted"  # three attempts are unanswered
