"""Nanoseconds a step of each decision rule: choose an arm, see its increment, update.

    python -m benchmarks.bandits                     # 1,000 bandits of 4 arms at once, 200 rounds
    python -m benchmarks.bandits --bandits 100 --arms 16

A step is one round of one bandit, drawing its increments included. Where ``river`` is installed (not a dependency) its
rules take the same number of steps in turns with ours, one bandit after another as it is meant to be used, and the
ratio is printed. Reported is the best turn of each. Rules run alone, when only their own branch is computed, and all
together in one program, which computes every branch for every bandit: that is the price of a grid of settings.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import time
from collections.abc import Callable
from typing import Any

RULES: dict[str, dict[str, Any]] = {
    "epsilon-greedy": {"epsilon": 0.1},
    "ucb": {"c": 0.05},
    "thompson": {"threshold": 0.02, "gamma": 0.75},
    "extreme-explore": {},
    "bayesian-extreme-explore": {"threshold": 0.02},
    "fixed": {},
}
GAP, NOISE = 0.02, 0.03


def main() -> None:
    """Parse arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bandits", type=int, default=1000)
    parser.add_argument("--arms", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results = measure(arguments)
    if arguments.json:
        print(json.dumps(results, indent=2))


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Nanoseconds a step of every rule, of all rules in one program, and of river's."""
    import jax

    import fedrank

    steps = arguments.bandits * arguments.rounds
    ours = {kind: _alone(arguments, kind) for kind in RULES}
    together = _together(arguments)
    theirs = _river(arguments)
    best: dict[str, float] = {}
    for _ in range(arguments.turns):
        for name, turn in [*ours.items(), ("all in one program", together)]:
            best[name] = min(best.get(name, float("inf")), _seconds(turn) / steps * 1e9)
        for name, (turn, taken) in theirs.items():
            best[f"river {name}"] = min(best.get(f"river {name}", float("inf")), _seconds(turn) / taken * 1e9)
    machine = {
        "fedrank": fedrank.__version__,
        "jax": jax.__version__,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }
    print("  ".join(f"{key} {value}" for key, value in machine.items()))
    print(f"{arguments.bandits:,} bandits at once × {arguments.arms} arms × {arguments.rounds} rounds")
    for name, nanoseconds in best.items():
        if not name.startswith("river"):
            river = best.get(f"river {name}")
            ratio = "" if river is None else f"   river {river:9,.0f} ns   {river / nanoseconds:5.1f} times"
            print(f"{name:26s} {nanoseconds:9,.0f} ns a step{ratio}")
    if not theirs:
        print("river is not installed; nothing to compare with")
    return {"machine": machine, "settings": vars(arguments), "ns_a_step": best}


def _seconds(turn: Callable[[], Any]) -> float:
    start = time.perf_counter()
    turn()
    return time.perf_counter() - start


def _world(arguments: argparse.Namespace) -> tuple[Any, Any]:
    import jax
    import jax.numpy as jnp

    return jnp.arange(arguments.arms) * GAP, jax.random.split(jax.random.key(0), arguments.bandits)


def _alone(arguments: argparse.Namespace, kind: str) -> Callable[[], Any]:
    import jax

    from fedrank.silos.bandits.play import play
    from fedrank.silos.bandits.rules import make_rule

    rule, (means, keys) = make_rule(kind, **RULES[kind]), _world(arguments)
    compiled = jax.jit(jax.vmap(lambda key: play(rule, means, arguments.rounds, key, NOISE)))
    jax.block_until_ready(compiled(keys))
    return lambda: jax.block_until_ready(compiled(keys))


def _together(arguments: argparse.Namespace) -> Callable[[], Any]:
    import jax

    from fedrank.silos.bandits.play import play
    from fedrank.silos.bandits.rules import make_rule, stack

    means, keys = _world(arguments)
    made = [make_rule(kind, **settings) for kind, settings in RULES.items()]
    rules = stack([made[bandit % len(made)] for bandit in range(arguments.bandits)])
    compiled = jax.jit(jax.vmap(lambda rule, key: play(rule, means, arguments.rounds, key, NOISE)))
    jax.block_until_ready(compiled(rules, keys))
    return lambda: jax.block_until_ready(compiled(rules, keys))


def _river(arguments: argparse.Namespace) -> dict[str, tuple[Callable[[], Any], int]]:
    """Turns of river's rules and how many steps each takes; none if it is not installed."""
    try:
        from river import bandit, proba, stats  # type: ignore[import-not-found]
    except ImportError:
        return {}
    arms, taken = list(range(arguments.arms)), min(arguments.bandits, 20) * arguments.rounds

    def turn(make: Callable[[], Any], binary: bool) -> Callable[[], None]:
        def play() -> None:
            normal = random.Random(0).gauss
            for _ in range(min(arguments.bandits, 20)):
                policy = make()
                for _ in range(arguments.rounds):
                    arm = policy.pull(arms)
                    increment = normal(arm * GAP, NOISE)
                    policy.update(arm, increment > 0.02 if binary else increment)

        return play

    return {
        "epsilon-greedy": (turn(lambda: bandit.EpsilonGreedy(0.1, reward_obj=stats.Mean(), seed=0), False), taken),
        "ucb": (turn(lambda: bandit.UCB(0.05, reward_obj=stats.Mean(), burn_in=1, seed=0), False), taken),
        "thompson": (turn(lambda: bandit.ThompsonSampling(reward_obj=proba.Beta(), seed=0), True), taken),
    }


if __name__ == "__main__":
    main()
