"""State of silos and server while one ranker is trained over cross-silo pairs.

Arrays for training, from the rows that a silo made in the setup; and the generators of a simulated setup.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float32, Int32, Integer, Shaped, UInt32

from fedrank.core.arrays import JaxArray as Array
from fedrank.core.lazy import jax
from fedrank.core.protocol import Party

#: An array of NumPy while rows are made, of JAX in training.
AnyArray: TypeAlias = Any

#: Parts of a silo's queries; ``UNUSED`` for queries of no part, and for padding.
TRAIN, VALI, TEST, UNUSED = 0, 1, 2, -1
#: Numbers of the parts by name.
PARTS = {"train": TRAIN, "vali": VALI, "test": TEST}


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
        features: Number of its feature set; 0 if there is only one.
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


#: Keeps the random numbers of a simulated setup apart from other uses of a run's seed.
SETUP_SEED = 0x5E7C


class Size(NamedTuple):
    """Shape of the arrays that hold a silo's rows.

    Attributes:
        queries: Number of queries of a silo.
        documents: Number of own documents of a query.
        foreign: Number of others' documents of a query.
    """

    queries: int
    documents: int
    foreign: int


def setup_generator(seed: int, exchange: int, party: int) -> np.random.Generator:
    """The generator of a simulated silo in one exchange of the setup, as the simulator makes it.

    Args:
        seed: Seed of the run.
        exchange: Number of the exchange, from 0.
        party: Number of the silo, from 0.
    """
    return np.random.default_rng(np.random.SeedSequence([seed, SETUP_SEED], spawn_key=(exchange, party)))


def size_of(own: Mapping[str, np.ndarray]) -> Size:
    """The smallest shape that holds a silo's rows, which are those of :func:`.exchange_sketches.rows_of_party`."""
    return Size(own["part"].size, own["where"].shape[1], own["cross_where"].shape[1])


def silo_arrays(
    own: Mapping[str, np.ndarray], size: Size, truth: Integer[np.ndarray, "queries foreign"] | None = None
) -> dict[str, np.ndarray]:
    """One silo's fields of :class:`~fedrank.texts.silo_sketch.state.SketchRows`, without leading axes.

    Args:
        own: Its rows by name, as the setup leaves them.
        size: Shape to pad to; padding is not ``where``, and its queries are of no part.
        truth: True grades of its cross pairs, which only a simulation knows; None for zeros.

    Returns:
        Arrays by the names of the fields. ``rows``, ``cross_rows`` and ``queries`` are not padded.
    """
    q, d, c = size
    out = {
        "x": grown(own["x"], (q, d), 0),
        "y": grown(own["y"], (q, d), 0),
        "where": grown(own["where"], (q, d), False),
        "part": grown(own["part"], (q,), UNUSED),
        "cross_x": grown(own["cross_x"], (q, c), 0),
        "cross_y": np.zeros((q, c), np.int32) if truth is None else grown(truth.astype(np.int32), (q, c), 0),
        "cross_where": grown(own["cross_where"], (q, c), False),
    }
    return {**out, **places_of(out["part"], out["where"], out["cross_where"])}


def places_of(
    part: Integer[np.ndarray, " queries"],
    where: Bool[np.ndarray, "queries documents"],
    cross_where: Bool[np.ndarray, "queries foreign"],
) -> dict[str, np.ndarray]:
    """Places of the training rows of a silo: ``rows``, ``cross_rows``, ``queries`` and their ``counts``.

    Args:
        part: Part of each query.
        where: False on padding.
        cross_where: The same of others' documents.
    """
    training = part == TRAIN
    out = {"rows": where & training[:, None], "cross_rows": cross_where & training[:, None], "queries": training}
    places = {name: np.flatnonzero(chosen.reshape(-1)).astype(np.int32) for name, chosen in out.items()}
    return {**places, "counts": np.array([len(places[name]) for name in out], np.int32)}


def alone(own: Mapping[str, np.ndarray]) -> SketchRows:
    """Rows of a deployed silo, which has only its own; leaves have the leading axes [1, 1, 1]."""
    arrays = silo_arrays(own, size_of(own))
    for name in ("rows", "cross_rows", "queries"):
        arrays[name] = grown(arrays[name], (max(1, len(arrays[name])),), 0)
    return SketchRows(**{name: arrays[name][None, None, None] for name in SketchRows._fields})


def grown(array: Shaped[np.ndarray, " ..."], shape: tuple[int, ...], value: Any) -> Shaped[np.ndarray, " ..."]:
    """The array with its first axes padded to ``shape`` by ``value``."""
    out = np.full((*shape, *array.shape[len(shape) :]), value, array.dtype)
    out[tuple(slice(0, n) for n in array.shape[: len(shape)])] = array
    return out
