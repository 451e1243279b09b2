"""The Merkle tree of a log: hashes, proofs and their verification (RFC 9162, section 2.1; RFC 6962 has the same tree).

A tree of n leaves is described by the hashes of its complete subtrees: the node (level, number) is over the leaves
``number << level`` up to ``(number + 1) << level``. Standard library only.

**Entries** of a hub's log are a byte for the kind, then data:

========  =====================================================================================================
kind 1    the hub's terms as JSON: the first entry, and no other
kind 2    a model: its round (4 bytes, big-endian), the SHA-256 of the model message and, where devices compare
          it with the best one so far, the SHA-256 of that message
kind 3    an offer of tokens: its epoch (4 bytes, big-endian), the SHA-256 of the issuer's key and what follows it
kind 4    the reports of the round before an epoch, before a model is made of them: the round (4 bytes, big-endian),
          :func:`numbered_hash`
kind 5    the draws of an epoch: the epoch (4 bytes, big-endian), its beacon (32 bytes), how many tokens were sold
          (4 bytes, big-endian)
kind 6    the log was put back from a backup, and goes on from here: when, in seconds since 1970 (8 bytes,
          big-endian); where the terms name an operator, its signature (64 bytes), see :func:`recovery_statement`
kind 7    a key takes the place of another, see :class:`Rotation`
========  =====================================================================================================

Each model's round is above that of the model before it. Otherwise a hub could show one device a model under a head that
it shows to no other, append another model of the same round for all others, and every later head would hold for both.

Before an entry of kind 6 there may have been other entries than those that follow it, and devices may have seen them:
it says so to all of them. What is numbered by an epoch begins anew after it; after the issuer's key was changed (kind
7), offers do.

Entries of kind 2 with 32 or 64 bytes of data are of logs that began before entries said the round. They prove no model,
and none of them comes after one that says it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

#: Hash of the tree without leaves.
EMPTY = hashlib.sha256(b"").digest()
#: Most leaves of a tree: sizes are whole numbers that JSON and JavaScript keep.
MOST = 1 << 53

#: Returns the hash of the complete subtree (level, number).
Node = Callable[[int, int], bytes]


def leaf_hash(entry: bytes) -> bytes:
    """Hash of a leaf."""
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Hash of an inner node."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def grown(node: Node, number: int, leaf: bytes) -> list[tuple[int, int, bytes]]:
    """The complete subtrees that a further leaf makes, from level 0 upwards, as (level, number, hash).

    Args:
        node: Hashes of the tree before.
        number: Number of the new leaf, which is the size of the tree before.
        leaf: Its hash.
    """
    level, made = 0, [(0, number, leaf)]
    while number & 1:
        leaf = node_hash(node(level, number - 1), leaf)
        level, number = level + 1, number >> 1
        made.append((level, number, leaf))
    return made


def root(node: Node, size: int) -> bytes:
    """Hash of the tree of the first ``size`` leaves."""
    return _over(node, 0, size) if size else EMPTY


def frontier(size: int) -> list[tuple[int, int]]:
    """The complete subtrees, as few as can be, that make up the tree of ``size`` leaves: largest first."""
    levels = [level for level in range(size.bit_length() - 1, -1, -1) if size >> level & 1]
    return [(level, (size >> level) - 1) for level in levels]


def inclusion_proof(node: Node, number: int, size: int) -> list[bytes]:
    """Proof that a leaf is in the tree (RFC 9162, 2.1.3.1): hashes from the leaf's neighbour upwards."""
    return _siblings(node, number, size)[1]


def consistency_proof(node: Node, old: int, size: int) -> list[bytes]:
    """Proof that the tree of the first ``old`` leaves, one or more, begins this one (RFC 9162, 2.1.4.1)."""
    start, path = _siblings(node, old - 1, size, whole=True)
    return ([_over(node, start, old)] if start else []) + path


