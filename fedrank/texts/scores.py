"""What rankers of silos with texts are worth: on a silo's own documents, and in a search of the whole federation.

``own``: a test query's judged and other own documents, as the papers measure it. ``federation``: the query is asked of
everybody's documents. Those that a search by BM25 finds at home, and those that it finds through the others' sketches,
are ranked together by the ranker; all relevant documents of the federation count, also those that nobody found.
``home`` is the same where only the silo's own documents are searched: what there is without a federation.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fedrank.core.protocol import Party
from fedrank.metrics.offline import offline_metric
from fedrank.texts.silo_sketch import SiloSketch
from fedrank.texts.silo_sketch.state import SketchRows

#: What is searched.
SCOPES = ("own", "federation", "home")

#: Name of BM25 among the rankers: no training, no labels.
UNTRAINED = "BM25"

#: Scores of what was not found, and of stand-ins before it.
_NEVER, _BEFORE = -1e30, -1e29


def depth_of(measure: str) -> int | None:
    """The cutoff in a measure's name, or None: a search of the federation can only be measured down to one."""
    match = re.search(r"@(\d+)$", measure)
    return int(match.group(1)) if match else None


@functools.partial(jax.jit, static_argnums=(0, 1))
def scored(
    protocol: SiloSketch,
    measures: tuple[str, ...],
    states: Any,
    shared: SketchRows,
    own: Any,
    more: tuple[jax.Array, ...],
) -> dict[str, dict[str, dict[str, jax.Array]]]:
    """Every measure of every query of every silo and run.

    Args:
        protocol: The protocol.
        measures: Names of :func:`~fedrank.metrics.offline.offline_metric`.
        states: Server states [runs, …].
        shared: All silos' rows [feature sets, splits, silos, …].
        own: What silos have, [runs, silos, …].
        more: ``found``, ``cross_found``, ``bm25``, ``cross_bm25`` and ``missed`` of
            :class:`~fedrank.texts.rows.TextRows`.

    Returns:
        Name of the ranker, scope and measure to float32 [runs, silos, queries]. ``BM25`` has learnt nothing.
    """

    def silo(state, own):
        place = own.features, own.split, own.number
        rows, mine = jax.tree.map(lambda leaf: leaf[place], (shared, more))
        lists = _lists(rows, *mine)
        models = protocol.models(state, Party(shared, own))
        rankers = {name: functools.partial(protocol.learner.scores, model) for name, model in models.items()}
        # The last column is BM25 itself, before any scaling.
        out = {name: _measured(lambda x, r=r: r(x[..., :-1]), lists, measures) for name, r in rankers.items()}
        return {**out, UNTRAINED: _measured(lambda x: x[..., -1], lists, measures)}

    return jax.vmap(jax.vmap(silo, in_axes=(None, 0)))(states, own)


def _lists(
    rows: SketchRows,
    found: jax.Array,
    cross_found: jax.Array,
    bm25: jax.Array,
    cross_bm25: jax.Array,
    missed: jax.Array,
) -> dict[str, tuple]:
    """Of each scope: features and BM25, labels, whether a document counts and whether it is found."""
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
        "own": (own, rows.y, rows.where, rows.where),
        "federation": (x, labels, anywhere | counts, anywhere),
        "home": (x, labels, at_home | counts, at_home),
    }


def _measured(
    ranker: Callable[[jax.Array], jax.Array], lists: dict[str, tuple], measures: tuple[str, ...]
) -> dict[str, dict[str, jax.Array]]:
    out: dict[str, dict[str, jax.Array]] = {}
    for scope, (x, labels, where, found) in lists.items():
        scores = jnp.where(found, ranker(x), _NEVER)
        out[scope] = {}
        for name in measures:
            cutoff = depth_of(name)
            if scope == "own":
                out[scope][name] = offline_metric(name)(scores, labels, where)
            elif cutoff is not None:
                # Stand-ins fill the ranks down to the cutoff, so that what nobody found is never among them.
                grown = [(scores, _BEFORE), (labels, 0), (where, True)]
                padded = (jnp.pad(a, ((0, 0), (0, cutoff)), constant_values=value) for a, value in grown)
                out[scope][name] = offline_metric(name)(*padded)
    return out
