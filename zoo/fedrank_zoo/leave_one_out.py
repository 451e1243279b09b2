"""A general model without the silos that harm it: MAB-FL's question, inverted (Lundahl 2021, Section 10).

MAB-FL asks who helps one silo. Its future work asks the opposite: there is one model for all, and who should not be in
it? The arms are all silos, and all silos but j. One round::

    server   hands out θ to the silos that are in                                          Model
    silos    train for E epochs from θ; send weights and rows                              Trained
    server   averages all that are in, and all but j for each j; hands out the k + 1       Candidates
    silos    judge all of them on their own validation rows                                Judged
    server   x_j = the median over silos of (the average without j) − (that of all);
             the average of the largest x_j becomes θ, or that of all if no x_j is above 0

The median, because a silo that harms judges as well; fewer than half of the silos can say what they like without
deciding.

**Dropping a silo for good** is decided by evidence that may be looked at after every round, an e-value (Waudby-Smith
and Ramdas: *Estimating means of bounded random variables by betting*, JRSS-B 86(1), 2024, section 4): a capital of 1 is
spread over a fixed grid of stakes λ and bet on "without j it is better"; after n rounds it is the mean over λ of
Π (1 + λ·x). If leaving j out does not help, it ever reaches e with a probability of at most 1/e (Ville's inequality). A
silo is dropped when its capital reaches ``evidence``, one in a round, at most k − 2 in all; nothing is asked of it any
more. The statement is about one silo: k silos make k statements, and ``evidence`` = 20·k keeps the probability of a
single wrong one below 1/20. The bet is on the sign of x_j: differences of AUC are small, and a bet on their mean would
take hundreds of rounds.

**Drop-outs.** Averages are of the silos that were heard. Of a silo that was not heard the round says nothing.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, UInt32
from typing_extensions import override

from fedrank.core.arrays import AnyArray, PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting
from fedrank.core.protocol import Exchange, Party
from fedrank.silos.averaging import PersonalisedProtocol, Train, average
from fedrank.silos.messages import Candidates, Judged, decode_undefined, encode_undefined
from fedrank.silos.party import Pretrain, SiloExchange, is_finite, update_rows

#: Stakes λ over which the capital is spread; below 1, so that it is never lost as a whole.
STAKES = (np.arange(20) + 0.5) / 20

#: Largest logarithm of an e-value that is shown; float32 ends at e^88.
_LARGEST = 80.0

#: E-value, times the number of silos, at which one is left out for good: a wrong one in 20 runs at most.
_DROPPED = 20.0


@dataclass(frozen=True, kw_only=True)
class Dropping:
    """Settings of dropping a silo for good."""

    evidence: float = setting(0.0, "e-value at which a silo is dropped for good; 0: 20 times the number of silos.")


class LeaveOneOutState(NamedTuple):
    """State of the server between rounds.

    Attributes:
        round: Number of the round.
        weights: θ.
        rows: n_k, as far as the silos have said.
        active: Which silos have not been dropped.
        heard: Which silos trained in this round.
        models: The averages: of all active silos, and without each.
        capital: Logarithm of the capital on each stake.
        judged: Median performance over silos of each average of the round that is over; NaN where undefined.
        increments: x_j; NaN where there is no observation.
        best: Median performance over silos of the best θ so far.
        best_weights: The best θ so far.
    """

    round: UInt32[AnyArray, ""]
    weights: Float[np.ndarray, " parameters"]
    rows: Float[np.ndarray, " silos"]
    active: Bool[np.ndarray, " silos"]
    heard: Bool[np.ndarray, " silos"]
    models: Float[np.ndarray, "silos+1 parameters"]
    capital: Float[np.ndarray, "silos stakes"]
    judged: Float[np.ndarray, "silos+1"]
    increments: Float[np.ndarray, " silos"]
    best: Float[AnyArray, ""]
    best_weights: Float[np.ndarray, " parameters"]


@dataclass(frozen=True)
class LeaveOneOut(PersonalisedProtocol):
    """Silos: a general model without the silos that harm it."""

    personal: Dropping = field(default_factory=Dropping)

    name, paper = "leave-one-out", "lundahl2021mabfl"
    published = "Lundahl 2021, Section 10: which silos to leave out"
    revealed: ClassVar[str] = (
        "No row is in a message. From the averages of all silos' models, and of those of all silos but one, every "
        "silo can work out the model of each other silo. The server learns how good every silo finds every average."
    )

    def __post_init__(self):
        super().__post_init__()
        if self.sgd is not None and not 1 < self.evidence < 1e30:
            raise ConfigError(f"evidence must be above 1, got {self.evidence}.")

    @property
    def evidence(self) -> float:
        """Capital, of 1 in the beginning, at which a silo is dropped."""
        return self.personal.evidence or _DROPPED * self.silos

    @property
    @override
    def citations(self) -> tuple[str, ...]:
        return *super().citations, "waudbysmith2024betting"

    @property
    @override
    def sizes(self) -> dict[str, int]:
        return {"parameters": self.parameters, "models": self.silos + 1}

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        return (*((Pretrain(self),) if self.pretrain else ()), TrainActive(self), JudgeAll(self))

    @override
    def init(self, key: UInt32[np.ndarray, "2"] | None) -> LeaveOneOutState:
        first, k = super().init(key), self.silos
        return LeaveOneOutState(
            *first,
            active=np.ones(k, bool),
            heard=np.zeros(k, bool),
            models=np.broadcast_to(first.weights, (k + 1, self.parameters)),
            capital=np.zeros((k, len(STAKES)), np.float32),
            judged=np.full(k + 1, np.nan, np.float32),
            increments=np.full(k, np.nan, np.float32),
            best=np.asarray(-np.inf, np.float32),
            best_weights=first.weights,
        )

    @override
    def remember_best(
        self, models: Float[np.ndarray, "silos size"], party: Party, when: Bool[np.ndarray, " silos"] | None = None
    ) -> Party:
        return party  # the server knows what all silos judged and remembers the best model itself

    @override
    def models(self, state: LeaveOneOutState, party: Party) -> dict[str, Float[np.ndarray, "silos size"]]:
        # Dropped silos may use the models, too.
        best = state.best_weights if state.best > -np.inf else state.weights
        last, best = (self.usable(self.whole_model(w, party.own.model), party) for w in (state.weights, best))
        return {"last": last, "best": best}

    @override
    def watch(self, state: LeaveOneOutState) -> dict[str, Any]:
        return {
            "judged": state.judged,
            "increments": state.increments,
            "evidence": np.exp(np.minimum(self.log_evidence(state), _LARGEST)),
            "active": state.active,
        }

    def log_evidence(self, state: LeaveOneOutState) -> Float[np.ndarray, " silos"]:
        """Logarithm of each silo's e-value."""
        largest = state.capital.max(axis=1)
        mean = np.exp(state.capital - largest[:, None]).mean(axis=1)
        return (largest + np.log(mean)).astype(np.float32)

    def bet(self, state: LeaveOneOutState) -> LeaveOneOutState:
        """The state after the round's bets; the silo with the largest e-value is dropped if that is large enough."""
        x = np.sign(np.where(np.isfinite(state.increments), state.increments, 0.0))
        stakes = np.asarray(STAKES, np.float32)[None]
        state = state._replace(capital=state.capital + np.log1p(stakes * x[:, None]))
        strength = np.where(state.active, self.log_evidence(state), -np.inf)
        worst = np.argmax(strength)
        enough = (strength[worst] >= np.log(self.evidence)) & (np.sum(~state.active) < self.silos - 2)
        return state._replace(active=state.active & ~(enough & (np.arange(self.silos) == worst)))


