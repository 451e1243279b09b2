"""Regression of a study: a silo's answers, and the analysis that asks for them.

Step ``moments`` gives the whole fit of a linear model and the start of all others; ``sums`` is one round of Newton's
method; ``meat`` gives robust covariances; ``patterns`` counts rows of equal columns in place of all of these.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_matrix
from scipy.special import gammaln

from fedrank.core.errors import DataError
from fedrank.silos.glm import Fit, Sums, maximise, symmetric
from fedrank.silos.studies import firth
from fedrank.silos.studies.families import Family, Linear, Logistic, Moments, NegativeBinomial, Poisson
from fedrank.silos.studies.meta import Estimates, chi2_tail
from fedrank.silos.studies.protocol import Analysis, Answers, Ask, Rows, run

#: Rows that are added up at once: a part of this size stays in a processor's cache.
_PART = 4096
#: A column whose part that no column before it explains is smaller (share of its square) says nothing new.
_ALIASED = 1e-9
#: Newton's decrement, as a share of the log-likelihood, after which the next step is the last.
_CLOSE = 1e-18
#: Newton's decrement below which coefficients that grow without end are given up.
_GIVEN_UP = 1e-6
#: Growth of a variance from the first point on that means that rows say nothing of a parameter.
_LOST = 1e4
#: Logarithm of θ to the mean count from which on counts have Poisson's variance.
_POISSON = 14.0


@dataclass(frozen=True, eq=False)
class RegressionFit(Estimates):
    """A regression of all silos' rows: parameters of the columns, by level of a multinomial outcome, after cut points.

    Attributes:
        family: Name of the family.
        dispersion: Variance of a linear model's errors; 1 for the other families.
        theta: θ of a negative binomial model and its standard error; NaN for the others.
        penalty: Strength of an L2 penalty on columns of deviation 1.
        profile: Profile likelihood of Firth's method; None for other fits.
    """

    family: str = ""
    dispersion: float = 1.0
    theta: tuple[float, float] = (np.nan, np.nan)
    penalty: float = 0.0
    profile: firth.Profile | None = None

    @property
    def statistic(self) -> Float[np.ndarray, " m"]:
        """Wald's statistic; with Firth's method the penalised likelihood ratio's χ² of one degree."""
        return super().statistic if self.profile is None else self.profile.statistic

    @property
    def p(self) -> Float[np.ndarray, " m"]:
        """Two-sided p-values that a parameter is 0; NaN with an L2 penalty."""
        if self.profile is not None:
            return chi2_tail(self.profile.statistic, 1)
        return super().p + (np.nan if self.penalty else 0.0)

    def interval(self, level: float = 0.95) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Ends of the confidence intervals; with Firth's method those of the level that was asked for."""
        return super().interval(level) if self.profile is None else (self.profile.low, self.profile.high)

    def notes(self) -> tuple[str, ...]:
        """See :meth:`Estimates.notes`."""
        out = list(super().notes())
        if self.penalty:
            out.append("With an L2 penalty estimates are pulled to 0; p-values do not hold and are not given.")
        if "log(theta)" in self.separated:
            out.append("θ has no finite estimate, as counts vary no more than Poisson's: take a Poisson model.")
        if self.profile is not None and np.isinf([self.profile.low, self.profile.high]).any():
            out.append("Where an interval has no end, none was found: the profile likelihood falls too slowly.")
        return tuple(out)


# What a silo answers.


def answer(family: Family, ask: Ask, blocks: Iterable[Rows]) -> Float[np.ndarray, " numbers"]:
    """A silo's answer.

    Args:
        family: Family of the regression.
        ask: The question.
        blocks: Its rows, at least one block, which may be without rows.
    """
    steps = {"moments": _moments, "sums": _sums, "firth": firth.answer, "meat": _meat, "patterns": _count_patterns}
    out = steps[ask.step](family, ask, _cut(blocks))
    return np.append(out, 0.0) if ask.step in ("moments", "patterns") else out  # the format has a count here, always 0


def _cut(blocks: Iterable[Rows]) -> Iterator[Rows]:
    """Parts of the blocks that a cache holds."""
    for block in blocks:
        for start in range(0, max(len(block.y), 1), _PART):
            yield Rows(*(column[start : start + _PART] for column in block))


def _moments(family: Family, ask: Ask, parts: Iterable[Rows]) -> Float[np.ndarray, " numbers"]:
    return sum(np.append(len(rows.y), family.moments(rows).flat()) for rows in parts)  # type: ignore[return-value]


