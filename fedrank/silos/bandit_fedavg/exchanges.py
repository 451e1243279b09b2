"""The exchanges of :mod:`fedrank.silos.bandit_fedavg`: pre-training and a probe once, then training and judging."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Key
from typing_extensions import override

from fedrank.core.arrays import AnyArray, PyTree, module_of
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.lazy import jnp
from fedrank.core.protocol import Party
from fedrank.silos.bandit_fedavg.state import ServerState, freeze_if_stopped
from fedrank.silos.bandits import arms as sets
from fedrank.silos.bandits import rules
from fedrank.silos.messages import (
    Candidates,
    Judged,
    Model,
    ModelAndCandidates,
    Trained,
    TrainedAndJudged,
    decode_undefined,
)
from fedrank.silos.party import Pretrain, SiloExchange, is_finite, row_count, update_rows
from fedrank.silos.private_sgd import os_noise, simulated_noise


@dataclass(frozen=True)
class PretrainAndSend(Pretrain, request=Model, reply=Trained):
    """Pre-training whose models are sent: their updates are clustered into arms, or the target judges them."""

    @override
    def respond(self, request: Model, party: Party, draws: PyTree) -> tuple[Party, Trained]:
        s = self.settings
        model = self.train(request, party, draws)
        return s.keep(party, model), Trained(s.shared_part(model), row_count(party))

    @override
    def tell(self, state: ServerState, replies: Trained, arrived: Bool[AnyArray, " silos"]) -> ServerState:
        xp = module_of(state.weights)
        s = self.settings
        arrived = arrived & is_finite(replies.weights)
        state = state._replace(rows=update_rows(state.rows, replies.rows, arrived))
        if s.probe:  # kept until the target has judged them
            state = state._replace(locals=xp.where(arrived[:, None], replies.weights, 0.0), heard=arrived)
        if s.arms != "clusters":
            return state
        updates = xp.where(arrived[:, None], replies.weights - state.weights[None], 0.0)
        # Who was not heard has an update of zero, which is like nobody's; it may be heard in a later round.
        return s.choose_arm(state._replace(members=sets.clustered(updates, state.target, s.clusters)))


@dataclass(frozen=True)
class Judging(SiloExchange):
    """An exchange in which the target tells how good models are, with noise where the protocol has some."""

    trains = False

    @override
    def draw(self, key: Key[Array, ""]) -> PyTree:
        return () if self.settings.judgements is None else simulated_noise(key, (1 + self.sizes["models"],))

    @override
    def draw_from_os(self) -> PyTree:
        return () if self.settings.judgements is None else jnp.asarray(os_noise((1 + self.sizes["models"],)))


@dataclass(frozen=True)
class Probe(Judging, request=Candidates, reply=Judged):
    """The target judges every silo's first model by itself: below one half, labels look inverted."""

    name = "probe"

    @property
    @override
    def sizes(self) -> dict[str, int]:
        return {**self.settings.sizes, "models": self.settings.silos}

    @override
    def due(self, number: Any) -> Any:
        return number == 0

    @override
    def asked(self, state: ServerState, parties: int) -> Bool[AnyArray, " silos"]:
        xp = module_of(state.weights)
        return xp.arange(parties) == state.target

    @override
    def max_asked(self, parties: int) -> int:
        return 1

    @override
    def ask(self, state: ServerState) -> Candidates:
        return Candidates(state.locals)

    @override
    def respond(self, request: Candidates, party: Party, draws: PyTree) -> tuple[Party, Judged]:
        return party, self.settings.judge(request.models, party, draws)

    @override
    def tell(self, state: ServerState, replies: Judged, arrived: Bool[AnyArray, " silos"]) -> ServerState:
        xp = module_of(state.weights)
        known = state.heard & arrived[state.target]
        return state._replace(probe=xp.where(known, decode_undefined(replies.models[state.target]), xp.nan))


