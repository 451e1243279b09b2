"""Decision rules of a multi-armed bandit.

A :class:`Rule` holds the settings of one bandit as scalars, its kind included, and :class:`Estimates` what it has seen.
Several bandits of one rule play at once where estimates, keys and increments have leading axes.

A round of Algorithm 7 of the thesis plays one arm: ``choose``, observe its increment, ``update``. An *Extreme-Explore
round* (section 8.3.2) observes every arm, hands all of them to one ``update`` and makes :func:`best` the global model.

* **Rewards** (section 8.4). Type 1 is the increment itself. Type 2 is 1 if the increment exceeds a threshold, else 0.
* **Estimates** (equation 2). The stationary mean moves by (R − q) / N, so the initial value is gone after the first
  reward. Recency weighting moves by α (R − q); the initial value keeps the weight (1 − α)^N. By this formula a *larger*
  α gives more weight to recent rewards: the reward i steps back has weight α (1 − α)^i. The thesis says the opposite
  in words (text and caption of Figure 5, captions of Figures 16 and 17). The formula is what is implemented.
* **No observation is not a zero.** An arm that did not report, or whose increment is undefined (NaN), changes nothing,
  and a round without any observation does not discount either.

Source:
    Lundahl: *Personalization by combination*, master's thesis, 2021, sections 4.1, 8.3, 8.4.
    Discounting: Raj and Kalyani, *Taming non-stationary bandits: a Bayesian approach*, 2017, Algorithm 1.

Arms of a bandit over silos: sets of silos that contain the target.

An arm is a row ``members`` of truth values, one for each silo. Which sets are arms is the user's choice: the pairs of
the thesis' experiments (few, no overlap), all combinations (2^(k−1)), clusters of silos whose updates point the same
way (many silos), or one fixed set. ``target alone`` comes first wherever it is an arm, so that "no silo helps" can win.

Source:
    Lundahl: *Personalization by combination*, master's thesis, 2021, sections 7, 8.3.1, 10.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from jaxtyping import Bool, Float, Int, UInt32

from fedrank.core.arrays import AnyArray
from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.core.fields import setting
from fedrank.core.streams import fold_words, stream, uniforms

Kind: TypeAlias = Literal["epsilon-greedy", "ucb", "thompson", "extreme-explore", "bayesian-extreme-explore", "fixed"]

#: Kinds of rules; the position is the code in :class:`Rule`.
KINDS: tuple[str, ...] = get_args(Kind)
_NEEDS_THRESHOLD = ("thompson", "bayesian-extreme-explore")


@dataclass(frozen=True, kw_only=True)
class RuleSettings:
    """Settings of a decision rule."""

    rule: Kind = setting("extreme-explore", "Decision rule.")
    epsilon: float = setting(
        0.2,
        "epsilon-greedy: probability of another arm than the best.",
        low=0,
        high=1,
        needs=("bandit.rule", ("epsilon-greedy",)),
    )
    c: float = setting(0.05, "ucb: inclination to explore.", needs=("bandit.rule", ("ucb",)))
    alpha: float | None = setting(None, "Weight of the newest reward in (0, 1]; without it the mean of all.")
    gamma: float = setting(
        1.0,
        "thompson, bayesian-extreme-explore: discount of older rewards in (0, 1].",
        needs=("bandit.rule", ("thompson", "bayesian-extreme-explore")),
    )
    threshold: float | None = setting(
        None, "Reward 1 for an increment above it, else 0; without it the increment. thompson needs one: 0.025."
    )
    initial: float = setting(0.05, "Optimistic first estimate of every arm.")
    every: int = setting(
        0, "Rounds from one Extreme-Explore round to the next, the first round being one; 0: none.", low=0
    )
    chance: float = setting(0.0, "Probability that a round is an Extreme-Explore round.", low=0, high=1)
    fixed: int = setting(
        0,
        "fixed: number of the arm; 0 is the target alone where that is an arm.",
        low=0,
        needs=("bandit.rule", ("fixed",)),
    )

    def scalars(self) -> Rule:
        """The rule as scalars of a server's state.

        Raises:
            UnknownNameError: No such kind.
            ConfigError: A value is out of its range, or a threshold is missing.
        """
        if self.rule not in KINDS:
            raise UnknownNameError("decision rule", self.rule, KINDS)
        alpha, threshold = self.alpha, self.threshold
        ranges = (
            ("c", 0.0 <= self.c < math.inf, "at least 0 and finite"),
            ("alpha", alpha is None or 0.0 < alpha <= 1.0, "in (0, 1], or None for the stationary mean"),
            ("gamma", 0.0 < self.gamma <= 1.0, "in (0, 1]; 1 does not discount"),
            ("threshold", threshold is None or math.isfinite(threshold), "finite, or None"),
            ("initial", math.isfinite(self.initial), "finite"),
        )
        for name, fine, wanted in ranges:
            if not fine:
                raise ConfigError(
                    f"{name} of the decision rule {self.rule} must be {wanted}, got {getattr(self, name)}."
                )
        if threshold is None and self.rule in _NEEDS_THRESHOLD:
            raise ConfigError(
                f"The decision rule {self.rule} counts wins and losses and needs a threshold: the increment above "
                "which a round counts as a win, such as 0.025."
            )
        one = np.asarray(1.0, np.float32)  # the thesis names no prior; this one is uniform
        return Rule(
            kind=np.asarray(KINDS.index(self.rule), np.int32),
            epsilon=_real(self.epsilon),
            c=_real(self.c),
            alpha=_real(alpha),
            gamma=_real(self.gamma),
            threshold=_real(threshold),
            initial=_real(self.initial),
            wins0=one,
            losses0=one,
            every=np.asarray(self.every, np.int32),
            chance=_real(self.chance),
            fixed=np.asarray(self.fixed, np.int32),
        )


def _real(value: float | None) -> Float[AnyArray, ""]:
    return np.asarray(math.nan if value is None else value, np.float32)


class Rule(NamedTuple):
    """A decision rule as scalars: :meth:`RuleSettings.scalars` makes it.

    Attributes:
        kind: Index into :data:`KINDS`.
        epsilon: In [0, 1], probability of an arm other than the greedy one (ε-greedy).
        c: At least 0, weight of the exploration bonus (UCB).
        alpha: In (0, 1], recency weight; NaN is the stationary mean.
        gamma: In (0, 1], discount of wins and losses; 1 is none.
        threshold: An increment above it is a reward of 1, else 0; NaN: the reward is the increment.
        initial: First estimate of every arm.
        wins0: Above 0, first parameter of the Beta prior.
        losses0: Above 0, second parameter of the Beta prior.
        every: Rounds whose number is a multiple of it are Extreme-Explore rounds; 0: none are.
        chance: In [0, 1], probability that a round is an Extreme-Explore round.
        fixed: The arm that the kind ``fixed`` always plays.
    """

    kind: Int[AnyArray, ""]
    epsilon: Float[AnyArray, ""]
    c: Float[AnyArray, ""]
    alpha: Float[AnyArray, ""]
    gamma: Float[AnyArray, ""]
    threshold: Float[AnyArray, ""]
    initial: Float[AnyArray, ""]
    wins0: Float[AnyArray, ""]
    losses0: Float[AnyArray, ""]
    every: Int[AnyArray, ""]
    chance: Float[AnyArray, ""]
    fixed: Int[AnyArray, ""]


class Estimates(NamedTuple):
    """State of a bandit.

    Attributes:
        pulls: Number of rewards seen of each arm.
        value: Estimated expected reward q.
        wins: Discounted count S of rewards 1; stays 0 for rewards of type 1.
        losses: Discounted count F of rewards 0; stays 0 for rewards of type 1.
        time: Number of rewards seen of all arms together.
    """

    pulls: Float[np.ndarray, "*runs arms"]
    value: Float[np.ndarray, "*runs arms"]
    wins: Float[np.ndarray, "*runs arms"]
    losses: Float[np.ndarray, "*runs arms"]
    time: Float[AnyArray, "*runs"]


def start(rule: Rule, arms: int) -> Estimates:
    """Estimates before the first round, [arms] each: the initial value for each arm, no reward seen."""
    zeros = np.zeros(arms, np.float32)
    return Estimates(zeros, np.full(arms, rule.initial, np.float32), zeros, zeros, np.zeros((), np.float32))


def reward(rule: Rule, increments: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Rewards of increments: type 2 (0 or 1) where the rule has a threshold, else type 1 (the increment itself).

    Args:
        rule: The rule.
        increments: Increments, in [−1, 1]; of a loss its decrease.
    """
    return np.where(np.isnan(rule.threshold), increments, (increments > rule.threshold).astype(np.float32))


