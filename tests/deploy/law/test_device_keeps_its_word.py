"""A device sends nothing that it must not, whatever another process, its user or a former hub did in the meantime."""

import sqlite3

from device_worlds import EPSILON, X, clock, hub, make, ready, use  # noqa: F401
from fake_hub import Fault

from fedrank.deploy.device.outbox import FILE, Outbox


def other_process(tmp_path):
    """The outbox as another process of the same app has it."""
    return Outbox(tmp_path / "device")


def test_what_another_process_spent_counts_at_the_last_moment(hub, make, tmp_path):
    """Its message left after this process last looked: one more would exceed the limit of the device's life."""
    device = ready(make, lifetime_epsilon=1.5 * EPSILON)
    with sqlite3.connect(tmp_path / "device" / FILE) as db:
        db.execute(
            "INSERT INTO message (hub, round, body, epsilon, words, sent, unanswered, outcome) "
            "VALUES (?, 99, x'00', ?, '', 1.0, 0, 'counted')",
            (hub.terms.hub, EPSILON),
        )
    assert device.sync().sent == 0
    assert not hub.reports and [row.round for row in device.ledger()] == [99]


def test_another_process_that_opts_out_while_messages_are_sent_is_heeded(hub, make, tmp_path, monkeypatch):
    device = ready(make)
    waiting = device._conversation._outbox.waiting

    def then_opted_out():
        messages = waiting()
        other_process(tmp_path).opt_out(0)
        return messages

    monkeypatch.setattr(device._conversation._outbox, "waiting", then_opted_out)
    assert device.sync().sent == 0 and not hub.reports and not device.ledger()


def test_a_user_who_opts_out_while_a_model_is_under_way_keeps_the_model_before(hub, make, tmp_path):
    device = make()
    device.sync()
    kept = other_process(tmp_path).get("model")
    hub.move_on()
    hub.faults.append(Fault("GET /v1/model", before=device.opt_out))
    assert device.sync().state == "SILENT"
    assert other_process(tmp_path).get("model") == kept


def test_a_user_who_leaves_while_a_model_is_under_way_has_nothing_of_the_hub(hub, make, tmp_path):
    device = make()
    device.sync()
    hub.move_on()
    hub.faults.append(Fault("GET /v1/model", before=device.leave))
    device.sync()
    box = other_process(tmp_path)
    assert [box.get(fact) for fact in ("model", "terms", "token", "over")] == [None] * 4


def test_a_message_for_a_former_hub_never_goes_to_this_one(hub, make, tmp_path):
    """Not even one that was tried before and still waits for its answer."""
    device = ready(make)
    with sqlite3.connect(tmp_path / "device" / FILE) as db:
        db.execute("UPDATE message SET hub = ?, sent = 1.0, unanswered = 1", ("f" * 32,))
    assert device.sync().sent == 0
    assert hub.asked("POST /v1/report") == 0


def test_the_row_of_a_message_is_on_the_disk_before_it_leaves(hub, make, tmp_path):
    """SQLite's setting for what survives a power cut, in the transaction that writes the ledger."""
    device = ready(make)
    said = []
    device._memory.outbox._db.set_trace_callback(said.append)
    assert device.sync().sent == 1
    (update,) = (n for n, statement in enumerate(said) if statement.startswith("UPDATE message SET sent"))
    begin = max(n for n, statement in enumerate(said[:update]) if statement.startswith("BEGIN"))
    assert said[begin - 1] == "PRAGMA synchronous = FULL"


def test_what_a_device_erases_is_overwritten(hub, make, tmp_path):
    device = ready(make)
    device.sync()
    (token,) = hub.tokens
    assert device.leave(erase=True)
    device.close()
    written = b"".join(path.read_bytes() for path in (tmp_path / "device").iterdir())
    assert token.encode() not in written
    assert other_process(tmp_path)._db.execute("PRAGMA secure_delete").fetchone() == (1,)
