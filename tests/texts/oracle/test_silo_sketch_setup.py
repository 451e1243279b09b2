"""The setup of CS-F-LTR against direct computations on the whole collection, and what its server gets to see."""

import dataclasses
import functools

import numpy as np
import pytest
from scipy.stats import chisquare
from text_worlds import (
    NARROW,
    NARROW_STATISTICS,
    SILOS,
    Collection,
    alone,
    published,
    run,
    setup_of,
    small_federation,
    small_texts,
)

from fedrank.core.errors import SecureSumError
from fedrank.core.messages import PUBLIC_AXES, Layout
from fedrank.texts.data.features import NAMES
from fedrank.texts.silo_sketch.setup import Agree
from fedrank.texts.silo_sketch.setup.exchange_sketches import Receive, open_sealed, rows_of_party
from fedrank.texts.silo_sketch.setup.settings import Agreed, FederatedStatistics, OwnSketches, statistics_secret
from fedrank.texts.silo_sketch.state import TRAIN
from fedrank.texts.sketch.key import ALL_SILOS


@pytest.fixture(scope="module")
def collection():
    return Collection(small_federation().whole)


@functools.cache
def _plain():
    setup = setup_of("plain")
    return setup, *run(setup)


@functools.cache
def _quiet():
    """Without noise, in the shapes of the noisy ones."""
    setup = setup_of("plain", shape=NARROW, statistics=NARROW_STATISTICS)
    return setup, *run(setup)


@functools.cache
def _noisy(seed=0):
    setup = setup_of("publish-once")
    return setup, *run(setup, seed=seed)


def _before_scaling(setup, state, parties):
    """What a silo has when it has received and not been told the common scale."""
    for number, party in enumerate(parties):
        exchange = Receive(setup)
        yield rows_of_party(exchange.respond(exchange.address(state, number), party, None)[0])


def _direct(collection, number, rows):
    """The features of a silo's rows from the whole collection: own [q, d, 16], foreign [q, c, 16]."""
    federation = small_federation()
    own = np.zeros((*rows["where"].shape, len(NAMES)))
    cross = np.zeros((*rows["cross_where"].shape, len(NAMES)))
    for q, query in enumerate(rows["queries"]):
        words = collection.queries[federation.queries[number][query]]
        for d in np.flatnonzero(rows["where"][q]):
            own[q, d] = collection.features(words, federation.documents[number][rows["documents"][q, d]])
        for c in np.flatnonzero(rows["cross_where"][q]):
            of = federation.documents[rows["cross_silo"][q, c]]
            cross[q, c] = collection.features(words, of[rows["cross_document"][q, c]])
    return own, cross


