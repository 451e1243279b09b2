"""The do-no-harm gate: who adopts the federation's ranker, decided by validation queries at home and nothing else."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from fedrank.texts.scores import UNTRAINED, gate
from fedrank.texts.silo_sketch import FEDERATED
from fedrank.texts.silo_sketch.state import TEST, TRAIN, UNUSED, VALI

NAMES = ("north", "south")
PART = np.array([[[TRAIN, VALI, VALI, TEST, TEST, UNUSED]] * 2])  # [seeds, silos, queries]


def _values(federated, local, scope="own"):
    """One seed, two silos, six queries."""
    return {
        FEDERATED: {scope: {"nDCG(dcg='exp-log2')@10": np.array([federated], float)}},
        "Local": {scope: {"nDCG(dcg='exp-log2')@10": np.array([local], float)}},
    }


def _decide(federated, local, **more):
    return gate(_values(federated, local) | more, PART, "nDCG(dcg='exp-log2')@10", [7], NAMES)["decisions"]


def test_a_silo_adopts_what_ranks_its_validation_queries_better():
    helped, harmed = _decide(
        [[9, 0.5, 0.7, 0.4, 0.8, 9], [9, 0.3, 0.2, 0.9, 0.9, 9]],
        [[0, 0.4, 0.6, 0.3, 0.7, 0], [0, 0.3, 0.4, 0.1, 0.1, 0]],
    )
    assert helped["seed"] == 7 and helped["silo"] == "north"
    assert helped["vali"] == pytest.approx(0.1) and helped["test"] == pytest.approx(0.1)
    assert helped["adopted"] and helped["kept"] == helped["test"]
    # The other one loses on validation: it keeps its own, also though its test queries would have gained.
    assert harmed["vali"] == pytest.approx(-0.1) and harmed["test"] == pytest.approx(0.8)
    assert harmed["adopted"] is False and harmed["kept"] == 0


def test_test_training_and_unused_queries_decide_nothing():
    rng = np.random.default_rng(0)
    federated, local = rng.random((2, 6)), rng.random((2, 6))
    before = _decide(federated, local)
    federated[:, [0, 3, 4, 5]] = rng.random((2, 4))
    after = _decide(federated, local)
    assert [one["adopted"] for one in before] == [one["adopted"] for one in after]
    assert [one["vali"] for one in before] == [one["vali"] for one in after]
    assert [one["test"] for one in before] != [one["test"] for one in after]


def test_a_silo_that_was_harmed_on_validation_never_loses_on_test():
    rng = np.random.default_rng(1)
    for _ in range(50):
        for one in _decide(rng.random((2, 6)), rng.random((2, 6))):
            assert one["kept"] == (one["test"] if one["low"] > 0 else 0) and one["low"] <= one["vali"]


def test_a_silo_adopts_what_is_no_better_in_one_case_of_twenty():
    rng, part = np.random.default_rng(3), np.full((1, 2000, 12), VALI)
    values = {
        name: {"own": {"nDCG(dcg='exp-log2')@10": rng.normal(0.5, 0.1, part.shape)}} for name in (FEDERATED, "Local")
    }
    found = gate(values, part, "nDCG(dcg='exp-log2')@10", [0], [str(k) for k in range(2000)])["decisions"]
    assert 0.035 < np.mean([one["adopted"] for one in found]) < 0.065  # 3 standard errors
    gain = (
        values[FEDERATED]["own"]["nDCG(dcg='exp-log2')@10"][0, 0]
        - values["Local"]["own"]["nDCG(dcg='exp-log2')@10"][0, 0]
    )
    interval = stats.ttest_1samp(gain, 0.0).confidence_interval(0.9)
    assert found[0]["low"] == pytest.approx(interval.low) and found[0]["held"] == 12


def test_where_queries_were_held_out_in_folds_all_but_those_of_the_test_decide():
    part = np.array([[[TRAIN, TRAIN, VALI, VALI, TEST, UNUSED]]])
    rng = np.random.default_rng(4)
    names = (FEDERATED, "Local", UNTRAINED)
    tables = {name: rng.random(part.shape) for name in names}
    held = {name: np.where(part == TEST, np.nan, rng.random(part.shape)) for name in names}
    values = {name: {"own": {"nDCG(dcg='exp-log2')@10": table}} for name, table in tables.items()}
    (one,) = gate(values, part, "nDCG(dcg='exp-log2')@10", [0], ["north"], held)["decisions"]
    best = max(names[1:], key=lambda name: held[name][0, 0, :4].mean())
    gain = (held[FEDERATED] - held[best])[0, 0, :4]
    assert (one["against"], one["held"]) == (best, 4) and one["vali"] == pytest.approx(gain.mean())
    assert one["low"] == pytest.approx(stats.ttest_1samp(gain, 0.0).confidence_interval(0.9).low)
    assert one["test"] == pytest.approx(tables[FEDERATED][0, 0, 4] - tables[best][0, 0, 4])
    # What was learnt from, what is tested and what is unused decide nothing.
    for name in names:
        tables[name][:] = rng.random(part.shape)
        held[name][..., 4:] = 9.0
    (again,) = gate(values, part, "nDCG(dcg='exp-log2')@10", [0], ["north"], held)["decisions"]
    assert (again["vali"], again["low"]) == (one["vali"], one["low"]) and again["test"] != one["test"]


def test_a_tie_keeps_what_the_silo_has():
    same = np.full((2, 6), 0.5)
    assert [(one["adopted"], one["kept"]) for one in _decide(same, same)] == [(False, 0.0)] * 2


def test_no_validation_query_adopts_nothing_and_says_so():
    values = _values(np.ones((2, 6)), np.zeros((2, 6)))
    part = np.where(PART == VALI, TRAIN, PART)
    for one in gate(values, part, "nDCG(dcg='exp-log2')@10", [0], NAMES)["decisions"]:
        assert math.isnan(one["vali"]) and one["adopted"] is False and one["kept"] == 0


def test_only_the_measure_and_own_documents_count():
    federated, local = np.full((2, 6), 0.4), np.full((2, 6), 0.6)
    values = _values(federated, local)
    for method, better in ((FEDERATED, 1.0), ("Local", 0.0)):
        values[method]["own"]["ERR"] = np.full((1, 2, 6), better)
        values[method]["federation"] = {"nDCG(dcg='exp-log2')@10": np.full((1, 2, 6), better)}
    decisions = gate(values, PART, "nDCG(dcg='exp-log2')@10", [0], NAMES)["decisions"]
    assert not any(one["adopted"] for one in decisions)


def test_seeds_and_silos_each_decide_and_json_holds_it():
    rng = np.random.default_rng(2)
    federated, local = rng.random((3, 2, 6)), rng.random((3, 2, 6))
    values = {
        FEDERATED: {"own": {"nDCG(dcg='exp-log2')@10": federated.astype(np.float32)}},
        "Local": {"own": {"nDCG(dcg='exp-log2')@10": local.astype(np.float32)}},
    }
    part = np.repeat(PART, 3, axis=0)
    said = gate(values, part, "nDCG(dcg='exp-log2')@10", [4, 5, 6], NAMES)
    assert [(one["seed"], one["silo"]) for one in said["decisions"]] == [(s, n) for s in (4, 5, 6) for n in NAMES]
    gains = (federated - local)[:, :, 1:3].mean(axis=-1).reshape(-1)
    np.testing.assert_allclose([one["vali"] for one in said["decisions"]], gains, atol=1e-6)
    assert json.loads(json.dumps(said)) == said


def test_without_local_models_there_is_nothing_to_decide():
    values = _values(np.ones((2, 6)), np.zeros((2, 6)))
    del values["Local"]
    assert gate(values, PART, "nDCG(dcg='exp-log2')@10", [0], NAMES) == {
        "measure": "nDCG(dcg='exp-log2')@10",
        "decisions": [],
    }
