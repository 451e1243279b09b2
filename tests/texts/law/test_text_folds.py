"""Folds for the do-no-harm gate: each query is held out once, and ranked by who did not learn from it."""

import numpy as np
import pytest

from fedrank.core.errors import ConfigError
from fedrank.engine.simulator import Simulator, run_keys
from fedrank.engine.task import Given
from fedrank.texts.config import Evaluation, Sketch, Texts, TextsRun
from fedrank.texts.data.generate import generate_texts
from fedrank.texts.rows import ISOLATED, SKETCHED, run_setups
from fedrank.texts.scores import UNTRAINED, _folds, cross_validated, score_all
from fedrank.texts.silo_sketch import FEDERATED, SiloSketch
from fedrank.texts.silo_sketch.state import TEST, TRAIN, UNUSED, VALI
from fedrank.texts.task import TASK

#: Each list is scaled by itself, so that another division of the queries leaves features as they are.
CONFIG = TextsRun(
    seeds=1,
    rounds=2,
    texts=Texts(silos=2, depth=4, negatives=1, foreign=2, scale="query"),
    method=SiloSketch(sketch=Sketch(mode="plain", z=2, w=64, statistics_z=2, statistics_w=256)),
    evaluation=Evaluation(baselines=("local", "bm25")),
).resolved()
FOLDS = 3


def test_every_query_but_the_test_s_is_held_out_once_and_folds_are_even():
    part = np.array(
        [[[TRAIN, TRAIN, VALI, VALI, TEST, TRAIN, UNUSED], [TEST, UNUSED, TRAIN, VALI, TRAIN, TEST, TRAIN]]]
    )
    found = _folds(part, [5], FOLDS)
    np.testing.assert_array_equal(found < 0, np.isin(part, (TEST, UNUSED)))
    assert [np.bincount(one[one >= 0], minlength=FOLDS).tolist() for one in found[0]] == [[2, 2, 1], [2, 1, 1]]
    assert any((_folds(part, [seed], FOLDS) != found).any() for seed in range(6, 12))  # the seed draws them


def test_a_fold_is_what_a_run_with_its_queries_for_validation_has():
    """The setup, training and scoring of a run whose parts are the fold's give the fold's values."""
    data = generate_texts(1, documents=36, queries=18, topics=3, words=500, length=12)
    e = TASK.build(CONFIG, Given(data=data))
    arrays, simulator = e.setup_results().arrays, Simulator(e.protocol)
    (measure, *_), seeds = e.measures.values(), list(CONFIG.all_seeds)
    found = cross_validated(e.protocol, arrays, seeds, 2, FOLDS, measure, simulator, lambda _: None)
    part = arrays.rows.part[0]
    fold_of = _folds(part, seeds, FOLDS)
    for table in found.values():
        np.testing.assert_array_equal(np.isfinite(table), fold_of >= 0)
    held = fold_of[0] == 1
    texts = tuple(
        one._replace(part=_placed(one.part, np.where(h, VALI, np.where(f >= 0, TRAIN, TEST))))
        for one, h, f in zip(e.texts[0], held, fold_of[0], strict=True)
    )
    other = run_setups(e.setup, seeds, e.federations, (texts,), False, lambda _: None).arrays
    parties = e.protocol.parties(other.rows, [e.protocol.training.beta, 0.0], [SKETCHED, ISOLATED], [False, False])
    keys = run_keys([*seeds, *seeds])
    states, own = simulator.start(keys, parties, per_run=True)
    states, own, _ = simulator.advance(keys, states, parties.shared, own, 0, 2)
    values = score_all(e.protocol, (measure,), states, parties.shared, own, tuple(other[1:]))
    for name, run in ((FEDERATED, 0), ("Local", 1), (UNTRAINED, 1)):
        table = np.asarray(values[name]["own"][measure])[run]
        np.testing.assert_allclose(found[name][0][held], table[held], atol=1e-6)
    assert np.std(found[FEDERATED][0][held]) > 0


def _placed(part, of_used):
    """The parts of all queries of a silo, given those of the used ones in order."""
    out = part.copy()
    out[part != UNUSED] = of_used[: np.count_nonzero(part != UNUSED)]
    return out


def test_one_fold_is_refused():
    with pytest.raises(ConfigError, match=r"evaluation\.folds"):
        Evaluation(folds=1)
