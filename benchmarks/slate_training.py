"""How fast platforms learn, in episodes of all seeds together a CPU-second, once everything is compiled.

Whole runs, acting and learning, as one compiled program: FedSlate's networks, least squares on sums, and plans. Beside
them two numbers of the same process: the world alone with random slates, and the floor of the networks, which is how
long this machine takes for their multiplications if nothing else took time. CPU time is counted, of one thread unless
the environment says otherwise (``NPROC``, by which XLA makes its threads): layers as small as these are no work for
two, which take a fifth to a third more for the same. On a machine that others use it is more, too, which the floor and
the world show.

Run it from a clone: ``python -m benchmarks.slate_training [--candidates 10] [--slate 3] [--seeds 8] [--write]``; with
``--write`` the numbers go to ``benchmarks/slate_training.json``. Exits with 1 below ``--at-least`` episodes of the
networks a CPU-second.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp

from fedrank.engine.settings import from_dict
from fedrank.engine.simulator import Simulator, run_keys
from fedrank.slates.build import experiment_of
from fedrank.slates.fedslate import FedSlate
from fedrank.slates.protocol import PlatformProtocol
from fedrank.slates.world.policies import BASELINES, play_compiled

#: Multiplications of a backward pass through weights, in forward passes.
_BACKWARD = 2
#: Times that everything is measured; the best counts, as the machine may be shared.
_TRIES = 3


#: Episodes of each run in a call, of learners from sums: a call is as long as with networks.
_OF_SUMS = 200
RESULTS = Path(__file__).with_suffix(".json")


def per_second(protocol: PlatformProtocol, seeds: int, episodes: int) -> float:
    """Episodes a CPU-second of all seeds, acting and learning, the best of some tries.

    Args:
        protocol: The protocol.
        seeds: Runs at once.
        episodes: Episodes of each run in one call.
    """
    simulator, keys = Simulator(protocol), run_keys(range(seeds))
    states, own = simulator.start(keys, protocol.parties(keys), per_run=True)
    assert protocol.world is not None
    rounds = episodes * protocol.world.rounds_per_episode
    done, best = 0, 0.0
    for attempt in range(_TRIES + 1):  # the first compiles, and fills what is learnt from
        started = time.process_time()
        states, own, _ = simulator.advance(keys, states, None, own, done, rounds)
        jax.block_until_ready(own)
        if attempt:
            best = max(best, seeds * episodes / (time.process_time() - started))
        done += rounds
    return best


def multiplications(protocol: FedSlate) -> float:
    """Multiplications of the networks in an episode, by the exchanges: acting, and learning every so many rounds."""
    s = protocol.slates
    k, n, b, rounds = s.platforms, s.world.candidates, s.batch, s.world.rounds_per_episode
    local, head = s.local.size * n, s.federated_network.size * n  # about one multiplication a weight and candidate
    acting = rounds * k * (local + head)
    forward = k * 2 * local + (k - 1) * local + sum(s.sees) * head + k * head  # values, following, new values; Ω̄, Ω
    backward = k * _BACKWARD * (local + head) + k * (local + head)  # with the forward passes that it needs
    return acting + rounds / s.learn_every * b * (forward + backward)


def multiplied_per_second() -> float:
    """Multiplications and additions a CPU-second of products as the networks have them."""
    left, right = jnp.ones((320, 64)), jnp.ones((64, 64))

    @jax.jit
    def many(left):
        return jax.lax.scan(lambda x, _: (jnp.tanh(x @ right * 1e-3), None), left, None, length=2000)[0]

    many(left).block_until_ready()
    best = 0.0
    for _ in range(_TRIES):
        started = time.process_time()
        many(left).block_until_ready()
        best = max(best, 2000 * left.size * right.shape[1] / (time.process_time() - started))
    return best


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--candidates", type=int, default=10)
    parser.add_argument("--slate", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--episodes", type=int, default=20, help="of each seed in a call")
    parser.add_argument("--at-least", type=float, default=0.0, help="episodes a CPU-second below which it fails")
    parser.add_argument("--write", action="store_true", help=f"write the numbers to {RESULTS.name}")
    given = parser.parse_args()
    os.environ.setdefault("NPROC", "1")  # read when the first program is compiled
    world = {"candidates": given.candidates, "slate": given.slate}

    def protocol_of(name: str, episodes: int) -> PlatformProtocol:
        rounds = 61 * episodes * (_TRIES + 1)  # so that a learner from sums explores in all calls but the last
        settings = {"protocol": name, "seeds": given.seeds, "rounds": rounds, "world": world}
        return experiment_of(from_dict(settings).resolved()).protocol

    networks = protocol_of("vertical-slate", given.episodes)
    assert isinstance(networks, FedSlate)
    users, policy = networks.world, BASELINES.get("random")
    keys = jax.random.split(jax.random.key(0), 2000)
    play_compiled(users, policy(users), keys).engagement.block_until_ready()
    started = time.process_time()
    play_compiled(users, policy(users), keys).engagement.block_until_ready()
    found = {"the world, random": len(keys) / (time.process_time() - started)}
    found["networks"] = per_second(networks, given.seeds, given.episodes)
    found["networks, floor: products alone"] = multiplied_per_second() / multiplications(networks)
    found["planned-slates"] = per_second(protocol_of("planned-slates", _OF_SUMS), given.seeds, _OF_SUMS)
    widths = f"{networks.slates.local_widths}, {networks.slates.head_widths}"
    title = f"N = {given.candidates}, n = {given.slate}, {given.seeds} seeds, widths {widths}"
    print(title)
    for name, speed in found.items():
        print(f"{name:34s} {speed:12,.1f} episodes a CPU-second")
    if given.write:
        kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
        kept[title] = {name: float(f"{speed:.4g}") for name, speed in found.items()}
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    if found["networks"] < given.at_least:
        sys.exit(1)


if __name__ == "__main__":
    main()
