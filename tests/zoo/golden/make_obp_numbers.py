"""Off-policy estimates of the Open Bandit Pipeline, to compare with.

    python tests/zoo/golden/make_obp_numbers.py LOGS tests/zoo/golden   # writes obp.json

LOGS is the folder of the Open Bandit Dataset's small sample (random.all.csv.xz, bts.all.csv.xz). The package's last
release asks for Python below 3.11 and old versions; what is used of it runs on later ones::

    pip install --no-deps --ignore-requires-python obp==0.5.7
    pip install numpy pandas scikit-learn pyyaml scipy tqdm matplotlib seaborn

``torch``, which it imports for policies that are not used here, is replaced by an empty module.

Estimators, the bootstrap and the policy of the logs (Bernoulli Thompson sampling with ZOZOTOWN's priors) are the
package's. The model of rewards that direct and doubly robust estimates need is a table: made up for the made-up log,
for the real ones the mean reward of each item at each position of the *other* log, drawn towards the mean of all. The
made-up logs are drawn by :func:`made_up` and :func:`made_up_slates` from NumPy's legacy generator, whose numbers never
change.
"""

from __future__ import annotations

import itertools
import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np

ABSENT = ("torch", "torch.nn", "torch.nn.functional", "torch.optim", "torch.utils", "torch.utils.data")
ABSENT += ("pingouin", "pyieoe")
ROWS, ITEMS, POSITIONS, SEED = 4000, 12, 3, 5
SLATES, CHOICES = 1500, 6


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


def made_up_slates() -> dict[str, np.ndarray]:
    """Slates of different items with clicks [slates, positions], the chances that they were drawn by, and a policy."""
    rng = np.random.RandomState(SEED)
    logging, policy, rates, model = rng.random_sample((4, CHOICES, POSITIONS)) + 0.1
    logging, policy = logging / logging.sum(axis=0), policy / policy.sum(axis=0)
    items = np.zeros((SLATES, POSITIONS), int)
    for slate, position in itertools.product(range(SLATES), range(POSITIONS)):
        edges = np.cumsum(after(logging, items[slate, :position]))
        items[slate, position] = np.searchsorted(edges, rng.random_sample() * edges[-1] * 0.999999)
    clicks = (rng.random_sample(items.shape) < 0.4 * rates[items, np.arange(POSITIONS)]).astype(float)
    clicks[:, 1:] *= (clicks[:, :-1] == 0) | (rng.random_sample(clicks[:, 1:].shape) < 0.2)
    return {"items": items, "clicks": clicks, "logging": logging, "policy": policy, "model": 0.3 * model}


def after(table: np.ndarray, above: np.ndarray) -> np.ndarray:
    """Chances at the position below some items."""
    chances = table[:, len(above)].copy()
    chances[above] = 0
    return chances / chances.sum()


def chances_of(table: np.ndarray) -> tuple[dict[tuple[int, ...], float], np.ndarray]:
    """Chances of every beginning of a slate, and of every item at each position, by going through all slates."""
    beginnings, marginal = {(): 1.0}, np.zeros((CHOICES, POSITIONS))
    for length in range(1, POSITIONS + 1):
        for slate in itertools.permutations(range(CHOICES), length):
            chance = beginnings[slate[:-1]] * after(table, np.array(slate[:-1], int))[slate[-1]]
            beginnings[slate] = chance
            marginal[slate[-1], length - 1] += chance
    return beginnings, marginal


def estimated_slates() -> dict[str, Any]:
    """The package's estimates of whole slates of the made-up log, a slate, and its bootstrap's 95 % intervals."""
    from obp import ope

    made = made_up_slates()
    items, model, policy = made["items"], made["model"], made["policy"]
    given: dict[str, Any] = {
        "slate_id": np.repeat(np.arange(SLATES), POSITIONS),
        "action": items.ravel(),
        "reward": made["clicks"].ravel(),
        "position": np.tile(np.arange(POSITIONS), SLATES),
    }
    for before, table in (("", made["logging"]), ("evaluation_policy_", policy)):
        beginnings, marginal = chances_of(table)
        cascade = [beginnings[tuple(slate[: place + 1])] for slate in items.tolist() for place in range(POSITIONS)]
        given[f"{before}pscore_cascade"] = np.array(cascade)
        given[f"{before}pscore"] = np.repeat(np.array(cascade)[POSITIONS - 1 :: POSITIONS], POSITIONS)
        given[f"{before}pscore_item_position"] = marginal[items, np.arange(POSITIONS)].ravel()
    worth = (chances_of(policy)[1] * model).sum(axis=0)
    ahead = np.cumsum(worth[::-1])[::-1] - worth  # what the model expects of the places below
    given["q_hat"] = np.tile((model + ahead).T, (SLATES, 1, 1)).ravel()
    given["evaluation_policy_action_dist"] = np.concatenate(
        [after(policy, slate[:place]) for slate in items for place in range(POSITIONS)]
    )
    out: dict[str, Any] = {}
    for name, estimator in (
        ("ips", ope.SlateIndependentIPS(len_list=POSITIONS)),
        ("rips", ope.SlateRewardInteractionIPS(len_list=POSITIONS)),
        ("sips", ope.SlateStandardIPS(len_list=POSITIONS)),
        ("cdr", ope.SlateCascadeDoublyRobust(len_list=POSITIONS, n_unique_action=CHOICES)),
    ):
        found = estimator.estimate_interval(**given, alpha=0.05, n_bootstrap_samples=1000, random_state=1)
        ends = [float(found[f"95.0% CI ({end})"]) for end in ("lower", "upper")]
        out[name] = {"value": float(estimator.estimate_policy_value(**given)), "bootstrap": ends}
    return out


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
        "slates": estimated_slates(),
        "open_bandit": real(Path(folder)),
    }
    Path(out, "obp.json").write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
