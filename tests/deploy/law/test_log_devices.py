"""Devices of a hub with a log: they use what is proven, keep what they had otherwise, and say so."""

import base64
import hashlib
import json

import numpy as np
import pytest
from log_worlds import LocalHub, aimed, as_body, cosign, device, entries_of, log_answer, signer_of, synced, witness

from fedrank.deploy.device import State, conversation
from fedrank.deploy.hub.audit import _wrong_entries, audit_folder
from fedrank.deploy.hub.store import Store, StoreError
from fedrank.deploy.hub.tokens import new_offer
from fedrank.deploy.log.note import Checkpoint
from fedrank.deploy.log.proof import Answer, Trust, UnprovenError
from fedrank.deploy.log.tree import (
    BEACON,
    OFFER,
    Grown,
    beacon_entry,
    consistency_proof,
    frontier,
    grown,
    inclusion_proof,
    index_numbered,
    leaf_hash,
    model_data,
    offer_entry,
    reports_entry,
)

X = np.eye(3)


def b64(data):
    return base64.b64encode(data).decode()


def _root(leaves):
    tree = Grown()
    for leaf in leaves:
        tree.append(leaf)
    return tree.root()


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with LocalHub(tmp_path_factory.mktemp("hub") / "hub") as running:
        yield running


def test_a_proven_model_is_used_and_asked_for_without_a_word_about_oneself(hub, tmp_path):
    one = device(hub, tmp_path / "d")
    assert synced(one).state is State.OK and one.rank(X).learning
    for _ in range(3):
        hub.next_round()
        assert synced(one).state is State.OK
        assert one._memory.round.number == hub.hub.view.round
    asked = [request for request in one._connection.asked if "/log" in request[1]]
    assert asked[0] == ("GET", "/v1/log/0", "", "")  # the first contact
    assert set(asked[1:]) == {("GET", "/v1/log", "", "")}
    one.close()


def test_a_device_that_was_away_asks_for_a_proof_since_then(hub, tmp_path):
    one = device(hub, tmp_path / "d")
    synced(one)
    size = one._conversation.prover.seen(one._memory.terms).size
    one.close()
    for _ in range(33):
        hub.next_round()
    again = device(hub, tmp_path / "d")
    assert synced(again).state is State.OK
    assert [path for _, path, *_ in again._connection.asked if "/log" in path] == ["/v1/log", f"/v1/log/{size}"]
    again.close()


def test_an_aimed_model_is_not_used_and_the_old_one_stays(hub, tmp_path, caplog):
    def twist(path, status, headers, body):
        return (
            (status, headers, aimed(hub))
            if path == "/v1/model" and status == 200 and twist.on
            else (status, headers, body)
        )

    twist.on = True
    one = device(hub, tmp_path / "d", twist)
    told = synced(one)
    assert told.state is State.UNPROVEN and "another" in told.why
    assert not one.rank(X).learning and list(one.rank(X).order) == [0, 1, 2]
    assert "not used" in caplog.text
    twist.on = False
    assert synced(one).state is State.OK
    kept = one._memory.round.weights.copy()
    hub.next_round()
    twist.on = True
    assert synced(one).state is State.UNPROVEN
    np.testing.assert_array_equal(one._memory.round.weights, kept)
    assert one.rank(X).learning
    one.close()


def test_a_forked_log_is_seen_and_kept_as_evidence(hub, tmp_path):
    state = {"fork": None}

    def twist(path, status, headers, body):
        if state["fork"] is None or (not path.startswith("/v1/log") and path != "/v1/model"):
            return status, headers, body
        return 200, headers, (aimed(hub) if path == "/v1/model" else state["fork"])

    one = device(hub, tmp_path / "d", twist)
    assert synced(one).state is State.OK
    entries = entries_of(hub)
    entries[-1] = b"\x02" + model_data(aimed(hub))
    answer, note = log_answer(entries, signer_of(hub))
    state["fork"] = as_body(answer, note)
    told = synced(one)
    assert told.state is State.UNPROVEN and "different people" in told.why
    ((first, second),) = one._conversation.prover.conflicts(one._memory.terms)
    key = signer_of(hub).key
    a, b = Checkpoint.parse(first), Checkpoint.parse(second)
    assert a.is_signed_by(key) and b.is_signed_by(key) and a.size == b.size and a.root != b.root
    one.close()