def _sums(family: Family, ask: Ask, parts: Iterable[Rows]) -> Float[np.ndarray, " numbers"]:
    """Sums at each point, and the expected information where errors need it."""
    upper = np.triu_indices(ask.numbers["theta"].shape[1])

    def at(theta: np.ndarray, rows: Rows) -> np.ndarray:
        flat, expected = family.sums(theta, rows).flat(), family.expected_information(theta, rows)
        return flat if expected is None else np.concatenate([flat, expected[upper]])

    return sum(np.concatenate([at(theta, rows) for theta in ask.numbers["theta"]]) for rows in parts)  # type: ignore


def add_by_cluster(
    total: Float[np.ndarray, "before m"], scores: Float[np.ndarray, "rows m"], cluster: Int[np.ndarray, " rows"]
) -> Float[np.ndarray, "clusters m"]:
    """Sums of scores by cluster, with as many rows as clusters were met."""
    most = max(len(total), int(cluster.max(initial=-1)) + 1)
    place = csr_matrix((np.ones(len(cluster)), (cluster, np.arange(len(cluster)))), (most, len(cluster)))
    out = np.asarray(place @ scores)
    out[: len(total)] += total
    return out


def _meat(family: Family, ask: Ask, parts: Iterable[Rows]) -> Float[np.ndarray, " numbers"]:
    """Number of rows, or clusters, and the sum of the squares of their scores."""
    theta = ask.numbers["theta"]
    return sum_squares(((family.scores(theta, rows), rows) for rows in parts), len(theta), ask)


def sum_squares(
    parts: Iterable[tuple[Float[np.ndarray, "rows m"], Rows]], m: int, ask: Ask
) -> Float[np.ndarray, " numbers"]:
    """The upper triangle of the sum of squares of scores, and the number of rows, or of clusters if they are asked for.

    Args:
        parts: Scores, each with its rows.
        m: Numbers of a score.
        ask: The question.
    """
    clustered, meat, count, total = bool(ask.numbers["clusters"]), np.zeros((m, m)), 0, np.zeros((0, m + 1))
    for scores, rows in parts:
        if clustered:
            total = add_by_cluster(total, np.column_stack([scores, np.ones(len(scores))]), rows.cluster)
        else:
            meat, count = meat + scores.T @ scores, count + len(scores)
    if clustered:
        meat, count = total[:, :m].T @ total[:, :m], int((total[:, m] > 0).sum())
    return np.append(meat[np.triu_indices(m)], count)


def _count_patterns(family: Family, ask: Ask, parts: Iterable[Rows]) -> Float[np.ndarray, " numbers"]:
    """Of each pattern: rows, Σ w exp(offset), then Σw of each level, or Σw, Σwy, Σwy².

    The last number is Σ w (log y! − y·offset) of counts, and 0 of other outcomes.

    Raises:
        DataError: A row has none of the patterns.
    """
    patterns = ask.numbers["patterns"]
    key = np.random.default_rng(0).normal(size=patterns.shape[1])  # a different product for each pattern
    order = np.argsort(patterns @ key)
    known = (patterns @ key)[order]
    middle = (known[1:] + known[:-1]) / 2
    levels = 2 if isinstance(family, Logistic) else family.levels
    total, constant = np.zeros((len(patterns), 2 + (levels or 3))), 0.0
    for rows in parts:
        place = order[np.searchsorted(middle, rows.x @ key)]
        if not np.allclose(rows.x, patterns[place], rtol=0, atol=1e-9):
            raise DataError("a row's columns are none of the patterns that the question names; ask without patterns.")
        w, y = rows.weight, rows.y
        outcome = (y[:, None] == np.arange(levels)) * w[:, None] if levels else (w[:, None] * y[:, None] ** [0, 1, 2])
        numbers = np.column_stack([np.ones(len(y)), w * np.exp(rows.offset), outcome])
        total += csr_matrix((np.ones(len(y)), (place, np.arange(len(y)))), (len(patterns), len(y))) @ numbers
        constant += float(w @ (gammaln(y + 1) - y * rows.offset)) if isinstance(family, Poisson) else 0.0
    return np.append(total, constant)


# The analysis.


