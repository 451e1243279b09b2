"""FedPer for silos: the last layer never crosses (Arivazhagan et al. 2019).

Rounds are those of federated averaging (:mod:`fedrank.silos.averaging`); a silo uses the average with its own last
layer.

Source:
    Arivazhagan, Aggarwal, Singh, Choudhary: *Federated learning with personalization layers*, arXiv 1912.00818, 2019.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fedrank.silos.averaging import PersonalisedProtocol
from fedrank.silos.config import LocalNetwork


@dataclass(frozen=True)
class FedPer(PersonalisedProtocol):
    """Silos: the average of all silos, but for the last layer."""

    network: LocalNetwork = field(  # type: ignore[assignment] - what crosses is no setting
        default_factory=lambda: LocalNetwork(widths=(64, 32, 16))  # of a regression nothing would cross
    )

    name, paper, always_crossing = "fedper", "arivazhagan2019fedper", "head-local"
    published = "Arivazhagan et al.: Federated Learning with Personalization Layers, 2019"