def test_witnesses_make_a_fork_from_the_first_contact_useless(hub, tmp_path):
    watching = [witness(tmp_path / name, hub, name=f"{name}.example") for name in ("a", "b", "c")]
    keys = [str(one.key) for one in watching]
    waiting = device(hub, tmp_path / "d1", witnesses=keys)
    assert synced(waiting).state is State.UNPROVEN  # nobody cosigned yet
    cosign(hub, *watching[:2])
    assert synced(waiting).state is State.OK
    entries = entries_of(hub)
    entries[-1] = b"\x02" + model_data(aimed(hub))
    fork = as_body(*log_answer(entries, signer_of(hub)))

    def twist(path, status, headers, body):
        if path.startswith("/v1/log"):
            return 200, headers, fork
        return (200, headers, aimed(hub)) if path == "/v1/model" else (status, headers, body)

    trusting = device(hub, tmp_path / "d2", twist)
    assert synced(trusting).state is State.OK  # from its first contact on it sees the forked log alone
    careful = device(hub, tmp_path / "d3", twist, witnesses=keys)
    assert synced(careful).state is State.UNPROVEN
    assert careful._memory.round is None
    hub.next_round()
    cosign(hub, *watching)
    for one in (waiting, careful, trusting):
        one.close()


def test_a_model_for_one_device_that_the_log_has_for_all_to_see_is_found(hub, tmp_path):
    """The hub appends it and shows that head to one device alone, then appends everybody's model of the round."""
    entries, shown = entries_of(hub), {}
    alone = [*entries[:-1], b"\x02" + model_data(aimed(hub))]

    def twist(path, status, headers, body):
        if path.startswith("/v1/log"):
            return 200, headers, as_body(*log_answer(shown["entries"], signer_of(hub)))
        return (200, headers, aimed(hub)) if path == "/v1/model" and shown["aimed"] else (status, headers, body)

    target, other = device(hub, tmp_path / "d1", twist), device(hub, tmp_path / "d2", twist)
    shown.update(entries=alone, aimed=True)
    assert synced(target).state is State.OK
    both = [*alone, entries[-1]]  # the log has only grown, and its newest model is everybody's
    shown.update(entries=both, aimed=False)
    for one in (target, other):
        told = synced(one)
        assert told.state is State.UNPROVEN and "two models" in told.why
    assert any("two models" in wrong for wrong in _wrong_entries(both, hub.hub.terms))
    # A device that keeps the head of the one model finds the other where its tail no longer reaches back so far.
    kept = target._conversation.prover.seen(target._memory.terms)
    answer = Answer.parse(as_body(*log_answer(both, signer_of(hub))))
    fresh = Answer(answer.checkpoint, (), tuple(both), note=answer.note)
    with pytest.raises(UnprovenError, match="two models"):
        fresh.check(hub.hub.terms, kept, Trust())
    target.close(), other.close()


def test_a_round_has_one_model_in_the_log_even_where_the_hub_makes_another(tmp_path):
    """Its checkpoint is another machine's: the round goes on without that model, and the next one is everybody's."""
    settings = dict(rounds=0)
    with LocalHub(tmp_path / "hub", **settings) as first:
        first.next_round()
        before = entries_of(first)
    store = first.home.open()[1]
    real = store.newest_model()
    with store.transaction() as db:  # as if the hub had handed out another model of this round before it was moved
        moved = real[1][:4] + hashlib.sha256(b"made on another machine").digest()
        db.execute("UPDATE entry SET data = ? WHERE number = ?", (moved, real[0]))
        db.execute("DELETE FROM node")
        for number, entry in enumerate([*before[:-1], b"\x02" + moved]):
            for node in grown(store.log_node, number, leaf_hash(entry))[1:]:
                db.execute("INSERT INTO node VALUES (?, ?, ?)", node)
    store.close()
    with LocalHub(tmp_path / "hub", **settings) as again:
        again.do(again.hub.wait_for_round(30))
        assert again.hub.view.round == 2 and again.hub.view.state == "open"
        assert [entry[1:5] for entry in entries_of(again)[1:]] == [n.to_bytes(4, "big") for n in range(3)]
        one = device(again, tmp_path / "d")
        assert synced(one).state is State.OK
        one.close()
        with pytest.raises(StoreError, match="two models of round 2"):
            again.do(_append(again, model_data(aimed(again))))


async def _append(hub, data):
    Store(hub.home.log, name=hub.hub.store.name).append_model(data)


def test_an_app_that_wants_witnesses_uses_no_hub_without_a_log(tmp_path):
    watching = witness(tmp_path / "w")
    with LocalHub(tmp_path / "hub", log="no") as without:
        one = device(without, tmp_path / "d", witnesses=[str(watching.key)])
        assert synced(one).state is State.UNPROVEN
        other = device(without, tmp_path / "e")
        assert synced(other).state is State.OK
        assert not [path for _, path, *_ in other._connection.asked if "/log" in path]
        one.close(), other.close()
    watching.close()