def fit(
    family: Family,
    names: Sequence[str],
    *,
    levels: Sequence[str] = (),
    own: Float[np.ndarray, "q q"] | None = None,
    intercept: bool = True,
    penalty: float = 0.0,
    robust: str = "",
    use_firth: bool = False,
    level: float = 0.95,
    most: int = 50,
) -> Analysis[RegressionFit]:
    """Fit a regression to the rows of all silos.

    Args:
        family: The family.
        names: Names of the design's columns, the intercept first if there is one.
        levels: Names of the outcome's levels; by default their numbers.
        own: Map from the coefficients of (a constant, the design's other columns) to those in the columns' own units;
            None: they are the same. Without an intercept its first row says what the constant would change by.
        intercept: Whether the first column is one of ones. Of an ordinal model there is none.
        penalty: Strength of an L2 penalty on columns of deviation 1, the intercept left out.
        robust: HC0, HC1 (Huber and White), or CR0, CR1 by cluster: a row, or a cluster, with its weight is one
            observation, as R's ``sandwich``.
            HC1 has the factor n/(n − k); CR1 has G/(G − 1), and of a linear model (n − 1)/(n − k) too, as ``vcovCL``.
        use_firth: Firth's method, of a logistic model, with profile likelihood.
        level: Level of the intervals of Firth's method.
        most: Rounds after which a search gives up.

    Raises:
        DataError: There are no rows, too few, or an outcome that does not vary.
    """
    levels = tuple(levels) or tuple(map(str, range(family.levels)))
    answers = yield Ask("moments")
    rows = {name: round(float(one[0])) for name, one in answers.items()}
    at = Moments.of(np.sum(list(answers.values()), axis=0)[1:-1], len(names), family.levels or 1)
    _check_outcome(family, at, levels)
    columns = independent(at.gram - np.outer(at.x, at.x) / at.exposure if family.has_cuts else at.gram)
    kept = family.mask(columns)
    if not kept.any():
        raise DataError("no column varies; there is nothing to fit.")
    size = len(names) + (not intercept)
    deviations = _deviations(family, at, intercept)
    ridge = family.in_own_units(np.diag(penalty * deviations**2), intercept)
    ridge = (ridge - family.in_own_units(np.zeros((size, size)), intercept))[np.ix_(kept, kept)]
    back = family.in_own_units(np.eye(size) if own is None else own, intercept)[np.ix_(kept, kept)]
    start, profile, ends = family.starts(at, columns, intercept)[:, kept], None, []
    if isinstance(family, Linear):
        made = _solve_linear(at, columns, ridge)
        information = made.at.information
    elif use_firth:
        scale = np.append(1.0, deviations[1:])[-len(kept) :][kept]
        begin = at.gram[np.ix_(kept, kept)] / 4
        made, profile = yield from firth.fit(start[0], begin, columns, back, scale, level, most)
        information = made.at.information
    else:
        # θ from which on counts have Poisson's variance, for the last parameter.
        top = _POISSON + np.log(1 + at.y[0] / at.weight) if isinstance(family, NegativeBinomial) else np.inf
        made, information, ends = yield from _climb(family, start, ridge, kept, float(top), most)
    weight, degrees, dispersion, value = float(at.weight), np.inf, 1.0, made.at.value
    if isinstance(family, Linear):
        degrees = weight - len(made.beta)
        if degrees <= 0:
            raise DataError(f"{weight:g} rows are too few for {len(made.beta)} coefficients with errors.")
        dispersion = -2 * value / degrees
        value = -0.5 * weight * (np.log(2 * np.pi * -2 * value / weight) + 1) if value else np.inf
    bread = invert(information + ridge)
    covariance, clusters = dispersion * bread, 0
    if robust:
        theta = np.zeros(len(kept))
        theta[kept] = made.beta
        answers = yield Ask("meat", {"theta": theta, "clusters": np.array(float(robust.startswith("CR")))})
        flat = np.sum(list(answers.values()), axis=0)
        meat, clusters = symmetric(flat[:-1], len(kept))[np.ix_(kept, kept)], round(float(flat[-1]))
        covariance = bread @ meat @ bread * _factor(robust, family, sum(rows.values()), int(columns.sum()), clusters)
    estimate = _spread_out(back @ made.beta, kept)
    covariance = _spread_out(back @ covariance @ back.T, kept)
    # In the columns' own units a constant follows a column without an end, unless both cancel.
    moved, most_moved = back[:, ends] @ made.step[ends], np.abs(back[:, ends]) @ np.abs(made.step[ends])
    labels, unknown = family.labels(names, levels), np.flatnonzero(kept)[np.abs(moved) > 0.3 * most_moved]
    separated = tuple(labels[k] for k in unknown)
    if separated:
        covariance[unknown] = covariance[:, unknown] = np.nan
    theta = np.nan, np.nan
    if isinstance(family, NegativeBinomial):
        theta = np.exp(estimate[-1]), np.exp(estimate[-1]) * np.sqrt(covariance[-1, -1])
    return RegressionFit(
        family=family.name,
        names=tuple(labels),
        estimate=estimate,
        covariance=covariance,
        degrees=degrees,
        log_likelihood=float(value),
        parameters=len(made.beta) + isinstance(family, Linear),
        rows=rows,
        rounds=1 + made.rounds + bool(robust),
        dispersion=dispersion,
        theta=(float(theta[0]), float(theta[1])),
        aliased=tuple(name for name, there in zip(names, columns, strict=True) if not there),
        separated=separated,
        penalty=penalty,
        robust=robust,
        clusters=clusters,
        profile=profile and firth.Profile(*(_spread_out(part, kept) for part in profile)),
        converged=made.converged,
    )


