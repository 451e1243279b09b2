"""The estimators as scikit-learn's users expect them: its checks, a user's script, selection with queries and silos."""

import pickle
import subprocess
import sys

import ir_measures
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from arro3.core import Table as ArrowTable
from scipy.sparse import csr_matrix
from sklearn import config_context
from sklearn.base import clone
from sklearn.impute import SimpleImputer
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import check_estimator

import fedrank
from fedrank.core.errors import ConfigError, DataError, FedrankWarning, UnknownNameError

QUERIES, DOCUMENTS = 12, 4
TINY = {"rounds": 3, "clients": 8, "interactions": 2, "evaluation__baselines": ()}
SILOS = {"rounds": 2, "train": 0.6, "widths": (8,), "measure": "log-loss"}
SILOS |= {"evaluation__sceptic": False, "evaluation__baselines": ()}


def letor(seed=0):
    """Features of several types and ids that are text, and labels with a relevant document in each query."""
    rng = np.random.default_rng(seed)
    numbers = rng.random((QUERIES * DOCUMENTS, 2)) * (1, 50)
    labels = np.tile([0, 1, 2, 0], QUERIES)
    columns = {"match": numbers[:, 0] + labels / 4, "age": numbers[:, 1].round(), "fresh": numbers[:, 0] > 0.5}
    qid = np.repeat([f"search {n}".replace(" ", "-") for n in range(QUERIES)], DOCUMENTS)
    order = rng.permutation(len(qid))  # rows of a query do not stand together
    ids = {"qid": qid, "docid": np.array([f"page/{n}" for n in range(len(qid))])}
    return {name: values[order] for name, values in {**columns, **ids}.items()}, labels[order]


COLUMNS, LABELS = letor()
QID = COLUMNS["qid"]
X = np.stack([COLUMNS[name] for name in ("match", "age", "fresh")], axis=1)
NULLABLE = {"age": "Int64", "match": "Float64", "fresh": "boolean", "qid": "string"}
SOURCES = {
    "array": (X, QID),
    "csr": (csr_matrix(X), QID),
    "pandas": (pd.DataFrame(COLUMNS), None),
    "nullable": (pd.DataFrame(COLUMNS).astype(NULLABLE), None),
    "polars": (pl.DataFrame(COLUMNS), None),
    "lazy": (pl.DataFrame(COLUMNS).lazy(), None),
    "frame": (fedrank.Frame(COLUMNS), None),
    "arrow": (ArrowTable.from_arrow(pl.DataFrame(COLUMNS)), None),
}


@pytest.fixture(scope="module")
def ranker():
    return fedrank.RankingEstimator(**TINY).fit(X, LABELS, qid=QID)


@pytest.mark.parametrize("kind", SOURCES)
def test_a_users_script(kind, ranker, tmp_path):
    table, qid = SOURCES[kind]
    y = pd.Series(LABELS, dtype="Int64") if kind == "nullable" else LABELS
    found = clone(ranker).fit(table, y, qid=qid)
    scores = found.predict(table, qid=qid)
    np.testing.assert_array_equal(scores, ranker.predict(X, qid=QID))
    assert found.score(table, y, qid=qid) == ranker.score(X, LABELS, qid=QID)
    with pytest.raises(DataError, match="qid"):
        found.score(pd.DataFrame(COLUMNS)[["match", "age", "fresh"]] if qid is None else table, y)
    model = fedrank.load(found.result_.save(tmp_path / "run").path)
    order = np.argsort(QID, kind="stable")  # a model takes the rows of a query together
    frame = pl.DataFrame(COLUMNS)[order]
    rows, ids = (X[order], QID[order]) if qid is not None else (frame, None)
    np.testing.assert_array_equal(model.score(rows, ids), scores[order])
    path = model.write_trec_run(frame, tmp_path / "run.txt")
    lines = list(ir_measures.read_trec_run(str(path)))
    assert {line.doc_id for line in lines} == set(COLUMNS["docid"])
    grades = [ir_measures.Qrel(*one) for one in zip(QID, COLUMNS["docid"], LABELS.tolist(), strict=True)]
    measure = ir_measures.nDCG(gains={0: 0, 1: 1, 2: 3}) @ 10
    assert len(set(zip(QID, scores, strict=True))) == len(scores), "ties would be ordered in another way"
    outside = ir_measures.calc_aggregate([measure], grades, lines)[measure]
    assert outside == pytest.approx(found.score(table, y, qid=qid), abs=1e-6)


