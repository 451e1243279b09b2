"""Writes wire-log-vectors.json: trees, proofs, signed heads and answers of a hub about its log (section 10).

It imports nothing of the package. Trees and proofs follow the recursive definitions of RFC 9162 (2.1.1, 2.1.3.1,
2.1.4.1); the inputs and hashes of ``known`` are those that implementations of RFC 6962 share. Ed25519 is deterministic
(RFC 8032), and keys are the SHA-256 of their names: the file is the same whenever it is written.

``answers`` has whole answers, what was seen before, the quorum, the message, and the client's verdict at the time
``now``: ``proven``, ``wrong``, ``conflict`` (wrong, with evidence), ``more`` (10.5: a proof from the size is needed).
"""

import base64
import hashlib
import json
import pathlib

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

HUB = "0123456789abcdef0123456789abcdef"
NOW = 1_800_000_000
KNOWN = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]


def sha(data):
    """SHA-256."""
    return hashlib.sha256(data).digest()


def split(n):
    """The largest power of two below n."""
    k = 1
    while 2 * k < n:
        k *= 2
    return k


def mth(leaves):
    """Hash of a tree."""
    if not leaves:
        return sha(b"")
    if len(leaves) == 1:
        return sha(b"\x00" + leaves[0])
    k = split(len(leaves))
    return sha(b"\x01" + mth(leaves[:k]) + mth(leaves[k:]))


def path(m, leaves):
    """Inclusion proof of leaf m."""
    if len(leaves) == 1:
        return []
    k = split(len(leaves))
    if m < k:
        return [*path(m, leaves[:k]), mth(leaves[k:])]
    return [*path(m - k, leaves[k:]), mth(leaves[:k])]


def subproof(m, leaves, whole):
    """Consistency proof from size m."""
    if m == len(leaves):
        return [] if whole else [mth(leaves)]
    k = split(len(leaves))
    if m <= k:
        return [*subproof(m, leaves[:k], whole), mth(leaves[k:])]
    return [*subproof(m - k, leaves[k:], False), mth(leaves[:k])]


def b64(data):
    """Base64 as text."""
    return base64.b64encode(data).decode()


def private(name):
    """The private key of a name."""
    return Ed25519PrivateKey.from_private_bytes(sha(name.encode()))


def public(name):
    """The public key of a name."""
    return private(name).public_key().public_bytes_raw()


def key_id(name, kind, key):
    """Identifier of a key."""
    return sha(name.encode() + b"\n" + bytes([kind]) + key)[:4]


def vkey(name, kind):
    """A public key as text."""
    return f"{name}+{key_id(name, kind, public(name)).hex()}+{b64(bytes([kind]) + public(name))}"


ORIGIN = f"fedrank/{HUB}"


def bound(numbers, leaves):
    """The line of a checkpoint about notices (10.12)."""
    return f"notices {b64(sha(b''.join(n.to_bytes(8, 'big') + sha(leaves[n]) for n in numbers)))}\n" if numbers else ""


def head(leaves, signer=ORIGIN, origin=ORIGIN, size=None, root=None, more=""):
    """Text and log's signature line of a checkpoint."""
    text = f"{origin}\n{len(leaves) if size is None else size}\n{b64(mth(leaves) if root is None else root)}\n{more}"
    raw = key_id(origin, 1, public(ORIGIN)) + private(signer).sign(text.encode())
    return text, f"— {origin} {b64(raw)}\n"


def cosigned(text, name, time=NOW - 60):
    """A witness's signature line."""
    message = f"cosignature/v1\ntime {time}\n{text}".encode()
    raw = key_id(name, 4, public(name)) + time.to_bytes(8, "big") + private(name).sign(message)
    return f"— {name} {b64(raw)}\n"


