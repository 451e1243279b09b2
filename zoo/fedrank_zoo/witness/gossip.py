"""Comparing what a log's hub, its witnesses and others show: do all see one log?"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fedrank.core.errors import FedrankError, WireError
from fedrank.core.trees import Json
from fedrank.deploy.http.client import HttpClient
from fedrank.deploy.log.note import Checkpoint, Key
from fedrank.deploy.log.proof import LARGEST, Answer
from fedrank.deploy.log.tree import verify_consistency
from fedrank_zoo.witness.witness import Witness, contradict, read_on

#: Most heads and most pairs of evidence that are looked at in one answer.
_HEADS, _EVIDENCE = 256, 64
#: How often a log is asked to connect all heads with its newest, while it goes on growing.
_TRIES = 4


@dataclass
class Compared:
    """Result of a comparison.

    Attributes:
        heads: Heads that were found, as (where, log, size).
        split: Logs that signed two heads that cannot both be true, with the two.
        unproven: Heads that nothing proves to be of one log, in words.
        silent: Addresses that gave no head.
        wrong: Logs whose models are wrong, such as two of one round, in words.
    """

    heads: list[tuple[str, str, int]] = field(default_factory=list)
    split: list[tuple[str, str, str]] = field(default_factory=list)
    unproven: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def compare(witness: Witness, urls: Iterable[str], client: Callable[[str], HttpClient] = HttpClient) -> Compared:
    """Ask hubs and witnesses for their newest heads and compare them with each other and the witness's own.

    What contradicts itself is kept as evidence by the witness. Entries of hubs' logs that it has not read are read.

    Args:
        witness: Who compares: its keys say whose heads count.
        urls: Addresses of hubs and witnesses.
        client: Makes a client of an address.
    """
    result, by_log = Compared(), {origin: _Heads(key, witness) for origin, key in witness.keys.items()}
    hubs: dict[str, list[HttpClient]] = {}

    def add(where: str, note: str) -> str:
        here = Checkpoint.parse(note)
        heads = by_log.get(here.origin)
        if heads is not None and heads.add(where, note):
            result.heads.append((where, here.origin, here.size))
        return here.origin

    for note in witness.heads():
        add("here", note)
    for url in urls:
        notes: list[str] = []
        try:
            asked = client(url)
            notes, is_hub = _heads_of(asked, witness)
        except (OSError, FedrankError, ValueError):
            is_hub = False
        for note in notes:
            origin = add(url, note)
            if is_hub:
                hubs.setdefault(origin, []).append(asked)
        if not notes:
            result.silent.append(url)
    for origin, heads in by_log.items():
        if not heads.of_one_size and origin not in hubs:
            result.unproven.append(f"{origin}: heads of different sizes, and its hub was not asked to connect them")
        for hub in hubs.get(origin, ()):
            if why := heads.objection(hub) or heads.unread(hub):
                result.unproven.append(f"{origin}: {why}")
        if wrong := witness.reading(origin).wrong:
            result.wrong.append(f"{origin}: {wrong}")
    result.split = witness.evidence()
    return result


def _heads_of(asked: HttpClient, witness: Witness) -> tuple[list[str], bool]:
    """The heads that an address shows, and whether it is a hub; evidence that a witness has is taken over."""
    answer = asked.request("GET", "/heads", "", limit=1 << 20)
    given = answer.json() if answer.status == 200 else {}
    if isinstance(given.get("heads"), list):
        for one, other in _pairs_in(given.get("evidence", [])):
            witness.keep(one, other)
        return [str(note) for note in given["heads"][:_HEADS] if _readable(str(note))], False
    answer = asked.request("GET", "/v1/log", "", limit=LARGEST)
    return ([Answer.parse(answer.body).note] if answer.status == 200 else []), True


def _pairs_in(evidence: Json) -> list[tuple[str, str]]:
    """Pairs of heads that a witness names as evidence.

    Raises:
        WireError: It names something else.
    """
    pairs = []
    for one in evidence[:_EVIDENCE] if isinstance(evidence, list) else [None]:
        heads = one.get("heads") if isinstance(one, dict) else None
        if not isinstance(heads, list) or len(heads) != 2 or not all(isinstance(note, str) for note in heads):
            raise WireError("what it has as evidence is no pair of heads")
        pairs.append((heads[0], heads[1]))
    return pairs


def _readable(note: str) -> bool:
    try:
        return bool(Checkpoint.parse(note).origin)
    except WireError:
        return False


class _Heads:
    """All heads of one log that were seen, by whomever they were shown; what contradicts itself becomes evidence.

    Args:
        key: Of the log.
        witness: Keeps evidence.
    """

    def __init__(self, key: Key, witness: Witness):
        self._key, self._witness = key, witness
        self._seen: list[tuple[str, Checkpoint, str]] = []

    @property
    def of_one_size(self) -> bool:
        """True if no head needs to be connected with another."""
        return len({here.size for _, here, _ in self._seen}) <= 1

    def add(self, where: str, note: str) -> bool:
        """Compare a head with all that were seen; returns whether it is one of this log."""
        here = Checkpoint.parse(note)
        if here.origin != self._key.name or not here.is_signed_by(self._key):
            return False
        for _, other, other_note in self._seen:
            if contradict(here, other, self._key):
                self._witness.keep(note, other_note)
        if all(here.text != other.text for _, other, _ in self._seen):
            self._seen.append((where, here, note))
        return True

    def objection(self, hub: HttpClient) -> str:
        """Reason why not all heads are of the one log that its hub shows; empty if they are.

        One head is the last: every other has to be proven to lead to it. A hub answers with a proof to its newest head,
        which counts as seen from then on; where that is beyond the last, the log has grown meanwhile, and all heads
        have to lead to this one. A hub that shows each head another future never comes to an end of it.
        """
        for _ in range(_TRIES):
            last = max((here for _, here, _ in self._seen), key=lambda here: here.size)
            why = ""
            for where, here, _ in list(self._seen):
                if here.size == last.size:
                    if here.root != last.root:
                        return f"{where} has size {here.size}, and another head of that size was signed"
                    continue
                why, newest = self._prove(hub, where, here, last)
                if why or newest.size > last.size:
                    break
            else:
                return ""
            if why:
                return why
        return f"its hub showed a newer head {_TRIES} times, and at no time one that all heads lead to"

    def unread(self, hub: HttpClient) -> str:
        """Read on up to the last head; why that was not possible, or empty."""
        before, last = self._witness.reading(self._key.name), max(here.size for _, here, _ in self._seen)
        if before.size >= last:
            return ""
        try:
            head = next(here for _, here, _ in self._seen if here.size == last)
            self._witness.has_read(self._key.name, read_on(hub, head, before, self._key))
        except (OSError, FedrankError) as error:
            return f"its entries cannot be read ({error})"
        return ""

    def _prove(self, hub: HttpClient, where: str, here: Checkpoint, last: Checkpoint) -> tuple[str, Checkpoint]:
        """Reason why a head is not proven to lead to the last one, and the newest head that the hub shows."""
        try:
            answer = Answer.parse(hub.request("GET", f"/v1/log/{here.size}", "", limit=LARGEST).body)
        except (OSError, FedrankError) as error:
            return f"{where} has size {here.size}, which its hub does not connect ({error})", here
        newest = answer.checkpoint
        if not self.add("the hub", answer.note):
            return f"{where} has size {here.size}, and its hub answers with a head that its log did not sign", here
        if newest.size < last.size:
            return f"a head of {last.size} entries was shown, and its hub says that there are {newest.size}", newest
        if newest.size == last.size and newest.root != last.root:
            return f"two heads of {last.size} entries were signed", newest
        if not verify_consistency(here.size, here.root, newest.size, newest.root, answer.proof):
            shows = f"the beginning of the {newest.size} entries that its hub shows"
            return f"{where} has size {here.size}, which is not {shows}", newest
        return "", newest
