"""Who helped whom, with evidence: what ``evidence.json`` of a run of silos says.

A silo's *paired difference* in a round is what it changed, all else equal: see
:func:`fedrank.bandits.evidence.differences`. Means come with an interval over seeds. The sequential test bets on signs,
run by run; the runs of several seeds share the silos' rows, so their e-values are averaged, which is valid whatever
they share. A verdict asks for an e-value above 20 times the number of statements that are made about a target: each of
its k − 1 silos may help or harm.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from fedrank.bandits.contributions import intervals, shapley
from fedrank.bandits.evidence import combine, differences, inverted
from fedrank.bandits.evidence import evidence as sequential
from fedrank.experiments.silo_build import SiloExperiment
from fedrank.experiments.silo_marks import SiloMark
from fedrank.protocols.bandit_fedavg import BanditFedAvg

#: Largest probability of a wrong verdict about any silo of a target.
LEVEL = 0.05


def evidence(experiment: SiloExperiment, arms: pl.DataFrame, probe: np.ndarray | None) -> dict[str, Any]:
    """Each target's silos: paired differences, verdicts, contributions, how often they were played.

    Args:
        experiment: The run.
        arms: ``arms.parquet``.
        probe: float [runs, silos], AUC of every silo's first model on its target's validation rows; NaN where nobody
            asked.

    Returns:
        Target -> what the file says.
    """
    out: dict[str, Any] = {}
    seeds = len(experiment.config.all_seeds)
    for place, target in enumerate(experiment.targets):
        name = experiment.names[target]
        mine = arms.filter(pl.col("target") == name)
        rounds = [_rounds(mine.filter(pl.col("seed") == seed), experiment) for seed in experiment.config.all_seeds]
        helpers = [silo for silo in range(experiment.n_parties) if silo != target]
        shares = _shapley(experiment, rounds)
        first = None if probe is None else probe[place * seeds : (place + 1) * seeds]
        silos = {}
        for i, silo in enumerate(helpers):
            about = _paired(rounds, silo, len(helpers))
            about["inverted"] = None if first is None else _inverted(experiment, first[:, silo], target, len(helpers))
            about["shapley"] = None if shares is None else _interval(shares[:, i])
            silos[experiment.names[silo]] = about
        played = mine.filter(pl.col("played")).group_by("code").len().sort("code")
        total = max(1, played["len"].sum())
        out[name] = {
            "silos": silos,
            "played": {code: n / total for code, n in played.iter_rows()},
            "level": LEVEL,
            "statements": 2 * len(helpers),
        }
    return out


def against(experiment: SiloExperiment, final: dict[str, np.ndarray], known: list[SiloMark]) -> dict[str, Any]:
    """Differences on the test rows to every mark, paired by seed.

    Args:
        experiment: The run.
        final: ``"test: last"`` and so on -> float [runs, of each].
        known: The marks.

    Returns:
        Target -> mark -> model -> mean, interval and number of seeds; in AUC, or in what models are judged by.
    """
    out: dict[str, Any] = {}
    for place, target in enumerate(experiment.targets):
        for mark in known:
            for key, values in final.items():
                part, model = key.split(": ")
                theirs = mark.values.get(key, mark.values[f"{part}: last"])
                if part == "test":
                    mine = _by_target(experiment, values)[place]
                    about = _interval(mine - theirs[place])
                    out.setdefault(experiment.names[target], {}).setdefault(mark.name, {})[model] = about
    return out


def _by_target(experiment: SiloExperiment, values: np.ndarray) -> np.ndarray:
    """[runs, of each] -> [targets, seeds]."""
    if not experiment.personalises_one:
        return np.asarray(values).T
    return np.asarray(values).reshape(len(experiment.targets), -1)


def _rounds(mine: pl.DataFrame, experiment: SiloExperiment) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One run: increments [rounds, arms], which were observed, and members [arms, silos]."""
    if mine.is_empty():
        return np.zeros((0, 1)), np.zeros((0, 1), bool), np.zeros((1, experiment.n_parties), bool)
    mine = mine.sort("round", "arm")
    n_arms = mine["arm"].max() + 1  # type: ignore[operator] - whole numbers
    increments = np.array(mine["increment"].cast(pl.Float64).to_numpy()).reshape(-1, n_arms)
    # Arms that are told by clusters are others before they are known; the last ones hold.
    members = np.array([[c == "1" for c in code] for code in mine["code"].to_list()[-n_arms:]])
    observed = np.isfinite(increments)
    protocol = experiment.protocol
    if isinstance(protocol, BanditFedAvg) and protocol.has_alone and protocol.against == "own":
        # The target alone is what increments are measured from: 0 in every round in which there is one.
        any_ = observed.any(axis=1)
        increments[any_, 0], observed[any_, 0] = 0.0, True
    kept = np.unique(members, axis=0, return_index=True)[1]  # an arm that is another once more says nothing new
    return increments[:, kept], observed[:, kept], members[kept]


