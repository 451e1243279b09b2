"""Baselines: rankers trained on labels of the same data, measured by the same evaluator.

They are what rankers that learn from clicks are compared with. Kharitonov 2019 (Section 5, Table 3) compares with two
linear ones: ``MSE`` and ``RankingSVM``. ``LambdaMART``, which the paper leaves out as another class of model, is what
one would use who has the labels. All are trained on the training queries; only LambdaMART looks at the validation
queries, to stop.

Features in [0, 1] are taken as they are, as in the paper. If any lies outside, the linear ones divide each feature by
its standard deviation over the training documents: the penalty of RankingSVM asks for features of one size, and its
solver and that of least squares lose small features beside ones of 10⁸. Their weights are always those of the features
as given, and a note says what was done.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fedrank.core.errors import DataError, MissingExtraError
from fedrank.core.registry import Registry
from fedrank.metrics.offline import ndcg
from fedrank.metrics.online import OnlineMetric
from fedrank.ranking.clicks.cascade import CascadeUser
from fedrank.ranking.data.queries import QuerySet
from fedrank.ranking.data.splits import Splits, in_unit_range
from fedrank.ranking.evaluate import Measurement

#: RankingSVM's trade-off between margin and swapped pairs, as SVMrank counts it (Kharitonov 2019, Section 5).
SVM_C = 1e3
#: Most pairs times features that RankingSVM learns from; they take 0.8 GiB while it is fitted. MQ2008's fold 1 has a
#: fourteenth of that.
SVM_MOST_NUMBERS = 2**25
#: LambdaMART's trees at most, how many in a row may be of no help to the validation queries, and how many trees there
#: are where no validation query can tell (LightGBM's default).
MOST_TREES, PATIENCE, TREES = 1000, 50, 100

_SEED = 0
# LightGBM's threads wait for one another at every split: with fewer features × documents they gain little, and lose a
# factor of ten where other programs run. The trees are the same.
_THREADS_PAY = 2**24
# RankingSVM is solved to this part of its objective; SVMrank stops at 10⁻³ of a swapped pair a query.
_GAP = 1e-5
_SMOOTHING = (1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6)


@dataclass(frozen=True, eq=False)
class Model:
    """A ranker that was trained on labels.

    Attributes:
        name: As in :data:`BASELINES`.
        n_features: Features of a document, ``f``.
        weights: float32 [f] if the score is linear in the features; None otherwise.
        notes: What a reader of its numbers should know, one sentence each.
    """

    name: str
    n_features: int
    weights: np.ndarray | None
    notes: tuple[str, ...]
    _predict: Callable[[np.ndarray], np.ndarray] = field(repr=False)

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Scores of documents; a higher score ranks first.

        Args:
            features: float32 [docs, f].

        Returns:
            float32 [docs].

        Raises:
            DataError: Another number of features than the ranker was trained on.
        """
        features = np.asarray(features, np.float32)
        if features.ndim != 2 or features.shape[1] != self.n_features:
            raise DataError(
                f"{self.name} was trained on {self.n_features} features and scores arrays [docs, {self.n_features}], "
                f"got one of shape {features.shape}."
            )
        return np.asarray(self._predict(features), np.float32)


#: Label-trained rankers by name: splits to model.
BASELINES: Registry[Callable[[Splits], Model]] = Registry("baseline")


@functools.lru_cache(maxsize=16)
def fit_baseline(name: str, splits: Splits) -> Model:
    """The label-trained ranker of that name, remembered: the runs of a sweep that have the same data share it.

    Args:
        name: A name in :data:`BASELINES`.
        splits: The data; ``train`` to learn from, ``vali`` to stop by.

    Raises:
        UnknownNameError: There is no such baseline.
        DataError: It cannot learn from this data.
        MissingExtraError: It needs a library that is not installed.
    """
    return BASELINES.get(name)(splits)


