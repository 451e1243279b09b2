"""Audit of a hub: its model rebuilt from its log of reports, and its public log verified.

A replay proves where the model came from, or makes it without some devices' reports. The public log has a tree, a
signed head, the terms, and the models that the reports make.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError, RunError, WireError
from fedrank.deploy.draws import turn
from fedrank.deploy.http.client import HttpClient
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.hub.learning import Learning, learnable, protocol_of, rebuild
from fedrank.deploy.hub.settings import HubSettings, read_settings
from fedrank.deploy.hub.store import States, Store
from fedrank.deploy.log.note import Key
from fedrank.deploy.log.proof import LARGEST, Answer, UnprovenError, newest_keys, newest_log_key
from fedrank.deploy.log.tree import (
    BEACON,
    MODEL,
    RECOVERY,
    REPORTS,
    TERMS,
    Grown,
    hash_of,
    index_numbered,
    leaf_hash,
    numbered_hash,
    root,
    wrong_models,
)
from fedrank.deploy.oblivious.tokens import draw_key
from fedrank.deploy.terms import Terms


@dataclass(frozen=True)
class Replayed:
    """Result of a replay.

    Attributes:
        rounds: Rounds that were replayed, all of them applied.
        reports: Reports that were counted in them.
        left_out: Reports of devices that were left out.
        weights: The model after the last of them, float32 [parameters].
        models: Number of rebuilt models whose SHA-256 is in the log: those of the rounds, and the one after the last.
        models_alike: Number of these whose SHA-256 is the same.
        served: Model of the hub's checkpoint of the same round; None: there is none, or devices were left out.
        handed_out: SHA-256 of the model message of each round, and of that after the last.
    """

    rounds: int
    reports: int
    left_out: int
    weights: Float32[np.ndarray, " parameters"]
    models: int
    models_alike: int
    served: Float32[np.ndarray, " parameters"] | None
    handed_out: tuple[bytes, ...] = ()

    @property
    def difference(self) -> float | None:
        """Largest absolute difference from the served model's weights; 0 where they are the same bits."""
        return None if self.served is None else float(np.max(np.abs(self.weights - self.served)))

    @property
    def proven(self) -> bool | None:
        """True if the log yields every model that was handed out, and the served one; None: the last one is not known.

        The model after the last round is known from the next round, which is open in a hub that continues, or from its
        checkpoint.
        """
        if self.models_alike < self.models or self.difference not in (0.0, None):
            return False
        return True if self.models > self.rounds or self.difference == 0.0 else None


def replay_log(folder: str | os.PathLike[str], *, without: Iterable[int] = (), until: int | None = None) -> Replayed:
    """Rebuild a hub's model from its log; the hub may be running.

    Args:
        folder: Folder of the hub.
        without: Numbers of devices whose reports are left out.
        until: Replay the rounds before this one; None: all that were applied.

    Raises:
        RunError: There is no hub, its log has gaps, or it holds messages that no device can send.
        ConfigError: A device that never reported, or a round beyond the last.
    """
    home, away = HubFolder(folder), frozenset(without)
    settings, store = home.open(read_only=True)
    with contextlib.closing(store):
        if settings.collect:
            raise RunError(
                f"{home.path}: this hub collects for a coordinator, it does not learn; replay its coordinator's rounds."
            )
        return _replay(home, settings, store, away, until)


def _replay(home: HubFolder, settings: HubSettings, store: Store, away: frozenset[int], until: int | None) -> Replayed:
    everything = store.rounds()
    rows = [row for row in everything if row.state == "applied"]
    if until is not None:
        if not 0 <= until <= len(rows):
            raise ConfigError(f"until must be in 0..{len(rows)}, the rounds that were applied, got {until}.")
        rows = rows[:until]
    unknown = away - set(store.reports_of_devices())
    if unknown:
        raise ConfigError(f"{store.path}: device {min(unknown)} has no report in the log; nothing to leave out.")
    learning = Learning(protocol_of(settings, store))
    counted, left_out, alike, handed_out = list[int](), list[int](), list[bool](), list[bytes]()
    terms = settings.terms(store.name)
    returns = {halt.round: halt.best for halt in store.halts() if halt.round <= len(rows)}
    digests = {row.number: row.model for row in everything if row.model is not None}

    def log():
        for row in rows:
            reports = learnable(store.reports(row.number), terms)
            if len(reports) != row.reports:
                raise RunError(
                    f"{store.path}: round {row.number} was applied with {row.reports} reports, the log has "
                    f"{len(reports)}. Reports were removed or added; restore a copy."
                )
            left_out.append(sum(device in away for device, _ in reports))
            counted.append(len(reports) - left_out[-1])
            yield row.number, reports

    def check(number: int, state: PyTree) -> None:
        handed_out.append(hashlib.sha256(learning.request(state)).digest())
        if number in digests and not away:
            alike.append(learning.digest(state) == digests[number])

    state = rebuild(learning, learning.init(), log(), without=away, check=check, returns=returns)
    check(len(rows), state)
    served = None
    if not away:
        kept = States(store, "checkpoints", json.loads(store.settings), home.path / "checkpoints")
        found = next(kept.states(state, len(rows)), None)
        served = learning.weights(found[1]) if found is not None and found[0] == len(rows) else None
    weights, models = learning.weights(state), (len(alike), sum(alike))
    return Replayed(len(rows), sum(counted), sum(left_out), weights, *models, served, tuple(handed_out))


