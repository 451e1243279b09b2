"""How fast platforms learn: whole FedSlate runs, acting and learning, as one compiled program.

Episodes per second of all seeds together, beside two numbers of the same process: the world alone with random slates,
and the floor, which is how long this machine takes for the multiplications of all networks if nothing else took time.

Run it from a clone: ``python -m benchmarks.slate_training [--candidates 10] [--slate 3] [--seeds 8]``. Exits with 1
below ``--at-least`` episodes per second.
"""

from __future__ import annotations

import argparse
import sys
import time

import jax
import jax.numpy as jnp

from fedrank.engine.settings import from_dict
from fedrank.engine.simulator import Simulator, run_keys
from fedrank.slates.build import experiment_of
from fedrank.slates.fedslate import FedSlate
from fedrank.slates.world.policies import BASELINES
from fedrank.slates.world.rollout import returns

#: Multiplications of a backward pass through weights, in forward passes.
_BACKWARD = 2
#: Times that everything is measured; the best counts, as the machine may be shared.
_TRIES = 3


def per_second(protocol: FedSlate, seeds: int, episodes: int) -> float:
    """Episodes per second of all seeds, acting and learning, the best of some tries.

    Args:
        protocol: The protocol.
        seeds: Runs at once.
        episodes: Episodes of each run in one call.
    """
    simulator, keys = Simulator(protocol), run_keys(range(seeds))
    states, own = simulator.start(keys, protocol.parties(keys), per_run=True)
    rounds = episodes * protocol.settings.world.rounds_per_episode
    done, best = 0, 0.0
    for attempt in range(_TRIES + 1):  # the first compiles, and fills what is learnt from
        started = time.perf_counter()
        states, own, _ = simulator.advance(keys, states, None, own, done, rounds)
        jax.block_until_ready(own.weights)
        if attempt:
            best = max(best, seeds * episodes / (time.perf_counter() - started))
        done += rounds
    return best


def multiplications(protocol: FedSlate) -> float:
    """Multiplications of the networks in an episode, by the exchanges: acting, and learning every so many rounds."""
    s = protocol.settings
    k, n, b, rounds = s.platforms, s.world.candidates, s.batch, s.world.rounds_per_episode
    local, head = s.local.size * n, s.head.size * n  # about one multiplication a weight and candidate
    acting = rounds * k * (local + head)
    forward = k * 2 * local + (k - 1) * local + sum(s.feedback) * head + k * head  # values, following, new values; Ω̄, Ω
    backward = k * _BACKWARD * (local + head) + k * (local + head)  # with the forward passes that it needs
    return acting + rounds / s.learn_every * b * (forward + backward)


def multiplied_per_second() -> float:
    """Multiplications and additions per second of products as the networks have them."""
    left, right = jnp.ones((320, 64)), jnp.ones((64, 64))

    @jax.jit
    def many(left):
        return jax.lax.scan(lambda x, _: (jnp.tanh(x @ right * 1e-3), None), left, None, length=2000)[0]

    many(left).block_until_ready()
    best = 0.0
    for _ in range(_TRIES):
        started = time.perf_counter()
        many(left).block_until_ready()
        best = max(best, 2000 * left.size * right.shape[1] / (time.perf_counter() - started))
    return best


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--candidates", type=int, default=10)
    parser.add_argument("--slate", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--episodes", type=int, default=20, help="of each seed in a call")
    parser.add_argument("--at-least", type=float, default=0.0, help="episodes per second below which it fails")
    given = parser.parse_args()
    world = {"candidates": given.candidates, "slate": given.slate}
    settings = from_dict({"protocol": "vertical-slate", "seeds": given.seeds, "world": world})
    experiment = experiment_of(settings.resolved())
    protocol = experiment.protocol
    assert isinstance(protocol, FedSlate)

    policy, keys = BASELINES.get("random")(experiment.world), jax.random.split(jax.random.key(0), 2000)
    returns(experiment.world, policy, keys).block_until_ready()
    started = time.perf_counter()
    returns(experiment.world, policy, keys).block_until_ready()
    alone = len(keys) / (time.perf_counter() - started)

    speed = per_second(protocol, given.seeds, given.episodes)
    floor = multiplied_per_second() / multiplications(protocol)
    widths = f"{protocol.settings.local.widths}, {protocol.settings.head.widths}"  # type: ignore[attr-defined]
    print(f"N = {given.candidates}, n = {given.slate}, {given.seeds} seeds, widths {widths}")
    print(f"learning               {speed:12,.1f} episodes/s")
    print(f"floor, products alone  {floor:12,.1f} episodes/s   ({floor / speed:.1f} times)")
    print(f"the world, random      {alone:12,.1f} episodes/s   ({alone / speed:.0f} times)")
    if speed < given.at_least:
        sys.exit(1)


if __name__ == "__main__":
    main()
