"""Rankers that devices show their users, where they are not the server's, and the devices that do not attack.

A run's evaluation is of the server's ranker. Where each device has its own ranker
(:mod:`fedrank_zoo.fedper_pdgd`, ``rankguard`` of ``fedrank-zoo``), no user is shown the server's.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from fedrank.core.arrays import PyTree
from fedrank.core.protocol import Protocol
from fedrank.ranking.build import POISON, Experiment

#: Suffix of the name of a measure of the devices' own rankers.
OWN_RANKERS = " (own rankers)"


def has_own_models(protocol: Protocol) -> bool:
    """True if devices show their users their own rankers, instead of the server's."""
    return type(protocol).own_models is not Protocol.own_models


def own_models(protocol: Protocol, states: PyTree, own: PyTree) -> Float[np.ndarray, "seeds parties n"]:
    """The ranker of each device, of several runs.

    Args:
        protocol: The protocol.
        states: The servers' states [seeds, ...].
        own: What devices keep, [seeds, parties, ...].
    """
    import jax

    if has_own_models(protocol):
        return np.asarray(jax.vmap(protocol.own_models)(states, own))
    models = np.asarray(jax.vmap(protocol.weights)(states))
    parties = np.shape(own.amount)[1]
    return np.broadcast_to(models[:, None], (len(models), parties, models.shape[-1]))


def attackers_of(experiment: Experiment) -> Bool[np.ndarray, " parties"]:
    """Mask of the devices that attack, by forged messages or by poisoned clicks."""
    users: Int[np.ndarray, " parties"] = np.asarray(experiment.parties.own.user)
    attack = getattr(experiment.config, "attack", None)
    if attack is not None and attack.kind == POISON and attack.share:
        return users == len(experiment.device_users) - 1
    attackers = np.asarray(experiment.conditions.attackers, bool)
    return attackers if len(attackers) else np.zeros(len(users), bool)


def some_honest(experiment: Experiment, most: int = 20) -> Int[np.ndarray, " chosen"]:
    """Numbers of devices that do not attack, evenly spaced among all of them.

    Args:
        experiment: What is run.
        most: How many; fewer where there are fewer.
    """
    honest = np.flatnonzero(~attackers_of(experiment))
    return honest[np.unique(np.linspace(0, len(honest) - 1, min(most, len(honest))).round().astype(int))]
