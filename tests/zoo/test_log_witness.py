"""Witnesses cosign growth and nothing else, over restarts; a hub's log survives being killed at any step."""

import asyncio
import functools
import json
from base64 import b64encode
from typing import ClassVar

import pytest
from hubs import enrolled, make, message, opened, running
from log_worlds import LocalHub, cosign, signer_of, witness

from fedrank.cli.main import call
from fedrank.core.errors import RunError
from fedrank.deploy.http.client import HttpClient, response_of
from fedrank.deploy.hub import publishing as published
from fedrank.deploy.hub.audit import audit_folder
from fedrank.deploy.log.note import Checkpoint, Signer
from fedrank.deploy.log.proof import Answer, UnprovenError
from fedrank.deploy.log.submission import body_of
from fedrank.deploy.log.tree import MODEL, Grown, consistency_proof, grown, leaf_hash
from fedrank_zoo.witness.gossip import compare
from fedrank_zoo.witness.witness import Reading, Witness, WitnessFolder, as_json, read_on

LOG = Signer("log.example/1", 1, bytes(32))


class Log:
    """A log in memory, and heads of it."""

    def __init__(self, entries):
        self.entries, self.nodes, self.tree = entries, {}, [Grown()]
        for number, entry in enumerate(entries):
            for level, at, hash_ in grown(lambda *place: self.nodes[place], number, leaf_hash(entry)):
                self.nodes[level, at] = hash_
            after = Grown()
            for one in entries[: number + 1]:
                after.append(leaf_hash(one))
            self.tree.append(after)

    def note(self, size, by=LOG):
        head = Checkpoint.of(LOG.key.name, size, self.tree[size].root())
        return head.with_lines(by.line(head))

    def body(self, old, size, claimed=None):
        proof = consistency_proof(lambda *place: self.nodes[place], old, size) if old else []
        return body_of(old if claimed is None else claimed, proof, self.note(size))


@pytest.fixture
def home(tmp_path):
    made = WitnessFolder(tmp_path / "witness")
    made.prepare("witness.example/1", [str(LOG.key)])
    return made


ONE = Log([b"\x09%d" % n for n in range(9)])
TWO = Log([b"\x09%d" % (n if n < 5 else -n) for n in range(9)])


def test_a_witness_cosigns_growth_and_nothing_else(home):
    one = Witness(home)
    said = one.add(ONE.body(0, 3))
    assert said.status == 200
    assert Checkpoint.parse(ONE.note(3) + said.text).cosigned_by(one.key) is not None
    answers = {
        "not at all": (b"old 3\n\nx", 400),
        "leading zero": (ONE.body(3, 5).replace(b"old 3", b"old 03"), 400),
        "old above new": (ONE.body(0, 3, claimed=4), 400),
        "another size than it cosigned": (ONE.body(2, 5), 409),
        "from nothing": (ONE.body(0, 5), 409),
        "no proof": (body_of(3, [], ONE.note(5)), 422),
        "not signed by the log": (body_of(3, [], ONE.note(5, Signer(LOG.key.name, 1, b"x" * 32))), 403),
        "unknown log": (body_of(3, [], ONE.note(5).replace("log.example", "other.example")), 404),
    }
    for what, (body, status) in answers.items():
        assert one.add(body).status == status, what
    assert one.add(ONE.body(2, 5)).text == "3\n" and one.add(ONE.body(2, 5)).kind == "text/x.tlog.size"
    assert one.add(ONE.body(3, 7)).status == one.add(ONE.body(7, 7)).status == 200
    one.close()


def test_a_witness_that_was_killed_does_not_go_back(home):
    one = Witness(home)
    assert one.add(ONE.body(0, 6)).status == 200  # and it is killed: nothing is closed
    again = Witness(home)
    assert again.add(ONE.body(0, 3)).status == 409
    assert again.add(TWO.body(6, 8)).status == 422  # the other log is another at 6
    assert again.evidence() == []
    assert again.add(TWO.body(0, 6)).status == 409
    ((origin, first, second),) = again.evidence()
    assert {first, second} == {ONE.note(6) + again_line(again), TWO.note(6)} and origin == LOG.key.name
    again.close(), one.close()


