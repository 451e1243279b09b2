"""Two platforms share one user: what short-sighted service costs, seen through Gymnasium.

A thousand users at a time, three fixed policies, two worlds: seconds. Needs the extra ``gym``. Run it with
``python examples/choc_and_kale.py``.
"""

import numpy as np

from fedrank_zoo.slate_gym import ChocKaleVectorEnv

USERS = 1000


def top(documents: np.ndarray, slate: int, sign: int) -> np.ndarray:
    """The candidates with most chocolate (sign 1) or most kale (sign −1) for each user and platform."""
    return np.argsort(-sign * documents, axis=-1)[..., :slate]


def mean_return(sensitivity: float, signs: tuple[int, int]) -> np.ndarray:
    """What each platform gets out of a user on average; a sign of 0 shows random candidates."""
    env = ChocKaleVectorEnv(USERS, "recsim", sensitivity=sensitivity)
    chance = np.random.default_rng(0)
    observation, _ = env.reset(seed=0)
    total = np.zeros(2)
    for _ in range(env.world.rounds_per_episode):
        documents = observation["documents"]
        slates = [
            top(
                documents[:, platform] if sign else chance.random(documents[:, platform].shape),
                env.world.slate,
                sign or 1,
            )
            for platform, sign in enumerate(signs)
        ]
        observation, _, _, _, info = env.step(np.stack(slates, axis=1))
        total += info["engagement"].mean(axis=0)
    return total


def main() -> None:
    """Print a table: worlds with little and with much tension, and what four ways to serve bring."""
    policies = {"random": (0, 0), "all chocolate": (1, 1), "all kale": (-1, -1), "A chocolate, B kale": (1, -1)}
    for sensitivity in (0.01, 0.1):
        print(f"sensitivity {sensitivity}")
        for name, signs in policies.items():
            a, b = mean_return(sensitivity, signs)
            print(f"  {name:20s} A {a:6.0f}   B {b:6.0f}   together {a + b:6.0f}")


if __name__ == "__main__":
    main()
