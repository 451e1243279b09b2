"""Measures of rankers of silos with texts: on a silo's own documents, and in a search of the whole federation.

``own``: a test query's judged and other own documents, as the papers measure it. ``federation``: the documents of
all silos are searched. Those that a search by BM25 finds at home, and those that it finds through the others' sketches,
are ranked together by the ranker; all relevant documents of the federation count, also those that no search found.
``home`` is the same where only the silo's own documents are searched, as without a federation.

**The gate**: a silo adopts the federation's ranker only if its own held-out queries show that this ranks them better.

Both papers report silos whose ranking a federation made worse. Only the silo knows its held-out queries, and decides
by itself. It adopts where the lower end of an interval of the mean difference over queries is
above 0; a few queries seldom show that, and then it keeps what it has.

For the gate all of a silo's queries but those of the test are held out from learning once (cross-validation). The
federation learns once for each fold, with the fold's queries held out at every silo; a query's value is that of
rankers which did not learn from it. With four folds and a fifth of the queries for the test, a fold learns from three
fifths of them, as the run does. Features keep their scale, which is that of the run's training rows and has no labels
in it. In a federation each fold's models would cross as those of the run do.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Int32, Integer, Shaped
from scipy import stats

from fedrank.core.arrays import JaxArray as Array
from fedrank.core.lazy import jax, jit
from fedrank.core.protocol import Party
from fedrank.core.trees import Json
from fedrank.engine.model import blocks, scores
from fedrank.engine.simulator import Simulator, run_keys
from fedrank.metrics.offline import offline_metric
from fedrank.texts.rows import ISOLATED, SKETCHED, TextRows
from fedrank.texts.silo_sketch import FEDERATED, SiloSketch
from fedrank.texts.silo_sketch.state import TEST, TRAIN, VALI, SketchOwn, SketchRows, SketchState, grown, places_of

#: Documents that are scored at once.
ROWS = 4096

#: Name of BM25 among the rankers; it is not trained.
UNTRAINED = "BM25"

#: Scores of documents that were not found, and of the padding that is ranked before them.
NOT_FOUND, PADDING = -1e30, -1e29


def depth_of(measure: str) -> int | None:
    """The cutoff in a measure's name, or None; a search of the federation needs one."""
    match = re.search(r"@(\d+)$", measure)
    return int(match.group(1)) if match else None