def fit_patterns(
    family: Family, patterns: Float[np.ndarray, "patterns p"], local: Analysis[RegressionFit]
) -> Analysis[RegressionFit]:
    """Fit a regression in one round, from the counts of rows of each pattern of the columns.

    Counts say all that the likelihood needs, without an offset (which a Poisson model may have). The server fits its
    own table of patterns.

    Args:
        family: Any but the negative binomial one.
        patterns: The patterns that a row of the design may have, no two alike.
        local: What :func:`fit` gives for the family, without a robust covariance.

    Raises:
        DataError: There are no rows, too few, or an outcome that does not vary.
    """
    answers = yield Ask("patterns", {"patterns": np.asarray(patterns, float)})
    total = np.sum(list(answers.values()), axis=0)
    table, constant = total[:-2].reshape(len(patterns), -1), float(total[-2])
    exposure, outcome = table[:, 1], table[:, 2:]
    used = table[:, 0] > 0
    if family.levels or isinstance(family, Logistic):
        place, y = np.nonzero(outcome > 0)
        rows = Rows.of(patterns[place], y, weight=outcome[place, y])
    else:
        weight, total_y, squares = outcome[used].T
        mean = total_y / weight
        if isinstance(family, Poisson):
            rows = Rows.of(patterns[used], mean, offset=np.log(exposure[used] / weight), weight=weight)
            constant -= float(weight @ (gammaln(mean + 1) - mean * rows.offset))
        else:  # two rows of each pattern with its mean and variance
            apart = np.sqrt(np.maximum(squares / weight - mean**2, 0.0))
            twice = np.concatenate([patterns[used]] * 2)
            rows = Rows.of(twice, np.append(mean - apart, mean + apart), weight=np.tile(weight / 2, 2))
    made = run(local, lambda ask: {"": answer(family, ask, [rows])})
    counted = [one[:-2].reshape(len(patterns), -1)[:, 0].sum() for one in answers.values()]
    return replace(
        made,
        log_likelihood=made.log_likelihood - (constant if isinstance(family, Poisson) else 0.0),
        rows={name: round(float(n)) for name, n in zip(answers, counted, strict=True)},
        rounds=1,
    )


def independent(gram: Float[np.ndarray, "p p"]) -> Bool[np.ndarray, " p"]:
    """The columns that those before them do not explain, by Cholesky's method on the sum of xx'."""
    kept = np.zeros(len(gram), bool)
    for column, own in enumerate(np.diag(gram)):
        before = np.flatnonzero(kept)
        part = np.linalg.solve(gram[np.ix_(before, before)], gram[before, column])
        kept[column] = own > 0 and own - float(gram[before, column] @ part) > _ALIASED * own
    return kept


def _deviations(family: Family, at: Moments, intercept: bool) -> Float[np.ndarray, " q"]:
    """Standard deviations of (a constant, the design's other columns); about 0 in a model without a constant."""
    mean, square = at.x / at.exposure, np.diag(at.gram) / at.exposure
    out = np.sqrt(np.maximum(square - (mean**2 if intercept or family.has_cuts else 0.0), 0.0))
    return np.append(0.0, out[1:] if intercept else out)


def endless(found: Fit, first: Float[np.ndarray, "m m"]) -> list[int]:
    """Numbers of the parameters that grow without end.

    Their rows say nothing of them any more: the variance is larger than the square of the estimate, and more than ten
    thousand times what it was at first.

    Args:
        found: Parameters and sums, at any point.
        first: Information at the first point.
    """
    variance, before = (np.diag(invert(one + found.penalty)) for one in (found.at.information, first))
    unknown = (variance > found.beta**2) & (variance > _LOST * before)
    return [int(k) for k in np.flatnonzero(unknown | ~(variance > 0))]


