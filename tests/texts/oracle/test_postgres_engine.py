"""PostgreSQL's full text search as an owner's index, on a real server: what it finds, against counting by hand."""

import math
from collections import Counter

import numpy as np
import postgres_server
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedrank.core.errors import ConfigError, RunError
from fedrank.texts.data.generate import generate_texts
from fedrank.texts.served.documents import Document, words_of
from fedrank.texts.served.engines import Engine
from fedrank.texts.served.engines.foreign import Columns
from fedrank.texts.served.engines.postgres import PostgresEngine
from fedrank.texts.served.envelopes import Tickets
from fedrank.texts.served.owner import Owner, OwnerSettings, _own_statistics

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(postgres_server.why_not()), reason=postgres_server.why_not() or "there is one"),
]


@pytest.fixture(scope="module")
def url():
    with postgres_server.Server() as started:
        yield started.database("company")


@pytest.fixture(scope="module")
def documents():
    texts = generate_texts(queries=2, documents=150, seed=3)
    rows = [Document(str(n), *pair) for n, pair in enumerate(zip(texts.titles, texts.bodies, strict=True))]
    odd = [Document("quoted", "O'Neill's \\ flutter", "it's flutter\\ing: '); DROP TABLE articles;--"),
           Document("9" * 128, "", "Running runners ran across naïve analyses of flutter")]  # fmt: skip
    return [*rows, *odd]


@pytest.fixture(scope="module")
def engine(url, documents):
    import psycopg

    with psycopg.connect(url, autocommit=True) as company:
        company.execute("CREATE SCHEMA shop")
        company.execute("CREATE TABLE shop.articles (sku text PRIMARY KEY, headline text, content text)")
        rows = [(one.id, one.title or None, one.body) for one in documents] + [("x" * 129, "too long an id", "flutter")]
        with company.cursor() as cursor:
            cursor.executemany("INSERT INTO shop.articles VALUES (%s, %s, %s)", rows)
        company.execute("CREATE INDEX ON shop.articles USING gin (to_tsvector('english', content))")
        company.execute("CREATE INDEX ON shop.articles USING gin (to_tsvector('english', headline))")
    made = PostgresEngine(url, "shop.articles", Columns.of("sku headline content"))
    yield made
    made.close()


def bm25(query, documents, statistics):
    """BM25 of body and title together, by hand."""
    scores = {}
    for document in documents:
        words, total = words_of([document])[0], 0.0
        for field, own in enumerate((words.body, words.title)):
            counts = Counter(own)
            for row, word in enumerate(query):
                idf = math.log(statistics.documents / max(statistics.document_frequency[row, field], 1))
                mean = statistics.tokens[field] / statistics.documents
                tf = counts[word]
                total += idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * len(own) / mean)) if tf else 0.0
        scores[document.id] = total
    return scores


def test_it_is_an_engine_with_the_documents_of_the_table(engine, documents):
    assert isinstance(engine, Engine)
    assert len(engine) == len(documents) + 1
    assert engine.get("quoted") == documents[-2] and engine.get("nothing") is None
    assert engine.get(documents[-1].id) == documents[-1]
    assert sorted(map(tuple, map(map_words, engine.words()))) == sorted(map(map_words, words_of(documents)))
    lengths = np.mean([[len(one.body), len(one.title)] for one in words_of(documents)], axis=0)
    np.testing.assert_allclose(engine.lengths(), lengths)


def map_words(words):
    return tuple(words.title), tuple(words.body)


def test_frequencies_are_those_of_the_words_that_we_cut(engine, documents):
    cut = words_of(documents)
    every = Counter(word for one in cut for word in set(one.body))
    words = [word for word, _ in every.most_common(30)] + ["flutter", "run", "quaternion", "'", "\\"]
    for word, (body, title) in zip(words, engine.frequencies(words), strict=True):
        extra = word == "flutter"  # of the row whose id is too long for a ticket
        assert body == every[word] + extra
        assert title == sum(word in one.title for one in cut)


def test_the_best_documents_are_among_the_candidates(engine, documents):
    cut = words_of(documents)
    vocabulary = sorted({word for one in cut for word in one.body})
    rng = np.random.default_rng(0)
    owner = Owner(engine, X25519PrivateKey.generate(), Tickets(bytes(32)), None,
                  OwnerSettings(candidates=30, step=0.0))  # fmt: skip
    missed = 0
    for _ in range(20):
        query = rng.choice(vocabulary, 3, replace=False).tolist()
        wanted = bm25(query, documents, _own_statistics(engine.frequencies(query), len(engine), engine))
        hits = owner.search(query, 10)
        for hit in hits:
            assert hit.score == pytest.approx(wanted[hit.id], abs=1e-5)
        found, least = {hit.id for hit in hits}, min((hit.score for hit in hits), default=0.0)
        missed += sum(score > least + 1e-6 for id, score in wanted.items() if id not in found)
    assert missed <= 4  # of 200


def test_words_with_quotes_and_backslashes_are_words_and_nothing_is_written(engine, documents):
    weights = {
        "flutter": 1.0,
        "o'neil": 2.0,
        "\\": 1.0,
        "'); drop table shop.articles;--": 1.0,
        "&|!()": 1.0,
        "%s": 1.0,
    }
    found = [candidate.id for candidate in engine.candidates(weights, 5)]
    assert set(found) == {"quoted", documents[-1].id}
    assert engine.candidates({}, 5) == [] and engine.candidates({"quaternion": 1.0}, 5) == []
    for act in (lambda: engine.add([documents[0]]), lambda: engine.remove(["0"])):
        with pytest.raises(RunError, match="there, as before"):
            act()
    assert engine.add([]) == 0


def test_a_connection_that_was_cut_is_made_anew(engine, url):
    import psycopg

    with psycopg.connect(url, autocommit=True) as company:
        company.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    assert engine.get("quoted") is not None


def test_what_is_not_there_is_named(url):
    columns = Columns.of("sku headline content")
    with pytest.raises(RunError, match="nowhere"):
        PostgresEngine(url, "nowhere", columns)
    with pytest.raises(RunError, match="headlines"):
        PostgresEngine(url, "shop.articles", Columns.of("sku headlines content"))
    with pytest.raises(RunError, match="cannot be asked"):
        PostgresEngine("postgresql://127.0.0.1:9/x", "t", columns)
    for names in ("", "a", "a a b", "a b c d"):
        with pytest.raises(ConfigError, match="columns"):
            Columns.of(names)
    assert PostgresEngine(url, "shop.articles", Columns.of("sku content")).get("0").title == ""
