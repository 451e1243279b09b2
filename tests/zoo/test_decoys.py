"""Decoys against brute force over the whole vocabulary, and the dictionary attack that the published schemes meet."""

import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csr_array

from fedrank.core.errors import ConfigError, DataError
from fedrank.texts.sketch import SketchShape, cells_at, encode, estimate, hash_terms
from fedrank_zoo.cs_f_ltr_icde_2021 import IcdeObfuscator
from fedrank_zoo.decoys import (
    Obfuscator,
    anonymity_set,
    decoys_of,
    fits,
    match_probability,
    overlap_probability,
)

HASHED, OWN = bytes(range(32)), bytes(range(1, 33))
TERMS = [f"word{i}" for i in range(4000)]


def obfuscator(z, w, z1, scheme="jos", overlap=0, secret=OWN, terms=TERMS, **more):
    shape = SketchShape(z, w)
    made = IcdeObfuscator if scheme == "icde" else Obfuscator
    return made(shape, z1, terms, hash_terms(terms, shape, HASHED), secret, overlap, **more)


def most_disjoint(blocks):
    """The largest number of sets that do not meet, by trying all; words that fit by chance are among them."""
    if not blocks:
        return 0
    first, rest = blocks[0], blocks[1:]
    return max(most_disjoint(rest), 1 + most_disjoint([other for other in rest if not other & first]))


def agreeing(rows, terms, shape):
    """For every term, the positions in which it fits a question, by brute force."""
    hashes = hash_terms(terms, shape, HASHED)
    return [frozenset(np.flatnonzero(row == rows).tolist()) for row in hashes.rows]


@pytest.mark.parametrize(
    ("z", "w", "z1", "overlap"), [(30, 200, 5, 0), (12, 40, 3, 0), (13, 30, 4, 1), (10, 120, 10, 0)]
)
def test_the_term_and_every_decoy_fit_exactly_z1_positions_and_decoys_are_disjoint(z, w, z1, overlap):
    asked, shape = obfuscator(z, w, z1, overlap=overlap), SketchShape(z, w)
    for number in range(0, 200, 20):
        question = asked.ask(TERMS[number])
        own = frozenset(question.own.tolist())
        positions = agreeing(question.rows, TERMS, shape)
        assert len(own) == z1 and positions[number] == own
        # Decoys: exactly z1 positions, b of them in PK; their blocks outside of PK overlap nobody else's.
        equal = [p for n, p in enumerate(positions) if n != number and len(p) == z1 and len(p & own) == overlap]
        assert question.among == 1 + decoys_of(z, z1, overlap) == 1 + (z - z1) // (z1 - overlap)
        assert len(equal) >= question.among - 1
        assert most_disjoint([p - own for p in equal]) == question.among - 1
        assert np.array_equal(fits(question.rows, hash_terms(TERMS, shape, HASHED)), [len(p) for p in positions])


def test_the_same_term_asks_the_same_question_so_that_two_requests_reveal_no_more_than_one():
    first, second = obfuscator(30, 200, 5), obfuscator(30, 200, 5)  # another process, the same secret
    for term in TERMS[:10]:
        once, twice, later = first.ask(term), first.ask(term), second.ask(term)
        assert np.array_equal(once.rows, twice.rows) and np.array_equal(once.rows, later.rows)
        # The intersection attack: where two questions agree is all positions, not PK.
        assert np.count_nonzero(once.rows == later.rows) == 30
    other = obfuscator(30, 200, 5, secret=bytes(32))
    differ = [set(first.ask(t).own.tolist()) != set(other.ask(t).own.tolist()) for t in TERMS[:10]]
    assert any(differ)


def test_drawing_decoys_anew_reveals_the_private_index_set():
    """What the papers do, and why it is not done here: PK from the term, decoys from fresh randomness."""
    shape, rng = SketchShape(30, 200), np.random.default_rng(0)
    rows, own = hash_terms(TERMS, shape, HASHED).rows, np.arange(5)

    def as_printed():
        sent = rows[rng.integers(0, len(TERMS), 30), np.arange(30)]
        sent[own] = rows[17, own]
        return sent

    agree = np.flatnonzero(as_printed() == as_printed())
    assert set(own) <= set(agree.tolist()) and len(agree) <= 7


def test_private_index_sets_are_spread_over_all_positions():
    asked = obfuscator(12, 40, 3)
    times = np.bincount(np.concatenate([asked.ask(t).own for t in TERMS[:400]]), minlength=12)
    # 400 draws of 3 of 12: each position 100 times, standard deviation 8.7; five of them.
    assert np.abs(times - 100).max() < 44


