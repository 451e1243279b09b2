"""Evidence on which silos helped which: ``evidence.json`` of a run of silos.

A silo's *paired difference* in a round is what it changed, all else equal (:func:`differences`). Rounds of training
differ more than silos do; in an Extreme-Explore round all arms start from one model, so that the difference between an
arm with a silo and the same arm without it cancels what the round did to both.

**Contributions.** An Extreme-Explore round over all combinations gives the value v(S) of every set S of helpers. From
these 2^(k−1) values follows a share for every helper: its marginal v(S + j) − v(S), averaged over all orders in which
helpers may join (Shapley 1953). The shares add up to v(all) − v(∅).

**What counts as one observation.** Within one run the rows to validate on and the first weights are the same in all
rounds, so that a difference may have the same sign in every round for reasons that have nothing to do with the silo. Of
several seeds, which divide the rows anew, one number is taken of each: the mean over its rounds. They are tested
against 0 with Student's t. Fewer than three seeds give no verdict. Seeds are other divisions of the same rows: what is
found speaks about the rows that the silos have, not about people whom they may have one day.

**Rules that choose.** An arm is played less after bad luck, and not again; the mean of what was seen of it is too low
for a reason that is not the silo's. Where not all arms are judged in every round, only rounds count in which they were
(Extreme-Explore rounds); of a rule that has none, the first observation of each arm.

**Several silos.** p-values are multiplied by the number of silos that are asked about (Bonferroni): a verdict about any
of them is wrong with a probability of at most 5 %.
"""

from __future__ import annotations

import functools
import math
from collections import Counter

import numpy as np
from jaxtyping import Bool, Float
from threadpoolctl import threadpool_limits

from fedrank.core.frame import Frame
from fedrank.core.trees import Json
from fedrank.metrics.returns import LEAST_SEEDS
from fedrank.silos.baselines import SiloBaseline
from fedrank.silos.build import SiloExperiment
from fedrank.silos.data.splits import Rows
from fedrank.silos.sceptic.auc import auc
from fedrank.silos.sceptic.learners import Own, fit_trees, log_loss
from fedrank.silos.sceptic.probes import POWER
from fedrank.silos.sceptic.ways import WAYS, Others, choose, ways_here

#: Largest probability of a wrong verdict about any silo of a target.
LEVEL = 0.05

#: Decimals of a difference.
_DIGITS = 6

#: One run: increments [rounds, arms], which of them were observed, and members [arms, silos].
Rounds = tuple[Float[np.ndarray, "rounds arms"], Bool[np.ndarray, "rounds arms"], Bool[np.ndarray, "arms silos"]]


def evidence(experiment: SiloExperiment, arms: Frame, probe: Float[np.ndarray, "runs silos"] | None) -> dict[str, Json]:
    """Paired differences, verdicts, contributions and shares of rounds, of each target and each other silo.

    Args:
        experiment: The run.
        arms: ``arms.parquet``.
        probe: AUC of every silo's first model on its target's validation rows; NaN where none was asked for.

    Returns:
        The content of the file, by target.
    """
    out: dict[str, Json] = {}
    seeds = len(experiment.config.all_seeds)
    # Clusters are tried as a whole: what is known of a silo is what its cluster did.
    together = experiment.protocol.bandit.arms == "clusters"
    for place, target in enumerate(experiment.targets):
        name = experiment.names[target]
        mine = arms.where(target=name)
        rounds = [_rounds(mine.where(seed=seed), experiment) for seed in experiment.config.all_seeds]
        helpers = [silo for silo in range(experiment.n_parties) if silo != target]
        shares = _shapley(experiment, rounds)
        first = None if probe is None else probe[place * seeds : (place + 1) * seeds]
        silos = {}
        for i, silo in enumerate(helpers):
            about = _pair_rounds(rounds, silo, len(helpers), together)
            about["together"] = together
            about["inverted"] = None if first is None else _inversion(experiment, first[:, silo], target, len(helpers))
            about["shapley"] = None if shares is None else _interval(shares[:, i])
            silos[experiment.names[silo]] = about
        played = Counter(mine.where(played=True)["code"].tolist())
        total = max(1, played.total())
        out[name] = {
            "silos": silos,
            "played": {code: n / total for code, n in sorted(played.items())},
            "level": LEVEL,
        }
    return out


