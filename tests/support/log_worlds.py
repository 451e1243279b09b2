"""A hub with a log and its devices in one process, without a network between them; hubs that show what is not true."""

import asyncio
import json
import threading
from base64 import b64encode

import numpy as np
from fake_hub import ANYTHING
from hubs import trial_settings

from fedrank.deploy.device import Device
from fedrank.deploy.device.connection import HubClient
from fedrank.deploy.http.client import response_of
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.hub.service import hub_app
from fedrank.deploy.log.note import LOG, Checkpoint, Signer, origin_of
from fedrank.deploy.log.proof import Answer
from fedrank.deploy.log.submission import body_of
from fedrank.deploy.log.tree import Grown, grown, inclusion_proof, leaf_hash
from fedrank_zoo.witness.witness import Witness, WitnessFolder

SETTINGS = dict(
    n_features=3,
    cohort=4,
    least=1,
    deadline=0.0,
    reports_per_minute=1e9,
    enrolments_per_minute=1e9,
    mechanism="randomised-response",
)


class LocalHub:
    """A real hub and its application, in a loop of its own thread; ``ask`` is what a network would do."""

    def __init__(self, folder, **settings):
        self.home = HubFolder(folder)
        self.home.prepare(trial_settings(**{**SETTINGS, **settings}))
        self.enrolment = self.home.token("enrolment")

    @classmethod
    def of(cls, folder):
        """The hub of a folder that is there."""
        made = cls.__new__(cls)
        made.home = HubFolder(folder)
        made.enrolment = made.home.token("enrolment")
        return made

    def __enter__(self):
        self.hub, self.app = hub_app(self.home)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.do(self.hub.start())
        return self

    def __exit__(self, *_):
        self.do(self.hub.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def do(self, awaitable):
        return asyncio.run_coroutine_threadsafe(awaitable, self.loop).result(60)

    def next_round(self):
        """Close the open round without a report, and wait for the next."""
        number = self.do(self.hub.close_round(empty=True))
        self.do(self.hub.wait_for_round(10))
        return number

    def ask(self, method, path, token="", body=b"", etag=""):
        headers = [(b"authorization", token.encode() if " " in token else b"Bearer " + token.encode())]
        headers += [(b"if-none-match", etag.encode())] if etag else []
        return self.do(self._exchange(method, path, headers, body))

    async def _exchange(self, method, path, headers, body):
        sent, pieces = [], [{"type": "http.request", "body": body, "more_body": False}]
        headers = [*headers, (b"content-length", b"%d" % len(body))]
        scope = {"type": "http", "method": method, "path": path, "headers": headers, "client": ("127.0.0.1", 1)}

        async def receive():
            return pieces.pop() if pieces else {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)

        await self.app(scope, receive, send)
        given = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], given, b"".join(part.get("body", b"") for part in sent[1:])


class LocalClient(HubClient):
    """Requests of a device to a hub in this process; ``twist`` may change an answer (path, status, headers, body)."""

    def __init__(self, hub, twist=None):
        super().__init__("http://localhost:1")
        self._hub, self.twist, self.asked = hub, twist, []

    def request(self, method, path, token, *, body=None, etag="", limit=4096):
        self.asked.append((method, path, token, etag))
        answer = self._hub.ask(method, path, token, body or b"", etag)
        status, headers, content = self.twist(path, *answer) if self.twist else answer
        return response_of(status, content[: limit + 1], lambda name: headers.get(name.lower()))


def device(hub, folder, twist=None, **settings):
    """A device of a hub in this process."""
    made = Device("http://localhost:1", hub.enrolment, folder, **(ANYTHING | settings))
    client = LocalClient(hub, twist)
    made._connection = made._conversation._connection = made._conversation.prover._connection = client
    return made


def rested(made):
    """Forget that the last attempt failed, so that the next is made at once."""
    made._conversation.backoff.reset()
    made._memory.outbox.put(backoff=None)
    return made


def synced(made):
    return rested(made).sync()


def signer_of(hub):
    """What signs for a hub's log: for hubs that mean harm, which have it."""
    private = bytes.fromhex((hub.home.path / "log.key").read_text().strip())
    return Signer(origin_of(hub.hub.terms.hub), LOG, private)


def witness(folder, *hubs, name="witness.example/1"):
    """A witness of the logs of hubs."""
    home = WitnessFolder(folder)
    home.prepare(name, [str(signer_of(hub).key) for hub in hubs])
    return Witness(home)


def cosign(hub, *witnesses):
    """Have witnesses cosign the newest head of a hub."""
    log = hub.hub.row.publishing
    note, size = log._submission._head
    lines = ""
    for one in witnesses:
        seen = int(one.add(body_of(0, [], note)).text.split()[0]) if one.heads() else 0
        said = one.add(body_of(seen, hub.do(_proof(log, seen, size)), note))
        assert said.status == 200, said
        lines += said.text
    hub.do(_show(log, size, lines))


async def _proof(log, seen, size):
    return log._proof_since(seen, size)


async def _show(log, size, lines):
    log._add_cosignatures(size, lines)


def log_answer(entries, signer, size=None, notices=()):
    """A whole log in one answer, as a hub that means harm makes it; notices are given by their numbers."""
    tree = Grown()
    for entry in entries:
        tree.append(leaf_hash(entry))
    told = [(number, entries[number]) for number in notices]
    head = Checkpoint.of(signer.key.name, tree.size if size is None else size, tree.root(), told)
    note, node = head.with_lines(signer.line(head)), Entries(entries).node
    proven = tuple((n, entry, tuple(inclusion_proof(node, n, tree.size))) for n, entry in told)
    return Answer(Checkpoint.parse(note), (), tuple(entries), note=note, notices=proven), note


class Entries:
    """The nodes of the tree over entries."""

    def __init__(self, entries):
        self._nodes = {}
        for number, entry in enumerate(entries):
            for level, at, hash_ in grown(self.node, number, leaf_hash(entry)):
                self._nodes[level, at] = hash_

    def node(self, level, number):
        return self._nodes[level, number]


def entries_of(hub):
    return hub.hub.row.publishing._reader.log_entries(0, 10**6)


def as_body(answer, note):
    texts = [b64encode(one).decode() for one in answer.entries]
    return json.dumps({"checkpoint": note, "frontier": [], "entries": texts}).encode()


def aimed(hub, round_=None):
    """Another model message than everybody's, of the same round."""
    message = bytearray(hub.hub.view.model)
    message[5:9] = np.float32(7).tobytes()
    return bytes(message)
