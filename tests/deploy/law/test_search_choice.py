"""Owners to ask are chosen by past answers: those that led the lists of similar queries, and whose texts hold words."""

import contextlib

import numpy as np
import pytest
from search_worlds import TEXTS, search_world

from fedrank.cli.listen import Reach
from fedrank.cli.search import Who
from fedrank.core.errors import RunError
from fedrank.deploy.search import choice
from fedrank.deploy.search.choice import PastAnswers
from fedrank.deploy.search.federation import Federation

OWNERS = [f"owner{number}" for number in range(12)]


def fill_past(path=None, queries=choice.FIRST + 20):
    """Each owner has texts on its subject, which its queries find."""
    past = PastAnswers(path)
    for number in range(queries):
        subject = number % len(OWNERS)
        words = [f"word{subject}-{number % 7}", "common"]
        past.record(words, [OWNERS[subject]] * 6, [(OWNERS[subject], f"t{number}", {*words, f"title{subject}"})])
    return past


def test_the_owner_of_a_subject_is_asked_and_few_others():
    past = fill_past()
    for subject in range(len(OWNERS)):
        chosen = past.choose([f"word{subject}-3"], OWNERS, draw=0.5)
        assert chosen[0] == OWNERS[subject] and len(chosen) == 4
        assert past.choose([f"title{subject}"], OWNERS, 0.5)[0] == OWNERS[subject]  # seen in texts, never asked
        assert past.choose([f"word{subject}-3"], OWNERS, draw=0.05) == OWNERS  # to learn
    assert past.choose(["never-seen"], OWNERS, 0.5) == OWNERS  # nothing is known
    assert past.choose(["word1-3"], OWNERS[:3], 0.5) == OWNERS[:3]
    assert fill_past(queries=choice.FIRST - 1).choose(["word1-3"], OWNERS, 0.5) == OWNERS


def test_shares_are_those_of_the_formulas():
    """By hand, with two queries and two pieces: cosine of TF-IDF, discounted gains, votes to the fourth power."""
    past = PastAnswers()
    past.record(["a", "b"], ["x", "y", "x"], [("x", "1", {"a", "b"})])
    past.record(["b", "c"], ["y"], [("y", "2", {"b", "c", "d", "e", "f"})])
    idf = {"a": np.log1p(1.5 / 1.5), "b": np.log1p(0.5 / 2.5), "c": np.log1p(1.5 / 1.5)}
    norm = np.hypot(idf["a"], idf["b"])
    similar = [1.0, idf["b"] ** 2 / norm / np.hypot(idf["b"], idf["c"])]
    gains = {"x": 1 + 1 / 2, "y": 1 / np.log2(3)}
    votes = {"x": similar[0] * gains["x"], "y": similar[0] * gains["y"] + similar[1]}
    pieces = {"x": (idf["a"] + idf["b"]) / 2, "y": idf["b"] / np.sqrt(5)}
    seen = {"x": 1.0, "y": (pieces["y"] / pieces["x"]) ** 4}
    found = past.shares(["a", "b"], ["x", "y"])
    for owner in ("x", "y"):
        expected = votes[owner] / sum(votes.values()) + seen[owner] / sum(seen.values())
        assert found[owner] == pytest.approx(expected)


def test_an_owner_that_fills_its_texts_with_words_keeps_only_one_place():
    """Hostile: its titles hold every word that is asked. It is asked always, and no other is asked less."""
    past = fill_past()
    before = {subject: past.choose([f"word{subject}-3"], OWNERS, 0.5) for subject in range(11)}
    everything = {f"word{subject}-{n}" for subject in range(12) for n in range(7)}
    for number in range(300):
        past.record(["unrelated"], [OWNERS[11]], [(OWNERS[11], f"lie{number}", everything)])
    for subject, owners in before.items():
        after = past.choose([f"word{subject}-3"], OWNERS, 0.5)
        assert OWNERS[subject] in after and len(after) == len(owners)


def test_past_answers_are_kept_in_a_file_that_is_bounded(tmp_path, monkeypatch):
    path = tmp_path / "past.json"
    past = fill_past(path)
    again = PastAnswers(path)
    assert again.shares(["word3-3", "common"], OWNERS) == past.shares(["word3-3", "common"], OWNERS)
    assert path.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(choice, "_PIECES", 5)
    monkeypatch.setattr(choice, "_QUERIES", 7)
    past.record(["new"], [OWNERS[0]], [(OWNERS[0], "new", {"new"})])
    kept = PastAnswers(path)
    assert len(kept._pieces) == 5 and len(kept._queries) == 7
    assert not kept._holding["word3-3"] or all(key in kept._pieces for key in kept._holding["word3-3"])
    path.write_text("[")
    with pytest.raises(RunError, match="past answers"):
        PastAnswers(path)


