"""A general model without the silos that harm it: MAB-FL's question, inverted (Lundahl 2021, Section 10).

MAB-FL asks who helps one silo. Its future work asks the opposite: there is one model for all, and who should not be in
it? The arms are everybody, and everybody but j. One round::

    server   hands out θ to the silos that are in                                          Model
    silos    train for E epochs from θ; send weights and rows                              Trained
    server   averages all that are in, and all but j for each j; hands out the k + 1       Candidates
    silos    judge all of them on their own validation rows                                Judged
    server   x_j = the median over silos of (the average without j) − (that of all);
             the average of the largest x_j becomes θ, or that of all if no x_j is above 0

The median, because a silo that harms judges as well; fewer than half of the silos can say what they like without
deciding.

**Dropping a silo for good** is decided by evidence that may be looked at after every round: capital of 1 is spread over
a fixed grid of stakes λ and bet on "without j it is better"; after n rounds it is the mean over λ of Π (1 + λ·x). If
leaving j out does not help, it ever reaches e with a probability of at most 1/e (see
:mod:`fedrank.silos.bandits.evidence`). A silo is dropped when its capital reaches ``evidence``, one in a round, at most
k − 2 in all; nothing is asked of it any more. The statement is about one silo: k silos make k statements, and
``evidence`` = 20·k keeps the probability of a single wrong one below 1/20. With ``by="sign"`` the bet is on the sign of
x_j: differences of AUC are small, and a bet on their mean would take hundreds of rounds.

**Drop-outs.** Averages are of the silos that were heard. Of a silo that was not heard the round says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedrank.core.errors import ConfigError
from fedrank.core.messages import Layout
from fedrank.core.protocol import Exchange, Party
from fedrank.silos.bandits.evidence import BETS
from fedrank.silos.messages import UNDEFINED, Candidates, Judged, candidates_layout, defined, judged_layout
from fedrank.silos.party import SiloExchange
from fedrank.silos.personalised.state import PersonalisedProtocol, Pretrain, Train, average, finite

#: What is bet on: the sign of a difference, or the difference.
BY = ("sign", "mean")
#: Largest logarithm of an e-value that is shown; float32 ends at e^88.
_LARGEST = 80.0


class LeaveOneOutState(NamedTuple):
    """What the server keeps between rounds; k silos, P numbers of a model that cross.

    Attributes:
        round: uint32.
        weights: float32 [P], θ.
        rows: float32 [k], n_k.
        active: bool [k], who is in.
        heard: bool [k], who trained in this round.
        models: float32 [k + 1, P], the averages: of all that are in, and without each.
        capital: float32 [k, stakes], logarithms.
        judged: float32 [k + 1], medians over silos of the round that is over; NaN where undefined.
        increments: float32 [k], x_j; NaN where there is no observation.
        best: float32, best_weights float32 [P]: the best θ so far by the median over silos, and how good it was.
    """

    round: Any
    weights: Any
    rows: Any
    active: Any
    heard: Any
    models: Any
    capital: Any
    judged: Any
    increments: Any
    best: Any
    best_weights: Any


@dataclass(frozen=True)
class LeaveOneOut(PersonalisedProtocol):
    """The protocol's settings.

    Attributes:
        evidence: How much the capital of 1 must have grown to before a silo is dropped, above 1.
        by: One of :data:`BY`.
    """

    evidence: float = 20.0
    by: str = "sign"

    name = "leave-one-out"
    shown = (
        "Rows never leave a silo. From the averages of everybody and of everybody but one, every silo can work out "
        "every other silo's model. The server learns how good every silo finds every average."
    )

    def __post_init__(self):
        super().__post_init__()
        if not 1 < self.evidence < 1e30:
            raise ConfigError(f"evidence must be above 1, got {self.evidence}.")
        if self.by not in BY:
            raise ConfigError(f"by must be one of {', '.join(BY)}, got {self.by!r}.")

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Pre-training in round 0, training, judging."""
        return (*((Pretrain(self),) if self.pretrain else ()), TrainActive(self), JudgeAll(self))

    def init(self, key: Any) -> Any:
        """A fresh network, and everybody is in; ``key`` is consumed."""
        first, k = super().init(key), self.silos
        return LeaveOneOutState(
            *first,
            active=jnp.ones(k, bool),
            heard=jnp.zeros(k, bool),
            models=jnp.broadcast_to(first.weights, (k + 1, self.parameters)),
            capital=jnp.zeros((k, len(BETS)), jnp.float32),
            judged=jnp.full(k + 1, jnp.nan, jnp.float32),
            increments=jnp.full(k, jnp.nan, jnp.float32),
            best=jnp.float32(-jnp.inf),
            best_weights=first.weights,
        )

    def remembered(self, model: jax.Array, party: Party, when: Any = True) -> Party:
        """The silo as it is: the server knows what all silos judged and remembers the best model itself."""
        return party

    def models(self, state: LeaveOneOutState, party: Party) -> dict[str, jax.Array]:
        """θ for everybody, whether in or not, and the best θ so far by the median over silos."""
        best = jnp.where(state.best > -jnp.inf, state.best_weights, state.weights)
        last, best = (self.usable(self.received(w, party.own), party) for w in (state.weights, best))
        return {"last": last, "best": best}

    def watch(self, state: LeaveOneOutState) -> dict[str, Any]:
        """Medians over silos [k + 1], increments [k] (NaN: no observation), e-values [k], who is in [k]."""
        return {
            "judged": state.judged,
            "increments": state.increments,
            "evidence": jnp.exp(jnp.minimum(self.log_evidence(state), _LARGEST)),
            "active": state.active,
        }

    def log_evidence(self, state: LeaveOneOutState) -> jax.Array:
        """Logarithm of each silo's e-value, float32 [k]."""
        return jax.scipy.special.logsumexp(state.capital, axis=1) - jnp.log(jnp.float32(len(BETS)))

    def bet(self, state: LeaveOneOutState) -> LeaveOneOutState:
        """The round's gains and losses, and perhaps one silo less."""
        x = jnp.where(jnp.isfinite(state.increments), state.increments, 0.0)
        x = jnp.sign(x) if self.by == "sign" else x
        stakes = jnp.asarray(BETS, jnp.float32)[None]
        state = state._replace(capital=state.capital + jnp.log1p(stakes * x[:, None]))
        strength = jnp.where(state.active, self.log_evidence(state), -jnp.inf)
        worst = jnp.argmax(strength)
        enough = (strength[worst] >= jnp.log(self.evidence)) & (jnp.sum(~state.active) < self.silos - 2)
        return state._replace(active=state.active & ~(enough & (jnp.arange(self.silos) == worst)))


