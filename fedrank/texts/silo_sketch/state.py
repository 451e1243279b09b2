"""What silos and server keep while one ranker is trained over cross-silo pairs."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from fedrank.core.protocol import Party

#: Parts of a silo's queries.
TRAIN, VALI, TEST, UNUSED = 0, 1, 2, -1


class SketchRows(NamedTuple):
    """Every silo's rows. Leaves have the leading axes [feature sets, splits, silos].

    Attributes:
        x: float32 [queries, documents, features]: own queries with own documents.
        y: int32 [queries, documents]: grades.
        where: bool [queries, documents].
        part: int32 [queries]: :data:`TRAIN`, :data:`VALI`, :data:`TEST`; :data:`UNUSED` on padding.
        cross_x: float32 [queries, foreign, features]: own queries with others' documents.
        cross_y: int32 [queries, foreign]: the true grades, which no silo knows: for controls of a simulation, else 0.
        cross_where: bool [queries, foreign].
        rows: int32 [n]: places, in queries · documents, of the labelled training rows; then padding.
        cross_rows: int32 [n]: likewise of cross pairs of training queries.
        queries: int32 [n]: numbers of the training queries; then padding.
        counts: int32 [3]: how many of ``rows``, ``cross_rows`` and ``queries`` there are.
    """

    x: Any
    y: Any
    where: Any
    part: Any
    cross_x: Any
    cross_y: Any
    cross_where: Any
    rows: Any
    cross_rows: Any
    queries: Any
    counts: Any


class SketchOwn(NamedTuple):
    """What a silo has for itself.

    Attributes:
        features: int32, which feature set it uses: 0 where there is one.
        split: int32, which division of its queries.
        number: int32, which silo it is.
        beta: float32, β.
        truth: bool, a control of simulations: cross pairs have their true labels.
        local: float32 [size], its own ranker.
        plus: float32 [size], Local+.
        guessed: float32 [queries, foreign, grades], the labels of its cross pairs as distributions.
    """

    features: Any
    split: Any
    number: Any
    beta: Any
    truth: Any
    local: Any
    plus: Any
    guessed: Any


class SketchState(NamedTuple):
    """What the server keeps.

    Attributes:
        round: uint32, number of the next round.
        weights: float32 [size], everybody's ranker.
        labeller: float32 [size].
    """

    round: jax.Array
    weights: jax.Array
    labeller: jax.Array


def rows_of(party: Party) -> SketchRows:
    """A silo's own rows."""
    own = party.own
    return jax.tree.map(lambda leaf: leaf[own.features, own.split, own.number], party.shared)
