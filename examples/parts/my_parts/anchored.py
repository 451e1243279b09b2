"""A local objective with one strength for all learning rates."""

from dataclasses import dataclass

from fedrank.core.fields import setting
from fedrank.ranking.foltr_pdgd import Objective


@dataclass(frozen=True)
class Anchored(Objective):
    """PDGD's loss, and after each step a part of the way back to the server's weights."""

    name = "anchored"

    part_back: float = setting(0.1, "Part of the way back after a step of length 1.", low=0, high=1)

    @property
    def pull(self):
        """How hard weights are pulled back: multiplied by the learning rate in each step."""
        return self.part_back