def score_all(
    protocol: SiloSketch,
    measures: tuple[str, ...],
    states: SketchState,
    shared: SketchRows,
    own: SketchOwn,
    more: tuple[Array | np.ndarray, ...],
) -> dict[str, dict[str, dict[str, Float32[np.ndarray, "runs silos queries"]]]]:
    """Every measure of every query of every silo and run.

    Documents are scored by the program that scores them for a model from a file (:mod:`fedrank.engine.model`).

    Args:
        protocol: The protocol.
        measures: Names of :func:`~fedrank.metrics.offline.offline_metric`.
        states: Server states; leaves [runs, …].
        shared: Rows of all silos; leaves [feature sets, splits, silos, …].
        own: Own states of the silos; leaves [runs, silos, …].
        more: ``found``, ``cross_found``, ``bm25``, ``cross_bm25`` and ``missed`` of
            :class:`~fedrank.texts.rows.TextRows`.

    Returns:
        Values by name of the ranker, scope and measure: float32 [runs, silos, queries].
    """
    models = jax.device_get(_models(protocol, states, shared, own))
    places = [np.asarray(leaf) for leaf in (own.features, own.split, own.number)]
    rows = [np.asarray(leaf) for leaf in (shared.x, shared.cross_x)]
    *_, queries, documents, _ = rows[0].shape
    n = queries * (documents + rows[1].shape[-2])
    known: dict[tuple[int, ...], list[jax.Array]] = {}
    found: dict[str, np.ndarray] = {}
    for run, silo in np.ndindex(places[0].shape):
        where = tuple(int(leaf[run, silo]) for leaf in places)
        if where not in known:
            joined = np.concatenate([part[where] for part in rows], axis=1)
            known[where] = blocks(joined.reshape(n, -1), ROWS)
        for name, vectors in models.items():
            table = found.setdefault(name, np.zeros((*places[0].shape, queries, n // queries), np.float32))
            table[run, silo] = scores(protocol.learner, vectors[run, silo], known[where], n).reshape(queries, -1)
    at = tuple(places)
    y, where, cross_y, cross_where = (
        np.asarray(leaf)[at] for leaf in (shared.y, shared.where, shared.cross_y, shared.cross_where)
    )
    reached, cross_reached, bm25, cross_bm25, missed = (np.asarray(leaf)[at] for leaf in more)
    lists = _lists(y, where, cross_y, cross_where, reached, cross_reached, missed)
    found[UNTRAINED] = np.concatenate([bm25, cross_bm25], axis=-1)
    return {name: _measure(one, lists, measures) for name, one in found.items()}


@functools.partial(jit, static_argnums=0)
def _models(
    protocol: SiloSketch, states: SketchState, shared: SketchRows, own: SketchOwn
) -> dict[str, Float32[Array, "runs silos size"]]:
    """The rankers of each silo and run by name."""

    def silo(state, own):
        return protocol.models(state, Party(shared, own))

    return jax.vmap(jax.vmap(silo, in_axes=(None, 0)))(states, own)


class _Lists(NamedTuple):
    """Lists of documents, one for each query of each silo and run.

    Attributes:
        labels: Grades.
        where: Whether a document counts: it is found or relevant.
        found: Whether it is found.
    """

    labels: Int32[np.ndarray, "runs silos queries documents"]
    where: Bool[np.ndarray, "runs silos queries documents"]
    found: Bool[np.ndarray, "runs silos queries documents"]


def _lists(
    y: Int32[np.ndarray, "runs silos queries documents"],
    where: Bool[np.ndarray, "runs silos queries documents"],
    cross_y: Int32[np.ndarray, "runs silos queries foreign"],
    cross_where: Bool[np.ndarray, "runs silos queries foreign"],
    found: Bool[np.ndarray, "runs silos queries documents"],
    cross_found: Bool[np.ndarray, "runs silos queries foreign"],
    missed: Int32[np.ndarray, "runs silos queries missed"],
) -> dict[str, _Lists]:
    """Lists that are ranked in each scope: own documents, those of others, then those that no search found."""
    labels, unseen = np.concatenate([y, cross_y, missed], axis=-1), np.zeros_like(missed, bool)
    relevant = np.concatenate([where & (y > 0), cross_where & (cross_y > 0), missed > 0], axis=-1)
    anywhere = np.concatenate([where & found, cross_found, unseen], axis=-1)
    at_home = np.concatenate([where & found, np.zeros_like(cross_found), unseen], axis=-1)
    return {
        "own": _Lists(y, where, where),
        "federation": _Lists(labels, anywhere | relevant, anywhere),
        "home": _Lists(labels, at_home | relevant, at_home),
    }


def pad_lists(
    lists: Sequence[Shaped[np.ndarray, "*lists documents"]], values: Sequence[Any], width: int
) -> list[Shaped[np.ndarray, "*lists padded"]]:
    """Arrays with ``width`` more documents at the end of each list, each array with a value of its kind there."""
    each = [[*[(0, 0)] * (np.ndim(one) - 1), (0, width)] for one in lists]
    return [np.pad(one, pads, constant_values=value) for one, pads, value in zip(lists, each, values, strict=True)]


def _measure(
    scores: Float32[np.ndarray, "runs silos queries scored"], lists: dict[str, _Lists], measures: tuple[str, ...]
) -> dict[str, dict[str, Float32[np.ndarray, "runs silos queries"]]]:
    """Values of one ranker's scores by scope and measure; documents that no search found have no score."""
    out: dict[str, dict[str, np.ndarray]] = {}
    for scope, (labels, where, found) in lists.items():
        width, out[scope] = labels.shape[-1], {}
        (given,) = pad_lists([scores], [0], max(0, width - scores.shape[-1]))
        given = np.where(found, given[..., :width], np.float32(NOT_FOUND))
        for name in measures:
            cutoff = depth_of(name)
            if scope == "own":
                out[scope][name] = offline_metric(name)(given, labels, where)
            elif cutoff is not None:
                # Padding fills the ranks down to the cutoff, so that documents that no search found are never among
                # them.
                out[scope][name] = offline_metric(name)(*pad_lists((given, labels, where), (PADDING, 0, True), cutoff))
    return out


#: Probability with which a silo adopts a ranker that is no better than what it has, about: queries of different folds
#: are ranked by rankers that share training rows.
ERROR = 0.05


def gate(
    values: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]],
    part: Integer[np.ndarray, "seeds silos queries"],
    measure: str,
    seeds: Sequence[int],
    names: Sequence[str],
    held: Mapping[str, Float[np.ndarray, "seeds silos queries"]] | None = None,
) -> dict[str, Json]:
    """Decisions of silos to adopt the federation's ranker, and their gain on test queries.

    By itself a silo has its own ranker and plain BM25, and keeps whichever ranks its held-out queries better. It adopts
    the federation's ranker where that is better still, and the lower end of the interval says so. This is about ranking
    the silo's own documents; the gate does not decide whether to show documents of others.

    Held out are all queries but those of the test, each ranked by rankers that did not learn from it
    (:mod:`fedrank.texts.scores`); without such values, the validation queries. Test queries never count.

    Args:
        values: Values of queries by method, scope and measure, float [seeds, silos, queries].
        part: Part that each query belongs to.
        measure: Name of the measure that decides.
        seeds: Seeds of the runs.
        names: Names of the silos.
        held: By method, values of queries by rankers that did not learn from them; NaN where there are none.

    Returns:
        The content of ``gate.json``: ``measure``, and in ``decisions`` for each seed and silo ``against`` (the better
        of the own ranker and BM25), ``vali`` and ``test`` (gain of the federation's ranker over that on held-out and on
        test queries), ``low`` (lower end of the one-sided 95 % interval of ``vali``), ``held`` (queries that decided),
        ``adopted``, and ``kept`` (gain on test queries with the gate).
    """
    own = {name: values[name]["own"][measure] for name in ("Local", UNTRAINED) if name in values}
    if not own:
        return {"measure": measure, "decisions": []}
    ours = {FEDERATED: values[FEDERATED]["own"][measure]}
    decisions = []
    for s, seed in enumerate(seeds):
        for k, name in enumerate(names):
            if held is None:
                decide = {name: table[s, k][part[s, k] == VALI] for name, table in (own | ours).items()}
            else:
                learnt = np.isin(part[s, k], (TRAIN, VALI)) & np.isfinite(held[FEDERATED][s, k])
                decide = {name: held[name][s, k][learnt] for name in own | ours}
            against = max(own, key=lambda ranker: _mean(decide[ranker]))
            differences = decide[FEDERATED].astype(np.float64) - decide[against].astype(np.float64)
            mean, low = _mean(differences), lower_end(differences)
            there = part[s, k] == TEST
            test = _mean((ours[FEDERATED][s, k] - own[against][s, k])[there])
            adopted = bool(low > 0)
            decisions.append(
                {
                    "seed": int(seed),
                    "silo": name,
                    "against": against,
                    "vali": mean,
                    "low": low,
                    "held": len(differences),
                    "test": test,
                    "adopted": adopted,
                    "kept": test if adopted else 0.0,
                }
            )
    return {"measure": measure, "decisions": decisions}


def lower_end(differences: Float[np.ndarray, " queries"]) -> float:
    """Lower end of the one-sided 95 % interval of a mean (Student's t); −∞ for fewer than two values.

    >>> round(lower_end(np.array([0.1, 0.2, 0.3])), 4)
    0.0314
    """
    n = len(differences)
    if n < 2:
        return -math.inf
    half = float(stats.t.ppf(1 - ERROR, n - 1) * differences.std(ddof=1) / math.sqrt(n))
    return float(differences.mean()) - half


def _mean(values: Float[np.ndarray, " queries"]) -> float:
    """Mean of values; NaN where there are none."""
    return float(values.mean()) if len(values) else float("nan")


#: Keeps the random numbers of the folds apart from other uses of a run's seed.
_SEED = 0xF01D


def cross_validated(
    protocol: SiloSketch,
    arrays: TextRows,
    seeds: Sequence[int],
    rounds: int,
    folds: int,
    measure: str,
    simulator: Simulator,
    stage: Callable[[str], None],
) -> dict[str, Float[np.ndarray, "seeds silos queries"]]:
    """Values of queries by rankers that did not learn from them, of a silo's own documents.

    Args:
        protocol: The training.
        arrays: Rows of the run.
        seeds: Seeds of the run.
        rounds: Rounds of a fold.
        folds: Number of folds, at least 2.
        measure: The measure, as :func:`~fedrank.metrics.offline.offline_metric` takes it.
        simulator: What simulates.
        stage: Called with what is being done.

    Returns:
        By the name of the ranker (the federation's, Local, BM25); NaN for queries of the test and of no part.
    """
    part = np.asarray(arrays.rows.part)[0]
    fold_of = _folds(part, seeds, folds)
    found = {name: np.full(part.shape, np.nan) for name in (FEDERATED, "Local", UNTRAINED)}
    more = tuple(np.asarray(leaf)[[SKETCHED, ISOLATED]] for leaf in arrays[1:])
    keys = run_keys(np.tile(np.asarray(seeds), 2))
    for fold, rows in enumerate(_rows_of_folds(arrays.rows, fold_of, folds)):
        stage(f"Cross-validation for the gate, fold {fold + 1} of {folds}")
        parties = protocol.parties(rows, [protocol.training.beta, 0.0], [0, 1], [False, False])
        states, own = simulator.start(keys, parties, per_run=True)
        states, own, _ = simulator.advance(keys, states, parties.shared, own, 0, rounds)
        values = score_all(protocol, (measure,), simulator.server(states), parties.shared, own, more)
        # The first runs are the federation's; in the others each silo has its own statistics, as without one.
        for name, runs in ((FEDERATED, slice(0, len(seeds))), ("Local", slice(len(seeds), None)),
                           (UNTRAINED, slice(len(seeds), None))):  # fmt: skip
            values_of = np.asarray(values[name]["own"][measure])[runs]
            found[name] = np.where(fold_of == fold, values_of, found[name])
    return found


def _folds(
    part: Integer[np.ndarray, "seeds silos queries"], seeds: Sequence[int], folds: int
) -> Integer[np.ndarray, "seeds silos queries"]:
    """The fold of each query, by lot and evenly; −1 for queries of the test and of no part."""
    out = np.full(part.shape, -1)
    for s, seed in enumerate(seeds):
        for k in range(part.shape[1]):
            queries = np.flatnonzero(np.isin(part[s, k], (TRAIN, VALI)))
            lot = np.random.default_rng([int(seed), k, _SEED]).permutation(len(queries))
            out[s, k, queries[lot]] = np.arange(len(queries)) % folds
    return out


def _rows_of_folds(
    rows: SketchRows, fold_of: Integer[np.ndarray, "seeds silos queries"], folds: int
) -> Iterator[SketchRows]:
    """The rows with each fold in turn held out; of one shape, so that the folds share a compiled program."""
    two = SketchRows(*(np.asarray(leaf)[[SKETCHED, ISOLATED]] for leaf in rows))
    names = ("rows", "cross_rows", "queries")
    made = []
    for fold in range(folds):
        part = np.where(fold_of == fold, VALI, np.where(fold_of >= 0, TRAIN, two.part))
        made.append((part, {at: places_of(part[at], two.where[at], two.cross_where[at])
                            for at in np.ndindex(part.shape[:-1])}))  # fmt: skip
    widest = {name: max(1, *(len(one[name]) for _, places in made for one in places.values())) for name in names}
    for part, places in made:
        leaves = {name: np.zeros((*part.shape[:-1], widest[name]), np.int32) for name in names}
        counts = np.zeros((*part.shape[:-1], len(names)), np.int32)
        for at, one in places.items():
            counts[at] = one["counts"]
            for name in names:
                leaves[name][at] = grown(one[name], (widest[name],), 0)
        yield two._replace(part=part, counts=counts, **leaves)
