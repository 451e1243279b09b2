"""Phrases, exclusions, filters and snippets of a search, by hand and by brute force over random texts."""

import re

import numpy as np
import pytest

from fedrank.core.errors import ConfigError, WireError
from fedrank.texts.served.analyser import Analyser, english
from fedrank.texts.served.documents import Document, words_of
from fedrank.texts.served.engines.tantivy import TantivyEngine
from fedrank.texts.served.query import (
    SNIPPET,
    Conditions,
    find_snippet,
    parse_query,
    snippet_of,
    words_of_query,
)


def parsed(query, analyser=None):
    return parse_query(query, analyser or english())


def test_a_query_is_taken_apart():
    typed, found = parsed('heat "boundary layer flow" -wind -"swept wing" type:pdf author:"van Dyke" after:2024-03')
    assert typed == "heat boundary layer flow"
    assert found.phrases == ("boundary layer flow",) and found.without == ("wind", "swept wing")
    assert found.filters == {"type": "pdf", "author": "van dyke", "after": "2024-03"}
    assert Conditions.from_json(found.as_json()) == found


@pytest.mark.parametrize(
    "query", ["", "wing", "C++ and x-ray", "http://a.b:80/x", 'an "open quote', "a - b", "type: pdf"]
)
def test_what_is_no_condition_is_words(query):
    typed, found = parsed(query)
    assert typed == " ".join(query.split()) and not found and found.as_json() == {}


def test_a_phrase_of_stop_words_is_no_condition():
    assert parsed('"of the" wing') == ("of the wing", Conditions())


@pytest.mark.parametrize(
    "given",
    [
        [],
        {"phrases": "wing"},
        {"phrases": ["x"] * 17},
        {"phrases": ["x" * 101]},
        {"phrases": [3]},
        {"filters": {"readers": "x"}},
        {"filters": {"type": 3}},
        {"filters": {"after": "soon"}},
        {"more": []},
    ],
)
def test_conditions_of_strangers_are_refused(given):
    with pytest.raises(WireError):
        Conditions.from_json(given)


DOCUMENT = Document(
    "1",
    "Heat of wings",
    "The boundary layers of swept wings.",
    {"type": "pdf", "author": "Milton Van Dyke", "date": "2024-03-05"},
)


def meets_all(query, document, analyser=None):
    analyser = analyser or english()
    return parsed(query, analyser)[1].meet(document.about, words_of([document], analyser)[0], analyser)


@pytest.mark.parametrize(
    ("query", "meets"),
    [
        ('"boundary layer"', True),  # stems are compared
        ('"layer boundary"', False),
        ('"heat of wings"', True),
        ('"wings boundary"', False),  # of title and text
        ("-flutter", True),
        ("-wing", False),
        ('-"swept wing"', False),
        ("type:PDF", True),
        ("type:md", False),
        ("author:dyke", True),
        ("after:2024-03", True),
        ("after:2024-03-05", True),
        ("after:2024-03-06", False),
        ("before:2024-03-05", False),
        ("before:2024-04", True),
        ("before:2025 after:2023 type:pdf -drag", True),
    ],
)
def test_documents_meet_conditions(query, meets):
    assert meets_all(query, DOCUMENT) is meets


def test_a_document_without_a_date_meets_no_filter_of_dates():
    for query in ("after:1900", "before:2900", "type:pdf", "author:a"):
        assert not meets_all(query, DOCUMENT._replace(about={}))
    assert not meets_all("after:2024", DOCUMENT._replace(about={"date": "3 May 1999"}))


@pytest.mark.parametrize("query", ["after:2024-3", "before:01.02.2025", "after:soon", "type:pdf type:docx"])
def test_filters_that_cannot_be_meant_are_refused(query):
    with pytest.raises(ConfigError):
        parsed(query)


def test_phrases_are_found_in_the_language_of_the_document():
    analyser = Analyser(("english", "german", "chinese"))
    german = Document("1", "", "Die Ergebnisse der Untersuchungen liegen vor, und die Wirkungen sind belegt.")
    chinese = Document("2", "", "第三季度信息检索系统报告")
    assert meets_all('"Wirkungen sind belegt"', german, analyser)
    assert not meets_all('"belegt Wirkungen"', german, analyser)
    assert meets_all('"信息检索"', chinese, analyser)
    assert not meets_all('"检索信息"', chinese, analyser)


