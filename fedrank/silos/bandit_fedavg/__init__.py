"""MAB-FL: personalised federated learning orchestrated by a multi-armed bandit (Lundahl, master's thesis, 2021).

A silo with little data asks whose models should be averaged with its own. Federated averaging (Algorithm 1; McMahan et
al., AISTATS 2017) averages everybody's. Here a bandit finds out. Its arms are sets of silos, the target T in each; its
reward is what the set's average is worth to the target.

Before the first round every silo trains the same fresh network for E epochs. One round (Algorithm 7)::

    server   the decision rule plays an arm, a set W of silos with T in it
             hands out the weights θ to W                                           Model
    silos    E epochs of SGD from θ on their own rows; send weights and rows n_k    Trained
    server   θ ← Σ n_k θ_k / Σ n_k over W; sends it to T                            Candidates
    target   y₁, the AUC of its own local model of this round on its validation     Judged
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

**Beyond the thesis** (its Section 10): ``target_weight``; the best θ so far by validation, and a stop after
``patience`` rounds without a better one; arms proposed by clustering the silos' updates, for many silos; ``probe``,
which lets the target judge every silo's own first model, to tell inverted labels.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Key, UInt32
from typing_extensions import override

from fedrank.core.arrays import AnyArray, module_of
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Exchange, Party
from fedrank.core.streams import fold, key_of
from fedrank.silos.averaging import weighted
from fedrank.silos.bandit_fedavg.exchanges import Judge, PretrainAndSend, Probe, Train, TrainAndJudge, TrainOthers
from fedrank.silos.bandit_fedavg.state import ServerState, evaluated_by, freeze_if_stopped, revealed
from fedrank.silos.bandits import arms as sets
from fedrank.silos.bandits import rules
from fedrank.silos.messages import SEEN, Judged, encode_undefined
from fedrank.silos.party import Pretrain, SiloProtocol, rows_of
from fedrank.silos.private_sgd import PrivateSgd
from fedrank.silos.records.account import run_account
from fedrank.silos.records.judgements import NoisyJudgements

#: What arms there are: the target with one other silo; every set with the target in it; the target with each of a few
#: clusters of silos whose updates are alike; all silos.
ARMS = ("pairs", "all", "clusters", "everyone")

#: How many arms a round evaluates: the one that is played, all, or either of the two.
EVALUATES = ("one", "all", "either")


@dataclass(frozen=True)
class BanditFedAvg(SiloProtocol):
    """MAB-FL with its settings.

    Attributes:
        rule: Decision rule, as :func:`fedrank.silos.bandits.rules.make_rule` makes it.
        target: T, the silo that is personalised for.
        arms: One of :data:`ARMS`.
        alone: Whether the target alone is an arm, too; of ``all`` it always is.
        clusters: Number of clusters that propose arms.
        evaluates: One of :data:`EVALUATES`; None: what the rule needs.
        kinds: Numbers of :data:`fedrank.silos.bandits.rules.KINDS` that are compiled; None: the rule's own.
        delayed: Rewards a round late; needs ``evaluates="all"``.
        against: ``"own"``, the target's local model of the same round, or ``"previous"``, θ as it was judged last.
        target_weight: Weight of the target in every average, in (0, 1); None: by rows, as the thesis.
        pretrain: Train for E epochs before the first round.
        probe: Let the target judge every silo's first model.
        patience: Rounds without a better θ after which nothing is asked any more; None: never.
        judgements: Noise on what the target tells of models; None: there is none.
    """

    rule: rules.Rule = field(default_factory=lambda: rules.make_rule("epsilon-greedy"), compare=False)
    target: int = field(default=0, compare=False)
    arms: str = "pairs"
    alone: bool = True
    clusters: int = 8
    evaluates: str | None = None
    kinds: tuple[int, ...] | None = None
    delayed: bool = False
    against: str = "own"
    target_weight: float | None = None
    pretrain: bool = True
    probe: bool = False
    patience: int | None = None
    judgements: NoisyJudgements | None = None

    name = "bandit-fedavg"

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.target < self.silos:
            raise ConfigError(f"target must be one of the {self.silos} silos, 0..{self.silos - 1}; got {self.target}.")
        if self.arms not in ARMS:
            raise ConfigError(f"arms must be one of {', '.join(ARMS)}, got {self.arms!r}.")
        if self.silos < 2:
            raise ConfigError("one silo has nobody to average with; give at least 2.")
        if self.arms == "clusters" and not 1 <= self.clusters < self.silos:
            raise ConfigError(f"clusters must be in 1..{self.silos - 1}, fewer than silos; got {self.clusters}.")
        if self.evaluates is None:  # frozen: resolved once, here
            object.__setattr__(self, "evaluates", evaluated_by(self.rule))
        if self.kinds is None:
            object.__setattr__(self, "kinds", tuple(sorted({int(kind) for kind in np.ravel(self.rule.kind)})))
        if self.evaluates not in EVALUATES:
            raise ConfigError(f"evaluates must be one of {', '.join(EVALUATES)}, got {self.evaluates!r}.")
        if self.delayed and self.evaluates != "all":
            raise ConfigError("delayed rewards need a rule that evaluates all arms in every round: extreme-explore.")
        if self.against not in ("own", "previous"):
            raise ConfigError(f"against must be 'own' or 'previous', got {self.against!r}.")
        if self.against == "previous" and self.delayed:
            raise ConfigError("delayed rewards are against the target's own model; leave out against = 'previous'.")
        if self.delayed and self.crossing != "average":
            raise ConfigError("delayed rewards judge the models of the round before; they need crossing = 'average'.")
        if self.target_weight is not None and not 0 < self.target_weight < 1:
            raise ConfigError(f"target_weight must be between 0 and 1, got {self.target_weight}.")
        if self.patience is not None and not 1 <= self.patience <= 10**6:
            raise ConfigError(f"patience must be at least 1 round, got {self.patience}.")
        if (self.arms == "clusters" or self.probe) and not self.pretrain:
            raise ConfigError("clusters and probe look at the silos' first models; they need pretrain.")
        if self.judgements is not None and (self.delayed or self.measure != "auc"):
            raise ConfigError(
                "a record's ε (privacy.epsilon) is known of AUCs in the round itself; leave bandit.delayed out, and "
                "take silos.measure = 'auc'."
            )
        if not int(self.rule.fixed) < self.n_arms:
            raise ConfigError(f"the fixed arm must be in 0..{self.n_arms - 1}, got {int(self.rule.fixed)}.")

    @property
    def table(self) -> Bool[np.ndarray, "arms others"]:
        """Arms as sets of the other silos; of clusters, empty sets before they are known."""
        if self.arms == "all":
            return sets.combination_table(self.silos)
        if self.arms == "pairs":
            return sets.pair_table(self.silos, self.alone)
        if self.arms == "everyone":
            return np.concatenate(
                [sets.pair_table(self.silos, True)[: int(self.alone)], sets.everyone_table(self.silos)]
            )
        return np.zeros((self.clusters + 1, self.silos - 1), bool)

    @property
    def n_arms(self) -> int:
        """Number of arms of the bandit: the candidate silos."""
        return len(self.table)

    @property
    def has_alone(self) -> bool:
        """Whether arm 0 is the target alone, whose average is the target's own model and need not be sent."""
        return self.arms in ("all", "clusters") or self.alone

    @property
    def n_candidates(self) -> int:
        """Number of averages that an Extreme-Explore round sends to the target."""
        return self.n_arms - int(self.has_alone)

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        # Pre-training and probe in round 0; training; and the target's judgement.
        exchange = PretrainAndSend if self.arms == "clusters" or self.probe else Pretrain
        first: tuple[Exchange, ...] = (exchange(self),) if self.pretrain else ()
        if self.probe:
            first += (Probe(self),)
        if self.delayed:
            return (*first, TrainOthers(self), TrainAndJudge(self))
        judge = {"one": ("one",), "all": ("all",), "either": ("one", "all")}[str(self.evaluates)]
        return (*first, Train(self), *(Judge(self, which, last=which == judge[-1]) for which in judge))

    @override
    def init(self, key: Key[Array, ""]) -> ServerState:
        return self.begin(key, self.rule, jnp.int32(self.target))

    def begin(self, key: Key[Array, ""], rule: rules.Rule, target: int | Int[AnyArray, ""]) -> ServerState:
        """:meth:`init` with another rule and target, which may be traced: one program runs many of both.

        Raises:
            ConfigError: The rule, where it is known, is of a kind that is not compiled, or needs another ``evaluates``.
        """
        self._check_rule(rule)
        weights_key, own = jax.random.split(key)
        # A plain array, which a checkpoint can hold.
        return self.first_state(self.first_model(weights_key), jax.random.key_data(own), rule, target)

    def first_state(
        self,
        weights: Float[AnyArray, " parameters"],
        key: UInt32[AnyArray, "2"],
        rule: rules.Rule,
        target: int | Int[AnyArray, ""],
    ) -> ServerState:
        """The state before the first round, with arrays of JAX or NumPy as the weights are.

        Args:
            weights: The first model.
            key: Both words of the server's own key.
            rule: The decision rule.
            target: Number of the target.
        """
        xp = module_of(weights)
        members = sets.members_of(xp.asarray(self.table), target, self.silos)
        many = 1 if self.evaluates == "one" else self.n_arms
        kept = self.silos if self.delayed or self.probe else 0
        nothing = xp.full(self.n_arms, xp.nan, np.float32)
        state = ServerState(
            round=xp.uint32(0),
            key=key,
            rule=rules.Rule(*(xp.asarray(setting) for setting in rule)),
            target=xp.asarray(target, np.int32),
            members=members,
            estimates=rules.start(rule, self.n_arms),
            arm=xp.int32(0),
            explore=xp.asarray(False),
            weights=weights,
            rows=xp.zeros(self.silos, np.float32),
            models=xp.zeros((many, self.parameters), np.float32),
            complete=xp.zeros(self.n_arms, bool),
            locals=xp.zeros((kept, self.parameters), np.float32),
            heard=xp.zeros(kept, bool),
            previous=xp.float32(xp.nan),
            best=xp.float32(-xp.inf),
            best_weights=weights,
            best_round=xp.int32(-1),
            stopped=xp.asarray(False),
            own=xp.float32(xp.nan),
            reference=xp.float32(xp.nan),
            judged=nothing,
            observed=xp.zeros(self.n_arms, bool),
            played=xp.int32(0),
            compared=xp.int32(0),
            explored=xp.asarray(False),
            probe=xp.full(self.silos, xp.nan, np.float32),
        )
        return self.choose_arm(state)

    def _check_rule(self, rule: rules.Rule) -> None:
        try:
            kinds = {int(kind) for kind in np.ravel(np.asarray(rule.kind))}
        except jax.errors.TracerArrayConversionError:
            return
        needed = evaluated_by(rule)
        if self.evaluates not in (needed, "either"):
            raise ConfigError(f"this rule needs evaluates = {needed!r}, the protocol is made with {self.evaluates!r}.")
        if missing := kinds - set(self.kinds or ()):
            raise ConfigError(f"rules of kind {rules.KINDS[missing.pop()]!r} are not compiled; name them in kinds.")

    def choose_arm(self, state: ServerState) -> ServerState:
        """Step 1 of Algorithm 7: the arm of the round, and whether all arms are tried."""
        key = fold(key_of(state.key), state.round)
        arm = rules.choose(state.rule, state.estimates, self.playable(state), key, self.kinds)
        if self.evaluates == "either":
            explore = rules.explores(state.rule, state.round.astype(np.int32), fold(key, 2))
        else:
            explore = module_of(state.weights).asarray(self.evaluates == "all")
        return state._replace(arm=arm, explore=explore)

    def playable(self, state: ServerState) -> Bool[AnyArray, " arms"]:
        """Which arms can be played: a cluster that is the same set as an earlier one cannot."""
        xp = module_of(state.members)
        if self.arms != "clusters":
            return xp.ones(self.n_arms, bool)
        same = xp.all(state.members[:, None] == state.members[None], axis=-1)
        return ~xp.any(same & xp.tri(self.n_arms, k=-1, dtype=bool), axis=1)

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        if self.judgements is not None and isinstance(self.sgd, PrivateSgd):
            judged = self.judgements.spent(self.values_judged(rounds), delta)
            return run_account(self.sgd, rounds, delta, pretrain=self.pretrain, judged=judged)
        return PrivacyReport.none(rounds, SEEN, revealed(self.measure, self.probe))

    @override
    def weights(self, state: ServerState) -> Float[AnyArray, " parameters"]:
        return state.weights

    @override
    def models(self, state: ServerState, party: Party) -> dict[str, Float[AnyArray, " size"]]:
        own = party.own
        # What does not cross belongs to the model that it was judged with.
        kept = own._replace(model=jnp.where(state.best > -jnp.inf, own.best_model, own.model))
        last, best = self.whole_model(state.weights, own), self.whole_model(state.best_weights, kept)
        return {"last": self.usable(last, party), "best": self.usable(best, party)}

    @override
    def watch(self, state: ServerState) -> dict[str, Any]:
        xp = module_of(state.weights)
        # Increments are NaN where not observed. Where rewards are late, arm and increments are of the round before.
        return {
            "arm": state.compared,
            "explored": state.explored,
            "own": state.own,
            "judged": xp.where(state.observed, state.judged, xp.nan),
            "increments": xp.where(state.observed, state.judged - state.reference, xp.nan),
            "estimates": rules.estimate(state.rule, state.estimates),
            "best_round": state.best_round,
            "stopped": state.stopped,
            "members": state.members,
            "probe": state.probe,
        }

    def average_weights(
        self, members: Bool[AnyArray, "arms silos"], state: ServerState, heard: Bool[AnyArray, " silos"]
    ) -> Float[AnyArray, "arms silos"]:
        """Weight of each silo in each arm's average (Algorithm 1, step 3): of the silos that were heard, by rows."""
        xp = module_of(state.weights)
        here = members & heard[None]
        is_target = (xp.arange(self.silos) == state.target)[None]
        amounts = xp.where(here, state.rows[None], 0.0)
        # Where nobody has a row, all count alike.
        amounts = xp.where(xp.sum(amounts, -1, keepdims=True) > 0, amounts, here.astype(np.float32))
        by_rows = amounts / xp.maximum(xp.sum(amounts, -1, keepdims=True), 1.0)
        if self.target_weight is None:
            return by_rows
        others = xp.where(is_target, 0.0, amounts)
        total = xp.sum(others, -1, keepdims=True)
        shared = others / xp.maximum(total, 1.0) * (1 - self.target_weight)
        shared = shared + is_target.astype(np.float32) * self.target_weight
        return xp.where(total > 0, shared, by_rows)

    def values_judged(self, rounds: int) -> int:
        """How many performances the target tells in so many rounds at most."""
        each = {"one": 1, "all": self.n_candidates, "either": max(1, self.n_candidates)}[str(self.evaluates)]
        return rounds * (1 + each) + (1 + self.silos) * int(self.probe and rounds > 0)

    def judge(
        self,
        weights: Float[AnyArray, "models parameters"],
        party: Party,
        noise: Int[AnyArray, " values"] | tuple[()] = (),
    ) -> Judged:
        """At the target: y₁ of its own local model, and y₂ of models that crossed.

        Args:
            weights: These models.
            party: The target.
            noise: Noise on y₁ and y₂, as the exchange draws it; empty where there is none.
        """
        models = jax.vmap(lambda w: self.whole_model(w, party.own))(weights)
        values = jax.vmap(lambda m: self.performance(m, party))(jnp.concatenate([party.own.model[None], models]))
        if self.judgements is not None:
            values = self.judgements.noised(values, rows_of(party, "vali"), jnp.asarray(noise))
        values = encode_undefined(values)
        return Judged(values[0], values[1:])

    def record_best(self, party: Party, judged: Judged, alone: bool) -> Party:
        """The target, which keeps the numbers that do not cross of the best model that it judged.

        It takes the best of a round to be what the server makes θ; where silos dropped out that may be another arm.
        """
        value = jnp.max(judged.models)
        value = jnp.maximum(value, judged.own) if alone else value
        own = party.own
        better = value > own.best
        return party._replace(
            own=own._replace(
                best=jnp.where(better, value, own.best), best_model=jnp.where(better, own.model, own.best_model)
            )
        )

    def average(
        self,
        state: ServerState,
        weights: Float[AnyArray, "silos parameters"],
        heard: Bool[AnyArray, " silos"],
        which: Bool[AnyArray, " arms"],
    ) -> ServerState:
        """Step 5 of Algorithm 7: the average of every arm, or of the one that is played.

        Args:
            state: The state, with ``rows`` of the silos that were heard.
            weights: The models that the silos sent.
            heard: Which silos were heard.
            which: Arms whose silos were asked.
        """
        xp = module_of(state.weights)
        there = heard[state.target]
        members = state.members[state.arm][None] if self.evaluates == "one" else state.members
        sent = xp.where(heard[:, None], weights, 0.0)  # zero times the NaN of a silo that was not heard is NaN
        models = weighted(self.average_weights(members, state, heard), sent)
        complete = which & there & xp.all(heard[None] | ~state.members, axis=1)
        return state._replace(models=xp.where(there, models, state.weights[None]), complete=complete)

    def record_judgement(
        self, state: ServerState, own: Float[AnyArray, ""], judged: Float[AnyArray, " arms"], heard: Bool[AnyArray, ""]
    ) -> ServerState:
        """Steps 4 and 6: y₁ and y₂ as the target sent them, if it was heard; NaN where it was not asked."""
        xp = module_of(state.weights)
        return state._replace(
            own=xp.where(heard, own, state.own),
            reference=xp.where(heard, own if self.against == "own" else state.previous, state.reference),
            judged=xp.where(heard, judged, state.judged),
            observed=xp.where(heard, state.complete & xp.isfinite(judged), state.observed),
        )

    def learn(self, state: ServerState) -> ServerState:
        """Steps 7 and 8: increments become rewards, and the rule learns."""
        xp = module_of(state.weights)
        increments = xp.where(state.observed, state.judged - state.reference, xp.nan)
        return state._replace(estimates=rules.update(state.rule, state.estimates, increments, state.observed))

    def best_arm(self, state: ServerState) -> Int[AnyArray, ""]:
        """After an Extreme-Explore round: the arm of the highest reward; without rewards, of the highest estimate.

        An arm that lacks a silo is left out, unless there is no other.
        """
        xp = module_of(state.weights)
        said = xp.any(state.observed)
        # Before anything was judged there is no last round; what is subtracted is the same for all arms.
        reference = xp.where(xp.isfinite(state.reference), state.reference, 0.0)
        increments = xp.where(state.observed, state.judged - reference, 0.0)
        return rules.best(state.rule, state.estimates, increments, xp.where(said, state.observed, state.complete))

    def update_best(
        self,
        state: ServerState,
        weights: Float[AnyArray, " parameters"],
        value: Float[AnyArray, ""],
        number: Int[AnyArray, ""] | UInt32[AnyArray, ""],
    ) -> ServerState:
        """Remember the best θ so far, and stop where there has been none for too long (early stopping).

        While none has been judged, the newest is the best that is known.
        """
        xp = module_of(state.weights)
        value = xp.where(xp.isfinite(value), value, -xp.inf)
        number = xp.asarray(number, np.int32)
        won = (value > state.best) | (state.best == -xp.inf)
        best_round = xp.where(value > state.best, number, state.best_round)
        since = xp.where(best_round < 0, 0, number - best_round)
        stopped = state.stopped | (since >= (self.patience or 2**30))
        return state._replace(
            best=xp.maximum(value, state.best),
            best_weights=xp.where(won, weights, state.best_weights),
            best_round=best_round,
            stopped=stopped,
        )

    def end_round(self, state: ServerState) -> ServerState:
        """The end of a round: θ, what the rule has learnt, and the next round's arm."""
        xp = module_of(state.weights)
        after = self.learn(state)
        arm = xp.where(state.explore, self.best_arm(after), state.arm)
        theta = state.models[0] if self.evaluates == "one" else state.models[arm]
        value = state.judged[arm]
        after = self.update_best(after._replace(weights=theta), theta, value, state.round)
        after = after._replace(
            previous=xp.where(xp.isfinite(value), value, state.previous),
            played=arm,
            compared=arm,
            explored=state.explore,
            round=state.round + 1,
        )
        return freeze_if_stopped(state, self.choose_arm(after))

    def start_round(self, state: ServerState) -> ServerState:
        """The state at the beginning of a round: nothing has been judged."""
        xp = module_of(state.weights)
        nan, none = xp.full(self.n_arms, xp.nan, np.float32), xp.zeros(self.n_arms, bool)
        return state._replace(own=nan[0], reference=nan[0], judged=nan, observed=none)
