"""Messages between a server and silos that average models: models, numbers of rows, performances.

Shared by MAB-FL (:mod:`fedrank.silos.bandit_fedavg`) and the methods that it is compared with. No message has an axis
of rows: a silo's patients or customers never cross. What a *model* gives away of the rows that it was trained on is
another matter: only DP-SGD bounds it (:mod:`fedrank.silos.records.private_sgd`).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from fedrank.core import messages as wire
from fedrank.core.arrays import AnyArray
from fedrank.core.messages import f4, field, message, u4

#: Stands for a number that does not exist, such as the AUC of rows of one class: what is not finite cannot cross.
UNDEFINED = -1e30

#: What the server of every protocol of silos sees.
SEEN = (
    "Nothing is noised. The server sees the model of every silo that takes part as it is, and how many rows it has: "
    "what a model reveals of the rows that it was trained on has no bound."
)


def encode_undefined(numbers: Float[AnyArray, "..."]) -> Float[AnyArray, "..."]:
    """Numbers as they cross: :data:`UNDEFINED` for NaN and infinity."""
    return np.where(np.isfinite(numbers), numbers, UNDEFINED)


def decode_undefined(numbers: Float[AnyArray, "..."]) -> Float[AnyArray, "..."]:
    """Numbers as they crossed: NaN for :data:`UNDEFINED`."""
    return np.where(numbers > UNDEFINED / 2, numbers, np.nan)


# ------------------------------------------------------------------------------------------------ training, judging


@message(kind=1)
class Model:
    """Server to silos: the model to start from."""

    round: wire.Array = field(u4, "number of the round")
    weights: wire.Array = field(f4["parameters"], "the model to start from")


@message(kind=2)
class Trained:
    """Silo to server: its local model; the number of rows is its weight in the average."""

    weights: wire.Array = field(f4["parameters"], "the model after training on the silo's rows")
    rows: wire.Array = field(u4, "number of rows that the silo trains on")


@message(kind=3)
class Ready:
    """Silo to server: it has trained, and keeps its model for the first round."""

    rows: wire.Array = field(u4, "number of rows that the silo trains on")


@message(kind=4)
class Candidates:
    """Server to target: averages of local models, to be judged."""

    models: wire.Array = field(f4["models", "parameters"], "averages of silos' models")


@message(kind=5)
class Judged:
    """Target to server: how good models are on its validation rows; :data:`UNDEFINED` where that does not exist."""

    own: wire.Array = field(f4, "how good the target's own local model is on its validation rows")
    models: wire.Array = field(f4["models"], "how good each of them is on the target's validation rows")


@message(kind=6)
class ModelAndCandidates:
    """Server to target where rewards are a round late: :class:`Model` and :class:`Candidates` in one."""

    round: wire.Array = field(u4, "number of the round")
    weights: wire.Array = field(f4["parameters"], "the model to start from")
    models: wire.Array = field(f4["models", "parameters"], "averages of silos' models")


@message(kind=7)
class TrainedAndJudged:
    """Target to server where rewards are a round late: :class:`Trained` and :class:`Judged` in one."""

    weights: wire.Array = field(f4["parameters"], "the model after training on the silo's rows")
    rows: wire.Array = field(u4, "number of rows that the silo trains on")
    own: wire.Array = field(f4, "how good the target's own local model is on its validation rows")
    models: wire.Array = field(f4["models"], "how good each of them is on the target's validation rows")


@message(kind=8)
class Nothing:
    """A message without a field: that of silos that train alone, or a question that needs none."""


@message(kind=9)
class Told:
    """Silo to server: what its rows say of a regression, once."""

    terms: wire.Array = field(f4["statistics"], "log-likelihood to second order: constant, linear terms, curvature")


@message(kind=10)
class AllTold:
    """Server to target: what each silo told; zeros of the target and of silos that were not heard."""

    terms: wire.Array = field(f4["silos", "statistics"], "log-likelihood of each silo's rows to second order")
