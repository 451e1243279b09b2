"""Attacks on documents where what they must find is known: without noise, in noise alone, and in closed form."""

import json
import math

import numpy as np
import pytest
from scipy import stats
from text_worlds import setup_of, small_federation

from fedrank.core.errors import ConfigError, DataError
from fedrank.texts.config import Sketch
from fedrank.texts.data.generate import generate_texts
from fedrank.texts.insider import Reading, Shown, auc, insider_reads, is_there
from fedrank.texts.served.statistics import StatisticsTerms
from fedrank.texts.sketch import SketchShape, encode, hash_terms
from fedrank.texts.sketch.noise import SketchNoise
from fedrank_zoo.document_attack import DocumentAttack
from fedrank_zoo.document_attack.documents import attack_sketched, finding_of_auc, holdings_of
from fedrank_zoo.document_attack.served import scores_tell, statistics_tell

OWNERS = 3


@pytest.fixture(scope="module")
def held():
    return holdings_of(generate_texts(queries=2, documents=120, seed=5), OWNERS, np.random.default_rng(1))


def attacked(held, **settings):
    found = attack_sketched(held, DocumentAttack(owners=OWNERS, **settings), np.random.default_rng(2))
    return {one.attack: one for one in found}


def test_without_noise_an_insider_reads_everything(held):
    found = attacked(held, sketch_epsilon=999.0, z=3, w=1 << 14, sketch_mode="publish-once")
    # Words of the target that no document of his own holds are in his dictionary all the same.
    assert found["insider reads"].measured + 0.05 > share_beyond_a_guess(held) and found["insider reads"].broken
    assert found["is it there?"].measured == 1.0 and found["is it there?"].broken


def test_who_passes_sealed_sketches_on_is_left_with_a_guess(held):
    every = attack_sketched(
        held, DocumentAttack(owners=OWNERS, known=0.2, sketch_epsilon=8.0), np.random.default_rng(2)
    )
    sealed, open_to_all = (one for one in every if one.attack == "server reads")
    assert (sealed.measured, sealed.low, sealed.broken) == (0.0, 0.0, False)
    assert "sealed" in sealed.mode and open_to_all.measured > 0.1


def test_a_run_says_what_another_silo_reads_of_its_documents():
    for mode, settings, readable in [
        ("plain", {}, True),
        ("publish-once", {"epsilon": 0.05}, False),
    ]:
        found = insider_reads(setup_of(mode, **settings), small_federation())
        assert 0 <= found.low <= found.share <= found.high <= 1 and found.documents == 22
        assert found.found_low <= found.found <= found.found_high and found.texts == 44
        assert (found.share > 0.05) == readable and (found.found > 0.9) == (found.found_low > 0.6) == readable
        if readable:  # five wide rows: whatever is no guess is read
            whole, own, other = small_federation().whole.counts[0], *small_federation().documents[:2]
            there = whole.toarray() > 0
            rare = np.maximum(there[own].sum(axis=0), 0.5) / (len(own) + 1) < 0.5
            assert found.share == pytest.approx(((there[other] & rare).sum(axis=1) / there[other].sum(axis=1)).mean())


def test_the_default_of_a_run_is_attacked_where_nothing_is_chosen(held):
    """The documents that a run shows by default are neither read nor found; those of the old default are."""
    mode, epsilon = Sketch().mode, Sketch().with_defaults().epsilon
    quiet, loud = attacked(held, trials=80), attacked(held, trials=80, sketch_epsilon=8.0)
    assert {one.mode for one in quiet.values()} >= {f"{mode}, ε = {epsilon:g}"}
    for name in ("insider reads", "is it there?"):
        assert not quiet[name].broken and quiet[name].measured < quiet[name].promised and loud[name].broken


@pytest.mark.parametrize(
    ("mode", "epsilon", "there"), [("publish-once", 4000.0, True), ("publish-once", 0.01, False), ("plain", None, True)]
)
def test_a_text_is_found_where_cells_tell_its_words(held, mode, epsilon, there):
    shape = SketchShape(8, 512)
    shown = Shown(hash_terms(held.vocabulary, shape, bytes(32)), SketchNoise(mode, epsilon, 8))
    clean = encode(held.counts, shown.hashes, shape)
    area, texts = is_there(held, clean, shown, 60, np.random.default_rng(0))
    assert texts == 60 and (area == 1.0 if there else 0.3 < area < 0.7)


def test_in_noise_nobody_reads_anything(held):
    found = attacked(held, sketch_epsilon=0.01)
    assert found["insider reads"].measured < 0.01 and not found["insider reads"].broken
    assert found["server reads"].measured < 0.01
    assert found["is it there?"].low < 0.5 < found["is it there?"].high


def share_beyond_a_guess(held):
    """The part of a document's words that the documents of owner 0 do not make a guess, over documents of owner 1."""
    mine = [set(held.words[text].body) for text in held.of(0)]
    shares = []
    for text in held.of(1):
        words = set(held.words[text].body)
        likely = {word for word in words if sum(word in one for one in mine) > (len(mine) + 1) / 2}
        shares.append(1 - len(likely) / len(words))
    return np.mean(shares)


