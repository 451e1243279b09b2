"""Answers of a hub about its log to a device, and their checks.

An answer has the newest signed head and the end of the log, the *tail*: the frontier of the tree before it, and the
entries from there on. From these anybody computes the hash of the tree, at its newest size and at every one within the
tail. So one answer, the same for all, proves both that the newest model is in the log and that the log of whoever was
here lately only grew. Who was away for longer, or is here for the first time, asks for one more proof (RFC 9162).

**Notices** are entries that every answer proves. A log that was put back from a backup did not only grow, and has one
that says so: whoever sees a newer one than before checks the terms again as the first time, goes on from there, keeps
both heads, and can say when it was. Keys change by others: from the key in the terms they lead to the one that signs
the head. Whoever has seen one takes no answer any more that does not have it, and so no key from before. The head's
text that is signed has their hash: whoever carries an answer can leave none out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedrank.core.errors import ConfigError, WireError
from fedrank.core.trees import Json
from fedrank.deploy.log.note import LOG, WITNESS, Checkpoint, Key, decode_base64, origin_of, verify
from fedrank.deploy.log.tree import (
    GATEWAY_KEY,
    LOG_KEY,
    MODEL,
    MOST,
    RECOVERY,
    ROTATION,
    TERMS,
    Grown,
    Rotation,
    index_numbered,
    leaf_hash,
    model_data,
    place_after,
    recovery_statement,
    root_before,
    round_of,
    statement,
    verify_consistency,
    verify_inclusion,
    wrong_models,
)
from fedrank.deploy.terms import Terms

#: A tail begins at a multiple of this: it has as many entries, and more where other kinds follow the newest model.
BLOCK = 32
#: Largest answer in bytes; most hashes in a proof; most entries in a tail.
LARGEST, _HASHES, _ENTRIES = 65_536, 128, 1024
#: Oldest cosignature that counts, and how far a clock may be behind, in seconds; a hub gets new ones every hour.
OLDEST, AHEAD = 86_400, 86_400


class UnprovenError(WireError):
    """An answer that does not prove what it should.

    Args:
        why: The reason.
        conflict: Two signed heads that cannot both be true, as notes; None: there are none.
    """

    def __init__(self, why: str, conflict: tuple[str, str] | None = None):
        super().__init__(why)
        self.conflict = conflict


class TooShortError(UnprovenError):
    """The tail begins too late: a proof from an earlier size is needed.

    Args:
        why: The reason.
        size: The size that was seen; 0: proof of what the log's first entry is.
    """

    def __init__(self, why: str, size: int):
        super().__init__(why)
        self.size = size


@dataclass(frozen=True)
class Head:
    """A head of a log that was checked.

    Attributes:
        size: Number of its leaves.
        root: Hash of its tree.
        note: The checkpoint with its signatures.
        model: Data of the newest entry about a model, see :mod:`fedrank.deploy.log.tree`; empty where what was kept
            does not say it.
        others: Entries of the tail about offers and draws; empty where they are not known any more.
        recovered: When the log was last put back from a backup, in seconds since 1970; 0: never.
        keys: The newest change of each key, by :class:`~fedrank.deploy.log.tree.Rotation.what`.
    """

    size: int
    root: bytes
    note: str
    model: bytes = b""
    others: frozenset[bytes] = frozenset()
    recovered: int = 0
    keys: dict[int, Rotation] = field(default_factory=dict)

    def as_json(self) -> str:
        """The head as text, to be kept."""
        kept = {"size": self.size, "root": self.root.hex(), "note": self.note, "model": self.model.hex()}
        keys = {str(what): one.entry().hex() for what, one in self.keys.items()}
        return json.dumps(kept | {"recovered": self.recovered, "keys": keys})

    def gateway(self, terms: Terms) -> tuple[bytes, ...]:
        """The gateway's key that requests are encrypted to, and the one before it, if it had one."""
        newest = self.keys.get(GATEWAY_KEY)
        return (bytes.fromhex(terms.gateway),) if newest is None else (newest.new, newest.old)

    def holds(self, model: bytes, best: bytes | None = None) -> bool:
        """True if the newest entry is about this model message, and this one of the best model."""
        return self.model.startswith(model_data(model, best))

    @classmethod
    def from_json(cls, text: str) -> Head:
        """The inverse; raises ValueError, KeyError or TypeError where the text is not one."""
        kept = json.loads(text)
        model = bytes.fromhex(kept.get("model", ""))
        root, recovered = bytes.fromhex(kept["root"]), int(kept.get("recovered", 0))
        keys = [Rotation.parse(bytes.fromhex(entry)) for entry in kept.get("keys", {}).values()]
        return cls(int(kept["size"]), root, str(kept["note"]), model, frozenset(), recovered, {k.what: k for k in keys})