def _siblings(node: Node, number: int, size: int, whole: bool = False) -> tuple[int, list[bytes]]:
    """First leaf of a subtree that ends with a leaf, and the hashes beside the way to it, from below.

    Args:
        node: The tree's nodes.
        number: The leaf.
        size: Leaves of the tree.
        whole: The largest such subtree; else the leaf alone.
    """
    start, end, path = 0, size, []
    while end - (number if whole else start) > 1:
        middle = start + _split(end - start)
        if number < middle:
            path.append(_over(node, middle, end))
            end = middle
        else:
            path.append(_over(node, start, middle))
            start = middle
    return start, path[::-1]


def _sides(fn: int, sn: int) -> list[bool]:
    """True for each step of a proof that stands on the left, from the leaf upwards (``fn`` and ``sn`` of RFC 9162)."""
    sides = []
    while sn:
        sides.append(bool(fn & 1 or fn == sn))
        while sides[-1] and not fn & 1 and fn:
            fn, sn = fn >> 1, sn >> 1
        fn, sn = fn >> 1, sn >> 1
    return sides


def verify_inclusion(leaf: bytes, number: int, size: int, root_: bytes, proof: Sequence[bytes]) -> bool:
    """True if a proof shows that a leaf is in a tree (RFC 9162, 2.1.3.2)."""
    if not 0 <= number < size or len(sides := _sides(number, size - 1)) != len(proof):
        return False
    for is_left, step in zip(sides, proof, strict=True):
        leaf = node_hash(step, leaf) if is_left else node_hash(leaf, step)
    return leaf == root_


def root_before(number: int, size: int, proof: Sequence[bytes]) -> bytes:
    """Hash of the tree before a leaf, by the leaf's inclusion proof, after that was verified.

    What the proof has on the left side are the hashes of that tree's :func:`frontier`, smallest first.
    """
    left = [step for is_left, step in zip(_sides(number, size - 1), proof, strict=True) if is_left]
    return Grown(number, left[::-1]).root()


def verify_consistency(old: int, old_root: bytes, size: int, root_: bytes, proof: Sequence[bytes]) -> bool:
    """True if a proof shows that a tree of at least one leaf is the beginning of another (RFC 9162, 2.1.4.2)."""
    if not 0 < old <= size:
        return False
    if old == size:
        return not proof and old_root == root_
    path = [old_root, *proof] if old & (old - 1) == 0 else list(proof)
    fn, sn = old - 1, size - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    if len(path) != 1 + len(sides := _sides(fn, sn)):
        return False
    first = second = path[0]
    for is_left, step in zip(sides, path[1:], strict=True):
        first = node_hash(step, first) if is_left else first
        second = node_hash(step, second) if is_left else node_hash(second, step)
    return first == old_root and second == root_


class Grown:
    """A tree that leaves are appended to, of which the frontier is known.

    Args:
        size: Number of its leaves.
        hashes: Hashes of its :func:`frontier`.

    Raises:
        ValueError: There is another number of hashes.
    """

    def __init__(self, size: int = 0, hashes: Sequence[bytes] = ()):
        if size.bit_count() != len(hashes):
            raise ValueError(f"a tree of {size} leaves has a frontier of {size.bit_count()} hashes, not {len(hashes)}.")
        self.size, self._hashes = size, list(hashes)

    def append(self, leaf: bytes) -> None:
        """Append a leaf, given by its hash."""
        size = self.size
        while size & 1:
            leaf, size = node_hash(self._hashes.pop(), leaf), size >> 1
        self._hashes.append(leaf)
        self.size += 1

    @property
    def frontier(self) -> tuple[bytes, ...]:
        """Hashes of its :func:`frontier`."""
        return tuple(self._hashes)

    def root(self) -> bytes:
        """Hash of the tree."""
        if not self._hashes:
            return EMPTY
        *left, hash_ = self._hashes
        for one in reversed(left):
            hash_ = node_hash(one, hash_)
        return hash_


def _split(size: int) -> int:
    """The largest power of two below ``size``."""
    return 1 << (size - 1).bit_length() - 1