def estimate(rule: Rule, estimates: Estimates) -> Float[np.ndarray, "*runs arms"]:
    """Estimated expected reward of every arm: q, or the posterior mean of Thompson sampling and Bayesian EE."""
    if KINDS[int(rule.kind)] not in _NEEDS_THRESHOLD:
        return estimates.value
    wins, losses = rule.wins0 + estimates.wins, rule.losses0 + estimates.losses
    return np.asarray(wins / (wins + losses))


def choose(
    rule: Rule,
    estimates: Estimates,
    playable: Bool[np.ndarray, "*#runs arms"],
    key: UInt32[np.ndarray, "*runs 2"],
) -> Int[AnyArray, "*runs"]:
    """The arm to play.

    * *ε-greedy* (4.1.1): with probability 1 − ε a greedy arm, else any other, all alike. The greedy arm itself is no
      candidate when exploring, unlike in most libraries. A single arm is always played.
    * *UCB* (4.1.2): every arm once, then the largest q + c √(2 ln t / N), with t the rewards seen so far.
    * *Thompson* (Algorithms 3, 4): the largest draw of Beta(α₀ + S, β₀ + F).
    * *Extreme Explore*, both kinds: the greedy arm, for a caller that plays one arm all the same. See :func:`best`.
    * *fixed*: always the same arm, playable or not.

    The thesis does not say what happens when several arms are equally good. Here one of them is drawn at random,
    because all arms start with the same estimate and none should profit from its number.

    Args:
        rule: The rule.
        estimates: What it has learnt.
        playable: Arms that may be played; at least one. If none may, an arm is returned all the same.
        key: Consumed.

    Returns:
        The arm's number.
    """
    kind, n = KINDS[int(rule.kind)], playable.shape[-1]
    draws = uniforms(stream(key, 2 * n + 1))
    coin, ties, which = draws[..., 0], draws[..., 1 : n + 1], draws[..., n + 1 :]
    if kind == "fixed":
        return np.broadcast_to(rule.fixed, coin.shape).astype(np.int32)
    if kind == "ucb":
        unseen = estimates.pulls == 0
        log_time = np.log(np.maximum(estimates.time, 1.0))[..., None]
        bonus = rule.c * np.sqrt(2.0 * log_time / np.where(unseen, 1.0, estimates.pulls))
        scores = np.where(unseen, np.inf, estimates.value + bonus)
    elif kind == "thompson":
        scores = _posterior_draws(rule, estimates, key)
    else:
        scores = estimate(rule, estimates)
    scores = np.where(playable, scores, -np.inf)
    # A draw is never below 0, so −1 marks what is not a candidate.
    arm = np.argmax(np.where(playable & (scores == scores.max(-1, keepdims=True)), ties, -1.0), -1)
    if kind == "epsilon-greedy":
        others = playable & (np.arange(n) != arm[..., None])
        explores = (coin < rule.epsilon) & np.any(others, axis=-1)
        arm = np.where(explores, np.argmax(np.where(others, which, -1.0), -1), arm)
    return np.asarray(arm, np.int32)


