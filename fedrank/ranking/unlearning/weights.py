"""Unlearning where devices send weights: replay of updates, FedEraser, and projected gradient ascent.

A server that averages weights may keep what devices sent. With θₜ the model of round t and wᵢₜ what device i made of
it, its update is uᵢₜ = wᵢₜ − θₜ, and aᵢ its number of interactions. For the devices R that stay::

    replay      θ' = θ₀ + Σₜ Σ_R aᵢ uᵢₜ / Σ_R aᵢ
    FedEraser   of every Δth round t:  each device of R learns from θ' for a part r of its interactions: ûᵢ
                θ' ← θ' + Σ_R aᵢ ‖uᵢₜ‖ ûᵢ/‖ûᵢ‖ / Σ_R aᵢ
    ascent      θ' = the mean of what R sent last; radius = a third of the mean distance of θ' to random models
                the devices F to forget learn from θ' in some rounds, and the server goes the other way:
                θ' ← θ' − Σ_F aᵢ uᵢ / Σ_F aᵢ, pulled back to the ball around where it began

Replay needs no device; FedEraser and ascent need devices to answer again, with what their users do now: past
interactions of an online learner cannot be had a second time. Ascent needs those who leave.

Source:
    Liu, Ma, Yang, Wang, Liu: *FedEraser*, IWQoS 2021, Equations (3) and (4). Halimi, Kadhe, Rawat, Baracaldo:
    *Federated Unlearning: How to Efficiently Erase a Client in FL?*, 2022 (arXiv 2207.05521), Algorithm 1, where one
    client ascends by itself. For federated online learning to rank: Wang, Liu, Zuccon, ECIR 2024; Tao et al., SIGIR
    2025.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from fedrank.core.arrays import PyTree
from fedrank.core.protocol import Party
from fedrank.engine.conditions import Conditions
from fedrank.engine.simulator import Simulator
from fedrank.ranking.foltr_pdgd import FoltrPDGD

#: The ball of projected ascent: its radius as a part of the mean distance to random models, and their number.
_PART, _RANDOM = 1 / 3, 10


class Logged(NamedTuple):
    """A server's log of a run.

    Attributes:
        start: float64 [seeds, n], the model before the first round.
        updates: float64 [rounds, seeds, parties, n], how each device changed the model; 0 where it was not heard.
        amounts: float64 [rounds, seeds, parties], interactions behind it; 0 where it was not heard.
        last: float64 [seeds, parties, n], what each device sent last.
    """

    start: Float[np.ndarray, "seeds n"]
    updates: Float[np.ndarray, "rounds seeds parties n"]
    amounts: Float[np.ndarray, "rounds seeds parties"]
    last: Float[np.ndarray, "seeds parties n"]

    @classmethod
    def of(
        cls, start: Float[np.ndarray, "seeds n"], replies: Any, arrived: Bool[np.ndarray, "rounds seeds parties"]
    ) -> Logged:
        """The log of a run from its replies, :class:`~fedrank.ranking.mechanisms.messages.WeightsReply`."""
        sent = np.asarray(replies.weights, np.float64)
        heard = arrived & np.isfinite(sent).all(axis=-1)
        sent = np.where(heard[..., None], sent, 0.0)
        amounts = np.where(heard, np.asarray(replies.interactions, np.float64), 0.0)
        updates, model = np.empty_like(sent), start
        for t, weights in enumerate(sent):
            updates[t] = np.where(heard[t][..., None], weights - model[:, None], 0.0)
            model = model + mean_of(updates[t], amounts[t])
        return cls(start, updates, amounts, sent[-1])


def mean_of(
    updates: Float[np.ndarray, "seeds parties n"], amounts: Float[np.ndarray, "seeds parties"]
) -> Float[np.ndarray, "seeds n"]:
    """Σᵢ aᵢ uᵢ / Σᵢ aᵢ over devices i, float64 [seeds, n]; 0 if all aᵢ are 0."""
    total = np.maximum(amounts.sum(axis=1), 1e-30)
    return np.einsum("sp,spn->sn", amounts, updates) / total[:, None]


def replayed_updates(log: Logged, stay: Bool[np.ndarray, " parties"]) -> Float[np.ndarray, "seeds n"]:
    """The model of those who stay: the start, and the mean of their updates of each round."""
    model = log.start
    for updates, amounts in zip(log.updates, log.amounts, strict=True):
        model = model + mean_of(updates, amounts * stay)
    return model


@dataclass(frozen=True)
class Eraser:
    """Settings of FedEraser.

    Attributes:
        interval: Δ, rounds between those that are kept; the paper has 1, 2, 5 and 10.
        part: r, part of the interactions of a round that a device makes anew; the paper's 0.5.
    """

    interval: int = 5
    part: float = 0.5


def _once(
    protocol: FoltrPDGD, chunk: int, keys: Any, states: PyTree, parties: Party, interactions: int, number: int
) -> Float[np.ndarray, "seeds parties n"]:
    """Change of each device to the models of these states by a number of interactions: float64 [seeds, parties, n]."""
    fewer = dataclasses.replace(protocol, interactions=interactions)
    own = parties.own._replace(amount=np.minimum(np.asarray(parties.own.amount), interactions))
    simulator = Simulator(fewer, chunk, conditions=Conditions(), record=True)
    _, all_own = simulator.start(keys, Party(parties.shared, own))
    _, _, seen = simulator.advance(keys, states, parties.shared, all_own, number, 1)
    sent = np.asarray(seen["replies"][0].weights, np.float64)[0]
    return sent - np.asarray(states.weights, np.float64)[:, None]


def run_federaser(
    protocol: FoltrPDGD,
    keys: Any,
    begun: PyTree,
    parties: Party,
    log: Logged,
    stay: Bool[np.ndarray, " parties"],
    how: Eraser,
    chunk: int,
) -> tuple[Float[np.ndarray, "seeds n"], int]:
    """FedEraser: updates of some rounds keep their lengths and get the directions that they have without the others.

    Args:
        protocol: The protocol.
        keys: Keys of the runs.
        begun: States before the first round.
        parties: All devices.
        log: What the server kept.
        stay: bool [parties].
        how: Settings.
        chunk: Devices that answer at once.

    Returns:
        The models, float64 [seeds, n], and the number of rounds in which devices answered.
    """
    model, rounds = log.start, range(0, len(log.updates), how.interval)
    interactions = max(1, math.ceil(how.part * protocol.interactions))
    for t in rounds:
        states = begun._replace(weights=jnp.asarray(model, jnp.float32), round=jnp.full(len(model), t, jnp.uint32))
        # Other rounds' randomness: the same interactions cannot be had again.
        anew = _once(protocol, chunk, keys, states, parties, interactions, t + len(log.updates))
        model = model + mean_of(calibrate_updates(log.updates[t], anew), log.amounts[t] * stay)
    return model, len(rounds)


def calibrate_updates(
    stored: Float[np.ndarray, "*devices n"], anew: Float[np.ndarray, "*devices n"]
) -> Float[np.ndarray, "*devices n"]:
    """‖u‖ û/‖û‖: the length of the update that was kept along the one that was made anew; 0 where that is 0."""
    length = np.linalg.norm(anew, axis=-1, keepdims=True)
    return np.linalg.norm(stored, axis=-1, keepdims=True) * anew / np.where(length > 0, length, 1.0)


def projected_ascent(
    protocol: FoltrPDGD,
    keys: Any,
    trained: PyTree,
    parties: Party,
    log: Logged,
    gone: Bool[np.ndarray, " parties"],
    first: int,
    rounds: int,
    chunk: int,
) -> PyTree:
    """The states after the forgotten devices have undone what they learn, near the model of the others.

    Args:
        protocol: The protocol.
        keys: Keys of the runs.
        trained: States after training.
        parties: All devices.
        log: What the server kept.
        gone: bool [parties]: who is forgotten.
        first: Number of the first of these rounds.
        rounds: How many.
        chunk: Devices that answer at once.
    """
    centre = mean_of(log.last, log.amounts[-1] * ~gone)
    model, radius = centre, ball(centre)
    for number in range(first, first + rounds):
        states = trained._replace(
            weights=jnp.asarray(model, jnp.float32), round=jnp.full(len(model), number, jnp.uint32)
        )
        changes = _once(protocol, chunk, keys, states, parties, protocol.interactions, number)
        amounts = np.broadcast_to(np.asarray(parties.own.amount, np.float64) * gone, changes.shape[:2])
        model = project_onto_ball(model - mean_of(changes, amounts), centre, radius)
    return trained._replace(weights=jnp.asarray(model, jnp.float32))


def ball(centre: Float[np.ndarray, "seeds n"]) -> Float[np.ndarray, " seeds"]:
    """A third of the mean distance to random models, normal ones that are as long as the model on average."""
    n = centre.shape[1]
    normal = np.random.Generator(np.random.PCG64(0)).standard_normal((_RANDOM, n)) / math.sqrt(n)
    length = np.linalg.norm(centre, axis=1)
    apart = centre[:, None] - length[:, None, None] * normal[None]
    return _PART * np.linalg.norm(apart, axis=2).mean(axis=1)


def project_onto_ball(
    model: Float[np.ndarray, "seeds n"], centre: Float[np.ndarray, "seeds n"], radius: Float[np.ndarray, " seeds"]
) -> Float[np.ndarray, "seeds n"]:
    """The nearest point of the ball around the centre."""
    away = model - centre
    length = np.linalg.norm(away, axis=1)
    return centre + away * np.minimum(1.0, radius / np.where(length > 0, length, 1.0))[:, None]