def _over(node: Node, start: int, end: int) -> bytes:
    """Hash over the leaves ``start`` to ``end``, which are a subtree of a tree."""
    size = end - start
    if size & (size - 1) == 0:
        level = size.bit_length() - 1
        return node(level, start >> level)
    middle = start + _split(size)
    return node_hash(_over(node, start, middle), _over(node, middle, end))


#: Kinds of entries. Others may come, and are not looked at.
TERMS, MODEL, OFFER, REPORTS, BEACON, RECOVERY, ROTATION = 1, 2, 3, 4, 5, 6, 7
#: Bytes of the entries of these kinds, of which there is one for each number.
NUMBERED = {OFFER: 1 + 4 + 32, REPORTS: 1 + 4 + 32, BEACON: 1 + 4 + 32 + 4}


def model_data(model: bytes, best: bytes | None = None) -> bytes:
    """Data of the entry of a model.

    Args:
        model: The model message, whose bytes 1 to 4 are its round, little-endian.
        best: The message of the best model so far, where devices compare the two.
    """
    hashes = [hashlib.sha256(one).digest() for one in (model, best) if one is not None]
    return int.from_bytes(model[1:5], "little").to_bytes(4, "big") + b"".join(hashes)


def round_of(data: bytes) -> int | None:
    """The round in the data of a model's entry; None where it says none."""
    return int.from_bytes(data[:4], "big") if len(data) in (36, 68) else None


def hash_of(data: bytes) -> bytes:
    """The SHA-256 of the model message in the data of a model's entry."""
    return data[:32] if round_of(data) is None else data[4:36]


def offer_entry(epoch: int, offer: bytes) -> bytes:
    """The entry about an offer of tokens (:mod:`fedrank.deploy.oblivious.tokens`), as published."""
    return bytes([OFFER]) + epoch.to_bytes(4, "big") + hashlib.sha256(offer).digest()


def reports_entry(round_: int, reports: bytes) -> bytes:
    """The entry about the reports of a round; ``reports`` is their :func:`numbered_hash`."""
    return bytes([REPORTS]) + round_.to_bytes(4, "big") + reports


def numbered_hash(numbered: Iterable[tuple[int, bytes]]) -> bytes:
    """Hash of reports or notices: SHA-256 over the number (8 bytes, big-endian) and the SHA-256 of each, by number."""
    parts = [number.to_bytes(8, "big") + hashlib.sha256(one).digest() for number, one in sorted(numbered)]
    return hashlib.sha256(b"".join(parts)).digest()


def beacon_entry(epoch: int, beacon: bytes, sales: int) -> bytes:
    """The entry about the draws of an epoch.

    Args:
        epoch: Number of the epoch.
        beacon: Its beacon, 32 bytes.
        sales: Tokens that were sold for it.
    """
    return bytes([BEACON]) + epoch.to_bytes(4, "big") + beacon + sales.to_bytes(4, "big")


def recovery_entry(when: int) -> bytes:
    """The entry about a log that was put back from a backup at a time, in seconds since 1970."""
    return bytes([RECOVERY]) + when.to_bytes(8, "big")


#: Keys that change by an entry: the log's, the gateway's, the issuer's.
LOG_KEY, GATEWAY_KEY, ISSUER_KEY = 1, 2, 3
#: Bytes of a signature.
_SIGNATURE = 64