def against(experiment: SiloExperiment, final: dict[str, np.ndarray], known: list[SiloBaseline]) -> dict[str, Json]:
    """Differences on the test rows to every baseline, paired by seed.

    Args:
        experiment: The run.
        final: Performances [runs, targets] by name, such as ``"test: last"``.
        known: The baselines.

    Returns:
        Target -> baseline -> model -> mean, interval and number of seeds; in AUC, or in what models are judged by.
    """
    out: dict[str, Json] = {}
    for place, target in enumerate(experiment.targets):
        for baseline in known:
            for key, values in final.items():
                part, model = key.split(": ")
                theirs = baseline.values.get(key, baseline.values[f"{part}: {'best' if model == 'refit' else 'last'}"])
                if part == "test":
                    mine = _by_target(experiment, values)[place]
                    about = _interval(mine - theirs[place])
                    out.setdefault(experiment.names[target], {}).setdefault(baseline.name, {})[model] = about
    return out


def with_differences(
    experiment: SiloExperiment, final: dict[str, np.ndarray], tried: dict[str, Json]
) -> dict[str, Json]:
    """Simple baselines, with the run's difference to each, paired by seed.

    Args:
        experiment: The run.
        final: Performances [runs, targets] by name, such as ``"test: last"``.
        tried: As :func:`~fedrank.silos.evidence.sceptics_rows` made it.

    Returns:
        Target -> ``rows``, ``recommended``, ``best`` (the best way of a sceptic, by its mean) and ``ways``: way ->
        title, kind, mean, and ``difference`` (mean, interval): of the run's model minus it.
    """
    key = next(key for key in ("test: refit", "test: best", "test: last") if key in final)
    sign = -1.0 if experiment.protocol.measure == "log-loss" else 1.0
    mine = _by_target(experiment, final[key])
    out: dict[str, Json] = {}
    for place, target in enumerate(experiment.targets):
        if (about := tried.get(experiment.names[target])) is None:
            continue
        ways: dict[str, Json] = {}
        for way, values in about["ways"].items():
            found = np.array([np.nan if value is None else value for value in values])
            if np.isfinite(found).any():
                ways[way] = {
                    "title": title(way),
                    "kind": WAYS[way].kind if way in WAYS else "method",
                    "mean": sign * float(np.nanmean(found)),
                    "difference": _interval(mine[place] - found),
                }
        tried_first = [way for way in ways if ways[way]["kind"] == "baseline"]
        best = max(tried_first, key=lambda way: sign * ways[way]["mean"], default=None)
        about = {"rows": about["rows"], "recommended": about["recommended"], "best": best, "ways": ways}
        out[experiment.names[target]] = about
    return out


def _by_target(
    experiment: SiloExperiment, values: Float[np.ndarray, "runs targets_of_run"]
) -> Float[np.ndarray, "targets seeds"]:
    """Values of runs, rearranged by target and seed."""
    if not experiment.personalises_one:
        return np.asarray(values).T
    return np.asarray(values).reshape(len(experiment.targets), -1)


def _rounds(mine: Frame, experiment: SiloExperiment) -> Rounds:
    """The rounds of one run, from its rows of ``arms.parquet``."""
    if not len(mine):
        return np.zeros((0, 1)), np.zeros((0, 1), bool), np.zeros((1, experiment.n_parties), bool)
    mine = mine.sort("round", "arm")
    n_arms = len(mine.unique("arm"))
    increments = mine["increment"].reshape(-1, n_arms)
    # Arms that are told by clusters are others before they are known; the last ones hold.
    members = np.array([[c == "1" for c in code] for code in mine["code"].tolist()[-n_arms:]])
    observed = np.isfinite(increments)
    explored = mine["explored"].reshape(-1, n_arms)
    increments, observed = experiment.protocol.pair_increments(increments, observed, explored)
    kept = np.unique(members, axis=0, return_index=True)[1]  # an arm that is another once more says nothing new
    return increments[:, kept], observed[:, kept], members[kept]


def _differences(
    increments: Float[np.ndarray, "rounds arms"],
    observed: Bool[np.ndarray, "rounds arms"],
    members: Bool[np.ndarray, "arms silos"],
    silo: int,
    together: bool,
) -> Float[np.ndarray, " rounds"]:
    """A silo's paired differences; ``together`` those of the whole set that it is in, against the target alone."""
    if not together:
        return differences(increments, observed, members, silo)
    there = np.where(observed & members[None, :, silo], increments, np.nan)
    some = np.isfinite(there).any(axis=1)
    return np.where(some, np.nansum(there, axis=1) / np.maximum(np.isfinite(there).sum(axis=1), 1), np.nan)


