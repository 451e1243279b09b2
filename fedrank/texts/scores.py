"""Measures of rankers of silos with texts: on a silo's own documents, and in a search of the whole federation.

``own``: a test query's judged and other own documents, as the papers measure it. ``federation``: the documents of
all silos are searched. Those that a search by BM25 finds at home, and those that it finds through the others' sketches,
are ranked together by the ranker; all relevant documents of the federation count, also those that no search found.
``home`` is the same where only the silo's own documents are searched, as without a federation.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int32

from fedrank.core.arrays import AnyArray
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.lazy import jax, jit, jnp
from fedrank.core.protocol import Party
from fedrank.engine.scoring import blocks, scores
from fedrank.metrics.offline import offline_metric
from fedrank.texts.silo_sketch import SiloSketch
from fedrank.texts.silo_sketch.state import SketchOwn, SketchRows, SketchState

#: Sets of documents that are ranked; see above.
SCOPES = ("own", "federation", "home")

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
) -> dict[str, dict[str, dict[str, Float32[Array, "runs silos queries"]]]]:
    """Every measure of every query of every silo and run.

    Documents are scored by the program that scores them for a model from a file (:mod:`fedrank.engine.scoring`).

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
    return _measured_all(measures, shared, own, more, found)


@functools.partial(jit, static_argnums=0)
def _models(
    protocol: SiloSketch, states: SketchState, shared: SketchRows, own: SketchOwn
) -> dict[str, Float32[Array, "runs silos size"]]:
    """The rankers of each silo and run by name."""

    def silo(state, own):
        return protocol.models(state, Party(shared, own))

    return jax.vmap(jax.vmap(silo, in_axes=(None, 0)))(states, own)


@functools.partial(jit, static_argnums=0)
def _measured_all(
    measures: tuple[str, ...],
    shared: SketchRows,
    own: SketchOwn,
    more: tuple[Array | np.ndarray, ...],
    found: dict[str, Float32[AnyArray, "runs silos queries documents"]],
) -> dict[str, dict[str, dict[str, Float32[Array, "runs silos queries"]]]]:
    """:func:`score_all` of scores of own documents, then of those of others, in each query."""

    def silo(own, found):
        place = own.features, own.split, own.number
        rows, mine = jax.tree.map(lambda leaf: leaf[place], (shared, more))
        reached, cross_reached, bm25, cross_bm25, missed = mine
        lists = _lists(rows, reached, cross_reached, missed)
        every = {**found, UNTRAINED: jnp.concatenate([bm25, cross_bm25], axis=1)}
        return {name: _measure(one, lists, measures) for name, one in every.items()}

    return jax.vmap(jax.vmap(silo))(own, found)


class _Lists(NamedTuple):
    """Lists of documents, one for each query.

    Attributes:
        labels: Grades.
        where: Whether a document counts: it is found or relevant.
        found: Whether it is found.
    """

    labels: Int32[Array, "queries documents"]
    where: Bool[Array, "queries documents"]
    found: Bool[Array, "queries documents"]


def _lists(
    rows: SketchRows,
    found: Bool[Array, "queries documents"],
    cross_found: Bool[Array, "queries foreign"],
    missed: Int32[Array, "queries missed"],
) -> dict[str, _Lists]:
    """Lists that are ranked in each scope: own documents, those of others, then those that no search found."""
    labels = jnp.concatenate([rows.y, rows.cross_y, missed], axis=1)
    here = rows.where & found
    relevant = [rows.where & (rows.y > 0), rows.cross_where & (rows.cross_y > 0), missed > 0]
    unseen = jnp.zeros_like(missed, bool)
    anywhere = jnp.concatenate([here, cross_found, unseen], axis=1)
    at_home = jnp.concatenate([here, jnp.zeros_like(cross_found), unseen], axis=1)
    counts = jnp.concatenate(relevant, axis=1)
    return {
        "own": _Lists(rows.y, rows.where, rows.where),
        "federation": _Lists(labels, anywhere | counts, anywhere),
        "home": _Lists(labels, at_home | counts, at_home),
    }


def _measure(
    scores: Float32[Array, "queries scored"], lists: dict[str, _Lists], measures: tuple[str, ...]
) -> dict[str, dict[str, Float32[Array, " queries"]]]:
    """Values of one ranker's scores by scope and measure; documents that no search found have no score."""
    out: dict[str, dict[str, jax.Array]] = {}
    for scope, (labels, where, found) in lists.items():
        width = labels.shape[1]
        given = jnp.pad(scores, ((0, 0), (0, max(0, width - scores.shape[1]))))[:, :width]
        given = jnp.where(found, given, NOT_FOUND)
        out[scope] = {}
        for name in measures:
            cutoff = depth_of(name)
            if scope == "own":
                out[scope][name] = offline_metric(name)(given, labels, where)
            elif cutoff is not None:
                # Padding fills the ranks down to the cutoff, so that documents that no search found are never among
                # them.
                columns = [(given, PADDING), (labels, 0), (where, True)]
                padded = (jnp.pad(a, ((0, 0), (0, cutoff)), constant_values=value) for a, value in columns)
                out[scope][name] = offline_metric(name)(*padded)
    return out
