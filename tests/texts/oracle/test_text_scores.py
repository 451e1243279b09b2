"""Values of the three scopes, and what the rows of a run say of the whole collection, against plain loops."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from text_worlds import SILOS, Collection, alone, setup_of, small_federation, small_texts

from fedrank.engine.simulator import Conditions
from fedrank.texts.build import TextExperiment
from fedrank.texts.config import TextsRun
from fedrank.texts.graded import GradedLearner
from fedrank.texts.rows import EXACT, ISOLATED, SKETCHED, exact_rows
from fedrank.texts.scores import UNTRAINED, depth_of, score_all
from fedrank.texts.silo_sketch import FEDERATED, SiloSketch
from fedrank.texts.silo_sketch.state import SketchState

MEASURES = ("nDCG(dcg='exp-log2')@10", "ERR(max_label=2)", "AP@5")
SIZE = 17


@pytest.fixture(scope="module")
def world():
    """A run's arrays of two feature sets, and rankers of three variants drawn by lot: nobody trains."""
    setup = setup_of("plain")
    learner = GradedLearner(16, 3, "regression")
    protocol = SiloSketch(learner=learner, setup=setup)
    experiment = TextExperiment(
        TextsRun(seeds=1, method=protocol),
        (small_federation(),),
        (tuple(small_texts()),),
        protocol,
        {name: name for name in MEASURES},
        (),
        Conditions(),
    )
    data = experiment.setup_results()
    parties = protocol.parties(data.arrays.rows, [0.3, 0.3], [SKETCHED, EXACT], [False, True])
    more, rng = tuple(data.arrays[1:]), np.random.default_rng(5)

    def models(*shape):
        return jnp.asarray(rng.normal(size=(*shape, SIZE)), jnp.float32)

    own = parties.own._replace(local=models(2, SILOS), plus=models(2, SILOS))
    states = SketchState(jnp.zeros(2, jnp.uint32), models(2), models(2))
    values = score_all(protocol, MEASURES, states, parties.shared, own, more)
    return data, states, own, values


def _gain(grade):
    return 2.0**grade - 1


def _measure(name, ranked, every):
    """A measure of a ranking: grades of what was found, best first, and the grades of all documents that count."""
    base, cut = name.split("@")[0], depth_of(name)
    top = ranked[:cut]
    relevant = sum(grade > 0 for grade in every)
    if base == "nDCG(dcg='exp-log2')":
        best = sum(_gain(g) / math.log2(r + 2) for r, g in enumerate(sorted(every, reverse=True)[:cut]))
        return sum(_gain(g) / math.log2(r + 2) for r, g in enumerate(top)) / best if best else 0.0
    if base == "AP":
        hits = precision = 0.0
        for rank, grade in enumerate(top, start=1):
            if grade > 0:
                hits += 1
                precision += hits / rank
        return precision / relevant if relevant else 0.0
    going, value = 1.0, 0.0
    for rank, grade in enumerate(top, start=1):
        value += going * _gain(grade) / 4 / rank
        going *= 1 - _gain(grade) / 4
    return value


def _documents(collection, rows, number, q, query):
    """Of a query: (features by the given rows, grade) of found own ones, listed own ones and found foreign ones."""
    federation = small_federation()
    labels = federation.whole.labels(int(query))
    words = collection.queries[query]
    best = set(alone(number).best(words, range(len(federation.documents[number])), 6)[0])
    own, cross = [], []
    for place in np.flatnonzero(rows["where"][q]):
        local = int(rows["documents"][q, place])
        own.append((place, int(labels[federation.documents[number][local]]), local in best))
    for place in np.flatnonzero(rows["cross_where"][q]):
        name = federation.documents[rows["cross_silo"][q, place]][rows["cross_document"][q, place]]
        cross.append((place, int(labels[name])))
    return labels, own, cross