def _pair_rounds(rounds: list[Rounds], silo: int, helpers: int, together: bool) -> dict[str, Json]:
    """Evidence of the rounds of all seeds about one silo, as it stands in the file."""
    # Differences that are 0 but for the last bit of single precision have no sign.
    series = [np.round(_differences(*run, silo, together), _DIGITS) for run in rounds]
    seen = [one[np.isfinite(one)] for one in series]
    means = np.array([one.mean() if one.size else np.nan for one in seen])
    p = min(1.0, _student(means[np.isfinite(means)]) * helpers)  # one number a seed
    below = np.isfinite(means).any() and np.nanmean(means) < 0
    return {
        "n": int(sum(one.size for one in seen)),
        **_interval(means),
        "unit": "seeds" if len(rounds) >= LEAST_SEEDS else "rounds",
        "p": p,
        "visible_harm": _visible(means[np.isfinite(means)], helpers),
        "verdict": "no evidence" if p >= LEVEL else "harms" if below else "helps",
    }


def _visible(values: Float[np.ndarray, " values"], tests: int) -> float | None:
    """Size of a harm that Student's t test, one of ``tests``, finds with a probability of about :data:`POWER`.

    Of n values with a standard error s: s (t of the corrected level + t of the power), with n − 1 degrees of freedom
    (Zar, *Biostatistical Analysis*, 5th edition, Section 7.7); None where there is no spread.
    """
    from scipy.special import stdtrit  # scipy.stats, which has the same, takes half a second to import

    if len(values) < LEAST_SEEDS or not (error := float(values.std(ddof=1)) / len(values) ** 0.5):
        return None
    degrees = len(values) - 1
    return error * float(stdtrit(degrees, 1 - LEVEL / 2 / tests) + stdtrit(degrees, POWER))


def _student(values: Float[np.ndarray, " values"]) -> float:
    """Two-sided p-value of Student's t test that the mean is 0; 1 where there are too few values for an interval."""
    if len(values) < LEAST_SEEDS or np.all(values == 0):
        return 1.0
    from scipy.special import stdtr

    error = float(values.std(ddof=1)) / len(values) ** 0.5
    if error == 0:  # equal values that are not 0
        return 0.0
    p = 2 * float(stdtr(len(values) - 1, -abs(float(values.mean()) / error)))
    return p if np.isfinite(p) else 1.0


def _interval(values: Float[np.ndarray, " seeds"]) -> dict[str, Json]:
    """Mean over seeds and its 95 % t-interval; no interval of fewer than three."""
    some = np.asarray(values, float)
    some = some[np.isfinite(some)]
    ends = interval(some) if len(some) else (np.nan,) * 3
    told = {name: end if np.isfinite(end) else None for name, end in zip(("mean", "low", "high"), ends, strict=True)}
    return {**told, "seeds": len(some)}


def _shapley(experiment: SiloExperiment, rounds: list[Rounds]) -> Float[np.ndarray, "seeds helpers"] | None:
    """Each seed's mean Shapley values over the rounds in which every combination was judged; None if there is none."""
    if experiment.protocol.bandit.arms != "all":
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


def _inversion(
    experiment: SiloExperiment, aucs: Float[np.ndarray, " seeds"], target: int, helpers: int
) -> dict[str, Json] | None:
    """Test of a silo's labels for inversion, by the AUC of its first model on the target's rows.

    With one number a seed, Student's t test that their mean is ½ or more; with fewer than three seeds, Mann and
    Whitney's of the rows of the first.
    """
    seen = np.flatnonzero(np.isfinite(aucs))
    if not len(seen):
        return None
    if len(seen) < LEAST_SEEDS:
        n = int(np.asarray(experiment.arrays.vali.n)[seen[0], target])
        positives = int(np.asarray(experiment.arrays.vali.y)[seen[0], target, :n].sum())
        p = inversion_p(float(aucs[seen[0]]), positives, n - positives)
    else:
        two_sided = _student(aucs[seen] - 0.5)
        p = two_sided / 2 if np.mean(aucs[seen]) < 0.5 else 1 - two_sided / 2
    p = min(1.0, p * helpers)
    verdict = "labels look inverted" if p < LEVEL else "no sign of inverted labels"
    return {"auc": float(np.nanmean(aucs)), "p": p, "verdict": verdict}


#: Ways that choose by cross-validation; trees are fitted once.
_CHOSEN = ("alone", "as-they-are", "averaged", "fedavg", "federated", "shrunk")
#: Most silos for which it is done: with hundreds it would take longer than the run.
MOST_SILOS = 16
#: Fewest training rows of the rarer label, and fewest of both from which trees are tried: of fewer they are the best
#: simple way at no target of the benchmark of answers, and scikit-learn takes seconds to load.
_FEWEST, _ENOUGH_FOR_TREES = 2, 400