def test_past_answers_are_forgotten_after_thirty_days(tmp_path, monkeypatch):
    path, day = tmp_path / "past.json", 20_000 * 86400.0
    monkeypatch.setattr(choice.time, "time", lambda: day)
    past = fill_past(path, 5)
    assert len(PastAnswers(path)._queries) == 5
    monkeypatch.setattr(choice.time, "time", lambda: day + 29 * 86400)
    past.record(["later"], [OWNERS[0]], [(OWNERS[0], "later", {"later"}), (OWNERS[0], "t0", {"again"})])
    assert len(PastAnswers(path)._queries) == 6
    monkeypatch.setattr(choice.time, "time", lambda: day + 30 * 86400)
    assert len(PastAnswers(path)._queries) == 1
    past.record(["last"], [OWNERS[0]], [])
    assert len(past._queries) == 2 and [*past._pieces] == [(OWNERS[0], "later")]
    assert "word0" not in path.read_text() and {*past._holding} == {"later"}


def test_processes_that_share_a_file_lose_nothing_of_each_other(tmp_path):
    path = tmp_path / "past.json"
    first, second = PastAnswers(path), PastAnswers(path)
    for number in range(4):
        (first, second)[number % 2].record([f"w{number}"], [OWNERS[0]], [])
    assert [words for _, words, _ in PastAnswers(path)._queries] == [["w0"], ["w1"], ["w2"], ["w3"]]


def test_a_folder_that_cannot_be_written_to_keeps_no_answer_from_the_asker(tmp_path, caplog):
    (tmp_path / "file").write_text("x")
    past = PastAnswers(tmp_path / "file" / "past.json")
    past.record(["a"], [OWNERS[0]], [])
    assert len(past._queries) == 1 and [record.levelname for record in caplog.records] == ["WARNING"]


def test_nothing_is_recorded_unless_it_is_asked_for(tmp_path):
    pytest.importorskip("tantivy")
    with search_world(tmp_path, TEXTS) as (_, homes, file):
        homes["north"].keep_federation(file)
        who = Who(owner=homes["north"].path)
        for chosen in (False, True):
            with contextlib.suppress(RunError):  # the others have not admitted it
                who.open_federation(Reach(), chosen).search("wing")
            assert not (homes["north"].path / "past.json").exists()
        for home in homes.values():
            home.keep_federation(file)
        for chosen in (False, True):
            assert not who.open_federation(Reach(), chosen).search("wing").missing
            assert (homes["north"].path / "past.json").exists() == chosen


def test_all_others_are_asked_when_none_of_those_chosen_answers(tmp_path, monkeypatch):
    pytest.importorskip("tantivy")
    monkeypatch.setattr(choice, "LEAST", 1)
    monkeypatch.setattr(choice, "FIRST", 1)
    monkeypatch.setattr(choice, "EXPLORED", 0.0)
    with search_world(tmp_path, TEXTS) as (asked, homes, file):
        past = PastAnswers()
        past.record(["wing"], ["east"], [])
        past.record(["rose"], ["east"], [])
        askers = homes["east"].askers()
        askers.forbid("anna")
        askers.close()
        answer = Federation(file, ("anna", asked._tokens), past=past).search("wing roses")
        assert {hit.owner for hit in answer.hits} == {"north", "south"}
        assert {*answer.missing} == {"east"} and answer.not_asked == ()
        assert len(past._queries) == 2  # an owner is missing: its place in the list is not known


def test_a_search_asks_those_that_are_chosen_and_names_the_others(tmp_path, monkeypatch):
    pytest.importorskip("tantivy")
    monkeypatch.setattr(choice, "LEAST", 1)
    monkeypatch.setattr(choice, "FIRST", 2)
    monkeypatch.setattr(choice, "EXPLORED", 0.0)
    with search_world(tmp_path, TEXTS) as (asked, homes, file):
        past = PastAnswers()
        federation = Federation(file, ("anna", asked._tokens), past=past)
        for query in ("roses in gardens", "boundary layer"):
            assert not federation.search(query).not_asked
        answer = federation.search("lilies and roses")
        assert answer.not_asked == ("north", "south") and [hit.owner for hit in answer.hits] == ["east"]
        assert not answer.missing
        assert federation.search("lilies and roses", all_owners=True).not_asked == ()
        askers = homes["north"].askers()
        assert askers.rows()[0][1] == 3  # the fourth search of four was not shown to it
        askers.close()
        assert asked.search("lilies and roses").not_asked == ()