WITNESSES = ["one.example/w", "two.example/w", "three.example/w"]
TERMS = {
    "protocol": "foltr-es", "wire": 1, "hub": HUB, "n_features": 2, "ranker": "linear", "hidden": 0, "reward": "MaxRR",
    "reward_values": None, "depth": 3, "interactions": 2, "sigma": 0.5, "mechanism": "piecewise", "p": 1.0,
    "epsilon": 1.0, "inside": 1, "outside": 1, "interleaved": True, "log": public(ORIGIN).hex(),
}  # fmt: skip


def model(number):
    """The model message of a round: version and kind, round, two weights."""
    return b"\x21" + number.to_bytes(4, "little") + bytes.fromhex("0000803f000080bf")


def entries(rounds, terms=TERMS):
    """Entries of a log of so many rounds."""
    text = json.dumps(terms, sort_keys=True, separators=(",", ":")).encode()
    return [b"\x01" + text, *(entry_of(number) for number in range(rounds))]


def entry_of(number, best=None):
    """Entry of the model of a round, and of the best one if there is one."""
    hashes = sha(model(number)) + (b"" if best is None else sha(model(best)))
    return b"\x02" + number.to_bytes(4, "big") + hashes


def frontier(before, leaves):
    """Hashes of the complete subtrees before a tail."""
    out, start = [], 0
    for level in range(before.bit_length() - 1, -1, -1):
        if before >> level & 1:
            out.append(mth(leaves[start : start + (1 << level)]))
            start += 1 << level
    return out


def line_of(text, name):
    """A log's signature line, by the key of a name."""
    return f"— {ORIGIN} {b64(key_id(ORIGIN, 1, public(name)) + private(name).sign(text.encode()))}\n"


def signed(entry, *names):
    """An entry with signatures by the keys of names (10.11)."""
    return entry + b"".join(private(name).sign(f"{ORIGIN}\n".encode() + entry) for name in names)


def change(what, when, old, new, *names):
    """An entry of kind 7 (10.11), bytes: the key of the name ``new`` takes the place of ``old``; names sign it."""
    return signed(bytes([7, what]) + when.to_bytes(8, "big") + public(old) + public(new), *names)


def recovery(leaves, when, key=ORIGIN, *names):
    """An entry of kind 6 after these, signed by the keys of names (10.10)."""
    entry = b"\x06" + when.to_bytes(8, "big")
    place = entry + len(leaves).to_bytes(8, "big") + mth(leaves) + public(key)
    return entry + b"".join(private(name).sign(f"{ORIGIN}\n".encode() + place) for name in names)


def notice(number, leaves):
    """An entry, and the proof that it is in the log."""
    return {"number": number, "entry": b64(leaves[number]), "proof": [b64(one) for one in path(number, leaves)]}


def answer(leaves, before, *, since=None, by=(), lines=None, notices=(), signers=(), claimed=None, **head_options):
    """What a hub says about its log; ``claimed`` are entries that it says are there."""
    claimed = claimed or leaves
    text, line = head(leaves, **{"more": bound(notices, claimed)} | head_options)
    line = "".join(line_of(text, name) for name in signers) or line
    lines = line + "".join(cosigned(text, name) for name in by) if lines is None else lines
    made = {
        "checkpoint": f"{text}\n{lines}",
        "frontier": [b64(one) for one in frontier(before, leaves)],
        "entries": [b64(one) for one in leaves[before:]],
    }
    if notices:
        made["notices"] = [{**notice(number, leaves), "entry": b64(claimed[number])} for number in notices]
    if since == 0:
        made["terms"] = b64(leaves[0])
        made["proof"] = [b64(one) for one in path(0, leaves)]
    elif since:
        made["proof"] = [b64(one) for one in subproof(since, leaves, True)]
    return made


def seen(leaves):
    """A head as a device keeps it."""
    text, line = head(leaves)
    newest = [leaf[1:] for leaf in leaves if leaf[0] == 2][-1]
    return {"size": len(leaves), "root": mth(leaves).hex(), "note": f"{text}\n{line}", "model": newest.hex()}


