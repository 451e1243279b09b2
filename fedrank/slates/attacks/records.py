"""A simulated run of :class:`~fedrank.slates.fedslate.FedSlate` with all its messages, beside the platforms' secrets.

The messages are recorded from the first batch on. The secrets are the platforms' replay buffers, which never leave
them: only a simulator can look at them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from fedrank.core.errors import ConfigError
from fedrank.engine.simulator import Simulator, run_keys
from fedrank.engine.wiretap import Wiretap
from fedrank.slates.fedslate import FedSlate
from fedrank.slates.fedslate.state import Transition


@dataclass(frozen=True)
class Records:
    """Messages and secrets of several runs, as NumPy arrays.

    Attributes:
        protocol: The protocol.
        secrets: The platforms' replay buffers, leaves [seeds, platforms, rounds, ...]: round r at place r.
        local: The platforms' Q-values as sent.
        shared: The federated Q-values as sent to each.
        transitions: The round of each transition that was learnt from.
        following: Federated target values as sent; zeros to platforms without feedback.
        targets: As sent by each platform; zeros of platforms without feedback.
        told: Targets as sent to each platform.
        compared: Federated values at the transitions as sent to each platform.
        gradient: As sent by each platform.
        choice: Parameters of choice models as sent by each platform.
    """

    protocol: FedSlate
    secrets: Transition
    local: Float[np.ndarray, "rounds seeds platforms candidates"]
    shared: Float[np.ndarray, "rounds seeds platforms candidates"]
    transitions: Int[np.ndarray, "batches seeds transitions"]
    following: Float[np.ndarray, "batches seeds platforms transitions candidates"]
    targets: Float[np.ndarray, "batches seeds platforms transitions"]
    told: Float[np.ndarray, "batches seeds platforms transitions"]
    compared: Float[np.ndarray, "batches seeds platforms transitions candidates"]
    gradient: Float[np.ndarray, "batches seeds platforms transitions candidates"]
    choice: Float[np.ndarray, "batches seeds platforms 2"]

    @property
    def seeds(self) -> int:
        """Number of seeds, each a run of its own."""
        return self.local.shape[1]

    @property
    def episode(self) -> int:
        """Number of rounds of an episode, the stay of one user."""
        return self.protocol.settings.world.rounds_per_episode

    def engagement(self, platform: int) -> Float[np.ndarray, "seeds rounds"]:
        """Engagement at a platform in each round, in the world's unit; zeros without feedback."""
        return np.asarray(self.secrets.engagement[:, platform], np.float64) * self.protocol.settings.reward_scale


def record(protocol: FedSlate, seeds: Any, rounds: int, chunk: int | None = None) -> Records:
    """Run a protocol and keep all messages and secrets.

    Args:
        protocol: Platforms must remember all ``rounds``, so that every message can be set beside its secret.
        seeds: Seeds of the runs.
        rounds: R, beyond the burn-in.
        chunk: Rounds of one compiled program, a divisor of ``rounds``; bounds the memory. Default: all.

    Raises:
        ConfigError: Platforms would forget, would learn nothing, or ``chunk`` is no divisor.
    """
    s, chunk = protocol.settings, rounds if chunk is None else chunk
    if chunk < 1 or rounds % chunk:
        raise ConfigError(f"chunks of {chunk} rounds do not make up {rounds} rounds; choose a divisor.")
    if not s.burn_in + s.learn_every <= rounds <= s.memory:
        raise ConfigError(
            f"{rounds} rounds must be at least burn_in + learn_every = {s.burn_in + s.learn_every}, so that something "
            f"is learnt, and at most memory = {s.memory}, so that nothing is forgotten."
        )
    simulator, keys = Simulator(Wiretap(protocol), record=True), run_keys(seeds)
    states, own = simulator.start(keys, protocol.parties(keys), per_run=True)
    kept: list[dict[str, np.ndarray]] = []
    for first in range(0, rounds, chunk):
        states, own, seen = simulator.advance(keys, states, None, own, first, chunk)
        kept.append(_kept(protocol, tuple(seen["replies"]), np.arange(first, first + chunk)))
    together = {name: np.concatenate([one[name] for one in kept]) for name in kept[0]}
    secrets = jax.tree.map(lambda leaf: np.asarray(leaf)[:, :, :rounds], own.replay)
    return Records(protocol=protocol, secrets=secrets, **together)


def _kept(protocol: FedSlate, heard: tuple[Any, ...], rounds: np.ndarray) -> dict[str, np.ndarray]:
    """Of a chunk of rounds: leaves [rounds, S, K, ...] of each exchange, where it took place."""
    exchanges = dict(zip(_names(protocol), heard, strict=True))
    learnt = np.asarray(protocol.exchanges[2].due(jnp.asarray(rounds)))

    def at(leaf) -> np.ndarray:
        return np.asarray(leaf)[learnt]

    look, recommend, batch, targets = (exchanges[name] for name in ("look", "recommend", "batch", "targets"))
    ages = at(batch.request.ages)[:, :, 0].astype(np.int64)  # the same to all platforms
    of_platform = [exchanges[f"compare {p}"] for p in range(protocol.settings.platforms)]

    def compared(leaf) -> np.ndarray:
        return np.stack([at(leaf(one))[:, :, p] for p, one in enumerate(of_platform)], axis=2)

    return {
        "local": np.asarray(look.reply.values),
        "shared": np.asarray(recommend.request.values),
        "transitions": rounds[learnt][:, None, None] - ages,
        "following": at(targets.request.values),
        "targets": at(targets.reply.targets),
        "told": compared(lambda one: one.request.targets),
        "compared": compared(lambda one: one.request.values),
        "gradient": compared(lambda one: one.reply.gradient),
        "choice": at(targets.reply.choice),
    }


def _names(protocol: FedSlate) -> list[str]:
    """A name for each exchange; where there is one a platform, with its number."""
    return [
        f"{one.name} {one.platform}" if hasattr(one, "platform") else one.name  # type: ignore[attr-defined]
        for one in protocol.exchanges
    ]