def write_model(
    folder: str | os.PathLike[str], weights: Float32[np.ndarray, " parameters"], path: str | os.PathLike[str]
) -> None:
    """Write a model of a hub to a file that :func:`fedrank.load` reads.

    Devices normalise by themselves: the file has the normalisation of the model that the hub started from, or none.

    Args:
        folder: Folder of the hub, whose settings name the ranker.
        weights: float32 [parameters].
        path: Path of the file.

    Raises:
        RunError: It cannot be written.
        ModelError: The model that the hub started from cannot be read.
    """
    from fedrank.engine.model import read_model
    from fedrank.ranking.model import RankingModel

    home, weights = HubFolder(folder), np.asarray(weights, np.float32)
    protocol = read_settings(home.settings).protocol()
    model = RankingModel(protocol.ranker, weights, about={"protocol": protocol.name})
    if home.start.exists():
        start = read_model(home.start)
        assert isinstance(start, RankingModel)  # the hub was made with it
        model = dataclasses.replace(start, weights=weights, about=model.about)
    model.save(path)


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
        put_back: When the hub was put back from a backup, in seconds since 1970.
    """

    key: Key
    size: int
    root: bytes
    models: int
    note: str = ""
    wrong: list[str] = field(default_factory=list)
    replayed: int | None = None
    put_back: tuple[int, ...] = ()


def audit_folder(folder: Path, *, replay: bool = True) -> Audited:
    """Verify the log of a hub's folder; the hub may be running.

    Args:
        folder: Of the hub.
        replay: Make all models again from the reports, and compare; and draw again, with tokens.

    Raises:
        RunError: There is no hub, or it has no log.
    """
    settings, store = HubFolder(folder).open(read_only=True)
    with contextlib.closing(store):
        terms = settings.terms(store.name)
        if not terms.log:
            raise RunError(f"{folder}: this hub has no public log (log = no).")
        size = store.log_size()
        entries = store.log_entries(0, size)
        wrong, tree = _wrong_entries(entries, terms), _tree_of(entries)
        if len(entries) != size or root(store.log_node, size) != tree.root():
            wrong.append("the hashes that are kept are not those of the entries")
        if replay and terms.tokens:
            wrong += _wrong_draws(entries, store, terms)
    models, replayed = [hash_of(entry[1:]) for entry in entries if entry[:1] == bytes([MODEL])], None
    if replay and not settings.collect:
        made = replay_log(folder).handed_out
        replayed = sum(one == other for one, other in zip(made, models, strict=False))
        if replayed < min(len(made), len(models)) or len(models) < len(made):
            wrong.append(f"{replayed} of {len(made)} models that the reports make are in the log, in their order")
    key = _log_key(terms, entries, wrong)
    return Audited(key, size, tree.root(), len(models), "", wrong, replayed, _times_put_back(entries))


def _wrong_draws(entries: list[bytes], store: Store, terms: Terms) -> list[str]:
    """Faults of the reports that count by what the log says: of those before an epoch, and of what tokens drew."""
    wrong, named = [], index_numbered(entries) or {}
    for row in store.rounds():
        reports = store.reports(row.number)
        said = named.get(bytes([REPORTS]) + row.number.to_bytes(4, "big"))
        if row.state == "applied" and said is not None and said[5:] != numbered_hash(reports):
            wrong.append(f"the reports of round {row.number} are others than those of which it was to be made")
        beacon = named.get(bytes([BEACON]) + terms.epoch_of(row.number).to_bytes(4, "big"))
        place = (row.number - 1) % terms.tokens
        if any(beacon is None or turn(draw_key(n), beacon[5:37], terms.tokens) != place for n, _ in reports):
            wrong.append(f"round {row.number} has reports with tokens that are not for it")
    return wrong


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
    except WireError as error:
        raise RunError(f"{client.url}: its log does not begin with terms ({error}).") from error
    entries: list[bytes] = []
    while len(entries) < answer.checkpoint.size:
        page = client.request("GET", f"/v1/log/entries/{len(entries)}", "", limit=_PAGE)
        more = Answer.entries_in(page.body) if page.status == 200 else ()
        if not more:
            break
        entries += more
    entries = entries[: answer.checkpoint.size]
    tree, wrong = _tree_of(entries), _wrong_entries(entries, terms)
    key = _log_key(terms, entries, wrong)
    if not answer.checkpoint.is_signed_by(key):
        wrong.append("the head is not signed by the key of the terms in the log, or the one that took its place")
    if (tree.size, tree.root()) != (answer.checkpoint.size, answer.checkpoint.root):
        wrong.append("the head is not that of the entries")
    models = sum(entry[:1] == bytes([MODEL]) for entry in entries)
    put_back = _times_put_back(entries)
    return Audited(key, answer.checkpoint.size, tree.root(), models, answer.note, wrong, put_back=put_back)


def _tree_of(entries: list[bytes]) -> Grown:
    tree = Grown()
    for entry in entries:
        tree.append(leaf_hash(entry))
    return tree


def _log_key(terms: Terms, entries: list[bytes], wrong: list[str]) -> Key:
    """The newest key of the log; what is wrong with changes of keys is added."""
    try:
        return newest_log_key(terms, newest_keys(terms, entries))
    except UnprovenError as error:
        wrong.append(str(error))
        return newest_log_key(terms, {})


def _times_put_back(entries: list[bytes]) -> tuple[int, ...]:
    return tuple(int.from_bytes(entry[1:9], "big") for entry in entries if entry[0] == RECOVERY)


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
    if index_numbered(entries) is None:
        wrong.append("there are two keys or two draws of one epoch, or an entry about one has another length")
    return wrong


def as_json(found: Audited) -> dict[str, object]:
    """The result for machines."""
    return {
        "key": str(found.key),
        "size": found.size,
        "root": found.root.hex(),
        "models": found.models,
        "replayed": found.replayed,
        "put_back": list(found.put_back),
        "checkpoint": found.note,
        "wrong": found.wrong,
    }
