"""FedSlate as its published code has it: ``vertical-slate`` with all its faults, or those that are named.

The code is TianYaDY/FedSlate, of Deng et al. (arXiv 2409.14872, 2024). Widths of the networks are reduced, 4,096 × 5 to
64 × 5 and 2,048 × 4 to 32 × 4, so that a run fits a CPU. What a platform sees is in :mod:`.learner`, networks over
places in :mod:`.networks`, targets that move in :mod:`.exchanges`; whom a platform spares, in closed form, in
:mod:`.horizon`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from fedrank.core.fields import setting
from fedrank.core.lazy import jnp
from fedrank.slates.config import SlatesRun
from fedrank.slates.fedslate import FedSlate
from fedrank_zoo.fedslate_2024.exchanges import FormMovingTargets, SendMovingGradient
from fedrank_zoo.fedslate_2024.faults import FAULTS, FAULTY_SETTINGS, PUBLISHED_RATE, PUBLISHED_WIDTHS, Fault
from fedrank_zoo.fedslate_2024.settings import PublishedSlates


@dataclass(frozen=True)
class FedSlate2024(FedSlate):
    """FedSlate with the faults of its published code, for comparison with it."""

    slates: PublishedSlates = field(default_factory=PublishedSlates)
    learning_rate: float | None = setting(None, "Step size of Adam (0.01; 0.0003).")  # type: ignore[assignment]

    name = "vertical-slate-2024"
    forms_targets = FormMovingTargets
    compares = SendMovingGradient

    @override
    def resolved(self, run: SlatesRun) -> Any:
        rate = self.learning_rate or (PUBLISHED_RATE if self.slates.mode == "published" else FedSlate().learning_rate)
        return dataclasses.replace(super().resolved(run), learning_rate=rate)

    @property
    def fresh(self) -> bool:  # type: ignore[override] - elsewhere an attribute of the class
        """True where platforms see the user as the round begins."""
        return not self.slates.has(Fault.STALE_VIEW)

    @property
    def faults(self) -> tuple[dict[str, str], ...]:  # type: ignore[override] - as above
        """Faults of the published code that are on: the setting, the name, and what it is."""
        return tuple(
            {
                "key": f"slates.{key}" if key in FAULTY_SETTINGS else f"slates.faults: {key}",
                "name": FAULTS[key][0],
                "what": FAULTS[key][1],
            }
            for key in self.slates.all_faults
        )

    @property
    def notes(self) -> tuple[str, ...]:  # type: ignore[override] - as above
        """Sentences that a reader of the results must know: that networks are smaller than the published ones."""
        s = self.slates
        if not s.has(Fault.POSITIONAL) or (s.local_widths, s.head_widths) == PUBLISHED_WIDTHS:
            return ()
        used = " and ".join(_layers(widths) for widths in (s.local_widths, s.head_widths) if widths)
        published = " and ".join(_layers(widths) for widths in PUBLISHED_WIDTHS)
        return (f"Hidden layers have {used} units; those of the published networks have {published}.",)

    @override
    def init(self, key):
        s, state = self.slates, super().init(key)
        if not s.has(Fault.MOVING_TARGETS):
            return state
        return state._replace(more=jnp.zeros((s.platforms, s.batch, s.world.candidates), jnp.float32))


def _layers(widths: tuple[int, ...]) -> str:
    return " × ".join(f"{width:,}" for width in widths)