def _paired(rounds: list[tuple[np.ndarray, np.ndarray, np.ndarray]], silo: int, helpers: int) -> dict[str, Any]:
    level = LEVEL / (2 * helpers)
    series = [differences(increments, observed, members, silo) for increments, observed, members in rounds]
    tests = [sequential(one, level, by="sign") for one in series]
    harm = _together([test.harm for test in tests])
    help_ = _together([test.help for test in tests])
    harmed = np.flatnonzero(harm >= 1 / level)
    helped = np.flatnonzero(help_ >= 1 / level)
    verdict = "no evidence"
    if harmed.size or helped.size:
        verdict = "harms" if (harm[-1:] >= help_[-1:]).all() else "helps"
    seen = [one[np.isfinite(one)] for one in series]
    means = np.array([one.mean() if one.size else np.nan for one in seen])
    return {
        "n": int(sum(one.size for one in seen)),
        **_interval(means),
        "e_harm": float(harm[-1]) if harm.size else 1.0,
        "e_help": float(help_[-1]) if help_.size else 1.0,
        "verdict": verdict,
        "harm_round": int(harmed[0]) if harmed.size else None,
        "help_round": int(helped[0]) if helped.size else None,
    }


def _together(e_values: list[np.ndarray]) -> np.ndarray:
    """E-values of the runs of several seeds, round by round: they share rows, so they are averaged."""
    rounds = max((len(one) for one in e_values), default=0)
    padded = [np.concatenate([one, np.full(rounds - len(one), one[-1] if len(one) else 1.0)]) for one in e_values]
    return np.array([combine(np.array(row), independent=False) for row in zip(*padded, strict=True)])


def _interval(values: np.ndarray) -> dict[str, Any]:
    """Mean over seeds and its 95 % t-interval; none of one seed."""
    some = np.asarray(values, float)
    if not np.isfinite(some).any():
        return {"mean": None, "low": None, "high": None, "seeds": 0}
    got = intervals(some[:, None])
    low, high = float(got.lower[0]), float(got.upper[0])
    finite = np.isfinite(low) and np.isfinite(high)
    return {
        "mean": float(got.mean[0]),
        "low": low if finite else None,
        "high": high if finite else None,
        "seeds": int(got.n[0]),
    }


def _shapley(experiment: SiloExperiment, rounds: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> np.ndarray | None:
    """Each seed's mean Shapley values over the rounds in which every combination was judged: [seeds, k − 1]."""
    protocol = experiment.protocol
    if not isinstance(protocol, BanditFedAvg) or protocol.arms != "all":
        return None
    out = np.full((len(rounds), experiment.n_parties - 1), np.nan)
    for i, (increments, observed, members) in enumerate(rounds):
        whole = observed.all(axis=1)
        if whole.any():
            # Binary order: bit j of an arm's number is its j-th helper.
            bits = members[:, [s for s in range(experiment.n_parties) if not members[:, s].all()]]
            order = np.argsort(bits @ (1 << np.arange(bits.shape[1])))
            out[i] = np.mean([np.asarray(shapley(row[order])) for row in increments[whole]], axis=0)
    return out if np.isfinite(out).any() else None


def _inverted(experiment: SiloExperiment, aucs: np.ndarray, target: int, helpers: int) -> dict[str, Any] | None:
    """Whether a silo's labels look turned round, by what its first model is worth to the target.

    One test a seed. Twice the mean of their p-values is a p-value, whatever the seeds share (Vovk and Wang 2020).
    """
    tests = []
    for seed in np.flatnonzero(np.isfinite(aucs)):
        n = int(np.asarray(experiment.arrays.vali.n)[seed, target])
        positives = int(np.asarray(experiment.arrays.vali.y)[seed, target, :n].sum())
        tests.append(inverted(float(aucs[seed]), positives, n - positives).p)
    if not tests:
        return None
    p = tests[0] if len(tests) == 1 else min(1.0, 2 * float(np.mean(tests)))
    looks = p < LEVEL / helpers
    verdict = "labels look inverted" if looks else "no evidence"
    return {"auc": float(np.nanmean(aucs)), "p": p, "verdict": verdict}