def _posterior_draws(
    rule: Rule, estimates: Estimates, key: UInt32[np.ndarray, "*runs 2"]
) -> Float[np.ndarray, "*runs arms"]:
    """Logits of draws of Beta(α₀ + S, β₀ + F): ln G − ln H of two Gamma draws.

    A Gamma draw of a small parameter a underflows: it is one of a + 1, times U^(1/a).
    """
    parameters = np.stack([rule.wins0 + estimates.wins, rule.losses0 + estimates.losses], -2).astype(float)
    parameters = np.broadcast_to(parameters, (*key.shape[:-1], *parameters.shape[-2:]))
    logs, words = np.empty(parameters.shape), fold_words(key, 1).astype(np.uint64)
    for run in np.ndindex(key.shape[:-1]):
        random, a = np.random.Generator(np.random.Philox(key=words[run])), parameters[run]
        logs[run] = np.log(random.standard_gamma(a + 1)) + np.log1p(-random.random(a.shape)) / a
    return logs[..., 0, :] - logs[..., 1, :]


def update(
    rule: Rule,
    estimates: Estimates,
    increments: Float[np.ndarray, "*runs arms"],
    observed: Bool[np.ndarray, "*runs arms"],
) -> Estimates:
    """Take in what a round showed: one arm of an ordinary round, or many of an Extreme-Explore round.

    With many arms the counts of wins and losses are discounted once and every observed arm adds its own reward.

    Args:
        rule: The rule.
        estimates: Before the round.
        increments: Those not observed are not looked at.
        observed: An observed increment that is not finite is no observation. Without any observation nothing changes.

    Returns:
        Estimates after the round.
    """
    seen = observed & np.isfinite(increments)
    rewards = np.where(seen, reward(rule, increments), 0.0)
    pulls = estimates.pulls + seen
    # Equation 2, or with a constant weight.
    weight = np.where(np.isnan(rule.alpha), 1.0 / np.maximum(pulls, 1.0), rule.alpha)
    value = estimates.value + np.where(seen, weight * (rewards - estimates.value), 0.0)
    # Algorithm 4, step 4.
    counted = seen & ~np.isnan(rule.threshold)
    discount = np.where(np.any(seen, axis=-1, keepdims=True), rule.gamma, np.float32(1))
    wins = discount * estimates.wins + np.where(counted, rewards, 0.0)
    losses = discount * estimates.losses + np.where(counted, 1.0 - rewards, 0.0)
    return Estimates(pulls, value, wins, losses, estimates.time + np.sum(seen, axis=-1, dtype=np.float32))


