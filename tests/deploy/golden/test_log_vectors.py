"""Trees, proofs, notes and answers of a log against vectors that the package did not make, and known answers."""

import importlib.util
import json
from pathlib import Path

import pytest

from fedrank.core.errors import ConfigError
from fedrank.deploy.log.note import LOG, WITNESS, Checkpoint, Key, Signer
from fedrank.deploy.log.proof import Answer, Head, TooShortError, Trust, UnprovenError
from fedrank.deploy.log.tree import (
    Grown,
    consistency_proof,
    grown,
    inclusion_proof,
    leaf_hash,
    root,
    verify_consistency,
    verify_inclusion,
)
from fedrank.deploy.terms import Terms

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
VECTORS = json.loads((REFERENCE / "wire-log-vectors.json").read_text(encoding="utf-8"))
LEAVES = [bytes.fromhex(one) for one in VECTORS["known"]["leaves"]]
ROOTS = [bytes.fromhex(one) for one in VECTORS["known"]["roots"]]
# Hashes that implementations of RFC 6962 share, for trees of 1 and of 8 of these leaves.
ONE = "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
EIGHT = "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"


def tree_of(leaves):
    nodes = {}
    for number, leaf in enumerate(leaves):
        for level, at, hash_ in grown(lambda *place: nodes[place], number, leaf_hash(leaf)):
            nodes[level, at] = hash_
    return lambda *place: nodes[place]


def test_the_file_is_what_its_program_writes():
    spec = importlib.util.spec_from_file_location("wire_log_vectors", REFERENCE / "wire_log_vectors.py")
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    assert json.loads(json.dumps(program.vectors())) == VECTORS


def test_trees_have_the_known_hashes():
    assert (ROOTS[1].hex(), ROOTS[8].hex()) == (ONE, EIGHT)
    node, tree = tree_of(LEAVES), Grown()
    for size, expected in enumerate(ROOTS):
        assert root(node, size) == tree.root() == expected
        if size < len(LEAVES):
            tree.append(leaf_hash(LEAVES[size]))


def test_proofs_are_those_of_the_definitions():
    node = tree_of(LEAVES)
    for one in VECTORS["inclusion"]:
        number, size, proof = one["number"], one["size"], [bytes.fromhex(step) for step in one["proof"]]
        assert inclusion_proof(node, number, size) == proof
        for claimed in range(9):
            right = verify_inclusion(leaf_hash(LEAVES[number]), claimed, size, ROOTS[size], proof)
            assert right == (claimed == number)
    for one in VECTORS["consistency"]:
        old, size, proof = one["old"], one["size"], [bytes.fromhex(step) for step in one["proof"]]
        assert consistency_proof(node, old, size) == proof
        for claimed in range(9):
            assert verify_consistency(claimed, ROOTS[claimed], size, ROOTS[size], proof) == (claimed == old)
            assert verify_consistency(old, ROOTS[old], claimed, ROOTS[claimed], proof) == (claimed == size)


def test_a_note_of_another_implementation():
    # From the documentation of golang.org/x/mod/sumdb/note.
    key = Key.parse("PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW", LOG)
    text = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
    line = "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM="
    assert key.id.hex() == "c74f20a3" and str(key).startswith("PeterNeumann+c74f20a3+ARpc")
    import base64

    note = Checkpoint("", 0, b"", text, (("PeterNeumann", base64.b64decode(line)),))
    assert note.is_signed_by(key)
    other = Checkpoint("", 0, b"", text + "!", note.signatures)
    assert not other.is_signed_by(key)


def test_answers():
    for case in VECTORS["answers"]:
        terms = Terms.from_json(json.dumps(VECTORS["terms"] | case.get("terms", {})))
        seen = case["seen"] and Head.from_json(json.dumps(case["seen"]))
        trust = Trust.of(VECTORS["witnesses"], case["quorum"]) if case["quorum"] else Trust()
        best = bytes.fromhex(case["best"]) if "best" in case else None
        try:
            head = Answer.parse(json.dumps(case["answer"]).encode()).check(terms, seen, trust, VECTORS["now"])
            got = "proven" if head.holds(bytes.fromhex(case["model"]), best) else "wrong"
        except TooShortError:
            got = "more"
        except UnprovenError as error:
            got = "wrong" if error.conflict is None else "conflict"
            assert error.conflict in (None, (case["seen"] and case["seen"]["note"], case["answer"]["checkpoint"]))
        assert got == case["expect"]


def test_keys_that_are_none_are_refused():
    good = VECTORS["witnesses"][0]
    for bad in ("", "x", good[:-4] + "AAA=", good.replace("one", "own"), VECTORS["log"], good.replace("+", " ")):
        with pytest.raises(ConfigError):
            Trust.of([bad], None)
    for witnesses, quorum in (([good, good], 1), ([good], 2), ([good], 0), ([], 1), (good, 1)):
        with pytest.raises(ConfigError):
            Trust.of(witnesses, quorum)
    assert Trust.of(VECTORS["witnesses"], None).quorum == 2
    assert Key.parse(str(Signer("w/1", WITNESS, bytes(32)).key), WITNESS).name == "w/1"
