"""What is on a device's disk: private, whole after a crash, and the same for all processes that share it."""

import sqlite3
import struct
import subprocess
import sys
import time

import numpy as np
import pytest
from fake_hub import ANYTHING, ENROLMENT, HUB, FakeHub, Fault
from outbox_worlds import FEATURES, LIE, TERMS, lying, message, pages  # noqa: F401

from fedrank.deploy.device import Device
from fedrank.deploy.device.outbox import FILE, Outbox
from fedrank.deploy.device.trial import Interaction, Trial, keep_order
from fedrank.deploy.terms import Terms

LAPLACE = Terms(hub=HUB, n_features=FEATURES, mechanism="laplace", p=1.0, epsilon=1.0)


def two_users(terms, tmp_path, look, searches=3):
    """Two people with other documents and other clicks; what ``look`` sees of their folders while the device runs."""
    seen = []
    with FakeHub(terms, np.arange(FEATURES)) as hub:
        for user, clicks in enumerate(([0, 4, 2], [7, 1, 9])):
            hub.tokens.clear()
            hub.issued = 0
            hub.server.server_name = "hub"
            folder = tmp_path / str(user)
            random = np.random.default_rng(user)
            with Device(hub.url, ENROLMENT, folder, _words=lying, **ANYTHING) as device:
                device.sync()
                told = []
                for click in clicks[:searches]:
                    features = random.random((10, FEATURES)).astype(np.float32)
                    ranking = device.rank(features)
                    device.log_click(ranking, click)
                    told.append(look(folder))
                    device.finish(ranking)
                    told.append(look(folder))
                    everything = b"".join(path.read_bytes() for path in folder.iterdir())
                    for value in features.ravel():
                        assert struct.pack("<f", value) not in everything
            told.append(look(folder))
            seen.append(told)
    return seen


def test_two_users_whose_answers_are_equal_leave_equal_bytes(tmp_path):
    """All lies are the value 0 here, whatever the truth: then nothing on the disk may tell the two people apart."""
    one, other = two_users(TERMS, tmp_path, pages)
    assert one == other
    assert len({b"".join(look) for look in one}) > 3  # something was written in between: the sums' counts


def test_an_unfinished_message_with_laplace_noise_is_not_on_the_disk(tmp_path):
    one, other = two_users(LAPLACE, tmp_path, pages)
    assert one == other
    assert all(look == one[0] for look in one[:-1])  # nothing is written before the message is complete


def test_what_is_kept_of_a_round_is_its_privatised_sums(tmp_path):
    with (
        FakeHub(TERMS, np.arange(FEATURES)) as hub,
        Device(hub.url, ENROLMENT, tmp_path, _words=lying, **ANYTHING) as device,
    ):
        device.sync()
        for click in (0, None, 3):  # true values: 2520, 0, 630
            ranking = device.rank(np.ones((12, FEATURES)))
            if click is not None:
                device.log_click(ranking, click)
            device.finish(ranking)
        rows = sqlite3.connect(tmp_path / FILE).execute("SELECT * FROM trial").fetchall()
    # The lie is value 0, unless the truth is 0: then it is the next one, 1/10.
    assert rows == [(HUB, 0, 77, 0, 252, 2, 1)]


def test_a_crash_loses_an_unfinished_laplace_message_and_nothing_else(tmp_path):
    with FakeHub(LAPLACE, np.arange(FEATURES)) as hub:
        device = Device(hub.url, ENROLMENT, tmp_path, **ANYTHING)
        device.sync()
        for _ in range(3):
            device.finish(device.rank(np.ones((3, FEATURES))))
        device = Device(hub.url, ENROLMENT, tmp_path, **ANYTHING)  # the first has not been closed
        for _ in range(4):
            assert device.wants_clicks
            device.finish(device.rank(np.ones((3, FEATURES))))
        assert device.sync().sent == 1
        (body,) = hub.reports.values()
        assert len(body) == 13
        hub.move_on()
        device.finish(device.rank(np.ones((3, FEATURES))))
        device.sync()
        device.finish(device.rank(np.ones((3, FEATURES))))
        hub.move_on()
        device.sync()
        assert device.privacy()["discarded"] == {"interactions": 1, "messages": 0}
        device.close()