def sceptics_rows(experiment: SiloExperiment) -> dict[str, Json]:
    """Test performance of every way, by target and seed; larger is better.

    Args:
        experiment: The run.

    Returns:
        Target -> ``rows`` (that train, mean over seeds), ``ways`` (way -> value of each seed, None where there is
        none) and ``recommended`` (of each seed). Targets with too few rows of one label are left out; empty with
        more than :data:`MOST_SILOS` silos, and of pooled rows.
    """
    if not 2 <= experiment.n_parties <= MOST_SILOS:
        return {}
    parts = (experiment.arrays.train, experiment.arrays.vali)
    rows = {target: int(sum(np.asarray(part.n)[0, target] for part in parts)) for target in experiment.targets}
    trees = {target for target, count in rows.items() if count >= _ENOUGH_FOR_TREES}
    if trees and "trees" not in ways_here():
        trees = set()
    with threadpool_limits(1):
        made = {experiment.names[target]: _of(experiment, target, target in trees) for target in experiment.targets}
    return {name: about for name, about in made.items() if about}


def _of(experiment: SiloExperiment, target: int, trees: bool) -> dict[str, Json]:
    ways = (*_CHOSEN, "trees") if trees else _CHOSEN
    values: dict[str, list[float | None]] = {way: [] for way in (*ways, "recommended")}
    recommended: list[str] = []
    rows = []
    for division, seed in enumerate(experiment.config.all_seeds):
        rng = np.random.Generator(np.random.PCG64([seed, target]))
        parts = [_own(part, division, target) for part in (experiment.arrays.train, experiment.arrays.vali)]
        mine = Own(np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts]))
        test = _own(experiment.arrays.test, division, target)
        if mine.rarer < _FEWEST:
            return {}
        others = [k for k in range(experiment.n_parties) if k != target]
        rest = {k: _own(experiment.arrays.train, division, k) for k in others}
        chosen = choose(mine, Others.of(rest, seed), rng, _CHOSEN)
        models = {**chosen.models, **({"trees": fit_trees(mine)} if trees else {})}
        for way in ways:
            values[way].append(_measure(experiment, models[way](test.x), test.y) if way in models else None)
        values["recommended"].append(values[chosen.best][-1])
        recommended.append(chosen.best)
        rows.append(mine.rows)
    return {"rows": float(np.mean(rows)), "ways": values, "recommended": recommended}


def _own(rows: Rows, division: int, silo: int) -> Own:
    n = int(np.asarray(rows.n)[division, silo])
    return Own(
        np.asarray(rows.x)[division, silo, :n].astype(float), np.asarray(rows.y)[division, silo, :n].astype(float)
    )


def _measure(experiment: SiloExperiment, scores: np.ndarray, y: np.ndarray) -> float | None:
    value = auc(scores, y).value if experiment.protocol.measure == "auc" else -log_loss(scores, y)
    return float(value) if np.isfinite(value) else None


def title(way: str) -> str:
    """Title of a way in tables."""
    return "recommended" if way == "recommended" else WAYS[way].title


# What follows from rounds.


def shapley(values: Float[np.ndarray, "*games sets"]) -> Float[np.ndarray, "*games helpers"]:
    """Shapley values of helpers.

    Args:
        values: The value of each of the 2^(k−1) combinations, in the order of ``combination_table`` in
            :mod:`fedrank.silos.bandits.rules`: entry 0 is the target alone, bit i is the i-th helper.

    Returns:
        Shares of the k − 1 helpers in the units of the values. Their sum is the value of everyone minus that of the
        target alone.

    Source:
        Shapley: *A value for n-person games*, 1953. φⱼ is the mean of v(S + j) − v(S) over all orders of joining,
        with S those who joined before j.

    >>> shapley(np.array([0.0, 1.0, 2.0, 4.0]))
    array([1.5, 2.5])
    """
    return values @ _weights(values.shape[-1].bit_length() - 1).astype(values.dtype)


@functools.cache
def _weights(helpers: int) -> Float[np.ndarray, "sets helpers"]:
    """The weight of every set's value in every helper's share; negative where the helper is not in the set."""
    inside = (np.arange(2**helpers)[:, None] >> np.arange(helpers)) % 2 == 1
    before = inside.sum(axis=1)[:, None] - inside  # the size of S, without the helper itself
    sizes = [1 / (helpers * math.comb(helpers - 1, size)) for size in range(helpers)]
    weight = np.array(sizes)[before]
    return np.where(inside, weight, -weight)


#: Largest product of class counts for which the exact Mann-Whitney distribution is used.
EXACT_PAIRS = 2000


