"""Entries of a hub's log: a byte for the kind, then data; and what makes one wrong that comes after others.

========  =====================================================================================================
kind 1    the hub's terms as JSON: the first entry, and no other
kind 2    a model: its round (4 bytes, big-endian), the SHA-256 of the model message and, where devices compare
          it with the best one so far, the SHA-256 of that message
kind 3    a key of the issuer: its epoch (4 bytes, big-endian), the SHA-256 of the key
========  =====================================================================================================

Each model's round is above that of the model before it. Otherwise a hub could show one device a model under a head that
nobody else is shown, append another model of the same round for all others, and every later head would hold for both.

Entries of kind 2 with 32 or 64 bytes of data are of logs that began before entries said the round. They prove no model,
and none of them comes after one that says it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

#: Kinds of entries. Others may come, and are not looked at.
TERMS, MODEL, ISSUER_KEY = 1, 2, 3
#: Bytes of an entry about an issuer's key.
KEY_ENTRY = 1 + 4 + 32


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


def key_entry(epoch: int, key: bytes) -> bytes:
    """The entry about an issuer's key.

    Args:
        epoch: Number of the epoch whose tokens it signs.
        key: The key, as published.
    """
    return bytes([ISSUER_KEY]) + epoch.to_bytes(4, "big") + hashlib.sha256(key).digest()


def wrong_models(entries: Iterable[bytes], last: int | None = None) -> str:
    """What is wrong with the models among entries; empty if nothing is.

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
            return f"the log has {what}: not everybody need have got the same"
        last = round_
    return ""


def newest_round(entries: Iterable[bytes], last: int | None) -> int | None:
    """Round of the newest model among entries that says one; ``last`` where none does."""
    for entry in entries:
        if entry[0] == MODEL and (round_ := round_of(entry[1:])) is not None:
            last = round_
    return last