def cases():
    """Answers, what was seen before, and what a device makes of them."""
    log = entries(70)
    fork = [*log[:40], *(entry[:-1] + bytes([entry[-1] ^ 1]) for entry in log[40:])]
    other = [b"\x01" + log[0][1:].replace(b'"depth":3', b'"depth":4'), *log[1:]]
    good = answer(log, 64, by=WITNESSES[:2])
    newest = {"model": model(69).hex()}

    def case(name, given, expect, before=None, quorum=0, **more):
        return {"name": name, "answer": given, "seen": before, "quorum": quorum, "expect": expect, **newest, **more}

    yield case("first contact", answer(log, 64, since=0), "proven")
    yield case("first contact, a short log", answer(log[:3], 0), "proven", model=model(1).hex())
    yield case("seen lately", good, "proven", seen(log[:66]))
    yield case("seen at the start of the tail", good, "proven", seen(log[:64]))
    yield case("nothing new", good, "proven", seen(log))
    yield case("away for long, no proof", good, "more", seen(log[:40]))
    yield case("away for long", answer(log, 64, since=40), "proven", seen(log[:40]))
    yield case("two witnesses", good, "proven", seen(log[:66]), 2)
    yield case("three wanted, two there", good, "wrong", seen(log[:66]), 3)
    text, line = head(log)
    yield case("one witness twice", answer(log, 64, lines=line + 2 * cosigned(text, WITNESSES[0])), "wrong", None, 2)
    old = line + cosigned(text, WITNESSES[0], NOW - 2 * 86_400)
    yield case("an old cosignature", answer(log, 64, lines=old), "wrong", seen(log[:66]), 1)
    ahead = line + cosigned(text, WITNESSES[0], NOW + 2 * 86_400)
    yield case("a cosignature from the future", answer(log, 64, lines=ahead), "wrong", seen(log[:66]), 1)
    other_text, _ = head(log[:69])
    moved = line + cosigned(other_text, WITNESSES[0])
    yield case("a cosignature of another head", answer(log, 64, lines=moved), "wrong", seen(log[:66]), 1)
    yield case("another model", good, "wrong", seen(log[:66]), model=model(68).hex())
    yield case(
        "another model, not in the log", good, "wrong", seen(log[:66]), model=(b"\x21" + model(69)[1:-1] + b"\0").hex()
    )
    yield case("a fork after what was seen", answer(fork, 64), "conflict", seen(log[:66]), model=model(69).hex())
    yield case("a fork, away for long", answer(fork, 64, since=50), "wrong", seen(log[:50]))
    yield case("another head of the same size", answer(fork, 64), "conflict", seen(log))
    yield case("an older head", answer(log[:66], 64), "wrong", seen(log), model=model(64).hex())
    yield case("other terms", answer(other, 64, since=0), "wrong")
    yield case("no proof of the terms", {**answer(log, 64, since=0), "proof": []}, "wrong")
    yield case("terms of another log", {**answer(log, 64, since=0), "terms": b64(other[0])}, "wrong")
    yield case("signed by somebody else", answer(log, 64, since=0, signer="mallory"), "wrong")
    yield case("another origin", answer(log, 64, since=0, origin="fedrank/" + "0" * 32), "wrong")
    yield case("a wrong size", answer(log, 64, since=0, size=72), "wrong")
    yield case("a huge size", answer(log, 64, since=0, size=2**53), "wrong")
    yield case("a size with a leading zero", answer(log, 64, since=0, size="071"), "wrong")
    yield case("a wrong hash", answer(log, 64, since=0, root=sha(b"x")), "wrong")
    yield case("a truncated tail", {**good, "entries": good["entries"][1:]}, "wrong", seen(log[:66]))
    yield case("a truncated frontier", {**good, "frontier": []}, "wrong", seen(log[:66]))
    yield case(
        "a truncated proof", {**(a := answer(log, 64, since=40)), "proof": a["proof"][1:]}, "wrong", seen(log[:40])
    )
    yield case("a proof that is too long", {**a, "proof": a["proof"] + a["proof"][:1]}, "wrong", seen(log[:40]))
    yield case("a hash of 31 bytes", {**good, "frontier": [b64(bytes(31))]}, "wrong", seen(log[:66]))
    yield case("no entries", {**good, "entries": []}, "wrong", seen(log[:66]))
    yield case("no signature", {**good, "checkpoint": text + "\n"}, "wrong", seen(log[:66]))
    yield case("not text", {**good, "checkpoint": 7}, "wrong", seen(log[:66]))
    yield case("not base64", {**good, "entries": ["?", *good["entries"][1:]]}, "wrong", seen(log[:66]))
    extra = [*log, b"\x03" + (7).to_bytes(4, "big") + sha(b"a key"), b"\x09 of a kind that is not known"]
    yield case("entries of other kinds after the model", answer(extra, 64), "proven", seen(log[:66]))
    both = [*log, entry_of(70, 50)]
    yield case(
        "a model and the best", answer(both, 64), "proven", seen(log), model=model(70).hex(), best=model(50).hex()
    )
    twice = [*log[:-1], b"\x02" + (69).to_bytes(4, "big") + sha(b"a model for one"), log[-1]]
    yield case("two models of one round", answer(twice, 64), "wrong", seen(log[:66]))
    yield case("one of them was seen", answer(twice, 64), "wrong", seen(twice[:-1]))
    back = [*log[:-1], entry_of(70), log[-1]]
    yield case("a round that goes back", answer(back, 64), "wrong", seen(log[:66]))
    yield case("another best in the same round", answer([*both, entry_of(70, 51)], 64), "wrong", seen(log))
    fresh = [*log, *[b"\x09" + bytes([n]) for n in range(30)]]
    again = [*fresh, b"\x02" + (69).to_bytes(4, "big") + sha(model(69)[:-1] + b"\0")]
    yield case("the round that was seen, another model, in the tail alone", answer(again, 96), "more", seen(log))
    yield case(
        "the same with a proof", answer(again, 96, since=71), "wrong", seen(log), model=(model(69)[:-1] + b"\0").hex()
    )
    less = {name: value for name, value in seen(log).items() if name != "model"}
    yield case("seen by an earlier version, which kept no model", good, "proven", less)
    other_round = b"\x02" + (70).to_bytes(4, "big") + sha(model(69))
    yield case(
        "an entry that names another round than the message",
        answer([*log[:-1], other_round], 64),
        "wrong",
        seen(log[:66]),
    )
    old_form = [log[0], *(b"\x02" + sha(model(n)) for n in range(69))]
    yield case("a log that began before entries said the round", answer([*old_form, log[-1]], 64, since=0), "proven")
    yield case("no round", answer([*old_form, b"\x02" + sha(model(69))], 64, since=0), "wrong")
    yield case("no round after one", answer([*log[:-1], b"\x02" + sha(b"x"), log[-1]], 64), "wrong", seen(log[:66]))
    yield case("another best", answer(both, 64), "wrong", seen(log), model=model(70).hex(), best=model(51).hex())