def differences(
    increments: Float[np.ndarray, "rounds arms"],
    observed: Bool[np.ndarray, "rounds arms"],
    members: Bool[np.ndarray, "arms silos"],
    silo: int,
) -> Float[np.ndarray, " rounds"]:
    """Paired difference that a silo makes, round by round, all else equal.

    Every arm with the silo is compared with the arm of the same silos without it, where both were observed in the
    round; the mean over such pairs is the round's difference. A pair {target, silo} whose counterpart, the target
    alone, is no arm at all is compared with 0, because an increment is already a difference to the target's own model.

    Args:
        increments: Increment of each arm, in [−1, 1].
        observed: Which arms were observed.
        members: Which silos each arm has; no arm twice.
        silo: Number of the silo; not the target, which is in every arm and has nothing to be compared with.

    Returns:
        Differences in [−1, 1], NaN where the round says nothing about the silo.
    """
    there = observed & np.isfinite(increments)
    numbers = {tuple(row): arm for arm, row in enumerate(members.tolist())}
    total, count = np.zeros(len(increments)), np.zeros(len(increments))
    for arm in np.flatnonzero(members[:, silo]):
        rest = members[arm].copy()
        rest[silo] = False
        without = numbers.get(tuple(rest.tolist()))
        if without is not None:
            pair = there[:, arm] & there[:, without]
            gain = increments[:, arm] - increments[:, without]
        elif rest.sum() == 1 and members[:, rest].all():
            pair, gain = there[:, arm], increments[:, arm]
        else:
            continue
        total += np.where(pair, gain, 0.0)
        count += pair
    return np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)


def interval(samples: Float[np.ndarray, " samples"], level: float = 0.95) -> tuple[float, float, float]:
    """Mean of some samples and the ends of Student's t-interval; NaN ends of fewer than three.

    Rounds of one run depend on each other, for each starts from the model of the one before: an interval over rounds is
    too short. Average over a run's rounds first and give one sample a seed.

    Args:
        samples: At least one.
        level: Confidence, in (0, 1).
    """
    from scipy.special import stdtrit  # scipy.stats, which has the same, takes half a second to import

    n, mean = len(samples), float(samples.mean())
    if n < LEAST_SEEDS:
        return mean, math.nan, math.nan
    half = float(stdtrit(n - 1, (1 + level) / 2)) * math.sqrt(float(((samples - mean) ** 2).sum()) / (n - 1) / n)
    return mean, mean - half, mean + half


def inversion_p(auc: float, positives: int, negatives: int) -> float:
    """p-value that a silo's own model does not rank the target's rows backwards; NaN without an AUC in [0, 1].

    One-sided Mann-Whitney test of "the scores say nothing about the labels" against an AUC below ½: exact for few rows
    (:data:`EXACT_PAIRS`, and then as if no scores were tied), else the normal approximation with continuity correction.
    It cannot tell inverted labels from a population in which the same features mean the opposite. One look at one
    model: for several silos multiply it by their number, and fix the round beforehand.

    Args:
        auc: AUC of the silo's own model on the target's rows; NaN if a class is missing.
        positives: Rows of the target with label 1.
        negatives: Rows with label 0.
    """
    pairs = positives * negatives
    if not 0 <= auc <= 1 or pairs == 0:  # what comes over a network may be no AUC
        return math.nan
    # The AUC may come from float32 and miss a whole number of pairs by a little; ties make halves.
    u = round(2 * auc * pairs) / 2
    if pairs <= EXACT_PAIRS:
        counts = _mann_whitney(positives, negatives)
        return min(float(counts[: math.ceil(u) + 1].sum()), 1.0)
    deviation = math.sqrt(pairs * (positives + negatives + 1) / 12)
    return min(0.5 * math.erfc(-(u + 0.5 - pairs / 2) / deviation / math.sqrt(2)), 1.0)


def _mann_whitney(positives: int, negatives: int) -> Float[np.ndarray, " u_values"]:
    """Probability of every U in 0 … positives · negatives if labels are shuffled and no scores are tied.

    The highest score of a + b rows is one of the a with probability a / (a + b), and then beats all b others (the
    recursion of Mann and Whitney 1947). U has the same distribution if the classes swap names.
    """
    few, many = sorted((positives, negatives))
    start = np.zeros(few * many + 1)
    start[0] = 1.0
    row = [start] * (few + 1)
    for a in range(1, many + 1):
        row_before, row = row, [start]
        for b in range(1, few + 1):
            beats = np.zeros_like(start)
            beats[b:] = row_before[b][:-b]
            row.append((a * beats + b * row[b - 1]) / (a + b))
    return row[few]