@BASELINES.register(
    "MSE",
    summary="Linear regression of the labels on the features, document by document.",
    citation="kharitonov2019foltr",
)
def mse(splits: Splits) -> Model:
    """The linear ranker that predicts labels with the least mean squared error (Kharitonov 2019, Section 5).

    Ordinary least squares with an intercept, which ranks nothing and is dropped. Where constant or dependent features
    leave a choice, the weights of the smallest norm are taken.

    Raises:
        DataError: A weight is too large for 32 bits.
    """
    scale, notes = _scale(splits.train)
    x, labels = splits.train.features / scale, splits.train.labels.astype(np.float64)
    # Features have 32 bits: a column that follows from others does so to 1e-7, and counts as dependent. Scikit-learn's
    # LinearRegression has the same solver (LAPACK's gelsd) and limit; importing it takes two seconds.
    weights = np.linalg.lstsq(x - x.mean(axis=0), labels - labels.mean(), rcond=1e-6)[0]
    return _linear("MSE", weights / scale, notes)


@BASELINES.register(
    "RankingSVM",
    summary="Linear support vector machine that tells the better of two documents of a query.",
    citation="joachims2002clickthrough",
)
def ranking_svm(splits: Splits) -> Model:
    """The linear ranker of the least penalised number of swapped pairs (Joachims 2002, 2006; Kharitonov 2019).

    Minimises ‖w‖²/2 + (C/q) Σ max(0, 1 − w·(x − z)), the sum over all pairs of documents of one query of which x has
    the higher label, for q training queries: the objective of SVMrank with its default loss, with C = :data:`SVM_C`.

    If there are more pairs than :data:`SVM_MOST_NUMBERS` allows, the allowed number is drawn evenly at random (without
    repetition, always the same), the sum is scaled up to all, and a note says so. Without such a draw, the order of
    documents within a query is of no matter.

    Raises:
        DataError: No training query has documents of different labels, or a weight is too large for 32 bits.
    """
    from threadpoolctl import threadpool_limits

    train = splits.train
    if not _rankable(train):
        raise _nothing_to_rank("RankingSVM", splits)
    scale, notes = _scale(train)
    better, worse, total = label_pairs(train, max(1, SVM_MOST_NUMBERS // train.n_features))
    if len(better) < total:
        notes += (f"RankingSVM: trained on {len(better):,} of {total:,} pairs of documents, drawn at random.",)
    differences = train.features[better].astype(np.float64)
    differences -= train.features[worse]
    differences /= scale
    with threadpool_limits(1, "blas"):  # equal weights on any number of cores; threads would gain little
        weights, gap = least_hinge_loss(differences, SVM_C / train.n_queries * total / len(better))
    if gap > 1e-3:
        notes += (f"RankingSVM: not converged; its objective is up to {gap:.1%} above the least possible.",)
    return _linear("RankingSVM", weights / scale, notes)


def least_hinge_loss(differences: np.ndarray, c: float) -> tuple[np.ndarray, float]:
    """The minimum of ‖w‖²/2 + c Σ max(0, 1 − w·d) over w.

    The kink of the loss at 1 is replaced by a parabola over [1 − δ, 1], which leaves a smooth problem of few variables
    for SciPy's trust region method with the exact Hessian; δ is then made smaller, from the last solution on. The
    slopes of the smooth losses are a feasible point of the dual problem, whose value bounds the minimum from below.
    Coordinate descent on the dual, which has a variable for each pair, needs minutes where this takes seconds.

    Args:
        differences: float64 [pairs, f], the d.
        c: Above 0.

    Returns:
        float64 [f], and by which part of the objective it may be above the least possible.
    """
    from scipy.optimize import minimize

    def value(w, delta):
        short = 1 - differences @ w
        slope = np.clip(short / delta, 0, 1)
        loss = slope @ (short - delta * slope / 2)
        return w @ w / 2 + c * loss, w - c * (slope @ differences)

    def hessian(w, delta):
        short = 1 - differences @ w
        curved = differences[(short > 0) & (short < delta)]
        return np.eye(len(w)) + c / delta * (curved.T @ curved)

    w, primal, gap = np.zeros(differences.shape[1]), c * len(differences), 1.0
    for delta in _SMOOTHING:
        settings = {"gtol": _GAP / 100 * primal / (1 + np.linalg.norm(w)), "max_trust_radius": np.inf, "maxiter": 200}
        w = minimize(value, w, (delta,), "trust-exact", jac=True, hess=hessian, options=settings).x
        short = 1 - differences @ w
        slope = np.clip(short / delta, 0, 1)
        primal = w @ w / 2 + c * np.maximum(short, 0).sum()
        dual = c * slope.sum() - np.sum((c * (slope @ differences)) ** 2) / 2
        gap = (primal - dual) / primal
        if gap <= _GAP:
            break
    return w, float(gap)


@BASELINES.register(
    "LambdaMART",
    summary="Boosted regression trees that are grown for nDCG (LightGBM).",
    citation="ke2017lightgbm",
)
def lambda_mart(splits: Splits) -> Model:
    """Boosted trees on lambda gradients (Burges 2010) by LightGBM (Ke et al. 2017), with the library's settings.

    Trees are added until nDCG(dcg='exp-log2')@10 of the validation queries has not risen for ``PATIENCE`` trees,
    ``MOST_TREES`` at most, and the best number is kept. Where no validation query has documents of different
    labels, there are ``TREES``.

    Raises:
        DataError: No training query has documents of different labels, or LightGBM refuses the data: a label above 30,
            a query of more than 10,000 documents.
        MissingExtraError: LightGBM is not installed.
    """
    try:
        import lightgbm
    except ImportError as missing:
        raise MissingExtraError("lightgbm", "lambdamart", "The baseline LambdaMART") from missing

    train, vali = splits.train, splits.vali
    if not _rankable(train):
        raise _nothing_to_rank("LambdaMART", splits)
    settings = {
        "objective": "lambdarank", "metric": "ndcg", "eval_at": [10], "seed": _SEED, "deterministic": True,
        "force_row_wise": True, "verbosity": -1, "num_threads": 1 if train.features.size < _THREADS_PAY else 0,
    }  # fmt: skip
    learned = lightgbm.Dataset(train.features, train.labels, group=train.lengths, params=settings)
    trees, judge, how = TREES, {}, "there are no validation queries to choose the number by"
    if vali is not None and _rankable(vali):
        judged = learned.create_valid(vali.features, vali.labels, group=vali.lengths, params=settings)
        judge = {"valid_sets": [judged], "callbacks": [lightgbm.early_stopping(PATIENCE, verbose=False)]}
        trees, how = MOST_TREES, "the number with the best nDCG(dcg='exp-log2')@10 on the validation queries"
    try:
        booster = lightgbm.train(settings, learned, trees, **judge)
    except lightgbm.basic.LightGBMError as cause:
        raise DataError(f"LambdaMART cannot be trained on {splits.name!r}: LightGBM says: {cause}.") from cause
    notes = (f"LambdaMART: {booster.best_iteration if judge else booster.current_iteration()} trees; {how}.",)

    def predict(features: np.ndarray) -> np.ndarray:
        return np.asarray(booster.predict(features))

    if np.ptp(predict(train.features)) == 0:
        notes += ("LambdaMART: all documents have the same score; the trees found nothing to split by.",)
    return Model("LambdaMART", train.n_features, None, notes, predict)


@BASELINES.register("BestFeature", summary="The one feature, rising or falling, that ranks training queries best.")
def best_feature(splits: Splits) -> Model:
    """The single feature with the highest mean nDCG(dcg='exp-log2')@10 on the training queries, or its negative.

    It needs hardly any learning. Documents with equal values count as in the mean over their orders.
    """
    train, values = splits.train, np.zeros(2 * splits.train.n_features)  # features rising, then falling
    for _, queries in train.buckets():
        features, labels, where = map(np.asarray, (queries.features, queries.labels, queries.where))
        for number, scores in enumerate(np.moveaxis(np.concatenate([features, -features], axis=-1), -1, 0)):
            values[number] += ndcg(scores, labels, where, k=10, ties="expected", dcg="exp-log2").sum()
    values /= train.n_queries
    best = int(np.argmax(values))
    weights = np.zeros(train.n_features, np.float32)
    weights[best % train.n_features] = 1.0 if best < train.n_features else -1.0
    which = f"number {best % train.n_features + 1}, {'rising' if best < train.n_features else 'falling'}"
    note = f"BestFeature: {which}; nDCG(dcg='exp-log2')@10 {values[best]:.4f} on the training queries."
    return _linear("BestFeature", weights, (note,))


def label_pairs(queries: QuerySet, most: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Pairs of documents of one query with different labels.

    Args:
        queries: Labelled queries.
        most: Pairs at most, at least 1; of more, ``most`` are drawn evenly at random, always the same.

    Returns:
        int64 [pairs], rows of the documents with the higher label; int64 [pairs], those with the lower; and the number
        of all pairs there are.
    """
    query = np.repeat(np.arange(queries.n_queries), queries.lengths)
    rows = np.lexsort((queries.labels, query))  # query by query, labels ascending
    labels, start = queries.labels[rows], queries.offsets[query]
    new = np.ones(len(rows), bool)
    new[1:] = (labels[1:] != labels[:-1]) | (query[1:] != query[:-1])
    first = np.maximum.accumulate(np.where(new, np.arange(len(rows)), 0))  # of the documents with this label
    lower = first - start  # documents of the query with a lower label
    upto = np.cumsum(lower)
    total = int(upto[-1])
    if total <= most:
        number = np.arange(total)
    else:
        number = np.sort(np.random.default_rng(_SEED).choice(total, most, replace=False, shuffle=False))
    # Pairs are numbered document by document.
    high = np.searchsorted(upto, number, side="right")
    return rows[high], rows[start[high] + number - (upto - lower)[high]], total


def _rankable(queries: QuerySet) -> bool:
    """True if some query has documents of different labels."""
    starts = queries.offsets[:-1]
    return bool(np.any(np.maximum.reduceat(queries.labels, starts) > np.minimum.reduceat(queries.labels, starts)))


def _nothing_to_rank(name: str, splits: Splits) -> DataError:
    return DataError(
        f"{name} learns from documents of one query with different labels, and no training query of {splits.name!r} "
        "has any. Leave this baseline out, or take data with labels."
    )


def _scale(train: QuerySet) -> tuple[np.ndarray, tuple[str, ...]]:
    """Divisors of the features for the linear baselines, float64 [f], and notes about them; see module."""
    if in_unit_range(train):
        return np.ones(train.n_features), ()
    deviation = train.features.std(axis=0, dtype=np.float64)
    constant = train.features.min(axis=0) == train.features.max(axis=0)  # whose deviation rounding may have made
    note = "Features outside [0, 1] were divided by their standard deviations to fit the linear baselines."
    return np.where(constant, 1.0, deviation), (note,)


def _linear(name: str, weights: np.ndarray, notes: tuple[str, ...]) -> Model:
    with np.errstate(over="ignore"):
        single = weights.astype(np.float32)
    if not np.isfinite(single).all():
        feature = int(np.argmin(np.isfinite(single)))
        raise DataError(
            f"the weight of feature {feature + 1} in {name} is {weights[feature]:.3g}, beyond 32 bits. "
            "Normalise the features."
        )
    if not single.any():
        notes += (f"{name}: all weights are 0; no feature tells better documents from worse ones.",)
    # In double precision: features of 10⁸ with tiny weights cancel.
    return Model(name, len(single), single, notes, lambda features: features.astype(np.float64) @ single)


@dataclass(frozen=True, eq=False)
class Baseline:
    """One label-trained ranker and its values.

    Attributes:
        name: Such as ``"MSE"``.
        per_query: Measure -> float64 [queries of all parts].
        notes: What a reader should know about it.
    """

    name: str
    per_query: dict[str, np.ndarray] = field(repr=False)
    notes: tuple[str, ...]


def baselines(
    names: tuple[str, ...],
    splits: Splits,
    metric: OnlineMetric,
    users: tuple[CascadeUser, ...],
    measures: tuple[str, ...],
    tie_orders: int,
) -> list[Baseline]:
    """Train and evaluate each; what was done before in this process is remembered, for sweeps.

    Args:
        names: Names of :data:`fedrank.ranking.baselines.BASELINES`.
        splits: The data.
        metric: Online metric whose exact expectation is wanted.
        users: Click models to take it under.
        measures: Offline measures.
        tie_orders: As for :class:`~fedrank.ranking.evaluate.Measurement`.

    Raises:
        FedrankError: No such baseline, or it cannot be trained on this data.
    """
    return [_evaluate_baseline(name, splits, metric, users, measures, tie_orders) for name in names]


@functools.lru_cache(maxsize=64)
def _evaluate_baseline(name, splits: Splits, metric, users, measures, tie_orders) -> Baseline:
    model = fit_baseline(name, splits)
    scores = np.concatenate([model.scores(part.features) for part in splits.parts().values()])
    values = Measurement(splits, metric, users, measures, tie_orders).per_query(scores[None])
    return Baseline(name, {measure: rows[0] for measure, rows in values.items()}, model.notes)