def again_line(one):
    (note,) = one.heads()
    return note[len(ONE.note(6)) :]


def test_a_log_begins_anew_by_a_command_that_serves_nothing(home, capsys, monkeypatch):
    """Else it would do so at every start, and a log could go back as often as its witness is started."""
    served = []
    monkeypatch.setattr("fedrank.cli.listen.Address.serve", lambda *_, **__: served.append(True))
    one = Witness(home)
    assert one.add(ONE.body(0, 7)).status == 200
    before = one.heads()
    one.close()
    assert call(["hub", "witness", str(home.path), "--put-back", str(LOG.key)]) == 0
    assert before[0] in capsys.readouterr().out and served == []
    assert call(["hub", "witness", str(home.path)]) == 0 and served == [True]
    one = Witness(home)
    assert one.heads() == [] and one.add(TWO.body(0, 5)).status == 200
    one.close()


def test_a_witness_without_its_database_or_key_does_not_start(home):
    Witness(home).close()
    (home.path / "witness.db").write_bytes(b"x" * 4096)
    with pytest.raises(RunError, match="never start without it"):
        Witness(home)
    (home.path / "witness.key").write_text("?")
    with pytest.raises(RunError, match="key cannot be read"):
        Witness(home)


def test_gossip_finds_a_split_view(tmp_path):
    witnesses = []
    for name, log in (("a", ONE), ("b", TWO)):
        made = WitnessFolder(tmp_path / name)
        made.prepare(f"{name}.example", [str(LOG.key)])
        witnesses.append(Witness(made))
        assert witnesses[-1].add(log.body(0, 8)).status == 200

    class Client(HttpClient):
        def request(self, method, path, token, *, body=None, limit=0):
            return response_of(200, as_json(witnesses[1]).encode(), lambda name: None)

    found = compare(witnesses[0], ["http://localhost:1"], Client)
    assert len(found.split) == 1 and not found.silent
    assert len(witnesses[0].evidence()) == 1
    assert not witnesses[0].keep(ONE.note(8), ONE.note(8)) and not witnesses[0].keep(ONE.note(7), TWO.note(8))
    for one in witnesses:
        one.close()


class Hostile(HttpClient):
    """A hub or a witness by its address: answers by path."""

    answers: ClassVar[dict] = {}

    def request(self, method, path, token, *, body=None, limit=0):
        answers = self.answers.get(self.url, {})
        found = answers.get(path)
        if path.startswith("/v1/log/entries/") and "log" in answers:
            texts = [b64encode(one).decode() for one in answers["log"].entries[int(path.split("/")[-1]) :]]
            found = json.dumps({"entries": texts[:3]}).encode()
        found = found() if callable(found) else found
        return response_of(404 if found is None else 200, found or b"", lambda name: None)


def shown(log, size, since=None):
    """What a hub shows of a log, with a proof."""
    proof = consistency_proof(lambda *place: log.nodes[place], since, size) if since else []
    texts = [b64encode(step).decode() for step in proof]
    return json.dumps({"checkpoint": log.note(size), "proof": texts}).encode()


def heads(*notes):
    return json.dumps({"heads": notes, "evidence": []}).encode()


HUB, A, B = (f"http://localhost:{n}" for n in (1, 2, 3))


