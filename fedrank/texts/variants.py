"""What is trained side by side in one compiled program: the protocol, and controls with other features, β or labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedrank.texts.rows import EXACT, ISOLATED, POOLED, SKETCHED
from fedrank.texts.silo_sketch import FEDERATED


class Variant(NamedTuple):
    """The protocol, or a control of it.

    Attributes:
        name: Name in result files and on pages.
        features: Number of its feature set, as in :mod:`fedrank.texts.rows`.
        beta: β; None for the protocol's.
        truth: Whether cross pairs have their true labels.
    """

    name: str
    features: int
    beta: float | None
    truth: bool


#: Controls by their name among ``evaluation.baselines``.
CONTROLS = {
    "local": Variant("Local", ISOLATED, 0.0, False),
    "global": Variant("Global (β = 0)", SKETCHED, 0.0, False),
    "exact": Variant("exact features", EXACT, None, False),
    "pooled": Variant("pooled data", POOLED, 1.0, True),
}


def variants_of(baselines: Sequence[str]) -> tuple[Variant, ...]:
    """The protocol itself, then the controls that some baselines need.

    Args:
        baselines: ``evaluation.baselines``. BM25 takes its features from the control ``local``, the silo's own.
    """
    needed = ("local", *baselines) if "bm25" in baselines and "local" not in baselines else tuple(baselines)
    return Variant(FEDERATED, SKETCHED, None, False), *(CONTROLS[name] for name in needed if name in CONTROLS)