@pytest.mark.parametrize(("z1", "found"), [(10, 1.0), (5, 0.98)])
def test_a_dictionary_finds_the_term_of_an_icde_question_and_not_that_of_a_jos_question(z1, found):
    shape, asked = SketchShape(30, 200), TERMS[:60]
    hashes = hash_terms(TERMS, shape, HASHED)
    alone = {}
    for scheme in ("icde", "jos"):
        questions = obfuscator(30, 200, z1, scheme)
        candidates = [np.flatnonzero(fits(questions.ask(t).rows, hashes) >= z1) for t in asked]
        assert all(number in c for number, c in enumerate(candidates))
        alone[scheme] = np.mean([len(c) == 1 for c in candidates])
        size = np.mean([len(c) for c in candidates])
        assert size == pytest.approx(anonymity_set(30, 200, z1, len(TERMS), scheme), rel=0.05)
    assert alone["icde"] >= found - 0.05 and alone["jos"] == 0


def test_the_set_of_candidates_at_z1_3_is_that_of_the_formula():
    # 300 questions: the candidates' mean is known to about 3 %.
    shape = SketchShape(30, 200)
    hashes, questions = hash_terms(TERMS, shape, HASHED), obfuscator(30, 200, 3)
    sizes = [np.count_nonzero(fits(questions.ask(t).rows, hashes) >= 3) for t in TERMS[:300]]
    assert np.mean(sizes) == pytest.approx(anonymity_set(30, 200, 3, len(TERMS)), rel=0.1)
    assert min(sizes) >= 10


def test_the_estimate_from_the_terms_own_positions_is_the_median_there():
    shape = SketchShape(12, 40)
    hashes, asked = hash_terms(TERMS, shape, HASHED), obfuscator(12, 40, 3)
    counts = csr_array(np.random.default_rng(1).poisson(0.02, (30, len(TERMS))).astype(np.int32))
    sketches = encode(counts, hashes, shape)
    for number in (0, 9):
        question = asked.ask(TERMS[number])
        answers = cells_at(sketches, question.rows[None])[0]
        own = question.own
        wanted = np.median(sketches[:, own, hashes.rows[number, own]] * hashes.signs[number, own], axis=1)
        assert np.array_equal(estimate(answers[:, question.own], question.signs[None], "count"), wanted)


def test_decoys_come_from_the_candidates_only():
    candidates = np.arange(500, 900)
    asked = obfuscator(12, 40, 3, candidates=candidates)
    rows = hash_terms(TERMS, SketchShape(12, 40), HASHED).rows
    question = asked.ask(TERMS[0])
    equal = np.flatnonzero((rows == question.rows).sum(axis=1) == 3)
    assert np.isin(equal, candidates).sum() >= question.among - 1


def test_words_that_overlap_are_as_rare_as_the_formula_says():
    rows = hash_terms(TERMS, SketchShape(5, 12), HASHED).rows
    shared = (rows[:, None] == rows[None, :200]).sum(axis=2)[200:]
    for overlap in (0, 1, 2):
        assert (shared == overlap).mean() == pytest.approx(overlap_probability(5, 12, overlap), rel=0.03)


def test_scarce_decoys_are_an_error_never_a_smaller_set():
    few = TERMS[:30]
    with pytest.raises(DataError, match=r"decoys for the term 'word0' were found among 30 words"):
        obfuscator(30, 200, 5, overlap=3, terms=few).ask("word0")
    with pytest.raises(DataError, match="smaller overlap"):
        obfuscator(6, 4, 3, terms=["word0"]).ask("word0")
    assert obfuscator(30, 200, 5, terms=few).ask("word0").among == 6  # without overlap, 30 words are enough


def test_settings_out_of_range_are_refused():
    with pytest.raises(ConfigError, match=r"z1 must be in 1\.\.10"):
        obfuscator(10, 20, 11)
    with pytest.raises(ConfigError, match="overlap"):
        obfuscator(10, 20, 3, overlap=3)
    with pytest.raises(ConfigError, match="16 to 64 bytes"):
        obfuscator(10, 20, 3, secret=b"short")
    assert [obfuscator(10, 20, z1).among for z1 in (3, 5, 6)] == [3, 2, 1]
    with pytest.raises(DataError, match="more candidates"):
        obfuscator(10, 20, 3, "icde", terms=["word0"]).ask("word0")
    with pytest.raises(DataError, match="not in the vocabulary"):
        obfuscator(10, 20, 3).ask("unknown")


def test_the_anonymity_sets_of_the_papers_settings():
    # z = 30, w = 200, a dictionary of 50,000 words: 1.0, 1.02, 24 words fit an ICDE question at z1 = 10, 5, 3.
    icde = [anonymity_set(30, 200, z1, 50_000, "icde") for z1 in (10, 5, 3)]
    assert icde == [pytest.approx(value, rel=0.005) for value in (1.0, 1.02, 23.93)]
    assert [1 + decoys_of(30, z1) for z1 in (10, 5, 3)] == [3, 6, 10] == [30 // z1 for z1 in (10, 5, 3)]
    for z, w, z1 in ((30, 200, 3), (10, 5, 2)):
        assert match_probability(z, w, z1) == pytest.approx(stats.binom.sf(z1 - 1, z, 1 / w))
    assert anonymity_set(30, 200, 5, 0, overlap=3) == 1 + 25 // 2
