"""The 16 features against bm25s, against loops over documents and words, and on inputs that noise has spoilt."""

import os
from pathlib import Path

import bm25s
import numpy as np
import pytest
from jaxtyping import TypeCheckError
from text_feature_worlds import WORDS, PlainFeatures, drawn_texts, plain_corpus, texts_of

from fedrank.core.errors import DataError
from fedrank.texts.data.corpus import corpus_of, tokenise
from fedrank.texts.data.features import NAMES, NOT_HERE, Statistics, TermColumns, bm25, statistics_of, text_features


def smart(path, field):
    """The texts of one field of a SMART file, by record."""
    records = [""]
    keep = False
    for line in path.read_text("latin-1").splitlines():
        if line.startswith("."):
            keep = line[:2] == field
            if line[:2] == ".I":
                records.append("")
        elif keep:
            records[-1] += line + " "
    return records[1:]


@pytest.fixture(scope="module")
def adi():
    folder = Path(os.environ.get("FEDRANK_DATA", "-"), "text", "adi")
    if not folder.is_dir():
        pytest.skip("ADI is needed: set FEDRANK_DATA to the folder that holds the real data sets")
    documents, queries = folder / "ADI.ALL", folder / "ADI.QRY"
    return texts_of(smart(documents, ".W"), smart(documents, ".T"), smart(queries, ".W"), name="adi")


def check_bm25(texts, stem):
    """Our BM25 of every query, document and field against bm25s, which counts the words itself."""
    corpus = corpus_of(texts, stem=stem, stopwords=stem)
    statistics, columns = statistics_of([corpus], corpus.vocabulary), TermColumns(corpus)
    ours = [bm25(columns.counts(terms), corpus.lengths, statistics.of(terms)) for terms in corpus.queries]
    assert any(values.max(initial=0.0) > 1 for values in ours)
    queries = tokenise(texts.queries, stem, stem)
    for field, strings in enumerate((texts.bodies, texts.titles)):
        engine = bm25s.BM25(method="atire", k1=1.2, b=0.75, dtype="float64")
        engine.index(tokenise(strings, stem, stem), show_progress=False)
        for values, query in zip(ours, queries, strict=True):
            # It sums what it looks up for each word; one by one, a repeated word surely counts repeatedly.
            known = [word for word in query if word in engine.vocab_dict]
            theirs = np.sum([engine.get_scores([word]) for word in known], axis=0) if known else 0.0
            np.testing.assert_allclose(values[:, field], theirs, rtol=1e-6, atol=1e-6)


def test_bm25_is_that_of_bm25s_on_adi(adi):
    check_bm25(adi, stem=True)


def test_bm25_is_that_of_bm25s_on_awkward_documents():
    check_bm25(drawn_texts(), stem=False)


def features_of_all(texts, as_published=False):
    corpus = plain_corpus(texts)
    statistics, columns = statistics_of([corpus], corpus.vocabulary), TermColumns(corpus)
    return [
        columns.features(terms, statistics.of(terms), as_published=as_published) for terms in corpus.queries
    ]  # one [documents, 16] a query


def test_all_sixteen_are_those_of_a_loop_over_documents_and_words():
    for seed in [0, 1]:
        for as_published in [False, True]:
            texts = drawn_texts(seed=seed)
            documents = [(body.split(), title.split()) for body, title in zip(texts.bodies, texts.titles, strict=True)]
            plain = PlainFeatures(documents)
            for values, query in zip(features_of_all(texts, as_published), texts.queries, strict=True):
                expected = [plain.of(query.split(), document, as_published) for document in documents]
                np.testing.assert_allclose(values, expected, rtol=1e-6, atol=1e-6)


def test_the_printed_variant_is_another():
    texts = drawn_texts()
    ours, printed = features_of_all(texts)[0], features_of_all(texts, as_published=True)[0]
    changed = {name for name, column in zip(NAMES, (ours != printed).any(axis=0), strict=True) if column}
    assert changed == {"body BM25", "title BM25", "body LMIR.ABS", "title LMIR.ABS"}