def keys():
    """Answers of logs whose keys changed, or that were put back; ``terms`` are added to the others."""
    log = entries(70)
    tail, operator, newest = {"before": 64}, {"operator": public("operator").hex()}, {"model": model(69).hex()}

    def case(name, expect, *added, notices=None, signers=("second",), kept=None, terms=None, before=66, **options):
        leaves = [*log, *added]
        numbers = range(71, len(leaves)) if notices is None else notices
        return {
            "name": name, "answer": answer(leaves, **tail, notices=numbers, signers=signers, **options), "quorum": 0,
            "seen": seen(log[:before]) | ({} if kept is None else {"keys": kept}), "expect": expect, **newest,
            "terms": terms or {},
        }  # fmt: skip

    first = change(1, NOW - 9, ORIGIN, "second", ORIGIN)
    again = change(1, NOW - 8, "second", "third", "second")
    both = (ORIGIN, "second")
    yield case("another key of the log", "proven", first)
    yield case("another key of the log, and both sign", "proven", first, signers=both)
    yield case("another key, signed by the old one alone", "wrong", first, signers=(ORIGIN,))
    yield case("a second change", "proven", first, again, signers=("third",))
    yield case("a second change without the first", "wrong", first, again, signers=("third",), notices=[72])
    yield case("a change that the old key did not sign", "wrong", change(1, NOW - 9, ORIGIN, "second", "mallory"))
    yield case("a change of another key", "wrong", change(1, NOW - 9, "mallory", "second", "mallory"))
    yield case("a change that nobody signed", "wrong", change(1, NOW - 9, ORIGIN, "second"))
    yield case(
        "a change that is not later",
        "wrong",
        first,
        change(1, NOW - 9, "second", "third", "second"),
        signers=("third",),
    )
    other = [*log, change(1, NOW - 7, ORIGIN, "second", ORIGIN)]
    yield case("a change that is not in the log", "wrong", first, claimed=other)
    yield case("a change that was seen", "proven", first, kept={"1": first.hex()})
    yield case("the key from before one that was seen", "wrong", kept={"1": first.hex()}, signers=(ORIGIN,))
    fork = change(1, NOW - 7, ORIGIN, "mallory", ORIGIN)
    yield case(
        "another change in place of one that was seen", "wrong", fork, kept={"1": first.hex()}, signers=("mallory",)
    )
    early, late = (change(2, NOW - n, "gateway 1", f"gateway {n}") for n in (9, 8))
    yield case("a gateway's key", "proven", early, late, notices=[72], signers=(), kept={"2": early.hex()})
    yield case("a gateway's key from before", "wrong", early, signers=(), kept={"2": late.hex()})
    same = change(2, NOW - 9, "gateway 1", "gateway 7")
    yield case("a gateway's key that was seen", "proven", early, signers=(), kept={"2": early.hex()})
    yield case("another key of the gateway, of the same time", "wrong", early, signers=(), kept={"2": same.hex()})
    yield from bindings(case, log, early, late)
    two = change(1, NOW - 9, ORIGIN, "second", ORIGIN, "operator")
    yield case("a change that the operator signed", "proven", two, terms=operator)
    yield case("a change that the operator did not sign", "wrong", first, terms=operator)
    yield case(
        "a change that somebody else signed",
        "wrong",
        change(1, NOW - 9, ORIGIN, "second", ORIGIN, ORIGIN),
        terms=operator,
    )
    back = b"\x06" + (NOW - 5).to_bytes(8, "big")
    ended = {**tail, "since": 0}
    for name, expect, entry, terms in (
        ("put back", "proven", back, {}),
        ("put back, signed where no one is named", "wrong", signed(back, "operator"), {}),
        ("put back, not signed", "wrong", back, operator),
    ):
        tail, log = {**ended, "before": 65}, entries(70, {**TERMS, **terms})
        yield case(name, expect, entry, signers=(), terms=terms, before=71)
    by_operator, when = {"terms": operator, "before": 71}, NOW - 5
    for name, expect, *entry in (
        ("put back, signed by the operator", "proven", log, when, ORIGIN, "operator"),
        ("put back, signed by the log's key", "wrong", log, when, ORIGIN, ORIGIN),
        ("put back, signed for another place", "wrong", log[:-1], when, ORIGIN, "operator"),
        ("put back, signed for another log", "wrong", [*log[:-1], back], when, ORIGIN, "operator"),
        ("put back, signed for another key of the log", "wrong", log, when, "second", "operator"),
    ):
        yield case(name, expect, recovery(*entry), signers=(), **by_operator)
    anywhere, named = signed(back, "operator"), recovery(log, when, ORIGIN, "operator")
    yield case("put back, signed for any place", "wrong", anywhere, signers=(), **by_operator)
    by_operator["kept"] = {"1": two.hex()}
    yield case("put back behind a change of keys, by the operator", "proven", named, signers=(), **by_operator)
    yield case("put back behind a change of keys, for any place", "wrong", anywhere, signers=(), **by_operator)
    yield case("put back, and the wrong key signs", "wrong", named, **by_operator)
    changed = recovery([*log, two], when, "second", "operator")
    yield case("put back after a change of keys", "proven", two, changed, **by_operator)
    yield case("the same without the change", "wrong", changed, signers=(), **by_operator)
    later = change(1, NOW - 4, ORIGIN, "third", ORIGIN, "operator")
    yield case("put back, and then a change of keys", "proven", named, later, signers=("third",), **by_operator)
    tail, log = ended, entries(70)
    yield case("put back behind a change of keys", "wrong", back, signers=(), kept={"1": first.hex()})


