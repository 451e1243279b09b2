"""Federated COLTR: devices learn from the logs of their own interactions, and the server averages their weights.

FPDGD (:mod:`fedrank.ranking.foltr_pdgd`) with COLTR's steps in place of PDGD's
(:mod:`fedrank.ranking.learners.counterfactual`; Zhuang and Zuccon, ECIR 2020, who have one central service)::

    device   B interactions, each ranked by the weights that the last one ended with
             candidates around them are compared on the interaction's log, and the weights move to the winners
             sends the weights
    server   θ ← Σ aᵢ θᵢ / Σ aᵢ, as in FPDGD

The log never leaves the device; what leaves it are weights in the clear, no less than in FPDGD.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jaxtyping import UInt32
from typing_extensions import override

from fedrank.core.arrays import AnyArray
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jnp
from fedrank.core.protocol import Exchange, Party
from fedrank.ranking.foltr_pdgd import FoltrPDGD, LearnLocally
from fedrank.ranking.foltr_pdgd.messages import Draws
from fedrank.ranking.learners.counterfactual import Comparison, LogDraws, check_comparison, coltr_steps
from fedrank.ranking.learners.pdgd import Learned
from fedrank.ranking.on_device.messages import Request
from fedrank.ranking.sessions.devices import draw_queries


@dataclass(frozen=True)
class FoltrCOLTR(FoltrPDGD):
    """The protocol's settings; those of FPDGD, without noise, and how candidates are compared.

    Attributes:
        comparison: How candidates are made and compared.
    """

    comparison: Comparison = field(default_factory=Comparison)

    name = "foltr-coltr"

    def __post_init__(self):
        super().__post_init__()
        check_comparison(self.comparison)
        if self.comparison.candidates < 1:
            raise ConfigError(f"candidates must be at least 1, got {self.comparison.candidates}.")
        if self.kernels:
            raise ConfigError("foltr-coltr has no compiled kernel; set kernels = False.")
        if self.noise != "none" or self.secure_sum:
            raise ConfigError("foltr-coltr sends its weights as they are: there is no noise and no secure sum.")

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        return (LearnFromLog(self),)


@dataclass(frozen=True)
class LearnFromLog(LearnLocally, request=Request):
    """The exchange of :class:`FoltrCOLTR`: a device learns from the log of its user's interactions."""

    settings: FoltrCOLTR

    @property
    @override
    def n_bits(self) -> int:
        return super().n_bits + self.settings.interactions

    @override
    def cut(self, rng_bits: UInt32[AnyArray, "*cohort bits"], noise: Any) -> Draws:
        b = self.settings.interactions
        found = super().cut(rng_bits[..., :-b], noise)
        seeds = rng_bits[..., -b:, None]  # of the candidates, beside the words that a ranking is drawn with
        return found._replace(documents=jnp.concatenate([jnp.asarray(found.documents), seeds], axis=-1))

    @override
    def learn(self, request: Request, party: Party, draws: Draws) -> Learned:
        """COLTR with a simulated user, one step an interaction."""
        s = self.settings
        (data, queries), own = party.shared, party.own
        rate = jnp.float32(s.learning_rate) * jnp.float32(s.decay) ** jnp.asarray(request.round, jnp.float32)
        about, active = draw_queries(queries, own, draws.queries), self._active(own.amount)
        documents, start = jnp.asarray(draws.documents), jnp.asarray(request.weights)
        bits = LogDraws(documents[:, :2], draws.clicks, documents[:, 2])
        return coltr_steps(s.ranker, s.users, own.user, data, start, rate, about, active, bits, s.comparison)
