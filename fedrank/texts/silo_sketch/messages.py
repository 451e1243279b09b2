"""Messages while silos train one ranker: models and changes of models.

What crosses before that, so that each silo has rows of its queries with others' documents, is in
:mod:`fedrank.texts.silo_sketch.setup.settings`.
"""

from __future__ import annotations

from fedrank.core.messages import Array, f4, field, message, u4


@message(kind=1)
class Begin:
    """Server to silos: train a ranker on your own labelled rows."""

    round: Array = field(u4, "number of the round")


@message(kind=2)
class LocalModel:
    """Silo to server: the ranker that it has trained on its own labels."""

    weights: Array = field(f4["parameters"], "the ranker learnt from the silo's own labels")
    rows: Array = field(u4, "number of labelled rows that the silo trained on")


@message(kind=3)
class Labeller:
    """Server to silos: the model that guesses the labels of cross pairs."""

    round: Array = field(u4, "number of the round")
    weights: Array = field(f4["parameters"], "the model that guesses labels")


@message(kind=4)
class Labelled:
    """Silo to server: the silo has labelled its cross pairs; the labels stay with it."""

    rows: Array = field(u4, "number of cross pairs that the silo has")


@message(kind=5)
class Ranker:
    """Server to silos: the common ranker."""

    round: Array = field(u4, "number of the round")
    weights: Array = field(f4["parameters"], "the common ranker")


@message(kind=6)
class Change:
    """Silo to server: Δθ, the change that its SGD steps made to the common ranker."""

    weights: Array = field(f4["parameters"], "what the silo's training changed in the ranker")