def is_allowed(one: Rotation, hub: str, operator: str, key: bytes) -> bool:
    """True if those signed a change of a key who have to: of the log's, that key and the operator, if there is one.

    Args:
        one: The change.
        hub: Name of the hub.
        operator: Public key of the operator by the hub's terms, hexadecimal; empty: they name none.
        key: Public key that signs the log before it.
    """
    signers = [] if one.what != LOG_KEY else [key, bytes.fromhex(operator)] if operator else [key]
    said = statement(hub, one._replace(signatures=()).entry())
    follows = len(one.signatures) == len(signers) and (not signers or one.old == key)
    return follows and all(map(verify, signers, one.signatures, [said] * len(signers)))


def newest_keys(terms: Terms, entries: Iterable[bytes]) -> dict[int, Rotation]:
    """The newest change of each key, by what it is, after all were checked.

    Args:
        terms: Terms of the hub, which name the first keys.
        entries: Entries of its log, in their order; those about the log's key are all there.

    Raises:
        UnprovenError: One does not follow from the ones before it, or is not signed by those who may change the key.
    """
    found: dict[int, Rotation] = {}
    for entry in entries:
        if entry[0] != ROTATION:
            continue
        try:
            one = Rotation.parse(entry)
        except ValueError as error:
            raise UnprovenError("the log has an entry about a key that cannot be read") from error
        before, key = found.get(one.what), newest_log_key(terms, found).public
        later = one.when > (0 if before is None else before.when)
        if not later or not is_allowed(one, terms.hub, terms.operator, key):
            raise UnprovenError("the log has a change of a key that those who had to did not sign")
        found[one.what] = one
    return found


def newest_log_key(terms: Terms, keys: dict[int, Rotation]) -> Key:
    """The key that signs the heads of a hub's log, after these changes of keys."""
    public = keys[LOG_KEY].new if LOG_KEY in keys else bytes.fromhex(terms.log)
    return Key(origin_of(terms.hub), LOG, public)


