"""What happens once in :mod:`fedrank.silos.bandit_fedavg`, before the first round: pre-training, and a probe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from fedrank.core.messages import Layout
from fedrank.core.protocol import Party
from fedrank.silos.bandit_fedavg.state import ServerState
from fedrank.silos.bandits import arms as sets
from fedrank.silos.messages import (
    Candidates,
    Judged,
    Model,
    Ready,
    Trained,
    candidates_layout,
    defined,
    judged_layout,
    model_layout,
    ready_layout,
    trained_layout,
)
from fedrank.silos.party import SiloExchange


@dataclass(frozen=True)
class Pretrain(SiloExchange):
    """Before round 0: everybody trains the same fresh network (Section 8.5)."""

    name = "pretrain"

    def due(self, number: Any) -> Any:
        """In round 0."""
        return number == 0

    @property
    def request(self) -> Layout[Model]:
        """The fresh network."""
        return model_layout(self.settings.parameters)

    @property
    def _sends(self) -> bool:
        return self.settings.arms == "clusters" or self.settings.probe

    @property
    def reply(self) -> Layout[Any]:
        """That it is done; the model, where updates are clustered or probed."""
        return trained_layout(self.settings.parameters) if self._sends else ready_layout()

    def ask(self, state: ServerState) -> Model:
        """The fresh network."""
        return Model(state.round, state.weights)

    def respond(self, request: Model, party: Party, draws: Any) -> tuple[Party, Any]:
        """Train, and keep the model for round 0."""
        s = self.settings
        model = s.trained(s.received(request.weights, party.own), party, draws)
        rows = party.shared.train.n[party.own.split, party.own.number].astype(jnp.uint32)
        reply = Trained(s.sent(model), rows) if self._sends else Ready(rows)
        return s.kept(party, model), reply

    def tell(self, state: ServerState, replies: Any, arrived: jax.Array) -> ServerState:
        """How many rows each has; and, of clusters, the arms."""
        s = self.settings
        if self._sends:
            arrived = arrived & jnp.all(jnp.isfinite(replies.weights), axis=1)
        state = state._replace(rows=jnp.where(arrived, replies.rows.astype(jnp.float32), state.rows))
        if s.probe:  # kept until the target has judged them
            state = state._replace(locals=jnp.where(arrived[:, None], replies.weights, 0.0), heard=arrived)
        if s.arms != "clusters":
            return state
        updates = jnp.where(arrived[:, None], replies.weights - state.weights[None], 0.0)
        # Who was not heard has an update of zero, which is like nobody's; it may be heard in a later round.
        return s.choose(state._replace(members=sets.clustered(updates, state.target, s.clusters)))


@dataclass(frozen=True)
class Probe(SiloExchange):
    """The target judges every silo's first model by itself: below one half, labels look inverted."""

    name = "probe"
    trains = False

    def due(self, number: Any) -> Any:
        """In round 0."""
        return number == 0

    @property
    def request(self) -> Layout[Candidates]:
        """The first models of all silos, as they are."""
        return candidates_layout(self.settings.parameters, self.settings.silos)

    @property
    def reply(self) -> Layout[Judged]:
        """A number about each."""
        return judged_layout(self.settings.silos)

    def asked(self, state: ServerState, parties: int) -> jax.Array:
        """The target."""
        return jnp.arange(parties) == state.target

    def most(self, parties: int) -> int:
        """One."""
        return 1

    def ask(self, state: ServerState) -> Candidates:
        """The models that the silos sent."""
        return Candidates(state.locals)

    def respond(self, request: Candidates, party: Party, draws: Any) -> tuple[Party, Judged]:
        """Judge each with the target's own validation rows."""
        return party, self.settings.judge(request.models, party)

    def tell(self, state: ServerState, replies: Judged, arrived: jax.Array) -> ServerState:
        """What the target said of those who were heard."""
        known = state.heard & arrived[state.target]
        return state._replace(probe=jnp.where(known, defined(replies.models[state.target]), jnp.nan))