def test_every_step_survives_the_end_of_the_process(tmp_path):
    """A new device on the folder after each step, the one before never closed: one message, one row, one count."""
    with FakeHub(TERMS, np.arange(FEATURES)) as hub:
        sent = 0
        hub.faults.append(Fault("POST /v1/report", lose=True))
        for _ in range(12):
            device = Device(hub.url, ENROLMENT, tmp_path, **ANYTHING)
            device._conversation.backoff.reset()
            sent += device.sync().sent
            if device.wants_clicks:
                ranking = device.rank(np.ones((3, FEATURES)))
                device.log_click(ranking, 1)
                device.finish(ranking)
        assert sent == 1 and len(hub.reports) == 1 and hub.issued == 1
        assert [row.outcome for row in device.ledger()] == ["counted"]


def test_the_ledger_is_written_before_a_byte_leaves(tmp_path):
    """Seen from another process at the moment at which the hub has the request."""
    seen = []

    def look():
        rows = sqlite3.connect(tmp_path / FILE).execute("SELECT sent, outcome FROM message").fetchall()
        seen.append([(sent is not None, outcome) for sent, outcome in rows])

    with FakeHub(TERMS, np.arange(FEATURES)) as hub, Device(hub.url, ENROLMENT, tmp_path, **ANYTHING) as device:
        device.sync()
        for _ in range(4):
            device.finish(device.rank(np.ones((3, FEATURES))))
        hub.faults.append(Fault("GET /v1/model", before=look))
        hub.faults.append(Fault("POST /v1/report", before=look))
        device.sync()
    assert seen == [[(False, None)], [(True, None)]]


