"""Keys of a study: who signs what, what is refused, and that a study with keys gives what one without gives."""

import dataclasses
import json

import numpy as np
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from studies import SILOS, codebook, csv, node, rows

from fedrank.cli.main import app
from fedrank.core.errors import ConfigError, DataError
from fedrank.silos.studies.codebook import COORDINATOR, Question, codebook_toml, from_text, read_codebook
from fedrank.silos.studies.coordinator import Coordinator, StudyFolder, run_study
from fedrank.silos.studies.keys import KEY, Key, make_key
from fedrank.silos.studies.messages import Answer, Round, read_message, write_message
from fedrank.silos.studies.node import open_node

RISK = Question(name="risk", formula="ill ~ age + sex")
PARTS = {silo: rows(90, k) for k, silo in enumerate(SILOS)}
KEYS = {silo: Key() for silo in SILOS}
PUBLIC = {silo: key.public for silo, key in KEYS.items()}


def with_keys(**more):
    return dataclasses.replace(codebook(RISK), keys={**PUBLIC, **more})


def sent(message):
    """A message written as JSON and read again, as it arrives at the other side."""
    return type(message).from_json(json.loads(json.dumps(message.as_json())))


def test_a_study_with_keys_gives_what_one_without_gives():
    made = {}
    for book, keys in ((codebook(RISK), {}), (with_keys(), KEYS)):
        nodes = [node(book, silo, part, key=keys.get(silo)) for silo, part in PARTS.items()]
        made[bool(keys)] = run_study(book, lambda asked, nodes=nodes: [sent(one.answer(sent(asked))) for one in nodes])
    estimates = [one.progress["risk"].result.estimate for one in made.values()]
    np.testing.assert_array_equal(*estimates)


def test_another_program_can_check_a_signature():
    """Ed25519 of the message without its signature, as JSON with sorted keys, by the first half of the public line."""
    book = with_keys()
    answer = node(book, "a", PARTS["a"], key=KEYS["a"]).answer(Coordinator(book).open)
    content = json.loads(json.dumps(answer.as_json()))
    signature = from_text(content.pop("signature"))
    signing = Ed25519PublicKey.from_public_bytes(from_text(PUBLIC["a"])[:32])
    signing.verify(signature, json.dumps(content, sort_keys=True).encode())
    with pytest.raises(InvalidSignature):
        signing.verify(signature, json.dumps(content | {"silo": "b"}, sort_keys=True).encode())


def test_the_coordinator_refuses_what_a_silo_did_not_sign(tmp_path):
    book = with_keys()
    (tmp_path / "codebook.toml").write_text(codebook_toml(book))
    asked = Coordinator(book).open
    good = node(book, "a", PARTS["a"], key=KEYS["a"]).answer(asked)
    told = good.as_json()
    changed = [
        {**told["answers"][0], "numbers": [told["answers"][0]["numbers"][0] + 1, *told["answers"][0]["numbers"][1:]]}
    ]
    later = dataclasses.replace(asked, number=2)
    wrong = [
        {key: value for key, value in told.items() if key != "signature"},
        told | {"signature": ""}, told | {"signature": "?"}, told | {"signature": "AAAA"}, told | {"silo": "b"},
        told | {"answers": changed}, told | {"answers": [{**told["answers"][0], "rows": 91}]},
        dataclasses.replace(good, signature="").sign(KEYS["b"]).as_json(),
        node(book, "a", PARTS["a"], key=KEYS["a"]).answer(later).as_json() | {"round": 1, "round_sha256": asked.sha},
    ]  # fmt: skip
    study = StudyFolder(tmp_path / "study", tmp_path / "codebook.toml")
    for content in wrong:
        with pytest.raises(DataError):
            study.receive(Answer.from_json(content))
        with pytest.raises(DataError):
            Coordinator(book).take([Answer.from_json(content)])
    assert study.waiting == list(SILOS)
    study.receive(sent(good))  # who came first with a wrong one does not keep the right one out
    assert study.waiting == ["b", "c"]


