"""FedOpt for federated PDGD: the server takes the devices' mean change as a gradient (Reddi et al., ICLR 2021).

Devices do what they do in FPDGD (:mod:`fedrank.ranking.foltr_pdgd`). The server does not move to the mean of their
weights but takes one step of an adaptive optimiser towards it (the paper's Algorithm 2)::

    server   Δ ← mean of the devices' weights − θ                                 as FPDGD makes the mean
             m ← β₁ m + (1 − β₁) Δ
             v ← β₂ v + (1 − β₂) Δ²                                               adam
             v ← v − (1 − β₂) Δ² sign(v − Δ²)                                     yogi
             v ← v + Δ²                                                           adagrad
             θ ← θ + η m / (√v + τ)

There is no correction of the first steps' bias, as in the paper; v starts at τ². What a device sends is no less than
in FPDGD: its weights in the clear.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxtyping import Bool, Float, UInt32
from typing_extensions import override

from fedrank.core.arrays import AnyArray, PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jnp
from fedrank.core.protocol import Exchange
from fedrank.ranking.foltr_pdgd import FoltrPDGD, LearnLocally
from fedrank.ranking.foltr_pdgd.messages import ServerState
from fedrank.ranking.on_device.messages import Request

#: Server optimisers.
OPTIMISERS = ("adam", "yogi", "adagrad")


class FedOptState(NamedTuple):
    """The server's state between rounds.

    Attributes:
        round: uint32.
        weights: float32 [parameters].
        moment: float32 [parameters], m.
        square: float32 [parameters], v.
    """

    round: UInt32[AnyArray, ""]
    weights: Float[AnyArray, "parameters"]
    moment: Float[AnyArray, "parameters"]
    square: Float[AnyArray, "parameters"]


@dataclass(frozen=True)
class FedOptPDGD(FoltrPDGD):
    """The protocol's settings; those of FPDGD, without noise, and the server's optimiser.

    Attributes:
        optimiser: One of :data:`OPTIMISERS`.
        server_rate: η of the server's step.
        betas: β₁ and β₂; the second is not used by adagrad.
        tau: τ, how adaptive the step is; the smaller, the more.
    """

    optimiser: str = "adam"
    server_rate: float = 0.01
    betas: tuple[float, float] = (0.9, 0.99)
    tau: float = 1e-3

    name = "fedopt-pdgd"

    def __post_init__(self):
        super().__post_init__()
        if self.optimiser not in OPTIMISERS:
            raise ConfigError(f"optimiser must be one of {', '.join(OPTIMISERS)}, got {self.optimiser!r}.")
        if not 0 < self.server_rate < 1e30 or not 0 < self.tau < 1e30:
            raise ConfigError(f"server_rate and tau must be positive, got {self.server_rate} and {self.tau}.")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(f"betas must be in [0, 1), got {self.betas}.")
        if self.noise != "none" or self.secure_sum:
            raise ConfigError("the server's optimiser is for weights that are sent as they are; use foltr-pdgd.")

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        return (LearnAndOptimise(self),)

    @override
    def init(self, key: Any) -> FedOptState:  # type: ignore[override] - a state with more in it
        state = super().init(key)
        zero = jnp.zeros_like(state.weights)
        return FedOptState(state.round, state.weights, zero, zero + jnp.float32(self.tau) ** 2)


@dataclass(frozen=True)
class LearnAndOptimise(LearnLocally, request=Request):
    """The exchange of :class:`FedOptPDGD`: devices learn as in FPDGD, the server steps towards their mean."""

    settings: FedOptPDGD

    @override
    def tell(self, state: Any, replies: PyTree, arrived: Bool[AnyArray, "parties"]) -> Any:
        """One step of the server's optimiser; where nobody was heard, nothing changes."""
        s = self.settings
        mean = super().tell(ServerState(state.round, state.weights), replies, arrived).weights
        change, (beta, gamma) = mean - state.weights, s.betas
        heard = jnp.any(jnp.asarray(arrived) & jnp.all(jnp.isfinite(replies.weights), axis=1))
        moment, square = beta * state.moment + (1 - beta) * change, change * change
        if s.optimiser == "adam":
            square = gamma * state.square + (1 - gamma) * square
        elif s.optimiser == "yogi":
            square = state.square - (1 - gamma) * square * jnp.sign(state.square - square)
        else:
            square = state.square + square
        weights = state.weights + s.server_rate * moment / (jnp.sqrt(square) + s.tau)
        new = (weights, moment, square)
        old = (state.weights, state.moment, state.square)
        return FedOptState(state.round + 1, *(jnp.where(heard, a, b) for a, b in zip(new, old, strict=True)))
