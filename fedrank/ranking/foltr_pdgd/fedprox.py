"""FedProx for federated PDGD: local steps are held near the server's model (Li et al., MLSys 2020).

Devices do what they do in FPDGD (:mod:`fedrank.ranking.foltr_pdgd`), but for a pull back to the weights θ₀ that they
were sent: the gradient of (μ/2)‖θ − θ₀‖², the paper's Equation (2)::

    device   after each step of PDGD with the learning rate η:   θ ← θ − ημ (θ − θ₀)

With μ = 0 it is FPDGD. Wang and Zuccon (SIGIR 2022) tried it on devices whose users differ, with μ from 1e-5 to 1, and
found no help against labels that are dealt out unevenly.
"""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp
from fedrank.core.protocol import Exchange, Party
from fedrank.ranking.foltr_pdgd import FoltrPDGD, LearnLocally
from fedrank.ranking.foltr_pdgd.messages import Draws
from fedrank.ranking.learners.pdgd import Learned, PdgdDraws, pdgd_steps
from fedrank.ranking.on_device.messages import Request
from fedrank.ranking.sessions.devices import draw_queries


@dataclass(frozen=True)
class FedProxPDGD(FoltrPDGD):
    """The protocol's settings; those of FPDGD, and μ.

    Attributes:
        mu: μ, how hard the weights are pulled back; 1/η pulls them back altogether.
    """

    mu: float = 0.01

    name = "fedprox-pdgd"

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.mu * self.learning_rate <= 1:
            raise ConfigError(f"mu must be in [0, 1 / learning_rate = {1 / self.learning_rate:g}], got {self.mu}.")

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        return (LearnNearby(self),)


@dataclass(frozen=True)
class LearnNearby(LearnLocally, request=Request):
    """The exchange of :class:`FedProxPDGD`: a device learns from its user's clicks, near the server's weights."""

    settings: FedProxPDGD

    @override
    def learn(self, request: Request, party: Party, draws: Draws) -> Learned:
        """PDGD with a simulated user, a step and a pull back an interaction."""
        s = self.settings
        (data, queries), own = party.shared, party.own
        rate = jnp.float32(s.learning_rate) * jnp.float32(s.decay) ** jnp.asarray(request.round, jnp.float32)
        about, active = draw_queries(queries, own, draws.queries), self._active(own.amount)
        start = weights = jnp.asarray(request.weights)
        sessions = []
        for k in range(s.interactions):
            one = slice(k, k + 1)
            bits = PdgdDraws(jnp.asarray(draws.documents)[one], jnp.asarray(draws.clicks)[one])
            learned = pdgd_steps(s.ranker, s.users, own.user, data, weights, rate, about[one], active[one], bits)
            pulled = jnp.where(active[k], rate * jnp.float32(s.mu), 0.0)
            weights = learned.weights - pulled * (learned.weights - start)
            sessions.append(learned.sessions)
        return Learned(weights, jax.tree.map(lambda *parts: jnp.concatenate(parts), *sessions))