def test_a_word_counts_as_often_as_it_stands_in_the_query():
    texts = texts_of(["ant bee bee", "cat", "ant"], ["bee", "", "cat"], ["ant", "bee", "ant bee bee"])
    ant, bee, both = features_of_all(texts)
    of_words = np.array([not name.endswith("length") for name in NAMES])
    np.testing.assert_allclose(both[:, of_words], (ant + 2 * bee)[:, of_words], rtol=1e-12)
    np.testing.assert_array_equal(both[:, ~of_words], [[3, 1], [1, 0], [1, 1]])


def test_an_empty_query_has_lengths_and_nothing_else():
    values = features_of_all(texts_of(["ant bee", ""], ["", "cat"], [""]))[0]
    expected = np.zeros((2, 16))
    expected[:, NAMES.index("body length")] = [2, 0]
    expected[:, NAMES.index("title length")] = [0, 1]
    np.testing.assert_array_equal(values, expected)


def test_one_document_and_a_word_nobody_has_give_finite_features():
    values = dict(zip(NAMES, features_of_all(texts_of(["ant ant"], [""], ["ant yak"]))[0][0], strict=True))
    assert values["body TF"] == 1 and values["body IDF"] == values["body BM25"] == 0  # ln(1 / 1) twice
    # A word that nobody has counts as half an occurrence: of two tokens in bodies and, for want of any, one in titles.
    assert values["body LMIR.JM"] == pytest.approx(np.log(0.9 + 0.1 * 1) + np.log(0.1 * 0.25))
    assert values["title LMIR.DIR"] == pytest.approx(2 * np.log(0.5))
    assert values["title LMIR.ABS"] == pytest.approx(2 * np.log(0.7 * 0.5))
    assert values["title TF"] == values["title BM25"] == 0


def test_the_language_models_spread_a_chance_of_one_over_the_words():
    rng = np.random.default_rng(3)
    bodies = [" ".join(WORDS), *(" ".join(rng.choice(WORDS, 9)) for _ in range(5))]
    values = np.array(features_of_all(texts_of(bodies, bodies[::-1], WORDS)))  # [words, documents, 16]
    for name in ("LMIR.ABS", "LMIR.DIR", "LMIR.JM"):
        for field in ("body", "title"):
            total = np.exp(values[:, :, NAMES.index(f"{field} {name}")]).sum(axis=0)
            np.testing.assert_allclose(total, 1.0, rtol=1e-12)


def test_statistics_of_silos_are_those_of_all_their_documents():
    texts = drawn_texts()
    whole = plain_corpus(texts)
    silos = [
        whole.select(np.arange(start, 12, 3), np.arange(len(texts.queries)), f"silo-{start}") for start in range(3)
    ]
    words = ("hen", "ant", "nobody", "yak", "ant")
    ours = statistics_of(silos, words)
    bodies, titles = ([text.split() for text in field] for field in (texts.bodies, texts.titles))
    assert ours.documents == 12
    for row, word in enumerate(words):
        for field, documents in enumerate((bodies, titles)):
            assert ours.document_frequency[row, field] == sum(word in document for document in documents)
            assert ours.collection[row, field] == sum(document.count(word) for document in documents)
    np.testing.assert_array_equal(ours.tokens, [sum(map(len, bodies)), sum(map(len, titles))])
    some = ours.of(np.array([3, 0, 0]))
    np.testing.assert_array_equal(some.collection, ours.collection[[3, 0, 0]])
    assert some.documents == 12 and some.tokens is ours.tokens


def noisy(seed):
    """Counts, sizes and statistics with so much noise that no rule of true ones holds."""
    rng = np.random.default_rng(seed)
    size = dict(scale=6.0, size=(9, 2))
    statistics = Statistics(7.3, rng.laplace(4, 8, (5, 2)), rng.laplace(5, 20, (5, 2)), np.array([40.5, -3.0]))
    return rng.laplace(1, 4, (5, 9, 2)), rng.laplace(8, **size), rng.laplace(5, **size), statistics


