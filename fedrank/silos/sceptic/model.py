"""The recommended model as an object that scores: every way but trees is one row of coefficients in the end."""

from __future__ import annotations

import numpy as np

from fedrank import __version__
from fedrank.core.errors import ModelError
from fedrank.silos.glm.sums import Moments
from fedrank.silos.model import SiloModel
from fedrank.silos.network import TabularNetwork
from fedrank.silos.sceptic.compare import Answer
from fedrank.silos.sceptic.learners import Glm, Scorer
from fedrank.silos.sceptic.ways import Stacked


def model_of(answer: Answer) -> SiloModel:
    """The model to use, trained on all of the target's rows; ``save`` writes it, ``fedrank evaluate`` reads it.

    A stacked model has one mean for what is missing, that of all silos' rows, where its parts have each their own:
    rows without gaps score the same.

    Args:
        answer: What was found.

    Raises:
        ModelError: Trees are recommended, which have no coefficients.
    """
    made = _linear(answer.chosen.models[answer.use])
    if made is None:
        raise ModelError(
            "boosted trees are recommended; they have no coefficients to write. Fit them with scikit-learn."
        )
    weights = np.concatenate(
        [np.stack([np.zeros(len(made.beta) - 1), made.beta[1:]], axis=1).ravel(), [0, made.beta[0]]]
    )
    return SiloModel(
        network=TabularNetwork(len(made.beta) - 1, (), "none"),
        weights=weights.astype(np.float32),
        mean=made.moments.mean,
        deviation=made.moments.deviation,
        names=answer.table.feature_names,
        coding=answer.table.coding,
        label=answer.table.label,
        about={
            "made_by": f"fedrank silos compare {__version__}",
            "data": answer.table.name,
            "generated": answer.table.generated,
            "party": answer.name,
            "way": answer.use,
        },
    )


def _linear(score: Scorer) -> Glm | None:
    """A model as coefficients of standardised columns; None if it is none."""
    if isinstance(score, Glm):
        return score
    if not isinstance(score, Stacked):
        return None
    parts = [part for part in map(_linear, score.parts) if part is not None]
    if len(parts) < len(score.parts):
        return None
    # The moments of all rows; those of the silo alone are among the parts, too.
    moments = parts[-1].moments
    slopes, constant = np.zeros(len(moments.mean)), float(score.weights[-1])
    for weight, part in zip(score.weights, parts, strict=False):
        own = _slopes(part)
        slopes += weight * own
        constant += float(weight) * (float(part.beta[0]) - float(own @ part.moments.mean))
    return Glm(np.append(constant + slopes @ moments.mean, slopes * moments.deviation), _kept(moments, slopes))


def _slopes(part: Glm) -> np.ndarray:
    """Coefficients in the columns' own units; 0 where a column never varied."""
    varies = part.moments.deviation > 0
    return np.where(varies, part.beta[1:] / np.where(varies, part.moments.deviation, 1.0), 0.0)


def _kept(moments: Moments, slopes: np.ndarray) -> Moments:
    return Moments(moments.count, moments.mean, np.where(slopes != 0, moments.deviation, 0.0))
