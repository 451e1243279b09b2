"""What rankers of silos with texts are worth: on a silo's own documents, and in a search of the whole federation.

``own``: a test query's judged and other own documents, as the papers measure it. ``federation``: the query is asked of
everybody's documents. Those that a search by BM25 finds at home, and those that it finds through the others' sketches,
are ranked together by the ranker; all relevant documents of the federation count, also those that nobody found.
``home`` is the same where only the silo's own documents are searched: what there is without a federation.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp

from fedrank.core.protocol import Party
from fedrank.metrics.offline import offline_metric
from fedrank.protocols.silo_sketch import SiloSketch
from fedrank.protocols.silo_sketch_state import SketchRows

#: What is searched.
SCOPES = ("own", "federation", "home")

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
    found: jax.Array,
    missed: jax.Array,
) -> dict[str, dict[str, dict[str, jax.Array]]]:
    """Every measure of every query of every silo and run.

    Args:
        protocol: The protocol.
        measures: Names of :func:`~fedrank.metrics.offline.offline_metric`.
        states: Server states [runs, …].
        shared: All silos' rows [feature sets, splits, silos, …].
        own: What silos have, [runs, silos, …].
        found: As in :class:`~fedrank.experiments.text_rows.TextRows`.
        missed: Likewise.

    Returns:
        Name of the ranker, scope and measure to float32 [runs, silos, queries].
    """

    def silo(state, own):
        place = own.features, own.split, own.number
        rows = jax.tree.map(lambda leaf: leaf[place], shared)
        lists = _lists(rows, found[place], missed[place])
        models = protocol.models(state, Party(shared, own))
        return {name: _measured(protocol, model, lists, measures) for name, model in models.items()}

    return jax.vmap(jax.vmap(silo, in_axes=(None, 0)))(states, own)


def _lists(rows: SketchRows, found: jax.Array, missed: jax.Array) -> dict[str, tuple]:
    """Of each scope: features, labels, whether a document counts and whether it is found."""
    relevant = rows.where & (rows.y > 0)
    queries, features = rows.x.shape[0], rows.x.shape[-1]
    nothing = jnp.zeros((queries, missed.shape[1], features))
    x = jnp.concatenate([rows.x, rows.cross_x, nothing], axis=1)
    labels = jnp.concatenate([rows.y, rows.cross_y, missed], axis=1)
    abroad = rows.cross_where & (rows.cross_y > 0)
    unseen = jnp.zeros_like(missed, bool)
    there = jnp.concatenate([(rows.where & found) | relevant, rows.cross_where, missed > 0], axis=1)
    home = jnp.concatenate([(rows.where & found) | relevant, abroad, missed > 0], axis=1)
    found_at_home = jnp.concatenate([rows.where & found, jnp.zeros_like(abroad), unseen], axis=1)
    found_anywhere = jnp.concatenate([rows.where & found, rows.cross_where, unseen], axis=1)
    return {
        "own": (rows.x, rows.y, rows.where, rows.where),
        "federation": (x, labels, there, found_anywhere),
        "home": (x, labels, home, found_at_home),
    }


def _measured(
    protocol: SiloSketch, model: jax.Array, lists: dict[str, tuple], measures: tuple[str, ...]
) -> dict[str, dict[str, jax.Array]]:
    out: dict[str, dict[str, jax.Array]] = {}
    for scope, (x, labels, where, found) in lists.items():
        scores = jnp.where(found, protocol.learner.scores(model, x), _NEVER)
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