def test_a_node_refuses_to_speak_for_another_silo(tmp_path):
    book = with_keys()
    asked = Coordinator(book).open
    for key in (None, KEYS["b"]):
        with pytest.raises(ConfigError):
            node(book, "a", PARTS["a"], key=key).answer(asked)
    csv(PARTS["a"], tmp_path / "a.csv")
    with pytest.raises(ConfigError):
        open_node(tmp_path / "a.csv", book, "a", tmp_path / "node", book.sha)
    make_key(tmp_path / "node" / KEY)
    with pytest.raises(ConfigError):
        open_node(tmp_path / "a.csv", book, "a", tmp_path / "node", book.sha).answer(asked)
    assert not (tmp_path / "node" / "book.jsonl").exists()


def test_rounds_of_a_coordinator_with_a_key_are_its_own(tmp_path):
    key = make_key(tmp_path / "study" / KEY)
    book = with_keys(coordinator=key.public)
    (tmp_path / "codebook.toml").write_text(codebook_toml(book))
    asked = StudyFolder(tmp_path / "study", tmp_path / "codebook.toml").round
    own = node(book, "a", PARTS["a"], key=KEYS["a"])
    answer = own.answer(sent(asked))
    StudyFolder(tmp_path / "study").receive(answer)
    theta = asked.as_json() | {"asks": [{**asked.as_json()["asks"][0], "attempt": 1}]}
    for wrong in (Coordinator(book).open, Round.from_json(theta), Coordinator(book).open.sign(KEYS["b"])):
        with pytest.raises(DataError):
            own.answer(wrong)
    for folder, other in (("none", None), ("other", Key())):
        if other is not None:
            make_key(tmp_path / folder / KEY)
        with pytest.raises(ConfigError):
            _ = StudyFolder(tmp_path / folder, tmp_path / "codebook.toml").round


def test_keys_are_of_all_silos_and_no_two_alike():
    both = {silo: from_text(line) for silo, line in PUBLIC.items()}
    half = Key().public
    for keys in (
        {"a": PUBLIC["a"]}, {**PUBLIC, "z": half}, {**PUBLIC, "a": PUBLIC["b"]}, {**PUBLIC, COORDINATOR: PUBLIC["b"]},
        {**PUBLIC, "a": PUBLIC["a"][:44]}, {**PUBLIC, "a": ""},
        {**PUBLIC, "a": KEYS["a"].public[:43] + "!" + KEYS["a"].public[44:]},
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            dataclasses.replace(codebook(RISK), keys=keys)
    assert len({part for one in both.values() for part in (one[:32], one[32:])}) == 6
    with pytest.raises(ConfigError):
        dataclasses.replace(codebook(RISK), silos=("a", COORDINATOR))


def run(*words):
    return app(list(map(str, words)), result_action="return_value", exit_on_error=False)


def test_the_command_makes_one_key_and_prints_its_line(tmp_path, capsys):
    run("silos", "key", "--folder", tmp_path / "a")
    first = capsys.readouterr().out.strip()
    run("silos", "key", "--folder", tmp_path / "a")
    assert capsys.readouterr().out.strip() == first and len(from_text(first)) == 64
    lines = {"a": first, **{silo: PUBLIC[silo] for silo in ("b", "c")}}
    (tmp_path / "codebook.toml").write_text(codebook_toml(dataclasses.replace(codebook(RISK), keys=lines)))
    book = read_codebook(tmp_path / "codebook.toml")
    csv(PARTS["a"], tmp_path / "a.csv")
    write_message(Coordinator(book).open, tmp_path / "round.json")
    run("silos", "answer", tmp_path / "round.json", "--data", tmp_path / "a.csv", "--silo", "a", "--agreed",
        tmp_path / "codebook.toml", "--folder", tmp_path / "a", "--out", tmp_path / "answer.json", "--yes")  # fmt: skip
    Coordinator(book).check(read_message(tmp_path / "answer.json", Answer), Coordinator(book).open)