@dataclass(frozen=True)
class TrainActive(Train):
    """Who is in trains."""

    def asked(self, state: LeaveOneOutState, parties: int) -> jax.Array:
        """Who is in."""
        return state.active

    def tell(self, state: LeaveOneOutState, replies: Any, arrived: jax.Array) -> LeaveOneOutState:
        """The averages."""
        k = self.settings.silos
        heard = arrived & finite(replies.weights)
        rows = jnp.where(heard, replies.rows.astype(jnp.float32), state.rows)
        everybody_but = jnp.concatenate([jnp.ones((1, k), bool), ~jnp.eye(k, dtype=bool)])
        otherwise = jnp.broadcast_to(state.weights, state.models.shape)
        models = average(replies.weights, rows, everybody_but & heard[None], otherwise)
        return state._replace(rows=rows, heard=heard, models=models)


@dataclass(frozen=True)
class JudgeAll(SiloExchange):
    """Who is in judges all averages."""

    name = "judge-all"
    trains = False

    @property
    def request(self) -> Layout[Candidates]:
        """The average of all, and those without one."""
        return candidates_layout(self.settings.parameters, self.settings.silos + 1)

    @property
    def reply(self) -> Layout[Judged]:
        """A number about each."""
        return judged_layout(self.settings.silos + 1)

    def asked(self, state: LeaveOneOutState, parties: int) -> jax.Array:
        """Who is in."""
        return state.active

    def ask(self, state: LeaveOneOutState) -> Candidates:
        """The averages."""
        return Candidates(state.models)

    def respond(self, request: Candidates, party: Party, draws: Any) -> tuple[Party, Judged]:
        """How good each is at this silo, and its own local model."""
        s = self.settings
        judged = jax.vmap(lambda w: s.judged(s.received(w, party.own), party))(request.models)
        said = Judged(s.judged(party.own.model, party), judged)
        return party, jax.tree.map(lambda number: jnp.where(jnp.isfinite(number), number, UNDEFINED), said)

    def tell(self, state: LeaveOneOutState, replies: Judged, arrived: jax.Array) -> LeaveOneOutState:
        """Medians, θ, evidence."""
        s = self.settings
        values = jnp.where(arrived[:, None], defined(replies.models), jnp.nan)
        judged = jnp.nanmedian(values, axis=0)
        # Without j there must be somebody left, and j must have been there before.
        observed = state.heard & (jnp.sum(state.heard) > 1)
        increments = jnp.nanmedian(values[:, 1:] - values[:, :1], axis=0)
        increments = jnp.where(observed, increments, jnp.nan)
        gains = jnp.concatenate([jnp.zeros(1), jnp.where(jnp.isfinite(increments), increments, -jnp.inf)])
        arm = jnp.argmax(gains)  # of equals the first: all silos
        theta, value = state.models[arm], judged[arm]
        won = value > state.best
        state = state._replace(
            round=state.round + 1,
            weights=theta,
            judged=judged,
            increments=increments,
            best=jnp.where(won, value, state.best),
            best_weights=jnp.where(won, theta, state.best_weights),
        )
        return s.bet(state)