@pytest.mark.parametrize("at", [8, 9])
def test_a_hub_that_shows_each_head_a_future_of_its_own_is_found(home, at):
    """Two witnesses saw heads of different sizes of two logs; the hub proves each to lead to its own newest head."""
    one = Witness(home)
    hub = {"/v1/log": shown(ONE, 8), "/v1/log/6": shown(ONE, 8, 6), "/v1/log/7": shown(TWO, at, 7)}
    hub |= {"/v1/log/8": shown(ONE, 9, 8), "/v1/log/9": shown(TWO, 9)}
    Hostile.answers = {HUB: hub, A: {"/heads": heads(ONE.note(6))}, B: {"/heads": heads(TWO.note(7))}}
    found = compare(one, [HUB, A, B], Hostile)
    assert found.unproven and not found.silent
    assert len(found.split) == 1  # two heads of one size, which the hub itself has signed
    one.close()


@pytest.mark.parametrize(
    "evidence", [[{"heads": ["x"]}], [{"heads": [1, 2]}], [{"heads": "xy"}], [[]], [None], {"heads": []}, 7, "x"]
)
def test_a_hostile_peer_blinds_nobody(home, evidence):
    one = Witness(home)
    hostile = json.dumps({"heads": [], "evidence": evidence}).encode()
    Hostile.answers = {A: {"/heads": hostile}, B: {"/heads": heads(ONE.note(7))}}
    found = compare(one, [A, B], Hostile)
    assert found.silent == [A] and [size for _, _, size in found.heads] == [7]
    one.close()


def test_two_heads_of_one_size_that_bind_other_notices_contradict_each_other(home):
    """One of them hides a change of a key, under the same hash of the tree."""
    one = Witness(home)
    notes = []
    for notices in ([], [(3, b"\x07 a change")]):
        head = Checkpoint.of(LOG.key.name, 8, ONE.tree[8].root(), notices)
        notes.append(head.with_lines(LOG.line(head)))
    assert one.add(body_of(0, [], notes[0])).status == 200
    assert one.add(body_of(8, [], notes[1])).status == 409 and len(one.evidence()) == 1
    assert one.keep(*notes) and one.add(body_of(8, [], notes[0])).status == 200
    one.close()


def test_evidence_of_a_log_is_kept_a_few_times(home):
    """A log that signs without end whatever it likes fills nobody's disk: one pair of heads says all."""
    one = Witness(home)

    def signed(byte):
        head = Checkpoint.of(LOG.key.name, 8, bytes([byte]) * 32)
        return head.with_lines(LOG.line(head))

    assert all(one.keep(signed(0), signed(n)) for n in range(1, 60))
    kept = one.evidence()
    assert len(kept) == 16 and signed(0) in kept[0]
    assert one.keep(signed(0), signed(1)) and one.evidence() == kept
    one.close()


def test_a_log_that_grows_while_it_is_compared_is_no_split_view(home):
    one, sizes = Witness(home), iter([7, 8, 9, 9, 9, 9, 9, 9, 9])
    hub = {"/v1/log": shown(ONE, 6), "log": ONE}
    hub |= {f"/v1/log/{since}": (lambda since=since: shown(ONE, next(sizes), since)) for since in range(1, 9)}
    Hostile.answers = {HUB: hub, A: {"/heads": heads(ONE.note(4))}, B: {"/heads": heads(ONE.note(5))}}
    found = compare(one, [HUB, A, B], Hostile)
    assert not (found.unproven or found.split or found.silent)
    one.close()


def test_a_hub_whose_newest_head_always_moves_on_proves_nothing(home):
    many = Log([b"\x09%d" % n for n in range(60)])
    one, sizes = Witness(home), iter(range(20, 60))
    hub = {"/v1/log": shown(many, 19)}
    hub |= {f"/v1/log/{since}": (lambda since=since: shown(many, next(sizes), since)) for since in range(1, 60)}
    Hostile.answers = {HUB: hub, A: {"/heads": heads(many.note(4))}}
    found = compare(one, [HUB, A], Hostile)
    assert found.unproven and next(sizes) < 40  # and it did not go on for ever
    one.close()