def bindings(case, log, early, late):
    """Notices that are not those of the head's line, or are none; two changes of the gateway's key were made."""
    issuer = change(3, NOW - 7, "issuer 1", "issuer 2")
    good, line = {"signers": ()}, bound([71], [*log, early])
    yield case("a line about notices, and another one", "proven", early, more=f"another line\n{line}", **good)
    yield case("notices without a line", "wrong", early, more="", **good)
    yield case("the line twice", "wrong", early, more=2 * line, **good)
    yield case("a line about other notices", "wrong", early, more=bound([70], log), **good)
    yield case("a line about other numbers", "wrong", early, more=bound([70], [*log[:70], early]), **good)
    yield case("a line without notices", "wrong", notices=(), more=line, **good)
    yield case("an entry of another kind", "wrong", notices=[70], **good)
    yield case("one notice twice", "wrong", early, notices=[71, 71], **good)

    def twisted(name, twist, expect="wrong"):
        made = case(name, expect, early, late, issuer, notices=[72, 73], **good)
        made["answer"]["notices"] = twist(made["answer"]["notices"])
        return made

    def numbered(number):
        return lambda notices: [{**notices[0], "number": number}, notices[1]]

    yield twisted("all notices", lambda notices: notices, "proven")
    yield twisted("all notices are left out", lambda notices: [])
    yield twisted("one notice is left out", lambda notices: notices[1:])
    yield twisted("an earlier notice in place of the newest", lambda notices: [notice(71, [*log, early]), notices[1]])
    yield twisted("notices in another order", lambda notices: notices[::-1])
    yield twisted("no list of notices", lambda notices: {})
    yield twisted("nothing in place of notices", lambda notices: None)
    yield twisted("a number with a point", numbered(72.0), "proven")
    for number in ("72", 72.5, True, None, -1, 73, 2**53, 2**53 + 72):
        yield twisted(f"the number {number!r}", numbered(number))


def vectors():
    """Everything in the file."""
    leaves = [bytes.fromhex(one) for one in KNOWN]
    sizes = [1, 2, 3, 5, 6, 7, 8]
    return {
        "known": {"leaves": KNOWN, "roots": [mth(leaves[:n]).hex() for n in range(9)]},
        "inclusion": [
            {"number": m, "size": n, "proof": [one.hex() for one in path(m, leaves[:n])]}
            for n in sizes
            for m in range(n)
        ],
        "consistency": [
            {"old": m, "size": n, "proof": [one.hex() for one in subproof(m, leaves[:n], True)]}
            for n in sizes
            for m in range(1, n + 1)
        ],
        "terms": TERMS,
        "now": NOW,
        "log": vkey(ORIGIN, 1),
        "witnesses": [vkey(name, 4) for name in WITNESSES],
        "answers": [*cases(), *keys()],
    }


if __name__ == "__main__":
    text = json.dumps(vectors(), indent=1, ensure_ascii=False) + "\n"
    pathlib.Path(__file__).with_name("wire-log-vectors.json").write_text(text, encoding="utf-8")
