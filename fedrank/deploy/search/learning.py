"""Learning of an asker from its people's clicks on the lists that they were served.

The lists hold documents of all owners, each with its BM25 score and a few numbers
(:mod:`fedrank.texts.served.owner`). A list's base score is its BM25 score and, where owners have an encoder, a fixed
multiple of the cosine; what is learnt is a linear function of the numbers, added to it. It is learnt where the clicks
are, by devices of a hub (:class:`~fedrank.deploy.device.Device`, FOLtR-ES): clicks stay there, and what leaves is a
seed and a privatised number for several searches. Several askers learn one model at one hub.

A device looks at one list at a time. Where several people search at once, each list goes to the next of a few devices;
the hub's ε is then one of each of these devices, and not of a person.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Float64, Integer

from fedrank.core.errors import ConfigError, FedrankWarning
from fedrank.deploy.device import Device, Ranking
from fedrank.engine.model import read_model
from fedrank.texts.served.owner import COSINE, NAMES

_log = logging.getLogger("fedrank.search")


@dataclass(frozen=True, eq=False)
class Order:
    """A list in the order in which it is shown.

    Attributes:
        places: int64 [hits]: which hit stands at each rank.
        ranking: What clicks are reported about, and the device that they are reported to; None: nothing is learnt.
    """

    places: Integer[np.ndarray, " hits"]
    ranking: tuple[Device, Ranking] | None = None


@runtime_checkable
class Ranker(Protocol):
    """Ranker of hits."""

    def order(self, features: Float32[np.ndarray, "hits features"], base: Float32[np.ndarray, " hits"]) -> Order:
        """Order hits by base score and numbers, each as :func:`base_and_features` gives it."""
        ...


class FixedRanker:
    """Ranks by weights that were learnt before.

    Args:
        weights: One for each of the numbers of :data:`fedrank.texts.served.owner.NAMES`.

    Raises:
        ConfigError: There are more or fewer, or one is not finite.
    """

    def __init__(self, weights: Sequence[float]):
        self.weights = np.asarray(weights, np.float32)
        if self.weights.shape != (len(NAMES),) or not np.isfinite(self.weights).all():
            raise ConfigError(f"a ranker of a search has {len(NAMES)} weights ({', '.join(NAMES)}), got {weights!r}.")

    def order(self, features: Float32[np.ndarray, "hits features"], base: Float32[np.ndarray, " hits"]) -> Order:
        """See :class:`Ranker`."""
        return Order(np.argsort(-(base + features @ self.weights), kind="stable"))


#: Numbers of a hit in earlier versions, of which the middle two told exactly which words a document holds.
_FORMER = ("dense", "covered", "adjacent", "title")


def ranker_of(model: Path) -> FixedRanker:
    """The ranker that a model file holds: that of a hub, or of a run on lists that were served.

    A model of an earlier version has weights of four numbers. Those of the two numbers that owners do not give any more
    are left out, which a warning says.

    Raises:
        ModelError: The file is no model.
        ConfigError: The model is of something else.
    """
    found = read_model(model)
    weights = getattr(found, "weights", None)
    if weights is not None and np.shape(weights) == (len(_FORMER),):
        gone = [name for name in _FORMER if name not in NAMES]
        warnings.warn(
            f"{model}: is a model of an earlier version, with weights of {', '.join(_FORMER)}. Owners do not give "
            f"{' and '.join(gone)} any more; their weights are left out. Learn anew at a hub of {len(NAMES)} features.",
            FedrankWarning,
            stacklevel=2,
        )
        weights = np.asarray(weights)[[_FORMER.index(name) for name in NAMES]]
    if weights is None or np.shape(weights) != (len(NAMES),):
        raise ConfigError(f"{model}: is no ranker of a search, which has {len(NAMES)} weights ({', '.join(NAMES)}).")
    return FixedRanker(np.asarray(weights).tolist())


class LearningRanker:
    """Ranks by the newest model of a hub and learns from clicks.

    Args:
        hub: The hub's address.
        enrolment: Its enrolment token.
        folder: Folder for the devices' files, one folder each.
        devices: Number of devices, and so of lists that are looked at at once; each has its own ε of the hub.
        options: Further arguments of :class:`~fedrank.deploy.device.Device`.

    Raises:
        ConfigError: A setting can never work.
    """

    def __init__(
        self, hub: str, enrolment: str, folder: str | os.PathLike[str], *, devices: int = 1, **options: Any
    ) -> None:
        if not 1 <= devices <= 1000:
            raise ConfigError(f"devices must be in 1..1000, got {devices}.")
        self.devices = [
            Device(hub, enrolment, Path(folder) / f"device-{number}", **options) for number in range(devices)
        ]
        self._next = itertools.cycle(self.devices)
        self._lock, self._over = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    def order(self, features: Float32[np.ndarray, "hits features"], base: Float32[np.ndarray, " hits"]) -> Order:
        """See :class:`Ranker`; the documents at the ranks are the model's, or those of a perturbation that is tried."""
        with self._lock:
            device = next(self._next)
        start = np.argsort(-base, kind="stable")  # the order before there is a model
        ranking = device.rank(features[start], base[start])
        return Order(start[ranking.order], (device, ranking))

    def sync(self) -> float:
        """Have each device talk to the hub; returns the seconds after which to do so again."""
        return min(device.sync().next_in for device in self.devices)

    def start(self) -> None:
        """Synchronise in a thread, until :meth:`close`."""
        self._thread = threading.Thread(target=self._run, name="fedrank-learning", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            self._over.wait(max(0.1, self.sync()))

    def close(self) -> None:
        """End the thread and close the devices' files."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(timeout=10)
        for device in self.devices:
            device.close()


def report_click(order: Order, rank: int) -> bool:
    """Report a click on the document at a rank, from 0; returns whether it counts."""
    return order.ranking is not None and order.ranking[0].log_click(order.ranking[1], rank)


def base_and_features(
    scores: Sequence[float], features: Sequence[Sequence[float]], comparable: Sequence[bool], cosine: float = COSINE
) -> tuple[Float32[np.ndarray, " hits"], Float32[np.ndarray, "hits features"]]:
    """Input of a ranker: a base score, and the numbers of each hit.

    The base score is that of BM25 as a part of the list's best, plus ``cosine`` times the cosine.

    Args:
        scores: BM25 scores of a list's hits.
        features: Their numbers.
        comparable: Whether a hit's cosine is of the encoder that most owners have. The others take what the line
            through those (least squares over scores) says for their score; without any, all cosines count as 0.
        cosine: Weight of the cosine.
    """
    base = np.asarray(scores, np.float64)
    numbers: Float64[np.ndarray, "hits features"] = np.array(features, np.float64).reshape(len(base), len(NAMES))
    best = base.max(initial=0.0)
    base = base / best if best > 0 else base
    known = np.asarray(comparable, np.bool_)
    numbers[~known, 0] = _expected_cosines(base[known], numbers[known, 0], base[~known])
    return (base + cosine * numbers[:, 0]).astype(np.float32), numbers.astype(np.float32)


def _expected_cosines(
    scores: Float64[np.ndarray, " known"], cosines: Float64[np.ndarray, " known"], at: Float64[np.ndarray, " others"]
) -> Float64[np.ndarray, " others"]:
    """The cosines that hits with these scores are expected to have; 0 where none is known."""
    if not len(cosines):
        return np.zeros_like(at)
    spread = np.var(scores)
    slope = np.mean((scores - scores.mean()) * cosines) / spread if spread > 0 else 0.0
    return np.clip(cosines.mean() + slope * (at - scores.mean()), -1.0, 1.0)