@dataclass(frozen=True)
class TrainActive(Train):
    """Every active silo trains; the server averages all of them, and all but each."""

    @override
    def asked(self, state: LeaveOneOutState, parties: int) -> Bool[np.ndarray, " silos"]:
        return state.active

    @override
    def tell(self, state: LeaveOneOutState, replies: PyTree, arrived: Bool[np.ndarray, " silos"]) -> LeaveOneOutState:
        k = self.settings.silos
        heard = arrived & is_finite(replies.weights)
        rows = update_rows(state.rows, replies.rows, heard)
        all_but = np.concatenate([np.ones((1, k), bool), ~np.eye(k, dtype=bool)])
        otherwise = np.broadcast_to(state.weights, state.models.shape)
        models = average(replies.weights, rows, all_but & heard[None], otherwise)
        return state._replace(rows=rows, heard=heard, models=models)


@dataclass(frozen=True)
class JudgeAll(SiloExchange, request=Candidates, reply=Judged):
    """Every active silo judges all averages; θ is chosen, and a silo may be dropped."""

    name = "judge-all"
    trains = False

    @override
    def asked(self, state: LeaveOneOutState, parties: int) -> Bool[np.ndarray, " silos"]:
        return state.active

    @override
    def ask(self, state: LeaveOneOutState) -> Candidates:
        return Candidates(state.models)

    @override
    def respond(self, request: Candidates, party: Party, draws: PyTree) -> tuple[Party, Judged]:
        s, own = self.settings, party.own
        models = s.whole_model(request.models, own.model[:, None])
        judged = encode_undefined(s.performance(np.concatenate([own.model[:, None], models], axis=1), party))
        return party, Judged(judged[:, 0], judged[:, 1:])

    @override
    def tell(self, state: LeaveOneOutState, replies: Judged, arrived: Bool[np.ndarray, " silos"]) -> LeaveOneOutState:
        s = self.settings
        values = np.where(arrived[:, None], decode_undefined(replies.models), np.nan)
        judged = nanmedian(values)
        # Without j at least one silo must be left, and j must have been heard.
        observed = state.heard & (np.sum(state.heard) > 1)
        increments = nanmedian(values[:, 1:] - values[:, :1])
        increments = np.where(observed, increments, np.nan)
        gains = np.concatenate([np.zeros(1), np.where(np.isfinite(increments), increments, -np.inf)])
        arm = np.argmax(gains)  # of equals the first: all silos
        theta, value = state.models[arm], judged[arm]
        won = value > state.best
        state = state._replace(
            round=state.round + 1,
            weights=theta,
            judged=judged,
            increments=increments,
            best=np.where(won, value, state.best),
            best_weights=np.where(won, theta, state.best_weights),
        )
        return s.bet(state)


def nanmedian(values: Float[np.ndarray, "silos models"]) -> Float[np.ndarray, " models"]:
    """Median over silos; NaN where no silo has a value."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.nanmedian(values, axis=0).astype(np.float32)
