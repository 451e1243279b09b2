"""The recommended model as an object that scores: every way but trees is one row of coefficients."""

from __future__ import annotations

import numpy as np

from fedrank import __version__
from fedrank.core.errors import ModelError
from fedrank.silos.model import SiloModel
from fedrank.silos.network import TabularNetwork
from fedrank.silos.sceptic.compare import Answer
from fedrank.silos.sceptic.learners import Glm


def model_of(answer: Answer) -> SiloModel:
    """The model to use, trained on all of the target's rows; ``save`` writes it, ``fedrank evaluate`` reads it.

    Args:
        answer: What was found.

    Raises:
        ModelError: Trees are recommended, which have no coefficients.
    """
    made = answer.chosen.models[answer.recommended]
    if not isinstance(made, Glm):
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
            "way": answer.recommended,
        },
    )
