"""Answers of a hub about its log to a device, and their checks.

An answer has the newest signed head and the end of the log, the *tail*: the frontier of the tree before it, and the
entries from there on. From these anybody computes the hash of the tree, at its newest size and at every one within the
tail. So one answer, the same for all, proves both that the newest model is in the log and that the log of whoever was
here lately only grew. Who was away for longer, or is here for the first time, asks for one more proof (RFC 9162).

A log that was put back from a backup did not only grow. It has an entry that says so, which every answer proves:
whoever sees a newer one than before checks the terms again as the first time, goes on from there, keeps both heads, and
can say when it was.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from fedrank.core.errors import ConfigError, WireError
from fedrank.core.trees import Json
from fedrank.deploy.log.note import WITNESS, Checkpoint, Key, decode_base64, log_key
from fedrank.deploy.log.tree import (
    MODEL,
    RECOVERY,
    TERMS,
    Grown,
    index_numbered,
    leaf_hash,
    model_data,
    round_of,
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
    """

    size: int
    root: bytes
    note: str
    model: bytes = b""
    others: frozenset[bytes] = frozenset()
    recovered: int = 0

    def as_json(self) -> str:
        """The head as text, to be kept."""
        kept = {"size": self.size, "root": self.root.hex(), "note": self.note, "model": self.model.hex()}
        return json.dumps(kept | {"recovered": self.recovered})

    def holds(self, model: bytes, best: bytes | None = None) -> bool:
        """True if the newest entry is about this model message, and this one of the best model."""
        return self.model.startswith(model_data(model, best))

    @classmethod
    def from_json(cls, text: str) -> Head:
        """The inverse; raises ValueError, KeyError or TypeError where the text is not one."""
        kept = json.loads(text)
        model = bytes.fromhex(kept.get("model", ""))
        root, recovered = bytes.fromhex(kept["root"]), int(kept.get("recovered", 0))
        return cls(int(kept["size"]), root, str(kept["note"]), model, recovered=recovered)


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
        recovery: Number of the newest entry that says that the log was put back, the entry, and the proof that it is in
            the log; None: there is none.
    """

    checkpoint: Checkpoint
    frontier: tuple[bytes, ...]
    entries: tuple[bytes, ...]
    proof: tuple[bytes, ...] = ()
    terms: bytes = b""
    note: str = field(default="", repr=False)
    recovery: tuple[int, bytes, tuple[bytes, ...]] | None = None

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
            back, recovery = given.get("recovery"), None
            if back is not None:
                recovery = (int(back["number"]), decode_base64(back["entry"]), _bytes_in(back["proof"], _HASHES))
            first = decode_base64(given.get("terms", ""))
            return cls(Checkpoint.parse(note), frontier, entries, proof, first, note, recovery)
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
        here = self.checkpoint
        key = log_key(terms.hub, terms.log)
        if here.origin != key.name or not here.is_signed_by(key):
            raise UnprovenError("the log's head is not signed by the key of the terms")
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
        recovered, now = self._time_put_back(), time.time() if now is None else now
        went_back = seen is not None and recovered > seen.recovered
        if recovered > max(now + AHEAD, 0 if seen is None else seen.recovered):
            raise UnprovenError("the log says that it was put back at a time that is more than a day ahead")
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
        return Head(here.size, here.root, self.note, models[-1], frozenset(others.values()), recovered)

    def _time_put_back(self) -> int:
        """Time at which the log was last put back, in seconds since 1970; 0: never."""
        if self.recovery is None:
            return 0
        (number, entry, proof), here = self.recovery, self.checkpoint
        if len(entry) != 9 or entry[0] != RECOVERY:
            raise UnprovenError("what should say that the log was put back says something else")
        if not verify_inclusion(leaf_hash(entry), number, here.size, here.root, proof):
            raise UnprovenError("nothing proves that the log says that it was put back")
        return int.from_bytes(entry[1:], "big")

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


def _bytes_in(values: Json, most: int) -> tuple[bytes, ...]:
    if not isinstance(values, list) or len(values) > most:
        raise ValueError("not a list, or too long")
    return tuple(decode_base64(one) for one in values)
