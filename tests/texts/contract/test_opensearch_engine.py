"""OpenSearch and Elasticsearch as an owner's index, against their documented requests and answers."""

from collections import Counter

import numpy as np
import pytest
from fake_opensearch import Index, served

from fedrank.core.errors import ConfigError, RunError
from fedrank.texts.data.features import Statistics
from fedrank.texts.data.generate import generate_texts
from fedrank.texts.served.documents import Document, words_of
from fedrank.texts.served.engines import Engine
from fedrank.texts.served.engines.foreign import Columns
from fedrank.texts.served.engines.opensearch import OpenSearchEngine
from fedrank.texts.served.owner import score_documents

COLUMNS = Columns.of("id title body")


@pytest.fixture(scope="module")
def documents():
    texts = generate_texts(queries=2, documents=40, seed=3)
    rows = [(str(n), *pair) for n, pair in enumerate(zip(texts.titles, texts.bodies, strict=True))]
    return [*rows, ("a/b c", None, "running runners of universities"), ("x" * 129, "an id that no ticket holds", "run")]


@pytest.fixture(scope="module")
def index(documents):
    return Index(documents, "ApiKey abc")


@pytest.fixture(scope="module")
def engine(index):
    with served(index) as url:
        yield OpenSearchEngine(url, COLUMNS, "ApiKey abc")


def test_it_is_an_engine_with_the_documents_of_the_index(engine, documents):
    assert isinstance(engine, Engine) and len(engine) == 42
    assert engine.get("a/b c") == Document("a/b c", "", documents[-2][2]) and engine.get("none") is None
    wanted = words_of([Document(name, title or "", text) for name, title, text in documents[:-1]])
    assert Counter(map(str, engine.words())) == Counter(map(str, wanted))
    assert engine.lengths().tolist() == pytest.approx(
        [sum(len(one.body) for one in wanted) / 41, sum(len(one.title) for one in wanted) / 41]
    )


def test_frequencies_are_asked_for_once_and_are_those_of_the_words_that_we_cut(engine, index, documents):
    cut = words_of([Document(name, title or "", text) for name, title, text in documents])
    every = Counter(word for one in cut for word in set(one.body))
    words = [word for word, _ in every.most_common(20)] + ["run", "univers", "quaternion"]
    found = engine.frequencies(words)
    assert found == [(every[word], sum(word in one.title for one in cut)) for word in words]
    before = len(index.asked)
    assert engine.frequencies(words[::-1]) == found[::-1] and len(index.asked) == before


def test_candidates_are_in_the_order_of_the_given_weights(engine, documents):
    cut = words_of([Document(name, title or "", text) for name, title, text in documents])
    common, rare = (Counter(word for one in cut for word in one.body).most_common()[place][0] for place in (0, -1))
    # The engine's own weights would put the rare word first.
    first = [engine.candidates({common: high, rare: low}, 50) for high, low in ((100.0, 0.01), (0.01, 100.0))]
    holders = [
        {documents[n][0] for n, one in enumerate(cut) if word in one.body or word in one.title}
        for word in (common, rare)
    ]
    assert first[0][0].id in holders[0] and first[1][0].id in holders[1]
    assert {one.id for one in first[0]} == (holders[0] | holders[1]) - {"x" * 129}
    assert score_documents([rare], [first[1][0].words], _statistics())[0, 0] > 0
    assert len(engine.candidates({common: 1.0}, 3)) == 3 and engine.candidates({}, 3) == []


def _statistics():
    return Statistics(100.0, np.ones((1, 2)), np.ones((1, 2)), np.ones(2) * 100)


def test_nothing_is_written(engine, documents):
    for act in (lambda: engine.add([Document("x", "", "y")]), lambda: engine.remove(["0"])):
        with pytest.raises(RunError, match="there, as before"):
            act()
    assert engine.add([]) == 0
    engine.close()


def test_trouble_is_told_in_one_sentence(index):
    with served(index) as url:
        with pytest.raises(RunError, match="401"):
            OpenSearchEngine(url, COLUMNS)
        with pytest.raises(RunError, match="400"):
            OpenSearchEngine(url.replace("articles", "nowhere"), COLUMNS, "ApiKey abc")
    with pytest.raises(RunError, match="cannot be asked"):
        OpenSearchEngine(url, COLUMNS)
    for bad in ("ftp://host/index", "https://host:9200", "https://host/a/b"):
        with pytest.raises(ConfigError, match="INDEX"):
            OpenSearchEngine(bad, COLUMNS)


@pytest.mark.parametrize("answer", [b"[]", b"{", {"hits": {}}, {"took": 1}])
def test_an_answer_of_another_form_is_told(answer):
    index = Index([("a", "t", "b")])
    with served(index) as url:
        engine = OpenSearchEngine(url, COLUMNS)
        index.answer = lambda *_: answer
        for ask in (lambda: engine.candidates({"b": 1.0}, 1), lambda: list(engine.words())):
            with pytest.raises(RunError, match="engine"):
                ask()