@pytest.mark.slow
def test_a_text_is_found_in_the_statistics_as_often_as_the_normal_distribution_says(held, monkeypatch):
    monkeypatch.setattr("fedrank_zoo.document_attack.served._AGAIN", 3)
    settings = DocumentAttack(owners=OWNERS, statistics_epsilon=8.0, trials=38)
    reads, there = statistics_tell(held, settings, np.random.default_rng(3))
    terms = StatisticsTerms(OWNERS, 8.0)
    changes = [np.linalg.norm(terms.count_words([held.words[text]])) for text in held.of(1)]
    deviation = terms.share * math.sqrt(OWNERS - 1)
    expected = np.mean([stats.norm.cdf(change / deviation / math.sqrt(2)) for change in changes])
    assert there.low < expected < there.high and there.trials == 3 * 38
    assert reads.measured < 0.02


@pytest.mark.slow
def test_exact_scores_tell_every_word_that_the_asker_knows(held):
    pytest.importorskip("tantivy")
    settings = DocumentAttack(owners=OWNERS, step=0.0, questions=100_000, targets=3)
    readings = scores_tell(held, settings, np.random.default_rng(4))
    assert sorted(readings) == [10_000, 100_000]
    whole = readings[100_000]
    assert len(whole.share) == 3 and whole.precision.min() > 0.9
    prior = held.prior(held.of(0))
    mine = {word for text in held.of(0) for word in held.words[text].body}
    texts = [text for text in np.random.default_rng(4).permutation(held.of(1)).tolist() if held.words[text].title]
    for text, share in zip(texts, whole.share, strict=False):
        words = set(held.words[text].body)
        guessed = {word for word, share in zip(held.vocabulary, prior, strict=True) if share >= 0.5}
        readable = words & mine - set(held.words[text].title) - guessed
        assert share == pytest.approx(len(readable) / len(words), abs=0.06)
    few = scores_tell(held, DocumentAttack(owners=OWNERS, step=0.0, questions=10, targets=3), np.random.default_rng(4))
    assert max(few) == 10 and (few[10].share <= whole.share).all()


def test_areas_by_hand_and_their_interval():
    assert auc(np.array([3.0, 1.0]), np.array([2.0, 1.0])) == 0.625
    found = finding_of_auc("x", "y", 0.8, 100, "words")
    # Hanley and McNeil (1982): 0.8 of 50 and 50.
    q1, q2 = 0.8 / 1.2, 2 * 0.64 / 1.8
    deviation = math.sqrt((0.16 + 49 * (q1 - 0.64) + 49 * (q2 - 0.64)) / 2500)
    assert found.low == pytest.approx(0.8 - 2.5758 * deviation) and found.broken


def test_a_guess_is_not_reading(held):
    prior = np.zeros(len(held.vocabulary))
    text = int(held.of(1)[0])
    true = held.counts.indices[held.counts.indptr[text] : held.counts.indptr[text + 1]]
    prior[true[0]] = 0.9
    read = Reading.empty().with_document(held, text, true.astype(np.int64), prior)
    assert read.share[0] == pytest.approx((len(true) - 1) / len(true)) and read.precision[0] == 1.0


def test_settings_out_of_range_are_refused():
    for wrong in [{"sketch_epsilon": 0.0}, {"known": 0.6}, {"step": -1.0}, {"owners": 1}, {"sketch_mode": "secret"}]:
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            DocumentAttack(**wrong)


def test_few_documents_are_refused():
    with pytest.raises(DataError, match="20 documents"):
        holdings_of(generate_texts(queries=2, documents=30, seed=5), OWNERS, np.random.default_rng(1))


@pytest.mark.slow
def test_the_command_writes_a_page_and_json(tmp_path, capsys):
    pytest.importorskip("tantivy")
    from fedrank.cli.main import call

    folder = tmp_path / "texts"
    folder.mkdir()
    texts = generate_texts(queries=2, documents=60, seed=5)
    write_collection(folder, texts)
    page = tmp_path / "attack.html"
    command = f"privacy attack documents {folder} --owners 2 --trials 4 --targets 1 --questions 50 --out {page} --json"
    call(command.split())
    told = json.loads(capsys.readouterr().out)
    # The server counts twice: sketches that are sealed for silos, and sketches that are not.
    assert [one["measure"] for one in told["findings"]].count("words read") == 6
    assert "<svg" in page.read_text(encoding="utf-8")


def write_collection(folder, texts):
    """A collection as a folder of BEIR's form."""
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as out:
        for number, (title, body) in enumerate(zip(texts.titles, texts.bodies, strict=True)):
            out.write(json.dumps({"_id": f"d{number}", "title": title, "text": body}) + "\n")
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "a query"}\n', encoding="utf-8")
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td0\t1\n", encoding="utf-8")