@dataclass(frozen=True)
class Train(SiloExchange, request=Model, reply=Trained):
    """Steps 2 and 3 of Algorithm 7: the silos of the arm train; in an Extreme-Explore round, those of every arm."""

    name = "train"

    @override
    def asked(self, state: ServerState, parties: int) -> Bool[AnyArray, " silos"]:
        xp = module_of(state.weights)
        anybody = xp.any(state.members & self.settings.playable(state)[:, None], axis=0)
        return xp.where(state.explore, anybody, state.members[state.arm]) & ~state.stopped

    @override
    def max_asked(self, parties: int) -> int:
        s = self.settings
        if s.evaluates != "one" or s.arms == "clusters":
            return parties
        return int(s.table.sum(axis=1).max()) + 1  # the largest arm

    @override
    def ask(self, state: ServerState) -> PyTree:
        return Model(state.round, state.weights)

    @override
    def respond(self, request: PyTree, party: Party, draws: PyTree) -> tuple[Party, Any]:
        s = self.settings
        start = s.starting_model(request.weights, party)
        if s.pretrain:  # in round 0 from the silo's own pre-trained model
            start = jnp.where(request.round == 0, party.own.model, start)
        model = s.train(start, party, draws)
        return s.keep(party, model), Trained(s.shared_part(model), row_count(party))

    @override
    def tell(self, state: ServerState, replies: PyTree, arrived: Bool[AnyArray, " silos"]) -> ServerState:
        xp = module_of(state.weights)
        s = self.settings
        heard = arrived & is_finite(replies.weights)
        state = s.start_round(state)._replace(rows=update_rows(state.rows, replies.rows, heard))
        played = xp.arange(s.n_arms) == state.arm
        return s.average(state, replies.weights, heard, xp.where(state.explore, s.playable(state), played))


@dataclass(frozen=True)
class Judge(Judging, request=Candidates, reply=Judged):
    """Steps 4 and 6 of Algorithm 7: the target judges one average, or all.

    Attributes:
        which: ``"one"``, or ``"all"`` of an Extreme-Explore round: every arm but the target alone.
        last: Whether the round ends here.
    """

    which: str = "one"
    last: bool = True
    turn = "judge"  # a round has one of the two, of which the number of AUCs counts one

    @property
    def name(self) -> str:  # type: ignore[override]
        """``judge``, or ``judge-all`` of an Extreme-Explore round."""
        return "judge" if self.which == "one" else "judge-all"

    @property
    @override
    def sizes(self) -> dict[str, int]:
        return {**self.settings.sizes, "models": 1 if self.which == "one" else self.settings.n_candidates}

    @override
    def asked(self, state: ServerState, parties: int) -> Bool[AnyArray, " silos"]:
        xp = module_of(state.weights)
        target = (xp.arange(parties) == state.target) & ~state.stopped
        if self.settings.evaluates != "either":
            return target
        return target & (state.explore == (self.which == "all"))

    @override
    def max_asked(self, parties: int) -> int:
        return 1

    @override
    def ask(self, state: ServerState) -> Candidates:
        if self.which == "one":
            arm = 0 if self.settings.evaluates == "one" else state.arm
            return Candidates(state.models[arm][None])
        return Candidates(state.models[int(self.settings.has_alone) :])

    @override
    def respond(self, request: Candidates, party: Party, draws: PyTree) -> tuple[Party, Judged]:
        judged = self.settings.judge(request.models, party, draws)
        return self.settings.record_best(party, judged, self.which == "all" and self.settings.has_alone), judged

    @override
    def tell(self, state: ServerState, replies: Judged, arrived: Bool[AnyArray, " silos"]) -> ServerState:
        xp = module_of(state.weights)
        s, target = self.settings, state.target
        own, values = decode_undefined(replies.own[target]), decode_undefined(replies.models[target])
        if self.which == "one":
            values = xp.where(xp.arange(s.n_arms) == state.arm, values[0], xp.nan)
        elif s.has_alone:  # the average of the target alone is the target's own model
            values = xp.concatenate([own[None], values])
        state = s.record_judgement(state, own, values, arrived[target])
        return s.end_round(state) if self.last else state


