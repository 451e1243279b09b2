"""Planned slates in SARDINE, a world of others whose users get bored of what they click, beside slates at random.

Run it from a clone, with ``pip install sardine-rec==1.0.8``: ``python -m benchmarks.sardine_slates``. The world is
``sardine/SlateTopK-Bored-v0``: slates of 10 of 1,000 items, which have 10 topics, 100 slates a user, clicks on any
number of them. Two platforms with feedback take turns (:class:`fedrank_zoo.slate_gym.PlanningAgent`). Items are their
topics, whitened over all items. A slate counts as clicked once, at its first click, with the number of its clicks as
engagement. It prints clicks a user, with a Student interval: of users whose slates were explored, of
as many in the trial, of those who were served by its verdict, and of as many others with slates at random.
"""

from __future__ import annotations

import argparse
import importlib
import json
import tempfile
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from fedrank.deploy.platforms.folder import Terms
from fedrank.engine.settings import from_dict
from fedrank.metrics.returns import mean_interval
from fedrank.slates.sums.trial import verdict_json
from fedrank_zoo.slate_gym import PlanningAgent

RESULT = Path(__file__).with_suffix(".json")
WORLD, STEPS, SLOTS = "sardine/SlateTopK-Bored-v0", 100, 10


def whitened(topics: np.ndarray) -> np.ndarray:
    """Items of mean 0 and variance 1/3 without correlation, as platforms agree on."""
    apart = topics - topics.mean(axis=0)
    return apart @ np.linalg.inv(np.linalg.cholesky(np.cov(apart.T, bias=True))).T / 3**0.5


def words_of(clicks: np.ndarray) -> dict[str, Any]:
    """Mean clicks a user with its interval, 95 %."""
    mean, low, high = mean_interval(clicks)
    return {"users": len(clicks), "clicks": round(mean, 3), "low": round(low, 3), "high": round(high, 3)}


def measured(env: Any, explorers: int, served: int, seed: int) -> dict[str, Any]:
    """Clicks of users who are explored, of as many in the trial, and of those who are served by its verdict.

    Args:
        env: The environment.
        explorers: Users who are explored.
        served: Users after the trial.
        seed: Of the first users' chance.
    """
    items = whitened(np.asarray(env.unwrapped.item_embedd)).astype(np.float32)
    world = {"features": items.shape[1], "candidates": 100, "slate": SLOTS, "time_budget": STEPS}
    slates = {"explorers": explorers, "trial": explorers, "feedback": "all", "scale": 1.0}
    rounds = (2 * explorers + served) * STEPS // 2
    terms = Terms.of(from_dict({"protocol": "planned-slates", "rounds": rounds, "world": world, "slates": slates}))

    def look(seen: dict[str, Any]) -> tuple[np.ndarray, None]:
        return items, None

    def tell(seen: dict[str, Any], reward: float, info: dict[str, Any]) -> tuple[int | None, float]:
        clicked = np.flatnonzero(seen["clicks"])
        return (int(clicked[0]), reward) if len(clicked) else (None, 0.0)

    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, PlanningAgent(terms, Path(folder), look, tell) as agent:
        for place, (name, users) in enumerate({"explored": explorers, "trial": explorers, "served": served}.items()):
            found[name] = words_of(agent.play(env, users, seed=seed + place))
        own = agent.platforms[0]._own
    return {**found, "model": bool(np.any(own.model)), "verdict": verdict_json(own.verdict)}


def main() -> None:
    """Measure, print and write :data:`RESULT`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--explorers", type=int, nargs="+", default=[20, 400], help="of each row; as many in its trial")
    parser.add_argument("--served", type=int, default=200, help="users after the trial, and users of random slates")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    importlib.import_module("sardine")  # makes its environments known
    env = gymnasium.make(WORLD)
    random, clicks = np.random.default_rng(given.seed), np.zeros(given.served)
    for user in range(given.served):
        env.reset(seed=given.seed + 2 if user == 0 else None)
        over = False
        while not over:
            slate = random.choice(env.unwrapped.num_items, SLOTS, replace=False)  # type: ignore[attr-defined]
            _, reward, terminated, truncated, _ = env.step(slate)
            clicks[user] += float(reward)
            over = terminated or truncated
    found: dict[str, Any] = {"settings": vars(given), "random": words_of(clicks)}
    for explorers in given.explorers:
        found[f"{explorers} explorers"] = measured(env, explorers, given.served, given.seed)
    print(json.dumps(found, indent=2))
    RESULT.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