def mended(counts, lengths, distinct, statistics):
    """The same after the rules of the module, number by number."""
    lengths = np.vectorize(lambda x: max(x, 0.0))(lengths)
    distinct = np.vectorize(lambda u, l: min(max(u, min(l, 1.0)), l))(distinct, lengths)
    counts = np.vectorize(lambda c, l: min(max(c, 0.0), l))(counts, lengths)
    tokens = np.array([max(x, 1.0) for x in statistics.tokens])
    n = max(statistics.documents, 1.0)
    frequency = np.vectorize(lambda df: min(max(df, 1.0), n))(statistics.document_frequency)
    collection = np.vectorize(lambda x, most: min(max(x, 0.5), most))(statistics.collection, tokens)
    return counts, lengths, distinct, Statistics(n, frequency, collection, tokens)


def test_noisy_inputs_give_finite_features_within_their_ranges():
    for seed in range(5):
        spoilt = noisy(seed)
        values = text_features(*spoilt)
        assert np.isfinite(values).all()
        np.testing.assert_allclose(values, text_features(*mended(*spoilt)), rtol=1e-12)
        for name, column in zip(NAMES, values.T, strict=True):
            if "LMIR" in name:
                assert (column <= 1e-12).all()  # logarithms of chances
            else:
                assert (column >= 0).all()
            if name.endswith(" TF"):
                assert (column <= 5).all()  # each of five words at most 1
        assert np.isfinite(text_features(*spoilt, as_published=True)).all()


def test_nothing_at_all_gives_finite_features():
    zeros = np.zeros((3, 2))
    values = text_features(
        np.zeros((3, 4, 2)), np.zeros((4, 2)), np.zeros((4, 2)), Statistics(0, zeros, zeros, zeros[0])
    )
    assert np.isfinite(values).all() and values.shape == (4, 16)
    assert text_features(np.zeros((3, 0, 2)), zeros[:0], zeros[:0], Statistics(0, zeros, zeros, zeros[0])).shape == (
        0,
        16,
    )


def test_wrong_inputs_are_told():
    counts, lengths, distinct, statistics = noisy(0)
    with pytest.raises(TypeCheckError, match="parameter 'lengths'"):
        text_features(counts, lengths[:-1], distinct, statistics)
    with pytest.raises(TypeCheckError, match="parameter 'distinct'"):
        text_features(counts, lengths, distinct[:-1], statistics)
    with pytest.raises(DataError, match=r"document_frequency of the query's terms, \[5, 2\], got \[1, 2\]"):
        text_features(counts, lengths, distinct, statistics.of(np.array([2])))
    with pytest.raises(DataError, match="not finite"):
        text_features(counts, lengths, distinct, statistics._replace(tokens=np.array([np.nan, 1.0])))


def test_columns_are_the_counts_of_the_documents():
    corpus = plain_corpus(drawn_texts())
    columns = TermColumns(corpus)
    terms = np.array([3, 0, NOT_HERE, 3], np.int32)
    counts = columns.counts(terms)
    assert counts.dtype == np.float32 and counts.shape == (4, 12, 2)
    for field in (0, 1):
        dense = corpus.counts[field].toarray()
        np.testing.assert_array_equal(counts[[0, 1, 3], :, field], dense[:, [3, 0, 3]].T)
    assert not counts[2].any()
    words = [corpus.vocabulary[3], "nobody"]
    np.testing.assert_array_equal(columns.places(words), [3, NOT_HERE])
    statistics = statistics_of([corpus], corpus.vocabulary).of(terms)
    documents = np.array([7, 2])
    np.testing.assert_array_equal(
        columns.features(terms, statistics, documents), columns.features(terms, statistics)[documents]
    )
    for wrong in (-2, len(corpus.vocabulary)):
        with pytest.raises(DataError, match="numbered 0 to"):
            columns.counts(np.array([wrong]))
