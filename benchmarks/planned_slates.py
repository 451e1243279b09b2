"""What planned slates bring, beside random, constant and myopic slates and the optimum, on seeds not developed on.

Run it from a clone: ``python -m benchmarks.planned_slates [--only NAME ...] [--again] [--seed 300]``. Each row is a run
of eight seeds, 1100 to 1107; those of 48 seeds, 1100 to 1147, are judged by fewer users a seed, and count the seeds in
which users had been better served at random. Those of platforms that users forgive differently (``--only differ``)
are of 24 seeds, 1200 to 1223, also where all plan by the lender's weight. Rows that stand in
``reproductions/fedslate_2024/planned_slates.json`` are not run again, so that it can be stopped at any time. Other
seeds have a file of their own, ``planned_slates_300.json``.
It then attacks what crosses, as ``fedrank privacy attack slates`` does. Intervals are Student's *t* over seeds, 95 %;
the share of the gap is (ours − random) / (optimum − random), seed by seed, for the same fresh users.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import fedrank
from fedrank.core.frame import Frame
from fedrank.core.lazy import jax, jnp
from fedrank.metrics.returns import mean_interval
from fedrank.slates.learner import LearnedPolicy
from fedrank.slates.planning.learner import PlanLearner
from fedrank.slates.world.optimum import OptimalPolicy, solve
from fedrank.slates.world.policies import BASELINES, play_compiled
from fedrank.slates.world.satisfaction import preset
from fedrank_zoo.slate_attacks.settings import SlateAttack
from fedrank_zoo.slate_attacks.suite import attack_slates

RESULTS = Path(__file__).parent.parent / "reproductions" / "fedslate_2024"
#: First of the eight seeds; none of them was used while the method was made.
SEED, SEEDS, MANY = 1100, 8, 48
#: First and number of the seeds for platforms that differ.
DIFFER_SEED, DIFFER_SEEDS = 1200, 24
#: Rounds of a user.
STAY = 61

_PRIVATE = {"privacy": {"delta": 1e-5}}


def _row(
    preset: str,
    users: int = 200,
    *,
    both: bool = False,
    epsilon: float | None = None,
    bounders: int = 0,
    design: str = "known",
    observed: bool = True,
    caution: float = 0.75,
    differ: bool = True,
    **world: Any,
) -> dict:
    private = {} if epsilon is None else {"epsilon": epsilon}
    return {
        "rounds": (users + bounders) * STAY,
        "world": {"preset": preset, **world},
        "slates": {
            "feedback": "all" if both else "first",
            "explorers": users,
            "design": design,
            "observed": observed,
            "caution": caution,
            "differ": differ,
        },
        "sharing": {"bounders": bounders, **private},
        **_PRIVATE,
    }


_MANY = "tension, B blind, 200 users, 48 seeds"

ROWS = {
    "tension, both with feedback, 200 users": _row("tension", both=True),
    "tension, both with feedback, 200 users, ε = 2": _row("tension", both=True, epsilon=2.0),
    "tension, B blind, 200 users": _row("tension"),
    "tension, B blind, 200 users, ε = 2": _row("tension", epsilon=2.0),
    "tension, B blind, 200 users, ε = 1": _row("tension", epsilon=1.0),
    "tension, B blind, 800 users": _row("tension", 800),
    "tension, B blind, 800 users, ε = 2": _row("tension", 800, epsilon=2.0),
    "tension, B blind, 800 users, ε = 0.5": _row("tension", 800, epsilon=0.5),
    "published, B blind, 200 users": _row("recsim"),
    "published, B blind, own items, 200 users": _row("recsim", shared_candidates=False),
    "published, B blind, 200 users, ε = 2": _row("recsim", epsilon=2.0),
    "published, B blind, 200 users, ε = 0.5": _row("recsim", epsilon=0.5),
    "published, B blind, 100 candidates, 200 users": _row("recsim", candidates=100, slate=10),
    "published, B blind, own items, 100 candidates, 200 users": _row(
        "recsim", candidates=100, slate=10, shared_candidates=False
    ),
    "published, B blind, 500 candidates, 200 users": _row("recsim", candidates=500, slate=10),
    "published, B blind, own items, 500 candidates, 200 users": _row(
        "recsim", candidates=500, slate=10, shared_candidates=False
    ),
    "tension, B blind, 100 candidates, 200 users": _row("tension", candidates=100, slate=10),
    "tension, three platforms, B and C blind, 200 users": _row("tension", platforms=3),
    "tension, three platforms, B and C blind, 800 users": _row("tension", 800, platforms=3),
    "published, three platforms, own items, B and C blind, 200 users": _row(
        "recsim", platforms=3, shared_candidates=False
    ),
    "tension at A, published at B, B blind, 200 users": _row("tension", sensitivities=[0.03, 0.01]),
    "tension, B blind, 160 users and 40 for the clip, ε = 2": _row("tension", 160, epsilon=2.0, bounders=40),
    "tension, B blind, 200 users, the matrix sent": _row("tension", design="sent"),
    "tension, B blind, 200 users, the matrix sent, ε = 2": _row("tension", epsilon=2.0, design="sent"),
    "tension, B blind, 160 users and 40 for the clip, the matrix sent, ε = 2": _row(
        "tension", 160, epsilon=2.0, bounders=40, design="sent"
    ),
    "tension, B blind, 200 users, engagement alone": _row("tension", observed=False),
    "tension, B blind, 200 users, engagement alone, ε = 2": _row("tension", observed=False, epsilon=2.0),
    _MANY: _row("tension"),
    f"{_MANY}, ε = 2": _row("tension", epsilon=2.0),
    f"{_MANY}, engagement alone": _row("tension", observed=False),
    f"{_MANY}, no caution": _row("tension", caution=0.0),
    f"{_MANY}, no caution, ε = 2": _row("tension", epsilon=2.0, caution=0.0),
}

#: Sensitivities of A and of B, which is blind.
_WORLDS = {
    "equal": (0.03, 0.03),
    "B half of A": (0.03, 0.015),
    "B a third of A": (0.03, 0.01),
    "B twice A": (0.03, 0.06),
    "B three times A": (0.03, 0.09),
    "A 0.01, B 0.05": (0.01, 0.05),
}
#: Rows of platforms that differ.
DIFFER = {
    **{
        f"{name}{said}": _row("tension", epsilon=epsilon, sensitivities=list(both))
        for name, both in _WORLDS.items()
        for epsilon, said in ((None, ""), (2.0, ", ε = 2"))
    },
    **{
        f"{name}, by A's model": _row("tension", differ=False, sensitivities=list(both))
        for name, both in _WORLDS.items()
    },
    **{
        f"B half of A, 800 users{said}": _row("tension", 800, epsilon=epsilon, sensitivities=[0.03, 0.015])
        for epsilon, said in ((None, ""), (2.0, ", ε = 2"))
    },
}


def measured(settings: dict[str, Any], seed: int, seeds: int) -> dict[str, Any]:
    """What one row's run brings.

    Args:
        settings: Of the run.
        seed: The first of the seeds.
        seeds: How many.
    """
    episodes = 256 if settings["world"].get("candidates", 10) == 10 else 64
    episodes = 32 if seeds == MANY else episodes
    more = {"seeds": seeds, "seed": seed, "evaluation": {"every": settings["rounds"], "episodes": episodes}}
    begun = time.process_time()
    with tempfile.TemporaryDirectory() as home:
        folder = fedrank.run("planned-slates", folder=Path(home) / "run", **settings, **more).path
        seconds = time.process_time() - begun
        metrics, episodes = (
            Frame.from_parquet((folder / f"{name}.parquet").read_bytes()) for name in ("metrics", "episodes")
        )
        table = metrics.where(split="test", round=settings["rounds"])
        policies = {
            one["name"]: np.array(one["runs"]) for one in json.loads(_text(folder / "baselines.json"))["baselines"]
        }
        online = np.array([rows["engagement"].sum() for _, rows in episodes.groups("seed")])
        against = json.loads(_text(folder / "slates.json"))["results"]["against"]
        ledger = [json.loads(line) for line in _text(folder / "ledger.jsonl").splitlines()]
    names = sorted(set(table["measure"]) - {"engagement"})
    ours = np.stack([table.where(measure=name).sort("seed")["value"] for name in names], axis=1)
    gap = (policies["optimum"] - policies["random"]).sum(axis=1)
    gain = ours - policies["random"]
    share = gain.sum(axis=1) / gap
    exploring = online / (settings["rounds"] / STAY)
    return {
        "share of the gap": _interval(share),
        "share of the gap, first 8 seeds": _interval(share[:SEEDS]),
        "over random": _interval(gain.sum(axis=1)),
        "over random, by seed": [round(float(value), 1) for value in gain.sum(axis=1)],
        **(
            {"over copying, all platforms": {k: round(v, 3) for k, v in against["copying"]["engagement"].items()}}
            if "copying" in against
            else {}
        ),
        "each over random": {name: _interval(gain[:, place]) for place, name in enumerate(names)},
        # Of the last platform where there is but one.
        "B's share of B's gap": _interval(
            gain[:, :2][:, -1] / (policies["optimum"] - policies["random"])[:, :2][:, -1]
        ),
        "ours": _interval(ours.sum(axis=1)),
        "policies": {name: _interval(of.sum(axis=1)) for name, of in policies.items()},
        "explorers over random": _interval(exploring - policies["random"].sum(axis=1)),
        "bytes of a run": sum(line["bytes"] for line in ledger),
        "CPU-seconds, compiling and baselines included": round(seconds, 1),
        "episodes judged": episodes,
    }


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _interval(values: Any) -> dict[str, float]:
    found = mean_interval(values)
    return {"mean": round(found.mean, 3), "low": round(found.low, 3), "high": round(found.high, 3)}


#: Attacks of ``fedrank privacy attack slates``, by what is attacked: the mode, and settings beside the world's and δ.
ATTACKS = {
    "planned slates": ("planned-slates", ()),
    "planned slates, both with feedback": ("planned-slates", ("slates.feedback=all",)),
    "planned slates, the matrix sent": ("planned-slates", ("slates.design=sent",)),
    "planned slates, engagement alone": ("planned-slates", ("slates.observed=false",)),
    "planned slates, the matrix sent, 160 users and 40 for the clip": (
        "planned-slates",
        ("slates.design=sent", "slates.explorers=160", "sharing.bounders=40"),
    ),
    "least squares, five releases": ("planned-slates", ("slates.learner=least-squares", "slates.releases=5")),
}


def by_exact_weights(both: tuple[float, float], known: bool, users: int = 2000) -> dict[str, float]:
    """Share of the gap of plans by the true weights, those of the trace times a factor: how sharp the turn is.

    Args:
        both: Sensitivities of A and of B.
        known: Whether A knows of B's; else it takes its own for both.
        users: Fresh users.
    """
    world = preset("tension", sensitivities=both)
    learner = PlanLearner(world, (True, False))
    keys = jax.random.split(jax.random.key(DIFFER_SEED), users)

    def total(policy):
        return float(np.asarray(play_compiled(world, policy, keys).engagement).sum(axis=1).mean())

    low, high = total(BASELINES.get("random")(world)), total(OptimalPolicy(world, solve(world, seed=DIFFER_SEED)))
    own = jax.vmap(lambda number: learner.first_state(None, number))(jnp.arange(2))
    lists = jax.random.uniform(jax.random.key(DIFFER_SEED), own.learnt.lists.shape)
    own = own._replace(learnt=own.learnt._replace(lists=lists))
    improved = jax.jit(jax.vmap(learner.improve))
    out = {}
    for factor in (0.7, 0.85, 1.0, 1.1, 1.2, 1.35):
        # At c = ½ and no exposure the log-engagement is 4.5 σ, and 0.9 of a click is left at the next own tick.
        a, b = (factor * 4.5 / 4 * 2 * 0.9 * tau for tau in both)
        shared = [4.5 / 2 - np.log(learner.scale), 0.25]
        models = jnp.asarray([[*shared, a, b if known else a], [*shared, a, b]], jnp.float32)
        mine = own._replace(model=models)
        served = LearnedPolicy(learner, models[0], mine._replace(learnt=improved(mine)))
        out[str(factor)] = round((total(served) - low) / (high - low), 3)
    return out


def attacked(name: str, seed: int) -> dict[str, Any]:
    """What attackers find, by ``fedrank privacy attack slates``, without noise and with an ε of 8 and of 2.

    Args:
        name: One of :data:`ATTACKS`.
        seed: The first of the seeds.
    """
    mode, more = ATTACKS[name]
    given = ("world.preset=tension", "privacy.delta=1e-5", *more)
    settings = SlateAttack((mode,), seeds=SEEDS, seed=seed, set=given)
    command = f"fedrank privacy attack slates --modes {mode} --seeds {SEEDS} --seed {seed} --set {' '.join(given)}"
    found: dict[str, Any] = {"command": command, "users attacked, each seed": settings.targets}
    for one in attack_slates(settings):
        of = found.setdefault(one.mode.split(", ")[1], {})
        measures = {name: [round(end, 4) for end in interval] for name, interval in one.measures.items()}
        of[f"{one.attacker}, {one.secret}, by {one.means}"] = measures
    return found


def main() -> None:
    """Measure the rows that are missing, and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="*", choices=[*ROWS, "differ", "turn", "attack"], help="rows to measure; by default all"
    )
    parser.add_argument("--again", action="store_true", help="measure rows again that stand in the file")
    parser.add_argument("--seed", type=int, default=SEED, help="the first of the seeds")
    parser.add_argument("--show", action="store_true", help="print the table of what has been measured, and end")
    given = parser.parse_args()
    file = RESULTS / ("planned_slates.json" if given.seed == SEED else f"planned_slates_{given.seed}.json")
    found: dict[str, Any] = json.loads(_text(file)) if file.exists() else {"rows": {}}
    if given.show:
        print(table({name: found["rows"][name] for name in ROWS if name in found["rows"]}))
        print(table(found.get("platforms that differ", {}).get("rows", {})))
        return
    found["seeds"] = list(range(given.seed, given.seed + SEEDS))
    for name, settings in ROWS.items():
        if (given.only and name not in given.only) or (name in found["rows"] and not given.again):
            continue
        found["rows"][name] = measured(settings, given.seed, MANY if name.startswith(_MANY) else SEEDS)
        _write(file, found)
        share, over = found["rows"][name]["share of the gap"], found["rows"][name]["over random"]
        print(
            f"{name}: {share['mean']:.0%} [{share['low']:.0%}, {share['high']:.0%}] of the gap, {over['mean']:+.1f}",
            flush=True,
        )
    if given.seed == SEED and (not given.only or "differ" in given.only):
        seeds = list(range(DIFFER_SEED, DIFFER_SEED + DIFFER_SEEDS))
        rows = found.setdefault("platforms that differ", {"seeds": seeds, "rows": {}})["rows"]
        for name, settings in DIFFER.items():
            if name in rows and not given.again:
                continue
            rows[name] = measured(settings, DIFFER_SEED, DIFFER_SEEDS)
            _write(file, found)
            share, worst = rows[name]["share of the gap"], min(rows[name]["over random, by seed"])
            print(f"{name}: {share['mean']:.0%} [{share['low']:.0%}, {share['high']:.0%}], worst {worst:+}", flush=True)
    if not given.only or "turn" in given.only:
        turn = found["by exact weights, times a factor"] = {}
        for name in ("equal", "B half of A", "B a third of A", "A 0.01, B 0.05"):
            for known, said in ((True, ""), (False, ", A takes its own weight for B's")):
                turn[name + said] = by_exact_weights(_WORLDS[name], known)
                _write(file, found)
                print(name + said, turn[name + said], flush=True)
    if not given.only or "attack" in given.only:
        found.setdefault("attacks", {})["intervals"] = "mean, lower and upper end over seeds, Student's t, 95 %"
        for name in ATTACKS:
            if name in found["attacks"] and not given.again:
                continue
            found["attacks"][name] = attacked(name, given.seed)
            _write(file, found)
            print(f"attacked: {name}")