def test_a_process_that_dies_between_writing_and_sending_has_it_in_the_ledger(tmp_path, monkeypatch):
    with FakeHub(TERMS, np.arange(FEATURES)) as hub:
        device = Device(hub.url, ENROLMENT, tmp_path, **ANYTHING)
        device.sync()
        for _ in range(4):
            device.finish(device.rank(np.ones((3, FEATURES))))

        def dies(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(device._connection, "report", dies)
        with pytest.raises(KeyboardInterrupt):
            device.sync()
        with Device(hub.url, ENROLMENT, tmp_path, **ANYTHING) as again:
            assert [row.outcome for row in again.ledger()] == ["sent, no answer yet"]
            assert again.sync().sent == 1
            assert [row.outcome for row in again.ledger()] == ["counted"]


def test_a_step_that_fails_halfway_has_not_happened(tmp_path):
    box = Outbox(tmp_path)
    with pytest.raises(ZeroDivisionError), box.transaction():
        box.put(token="x" * 9)
        raise ZeroDivisionError
    assert box.get("token") is None

    def no_words(_):
        raise OSError

    with pytest.raises(OSError):
        box.add(TERMS, Interaction(keep_order(3), Trial(HUB, 0, 5), 0.0, 1), None, no_words)
    assert box.trial(HUB, 0) is None
    message(box, 0)  # nothing is left locked


def test_a_disk_that_cannot_be_written_stops_messages_not_the_app(tmp_path, caplog):
    with FakeHub(TERMS, np.arange(FEATURES)) as hub, Device(hub.url, ENROLMENT, tmp_path, **ANYTHING) as device:
        device.sync()
        for _ in range(4):
            device.finish(device.rank(np.ones((3, FEATURES))))
        device._memory.outbox._db.execute("PRAGMA query_only = ON")  # every write fails, as on a full disk
        told = device.sync()
        assert told.state == "RETRY" and "cannot be written" in told.why
        assert not hub.reports and not hub.asked("POST /v1/report")  # no ledger, no message
        device._conversation.backoff.reset()
        hub.move_on()
        device.sync()
        assert sorted(device.rank(np.ones((3, FEATURES))).order) == [0, 1, 2]
        assert not device.opt_out() and not device.wants_clicks and device.sync().state == "SILENT"
        device._memory.outbox._db.execute("PRAGMA query_only = OFF")
        assert device.sync().state == "SILENT"  # what the user said holds, written or not
        device._memory.outbox.put(token="token-of-another-process")
        assert device.sync().state == "SILENT" and device._memory.token == "token-of-another-process"
        assert device.opt_out()


def test_where_nothing_can_be_kept_no_token_is_asked_for(tmp_path):
    """Else every look at the hub would leave another device behind there."""
    with FakeHub(TERMS, np.arange(FEATURES)) as hub, Device(hub.url, ENROLMENT, tmp_path, **ANYTHING) as device:
        device._memory.outbox._db.execute("PRAGMA query_only = ON")
        assert device.sync().state == "RETRY" and not hub.seen


def test_an_interaction_that_cannot_be_written_is_lost_alone(tmp_path, caplog):
    with FakeHub(TERMS, np.arange(FEATURES)) as hub, Device(hub.url, ENROLMENT, tmp_path, **ANYTHING) as device:
        device.sync()
        for step in range(6):
            device._memory.outbox._db.execute(f"PRAGMA query_only = {'ON' if step in (1, 3) else 'OFF'}")
            ranking = device.rank(np.ones((3, FEATURES)))
            assert device.finish(ranking) == (step not in (1, 3))
        assert device.sync().sent == 1
    assert "an interaction is lost" in caplog.text


def test_noise_is_never_drawn_twice_for_the_same_sums(tmp_path, caplog):
    """What was not committed may be on the disk all the same; two noises would average out."""
    with FakeHub(LAPLACE, np.arange(FEATURES)) as hub, Device(hub.url, ENROLMENT, tmp_path, **ANYTHING) as device:
        device.sync()
        for step in range(7):
            device._memory.outbox._db.execute(f"PRAGMA query_only = {'ON' if step == 3 else 'OFF'}")
            device.finish(device.rank(np.ones((3, FEATURES))))
        assert device.sync().sent == 0  # the fourth and all before it are lost
        device.finish(device.rank(np.ones((3, FEATURES))))
        assert device.sync().sent == 1
    assert "an interaction is lost" in caplog.text


_PROCESS = """
import os, sys
import numpy as np
from fedrank.deploy.device import Device
url, folder, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
random = np.random.default_rng(number)
limits = dict(most_epsilon=100, most_search_epsilon=100, lifetime_epsilon=1e9)
device = Device(url, "enrolment-token-of-tests", folder, timeout=5.0, **limits)
sent = 0
for _ in range(60):
    told = device.sync()
    assert told.lasting, told
    device._conversation.backoff.reset()
    sent += told.sent
    for _ in range(3):
        ranking = device.rank(random.random((5, 4)))
        device.log_click(ranking, int(random.integers(5)))
        device.finish(ranking)
print(sent, len(device._memory._said), flush=True)
os._exit(0)  # without closing anything
"""


def test_processes_that_share_a_folder_are_one_device(tmp_path):
    """Two processes that never close the file; a round moves on when it has its report."""
    with FakeHub(TERMS, np.arange(FEATURES)) as hub:
        command = [sys.executable, "-c", _PROCESS, hub.url, str(tmp_path)]
        started = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True) for n in range(2)]
        while any(process.poll() is None for process in started):
            with hub.lock:
                if any(round_ == hub.round for round_, _ in hub.reports):
                    hub.move_on()
            time.sleep(0.005)
        told = [process.communicate()[0].split() for process in started]
        assert [process.returncode for process in started] == [0, 0] and [said for _, said in told] == ["0", "0"]
        assert len(hub.tokens) <= 2 and len({token for _, token in hub.reports}) == 1  # one name
        rounds = [round_ for round_, _ in hub.reports]
        assert len(rounds) > 5 and len(set(rounds)) == len(rounds)
        bodies: dict[str, set[bytes]] = {}
        for _, path, _, body in hub.seen:
            if path.startswith("/v1/report"):
                bodies.setdefault(path, set()).add(body)
        assert all(len(different) == 1 for different in bodies.values())  # whoever sends it, it is the same message
        box = Outbox(tmp_path)
        assert box.lasting and box._db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert {row.round for row in box.ledger() if row.outcome == "counted"} == set(rounds)
        assert len(box.ledger()) == len(bodies)