def test_a_witness_that_reads_a_log_with_two_models_of_one_round_cosigns_it_no_more(home):
    """The log has only grown, and every head leads to the next: only who reads the entries sees it."""
    models = [b"\x02" + n.to_bytes(4, "big") + bytes([n]) * 32 for n in range(6)]
    log = Log([b"\x01{}", *models, models[5][:5] + b"x" * 32, b"\x02" + (6).to_bytes(4, "big") + bytes(32)])
    one = Witness(home)
    assert one.add(log.body(0, 4)).status == 200
    for size, wrong in ((6, False), (7, False), (8, True), (9, True)):
        hub = {"/v1/log": shown(log, size), "log": log}
        hub |= {f"/v1/log/{n}": shown(log, size, n) for n in range(1, size + 1)}
        Hostile.answers = {HUB: hub}
        found = compare(one, [HUB], Hostile)
        assert not (found.unproven or found.split) and bool(found.wrong) is wrong
        assert one.reading(LOG.key.name).size == size
        if not wrong:
            assert one.add(log.body(max(4, size - 1) if size > 6 else 4, size)).status == 200
    assert one.add(log.body(7, 9)).status == 403
    one.close()
    again = Witness(home)
    assert again.add(log.body(7, 8)).status == 403
    hub["/v1/log"] = shown(log, 9)
    hub["log"] = ONE  # entries of another log
    fresh = Reading()
    with pytest.raises(UnprovenError, match="not those of its head"):
        read_on(Hostile(HUB), Checkpoint.parse(log.note(9)), fresh, LOG.key)
    again.close()


def test_a_witness_cosigns_no_log_whose_heads_leave_out_a_change_of_a_key(home):
    """A hub that works with a relay could have devices go on with a stolen gateway's key."""
    change = [bytes([7, 2]) + n.to_bytes(8, "big") + bytes(64) for n in (1, 2)]
    back = b"\x06" + (9).to_bytes(8, "big")
    log = Log([b"\x01{}", ONE.entries[0], change[0], back, ONE.entries[1], change[1], ONE.entries[2]])

    def binding(size, *numbers):
        head = Checkpoint.of(LOG.key.name, size, log.tree[size].root(), [(n, log.entries[n]) for n in numbers])
        return Checkpoint.parse(head.with_lines(LOG.line(head)))

    hub = Hostile(HUB)
    Hostile.answers = {HUB: {"log": log}}
    before = Reading()
    for size, numbers in ((2, ()), (3, (2,)), (5, (2, 3)), (7, (3, 5))):
        assert read_on(hub, binding(size, *numbers), Reading(), LOG.key).wrong == ""
        for wrong in ((), (2,), (3,), (2, 3, 5)):
            if wrong != numbers and all(n < size for n in wrong):
                assert "changes of keys" in read_on(hub, binding(size, *wrong), before, LOG.key).wrong
        before = read_on(hub, binding(size, *numbers), before, LOG.key)  # a page at a time, as it grows
        assert [n for n, _ in before.notices] == list(numbers)
    one = Witness(home)
    one.has_read(LOG.key.name, before)
    assert one.reading(LOG.key.name).notices == before.notices
    one.has_read(LOG.key.name, read_on(hub, binding(7, 3), Reading(), LOG.key))
    assert one.add(log.body(0, 7)).status == 403
    one.close()


def test_a_hub_and_its_witness_agree(tmp_path):
    with LocalHub(tmp_path / "hub") as hub:
        one = witness(tmp_path / "w", hub)
        cosign(hub, one)
        hub.next_round()
        cosign(hub, one)
        hub.next_round()

        class Client(HttpClient):
            def request(self, method, path, token, *, body=None, limit=0):
                status, headers, content = hub.ask(method, path, token)
                return response_of(status, content, lambda name: headers.get(name.lower()))

        found = compare(one, ["http://localhost:1"], Client)
        assert [size for _, _, size in found.heads] == [3, 4] and not (found.split or found.unproven or found.silent)
        key = signer_of(hub).key
        assert Checkpoint.parse(one.heads()[0]).is_signed_by(key)
        one.close()