def explores(
    rule: Rule, round: int | Int[AnyArray, "*runs"], key: UInt32[np.ndarray, "*runs 2"]
) -> Bool[AnyArray, "*runs"]:
    """True if a round is an Extreme-Explore round.

    Args:
        rule: The rule; both Extreme-Explore kinds explore in every round.
        round: Number of the round, from 0.
        key: Consumed, for the rule's ``chance``.
    """
    due = (rule.every > 0) & (round % np.maximum(rule.every, 1) == 0)
    return np.bool_(explores_always(rule)) | due | (uniforms(stream(key, 1))[..., 0] < rule.chance)


def explores_always(rule: Rule) -> bool:
    """True if all rounds are Extreme-Explore rounds: those of both Extreme-Explore kinds are."""
    return KINDS[int(rule.kind)] in ("extreme-explore", "bayesian-extreme-explore")


def best(
    rule: Rule,
    estimates: Estimates,
    increments: Float[np.ndarray, "*runs arms"],
    observed: Bool[np.ndarray, "*runs arms"],
) -> Int[AnyArray, "*runs"]:
    """The arm whose model becomes the global one after an Extreme-Explore round: that of the highest reward.

    Rewards of type 2 tie often and the thesis does not say what then. Here the larger increment wins, then the larger
    estimate, then the arm of the lower number.

    Args:
        rule: The rule.
        estimates: Before or after the round's update, as the caller likes.
        increments: Increment of each arm.
        observed: Which increments were observed; if none was, the estimate decides among all arms.

    Returns:
        The arm's number.
    """
    seen = observed & np.isfinite(increments)
    candidates = seen | ~np.any(seen, axis=-1, keepdims=True)
    clean = np.where(seen, increments, 0.0)
    for scores in (np.where(seen, reward(rule, clean), 0.0), clean, estimate(rule, estimates)):
        scores = np.where(candidates, scores, -np.inf)
        candidates = candidates & (scores == scores.max(-1, keepdims=True))
    return np.argmax(candidates, axis=-1).astype(np.int32)


#: Largest number of silos for which all 2^(k−1) combinations are arms: 2,048 arms.
MOST_COMBINED = 12


def pair_table(silos: int, alone: bool = True) -> Bool[np.ndarray, "arms others"]:
    """Arms of one other silo each, in order; before them the empty set if ``alone``.

    Returns:
        [silos − 1 (+ 1), silos − 1], over the silos other than the target.
    """
    table = np.eye(silos - 1, dtype=bool)
    return np.concatenate([np.zeros((1, silos - 1), bool), table]) if alone else table


