"""A name for a combination of parts."""

from dataclasses import dataclass

from fedrank.aggregation.server_steps import ServerStep
from fedrank.core.fields import part
from fedrank.ranking.foltr_pdgd import FoltrPDGD
from my_parts.momentum import Momentum


@dataclass(frozen=True)
class MomentumPDGD(FoltrPDGD):
    """FPDGD whose server steps with momentum."""

    name = "momentum-pdgd"
    server: ServerStep = part(Momentum, "Step of the server towards the mean.", "fedrank.server_steps", ["mean"])
