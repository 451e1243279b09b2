"""State of silos and server while one ranker is trained over cross-silo pairs."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import jax
from jaxtyping import Array, Bool, Float32, Int32, UInt32

from fedrank.core.protocol import Party

#: An array of NumPy while rows are made, of JAX in training.
AnyArray: TypeAlias = Any

#: Parts of a silo's queries; ``UNUSED`` for queries of no part, and for padding.
TRAIN, VALI, TEST, UNUSED = 0, 1, 2, -1


class SketchRows(NamedTuple):
    """Rows of one silo, or with leading axes [feature sets, splits, silos] those of every silo.

    Attributes:
        x: Features of own queries with own documents.
        y: Grades of these pairs.
        where: False on padding.
        part: :data:`TRAIN`, :data:`VALI`, :data:`TEST` or :data:`UNUSED` of each query.
        cross_x: Features of own queries with others' documents.
        cross_y: True grades of these pairs, which no silo knows: for controls of a simulation, else 0.
        cross_where: False on padding.
        rows: Places, in queries · documents, of the labelled training rows; then padding.
        cross_rows: Likewise, in queries · foreign, of the cross pairs of training queries.
        queries: Numbers of the training queries; then padding.
        counts: Numbers of entries of ``rows``, ``cross_rows`` and ``queries`` that are no padding.
    """

    x: Float32[AnyArray, "*lead queries documents features"]
    y: Int32[AnyArray, "*lead queries documents"]
    where: Bool[AnyArray, "*lead queries documents"]
    part: Int32[AnyArray, "*lead queries"]
    cross_x: Float32[AnyArray, "*lead queries foreign features"]
    cross_y: Int32[AnyArray, "*lead queries foreign"]
    cross_where: Bool[AnyArray, "*lead queries foreign"]
    rows: Int32[AnyArray, "*lead rows"]
    cross_rows: Int32[AnyArray, "*lead cross_rows"]
    queries: Int32[AnyArray, "*lead training"]
    counts: Int32[AnyArray, "*lead 3"]


class SketchOwn(NamedTuple):
    """Own state of one silo, or with leading axes [runs, silos] that of every silo.

    Attributes:
        features: Number of its feature set; 0 where there is one.
        split: Number of the division of its queries.
        number: Number of the silo.
        beta: β, weight of guessed labels.
        truth: Whether its cross pairs have their true labels, a control of simulations.
        local: Its own ranker, Local.
        plus: Its own ranker trained on own guesses, too: Local+.
        guessed: Labels of its cross pairs, as distributions over the grades.
    """

    features: Int32[Array, "*lead"]
    split: Int32[Array, "*lead"]
    number: Int32[Array, "*lead"]
    beta: Float32[Array, "*lead"]
    truth: Bool[Array, "*lead"]
    local: Float32[Array, "*lead size"]
    plus: Float32[Array, "*lead size"]
    guessed: Float32[Array, "*lead queries foreign grades"]


class SketchState(NamedTuple):
    """State of the server.

    Attributes:
        round: Number of the next round.
        weights: The common ranker.
        labeller: The model that guesses labels.
    """

    round: UInt32[Array, "*lead"]
    weights: Float32[Array, "*lead size"]
    labeller: Float32[Array, "*lead size"]


def rows_of(party: Party) -> SketchRows:
    """Rows of one silo, from those of all silos that a simulator holds."""
    own = party.own
    return jax.tree.map(lambda leaf: leaf[own.features, own.split, own.number], party.shared)