def combination_table(silos: int) -> Bool[np.ndarray, "arms others"]:
    """Every set of other silos, in binary order: bit i of the arm's number is the i-th other silo.

    Arm 0 is the empty set, the last arm all other silos.

    Returns:
        [2^(silos − 1), silos − 1].

    Raises:
        ConfigError: More than :data:`MOST_COMBINED` silos.
    """
    if silos > MOST_COMBINED:
        raise ConfigError(
            f"All combinations of {silos} silos are 2^{silos - 1} arms, too many to try; at most {MOST_COMBINED} silos "
            "may be combined. Use pairs, or clusters of silos with similar updates."
        )
    return (np.arange(2 ** (silos - 1))[:, None] >> np.arange(silos - 1)) % 2 == 1


def members_of(
    table: Bool[np.ndarray, "arms others"], target: int | Int[AnyArray, ""], silos: int
) -> Bool[np.ndarray, "arms silos"]:
    """A table over the other silos as sets of silos, with the target in every set.

    Args:
        table: Which of the silos other than the target are in each arm, in their order.
        target: Number of the target.
        silos: k.

    >>> [code(arm) for arm in members_of(pair_table(4), 1, 4)]
    ['0100', '1100', '0110', '0101']
    """
    every = np.arange(silos)
    column = np.clip(every - (every > target), 0, silos - 2)
    return table[:, column] | (every == target)[None, :]


def code(members: Sequence[bool] | Bool[np.ndarray, " silos"]) -> str:
    """The thesis' notation of an arm: one digit for each silo, 1 if it is in the set.

    >>> code([False, True, True, False])
    '0110'
    """
    return "".join("1" if member else "0" for member in np.asarray(members, bool).tolist())


def name(members: Sequence[bool] | Bool[np.ndarray, " silos"], names: Sequence[str], target: int | None = None) -> str:
    """Name of an arm for a reader: the names of its silos.

    Args:
        members: Which silos are in.
        names: Names of the silos.
        target: Named first if given.

    >>> name([True, True, False], ["Cleveland", "Hungarian", "Long Beach"], target=1)
    'Hungarian + Cleveland'
    """
    inside = [silo for silo, member in enumerate(np.asarray(members, bool).tolist()) if member]
    inside.sort(key=lambda silo: silo != target)  # stable: the others keep their order
    return " + ".join(names[silo] for silo in inside)


def cluster_arms(
    updates: Float[np.ndarray, "silos parameters"], target: int | Int[AnyArray, ""], clusters: int
) -> Bool[np.ndarray, "arms silos"]:
    """Arms for many silos: the target alone, then the target with each cluster of silos whose updates are alike.

    The silos other than the target are clustered bottom-up: average linkage on the cosine distance 1 − cos of their
    updates, until ``clusters`` are left. An update that is zero has no direction and counts as orthogonal to all.
    Work grows with silos³, which is a million steps at 100 silos.

    Args:
        updates: Local models minus the model that was sent out.
        target: The silo for which arms are wanted.
        clusters: Number of clusters, from 1 to silos − 1.

    Returns:
        One arm more than there are clusters; clusters in the order of their first silo.

    Source:
        Section 10 of the thesis proposes clusters; cosine similarity of updates is that of Sattler et al.: *Clustered
        federated learning*, IEEE TNNLS 2020 (they split in two recursively instead).
    """
    silos = updates.shape[0]
    every = np.arange(silos)
    norms = np.linalg.norm(updates, axis=1, keepdims=True)
    directions = updates / np.where(norms > 0, norms, 1)
    distances = 1 - directions @ directions.T
    sizes, owner = (every != target).astype(updates.dtype), every.copy()
    for _ in range(silos - 1 - clusters):
        live = sizes > 0
        candidates = (every[:, None] < every) & live[:, None] & live
        a, b = divmod(int(np.argmin(np.where(candidates, distances, np.inf))), silos)
        # The mean distance between members of two clusters, from those of the parts (Lance and Williams 1967).
        mean = (sizes[a] * distances[a] + sizes[b] * distances[b]) / (sizes[a] + sizes[b])
        distances[a], distances[:, a] = mean, mean
        sizes[a], sizes[b] = sizes[a] + sizes[b], 0
        owner[owner == b] = a
    # A cluster carries the number of its first silo, because the lower of two always takes in the higher.
    itself = every == target
    return np.concatenate([itself[None], (owner == np.flatnonzero(sizes > 0)[:, None]) | itself])