def test_missing_values_are_refused_or_filled_and_missing_ids_refused():
    frame = pd.DataFrame(COLUMNS).astype(NULLABLE)
    gaps = frame.copy()
    gaps.loc[[1, 5], ["age", "match", "fresh"]] = pd.NA
    for table in (gaps, pl.DataFrame(COLUMNS).with_columns(age=pl.lit(None, pl.Int64))):
        with pytest.raises(ValueError, match="NaN"):
            fedrank.RankingEstimator(**TINY).fit(table, LABELS)
    filled = make_pipeline(SimpleImputer(), fedrank.RankingEstimator(**TINY))
    numbers = gaps[["match", "age", "fresh"]].astype("Float64")
    filled.fit(numbers, LABELS, rankingestimator__qid=QID)
    assert np.isfinite(filled.predict(numbers)).all()
    frame.loc[3, "qid"] = pd.NA
    for table, qid in ((frame, None), (X, np.where(np.arange(len(X)) == 3, None, QID))):
        with pytest.raises(DataError, match="qid"):
            fedrank.RankingEstimator(**TINY).fit(table, LABELS, qid=qid)


@pytest.mark.slow
def test_selection_divides_queries_and_hands_their_ids_over():
    folds = GroupKFold(2)
    by_hand = []
    for train, test in folds.split(X, LABELS, QID):
        one = fedrank.RankingEstimator(**TINY).fit(X[train], LABELS[train], qid=QID[train])
        by_hand.append(one.score(X[test], LABELS[test], qid=QID[test]))
    with config_context(enable_metadata_routing=True):
        given = {"params": {"groups": QID, "qid": QID}, "cv": folds, "error_score": "raise"}
        estimator = fedrank.RankingEstimator(**TINY)
        np.testing.assert_array_equal(cross_val_score(estimator, X, LABELS, **given), by_hand)
        # Before scikit-learn 1.8 a selection hands nothing over to the score of a pipeline.
        routed = tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 8)
        chain = make_pipeline(MinMaxScaler(), estimator) if routed else estimator
        name = "rankingestimator__privacy__p" if routed else "privacy__p"
        grid = GridSearchCV(chain, {name: [0.6, 1.0]}, cv=folds, error_score="raise")
        grid.fit(X, LABELS, groups=QID, qid=QID)
        assert grid.best_estimator_.get_params()[name] in (0.6, 1.0)
        assert grid.score(X, LABELS, qid=QID) == grid.best_estimator_.score(X, LABELS, qid=QID)
    frame = pd.DataFrame(COLUMNS)  # with its own query ids no routing is needed
    found = cross_val_score(estimator, frame, LABELS, groups=QID, cv=folds, error_score="raise")
    np.testing.assert_array_equal(found, by_hand)


def test_parameters_are_settings_and_misspelt_ones_are_refused(ranker):
    assert ranker.get_params() == {"method": "foltr-es", "random_state": 0, **TINY}
    other = clone(ranker).set_params(privacy__p=0.7, rounds=1, random_state=np.random.RandomState(3))
    assert clone(other).get_params().keys() == ranker.get_params().keys() | {"privacy__p"}
    other.fit(X, LABELS, qid=QID)
    assert other.result_.run.config["privacy"]["p"] == 0.7 and other.result_.run.config["rounds"] == 1
    for name in ("roundz", "seed", "privaci__p"):
        with pytest.raises(UnknownNameError, match=name):
            fedrank.RankingEstimator(**{name: 3})
        with pytest.raises(UnknownNameError, match=name):
            clone(ranker).set_params(**{name: 3})


def test_methods_of_another_task_are_refused():
    for cls, method, group in (
        (fedrank.RankingEstimator, "fedavg", "qid"),
        (fedrank.SiloClassifier, "foltr-es", "silo"),
    ):
        with pytest.raises(ConfigError, match=method):
            cls(method).fit(X, LABELS > 0, **{group: QID})


def test_a_fitted_estimator_shows_its_run_and_is_pickled_without_it(ranker):
    assert "fedrank-result" in ranker._repr_mimebundle_()["text/html"]
    assert "fedrank-result" not in clone(ranker)._repr_mimebundle_()["text/html"]
    again = pickle.loads(pickle.dumps(ranker))
    np.testing.assert_array_equal(again.predict(X, qid=QID), ranker.predict(X, qid=QID))
    told = []

    class Hears(fedrank.Listener):
        def stage(self, what):
            told.append(what)

    clone(ranker).fit(X, LABELS, qid=QID, listener=Hears())
    assert told


def test_without_query_ids_all_rows_are_one_query_and_that_is_said():
    with pytest.warns(FedrankWarning, match="one query"):
        one = fedrank.RankingEstimator(**TINY).fit(X, LABELS)
    same = fedrank.RankingEstimator(**TINY).fit(X, LABELS, qid=np.zeros(len(X), int))
    np.testing.assert_array_equal(one.predict(X), same.predict(X))
    assert one.score(X, LABELS) == same.score(X, LABELS, qid=np.zeros(len(X), int))


# ------------------------------------------------------------------------------------------------------------- silos


def patients(rows=150):
    """A table with numbers, text and gaps whose label depends on two columns, and the hospital of each row."""
    rng = np.random.default_rng(2)
    age, dose = rng.normal(60, 9, rows), rng.normal(size=rows)
    ill = np.where(age / 9 + 2 * dose + rng.normal(size=rows) / 2 > 60 / 9, "yes", "no")
    frame = pd.DataFrame({"age": age, "dose": pd.array(dose, "Float64"), "ward": rng.choice(["A", "B", "C"], rows)})
    frame.loc[[3, 50], "dose"] = pd.NA
    return frame, ill, np.array(["south", "north", "east"])[np.arange(rows) % 3]