def test_snippets_hold_as_many_different_words_as_any_window():
    """Against all windows that begin at a word, of random texts."""
    random = np.random.default_rng(3)
    words = [f"w{number}" for number in range(30)]
    asked = words[:4]
    for _ in range(50):
        text = " ".join(words[i] for i in random.integers(0, 30, 300))
        found = find_snippet(text, asked, english())
        assert len(found.text) <= SNIPPET and found.text in text
        marked = [found.text[start:end] for start, end in found.marks]
        assert marked == [word for word in found.text.split() if word in asked]
        assert f" {found.text} " in f" {text} "  # of whole words
        starts = [0, *(m.end() for m in re.finditer(" ", text))]
        most = max(len({w for w in text[start : start + SNIPPET - 40].split()[:-1] if w in asked}) for start in starts)
        assert len(set(marked)) >= most


def test_snippets_mark_words_as_they_are_written():
    text = "Über die Größe der STRASSEN. " * 3 + "Isn't it naïve?  信息检索系统 C++"
    german = Analyser(("german", "english", "chinese"))
    for query, marked in (("Straße", {"STRASSEN"}), ("naive", {"naïve"}), ("检索系统", {"检索系统"}), ("c++", {"C++"})):
        found = find_snippet(text, german.cut_query(query), german)
        assert {found.text[start:end] for start, end in found.marks} == marked, query
    long = find_snippet("x'" * 200, ["x"], english())  # one run, longer than a snippet
    assert len(long.text) == SNIPPET and long.marks == ()
    assert find_snippet("", ["x"], german) == ("", ()) == find_snippet(" \n", [], german)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, ("", ())),
        ({"text": "abc", "marks": [[0, 2]]}, ("abc", ((0, 2),))),
        ({"text": "abc", "marks": [[0, 4]]}, ("abc", ())),
        ({"text": "abc", "marks": [[1, 2], [0, 1]]}, ("abc", ())),
        ({"text": "abc", "marks": [[2, 1]]}, ("abc", ())),
        ({"text": "abc", "marks": [[1e400, 2]]}, ("", ())),
        ({"text": "abc", "marks": "x"}, ("", ())),
        ({"text": "x" * 1000, "marks": []}, ("x" * SNIPPET, ())),
    ],
)
def test_snippets_of_strangers_are_bounded(given, kept):
    assert snippet_of(given) == kept


def test_beginnings_are_as_long_as_their_stems():
    assert words_of_query("comput* heat", english()) == ["heat", "comput*"]
    assert words_of_query("computers* Wing*", english()) == ["comput*", "wing*"]
    assert words_of_query("qu* a*b 3*4", english()) == english().cut_query("qu a b 3 4")
    found = words_of_query("energy* (café*), foo_bar*", english())
    assert found == [*english().cut_query("foo_bar"), "energ*", "cafe*"]
    assert len(words_of_query("abc* bcd* cde* def* efg*", english())) == 5  # four, and a word
    with pytest.raises(ConfigError, match="asterisk"):
        parse_query('"heated win*"', english())
    assert words_of_query("heat*", Analyser(("english", "german"))) == ["heat*"]


def test_an_index_names_the_words_that_one_edit_leads_to_and_of_long_words_two(tmp_path):
    """All words within one edit of a short word; of a long one, letters added at two places and at three."""
    pytest.importorskip("tantivy")
    letters, short, long = "bdk", "bkdb", "bkdbbkdb"

    def edits(word):
        for at in range(len(word) + 1):
            yield from (word[:at] + letter + word[at:] for letter in letters)
            yield word[:at] + word[at + 1 :]
            yield from (word[:at] + letter + word[at + 1 :] for letter in letters if at < len(word))
            yield word[:at] + word[at + 1 : at + 2] + word[at : at + 1] + word[at + 2 :]

    one = {*edits(short)} - {short}
    two = {word for near in one for word in edits(near)} - one - {short}
    far = {a + long + b for a in letters for b in letters}
    farther = {a + long[:4] + "m" + long[4:] + b for a in letters for b in letters}
    words = sorted(one | two | {short} | far | farther)
    plain = Analyser(("thai",))  # it cuts no stems
    engine = TantivyEngine(tmp_path, analyser=plain)
    engine.add(Document(f"d{at}", "", " ".join(words[at : at + 9])) for at in range(0, len(words), 9))
    assert {word for word in words if plain.cut(word) == [word]} == {*words}
    found = engine.find_similar(short)
    assert found[0] == short and {*found} == one | {short}
    assert {*engine.find_similar(long)} & (far | farther) == far
    engine.close()
