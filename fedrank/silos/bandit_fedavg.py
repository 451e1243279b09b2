"""MAB-FL: personalised federated learning orchestrated by a multi-armed bandit (Lundahl, master's thesis, 2021).

A silo with little data asks whose models should be averaged with its own. Federated averaging (Algorithm 1; McMahan et
al., AISTATS 2017) averages all silos'. Here a bandit finds out. Its arms are sets of silos, the target T in each; its
reward is what the set's average is worth to the target.

Before the first round every silo trains the same fresh network for E epochs. One round (Algorithm 7)::

    server   the decision rule plays an arm, a set W of silos with T in it
             hands out the weights θ to W                                           Model
    silos    E epochs of SGD from θ on their own rows; send weights and rows n_k    Trained
    server   θ ← Σ n_k θ_k / Σ n_k over W; sends it to T                            Candidates
    target   y₁, the AUC of the local model of this round on its validation         Judged
             rows, and y₂, that of the average
    server   the increment y₂ − y₁ becomes a reward; the rule learns

An *Extreme-Explore round* (Section 8.3.2) lets all silos train and the target judge the average of every arm. The best
becomes θ; every arm gets a reward against the same model of the target, a paired comparison. Where all rounds are such,
``delayed`` sends the averages together with the next round's model: fewer messages, rewards a round late, and θ is then
chosen by the estimates so far.

**What is compared.** The increment is over the target's own local model *of the same round*, which has had the same
training (Section 8.2.2, Figure 12). Against the last round's θ (``against="previous"``, the lower row of Figure 13) the
training of a whole round and the arm before are in it as well.

**Drop-outs.** An arm is observed only if all of its silos and the target were heard. Otherwise there is no observation,
which is not a reward of zero, and θ is the average of who was heard. Without the target θ stays.

**The model of a regression.** The rounds do not train on the rows by which they choose, and choose by few of them.
So, once, every other silo tells the log-likelihood of its rows to second order, and the target fits all of its rows,
shrunk to the silos that are alike (:mod:`fedrank.silos.sceptic.shrinkage`): ``refit``. The rounds remain the evidence
on who helps and who harms. Silos are not left out by their arms: that was worse on tables of silos that are alike.

**Beyond the thesis** (its Section 10): ``target_weight``; the best θ so far by validation, and a stop after
``patience`` rounds without a better one; arms proposed by clustering the silos' updates, for many silos; ``probe``,
which lets the target judge every silo's own first model, to tell inverted labels.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from jaxtyping import Bool, Float, Int, UInt32
from typing_extensions import override

from fedrank.core.arrays import AnyArray, PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.fields import bound, setting
from fedrank.core.native import map_trees
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Exchange, Party
from fedrank.core.streams import fold_words
from fedrank.silos.bandits import rules
from fedrank.silos.config import RecordPrivacy
from fedrank.silos.glm import Sums
from fedrank.silos.messages import (
    SEEN,
    AllTold,
    Candidates,
    Judged,
    Model,
    ModelAndCandidates,
    Nothing,
    Told,
    Trained,
    TrainedAndJudged,
    decode_undefined,
    encode_undefined,
)
from fedrank.silos.party import (
    Part,
    Parts,
    Pretrain,
    SiloExchange,
    SiloProtocol,
    is_finite,
    row_count,
    rows_of,
    update_rows,
)
from fedrank.silos.records.account import run_account
from fedrank.silos.records.private_sgd import NoisyJudgements, PrivateSgd, os_noise, simulated_noise
from fedrank.silos.sceptic.learners import DEFAULT_PENALTY, fit_glm
from fedrank.silos.sceptic.shrinkage import Quadratic, shrink

#: Ways to make arms: the target with one other silo; every set with the target in it; the target with each of a few
#: clusters of silos whose updates are alike; all silos.
Arms: TypeAlias = Literal["pairs", "all", "clusters", "everyone"]

#: Number of arms that a round evaluates: the one that is played, all, or either of the two.
EVALUATES = ("one", "all", "either")

#: What silos disclose where the target's model is fitted anew.
_TOLD = (
    "Server and target learn from every other silo, once, weighted sums of the squares and products of its columns and "
    "labels. Of a silo with few rows for its columns they tell much of the rows."
)

#: Rounding of an eigenvalue of sums that cross in single precision, as a share of the largest.
_SINGLE = 1e-5

#: Number of clusters where none is given, if there are more silos than that.
_MOST_CLUSTERS = 8


@dataclass(frozen=True, kw_only=True)
class Bandit(rules.RuleSettings):
    """Settings of the bandit that chooses the silos to average with the target."""

    arms: Arms = setting(
        "pairs", "Sets that are tried: the target with one silo; all sets; clusters of silos; all silos at once."
    )
    alone: bool = setting(True, "pairs, everyone: the target alone is an arm, too.")
    clusters: int = setting(
        0,
        "arms = clusters: number of clusters; 0: 8, or one fewer than there are silos.",
        needs=("bandit.arms", ("clusters",)),
    )
    delayed: bool = setting(False, "extreme-explore: rewards a round late, for fewer messages.")
    against: Literal["own", "previous"] = setting(
        "own", "What an average must beat: the target's own model of the round, or the model of the round before."
    )
    target_weight: float | None = setting(None, "Weight of the target in every average; without it by rows.")
    patience: int | None = setting(
        None, "Rounds without a better model after which the run stops asking.", low=1, high=10**6
    )
    pretrain: bool = setting(True, "Train for E epochs before the first round.")
    probe: bool = setting(False, "Let the target judge every silo's first model: tells inverted labels.")
    refit: bool = setting(
        True, "Of a regression without noise: the model is fitted to all own rows, shrunk to the silos that are alike."
    )


@dataclass(frozen=True)
class BanditFedAvg(SiloProtocol):
    """Silos: a bandit finds whose models to average with the target's (MAB-FL).

    Attributes:
        target: T, the silo that is personalised for.
        evaluates: One of :data:`EVALUATES`; None: what the rule needs.
        judgements: Noise on what the target tells of models; None: there is none.
    """

    privacy: RecordPrivacy = field(default_factory=RecordPrivacy)
    bandit: Bandit = field(default_factory=Bandit)
    target: int = field(default=0, compare=False, metadata={"bound": True})
    evaluates: str | None = bound()
    judgements: NoisyJudgements | None = bound()

    name, paper = "bandit-fedavg", "lundahl2021mabfl"
    published = "Lundahl: Personalization by Combination, master's thesis, Stockholm University, 2021"
    crosses = "models, and how good the target finds them"
    recommended = True
    for_one_target = True

    def __post_init__(self):
        super().__post_init__()
        if self.sgd is None:  # settings alone
            return
        if self.evaluates is None:  # frozen: resolved once, here
            object.__setattr__(self, "evaluates", evaluated_by(self.rule))
        self._check()

    def _check(self) -> None:
        b = self.bandit
        if not 0 <= self.target < self.silos:
            raise ConfigError(f"target must be one of the {self.silos} silos, 0..{self.silos - 1}; got {self.target}.")
        if b.arms not in get_args(Arms):
            raise ConfigError(f"arms must be one of {', '.join(get_args(Arms))}, got {b.arms!r}.")
        if self.silos < 2:
            raise ConfigError(f"silos must be at least 2, so that there is a model to average with; got {self.silos}.")
        if b.arms == "clusters" and not 1 <= self.clusters < self.silos:
            raise ConfigError(f"clusters must be in 1..{self.silos - 1}, fewer than silos; got {self.clusters}.")
        if self.evaluates not in EVALUATES:
            raise ConfigError(f"evaluates must be one of {', '.join(EVALUATES)}, got {self.evaluates!r}.")
        if b.delayed and self.evaluates != "all":
            raise ConfigError("delayed rewards need a rule that evaluates all arms in every round: extreme-explore.")
        if b.against not in ("own", "previous"):
            raise ConfigError(f"against must be 'own' or 'previous', got {b.against!r}.")
        if b.against == "previous" and b.delayed:
            raise ConfigError("delayed rewards are against the target's own model; leave out against = 'previous'.")
        if b.delayed and self.crossing != "average":
            raise ConfigError("delayed rewards judge the models of the round before; they need crossing = 'average'.")
        if b.target_weight is not None and not 0 < b.target_weight < 1:
            raise ConfigError(f"target_weight must be between 0 and 1, got {b.target_weight}.")
        if (b.arms == "clusters" or b.probe) and not b.pretrain:
            raise ConfigError("clusters and probe look at the silos' first models; they need pretrain.")
        if self.judgements is not None and (b.delayed or self.measure != "auc"):
            raise ConfigError(
                "a record's ε (privacy.epsilon) is known of AUCs in the round itself; leave bandit.delayed out, and "
                "take silos.measure = 'auc'."
            )
        if not int(self.rule.fixed) < self.n_arms:
            raise ConfigError(f"the fixed arm must be in 0..{self.n_arms - 1}, got {int(self.rule.fixed)}.")

    @override
    def bind(self, parts: Parts) -> Any:
        made = replace(super().bind(parts), target=parts.target)
        return replace(made, judgements=made.sgd.noise_on_judgements(made.values_judged(parts.config.rounds)))

    @cached_property
    def rule(self) -> rules.Rule:
        """The decision rule of the settings."""
        return self.bandit.scalars()

    @property
    @override
    def rule_name(self) -> str:  # type: ignore[override] - elsewhere an attribute of the class
        return self.bandit.rule

    @property
    @override
    def pretrain(self) -> bool:  # type: ignore[override] - elsewhere an attribute of the class
        return self.bandit.pretrain

    @property
    def clusters(self) -> int:
        """Number of clusters that propose arms."""
        return self.bandit.clusters or min(_MOST_CLUSTERS, self.silos - 1)

    @property
    @override
    def citations(self) -> tuple[str, ...]:
        return *super().citations, "raj2017discounted" if self.bandit.gamma < 1 else ""

    @property
    def table(self) -> Bool[np.ndarray, "arms others"]:
        """Arms as sets of the other silos; of clusters, empty sets before they are known."""
        if self.bandit.arms == "all":
            return rules.combination_table(self.silos)
        if self.bandit.arms == "pairs":
            return rules.pair_table(self.silos, self.bandit.alone)
        if self.bandit.arms == "everyone":
            alone = np.zeros((int(self.bandit.alone), self.silos - 1), bool)
            return np.concatenate([alone, np.ones((1, self.silos - 1), bool)])
        return np.zeros((self.clusters + 1, self.silos - 1), bool)

    @property
    def n_arms(self) -> int:
        """Number of arms of the bandit: the candidate silos."""
        return len(self.table)

    @property
    def has_alone(self) -> bool:
        """True if arm 0 is the target alone, whose average is the target's own model and need not be sent."""
        return self.bandit.arms in ("all", "clusters") or self.bandit.alone

    @property
    def n_candidates(self) -> int:
        """Number of averages that an Extreme-Explore round sends to the target."""
        return self.n_arms - int(self.has_alone)

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        # Pre-training and probe in round 0; training; and the target's judgement.
        exchange = PretrainAndSend if self.bandit.arms == "clusters" or self.bandit.probe else Pretrain
        first: tuple[Exchange, ...] = (exchange(self),) if self.pretrain else ()
        if self.bandit.probe:
            first += (Probe(self),)
        # Behind the others, whose random numbers depend on their place.
        refit: tuple[Exchange, ...] = (Tell(self), Refit(self)) if self.refits else ()
        if self.bandit.delayed:
            return (*first, TrainOthers(self), TrainAndJudge(self), *refit)
        judge = {"one": ("one",), "all": ("all",), "either": ("one", "all")}[str(self.evaluates)]
        return (*first, Train(self), *(Judge(self, which, last=which == judge[-1]) for which in judge), *refit)

    @override
    def init(self, key: UInt32[np.ndarray, "2"] | None) -> ServerState:
        assert key is not None
        return self.begin(key, target=self.target)

    @override
    def begin(self, key: UInt32[np.ndarray, "2"], rule: rules.Rule | None = None, target: int = -1) -> ServerState:
        """As :meth:`SiloProtocol.begin`.

        Raises:
            ConfigError: The rule needs another ``evaluates``.
        """
        rule = self.rule if rule is None else rule
        needed = evaluated_by(rule)
        if self.evaluates not in (needed, "either"):
            raise ConfigError(f"this rule needs evaluates = {needed!r}, the protocol is made with {self.evaluates!r}.")
        weights = self.first_model(fold_words(key, 0))
        many = 1 if self.evaluates == "one" else self.n_arms
        kept = self.silos if self.bandit.delayed or self.bandit.probe else 0
        nan, zero, no = np.asarray(np.nan, np.float32), np.asarray(0, np.int32), np.asarray(False)
        state = ServerState(
            round=np.asarray(0, np.uint32),
            key=fold_words(key, 1),
            rule=rules.Rule(*(np.asarray(setting) for setting in rule)),
            target=np.asarray(target, np.int32),
            members=rules.members_of(self.table, target, self.silos),
            estimates=rules.start(rule, self.n_arms),
            arm=zero,
            explore=no,
            weights=weights,
            rows=np.zeros(self.silos, np.float32),
            models=np.zeros((many, self.parameters), np.float32),
            complete=np.zeros(self.n_arms, bool),
            locals=np.zeros((kept, self.parameters), np.float32),
            heard=np.zeros(kept, bool),
            previous=nan,
            best=np.asarray(-np.inf, np.float32),
            best_weights=weights,
            best_round=np.asarray(-1, np.int32),
            stopped=no,
            own=nan,
            reference=nan,
            judged=np.full(self.n_arms, nan),
            observed=np.zeros(self.n_arms, bool),
            played=zero,
            compared=zero,
            explored=no,
            probe=np.full(self.silos, nan),
            told=np.zeros((self.silos if self.refits else 0, self.sizes.get("statistics", 0)), np.float32),
            refit=np.full(self.parameters if self.refits else 0, nan),
        )
        return self.choose_arm(state)

    def choose_arm(self, state: ServerState) -> ServerState:
        """Step 1 of Algorithm 7: the arm of the round, and whether all arms are tried."""
        key = fold_words(state.key, state.round)
        arm = rules.choose(state.rule, state.estimates, self.playable(state), key)
        if self.evaluates == "either":
            explore = rules.explores(state.rule, state.round.astype(np.int32), fold_words(key, 2))
        else:
            explore = np.bool_(self.evaluates == "all")
        return state._replace(arm=arm, explore=explore)

    def playable(self, state: ServerState) -> Bool[np.ndarray, " arms"]:
        """Mask of playable arms: a cluster that is the same set as an earlier one is not."""
        if self.bandit.arms != "clusters":
            return np.ones(self.n_arms, bool)
        same = np.all(state.members[:, None] == state.members[None], axis=-1)
        return ~np.any(same & np.tri(self.n_arms, k=-1, dtype=bool), axis=1)

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        if self.judgements is not None and isinstance(self.sgd, PrivateSgd):
            judged = self.judgements.spent(self.values_judged(rounds), delta)
            return run_account(self.sgd, rounds, delta, pretrain=self.pretrain, judged=judged)
        measure = {"auc": "AUC", "log-loss": "log-loss"}[self.measure]
        shown = "; before the first round it is shown every silo's first model as it is" if self.bandit.probe else ""
        told = (
            f"No row is in a message. The server learns the {measure} of models on the target's validation rows.",
            "The target is shown averages of models. From the average with one other silo, or from those of many sets, "
            f"it can work out the models of the silos that were averaged with it{shown}.",
            "A silo that was averaged with the target alone, and is asked again, can work out the target's model.",
        )
        return PrivacyReport.none(rounds, SEEN, (*told, _TOLD) if self.refits else told)

    @override
    def weights(self, state: ServerState) -> Float[np.ndarray, " parameters"]:
        return state.weights

    @override
    def models(self, state: ServerState, party: Party) -> dict[str, Float[np.ndarray, "silos size"]]:
        own = party.own
        # What does not cross belongs to the model that it was judged with.
        judged = own.best_model if state.best > -np.inf else own.model
        last, best = self.whole_model(state.weights, own.model), self.whole_model(state.best_weights, judged)
        models = {"last": self.usable(last, party), "best": self.usable(best, party)}
        if self.refits:  # a target that was not heard keeps what the rounds gave
            there = is_finite(state.refit)
            models["refit"] = np.where(there, np.broadcast_to(state.refit, best.shape), models["best"])
        return models

    @override
    def watch(self, state: ServerState) -> dict[str, Any]:
        # Increments are NaN where not observed. Where rewards are late, arm and increments are of the round before.
        return {
            "arm": state.compared,
            "explored": state.explored,
            "own": state.own,
            "judged": np.where(state.observed, state.judged, np.nan),
            "increments": np.where(state.observed, state.judged - state.reference, np.nan),
            "estimates": rules.estimate(state.rule, state.estimates),
            "best_round": state.best_round,
            "stopped": state.stopped,
            "members": state.members,
            "probe": state.probe,
        }

    def pair_increments(
        self,
        increments: Float[np.ndarray, "rounds arms"],
        observed: Bool[np.ndarray, "rounds arms"],
        explored: Bool[np.ndarray, "rounds arms"],
    ) -> tuple[Float[np.ndarray, "rounds arms"], Bool[np.ndarray, "rounds arms"]]:
        """Increments of a run that compare arms fairly, and which of them were observed.

        Args:
            increments: Of each round and arm; changed.
            observed: Which were observed; changed.
            explored: Whether the round was an Extreme-Explore round.
        """
        if self.evaluates == "either":
            observed &= explored
        elif self.evaluates == "one":
            observed &= np.cumsum(observed, axis=0) == 1
        if self.bandit.against == "previous" and not self.has_alone:
            observed[:] = False  # over the last round an increment holds a round of training as well
        if self.has_alone and self.bandit.against == "own":
            # The target alone is what increments are measured from: 0 in every round in which there is one.
            any_ = observed.any(axis=1)
            increments[any_, 0], observed[any_, 0] = 0.0, True
        return increments, observed

    def average_weights(
        self, members: Bool[np.ndarray, "arms silos"], state: ServerState, heard: Bool[np.ndarray, " silos"]
    ) -> Float[np.ndarray, "arms silos"]:
        """Weight of each silo in each arm's average (Algorithm 1, step 3): of the silos that were heard, by rows."""
        here = members & heard[None]
        is_target = (np.arange(self.silos) == state.target)[None]
        amounts = np.where(here, state.rows[None], 0.0)
        # If no silo has a row, all count alike.
        amounts = np.where(np.sum(amounts, -1, keepdims=True) > 0, amounts, here.astype(np.float32))
        by_rows = amounts / np.maximum(np.sum(amounts, -1, keepdims=True), 1.0)
        if self.bandit.target_weight is None:
            return by_rows
        others = np.where(is_target, 0.0, amounts)
        total = np.sum(others, -1, keepdims=True)
        shared = others / np.maximum(total, 1.0) * (1 - self.bandit.target_weight)
        shared = shared + is_target.astype(np.float32) * self.bandit.target_weight
        return np.where(total > 0, shared, by_rows)

    @property
    def refits(self) -> bool:
        """True if the target's model is fitted anew to all of its rows: of a regression without noise."""
        return self.bandit.refit and not self.net.widths and not self.sgd.draws_noise

    @property
    @override
    def sizes(self) -> dict[str, int]:
        p = self.net.n_features + 1
        told = {"silos": self.silos, "statistics": 1 + p + p * (p + 1) // 2} if self.refits else {}
        return {**super().sizes, **told}

    def values_judged(self, rounds: int) -> int:
        """Largest number of performances that the target reports in a number of rounds."""
        each = {"one": 1, "all": self.n_candidates, "either": max(1, self.n_candidates)}[str(self.evaluates)]
        return rounds * (1 + each) + (1 + self.silos) * int(self.bandit.probe and rounds > 0)

    def judge(self, weights: Float[np.ndarray, "silos models parameters"], party: Party, noise: Any = ()) -> Judged:
        """At the target: y₁ of the local model, and y₂ of models that crossed.

        Args:
            weights: These models.
            party: The target, of one run or more.
            noise: Noise on y₁ and y₂, as the exchange draws it; empty where there is none.
        """
        own = party.own.model[:, None]
        models = np.concatenate([own, self.whole_model(weights, own)], axis=1)
        values = self.performance(models, party)
        if self.judgements is not None:
            values = self.judgements.add_noise(values, rows_of(party, "vali"), noise)
        values = encode_undefined(values)
        return Judged(values[:, 0], values[:, 1:])

    def record_best(self, party: Party, judged: Judged, alone: bool) -> Party:
        """The target with the local-only numbers of the best model that it judged.

        It takes the best of a round to be what the server makes θ; where silos dropped out that may be another arm.
        """
        value = judged.models.max(axis=-1)
        value = np.maximum(value, judged.own) if alone else value
        own = party.own
        better = value > own.best
        best_model = np.where(better[:, None], own.model, own.best_model)
        return party._replace(own=own._replace(best=np.where(better, value, own.best), best_model=best_model))

    def average(
        self,
        state: ServerState,
        weights: Float[np.ndarray, "silos parameters"],
        heard: Bool[np.ndarray, " silos"],
        which: Bool[np.ndarray, " arms"],
    ) -> ServerState:
        """Step 5 of Algorithm 7: the average of every arm, or of the one that is played.

        Args:
            state: The state, with ``rows`` of the silos that were heard.
            weights: The models that the silos sent.
            heard: Which silos were heard.
            which: Arms whose silos were asked.
        """
        there = heard[state.target]
        members = state.members[state.arm][None] if self.evaluates == "one" else state.members
        sent = np.where(heard[:, None], weights, 0.0)  # zero times the NaN of a silo that was not heard is NaN
        models = self.average_weights(members, state, heard) @ sent
        complete = which & there & np.all(heard[None] | ~state.members, axis=1)
        return state._replace(models=np.where(there, models, state.weights[None]), complete=complete)

    def record_judgement(
        self,
        state: ServerState,
        own: Float[AnyArray, ""],
        judged: Float[np.ndarray, " arms"],
        heard: Bool[AnyArray, ""],
    ) -> ServerState:
        """Steps 4 and 6: y₁ and y₂ as the target sent them, if it was heard; NaN where it was not asked."""
        return state._replace(
            own=np.where(heard, own, state.own),
            reference=np.where(heard, own if self.bandit.against == "own" else state.previous, state.reference),
            judged=np.where(heard, judged, state.judged),
            observed=np.where(heard, state.complete & np.isfinite(judged), state.observed),
        )

    def learn(self, state: ServerState) -> ServerState:
        """Steps 7 and 8: increments become rewards, and the rule learns."""
        increments = np.where(state.observed, state.judged - state.reference, np.nan)
        return state._replace(estimates=rules.update(state.rule, state.estimates, increments, state.observed))

    def best_arm(self, state: ServerState) -> Int[AnyArray, ""]:
        """After an Extreme-Explore round: the arm of the highest reward; without rewards, of the highest estimate.

        An arm that lacks a silo is left out, unless there is no other.
        """
        said = np.any(state.observed)
        # Before anything was judged there is no last round; what is subtracted is the same for all arms.
        reference = np.where(np.isfinite(state.reference), state.reference, 0.0)
        increments = np.where(state.observed, state.judged - reference, 0.0)
        return rules.best(state.rule, state.estimates, increments, np.where(said, state.observed, state.complete))

    def update_best(
        self,
        state: ServerState,
        weights: Float[np.ndarray, " parameters"],
        value: Float[AnyArray, ""],
        number: Int[AnyArray, ""] | UInt32[AnyArray, ""],
    ) -> ServerState:
        """Remember the best θ so far, and stop where there has been none for too long (early stopping).

        While none has been judged, the newest is the best that is known.
        """
        value = np.where(np.isfinite(value), value, -np.inf)
        number = np.asarray(number, np.int32)
        won = (value > state.best) | (state.best == -np.inf)
        best_round = np.where(value > state.best, number, state.best_round)
        since = np.where(best_round < 0, 0, number - best_round)
        stopped = state.stopped | (since >= (self.bandit.patience or 2**30))
        return state._replace(
            best=np.maximum(value, state.best),
            best_weights=np.where(won, weights, state.best_weights),
            best_round=best_round,
            stopped=stopped,
        )

    def end_round(self, state: ServerState) -> ServerState:
        """The end of a round: θ, what the rule has learnt, and the next round's arm."""
        after = self.learn(state)
        arm = np.where(state.explore, self.best_arm(after), state.arm)
        theta = state.models[0] if self.evaluates == "one" else state.models[arm]
        value = state.judged[arm]
        after = self.update_best(after._replace(weights=theta), theta, value, state.round)
        after = after._replace(
            previous=np.where(np.isfinite(value), value, state.previous),
            played=arm,
            compared=arm,
            explored=state.explore,
            round=state.round + 1,
        )
        return freeze_if_stopped(state, self.choose_arm(after))

    def start_round(self, state: ServerState) -> ServerState:
        """The state at the beginning of a round: nothing has been judged."""
        nan, none = np.full(self.n_arms, np.nan, np.float32), np.zeros(self.n_arms, bool)
        return state._replace(own=nan[0], reference=nan[0], judged=nan, observed=none)


class ServerState(NamedTuple):
    """State of the server between rounds.

    Attributes:
        round: Number of the round.
        key: Data of the server's own key: which arms are tried.
        rule: The decision rule, as arrays, so that one program runs many.
        target: T.
        members: Which silos an arm has.
        estimates: What the rule has learnt.
        arm: The arm of this round.
        explore: Whether this is an Extreme-Explore round.
        weights: θ.
        rows: n_k, as far as the silos have said.
        models: Averages of this round that are to be judged; [1, parameters] if a round evaluates one.
        complete: Whether all silos of an arm were heard.
        locals: Local models of this round, until the target is heard too; [0, parameters] where rewards are not late.
        heard: Which silos trained in this round; [0] where rewards are not late.
        previous: Performance of θ when it was last judged; NaN before.
        best: Performance of the best θ so far on the target's validation rows; −∞ before.
        best_weights: The best θ so far.
        best_round: Its round; −1 before.
        stopped: Whether there has been no better θ for too long.
        own: y₁ of the round that is over.
        reference: What increments of that round are measured from.
        judged: y₂ of that round.
        observed: Which of ``judged`` were observed.
        played: The arm whose average became θ in the round that is over.
        compared: The arm whose average was θ when the target judged; of the round before where rewards are late.
        explored: Whether the round that is over was an Extreme-Explore round.
        probe: AUC of every silo's first model on the target's validation rows; NaN where not asked.
        told: What each silo's rows say of a regression; zeros of those that were not heard.
        refit: The target's regression of all its rows, shrunk to the others'; NaN before.
    """

    round: UInt32[AnyArray, ""]
    key: UInt32[np.ndarray, "2"]
    rule: rules.Rule
    target: Int[AnyArray, ""]
    members: Bool[np.ndarray, "arms silos"]
    estimates: rules.Estimates
    arm: Int[AnyArray, ""]
    explore: Bool[AnyArray, ""]
    weights: Float[np.ndarray, " parameters"]
    rows: Float[np.ndarray, " silos"]
    models: Float[np.ndarray, "arms parameters"]
    complete: Bool[np.ndarray, " arms"]
    locals: Float[np.ndarray, "silos parameters"]
    heard: Bool[np.ndarray, " silos"]
    previous: Float[AnyArray, ""]
    best: Float[AnyArray, ""]
    best_weights: Float[np.ndarray, " parameters"]
    best_round: Int[AnyArray, ""]
    stopped: Bool[AnyArray, ""]
    own: Float[AnyArray, ""]
    reference: Float[AnyArray, ""]
    judged: Float[np.ndarray, " arms"]
    observed: Bool[np.ndarray, " arms"]
    played: Int[AnyArray, ""]
    compared: Int[AnyArray, ""]
    explored: Bool[AnyArray, ""]
    probe: Float[np.ndarray, " silos"]
    told: Float[np.ndarray, "silos statistics"]
    refit: Float[np.ndarray, " parameters"]


def freeze_if_stopped(before: ServerState, after: ServerState) -> ServerState:
    """The state after a step; the state before it where the run had stopped."""
    return map_trees(lambda old, new: np.where(before.stopped, old, new), before, after)


def evaluated_by(rule: rules.Rule) -> str:
    """Number of arms that a rule needs judged in a round: "one", "all" or "either"."""
    if rules.explores_always(rule):
        return "all"
    return "either" if rule.every > 0 or rule.chance > 0 else "one"


@dataclass(frozen=True)
class PretrainAndSend(Pretrain, request=Model, reply=Trained):
    """Pre-training whose models are sent: their updates are clustered into arms, or the target judges them."""

    @override
    def respond(self, request: Model, party: Party, draws: PyTree) -> tuple[Party, Trained]:
        s = self.settings
        model = self.train(request, party, draws)
        return s.keep(party, model), Trained(s.shared_part(model), row_count(party))

    @override
    def tell(self, state: ServerState, replies: Trained, arrived: Bool[np.ndarray, " silos"]) -> ServerState:
        s = self.settings
        arrived = arrived & is_finite(replies.weights)
        state = state._replace(rows=update_rows(state.rows, replies.rows, arrived))
        if s.bandit.probe:  # kept until the target has judged them
            state = state._replace(locals=np.where(arrived[:, None], replies.weights, 0.0), heard=arrived)
        if s.bandit.arms != "clusters":
            return state
        updates = np.where(arrived[:, None], replies.weights - state.weights[None], 0.0)
        # A silo that was not heard has an update of zero, unlike any other; it may be heard in a later round.
        return s.choose_arm(state._replace(members=rules.cluster_arms(updates, state.target, s.clusters)))


@dataclass(frozen=True)
class WithTarget(SiloExchange):
    """An exchange with the target alone."""

    @override
    def asked(self, state: ServerState, parties: int) -> Bool[np.ndarray, " silos"]:
        return (np.arange(parties) == state.target) & ~state.stopped

    @override
    def max_asked(self, parties: int) -> int:
        return 1


@dataclass(frozen=True)
class Judging(WithTarget):
    """An exchange in which the target tells how good models are, with noise where the protocol has some."""

    trains = False

    @override
    def draw(self, key: Any) -> PyTree:
        return () if self.settings.judgements is None else simulated_noise(key, (1 + self.sizes["models"],))

    @override
    def draw_from_os(self) -> PyTree:
        return () if self.settings.judgements is None else os_noise((1 + self.sizes["models"],))


@dataclass(frozen=True)
class Probe(Judging, request=Candidates, reply=Judged):
    """The target judges every silo's first model by itself: below one half, labels look inverted."""

    name, once = "probe", True

    @property
    @override
    def sizes(self) -> dict[str, int]:
        return {**self.settings.sizes, "models": self.settings.silos}

    @override
    def ask(self, state: ServerState) -> Candidates:
        return Candidates(state.locals)

    @override
    def respond(self, request: Candidates, party: Party, draws: PyTree) -> tuple[Party, Judged]:
        return party, self.settings.judge(request.models, party, draws)

    @override
    def tell(self, state: ServerState, replies: Judged, arrived: Bool[np.ndarray, " silos"]) -> ServerState:
        known = state.heard & arrived[state.target]
        return state._replace(probe=np.where(known, decode_undefined(replies.models[state.target]), np.nan))


@dataclass(frozen=True)
class Train(SiloExchange, request=Model, reply=Trained):
    """Steps 2 and 3 of Algorithm 7: the silos of the arm train; in an Extreme-Explore round, those of every arm."""

    name = "train"

    @override
    def asked(self, state: ServerState, parties: int) -> Bool[np.ndarray, " silos"]:
        anybody = np.any(state.members & self.settings.playable(state)[:, None], axis=0)
        return np.where(state.explore, anybody, state.members[state.arm]) & ~state.stopped

    @override
    def max_asked(self, parties: int) -> int:
        s = self.settings
        if s.evaluates != "one" or s.bandit.arms == "clusters":
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
            start = np.where((np.asarray(request.round) == 0)[:, None], party.own.model, start)
        model = s.train(start, party, draws)
        return s.keep(party, model), Trained(s.shared_part(model), row_count(party))

    @override
    def tell(self, state: ServerState, replies: PyTree, arrived: Bool[np.ndarray, " silos"]) -> ServerState:
        s = self.settings
        heard = arrived & is_finite(replies.weights)
        state = s.start_round(state)._replace(rows=update_rows(state.rows, replies.rows, heard))
        played = np.arange(s.n_arms) == state.arm
        return s.average(state, replies.weights, heard, np.where(state.explore, s.playable(state), played))


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
    def asked(self, state: ServerState, parties: int) -> Bool[np.ndarray, " silos"]:
        due = self.settings.evaluates != "either" or state.explore == (self.which == "all")
        return super().asked(state, parties) & due

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
    def tell(self, state: ServerState, replies: Judged, arrived: Bool[np.ndarray, " silos"]) -> ServerState:
        s, target = self.settings, state.target
        own, values = decode_undefined(replies.own[target]), decode_undefined(replies.models[target])
        if self.which == "one":
            values = np.where(np.arange(s.n_arms) == state.arm, values[0], np.nan)
        elif s.has_alone:  # the average of the target alone is the target's own model
            values = np.concatenate([own[None], values])
        state = s.record_judgement(state, own, values, arrived[target])
        return s.end_round(state) if self.last else state


@dataclass(frozen=True)
class Tell(SiloExchange, request=Nothing, reply=Told):
    """The other silos tell, once, what their training rows say of a regression: model and second derivatives."""

    name, trains, once = "tell", False, True

    @override
    def asked(self, state: ServerState, parties: int) -> Bool[np.ndarray, " silos"]:
        return np.arange(parties) != state.target

    @override
    def ask(self, state: ServerState) -> Nothing:
        return Nothing()

    @override
    def respond(self, request: Nothing, party: Party, draws: PyTree) -> tuple[Party, Told]:
        told = [Quadratic.of(fit_glm([own], DEFAULT_PENALTY)) for own in designs(party, "train")]
        return party, Told(np.stack([Sums(one.constant, one.linear, one.precision).flat() for one in told]))

    @override
    def tell(self, state: ServerState, replies: Told, arrived: Bool[np.ndarray, " silos"]) -> ServerState:
        heard = arrived & is_finite(replies.terms)
        return state._replace(told=np.where(heard[:, None], replies.terms, 0.0))


@dataclass(frozen=True)
class Refit(WithTarget, request=AllTold, reply=Trained):
    """The target fits a regression to all of its rows, shrunk to silos that are alike, and sends it."""

    name, trains, once = "refit", False, True

    @override
    def ask(self, state: ServerState) -> AllTold:
        return AllTold(state.told)

    @override
    def respond(self, request: AllTold, party: Party, draws: PyTree) -> tuple[Party, Trained]:
        s, out = self.settings, []
        for told, (x, y) in zip(request.terms.astype(float), designs(party, "train", "vali"), strict=True):
            others = [Sums.of(one, x.shape[1]) for one in told if one.any()]
            others = [one for one in others if one.is_concave(_SINGLE)]  # no rows have other sums
            beta = shrink(x, y, [Quadratic(one.information, one.gradient, one.value) for one in others]).beta
            out.append(s.net.of_log_odds(beta))
        return party, Trained(np.stack(out), row_count(party))

    @override
    def tell(self, state: ServerState, replies: Trained, arrived: Bool[np.ndarray, " silos"]) -> ServerState:
        return state._replace(refit=np.where(arrived[state.target], replies.weights[state.target], state.refit))


def designs(party: Party, *parts: Part) -> list[tuple[Float[np.ndarray, "_ p"], Float[np.ndarray, " _"]]]:
    """Rows of these parts of each silo behind a column of ones, and their labels, in double precision."""
    each, out = [rows_of(party, part) for part in parts], []
    for k in range(len(each[0].n)):
        x = np.concatenate([rows.x[k, : rows.n[k]] for rows in each]).astype(float)
        y = np.concatenate([rows.y[k, : rows.n[k]] for rows in each]).astype(float)
        out.append((np.column_stack([np.ones(len(y)), x]), y))
    return out


@dataclass(frozen=True)
class TrainOthers(Train):
    """Training of every silo of any arm but the target, with rewards a round late."""

    name = "train-others"

    @override
    def asked(self, state: ServerState, parties: int) -> Bool[np.ndarray, " silos"]:
        return super().asked(state, parties) & (np.arange(parties) != state.target)

    @override
    def tell(self, state: ServerState, replies: PyTree, arrived: Bool[np.ndarray, " silos"]) -> ServerState:
        heard = arrived & is_finite(replies.weights)
        rows = update_rows(state.rows, replies.rows, heard)
        # The models are kept until the target is heard, too.
        kept = np.where(heard[:, None], replies.weights, 0.0)
        return freeze_if_stopped(state, state._replace(locals=kept, heard=heard, rows=rows))


@dataclass(frozen=True)
class TrainAndJudge(WithTarget, Train, request=ModelAndCandidates, reply=TrainedAndJudged):
    """Judgement of the last round's averages and training at the target, with rewards a round late."""

    name = "train-and-judge"

    @property
    @override
    def sizes(self) -> dict[str, int]:
        return {**self.settings.sizes, "models": self.settings.n_candidates}

    @override
    def ask(self, state: ServerState) -> ModelAndCandidates:
        # In round 0 the averages are zeros, which are not used.
        return ModelAndCandidates(state.round, state.weights, state.models[int(self.settings.has_alone) :])

    @override
    def respond(self, request: ModelAndCandidates, party: Party, draws: PyTree) -> tuple[Party, TrainedAndJudged]:
        # Judge first: the averages are compared with the local model of the same round.
        judged = self.settings.judge(request.models, party)
        party, reply = super().respond(Model(request.round, request.weights), party, draws)
        return party, TrainedAndJudged(reply.weights, reply.rows, judged.own, judged.models)

    @override
    def tell(self, state: ServerState, replies: TrainedAndJudged, arrived: Bool[np.ndarray, " silos"]) -> ServerState:
        s, target, before = self.settings, state.target, state
        # Rewards of the round before.
        own, values = decode_undefined(replies.own[target]), decode_undefined(replies.models[target])
        values = np.concatenate([own[None], values]) if s.has_alone else values
        state = s.record_judgement(s.start_round(state), own, values, arrived[target])
        state = s.learn(state)
        value = np.where(np.any(state.complete), state.judged[state.played], np.nan)
        state = s.update_best(state, state.weights, value, np.maximum(state.round.astype(np.int32) - 1, 0))
        # This round's averages; θ is chosen by the estimates so far.
        mine = np.arange(s.silos) == target
        heard = np.where(mine, arrived & is_finite(replies.weights), state.heard)
        rows = update_rows(state.rows, replies.rows, mine & heard)
        sent = np.where(mine[:, None], replies.weights, state.locals)
        state = s.average(state._replace(rows=rows), sent, heard, s.playable(state))
        arm = rules.best(state.rule, state.estimates, np.zeros(s.n_arms, np.float32), state.complete)
        state = state._replace(
            weights=state.models[arm],
            previous=np.where(np.isfinite(value), value, state.previous),
            played=arm,
            compared=state.played,
            explored=state.explore,
            round=state.round + 1,
        )
        return freeze_if_stopped(before, s.choose_arm(state))
