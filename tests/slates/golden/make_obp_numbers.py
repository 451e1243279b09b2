"""Off-policy estimates of the Open Bandit Pipeline, to compare with.

    python tests/slates/golden/make_obp_numbers.py LOGS tests/slates/golden   # writes obp.json

LOGS is the folder of the Open Bandit Dataset's small sample (random.all.csv.xz, bts.all.csv.xz). The package's last
release asks for Python below 3.11 and old versions; what is used of it runs on later ones::

    pip install --no-deps --ignore-requires-python obp==0.5.7
    pip install numpy pandas scikit-learn pyyaml scipy tqdm matplotlib seaborn

``torch``, which it imports for policies that are not used here, is replaced by an empty module.

Estimators, the bootstrap and the policy of the logs (Bernoulli Thompson sampling with ZOZOTOWN's priors) are the
package's. The model of rewards that direct and doubly robust estimates need is a table: made up for the made-up log,
for the real ones the mean reward of each item at each position of the *other* log, drawn towards the mean of all. The
made-up log is drawn by :func:`made_up` from NumPy's legacy generator, whose numbers never change.
"""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np

ABSENT = ("torch", "torch.nn", "torch.nn.functional", "torch.optim", "torch.utils", "torch.utils.data")
ABSENT += ("pingouin", "pyieoe")
ROWS, ITEMS, POSITIONS, SEED = 4000, 12, 3, 5


def made_up() -> dict[str, np.ndarray]:
    """A log of shown items, and a policy and a model of rewards to judge with: tables [items, positions]."""
    rng = np.random.RandomState(SEED)

    def shares() -> np.ndarray:
        table = rng.random_sample((ITEMS, POSITIONS)) + 0.1
        return table / table.sum(axis=0)

    logging, policy = shares(), shares()
    rates = 0.4 * rng.random_sample((ITEMS, POSITIONS))
    positions = rng.randint(POSITIONS, size=ROWS)
    uniform = rng.random_sample(ROWS)
    edges = np.cumsum(logging, axis=0)
    items = np.array([np.searchsorted(edges[:, positions[row]], uniform[row] * 0.999999) for row in range(ROWS)])
    clicks = (rng.random_sample(ROWS) < rates[items, positions]).astype(float)
    model = np.clip(rates + 0.2 * (rng.random_sample(rates.shape) - 0.5), 0, 1)
    return {
        "items": items,
        "positions": positions,
        "clicks": clicks,
        "propensity": logging[items, positions],
        "policy": policy,
        "model": model,
    }


def means(items: np.ndarray, positions: np.ndarray, clicks: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Mean of each cell, the mean of all counting ten rows more."""
    shown, earned = np.zeros(shape), np.zeros(shape)
    np.add.at(shown, (items, positions), 1)
    np.add.at(earned, (items, positions), clicks)
    return (earned + 10 * clicks.mean()) / (shown + 10)


def estimated(log: dict[str, np.ndarray], policy: np.ndarray, model: np.ndarray) -> dict[str, Any]:
    """The package's estimates, and its bootstrap's 95 % intervals."""
    from obp import ope

    rows = len(log["items"])
    given = {
        "reward": log["clicks"],
        "action": log["items"],
        "position": log["positions"],
        "pscore": log["propensity"],
        "action_dist": np.tile(policy, (rows, 1, 1)),
        "estimated_rewards_by_reg_model": np.tile(model, (rows, 1, 1)),
    }
    out: dict[str, Any] = {}
    for name, estimator in (
        ("ips", ope.InverseProbabilityWeighting()),
        ("snips", ope.SelfNormalizedInverseProbabilityWeighting()),
        ("dm", ope.DirectMethod()),
        ("dr", ope.DoublyRobust()),
    ):
        out[name] = {"value": float(estimator.estimate_policy_value(**given))}
        found = estimator.estimate_interval(**given, alpha=0.05, n_bootstrap_samples=1000, random_state=1)
        out[name]["bootstrap"] = [float(found["95.0% CI (lower)"]), float(found["95.0% CI (upper)"])]
    return out


def real(folder: Path) -> dict[str, Any]:
    """The sample's two logs: the policy of the one judged by the other, and uniform choice."""
    import pandas
    from obp.policy import BernoulliTS

    policy = BernoulliTS(n_actions=80, len_list=3, is_zozotown_prior=True, campaign="all", random_state=12345)
    thompson = policy.compute_batch_action_dist(n_sim=100_000, n_rounds=1)[0]
    logs, models = {}, {}
    for name in ("random", "bts"):
        frame = pandas.read_csv(folder / f"{name}.all.csv.xz", index_col=0).sort_values("timestamp", kind="stable")
        logs[name] = {
            "items": frame["item_id"].to_numpy(),
            "positions": frame["position"].to_numpy() - 1,
            "clicks": frame["click"].to_numpy().astype(float),
            "propensity": frame["propensity_score"].to_numpy(),
        }
        models[name] = means(*(logs[name][part] for part in ("items", "positions", "clicks")), (80, 3))
    other = {"random": "bts", "bts": "random"}
    return {
        "thompson": thompson.round(9).tolist(),
        "logs": {
            name: {
                "clicks": float(log["clicks"].sum()),
                "thompson": estimated(log, thompson.round(9), models[other[name]]),
                "uniform": estimated(log, np.full((80, 3), 1 / 80), models[other[name]]),
            }
            for name, log in logs.items()
        },
    }


class Absent(types.ModuleType):
    """A module of empty classes."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def main(folder: str, out: str) -> None:
    """Write ``obp.json``."""
    for name in ABSENT:
        sys.modules[name] = Absent(name)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, sys.modules[name])
    import obp

    log = made_up()
    said = {
        "obp": obp.__version__,
        "numpy": np.__version__,
        "made_up": estimated(log, log["policy"], log["model"]),
        "open_bandit": real(Path(folder)),
    }
    Path(out, "obp.json").write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
