"""Studies from files to results equal R on all rows together; ``kept/whole_studies.R`` made the numbers of R."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from studies import NO_RULES, SILOS, codebook, csv, rows

from fedrank.silos.studies.codebook import Question
from fedrank.silos.studies.coordinator import run_study
from fedrank.silos.studies.node import Node
from fedrank.silos.studies.results import results_of
from fedrank.silos.studies.table import own_table

R = json.loads(Path(__file__).with_name("kept").joinpath("whole_studies.json").read_text())
SIZES = (220, 180, 300)
QUESTIONS = [
    Question(name="logistic", formula="ill ~ age + sex * stage + ns(crp, 3) + strata(site)"),
    Question(name="robust", formula="ill ~ age + sex", errors="robust"),
    Question(name="cluster", formula="ill ~ age + sex + cluster(clinic)", errors="cluster"),
    Question(name="linear HC1", model="linear", formula="crp ~ age + site", errors="robust"),
    Question(name="linear", model="linear", formula="crp ~ age + stage"),
    Question(name="poisson", model="poisson", formula="visits ~ age + sex + offset(log(crp))"),
    Question(name="negative-binomial", model="negative-binomial", formula="visits ~ age + sex"),
    Question(name="multinomial", model="multinomial", formula="stage ~ age + sex"),
    Question(name="ordinal", model="ordinal", formula="stage ~ age + sex"),
    Question(name="cox of bins", model="cox", formula="Surv(days, ill) ~ age + sex"),
    Question(
        name="cox breslow", model="cox", formula="Surv(days, ill) ~ age + sex + strata(stage)", ties="breslow",
        errors="robust",
    ),
    Question(name="patterns", formula="ill ~ sex * stage + strata(site)", one_round=True),
    Question(name="sums", formula="ill ~ sex * stage + strata(site)"),
    Question(name="curves", model="curves", formula="Surv(days, ill) ~ sex"),
]  # fmt: skip
EXACT = [Question(name="cox", model="cox", formula="Surv(days, ill) ~ age + sex + strata(site)")]
#: Where R's own optimiser stops: BFGS of nnet and MASS, whose Hessian is a difference quotient.
LOOSE = {"multinomial": 1e-5, "ordinal": 5e-4, "negative-binomial": 1e-6}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("silos")
    for k, (silo, n) in enumerate(zip(SILOS, SIZES, strict=True)):
        csv(rows(n, k), folder / f"{silo}.csv")
    out = {}
    for questions, rules in ((QUESTIONS, NO_RULES), (EXACT, replace(NO_RULES, exact_times=True))):
        book = codebook(*questions, rules=rules)
        nodes = [Node(own_table(folder / f"{silo}.csv", book, silo)) for silo in SILOS]
        made = run_study(book, lambda asked, nodes=nodes: [one.answer(asked) for one in nodes])
        out |= {one.question.name: one for one in results_of(made)}
    return out


def test_regressions_and_coxs_models(results):
    for name, one in results.items():
        if name not in R or name in ("curves", "linear"):
            continue
        ours = np.array([(effect.estimate, effect.error) for effect in one.effects])
        theirs = np.array(R[name])
        if name == "negative-binomial":
            ours = ours[:-1]  # log θ, which R's vcov does not have
        if name == "ordinal":
            ours = np.roll(ours, -2, axis=0)  # R: coefficients, then cut points
            assert [effect.name for effect in one.effects][:2] == ["1|2", "2|3"]
        np.testing.assert_allclose(ours, theirs, rtol=LOOSE.get(name, 1e-8), err_msg=name)


def test_terms_with_several_coefficients(results):
    ours = {
        f"{name} {test.term}": (test.statistic, test.degrees, test.p)
        for name in ("linear", "logistic")
        for test in results[name].joint
    }
    assert set(ours) == set(R["terms"])
    for name, values in R["terms"].items():
        np.testing.assert_allclose(ours[name], values, rtol=1e-8, err_msg=name)
    assert {test.term: test.degrees for test in results["multinomial"].joint} == {"age": 2, "sex": 2}


def test_curves(results):
    found = results["curves"].progress.result
    theirs = np.array(R["curves"]).reshape(2, -1, 2)
    for curve, (survival, error) in zip(found.curves, theirs.transpose(0, 2, 1), strict=True):
        np.testing.assert_allclose(curve.survival, survival, rtol=1e-10)
        np.testing.assert_allclose(curve.error, error, rtol=1e-8)
    assert found.statistic == pytest.approx(R["log-rank"], rel=1e-8)


def test_counts_by_pattern_give_in_one_round_what_sums_give(results):
    counted, summed = (results[name] for name in ("patterns", "sums"))
    assert counted.progress.rounds == 1 < summed.progress.rounds
    pairs = zip(counted.effects, summed.effects, strict=True)
    for one, two in pairs:
        np.testing.assert_allclose([one.estimate, one.error], [two.estimate, two.error], rtol=1e-8)


def test_tests_are_corrected_together(results):
    planned = [one for name, one in results.items() if name != "cox"]
    tested = [e for one in planned for e in one.effects if e.tested] + [t for one in planned for t in one.joint]
    p = np.array([*(effect.p for effect in tested), results["curves"].progress.result.p])
    corrected = [*(effect.corrected for effect in tested), results["curves"].log_rank]
    order = np.argsort(p)
    # Holm (Scandinavian Journal of Statistics 1979), written out.
    expected, largest = np.empty(len(p)), 0.0
    for rank, k in enumerate(order):
        largest = max(largest, min(1.0, (len(p) - rank) * p[k]))
        expected[k] = largest
    np.testing.assert_allclose(corrected, expected, rtol=1e-12)
    assert len(p) > 20
