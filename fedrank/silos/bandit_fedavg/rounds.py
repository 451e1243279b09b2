"""The exchanges of a round of :mod:`fedrank.silos.bandit_fedavg`: silos train, the target judges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from fedrank.core.messages import Layout
from fedrank.core.protocol import Party
from fedrank.silos.bandit_fedavg.state import ServerState, still
from fedrank.silos.bandits import rules
from fedrank.silos.messages import (
    Candidates,
    Judged,
    Model,
    ModelAndCandidates,
    Trained,
    TrainedAndJudged,
    candidates_layout,
    defined,
    judged_layout,
    model_and_candidates_layout,
    model_layout,
    trained_and_judged_layout,
    trained_layout,
)
from fedrank.silos.party import SiloExchange


@dataclass(frozen=True)
class Train(SiloExchange):
    """Steps 2 and 3 of Algorithm 7: the silos of the arm train; of an Extreme-Explore round, those of every arm."""

    name = "train"

    @property
    def request(self) -> Layout[Any]:
        """Round and θ."""
        return model_layout(self.settings.parameters)

    @property
    def reply(self) -> Layout[Any]:
        """The silo's model and how many rows it has."""
        return trained_layout(self.settings.parameters)

    def asked(self, state: ServerState, parties: int) -> jax.Array:
        """Who is in the arm, or in any arm."""
        anybody = jnp.any(state.members & self.settings.alive(state)[:, None], axis=0)
        return jnp.where(state.explore, anybody, state.members[state.arm]) & ~state.stopped

    def most(self, parties: int) -> int:
        """The largest arm; of an Extreme-Explore round, everybody."""
        s = self.settings
        if s.evaluates != "one" or s.arms == "clusters":
            return parties
        return int(s.table.sum(axis=1).max()) + 1

    def ask(self, state: ServerState) -> Any:
        """θ."""
        return Model(state.round, state.weights)

    def respond(self, request: Any, party: Party, draws: Any) -> tuple[Party, Any]:
        """Train from θ; in round 0 from the silo's own pre-trained model."""
        s = self.settings
        start = s.received(request.weights, party.own)
        if s.pretrain:
            start = jnp.where(request.round == 0, party.own.model, start)
        model = s.trained(start, party, draws)
        rows = party.shared.train.n[party.own.split, party.own.number].astype(jnp.uint32)
        return s.kept(party, model), Trained(s.sent(model), rows)

    def tell(self, state: ServerState, replies: Any, arrived: jax.Array) -> ServerState:
        """The averages, for the target to judge."""
        s = self.settings
        heard = arrived & jnp.all(jnp.isfinite(replies.weights), axis=1)
        state = s.opened(state)._replace(rows=jnp.where(heard, replies.rows.astype(jnp.float32), state.rows))
        played = jnp.arange(s.n_arms) == state.arm
        return s.average(state, replies.weights, heard, jnp.where(state.explore, s.alive(state), played))


@dataclass(frozen=True)
class Judge(SiloExchange):
    """Steps 4 and 6 of Algorithm 7: the target judges one average, or all.

    Attributes:
        which: ``"one"`` or ``"all"``.
        last: Whether the round ends here.
    """

    which: str = "one"
    last: bool = True

    trains = False

    @property
    def name(self) -> str:  # type: ignore[override]
        """``judge``, or ``judge-all`` of an Extreme-Explore round."""
        return "judge" if self.which == "one" else "judge-all"

    @property
    def _many(self) -> int:
        return 1 if self.which == "one" else self.settings.n_candidates

    @property
    def request(self) -> Layout[Candidates]:
        """One average, or that of every arm but the target alone."""
        return candidates_layout(self.settings.parameters, self._many)

    @property
    def reply(self) -> Layout[Judged]:
        """Numbers."""
        return judged_layout(self._many)

    def asked(self, state: ServerState, parties: int) -> jax.Array:
        """The target, in a round of this kind."""
        target = (jnp.arange(parties) == state.target) & ~state.stopped
        if self.settings.evaluates != "either":
            return target
        return target & (state.explore == (self.which == "all"))

    def most(self, parties: int) -> int:
        """One."""
        return 1

    def ask(self, state: ServerState) -> Candidates:
        """The averages."""
        if self.which == "one":
            arm = 0 if self.settings.evaluates == "one" else state.arm
            return Candidates(state.models[arm][None])
        return Candidates(state.models[int(self.settings.has_alone) :])

    def respond(self, request: Candidates, party: Party, draws: Any) -> tuple[Party, Judged]:
        """How good each is, and the target's own local model."""
        said = self.settings.judge(request.models, party)
        return self.settings.noted(party, said, self.which == "all" and self.settings.has_alone), said

    def tell(self, state: ServerState, replies: Judged, arrived: jax.Array) -> ServerState:
        """Rewards, and the next arm."""
        s, target = self.settings, state.target
        own, values = defined(replies.own[target]), defined(replies.models[target])
        if self.which == "one":
            values = jnp.where(jnp.arange(s.n_arms) == state.arm, values[0], jnp.nan)
        elif s.has_alone:  # the average of the target alone is the target's own model
            values = jnp.concatenate([own[None], values])
        state = s.record(state, own, values, arrived[target])
        return s.close(state) if self.last else state