@dataclass(frozen=True)
class Trust:
    """Witnesses that an app trusts, and how many of them have to cosign a head.

    Args:
        witnesses: Their public keys.
        quorum: How many are needed.

    Raises:
        ConfigError: A key is there twice, or more are needed than there are.
    """

    witnesses: tuple[Key, ...] = ()
    quorum: int = 0

    def __post_init__(self):
        if len({key.public for key in self.witnesses}) < len(self.witnesses):
            raise ConfigError("witnesses: a key is there twice; it would count for two.")
        if type(self.quorum) is not int or not bool(self.witnesses) <= self.quorum <= len(self.witnesses):
            raise ConfigError(
                f"quorum must be in {int(bool(self.witnesses))}..{len(self.witnesses)}, the number of witnesses, got "
                f"{self.quorum!r}."
            )

    @classmethod
    def of(cls, witnesses: Sequence[str], quorum: int | None) -> Trust:
        """From public keys as text; without a quorum, more than half of the witnesses are needed."""
        if isinstance(witnesses, str) or not all(isinstance(one, str) for one in witnesses):
            raise ConfigError("witnesses must be a list of public keys of witnesses, as text.")
        keys = tuple(Key.parse(one, WITNESS) for one in witnesses)
        return cls(keys, (len(keys) // 2 + 1 if keys else 0) if quorum is None else quorum)


@dataclass(frozen=True)
class Answer:
    """Answer of a hub about its log.

    Attributes:
        checkpoint: The newest signed head.
        frontier: Hashes of the tree before the tail.
        entries: Entries of the tail: a byte for the kind, then the data.
        proof: Proof that the log only grew since an earlier size; or, from size 0, that the terms are its first entry.
        terms: The log's first entry; empty if it was not asked for.
        notices: Entries that every answer proves, in their order: that which says last that the log was put back, all
            changes of the log's key, the last ones of others. For each its number, the entry, and the proof.
    """

    checkpoint: Checkpoint
    frontier: tuple[bytes, ...]
    entries: tuple[bytes, ...]
    proof: tuple[bytes, ...] = ()
    terms: bytes = b""
    note: str = field(default="", repr=False)
    notices: tuple[tuple[int, bytes, tuple[bytes, ...]], ...] = ()

    @classmethod
    def parse(cls, body: bytes) -> Answer:
        """An answer from JSON.

        Raises:
            UnprovenError: It is none.
        """
        try:
            if len(body) > LARGEST:
                raise ValueError("too long")
            given: dict[str, Json] = json.loads(body)
            note = given["checkpoint"]
            frontier = _bytes_in(given.get("frontier", []), _HASHES)
            entries = _bytes_in(given.get("entries", []), _ENTRIES)
            proof = _bytes_in(given.get("proof", []), _HASHES)
            if any(len(one) != 32 for one in (*frontier, *proof)) or not all(entries):
                raise ValueError("a hash of another length, or an entry without a kind")
            notices = tuple(
                (_number_in(one["number"]), decode_base64(one["entry"]), _bytes_in(one["proof"], _HASHES))
                for one in _list_in(given.get("notices", []), _HASHES)
            )
            first = decode_base64(given.get("terms", ""))
            return cls(Checkpoint.parse(note), frontier, entries, proof, first, note, notices)
        except (WireError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UnprovenError(f"what it says about its log cannot be read ({type(error).__name__})") from error

    @staticmethod
    def entries_in(page: bytes) -> tuple[bytes, ...]:
        """Entries of a page for auditors; none where it cannot be read."""
        try:
            found = _bytes_in(json.loads(page)["entries"], _ENTRIES)
            return found if all(found) else ()
        except (ValueError, KeyError, TypeError, RecursionError):
            return ()

    def check(self, terms: Terms, seen: Head | None, trust: Trust, now: float | None = None) -> Head:
        """The head, after everything about it was checked.

        Args:
            terms: Terms of the hub, which have the log's key.
            seen: The head that was checked before; None: none was.
            trust: Witnesses whose cosignatures are needed.
            now: Seconds since 1970; by default those of the clock.

        Raises:
            TooShortError: It is to be asked for with a proof from an earlier size.
            UnprovenError: Something is wrong.
        """
        here, now = self.checkpoint, time.time() if now is None else now
        recovered, keys = self._check_notices(terms)
        went_back = seen is not None and recovered > seen.recovered
        if recovered > max(now + AHEAD, 0 if seen is None else seen.recovered):
            raise UnprovenError("the log says that it was put back at a time that is more than a day ahead")
        # Only an operator can have devices go back to a key from before: a backup may be older than a change of keys.
        if seen is not None and not (went_back and terms.operator):
            self._check_pinned(seen, went_back, keys)
        key = newest_log_key(terms, keys)
        if here.origin != key.name or not here.is_signed_by(key):
            raise UnprovenError("the log's head is not signed by the key of the terms, or the one that took its place")
        models = [entry[1:] for entry in self.entries if entry[0] == MODEL]
        if not models:
            raise UnprovenError("the log's tail has no model")
        before = here.size - len(self.entries)
        if before < 0 or before.bit_count() != len(self.frontier):
            raise UnprovenError("the log's tail does not fit to its size")
        tree, then = Grown(before, self.frontier), None
        for entry in (*self.entries, None):
            if seen is not None and tree.size == seen.size:
                then = tree.root()
            if entry is not None:
                tree.append(leaf_hash(entry))
        if tree.root() != here.root:
            raise UnprovenError("the log's tail does not have the hash of its head")
        if seen is None or went_back:
            if went_back and before and not self.terms:
                raise TooShortError("the log was put back, and nothing proves what its first entry is", 0)
            self._check_terms(terms, before)
        else:
            self._check_growth(seen, before, then)
        if wrong := wrong_models(self.entries) or _wrong_newest(models[-1], None if went_back else seen):
            raise UnprovenError(wrong)
        self._check_witnesses(trust, now)
        if (others := index_numbered(self.entries)) is None:
            raise UnprovenError("the log's tail has two keys or two draws of one epoch, or what is none")
        recovered = max(recovered, 0 if seen is None else seen.recovered)
        return Head(here.size, here.root, self.note, models[-1], frozenset(others.values()), recovered, keys)

    def _check_notices(self, terms: Terms) -> tuple[int, dict[int, Rotation]]:
        """Time at which the log was last put back, in seconds since 1970 (0: never), and the newest changes of keys."""
        here, recovered, last = self.checkpoint, 0, 0
        if not here.binds([(number, entry) for number, entry, _ in self.notices]):
            raise UnprovenError("the log's head is not about the notices that its hub gives, or leaves out")
        for at, (number, entry, proof) in enumerate(self.notices):
            proven = verify_inclusion(leaf_hash(entry), number, here.size, here.root, proof)
            if number <= last or not proven or entry[:1] not in (bytes([RECOVERY]), bytes([ROTATION])):
                raise UnprovenError("nothing proves that the log has an entry that its hub says it has")
            last = number
            if entry[0] == RECOVERY:
                signed = 64 if terms.operator else 0
                if len(entry) != 9 + signed:
                    raise UnprovenError("what should say that the log was put back says something else")
                key = newest_log_key(terms, newest_keys(terms, [one for _, one, _ in self.notices[:at]])).public
                place = place_after(number, root_before(number, here.size, proof))
                said = recovery_statement(terms.hub, entry[:9], place, key)
                if signed and not verify(bytes.fromhex(terms.operator), entry[9:], said):
                    raise UnprovenError("that the log was put back is not signed by its operator, or was elsewhere")
                recovered = int.from_bytes(entry[1:9], "big")
        return recovered, newest_keys(terms, [entry for _, entry, _ in self.notices])

    def _check_pinned(self, seen: Head, went_back: bool, keys: dict[int, Rotation]) -> None:
        """No key is there again that another has taken the place of."""
        for what, one in seen.keys.items():
            if what == LOG_KEY:
                there = any(entry == one.entry() for _, entry, _ in self.notices)
            else:
                there = went_back or (what in keys and (keys[what] == one or keys[what].when > one.when))
            if not there:
                raise UnprovenError("an answer with a key that another took the place of, as this device saw")

    def _check_terms(self, terms: Terms, before: int) -> None:
        first = self.terms if before else self.entries[0]
        if before and not verify_inclusion(leaf_hash(first), 0, self.checkpoint.size, self.checkpoint.root, self.proof):
            raise UnprovenError("nothing proves what the log's first entry is")
        if first[:1] != bytes([TERMS]) or Terms.from_json(first[1:]) != terms:
            raise UnprovenError("the terms in the log are not those that the hub gave this device")

    def _check_growth(self, seen: Head, before: int, then: bytes | None) -> None:
        here = self.checkpoint
        if here.size < seen.size:
            raise UnprovenError(f"the log has {here.size} entries, and had {seen.size} before")
        if then is not None:
            if then != seen.root:
                raise UnprovenError(
                    "the log is not the one that this device saw before: the hub shows different people different logs",
                    (seen.note, self.note),
                )
        elif not self.proof:
            raise TooShortError(f"the log's tail begins after {seen.size} entries", seen.size)
        elif not verify_consistency(seen.size, seen.root, here.size, here.root, self.proof):
            raise UnprovenError("nothing proves that the log only grew since this device saw it")

    def _check_witnesses(self, trust: Trust, now: float) -> None:
        times = [self.checkpoint.cosigned_by(key) for key in trust.witnesses]
        recent = sum(time is not None and now - OLDEST <= time <= now + AHEAD for time in times)
        if recent < trust.quorum:
            raise UnprovenError(
                f"{recent} of {len(trust.witnesses)} witnesses cosigned the log's head lately, "
                f"{trust.quorum} are needed"
            )


def _wrong_newest(model: bytes, seen: Head | None) -> str:
    """Fault of the newest model, after the one that was seen last; empty if nothing is."""
    round_, before = round_of(model), b"" if seen is None else seen.model
    if round_ is None:
        return "the log does not say which round its newest model is of"
    last = round_of(before)
    return "" if model == before else wrong_models([bytes([MODEL]) + model], last)


def _list_in(values: Json, most: int) -> list[Any]:
    if not isinstance(values, list) or len(values) > most:
        raise ValueError("not a list, or too long")
    return values


def _bytes_in(values: Json, most: int) -> tuple[bytes, ...]:
    return tuple(decode_base64(one) for one in _list_in(values, most))


def _number_in(value: Json) -> int:
    """A number of an entry; JavaScript does not tell 1.0 from 1."""
    if type(value) not in (int, float) or not 0 <= value < MOST or value != int(value):
        raise ValueError("not a number of an entry")
    return int(value)
