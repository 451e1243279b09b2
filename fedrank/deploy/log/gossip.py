"""Comparing what a log's hub, its witnesses and others show: do all see one log?"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fedrank.core.errors import FedrankError, WireError
from fedrank.deploy.http.client import HttpClient
from fedrank.deploy.log.note import Checkpoint
from fedrank.deploy.log.proof import LARGEST, Answer
from fedrank.deploy.log.tree import verify_consistency
from fedrank.deploy.log.witness import Witness, contradict


@dataclass
class Compared:
    """Result of a comparison.

    Attributes:
        heads: Heads that were found, as (where, log, size).
        split: Logs that signed two heads that cannot both be true, with the two.
        unproven: Heads that nothing proves to be of one log, in words.
        silent: Addresses that gave no head.
    """

    heads: list[tuple[str, str, int]] = field(default_factory=list)
    split: list[tuple[str, str, str]] = field(default_factory=list)
    unproven: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)


def compare(witness: Witness, urls: Iterable[str], client: Callable[[str], HttpClient] = HttpClient) -> Compared:
    """Ask hubs and witnesses for their newest heads and compare them with each other and the witness's own.

    What contradicts itself is kept as evidence by the witness.

    Args:
        witness: Who compares: its keys say whose heads count.
        urls: Addresses of hubs and witnesses.
        client: Makes a client of an address.
    """
    found, result = [("here", note) for note in witness.heads()], Compared()
    hubs: dict[str, HttpClient] = {}
    for url in urls:
        notes = []
        try:
            asked = client(url)
            notes, is_hub = _heads_of(asked, witness)
        except (OSError, FedrankError, ValueError):
            is_hub = False
        for note in notes:
            found.append((url, note))
            if is_hub:
                hubs[Checkpoint.parse(note).origin] = asked
        if not notes:
            result.silent.append(url)
    by_log: dict[str, list[tuple[str, Checkpoint, str]]] = {}
    for where, note in found:
        here = Checkpoint.parse(note)
        key = witness.keys.get(here.origin)
        if key is not None and here.is_signed_by(key):
            by_log.setdefault(here.origin, []).append((where, here, note))
            result.heads.append((where, here.origin, here.size))
    for origin, heads in by_log.items():
        for (_, one, first), (_, other, second) in itertools.combinations(heads, 2):
            if contradict(one, other, witness.keys[origin]):
                witness.keep(first, second)
        if len({here.size for _, here, _ in heads}) > 1:
            result.unproven += _unconnected(origin, heads, hubs.get(origin), witness)
    result.split = witness.evidence()
    return result


def _heads_of(asked: HttpClient, witness: Witness) -> tuple[list[str], bool]:
    """The heads that an address shows, and whether it is a hub; evidence that a witness has is taken over."""
    answer = asked.request("GET", "/heads", "", limit=1 << 20)
    given = answer.json() if answer.status == 200 else {}
    if isinstance(given.get("heads"), list):
        for one in given.get("evidence") or []:
            witness.keep(*one["heads"])
        return [str(note) for note in given["heads"] if _readable(str(note))], False
    answer = asked.request("GET", "/v1/log", "", limit=LARGEST)
    return ([Answer.parse(answer.body).note] if answer.status == 200 else []), True


def _readable(note: str) -> bool:
    try:
        return bool(Checkpoint.parse(note).origin)
    except WireError:
        return False


def _unconnected(
    origin: str, heads: list[tuple[str, Checkpoint, str]], hub: HttpClient | None, witness: Witness
) -> list[str]:
    """Heads of different sizes that the hub does not prove to be of one log, in words."""
    if hub is None:
        return [f"{origin}: heads of different sizes, and its hub was not asked to connect them"]
    wrong = []
    for where, here, note in heads:
        try:
            answer = Answer.parse(hub.request("GET", f"/v1/log/{here.size}", "", limit=LARGEST).body)
        except (OSError, FedrankError) as error:
            wrong.append(f"{origin}: {where} has size {here.size}, which its hub does not connect ({error})")
            continue
        newest = answer.checkpoint
        if newest.is_signed_by(witness.keys[origin]) and contradict(here, newest, witness.keys[origin]):
            witness.keep(note, answer.note)
        elif not (
            newest.is_signed_by(witness.keys[origin])
            and verify_consistency(here.size, here.root, newest.size, newest.root, answer.proof)
        ):
            wrong.append(
                f"{origin}: {where} has size {here.size}, which is not the beginning of the {newest.size} entries that "
                "its hub shows"
            )
    return wrong