def _climb(
    family: Family,
    starts: Float[np.ndarray, "points k"],
    ridge: Float[np.ndarray, "k k"],
    kept: Bool[np.ndarray, " m"],
    top: float,
    most: int,
) -> Generator[Ask, Answers, tuple[Fit, Float[np.ndarray, "k k"], list[int]]]:
    """Newton's method by asks.

    Where the observed information is not positive definite, the expected one takes its place in a step.

    Args:
        family: The family.
        starts: Points of the first round.
        ridge: Λ.
        kept: The parameters that points have.
        top: Value of the last parameter above which it grows without end.
        most: Rounds after which the search gives up.

    Returns:
        The fit, the information for standard errors, and the numbers of the parameters that grow without end.
    """
    inner, half, m = np.ix_(kept, kept), 1 + len(kept) + len(kept) * (len(kept) + 1) // 2, len(kept)
    first: list[np.ndarray] = []
    expected: dict[int, tuple[Sums, np.ndarray]] = {}

    def find_endless(found: Fit) -> list[int]:
        return sorted({*endless(found, first[0]), *([len(found.beta) - 1] if found.beta[-1] > top else [])})

    def is_over(found: Fit, gain: float) -> bool:
        if found.beta[-1] > top:  # only the others count
            slope = (found.at.gradient - ridge @ found.beta)[:-1]
            gain = float(slope @ np.linalg.solve((found.at.information + ridge)[:-1, :-1], slope))
        return gain < _GIVEN_UP and bool(find_endless(found))

    search = maximise(
        starts, ridge, np.zeros(len(ridge)), most, close=_CLOSE, halvings=6, stretches=(4.0, 16.0), ask_last=False,
        enough=is_over,
    )  # fmt: skip
    points = next(search)
    while True:
        theta = np.zeros((len(points), m))
        theta[:, kept] = points
        answers = yield Ask("sums", {"theta": theta})
        news = []
        for flat in np.split(np.sum(list(answers.values()), axis=0), len(points)):
            sums = Sums.of(flat[:half], m)
            sums = Sums(sums.value, sums.gradient[kept], sums.information[inner])
            if len(flat) > half:
                by_design = symmetric(flat[half:], m)[inner]
                if np.linalg.eigvalsh(sums.information)[0] <= 0:
                    by_design[-1, -1] = abs(by_design[-1, -1])
                    sums = sums._replace(information=by_design)
                expected[id(sums)] = sums, by_design
            news.append(sums)
        first = first or [news[0].information]
        try:
            points = search.send(news)
        except StopIteration as end:
            made: Fit = end.value
            at = expected.get(id(made.at))
            return made, made.at.information if at is None else at[1], find_endless(made)


def _solve_linear(at: Moments, columns: Bool[np.ndarray, " p"], ridge: Float[np.ndarray, "k k"]) -> Fit:
    """The fit of a linear model from its moments."""
    gram, xy = at.gram[np.ix_(columns, columns)], at.xy[columns, 0]
    beta = np.linalg.solve(gram + ridge, xy)
    rest = float(at.yy - 2 * beta @ xy + beta @ gram @ beta)
    return Fit(beta, Sums(-0.5 * max(rest, 0.0), xy - gram @ beta, gram), ridge, 0, True)


def invert(matrix: Float[np.ndarray, "m m"]) -> Float[np.ndarray, "m m"]:
    """Inverse, or pseudo-inverse, after the diagonal is brought to 1."""
    scale = 1 / np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    return scale[:, None] * np.linalg.pinv(matrix * np.outer(scale, scale), hermitian=True) * scale


def _spread_out(values: Float[np.ndarray, "..."], kept: Bool[np.ndarray, " m"]) -> Float[np.ndarray, "..."]:
    """A vector or matrix of all parameters, NaN where one was not estimated."""
    out = np.full((len(kept),) * values.ndim, np.nan)
    out[np.ix_(*[kept] * values.ndim)] = values
    return out


def _factor(robust: str, family: Family, n: int, k: int, clusters: int) -> float:
    """Correction of a robust covariance for few rows or clusters."""
    linear = (n - 1) / (n - k) if isinstance(family, Linear) else 1.0
    return {"HC1": n / (n - k), "CR1": linear * clusters / max(clusters - 1, 1)}.get(robust, 1.0)


def _check_outcome(family: Family, at: Moments, levels: Sequence[str]) -> None:
    if not at.weight > 0:
        raise DataError("no row has all values; there is nothing to fit.")
    if family.levels and (missing := [name for name, count in zip(levels, at.y, strict=True) if not count > 0]):
        raise DataError(f"no row has the level {', '.join(missing)} of the outcome; leave the level out.")
    if isinstance(family, Logistic) and not 0 < at.y[0] < at.weight:
        raise DataError("all outcomes are alike; there is nothing to fit.")
    if isinstance(family, Poisson) and not at.y[0] > 0:
        raise DataError("all counts are 0; there is nothing to fit.")
