"""Verifying a hub's whole log: its tree, its signed head, its terms, and the models that its reports make."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fedrank.core.errors import RunError, WireError
from fedrank.deploy.http.client import HttpClient
from fedrank.deploy.hub.audit import replay_log
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.log.entries import ISSUER_KEY, KEY_ENTRY, MODEL, TERMS, hash_of, wrong_models
from fedrank.deploy.log.note import Key, log_key
from fedrank.deploy.log.proof import LARGEST, Answer
from fedrank.deploy.log.tree import Grown, leaf_hash, root
from fedrank.deploy.terms import Terms

#: Largest page of entries in bytes.
_PAGE = 4 << 20


@dataclass(frozen=True)
class Audited:
    """Result of an audit.

    Attributes:
        key: Public key of the log.
        size: Number of its entries.
        root: Hash of its tree.
        models: Models in it.
        note: Signed head; empty for a folder, where none is kept.
        wrong: What is wrong, in words; empty if nothing is.
        replayed: Models that the reports make and that are the log's, in order; None: reports were not looked at.
    """

    key: Key
    size: int
    root: bytes
    models: int
    note: str = ""
    wrong: list[str] = field(default_factory=list)
    replayed: int | None = None


def audit_folder(folder: Path, *, replay: bool = True) -> Audited:
    """Verify the log of a hub's folder; the hub may be running.

    Args:
        folder: Of the hub.
        replay: Make all models again from the reports, and compare.

    Raises:
        RunError: There is no hub, or it has no log.
    """
    settings, store = HubFolder(folder).open(read_only=True)
    try:
        terms = settings.terms(store.name)
        if not terms.log:
            raise RunError(f"{folder}: this hub has no public log (log = no).")
        size = store.log_size()
        entries = store.log_entries(0, size)
        wrong, tree = _wrong_entries(entries, terms), Grown()
        for entry in entries:
            tree.append(leaf_hash(entry))
        if len(entries) != size or root(store.log_node, size) != tree.root():
            wrong.append("the hashes that are kept are not those of the entries")
    finally:
        store.close()
    models, replayed = [hash_of(entry[1:]) for entry in entries if entry[:1] == bytes([MODEL])], None
    if replay and not settings.relay:
        made = replay_log(folder).handed_out
        replayed = sum(one == other for one, other in zip(made, models, strict=False))
        if replayed < min(len(made), len(models)) or len(models) < len(made):
            wrong.append(f"{replayed} of {len(made)} models that the reports make are in the log, in their order")
    return Audited(log_key(terms.hub, terms.log), size, tree.root(), len(models), "", wrong, replayed)


def audit_hub(client: HttpClient) -> Audited:
    """Verify the log that a hub shows: every entry, the tree over them, the signature under its hash.

    Raises:
        RunError: The hub shows no log.
        OSError: It does not answer.
    """
    answer = _answer(client, "/v1/log/0")
    first = answer.terms or answer.entries[0]
    try:
        terms = Terms.from_json(first[1:])
        key = log_key(terms.hub, terms.log)
    except (WireError, ValueError) as error:
        raise RunError(f"{client.url}: its log does not begin with terms ({error}).") from error
    entries: list[bytes] = []
    while len(entries) < answer.checkpoint.size:
        page = client.request("GET", f"/v1/log/entries/{len(entries)}", "", limit=_PAGE)
        more = Answer.entries_in(page.body) if page.status == 200 else ()
        if not more:
            break
        entries += more
    entries = entries[: answer.checkpoint.size]
    tree, wrong = Grown(), _wrong_entries(entries, terms)
    for entry in entries:
        tree.append(leaf_hash(entry))
    if not answer.checkpoint.is_signed_by(key):
        wrong.append("the head is not signed by the key of the terms in the log")
    if (tree.size, tree.root()) != (answer.checkpoint.size, answer.checkpoint.root):
        wrong.append("the head is not that of the entries")
    models = sum(entry[:1] == bytes([MODEL]) for entry in entries)
    return Audited(key, answer.checkpoint.size, tree.root(), models, answer.note, wrong)


def _answer(client: HttpClient, path: str) -> Answer:
    answer = client.request("GET", path, "", limit=LARGEST)
    if answer.status != 200:
        raise RunError(f"{client.url}: shows no log (status {answer.status}).")
    return Answer.parse(answer.body)


def _wrong_entries(entries: list[bytes], terms: Terms) -> list[str]:
    if not entries or entries[0][:1] != bytes([TERMS]):
        return ["the first entry is not the hub's terms"]
    wrong = []
    if Terms.from_json(entries[0][1:]) != terms:
        wrong.append("the terms in the log are not those of the hub")
    if any(entry[:1] == bytes([TERMS]) for entry in entries[1:]):
        wrong.append("there are terms more than once")
    if models := wrong_models(entries):
        wrong.append(models)
    keys = {entry for entry in entries if entry[0] == ISSUER_KEY}
    if any(len(entry) != KEY_ENTRY for entry in keys) or len({entry[:5] for entry in keys}) < len(keys):
        wrong.append("there are two keys of one epoch, or an entry about a key has another length")
    return wrong


def as_json(found: Audited) -> dict[str, object]:
    """The result for machines."""
    return {
        "key": str(found.key),
        "size": found.size,
        "root": found.root.hex(),
        "models": found.models,
        "replayed": found.replayed,
        "checkpoint": found.note,
        "wrong": found.wrong,
    }
