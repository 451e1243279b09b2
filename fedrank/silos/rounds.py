"""Runs of silos: how they begin, each with a target and a rule, and the models they give."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from fedrank.core.arrays import PyTree
from fedrank.core.native import mapped
from fedrank.core.protocol import Party
from fedrank.core.rng import INIT
from fedrank.core.streams import folded, run_words
from fedrank.engine.native import stacked
from fedrank.silos.bandit_fedavg import BanditFedAvg
from fedrank.silos.bandits.rules import Rule
from fedrank.silos.party import SiloProtocol


def begin_runs(
    protocol: SiloProtocol,
    seeds: Sequence[int] | Int[np.ndarray, " runs"],
    targets: Int[np.ndarray, " runs"],
    rules: Sequence[Rule] | None = None,
) -> tuple[PyTree, PyTree]:
    """Keys uint32 [runs, 2] and server states [runs, ...] before the first round.

    Args:
        protocol: The protocol.
        seeds: Of the runs.
        targets: The target of each run; used by a bandit only.
        rules: The rule of each run, where a bandit plays several; None: the protocol's own.
    """
    keys = run_words(np.asarray(seeds).tolist())
    each = folded(keys, INIT)
    if not isinstance(protocol, BanditFedAvg):
        return keys, stacked([protocol.init(key) for key in each])
    rules = [protocol.rule] * len(keys) if rules is None else rules
    begun = zip(each, rules, np.asarray(targets).tolist(), strict=True)
    return keys, stacked([protocol.begin(key, rule, target) for key, rule, target in begun])


def models_of_runs(
    protocol: SiloProtocol, states: PyTree, shared: PyTree, own: PyTree, targets: Int[np.ndarray, "runs targets"]
) -> dict[str, Float[np.ndarray, "runs targets size"]]:
    """The models that each target could use, by name, as it uses them.

    Args:
        protocol: The protocol.
        states: Server states [runs, ...].
        shared: The rows.
        own: What the silos keep, [runs, silos, ...].
        targets: Numbers of the silos that each run is measured for.
    """
    each = []
    with np.errstate(all="ignore"):  # numbers of models that diverged
        for run, silos in enumerate(targets):
            party = Party(shared, mapped(lambda leaf, at=(run, silos): leaf[at], own))
            each.append(protocol.models(mapped(lambda leaf, run=run: leaf[run], states), party))
    return {name: np.stack([one[name] for one in each]) for name in each[0]}