def table(rows: dict[str, Any]) -> str:
    """The rows as a table in Markdown."""
    head = (
        "",
        "share of the gap",
        "over random",
        "worst seed",
        "B's share of B's gap",
        "over copying",
        "random, choc = myopic, kale, optimum",
    )
    out = [" | ".join(("", *head, "")).strip(), "|" + "---|" * len(head)]
    for name, row in rows.items():
        share, over, of_b = row["share of the gap"], row["over random"], row["B's share of B's gap"]
        each, means = row["over random, by seed"], {k: v["mean"] for k, v in row["policies"].items()}
        below = sum(value < 0 for value in each)
        copying = row.get("over copying, all platforms")
        cells = (
            name,
            _percent(share),
            f"{over['mean']:+.0f} [{over['low']:+.0f}, {over['high']:+.0f}]",
            f"{min(each):+.0f}" + (f" ({below} of {len(each)} below 0)" if below else ""),
            _percent(of_b),
            "" if copying is None else f"{copying['value']:+.1f} [{copying['low']:+.1f}, {copying['high']:+.1f}]",
            ", ".join(f"{means[k]:,.0f}" for k in ("random", "choc", "kale", "optimum")),
        )
        out.append(f"| {' | '.join(cells)} |")
    return "\n".join(out)


def _percent(found: dict[str, float]) -> str:
    mean, low, high = (round(100 * found[name]) for name in ("mean", "low", "high"))
    return f"{mean} % [{low}, {high}]"


def _write(file: Path, found: dict[str, Any]) -> None:
    file.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