@dataclass(frozen=True)
class TrainOthers(Train):
    """Where rewards are a round late: everybody but the target."""

    name = "train-others"

    def asked(self, state: ServerState, parties: int) -> jax.Array:
        """All silos of any arm but the target."""
        return super().asked(state, parties) & (jnp.arange(parties) != state.target)

    def tell(self, state: ServerState, replies: Any, arrived: jax.Array) -> ServerState:
        """Kept until the target is heard."""
        heard = arrived & jnp.all(jnp.isfinite(replies.weights), axis=1)
        rows = jnp.where(heard, replies.rows.astype(jnp.float32), state.rows)
        return still(state, state._replace(locals=replies.weights, heard=heard, rows=rows))


@dataclass(frozen=True)
class TrainAndJudge(Train):
    """Where rewards are a round late: the target judges the last round's averages, and trains."""

    name = "train-and-judge"

    @property
    def request(self) -> Layout[Any]:
        """θ, and the averages of the round before."""
        return model_and_candidates_layout(self.settings.parameters, self.settings.n_candidates)

    @property
    def reply(self) -> Layout[Any]:
        """The target's model, and numbers."""
        return trained_and_judged_layout(self.settings.parameters, self.settings.n_candidates)

    def asked(self, state: ServerState, parties: int) -> jax.Array:
        """The target."""
        return (jnp.arange(parties) == state.target) & ~state.stopped

    def most(self, parties: int) -> int:
        """One."""
        return 1

    def ask(self, state: ServerState) -> ModelAndCandidates:
        """θ, and the averages of the round before; of round 0, zeros, which nobody looks at."""
        return ModelAndCandidates(state.round, state.weights, state.models[int(self.settings.has_alone) :])

    def respond(self, request: ModelAndCandidates, party: Party, draws: Any) -> tuple[Party, TrainedAndJudged]:
        """Judge first: the averages are to be compared with the local model of their own round."""
        said = self.settings.judge(request.models, party)
        party, reply = super().respond(Model(request.round, request.weights), party, draws)
        return party, TrainedAndJudged(reply.weights, reply.rows, said.own, said.models)

    def tell(self, state: ServerState, replies: TrainedAndJudged, arrived: jax.Array) -> ServerState:
        """Rewards of the round before; this round's averages; θ by the estimates."""
        s, target, before = self.settings, state.target, state
        own, values = defined(replies.own[target]), defined(replies.models[target])
        values = jnp.concatenate([own[None], values]) if s.has_alone else values
        state = s.record(s.opened(state), own, values, arrived[target])
        state = s.learn(state)
        value = jnp.where(jnp.any(state.complete), state.judged[state.played], jnp.nan)
        state = s.better(state, state.weights, value, jnp.maximum(state.round.astype(jnp.int32) - 1, 0))
        mine = jnp.arange(s.silos) == target
        heard = jnp.where(mine, arrived & jnp.all(jnp.isfinite(replies.weights), axis=1), state.heard)
        rows = jnp.where(mine & heard, replies.rows.astype(jnp.float32), state.rows)
        sent = jnp.where(mine[:, None], replies.weights, state.locals)
        state = s.average(state._replace(rows=rows), sent, heard, s.alive(state))
        arm = rules.best(state.rule, state.estimates, jnp.zeros(s.n_arms, jnp.float32), state.complete)
        state = state._replace(
            weights=state.models[arm],
            previous=jnp.where(jnp.isfinite(value), value, state.previous),
            played=arm,
            compared=state.played,
            explored=state.explore,
            round=state.round + 1,
        )
        return still(before, s.choose(state))
