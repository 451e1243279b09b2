"""From the rows that a silo made in the opening to the arrays that training takes; and the opening's chance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fedrank.texts.silo_sketch.state import TRAIN, UNUSED, SketchRows

#: Keeps the chance of a simulated opening apart from other uses of a run's seed.
SETUP_SEED = 0x5E7C


class Size(NamedTuple):
    """How many rows arrays have room for.

    Attributes:
        queries: Queries of a silo.
        documents: Own documents of a query.
        foreign: Others' documents of a query.
    """

    queries: int
    documents: int
    foreign: int


def setup_generator(seed: int, exchange: int, party: int) -> np.random.Generator:
    """A simulated silo's chance in one exchange of the opening: the generator that a simulator of it makes.

    Args:
        seed: The run's.
        exchange: Number of the exchange, from 0.
        party: Number of the silo, from 0.
    """
    return np.random.default_rng(np.random.SeedSequence([seed, SETUP_SEED], spawn_key=(exchange, party)))


def size_of(own: Mapping[str, np.ndarray]) -> Size:
    """The room that a silo's rows need; ``own`` is what :func:`.exchange_sketches.rows_of_party` returns."""
    return Size(own["part"].size, own["where"].shape[1], own["cross_where"].shape[1])


def silo_arrays(own: Mapping[str, np.ndarray], size: Size, truth: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """One silo's fields of :class:`~fedrank.texts.silo_sketch.state.SketchRows`, without leading axes.

    Args:
        own: Its rows by name, as the opening leaves them.
        size: Room for rows; padding is not ``where``, and its queries are of no part.
        truth: True grades of its cross pairs, int [queries, foreign], which only a simulation knows; None: zeros.

    Returns:
        Arrays by the names of the fields. ``rows``, ``cross_rows`` and ``queries`` are as long as there are any.
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
    training = out["part"] == TRAIN
    for name, where in (("rows", "where"), ("cross_rows", "cross_where")):
        out[name] = np.flatnonzero((out[where] & training[:, None]).reshape(-1)).astype(np.int32)
    out["queries"] = np.flatnonzero(training).astype(np.int32)
    out["counts"] = np.array([len(out[name]) for name in ("rows", "cross_rows", "queries")], np.int32)
    return out


def alone(own: Mapping[str, np.ndarray]) -> SketchRows:
    """The rows of a deployed silo, which has only its own: leaves have the leading axes [1, 1, 1]."""
    arrays = silo_arrays(own, size_of(own))
    for name in ("rows", "cross_rows", "queries"):
        arrays[name] = grown(arrays[name], (max(1, len(arrays[name])),), 0)
    return SketchRows(**{name: arrays[name][None, None, None] for name in SketchRows._fields})


def grown(array: np.ndarray, shape: tuple[int, ...], value: Any) -> np.ndarray:
    """The array with its first axes grown to a shape, filled with ``value``."""
    out = np.full((*shape, *array.shape[len(shape) :]), value, array.dtype)
    out[tuple(slice(0, n) for n in array.shape[: len(shape)])] = array
    return out
