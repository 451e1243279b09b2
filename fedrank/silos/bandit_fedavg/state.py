"""The state that the server of :mod:`fedrank.silos.bandit_fedavg` keeps between rounds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt32

from fedrank.core.arrays import AnyArray, module_of
from fedrank.core.native import mapped
from fedrank.silos.bandits import rules


class ServerState(NamedTuple):
    """What the server keeps between rounds.

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
    """

    round: UInt32[AnyArray, ""]
    key: UInt32[AnyArray, "2"]
    rule: rules.Rule
    target: Int[AnyArray, ""]
    members: Bool[AnyArray, "arms silos"]
    estimates: rules.Estimates
    arm: Int[AnyArray, ""]
    explore: Bool[AnyArray, ""]
    weights: Float[AnyArray, " parameters"]
    rows: Float[AnyArray, " silos"]
    models: Float[AnyArray, "arms parameters"]
    complete: Bool[AnyArray, " arms"]
    locals: Float[AnyArray, "silos parameters"]
    heard: Bool[AnyArray, " silos"]
    previous: Float[AnyArray, ""]
    best: Float[AnyArray, ""]
    best_weights: Float[AnyArray, " parameters"]
    best_round: Int[AnyArray, ""]
    stopped: Bool[AnyArray, ""]
    own: Float[AnyArray, ""]
    reference: Float[AnyArray, ""]
    judged: Float[AnyArray, " arms"]
    observed: Bool[AnyArray, " arms"]
    played: Int[AnyArray, ""]
    compared: Int[AnyArray, ""]
    explored: Bool[AnyArray, ""]
    probe: Float[AnyArray, " silos"]


def freeze_if_stopped(before: ServerState, after: ServerState) -> ServerState:
    """The state after a step; the state before it where the run had stopped."""
    xp = module_of(before.weights)
    return mapped(lambda old, new: xp.where(before.stopped, old, new), before, after)


def evaluated_by(rule: rules.Rule) -> str:
    """How many arms a rule needs judged in a round: "one", "all" or "either"; of stacked rules, what all need."""
    kinds = np.atleast_1d(np.asarray(rule.kind))
    names = [rules.KINDS[kind] for kind in kinds]
    always = np.array([name in ("extreme-explore", "bayesian-extreme-explore") for name in names])
    sometimes = (np.atleast_1d(np.asarray(rule.every)) > 0) | (np.atleast_1d(np.asarray(rule.chance)) > 0)
    return "all" if always.all() else "either" if (always | sometimes).any() else "one"


def revealed(measure: str, probe: bool) -> tuple[str, ...]:
    """What the server, the target and the other silos can work out, in sentences.

    Args:
        measure: What models are judged by.
        probe: Whether the target is shown first models.
    """
    judged = {"auc": "AUC", "log-loss": "log-loss"}[measure]
    shown = "; before the first round it is shown every silo's first model as it is" if probe else ""
    return (
        f"No row is in a message. The server learns the {judged} of models on the target's validation rows.",
        "The target is shown averages of models. From the average with one other silo, or from those of many sets, it "
        f"can work out the models of the silos that were averaged with it{shown}.",
        "A silo that was averaged with the target alone, and is asked again, can work out the target's model.",
    )
