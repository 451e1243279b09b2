"""FedBN: the average of all silos, but for the normalisations, which never cross.

Li, Jiang, Zhang, Kamp, Dou: *FedBN*, ICLR 2021: federated averaging with ``crossing="local"``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from fedrank.core.fields import setting
from fedrank.engine.methods import Method
from fedrank.silos.averaging import PersonalisedProtocol
from fedrank.silos.config import SilosConfig


@dataclass(frozen=True, kw_only=True)
class FedBnConfig(SilosConfig):
    """Settings of FedBN, whose normalisations never cross."""

    protocol: Annotated[str, Parameter(show=False)] = setting("fedbn", "The protocol; see fedrank protocols.")


@dataclass(frozen=True)
class FedBn(PersonalisedProtocol):
    """Federated averaging of all numbers but those of batch norm."""

    crossing: str = "local"

    name = "fedbn"


def _make(config: FedBnConfig, parts: Any) -> FedBn:
    return FedBn(**parts.common)


FEDBN = Method(
    name="fedbn",
    task="silos",
    settings=FedBnConfig,
    make=_make,
    summary="Silos: the average of all silos, but for the normalisations.",
    paper="Li et al.: FedBN, ICLR 2021",
    crosses="models",
    file="zoo/fedrank_zoo/fedbn.py",
    citation="li2021fedbn",
)