def test_features_of_own_and_foreign_documents_are_those_of_the_whole_collection(collection):
    pairs = 0
    for number, rows in enumerate(_before_scaling(*_plain()[:3])):
        own, cross = _direct(collection, number, rows)
        np.testing.assert_allclose(rows["x"], own, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(rows["cross_x"], cross, rtol=1e-6, atol=1e-6)
        pairs += rows["cross_where"].sum()
    assert pairs == SILOS * 6 * 2 * 5  # silos, used queries, other silos, documents of each


def test_scaled_features_have_all_silos_mean_and_spread(collection):
    setup, state, parties, _ = _plain()
    raw = list(_before_scaling(setup, state, parties))
    direct = [_direct(collection, number, rows) for number, rows in enumerate(raw)]
    training = np.concatenate(
        [own[rows["where"] & (rows["part"] == TRAIN)[:, None]] for (own, _), rows in zip(direct, raw, strict=True)]
    )
    mean, spread = training.mean(axis=0), training.std(axis=0)
    for (own, cross), party in zip(direct, parties, strict=True):
        rows = rows_of_party(party)
        for name, true, there in (("x", own, "where"), ("cross_x", cross, "cross_where")):
            wanted = np.where(rows[there][..., None], (true - mean) / spread, 0)
            # Sums cross in single precision: a variance loses as many digits as the squared mean is above it.
            digits = 4 * 2.0**-24 * (1 + mean**2 / spread**2)
            assert (np.abs(rows[name] - wanted) <= digits * (1 + np.abs(wanted)) + 1e-6).all()


@pytest.mark.parametrize("scale", ["silo", "query"])
def test_features_scaled_at_home_have_the_silos_or_the_lists_mean_and_spread(collection, scale):
    setup = setup_of("plain", rows={"scale": scale})
    _, state, parties, _ = _plain()
    receive = Receive(setup)
    assert "scale" not in [exchange.name for exchange in setup.exchanges]
    for number, unscaled in enumerate(_before_scaling(*_plain()[:3])):
        own, cross = _direct(collection, number, unscaled)
        rows = rows_of_party(receive.respond(receive.address(state, number), parties[number], None)[0])
        for q, there in enumerate(rows["where"]):
            chosen = own[q][there]
            if scale == "silo":
                chosen = own[unscaled["where"] & (unscaled["part"] == TRAIN)[:, None]]
            mean, spread = chosen.mean(axis=0), chosen.std(axis=0)
            spread = np.where(spread <= 1e-9 * np.maximum(np.abs(mean), 1), 1.0, spread)  # IDF in a list, for instance
            np.testing.assert_allclose(rows["x"][q][there], (own[q][there] - mean) / spread, rtol=1e-4, atol=2e-4)
            met = rows["cross_where"][q]
            np.testing.assert_allclose(rows["cross_x"][q][met], (cross[q][met] - mean) / spread, rtol=1e-4, atol=2e-4)


def test_candidates_are_the_best_by_bm25_the_judged_and_some_by_lot(collection):
    federation, labels = small_federation(), small_federation().whole.labels
    for number, party in enumerate(_plain()[2]):
        rows = rows_of_party(party)
        mine = federation.documents[number]
        for q, query in enumerate(rows["queries"]):
            named = federation.queries[number][query]
            words = collection.queries[named]
            best, _ = alone(number).best(words, range(len(mine)), 6)
            there, documents = rows["where"][q], rows["documents"][q]
            assert set(documents[there & rows["found"][q]]) == set(best)
            grades = labels(int(named))[mine]
            judged = set(np.flatnonzero(grades)) | set(best)
            listed = documents[there].tolist()
            assert judged < set(listed)
            assert len(set(listed)) == len(listed) == len(judged) + 3
            np.testing.assert_array_equal(rows["y"][q][there], grades[listed])
            for other in range(SILOS):
                chosen = rows["cross_document"][q][rows["cross_silo"][q] == other].tolist()
                theirs = federation.documents[other]
                assert chosen == ([] if other == number else collection.best(words, theirs, 5)[0])


def test_federated_statistics_are_the_exact_ones(collection):
    setup, _, parties, _ = _plain()
    words = small_federation().whole.vocabulary
    for party in parties:
        look = FederatedStatistics(party.own["totals"], setup.statistics, party.own["secret"].tobytes())
        said = look((*words, "nowhere"))
        for values, true in ((said.document_frequency, collection.frequency), (said.collection, collection.collection)):
            np.testing.assert_array_equal(values, [[true[f][word] for f in (0, 1)] for word in (*words, "nowhere")])
        assert said.documents == collection.n and said.tokens.tolist() == collection.tokens


class _Wire(list):
    """Everything that crosses: (type, message, octets)."""

    def __init__(self, monkeypatch):
        super().__init__()
        encode = Layout.encode

        def recording(layout, message):
            octets = encode(layout, message)
            self.append((type(message).__name__, message, octets))
            return octets

        monkeypatch.setattr(Layout, "encode", recording)

    def of(self, name):
        return [message for kind, message, _ in self if kind == name]


def _octets(thing):
    """All bytes of arrays, bytes and texts in nested states."""
    if isinstance(thing, bytes):
        yield thing
    elif isinstance(thing, str):
        yield thing.encode()
    elif isinstance(thing, np.ndarray) or np.isscalar(thing):
        yield np.asarray(thing).tobytes()
    elif isinstance(thing, dict):
        for key, value in thing.items():
            yield from (*_octets(key), *_octets(value))
    elif isinstance(thing, (tuple, list)):
        for value in thing:
            yield from _octets(value)
    elif dataclasses.is_dataclass(thing):
        for field in dataclasses.fields(thing):
            yield from _octets(getattr(thing, field.name))
    else:
        assert thing is None, f"what is a {type(thing)} doing in the server's state?"


def test_neither_server_nor_wire_ever_holds_a_word_or_a_secret(monkeypatch):
    setup, wire = setup_of("publish-once"), _Wire(monkeypatch)
    state, parties, _ = run(setup, through_bytes=True)
    view = [b"".join(_octets(state)), *(octets for _, _, octets in wire)]
    assert sum(map(len, view)) > 10_000
    words = {word for one in small_texts() for word in one.corpus.vocabulary if len(word) >= 5}
    assert len(words) > 30
    hidden = [word.encode() for word in words]
    for party in parties:
        secret = party.own["secret"].tobytes()
        assert len(set(secret)) > 8
        hidden += [secret, statistics_secret(secret)]
    assert len({party.own["secret"].tobytes() for party in parties}) == 1
    for octets in view:
        assert not any(one in octets for one in hidden)


def test_the_server_passes_on_bytes_that_look_random_and_silos_refuse_changed_ones():
    setup, state, parties, _ = _quiet()
    sealed = state.replies["publish"][0].sealed
    plain = setup.inside(OwnSketches).encode(open_sealed(setup, parties[1], OwnSketches, 0, ALL_SILOS, sealed[0]))
    zeros = np.frombuffer(plain, np.uint8)
    assert (zeros == 0).mean() > 0.8  # what is sealed is far from random
    for one in sealed:
        assert len(one) == len(plain) + 12 + 16  # nonce and tag of ChaCha20-Poly1305 (RFC 8439)
        assert chisquare(np.bincount(one, minlength=256)).pvalue > 1e-6
    assert open_sealed(setup, parties[1], OwnSketches, 0, ALL_SILOS, np.zeros_like(sealed[0])) is None
    changed = sealed[0].copy()
    changed[40] ^= 1
    for silo, octets in ((0, changed), (2, sealed[0])):  # changed; another's in its place
        with pytest.raises(SecureSumError, match=f"silo {silo}"):
            open_sealed(setup, parties[1], OwnSketches, silo, ALL_SILOS, octets)


def test_messages_have_public_axes_only():
    for exchange in _noisy()[0].exchanges:
        axes = {axis for layout in (exchange.request, exchange.reply) for f in layout.fields for axis, _ in f.axes}
        assert axes <= set(PUBLIC_AXES) and not axes & {"queries", "documents", "words", "terms"}


def test_masked_vectors_say_nothing_and_unmasked_sums_everything(monkeypatch, collection):
    setup = setup_of("plain", shape=NARROW, statistics=NARROW_STATISTICS)
    wire = _Wire(monkeypatch)
    state, _, _ = run(setup, through_bytes=True)
    masked = np.array([message.vector for message in wire.of("MaskedVector")], np.uint32)
    assert masked.shape == (SILOS, setup.terms.length)
    totals = np.asarray(state.totals)
    assert totals[-1] == collection.n and (totals == 0).mean() > 0.2
    assert (masked == 0).mean() < 0.01
    for vector in (*masked, masked.sum(axis=0, dtype=np.uint32)):  # the sum of what was sent has masks on it as well
        shares = np.bincount(vector >> 28, minlength=16)
        assert chisquare(shares).pvalue > 1e-5


def test_messages_through_bytes_give_the_same_rows():
    for made, again in zip(_noisy()[2], run(_noisy()[0], through_bytes=True)[1], strict=True):
        for name, array in rows_of_party(made).items():
            np.testing.assert_array_equal(array, rows_of_party(again)[name], err_msg=name)


@pytest.mark.parametrize("where", ["sum-vectors", "sum-unmasking", "publish", "receive"])
def test_the_others_go_on_without_a_silo(collection, where):
    setup = _quiet()[0]
    state, parties, ledger = run(setup, absent=[(where, 1)])
    assert list(dict.fromkeys(entry.exchange for entry in ledger)) == [exchange.name for exchange in setup.exchanges]
    here = (0, 2) if where == "sum-vectors" else (0, 1, 2)
    silos = [small_federation().silos[k] for k in here]
    assert state.totals[-1] == sum(silo.n_documents for silo in silos)
    assert state.totals[-3:-1].tolist() == sum(silo.lengths.sum(axis=0) for silo in silos).tolist()
    assert rows_of_party(parties[1]) == {}
    seen = where == "receive"  # what it had published is still there
    for number in (0, 2):
        rows = rows_of_party(parties[number])
        assert np.isfinite(rows["x"]).all() and rows["cross_where"].any()
        assert (rows["cross_silo"] == 1).any() == seen
        assert rows["cross_x"][:, 5:10].any() == seen
    counts = {(entry.exchange, entry.sender): entry.messages for entry in ledger}
    assert counts["scale", "parties"] == 2


@pytest.mark.parametrize("where", ["sum-shares", "sum-vectors", "sum-unmasking"])
def test_with_no_majority_left_the_sum_fails_in_one_sentence(where):
    with pytest.raises(SecureSumError) as failed:
        run(_quiet()[0], absent=[(where, 0), (where, 2)])
    said = str(failed.value)
    assert "1" in said and "\n" not in said


def test_a_sum_does_not_begin_without_everybody():
    with pytest.raises(SecureSumError, match="2 of 3 silos"):
        run(_quiet()[0], absent=[("keys", 1)])


def test_silos_with_different_secrets_do_not_go_on():
    setup, state, _, _ = _quiet()
    said, arrived = state.replies["agree"]
    step = Agree(setup)
    step.tell(state, said, arrived)
    other = np.asarray(said.fingerprint).copy()
    other[2, 0] ^= 1
    with pytest.raises(SecureSumError, match="2 different secrets"):
        step.tell(state, Agreed(other), arrived)
    step.tell(state, Agreed(other), arrived & (np.arange(SILOS) != 2))  # who is not heard does not matter


def _laplace(values, scale):
    """p of a chi-square test of integers against P(k) = (1 - q) / (1 + q) q^|k|, q = exp(-1 / scale)."""
    q, far = np.exp(-1 / scale), int(np.ceil(4 * scale))
    inside = np.arange(-far, far + 1)
    chances = (1 - q) / (1 + q) * q ** np.abs(inside)
    tail = (1 - chances.sum()) / 2
    found = np.bincount(np.clip(values, -far - 1, far + 1) + far + 1, minlength=2 * far + 3)
    return chisquare(found, values.size * np.array([tail, *chances, tail])).pvalue


@pytest.mark.parametrize("seed", [0, 1])
def test_published_noise_has_the_promised_scale(seed):
    setup, state, parties, _ = _noisy(seed)
    quiet, there, _ = _quiet()[1:] if seed == 0 else run(_quiet()[0], seed=seed)
    noisy, true = published(setup, state, parties[0]), published(_quiet()[0], quiet, there[0])
    documents = [silo.n_documents for silo in small_federation().silos]
    noise = np.concatenate([(noisy.cells - true.cells)[silo, :, :n].reshape(-1) for silo, n in enumerate(documents)])
    scale = setup.promise.details["scale"]
    assert scale == pytest.approx(6 / (0.8 * 8))  # z occurrences of a word, four fifths of epsilon
    assert noise.size == sum(documents) * 2 * NARROW.cells
    assert _laplace(noise, scale) > 1e-3
    assert not noisy.cells[0, :, documents[0] :].any() and not noisy.lengths[0, :, documents[0] :].any()
    # Neighbouring cells are independent: one variable a cell, none shared.
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 4 / np.sqrt(noise.size)
    # Lengths and different words: two numbers, a tenth of epsilon. Bodies are long enough not to be cut at 0 often.
    lengths = (noisy.lengths - true.lengths)[:, 0, : documents[0]].reshape(-1)
    q = np.exp(-0.1 * 8 / 2)
    variance = 2 * q / (1 - q) ** 2
    assert 0.4 * variance < lengths.var() < 2.2 * variance
    # Statistics: two sketches of one row, and their number of words; three silos add their noise; N has none.
    off = (state.totals - quiet.totals)[:-1]
    q = np.exp(-0.1 * 8 / 3)
    assert off.var() == pytest.approx(SILOS * 2 * q / (1 - q) ** 2, rel=0.25)
    assert state.totals[-1] == quiet.totals[-1]


def test_a_seed_makes_the_rows_and_another_one_others():
    setup, _, parties, _ = _noisy(0)
    again, other = run(setup, seed=0)[1], _noisy(1)[2]
    for number in range(SILOS):
        first, second, third = (rows_of_party(made[number]) for made in (parties, again, other))
        for name in first:
            np.testing.assert_array_equal(first[name], second[name], err_msg=name)
        assert not np.array_equal(first["cross_x"], third["cross_x"])
