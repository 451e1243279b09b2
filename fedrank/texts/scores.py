"""Measures of rankers of silos with texts: on a silo's own documents, and in a search of the whole federation.

``own``: a test query's judged and other own documents, as the papers measure it. ``federation``: the documents of
all silos are searched. Those that a search by BM25 finds at home, and those that it finds through the others' sketches,
are ranked together by the ranker; all relevant documents of the federation count, also those that nobody found.
``home`` is the same where only the silo's own documents are searched, as without a federation.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32

from fedrank.core.protocol import Party
from fedrank.metrics.offline import offline_metric
from fedrank.texts.silo_sketch import SiloSketch
from fedrank.texts.silo_sketch.state import SketchOwn, SketchRows, SketchState

#: Sets of documents that are ranked; see above.
SCOPES = ("own", "federation", "home")

#: Name of BM25 among the rankers; it is not trained.
UNTRAINED = "BM25"

#: Scores of documents that were not found, and of the padding that is ranked before them.
_NOT_FOUND, _PADDING = -1e30, -1e29


def depth_of(measure: str) -> int | None:
    """The cutoff in a measure's name, or None; a search of the federation needs one."""
    match = re.search(r"@(\d+)$", measure)
    return int(match.group(1)) if match else None


@functools.partial(jax.jit, static_argnums=(0, 1))
def scored(
    protocol: SiloSketch,
    measures: tuple[str, ...],
    states: SketchState,
    shared: SketchRows,
    own: SketchOwn,
    more: tuple[Array | np.ndarray, ...],
) -> dict[str, dict[str, dict[str, Float32[Array, "runs silos queries"]]]]:
    """Every measure of every query of every silo and run.

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

    def silo(state, own):
        place = own.features, own.split, own.number
        rows, mine = jax.tree.map(lambda leaf: leaf[place], (shared, more))
        lists = _lists(rows, *mine)
        models = protocol.models(state, Party(shared, own))
        rankers = {name: functools.partial(protocol.learner.scores, model) for name, model in models.items()}
        # The last column is BM25 before scaling.
        out = {name: _measured(lambda x, r=r: r(x[..., :-1]), lists, measures) for name, r in rankers.items()}
        return {**out, UNTRAINED: _measured(lambda x: x[..., -1], lists, measures)}

    return jax.vmap(jax.vmap(silo, in_axes=(None, 0)))(states, own)


class _Lists(NamedTuple):
    """Lists of documents, one for each query.

    Attributes:
        x: Features, and BM25 as the last column.
        labels: Grades.
        where: Whether a document counts: it is found or relevant.
        found: Whether it is found.
    """

    x: Float32[Array, "queries documents columns"]
    labels: Int32[Array, "queries documents"]
    where: Bool[Array, "queries documents"]
    found: Bool[Array, "queries documents"]


def _lists(
    rows: SketchRows,
    found: Bool[Array, "queries documents"],
    cross_found: Bool[Array, "queries foreign"],
    bm25: Float32[Array, "queries documents"],
    cross_bm25: Float32[Array, "queries foreign"],
    missed: Int32[Array, "queries missed"],
) -> dict[str, _Lists]:
    """The lists that are ranked in each scope."""
    queries, features = rows.x.shape[0], rows.x.shape[-1]
    own = jnp.concatenate([rows.x, bm25[..., None]], axis=-1)
    cross = jnp.concatenate([rows.cross_x, cross_bm25[..., None]], axis=-1)
    nothing = jnp.zeros((queries, missed.shape[1], features + 1))
    x = jnp.concatenate([own, cross, nothing], axis=1)
    labels = jnp.concatenate([rows.y, rows.cross_y, missed], axis=1)
    here = rows.where & found
    relevant = [rows.where & (rows.y > 0), rows.cross_where & (rows.cross_y > 0), missed > 0]
    unseen = jnp.zeros_like(missed, bool)
    anywhere = jnp.concatenate([here, cross_found, unseen], axis=1)
    at_home = jnp.concatenate([here, jnp.zeros_like(cross_found), unseen], axis=1)
    counts = jnp.concatenate(relevant, axis=1)
    return {
        "own": _Lists(own, rows.y, rows.where, rows.where),
        "federation": _Lists(x, labels, anywhere | counts, anywhere),
        "home": _Lists(x, labels, at_home | counts, at_home),
    }


def _measured(
    ranker: Callable[[Array], Array], lists: dict[str, _Lists], measures: tuple[str, ...]
) -> dict[str, dict[str, Float32[Array, " queries"]]]:
    """Values of one ranker by scope and measure."""
    out: dict[str, dict[str, jax.Array]] = {}
    for scope, (x, labels, where, found) in lists.items():
        scores = jnp.where(found, ranker(x), _NOT_FOUND)
        out[scope] = {}
        for name in measures:
            cutoff = depth_of(name)
            if scope == "own":
                out[scope][name] = offline_metric(name)(scores, labels, where)
            elif cutoff is not None:
                # Padding fills the ranks down to the cutoff, so that documents that nobody found are never among them.
                columns = [(scores, _PADDING), (labels, 0), (where, True)]
                padded = (jnp.pad(a, ((0, 0), (0, cutoff)), constant_values=value) for a, value in columns)
                out[scope][name] = offline_metric(name)(*padded)
    return out
