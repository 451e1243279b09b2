"""Owners to ask are chosen by past answers: those that led the lists of similar queries, and whose texts hold words."""

import numpy as np
import pytest
from search_worlds import TEXTS, search_world

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
