"""FedBN: the average of all silos, but for the normalisations, which never cross.

Li, Jiang, Zhang, Kamp, Dou: *FedBN*, ICLR 2021: federated averaging with ``crossing="local"``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fedrank.silos.averaging import PersonalisedProtocol
from fedrank.silos.config import LocalNetwork


@dataclass(frozen=True)
class FedBn(PersonalisedProtocol):
    """Silos: the average of all silos, but for the normalisations."""

    network: LocalNetwork = field(  # type: ignore[assignment] - what crosses is no setting
        default_factory=lambda: LocalNetwork(widths=(64, 32, 16))  # a regression has no normalisation
    )

    name, paper, always_crossing = "fedbn", "li2021fedbn", "local"
    published = "Li et al.: FedBN, ICLR 2021"