def test_every_scope_is_a_plain_ranking_of_what_is_found_against_all_that_is_relevant(world):
    data, states, own_state, values = world
    federation, texts = small_federation(), small_texts()
    collection = Collection(federation.whole)
    lists = exact_rows(federation, texts, setup_of("plain"))
    stacked = data.arrays.rows
    lost = wanting = 0
    for variant in range(2):
        for number in range(SILOS):
            rows = lists[number]
            models = {
                FEDERATED: states.weights[variant],
                "Local": own_state.local[variant, number],
                "Local+": own_state.plus[variant, number],
                UNTRAINED: np.zeros(0),
            }
            for q, row in enumerate(rows["queries"]):
                query = federation.queries[number][row]
                words = collection.queries[query]
                labels, own, cross = _documents(collection, rows, number, q, query)
                features = (SKETCHED, EXACT)[variant]
                x, cross_x = (np.asarray(a[features, 0, number, q], float) for a in (stacked.x, stacked.cross_x))
                every = labels[labels > 0].tolist()
                lost += len(every) - sum(g > 0 for _, g, found in own if found) - sum(g > 0 for _, g in cross)
                wanting += sum(g > 0 and not found for _, g, found in own)
                for method, model in models.items():
                    w = np.asarray(model, float)
                    if w.size:
                        scored_own = [(x[p] @ w[:16] + w[16], g, found) for p, g, found in own]
                        abroad = [(cross_x[p] @ w[:16] + w[16], g) for p, g in cross]
                    else:  # BM25 of both fields, over the whole collection
                        named = federation.documents[number][rows["documents"][q]]
                        scored_own = [(collection.score(words, named[p]), g, found) for p, g, found in own]
                        theirs = zip(rows["cross_silo"][q], rows["cross_document"][q], strict=True)
                        foreign = [federation.documents[k][d] if k >= 0 else -1 for k, d in theirs]
                        abroad = [(collection.score(words, foreign[p]), g) for p, g in cross]
                    home = [(s, g) for s, g, found in scored_own if found]
                    ranked = {
                        "own": ([(s, g) for s, g, _ in scored_own], [g for _, g, _ in scored_own]),
                        "home": (home, every),
                        "federation": (home + abroad, every),
                    }
                    for scope, (pairs, all_grades) in ranked.items():
                        grades = [g for _, g in sorted(pairs, key=lambda pair: -pair[0])]
                        for name in MEASURES:
                            if scope != "own" and depth_of(name) is None:
                                assert name not in values[method][scope]
                                continue
                            found = float(values[method][scope][name][variant, number, q])
                            true = _measure(name, grades, all_grades)
                            assert found == pytest.approx(true, abs=2e-5), (scope, name, method, number, q)
    assert lost > 20 and wanting > 0  # relevant ones that nobody finds, and own ones below the cut, do occur


def test_rows_of_a_run_hold_the_truth_of_the_whole_collection(world):
    data = world[0]
    federation, rows = small_federation(), data.arrays.rows
    np.testing.assert_allclose(
        rows.x[SKETCHED], rows.x[EXACT], rtol=1e-4, atol=1e-4
    )  # wide sketches without noise are exact
    for number in range(SILOS):
        used = np.flatnonzero(small_texts()[number].part >= 0)
        assert data.queries[0][number] == [federation.silos[number].query_ids[q] for q in used]
        for q, row in enumerate(used):
            labels = federation.whole.labels(int(federation.queries[number][row]))
            relevant = sorted(labels[labels > 0].tolist())
            place = 0, 0, number, q
            seen = rows.y[place][rows.where[place]].tolist() + rows.cross_y[place][rows.cross_where[place]].tolist()
            missed = data.arrays.missed[place].tolist()
            assert sorted(g for g in seen + missed if g) == relevant
        training = rows.part[0, 0, number] == 0
        for k, (places, where) in enumerate(((rows.rows, rows.where), (rows.cross_rows, rows.cross_where))):
            mine = np.flatnonzero((where[0, 0, number] & training[:, None]).reshape(-1))
            count = rows.counts[0, 0, number, k]
            assert places[0, 0, number, :count].tolist() == mine.tolist() and count > 0
        assert rows.queries[0, 0, number, : rows.counts[0, 0, number, 2]].tolist() == np.flatnonzero(training).tolist()


def test_counts_without_noise_have_no_error(world):
    (errors,) = world[0].errors
    assert (errors.all, errors.held) == (0.0, 0.0) and 0 < errors.true_all < 1 <= errors.true_held


def test_a_silo_by_itself_has_its_own_statistics_and_nobody_elses_documents(world):
    rows, missed = world[0].arrays.rows, world[0].arrays.missed
    assert not rows.cross_where[ISOLATED].any() and not rows.counts[ISOLATED, 0, :, 1].any()
    np.testing.assert_array_equal(rows.where[ISOLATED], rows.where[SKETCHED])
    assert not np.allclose(rows.x[ISOLATED], rows.x[SKETCHED], atol=1e-3)  # a word's IDF is another among all documents
    # What is relevant anywhere counts in all feature sets alike.
    for number in range(SILOS):
        for q in range(rows.part.shape[3]):
            found = [
                sorted(
                    [
                        *rows.y[s, 0, number, q][rows.where[s, 0, number, q]],
                        *rows.cross_y[s, 0, number, q][rows.cross_where[s, 0, number, q]],
                        *missed[s, 0, number, q],
                    ]
                )
                for s in (SKETCHED, ISOLATED)
            ]
            assert [g for g in found[0] if g] == [g for g in found[1] if g]


def test_a_cutoff_is_read_from_a_name():
    assert [depth_of(name) for name in ("nDCG(dcg='exp-log2')@10", "nDCG", "ERR(max_label=2)", "AP@5")] == [
        10,
        None,
        None,
        5,
    ]
