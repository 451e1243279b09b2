"""What the server of :mod:`fedrank.silos.bandit_fedavg` keeps between rounds."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedrank.silos.bandits import rules


class ServerState(NamedTuple):
    """What the server keeps between rounds; A arms, k silos, P numbers of a model that cross.

    Attributes:
        round: uint32.
        key: uint32 [2], the server's own chance: which arms are tried.
        rule: The decision rule, as arrays, so that one program runs many.
        target: int32, T.
        members: bool [A, k], which silos an arm has.
        estimates: What the rule has learnt.
        arm: int32, the arm of this round.
        explore: bool, whether this is an Extreme-Explore round.
        weights: float32 [P], θ.
        rows: float32 [k], n_k, as far as the silos have said.
        models: float32 [A, P], averages of this round that are to be judged; [1, P] if a round evaluates one.
        complete: bool [A], whether all silos of the arm were heard.
        locals: float32 [k, P] and heard: bool [k]: who trained in this round, until the target is heard too. Empty
            where rewards are not delayed.
        previous: float32, how good θ was when it was last judged; NaN before.
        best: float32 and best_weights float32 [P]: the best θ so far by the target's validation rows; best_round.
        stopped: bool, whether there has been no better θ for too long.
        own, judged, observed: y₁, y₂ [A] and which of them were observed, of the round that is over.
        reference: float32, what increments of that round are measured from.
        played: int32, the arm whose average became θ in the round that is over; explored: bool.
        compared: int32, the arm whose average was θ when the target judged; of the round before where rewards are late.
        probe: float32 [k], AUC of every silo's first model on the target's validation rows; NaN where not asked.
    """

    round: Any
    key: Any
    rule: Any
    target: Any
    members: Any
    estimates: Any
    arm: Any
    explore: Any
    weights: Any
    rows: Any
    models: Any
    complete: Any
    locals: Any
    heard: Any
    previous: Any
    best: Any
    best_weights: Any
    best_round: Any
    stopped: Any
    own: Any
    reference: Any
    judged: Any
    observed: Any
    played: Any
    compared: Any
    explored: Any
    probe: Any


def still(before: ServerState, after: ServerState) -> ServerState:
    """Of a run that had stopped, nothing changes any more."""
    return jax.tree.map(lambda old, new: jnp.where(before.stopped, old, new), before, after)


def evaluated_by(rule: rules.Rule) -> str:
    """Which of :data:`EVALUATES` a rule needs; of several rules together, stacked, what all of them need."""
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
        f"Rows never leave a silo. The server learns the {judged} of models on the target's validation rows.",
        "The target is shown averages of models. From the average with one other silo, or from those of many sets, it "
        f"can work out the models of the silos that were averaged with it{shown}.",
        "A silo that was averaged with the target alone, and is asked again, can work out the target's model.",
    )
