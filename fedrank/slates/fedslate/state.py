"""State of a platform of FedSlate, and of its coordinator."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxtyping import Bool, Float, Int, Key, UInt32

from fedrank.core.arrays import AnyArray as Array
from fedrank.core.lazy import jax, jnp, optax
from fedrank.slates.fedslate.settings import Slates


class View(NamedTuple):
    """Knowledge of one platform about the user it serves, and the candidates that it can show now.

    Attributes:
        observed: The satisfaction that it observes.
        smooth: The same smoothed over the episode.
        consumed: Fading sum of the feature of what was clicked here; without feedback, of what the platform's own
            choice model expects of the slates that it showed.
        engaged: Fading mean of scaled engagement here; 0 without feedback.
        documents: The feature of each candidate.
        into: Rounds of the stay that are over.
        others: What the other platforms know of the user; empty unless everything is seen centrally.
        more: What a further critic keeps.
    """

    observed: Float[Array, ""]
    smooth: Float[Array, ""]
    consumed: Float[Array, ""]
    engaged: Float[Array, ""]
    documents: Float[Array, " candidates"]
    into: Int[Array, ""]
    others: Float[Array, " others_features"]
    more: Any = ()


class Transition(NamedTuple):
    """One round at one platform, as its replay buffer has it.

    Attributes:
        user: Features of the user.
        items: Features of the candidates.
        slate: The slate that was shown: candidates by slot.
        item: The candidate that was clicked; −1: none, or the platform was not told.
        slot: The slot that was clicked; n: none, or the platform was not told.
        engagement: Scaled; 0 where the platform was not told.
        over: 1 if the episode ended there, else 0.
    """

    user: Float[Array, " user_features"]
    items: Float[Array, "candidates item_features"]
    slate: Int[Array, " slots"]
    item: Int[Array, ""]
    slot: Int[Array, ""]
    engagement: Float[Array, ""]
    over: Float[Array, ""]


class PlatformState(NamedTuple):
    """State of a platform; it never leaves.

    Attributes:
        number: Number of the platform, from 0.
        feedback: Whether it sees clicks and engagement.
        weights: Its Q-network.
        target: Its target network.
        optimiser: State of its Adam.
        choice: The choice model that it has learnt or was told: slope, logit of no click.
        view: What it knows of the present user.
        slate: The slate that it shows in this round.
        replay: The replay buffer: :class:`Transition` with a leading axis; round r is at place r mod its length.
        rounds: Rounds so far.
        mean: Mean of the scaled engagement so far, the last thousands of rounds counting most; 0 without feedback or
            centring.
        ages: Ages, in rounds, of the transitions of the batch that is being learnt from.
    """

    number: Int[Array, ""]
    feedback: Bool[Array, ""]
    weights: Float[Array, " weights"]
    target: Float[Array, " weights"]
    optimiser: optax.OptState
    choice: Float[Array, "2"]
    view: View
    slate: Int[Array, " slots"]
    replay: Transition
    rounds: Int[Array, ""]
    mean: Float[Array, ""]
    ages: UInt32[Array, " transitions"]


class CoordinatorState(NamedTuple):
    """The coordinator's state.

    Attributes:
        round: Rounds so far.
        key: Of the random numbers that choose transitions to learn from.
        weights: The federated network Ω.
        target: Its target network.
        optimiser: State of its Adam.
        values: Q-values of the round.
        batch: Q-values of the batch; of a platform that has learnt from it, the new ones.
        following: Q-values of the target networks, one round later.
        targets: Targets of each platform.
        choice: Mean of the choice models that the platforms have learnt.
        learnable: Whether there are targets for this batch: without them no platform learns.
        compared: Whether each platform's gradient of this batch has come.
        gradient: The gradient that goes back to each platform.
        more: What a further method keeps.
    """

    round: UInt32[Array, ""]
    key: Key[Array, ""]
    weights: Float[Array, " weights"]
    target: Float[Array, " weights"]
    optimiser: optax.OptState
    values: Float[Array, "platforms candidates"]
    batch: Float[Array, "platforms transitions candidates"]
    following: Float[Array, "platforms transitions candidates"]
    targets: Float[Array, "platforms transitions"]
    choice: Float[Array, "2"]
    learnable: Bool[Array, ""]
    compared: Bool[Array, " platforms"]
    gradient: Float[Array, "platforms transitions candidates"]
    more: Any = ()


def empty_view(s: Slates) -> View:
    """The view of a user who has just come, before anything is observed, with nothing to show yet."""
    zero, others = jnp.float32(0.0), (s.user_features - s.user_features // s.platforms) if s.central else 0
    return View(
        zero, zero, zero, zero,
        documents=jnp.zeros(s.world.candidates, jnp.float32),
        into=jnp.int32(0),
        others=jnp.zeros(others, jnp.float32),
        more=s.first_memory(),
    )  # fmt: skip


def first_coordinator_state(s: Slates, key: Key[Array, ""]) -> CoordinatorState:
    """The coordinator's state before the first round: a random Ω; ``key`` is consumed."""
    k, b, n = s.platforms, s.batch, s.world.candidates
    weights_key, own = jax.random.split(key)
    weights = s.federated_network.init(weights_key)
    return CoordinatorState(
        round=jnp.uint32(0),
        key=own,
        weights=weights,
        target=weights,
        optimiser=s.adam.init(weights),
        values=jnp.zeros((k, n), jnp.float32),
        batch=jnp.zeros((k, b, n), jnp.float32),
        following=jnp.zeros((k, b, n), jnp.float32),
        targets=jnp.zeros((k, b), jnp.float32),
        choice=jnp.zeros(2, jnp.float32),
        learnable=jnp.bool_(False),
        compared=jnp.zeros(k, bool),
        gradient=jnp.zeros((k, b, n), jnp.float32),
    )


def first_platform_state(s: Slates, key: Key[Array, ""], number: Int[Array, ""] | int) -> PlatformState:
    """A platform's state before its first user.

    Args:
        s: Settings.
        key: Consumed; makes its network.
        number: Number of the platform, from 0.
    """
    b, n, slots = s.batch, s.world.candidates, s.world.slate
    weights = s.local.init(key)
    row = Transition(
        jnp.zeros(s.user_features, jnp.float32),
        jnp.zeros((n, s.item_features), jnp.float32),
        jnp.zeros(slots, jnp.int32),
        *(jnp.int32(0), jnp.int32(0), jnp.float32(0), jnp.float32(0)),
    )
    return PlatformState(
        number=jnp.int32(number),
        feedback=jnp.asarray(s.sees)[number],
        weights=weights,
        target=weights,
        optimiser=s.adam.init(weights),
        choice=jnp.zeros(2, jnp.float32),
        view=empty_view(s),
        slate=row.slate,
        replay=jax.tree.map(lambda leaf: jnp.zeros((s.memory, *leaf.shape), leaf.dtype), row),
        rounds=jnp.int32(0),
        mean=jnp.float32(0),
        ages=jnp.ones(b, jnp.uint32),
    )


def transitions(own: PlatformState, ages: UInt32[Array, " transitions"]) -> Transition:
    """Transitions of a platform's replay buffer by their age in rounds: leaves [B, ...]."""
    length = own.replay.item.shape[0]
    return jax.tree.map(lambda leaf: leaf[(own.rounds - 1 - ages.astype(jnp.int32)) % length], own.replay)