def test_hostile_answers_never_raise_and_never_pass(hub, tmp_path):
    random = np.random.default_rng(1)
    state = {}

    def twist(path, status, headers, body):
        if path == "/v1/model" and status == 200:
            return status, headers, aimed(hub)
        if path.startswith("/v1/log"):
            return state["how"](status, headers, body)
        return status, headers, body

    def flipped(status, headers, body):
        changed = bytearray(body)
        for at in random.integers(0, len(changed), 3):
            changed[at] = random.integers(0, 256)
        return status, headers, bytes(changed)

    def cut(status, headers, body):
        return status, headers, body[: random.integers(0, len(body))]

    def junk(status, headers, body):
        return status, headers, random.bytes(int(random.integers(0, 300)))

    def other(status, headers, body):
        given = json.loads(body)
        name = ["checkpoint", "frontier", "entries", "proof", "terms"][random.integers(0, 5)]
        values = [None, 7, [], [[]], ["x"], "", {}, [None] * 3, ["AA=="] * 2000, True, "A" * 50_000, [""]]
        given[name] = values[random.integers(0, len(values))]
        return status, headers, json.dumps(given).encode()

    def deep(status, headers, body):
        return status, headers, b"[" * 30_000

    def refused(status, headers, body):
        return int(random.choice([204, 301, 401, 404, 500, 503])), {}, b""

    one = device(hub, tmp_path / "d", twist)
    for how in (flipped, cut, junk, other, deep, refused):
        state["how"] = how
        for _ in range(20):
            assert synced(one).state in (State.UNPROVEN, State.RETRY)
            assert one._memory.round is None
    one.close()


def test_what_was_kept_and_damaged_is_no_first_contact(hub, tmp_path):
    one = device(hub, tmp_path / "d")
    synced(one)
    one._memory.outbox.put(**{f"head {hub.hub.terms.hub}": "{}"})
    hub.next_round()
    assert synced(one).state is State.UNPROVEN
    one.close()


@pytest.fixture
def buying(monkeypatch):
    """Devices buy at the first moment."""
    monkeypatch.setattr(conversation, "_AHEAD", 1.0)


@pytest.fixture(scope="module")
def selling(tmp_path_factory):
    with LocalHub(tmp_path_factory.mktemp("selling") / "hub", tokens=3) as running:
        yield running


def bought(made):
    """Requests that bought tokens."""
    return [path for method, path, *_ in made._connection.asked if method == "POST" and path.startswith("/v1/token/")]


def test_a_token_is_bought_with_a_key_that_the_log_has(selling, tmp_path, buying):
    one = device(selling, tmp_path / "d")
    for _ in range(40):  # the tail of the log begins anew meanwhile, and epochs end
        assert synced(one).state is State.OK
        tail = Answer.parse(selling.ask("GET", "/v1/log")[2]).entries
        issuer, number = selling.hub.row.issuer, selling.hub.view.round
        epoch, offer = issuer.offer(number)
        assert bytes([3]) + epoch.to_bytes(4, "big") + hashlib.sha256(offer).digest() in tail
        if (beacon := issuer.beacon(number)) is not None:
            assert bytes([5]) + (epoch - 1).to_bytes(4) + beacon.value + beacon.sales.to_bytes(4) in tail
        assert {entry[0] for entry in issuer.entries()} == ({3} if number == 0 else {3, 5})
        assert set(issuer.entries()) <= set(tail)
        selling.next_round()
    assert len(bought(one)) >= 13
    found = audit_folder(selling.home.path)
    # Terms, models; offers, reports and draws, and two of these again a block.
    assert found.wrong == [] and found.size <= 1 + 42 + 3 * 15 + 2 * 4
    one.close()


def test_no_token_is_bought_with_a_key_that_was_made_for_one_device(selling, tmp_path, buying, caplog):
    def twist(path, status, headers, body):
        if path != "/v1/tokens" or not twist.on:
            return status, headers, body
        told = json.loads(body)
        told["offer"] = base64.urlsafe_b64encode(new_offer()[0]).decode()
        return status, headers, json.dumps(told).encode()

    twist.on = True
    one = device(selling, tmp_path / "d", twist)
    assert synced(one).state is State.OK and bought(one) == []
    assert "no token is bought: the log does not say that" in caplog.text
    one.close()