class Rotation(NamedTuple):
    """A key that takes the place of another, as an entry says it: a byte for the kind, the other fields in this order.

    Attributes:
        what: :data:`LOG_KEY`, :data:`GATEWAY_KEY` or :data:`ISSUER_KEY`, a byte.
        when: In seconds since 1970, above that of the change of this key before it; 8 bytes, big-endian.
        old: Public key that is replaced, 32 bytes; of an issuer's key its identifier (RFC 9578).
        new: The same of the one that takes its place.
        signatures: Of the log's key: that of the old key and, where the terms name an operator, of the operator, about
            :func:`statement`. Of other keys none: that of the head is enough.
    """

    what: int
    when: int
    old: bytes
    new: bytes
    signatures: tuple[bytes, ...] = ()

    def entry(self) -> bytes:
        """Bytes of the entry in the log: 74, and 64 for each signature."""
        begin = bytes([ROTATION, self.what]) + self.when.to_bytes(8, "big")
        return begin + self.old + self.new + b"".join(self.signatures)

    @classmethod
    def parse(cls, entry: bytes) -> Rotation:
        """The inverse of :meth:`entry`; a ValueError where it is none."""
        rest = entry[74:]
        signatures = tuple(rest[at : at + _SIGNATURE] for at in range(0, len(rest), _SIGNATURE))
        if entry[:1] != bytes([ROTATION]) or len(entry) < 74 or len(rest) % _SIGNATURE:
            raise ValueError("not an entry about a key")
        return cls(entry[1], int.from_bytes(entry[2:10], "big"), entry[10:42], entry[42:74], signatures)


def statement(hub: str, entry: bytes) -> bytes:
    """The bytes that are signed about an entry (without its signatures) of a hub's log."""
    return f"fedrank/{hub}\n".encode() + entry


def recovery_statement(hub: str, entry: bytes, place: bytes, key: bytes) -> bytes:
    """The bytes that an operator signs about a log that was put back, which make the signature one for this place.

    Args:
        hub: Name of the hub.
        entry: The :func:`recovery_entry`.
        place: The :func:`place_after` what it follows.
        key: Public key that signs the log there.
    """
    return statement(hub, entry + place + key)


def place_after(size: int, root_: bytes) -> bytes:
    """Size (8 bytes, big-endian) and hash of a tree that an entry follows."""
    return size.to_bytes(8, "big") + root_


def choose_notices(entries: Iterable[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Entries that every head binds and every answer proves, among numbered entries of a log, in their order.

    That which says last that the log was put back, all changes of the log's key, the last ones of other keys.
    """
    told = [(number, entry) for number, entry in entries if entry[0] in (RECOVERY, ROTATION)]
    newest = {entry[:1] if entry[0] == RECOVERY else entry[:2]: entry for _, entry in told}
    log = bytes([ROTATION, LOG_KEY])
    return [(number, entry) for number, entry in told if entry[:2] == log or entry in newest.values()]


def index_numbered(entries: Iterable[bytes]) -> dict[bytes, bytes] | None:
    """Entries of the kinds in :data:`NUMBERED`, by kind and number (5 bytes); None where two of one contradict.

    After a recovery there may be others of the same numbers, which take the place of those before it; other offers may
    follow a change of the issuer's key.
    """
    found: dict[bytes, bytes] = {}
    since: dict[bytes, bytes] = {}
    for entry in entries:
        if entry[0] == RECOVERY:
            since = {}
        if entry[:2] == bytes([ROTATION, ISSUER_KEY]):
            since = {name: one for name, one in since.items() if one[0] != OFFER}
        if entry[0] in NUMBERED:
            if len(entry) != NUMBERED[entry[0]] or since.setdefault(entry[:5], entry) != entry:
                return None
            found[entry[:5]] = entry
    return found


def wrong_models(entries: Iterable[bytes], last: int | None = None) -> str:
    """Fault of the models among entries; empty if there is none.

    Args:
        entries: Entries in their order.
        last: Round of the model before them; None: there was none that said one.
    """
    for entry in entries:
        if entry[0] != MODEL:
            continue
        round_ = round_of(entry[1:])
        if round_ is None and (last is not None or len(entry) not in (33, 65)):
            return "an entry about a model says no round, or has another length"
        if last is not None and round_ is not None and round_ <= last:
            what = f"two models of round {last}" if round_ == last else f"a model of round {round_} after one of {last}"
            return f"the log has {what}: devices may have got different models"
        last = round_
    return ""