@dataclass(frozen=True)
class TrainOthers(Train):
    """Where rewards are a round late: every silo of any arm but the target trains."""

    name = "train-others"

    @override
    def asked(self, state: ServerState, parties: int) -> Bool[AnyArray, " silos"]:
        xp = module_of(state.weights)
        return super().asked(state, parties) & (xp.arange(parties) != state.target)

    @override
    def tell(self, state: ServerState, replies: PyTree, arrived: Bool[AnyArray, " silos"]) -> ServerState:
        heard = arrived & is_finite(replies.weights)
        rows = update_rows(state.rows, replies.rows, heard)
        # The models are kept until the target is heard, too.
        kept = module_of(state.weights).where(heard[:, None], replies.weights, 0.0)
        return freeze_if_stopped(state, state._replace(locals=kept, heard=heard, rows=rows))


@dataclass(frozen=True)
class TrainAndJudge(Train, request=ModelAndCandidates, reply=TrainedAndJudged):
    """Where rewards are a round late: the target judges the last round's averages, and trains."""

    name = "train-and-judge"

    @property
    @override
    def sizes(self) -> dict[str, int]:
        return {**self.settings.sizes, "models": self.settings.n_candidates}

    @override
    def asked(self, state: ServerState, parties: int) -> Bool[AnyArray, " silos"]:
        xp = module_of(state.weights)
        return (xp.arange(parties) == state.target) & ~state.stopped

    @override
    def max_asked(self, parties: int) -> int:
        return 1

    @override
    def ask(self, state: ServerState) -> ModelAndCandidates:
        # In round 0 the averages are zeros, which nobody looks at.
        return ModelAndCandidates(state.round, state.weights, state.models[int(self.settings.has_alone) :])

    @override
    def respond(self, request: ModelAndCandidates, party: Party, draws: PyTree) -> tuple[Party, TrainedAndJudged]:
        # Judge first: the averages are compared with the local model of their own round.
        judged = self.settings.judge(request.models, party)
        party, reply = super().respond(Model(request.round, request.weights), party, draws)
        return party, TrainedAndJudged(reply.weights, reply.rows, judged.own, judged.models)

    @override
    def tell(self, state: ServerState, replies: TrainedAndJudged, arrived: Bool[AnyArray, " silos"]) -> ServerState:
        xp = module_of(state.weights)
        s, target, before = self.settings, state.target, state
        # Rewards of the round before.
        own, values = decode_undefined(replies.own[target]), decode_undefined(replies.models[target])
        values = xp.concatenate([own[None], values]) if s.has_alone else values
        state = s.record_judgement(s.start_round(state), own, values, arrived[target])
        state = s.learn(state)
        value = xp.where(xp.any(state.complete), state.judged[state.played], xp.nan)
        state = s.update_best(state, state.weights, value, xp.maximum(state.round.astype(np.int32) - 1, 0))
        # This round's averages; θ is chosen by the estimates so far.
        mine = xp.arange(s.silos) == target
        heard = xp.where(mine, arrived & is_finite(replies.weights), state.heard)
        rows = update_rows(state.rows, replies.rows, mine & heard)
        sent = xp.where(mine[:, None], replies.weights, state.locals)
        state = s.average(state._replace(rows=rows), sent, heard, s.playable(state))
        arm = rules.best(state.rule, state.estimates, xp.zeros(s.n_arms, np.float32), state.complete)
        state = state._replace(
            weights=state.models[arm],
            previous=xp.where(xp.isfinite(value), value, state.previous),
            played=arm,
            compared=state.played,
            explored=state.explore,
            round=state.round + 1,
        )
        return freeze_if_stopped(before, s.choose_arm(state))