def test_a_round_is_open_if_and_only_if_its_model_is_in_the_log(tmp_path, monkeypatch):
    """Killed before, within and after the transaction that opens a round."""
    home = make(tmp_path / "hub", cohort=2)

    def reached(store):
        last = store.last_round()
        return (last.number, sum(entry[0] == MODEL for entry in store.log_entries(0, 99)))

    async def lived(kill):
        async with running(home) as hub:
            await opened(hub, 0)  # a round that was closed when the process died is applied now
            real = hub.store.apply_round

            def dies(*values, **named):
                if kill == "before":
                    raise SystemError("killed")
                if kill == "within":  # what the transaction wrote is undone, as by the next start after a kill
                    with hub.store.transaction() as db:
                        db.execute("UPDATE round SET state = 'applied'")
                        raise SystemError("killed")
                real(*values, **named)
                if kill == "after":
                    raise SystemError("killed")

            monkeypatch.setattr(hub.store, "apply_round", dies)
            devices = await enrolled(hub, 2)
            number = hub.view.round
            await asyncio.gather(*(hub.report(number, d, message(hub, d, 1, 2)) for d in devices))
            if kill is None:
                await opened(hub, number + 1)
            else:
                await asyncio.sleep(0.2)

    for kill in ("before", None, "within", "after", None):
        asyncio.run(lived(kill))
        _, store = home.open(read_only=True)
        number, models = reached(store)
        assert models == number + 1
        store.close()
    found = audit_folder(home.path)
    assert not found.wrong and found.replayed == found.models == number + 1


def whole_and_consistent(response):
    """The size of the head in an answer whose tail makes its hash."""
    answer = Answer.parse(response.payload["body"])
    tree = Grown(answer.checkpoint.size - len(answer.entries), answer.frontier)
    for entry in answer.entries:
        tree.append(leaf_hash(entry))
    assert tree.root() == answer.checkpoint.root
    return answer.checkpoint.size


def test_who_asks_while_a_head_is_replaced_gets_all_of_one_head(tmp_path, monkeypatch):
    """Every step of showing a new head is interrupted by a reader and by a witness that cosigned the one before."""
    with LocalHub(tmp_path / "hub") as hub:
        log, seen, within = hub.hub.row.publishing, [], []
        size = whole_and_consistent(log.since(0))

        def interrupted(real, value):
            if not within:
                within.append(True)
                log._add_cosignatures(size, "")
                seen.extend([whole_and_consistent(log._shown.whole), whole_and_consistent(log.since(0))])
                within.clear()
            return real(value)

        monkeypatch.setattr(published, "_json", functools.partial(interrupted, published._json))
        (signer,) = log._signers()
        monkeypatch.setattr(signer, "line", functools.partial(interrupted, signer.line))
        hub.next_round()
        monkeypatch.undo()
        assert len(seen) >= 4
        assert whole_and_consistent(log._shown.whole) == whole_and_consistent(log.since(0)) == size + 1


def test_a_key_of_another_log_is_refused(tmp_path):
    home = make(tmp_path / "hub")
    (home.path / "log.key").write_text("11" * 32)

    async def start():
        async with running(home):
            raise AssertionError("started")

    with pytest.raises(RunError, match="not the key of the hub's terms"):
        asyncio.run(start())


def test_an_auditor_sees_what_was_changed(tmp_path):
    home = make(tmp_path / "hub", cohort=1)

    async def lived():
        async with running(home) as hub:
            (device,) = await enrolled(hub, 1)
            for number in range(3):
                await hub.report(number, device, message(hub, number, 1, 2))
                await opened(hub, number + 1)

    asyncio.run(lived())
    assert audit_folder(home.path).wrong == []
    _, store = home.open()
    store._db.execute("UPDATE entry SET data = zeroblob(32) WHERE number = 2")
    store.close()
    wrong = audit_folder(home.path).wrong
    assert any("not those of the entries" in one for one in wrong) and any("reports make" in one for one in wrong)
    assert json.dumps(wrong)