def test_a_log_with_two_keys_of_one_epoch_proves_nothing(selling):
    good = entries_of(selling)
    assert index_numbered(good) is not None
    for pair in (
        (offer_entry(7, b"one"), offer_entry(7, b"another")),
        (beacon_entry(7, bytes(32), 5), beacon_entry(7, bytes(32), 6)),
        (reports_entry(7, bytes(32)), reports_entry(7, b"1" * 32)),
        (beacon_entry(7, bytes(32), 5)[:-1],),
    ):
        assert index_numbered([*good, *pair]) is None
        assert any("two keys" in one for one in _wrong_entries([*good, *pair], selling.hub.terms))


def test_a_hub_that_gives_each_device_its_own_size_of_the_log_cannot_tell_whose_report_it_gets(
    selling, tmp_path, buying
):
    """The hub appends an entry before each answer, and begins the tail so late that whoever comes back tells a size."""
    signer, shown = signer_of(selling), list(entries_of(selling))

    def twist(path, status, headers, body):
        if not path.startswith("/v1/log"):
            return status, headers, body
        shown.append(bytes([9]) + len(shown).to_bytes(4))
        keys = [entry for entry in entries_of(selling) if entry[0] in (OFFER, BEACON)]
        model = [entry for entry in entries_of(selling) if entry[0] == 2][-1]
        begin = len(shown)
        shown.extend([*keys[-4:], model])
        tree = Grown()
        for entry in shown:
            tree.append(leaf_hash(entry))

        def node(level, number):
            return _root([leaf_hash(one) for one in shown[number << level : (number + 1) << level]])

        given = {
            "checkpoint": (head := Checkpoint.of(signer.key.name, tree.size, tree.root())).with_lines(
                signer.line(head)
            ),
            "frontier": [b64(node(*place)) for place in frontier(begin)],
            "entries": [b64(entry) for entry in shown[begin:]],
        }
        since = int(path.rpartition("/")[2]) if path != "/v1/log" else None
        if since == 0:
            given |= {"terms": b64(shown[0]), "proof": [b64(one) for one in inclusion_proof(node, 0, tree.size)]}
        elif since is not None:
            given["proof"] = [b64(one) for one in consistency_proof(node, since, tree.size)]
        return 200, {}, json.dumps(given).encode()

    one = device(selling, tmp_path / "d", twist)
    visits = []
    for _ in range(6):
        before = len(one._connection.asked)
        assert synced(one).state is State.OK
        visits.append([path for _, path, *_ in one._connection.asked[before:]])
        while one.wants_clicks:
            one.finish(one.rank(X))
        selling.next_round()
    one.close()
    sizes = [[path for path in visit if path.startswith("/v1/log/") and path != "/v1/log/0"] for visit in visits]
    assert all(sizes) and len({path for visit in sizes for path in visit}) == sum(map(len, sizes))
    linked = 0
    for visit, told in zip(visits, sizes, strict=True):
        linked += sum(path.startswith(("/v1/token/", "/v1/report/")) for path in visit[visit.index(told[0]) :])
    assert linked == 0
    assert any(path.startswith("/v1/token/") for path in visits[0])  # at the first contact there is no size to tell


def test_a_device_with_tokens_that_was_away_reports_after_its_next_visit(selling, tmp_path, buying):
    one = device(selling, tmp_path / "d")
    synced(one)
    for _ in range(36):
        selling.next_round()
    before = len(one._connection.asked)
    assert synced(one).state is State.OK and len(bought(one)) == 1
    assert any(path.startswith("/v1/log/") for _, path, *_ in one._connection.asked[before:])
    assert synced(one).state is State.OK and len(bought(one)) == 2
    for _ in range(6):
        if one.wants_clicks:
            break
        selling.next_round()
        assert synced(one).state is synced(one).state is State.OK
    while one.wants_clicks:
        one.finish(one.rank(X))
    assert synced(one).sent == 1
    one.close()


def test_a_hub_cannot_fill_a_devices_disk_with_keys(selling, tmp_path, buying):
    """It offers tokens of epochs that never come, and rounds that no file can hold."""
    count = iter(range(1000, 10**6))

    def twist(path, status, headers, body):
        if path == "/v1/tokens":
            told = json.loads(body)
            told |= {"epoch": next(count), "offer": b64(b"x" * 300)}
            told["round"] = told["round"] if twist.round is None else twist.round
            body = json.dumps(told).encode()
        return status, headers, body

    twist.round = None
    one = device(selling, tmp_path / "d", twist)
    for _ in range(8):
        assert synced(one).state is State.OK
    assert one._memory.outbox.execute("SELECT count(*) FROM epoch_token") == [(0,)]
    for twist.round in (-1, 2**32, 10**400):
        told = synced(one)
        assert told.state is State.RETRY and "cannot be read" in told.why
    one.close()
