"""What crosses between platforms and their coordinator while they learn slates together, kept beside what is secret.

A run of :class:`~fedrank.slates.fedslate.FedSlate` with a wiretap. The messages are those of the run
itself, from its first batch on; the secrets are what platforms remember, which nobody but a simulator can look at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedrank.core.errors import ConfigError
from fedrank.engine.simulator import Simulator, run_keys
from fedrank.engine.wiretap import Wiretap
from fedrank.slates.fedslate import FedSlate
from fedrank.slates.fedslate.state import Transition


@dataclass(frozen=True)
class Records:
    """Messages and secrets of several runs; all NumPy. Sizes: R rounds, S seeds, K platforms, L batches of B moments.

    Attributes:
        protocol: The protocol.
        secrets: What each platform remembers, leaves [S, K, R, ...]: round r at place r.
        local: float32 [R, S, K, N], the platforms' Q-values as sent.
        shared: float32 [R, S, K, N], the federated Q-values as sent to each.
        moments: int64 [L, S, B], the round of each moment that was learnt from.
        following: float32 [L, S, K, B, N], federated target values as sent; zeros to who has no feedback.
        targets: float32 [L, S, K, B], as sent by each; zeros of who has no feedback.
        told: float32 [L, S, K, B], targets as sent to each.
        compared: float32 [L, S, K, B, N], federated values at the moments as sent to each.
        gradient: float32 [L, S, K, B, N], as sent by each.
        choice: float32 [L, S, K, 2], parameters of choice models as sent by each.
    """

    protocol: FedSlate
    secrets: Transition
    local: np.ndarray
    shared: np.ndarray
    moments: np.ndarray
    following: np.ndarray
    targets: np.ndarray
    told: np.ndarray
    compared: np.ndarray
    gradient: np.ndarray
    choice: np.ndarray

    @property
    def seeds(self) -> int:
        """S."""
        return self.local.shape[1]

    @property
    def episode(self) -> int:
        """Rounds of one user."""
        return self.protocol.settings.world.rounds_per_episode

    def engagement(self, platform: int) -> np.ndarray:
        """What a platform remembers of engagement, float64 [S, R], in the world's unit."""
        return np.asarray(self.secrets.engagement[:, platform], np.float64) * self.protocol.settings.reward_scale


def record(protocol: FedSlate, seeds: Any, rounds: int, chunk: int | None = None) -> Records:
    """Run, and keep everything.

    Args:
        protocol: Platforms must remember all ``rounds``, so that every message can be set beside its secret.
        seeds: Integers [S].
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
        "moments": rounds[learnt][:, None, None] - ages,
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
