"""Settings of the published FedSlate: its values, and which of its faults are on.

``slates.mode`` is a bundle of settings: ``published`` has the values of the published code with all its faults,
``corrected`` those of ``vertical-slate``. A setting that is given stands in either mode.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from jaxtyping import Float, Int
from typing_extensions import override

from fedrank.core.arrays import AnyArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting
from fedrank.core.lazy import jnp
from fedrank.slates.fedslate.settings import FederatedSlates
from fedrank_zoo.fedslate_2024.faults import FAULTY_SETTINGS, PAST, PUBLISHED, Fault
from fedrank_zoo.fedslate_2024.networks import PositionalHead, PositionalLinearHead, PositionalQ


class Memory(NamedTuple):
    """What a platform keeps of the stay and beyond it.

    Attributes:
        past: Engagement by slot of the last slates, newest first, zeros without feedback; empty without the fault.
        first: Number of the first candidate; numbers count up without end.
    """

    past: Float[Array, "slates slots"]
    first: Int[Array, ""]


@dataclass(frozen=True, kw_only=True)
class PublishedSlates(FederatedSlates):
    """Learning of slates as the published code does it. Defaults in brackets follow from the mode.

    Raises:
        ConfigError: A number out of range, or settings that contradict each other or do not fit the users.
    """

    mode: Literal["published", "corrected"] = setting("published", "Defaults: as in the published code, or corrected.")
    faults: tuple[Fault, ...] | None = setting(None, "Faults of the published code that are on (all; none).")
    snap: float | None = setting(None, "Once ε has fallen below this it is 0 (0.1; 0, which is never).", low=0, high=1)
    critic: str = setting("slateq-2024", "The critic: slateq-2024, or one that is derived from it.")
    # Settings of vertical-slate with other defaults, which follow from the mode.
    memory: int | None = setting(None, "Rounds in the replay buffer (2,000; 5,000).", low=2, high=10**7)  # type: ignore[assignment]
    burn_in: int | None = setting(None, "Rounds before the first step (5,000; 500).", low=1, high=10**6)  # type: ignore[assignment]
    explore: float | None = setting(  # type: ignore[assignment]
        None, "ε of the first round, probability of a random slate at each platform (1; 0.1).", low=0, high=1
    )
    decay: float | None = setting(
        None, "Factor of ε a round (0.99995; a third of the rounds leads to the floor).", low=0, high=1
    )
    floor: float | None = setting(None, "Smallest ε (0; 0.05).", low=0, high=1)
    choice: Literal["true", "learned", "published"] | None = setting(  # type: ignore[assignment]
        None, "Choice model: users', learned, or upside down (published; true)."
    )
    local_widths: tuple[int, ...] | None = setting(  # type: ignore[assignment]
        None, "Units of a platform's hidden layers (64 × 5, in the publication 4,096 × 5; 64, 64)."
    )
    centred: bool | None = setting(None, "Engagement counts less its mean so far (no; yes, where users always click).")
    reward_scale: float | None = setting(  # type: ignore[assignment]
        None, "Divisor of engagement (1; 15, about a round's).", low=1e-6, high=1e6
    )
    head_widths: tuple[int, ...] | None = setting(  # type: ignore[assignment]
        None, "Units of its hidden layers (32 × 4, in the publication 2,048 × 4; 32, 32)."
    )

    def __post_init__(self):
        if self.faults is not None:
            object.__setattr__(self, "faults", tuple(one for one in Fault if one in self.faults))  # frozen: in order
        super().__post_init__()

    @override
    def _check_users(self) -> None:
        super()._check_users()
        if self.has(Fault.MOVING_TARGETS) and not self.has(Fault.ONLINE_OTHERS):
            raise ConfigError(
                "the fault moving-targets is about online values in targets, so it needs online-others: target "
                "networks do not move."
            )

    def has(self, fault: Fault) -> bool:
        """True if a fault of the published code is on."""
        return fault in (self.faults or ())

    @property
    def all_faults(self) -> tuple[str, ...]:
        """Faults that are on: keys of :data:`fedrank_zoo.fedslate_2024.faults.FAULTS`."""
        values = (name for name in FAULTY_SETTINGS if getattr(self, name) == PUBLISHED[name])
        return (*values, *(self.faults or ()))

    @override
    def derived(self, world):
        if self.mode == "published":
            return PUBLISHED
        plain = FederatedSlates()
        plain = dataclasses.replace(plain, explore=plain.explore if self.explore is None else self.explore)
        corrected = {name: getattr(plain, name) for name in PUBLISHED if hasattr(plain, name)}
        return {**corrected, **plain.derived(world), "snap": 0.0, "faults": ()}

    @override
    def epsilon(self, round_):
        s: Any = self  # resolved
        falling = s.explore * jnp.float32(s.decay) ** jnp.asarray(round_, jnp.float32)
        return jnp.where(falling < s.snap, 0.0, jnp.maximum(falling, s.floor))

    @cached_property
    def local(self):  # type: ignore[override] - computed once
        """The platforms' own networks, all of the same shape."""
        if not self.has(Fault.POSITIONAL):
            return super().local
        sizes = (self.user_features, self.item_features, self.world.candidates)
        return PositionalQ(*sizes, self.local_widths or (), self.has(Fault.TANH))

    @cached_property
    def federated_network(self):  # type: ignore[override] - computed once
        """Ω over all places of the list of candidates, with the fault."""
        if not self.has(Fault.POSITIONAL):
            return super().federated_network
        if self.head == "linear":
            return PositionalLinearHead(self.world.candidates)
        return PositionalHead(self.world.candidates, self.head_widths or (), self.has(Fault.TANH))

    @property
    @override
    def item_features(self) -> int:
        return 2 if self.has(Fault.ITEM_NUMBERS) else 1

    @property
    @override
    def memory_features(self) -> int:
        return PAST * self.world.slate if self.has(Fault.SHORT_MEMORY) else super().memory_features

    @override
    def first_memory(self):
        past = (PAST, self.world.slate) if self.has(Fault.SHORT_MEMORY) else (0, 0)
        return Memory(jnp.zeros(past, jnp.float32), jnp.int32(0))
