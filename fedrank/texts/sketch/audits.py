"""Audits of the noise on sketches of documents: the code that silos run, with the operating system's randomness."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

from fedrank.core.privacy_report import DELTA, Unit
from fedrank.privacy.audit import Audit
from fedrank.texts.sketch.noise import SketchNoise

#: Rows of a sketch, which are the cells that an occurrence changes. More of them hide better what all say together.
_ROWS = 3
_OCCURRENCE = "a document has one more occurrence of a word, or not"


def _larger(cells: np.ndarray) -> Int64[np.ndarray, " trials"]:
    """In how many cells of an answer the likelier number is the larger one: all that Laplace noise leaves to know."""
    return (cells >= 1).sum(axis=-1)


def published_sketch(epsilon: float = 1.0, delta: float = DELTA) -> Audit:
    """A document's sketch that is handed out once.

    Args:
        epsilon: ε of an occurrence in everything that is handed out, in nats; sketches have four fifths of it.
        delta: Not used: Laplace noise has none.
    """
    noise = SketchNoise("publish-once", epsilon, z=_ROWS)

    def sample(world: int, trials: int) -> Int64[np.ndarray, " trials"]:
        return _larger(noise.publish(np.full((trials, _ROWS, 1), world, np.int32))[:, :, 0])

    return Audit(
        "published-sketch", Unit.OCCURRENCE, _OCCURRENCE, epsilon * noise.part("sketches"), sample, ordered=True
    )