@pytest.mark.slow
def test_a_classifier_of_silos_predicts_with_the_model_of_each_rows_silo():
    frame, ill, silo = patients()
    found = fedrank.SiloClassifier(**SILOS).fit(frame, ill, silo=silo)
    assert list(found.classes_) == ["no", "yes"] and set(found.models_) == {"south", "north", "east"}
    chances = found.predict_proba(frame, silo=silo)
    for name, model in found.models_.items():
        rows = silo == name
        np.testing.assert_allclose(chances[rows, 1], model.probability(frame[rows]), rtol=1e-12)
    np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-12)
    said = found.predict(frame, silo=silo)
    np.testing.assert_array_equal(said, np.where(chances[:, 1] > 0.5, "yes", "no"))
    assert found.score(frame, ill, silo=silo) == accuracy_score(ill, said) > 0.6
    other = {"age": frame["age"].to_numpy(), "dose": frame["dose"].to_numpy(float, na_value=np.nan)}
    for table in (frame.assign(silo=silo), pl.DataFrame({**other, "ward": frame["ward"].tolist(), "silo": silo})):
        again = clone(found).fit(table, ill)
        np.testing.assert_array_equal(again.predict_proba(table), chances)
    for silo in (None, np.full(len(ill), "west")):
        with pytest.raises(ValueError, match="silo"):
            found.predict(frame, silo=silo)
    with pytest.raises(DataError, match="silo"):
        clone(found).fit(frame, ill)


@pytest.mark.slow
def test_a_classifier_for_one_silo_and_a_selection_of_settings():
    frame, ill, silo = patients()
    numbers = frame[["age", "dose"]].to_numpy(float, na_value=np.nan)
    one = fedrank.SiloClassifier("fedavg", target="south", **SILOS).fit(numbers, ill, silo=silo)
    south = numbers[silo == "south"]
    coded = np.where(silo == "south", "01", np.where(silo == "north", "02", "10"))
    same = fedrank.SiloClassifier("fedavg", target="1", **SILOS).fit(numbers, ill, silo=coded)
    assert set(same.models_) == {"01"} and same.predict_proba(south, silo=coded[silo == "south"]).shape == (50, 2)
    np.testing.assert_array_equal(one.predict(south), one.predict(south, silo=silo[silo == "south"]))
    with config_context(enable_metadata_routing=True):
        every = fedrank.SiloClassifier("fedavg", **SILOS)
        grid = GridSearchCV(every, {"learning_rate": [0.01, 0.1]}, cv=2, error_score="raise")
        grid.fit(numbers, ill, silo=silo)
        assert grid.score(numbers, ill, silo=silo) > 0.5


# ----------------------------------------------------------------------------------------------- scikit-learn's checks

NOT_APPLICABLE = {
    "check_no_attributes_set_in_init": "settings of the method are keyword arguments beyond the signature",
    "check_do_not_raise_errors_in_init_or_set_params": "names that are no settings are refused where they are given",
}


@pytest.mark.minutes
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_scikit_learns_checks_of_a_ranker_pass():
    """The features of the checks are not in [0, 1]: normalised within a query, a row's score depends on the others."""
    found = check_estimator(
        fedrank.RankingEstimator(normalise="none", **TINY), expected_failed_checks=NOT_APPLICABLE, on_skip=None
    )
    assert sum(one["status"] == "passed" for one in found) > 35


class OfTwoSilos(fedrank.SiloClassifier):
    """A classifier that is told no silos: rows belong to two in turn."""

    def fit(self, X, y, silo=None):
        rows = X.shape[0] if hasattr(X, "toarray") else len(np.asarray(X))
        return super().fit(X, y, np.arange(rows) % 2)


@pytest.mark.minutes
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_scikit_learns_checks_of_a_classifier_pass():
    not_applicable = NOT_APPLICABLE | {
        "check_methods_sample_order_invariance": "log-odds are of 32 bits, and the checks want 1e-7",
        "check_methods_subset_invariance": "log-odds are of 32 bits, and the checks want 1e-7",
    }
    found = check_estimator(OfTwoSilos(target="0", **SILOS), expected_failed_checks=not_applicable, on_skip=None)
    assert sum(one["status"] == "passed" for one in found) > 45


def test_without_scikit_learn_the_extra_is_named():
    code = """if True:
        import sys
        sys.modules["sklearn"] = None
        import fedrank
        for name in ("RankingEstimator", "SiloClassifier"):
            try:
                getattr(fedrank, name)
            except fedrank.FedrankError as error:
                print(type(error).__name__, "fedrank[sklearn]" in str(error))
    """
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.split() == ["MissingExtraError", "True"] * 2
