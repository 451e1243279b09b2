"""Arms that are held fixed: Table 2 and Figures 8 to 11, 14, 21 and 22 of the thesis.

Table 2 is the standard deviation of residuals: what the validation AUC of an experiment has more than the mean of all
experiments in the same round. The thesis divides its rows once, so that its experiments differ in first weights and
batches. Here seeds divide the rows anew elsewhere; for residuals all seeds have one division, and the deviation with
new rows stands beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float

from fedrank.core.errors import ConfigError
from fedrank.core.trees import Json
from fedrank.engine.progress import Listener
from fedrank.engine.settings import with_setting
from fedrank.report.statistics import Estimate, t_quantile
from fedrank.report.tables import Column, Table
from fedrank.silos.bandits.rules import code, members_of, name
from fedrank.silos.build import build_silos
from fedrank_zoo.reproduce.study import Study, load_file

_HERE = Path(__file__).parent
rules, curves, words = (load_file(_HERE / f"{stem}.py") for stem in ("rules", "curves", "findings"))

#: Arrays [experiments, rounds] by number of epochs and arm.
ByArm: TypeAlias = dict[int, dict[str, Float[np.ndarray, "experiments rounds"]]]

#: Rounds of the early and of the late phase, of what Figure 9 says about them.
_PHASE = 5


def residuals(values: Float[np.ndarray, "experiments rounds"]) -> Float[np.ndarray, "experiments rounds"]:
    """Values less the mean over experiments of the same round."""
    return values - values.mean(axis=0)


def deviation(values: Float[np.ndarray, "experiments rounds"]) -> float:
    """Standard deviation of the residuals: the root of the mean over rounds of the variance over experiments."""
    return math.sqrt(float(values.var(axis=0, ddof=1).mean()))


def persistence(values: Float[np.ndarray, "experiments rounds"]) -> float:
    """Correlation of residuals with those of the same experiment one round later; paths in a scatter plot."""
    r = residuals(values)
    before, after = r[:, :-1], r[:, 1:]
    return float((before * after).sum() / math.sqrt(float((before**2).sum() * (after**2).sum())))


def normality(values: Float[np.ndarray, "experiments rounds"]) -> float:
    """Correlation of the points of the normal quantile plot of all residuals; 1: they lie on a line."""
    ordered = np.sort(residuals(values), axis=None)
    return float(np.corrcoef(curves.normal_quantiles(len(ordered)), ordered)[0, 1])


def jackknife(statistic: Callable[..., float], *samples: Float[np.ndarray, "experiments rounds"]) -> Estimate:
    """A statistic of all experiments with a Student t interval from leaving out one experiment after the other.

    Args:
        statistic: A function of the samples.
        samples: Their experiments are the same ones, in the same order.
    """
    n, whole = len(samples[0]), statistic(*samples)
    if n < 3:
        return Estimate(whole, None, n, f"{n} seeds, no interval")
    without = np.array([statistic(*(np.delete(one, i, axis=0) for one in samples)) for i in range(n)])
    error = math.sqrt((n - 1) / n * float(((without - without.mean()) ** 2).sum()))
    return Estimate(whole, t_quantile(n - 1) * error, n, "jackknife over experiments")


def fall_after_peak(values: Float[np.ndarray, "experiments rounds"]) -> list[float]:
    """By experiment, the last value less that of the round in which the mean of the *other* experiments is highest.

    An experiment takes no part in the choice of its round, so that there is no fall where there is only noise.
    """
    found = []
    for i, curve in enumerate(values):
        peak = int(np.delete(values, i, axis=0).mean(axis=0).argmax())
        found.append(float(curve[-1] - curve[peak]))
    return found


def fixed_results(study: Study, fraction: float, listener: Listener) -> tuple[tuple[Table, ...], dict[str, Json]]:
    """Table 2, with Figures 10, 11, 14, 21 and 22, and what the thesis says about Figures 8 to 11, 14, 21 and 22.

    The study's ``settings`` hold ``arms``, codes such as ``"0110"``; ``best``, the one that is best here; ``everyone``,
    that of federated averaging; and ``rounds``, the number of rounds in Table 2 by number of epochs.

    Returns:
        Tables, and figures by name.

    Raises:
        ConfigError: There is no such arm.
    """
    base = rules.experiment_of(study, fraction)
    codes = [str(one) for one in study.settings["arms"]]
    first = members_of(base.protocol.table, base.targets[0], base.n_parties)
    known = [code(row) for row in first]
    if missing := [one for one in codes if one not in known]:
        raise ConfigError(f"{study.path}: no arm {missing[0]!r}; there are {', '.join(known)}.")
    names = {one: name(first[known.index(one)], base.names, base.targets[0]) for one in codes}
    cells = [rules.Cell("fixed", (("fixed", float(known.index(one))),)) for one in codes]
    rounds = {int(epochs): int(count) for epochs, count in study.settings["rounds"].items()}
    same, fresh, test, gains = ({epochs: {} for epochs in rounds} for _ in range(4))
    for epochs in rounds:
        experiment = build_silos(with_setting(base.config, "network.epochs", epochs))
        one = rules.play_cells(experiment, cells, listener, same_rows=True)
        anew = rules.play_cells(experiment, cells, listener)
        same[epochs] |= zip(codes, one.vali[..., 1:], strict=True)
        fresh[epochs] |= zip(codes, anew.vali[..., 1:], strict=True)
        test[epochs] |= zip(codes, anew.test[..., 1:], strict=True)
        gains[epochs] |= {c: anew.increments[i][..., known.index(c)] for i, c in enumerate(codes)}
    few, many = sorted(rounds)
    cut, cut_fresh = ({e: {c: v[:, : rounds[e]] for c, v in of[e].items()} for e in rounds} for of in (same, fresh))
    best, everyone = str(study.settings["best"]), str(study.settings["everyone"])
    made = _findings(cut, fresh, test, gains, (few, many), best, everyone)
    figures = {f"{study.name}-learning-curve-{best}": curves.learning_curves(
        "Learning curves with one arm held fixed",
        {f"{names[best]}, {many} epochs a round": test[many][best]}, "test AUC",
    )}  # fmt: skip
    for epochs in (few, many):
        labelled = {f"{c} {names[c]}": residuals(v) for c, v in cut[epochs].items()}
        title = f"Residuals, {epochs} epochs a round"
        figures[f"{study.name}-residuals-{epochs}"] = curves.residual_scatter(title, labelled)
        figures[f"{study.name}-quantiles-{epochs}"] = curves.quantile_plot(title, labelled)
    deviations = _deviations(study, names, cut, cut_fresh, same, (few, many))
    said = words.findings_table("Figures 8 to 11, 14, 21 and 22: findings", made)
    return (deviations, _shapes(names, cut, (few, many)), said), figures


def _deviations(
    study: Study, names: dict[str, str], cut: ByArm, fresh: ByArm, same: ByArm, epochs: tuple[int, int]
) -> Table:
    few, many = epochs
    rows: list[dict[str, Json]] = []
    for arm, silos in names.items():
        row: dict[str, Json] = {"arm": arm, "silos": silos}
        for e in epochs:
            row[f"thesis {e}"] = words.printed_value(study, {"arm": arm, "epochs": e}, "vali", "residuals of AUC")
            row[f"ours {e}"] = f"{deviation(cut[e][arm]):.4f}"
            row[f"fresh {e}"] = f"{deviation(fresh[e][arm]):.4f}"
        row["change"] = jackknife(lambda a, b: deviation(b) - deviation(a), cut[few][arm], cut[many][arm])
        rows.append(row)
    columns = [Column("arm", "arm"), Column("silos", "silos")]
    for e in epochs:
        columns.append(Column(f"thesis {e}", f"{e} epochs: thesis", numeric=True, digits=3))
        columns.append(Column(f"ours {e}", f"{e} epochs: ours", numeric=True))
    columns.append(Column("change", f"{many} − {few} epochs, ours", numeric=True, signed=True))
    columns += [Column(f"fresh {e}", f"{e} epochs: ours, rows anew", numeric=True) for e in epochs]
    counts = {e: cut[e][next(iter(names))].shape for e in epochs}
    other = ", ".join(
        f"{arm} {deviation(same[few][arm][:, : counts[many][1]]):.4f} and "
        f"{deviation(same[many][arm][:, : counts[few][1]]):.4f}"
        for arm in names
    )
    fewer = sum(deviation(cut[many][arm]) <= deviation(cut[few][arm]) for arm in names)
    notes = (
        "Of validation AUC, over " + " and ".join(f"{s[1]} rounds of {e} epochs" for e, s in counts.items())
        + f"; {counts[few][0]} experiments on one division of the rows, which differ in first weights and batches. "
        "The thesis's arms are sets of other silos; its best is 0110.",
        f"The thesis writes “4 to 6 epochs … 10 and 15 rounds respectively”, and that {many} epochs need fewer rounds. "
        f"With the two numbers exchanged, ours would be: {other}.",
        f"With {many} epochs the deviation is not larger for {fewer} of {len(names)} arms; in the thesis for 4 of 5.",
        "± is half of a 95 % interval by the jackknife over experiments.",
    )  # fmt: skip
    return Table(study.title, tuple(columns), tuple(rows), notes)


def _shapes(names: dict[str, str], cut: ByArm, epochs: tuple[int, int]) -> Table:
    few, many = epochs
    rows: list[dict[str, Json]] = []
    for arm, silos in names.items():
        row: dict[str, Json] = {"arm": arm, "silos": silos}
        for key, statistic in (("paths", persistence), ("normal", normality)):
            for e in epochs:
                row[f"{key} {e}"] = f"{statistic(cut[e][arm]):.3f}"
            row[key] = jackknife(lambda a, b, f=statistic: f(b) - f(a), cut[few][arm], cut[many][arm])
        rows.append(row)
    columns = [Column("arm", "arm"), Column("silos", "silos")]
    for key, said in (("paths", "correlation with the next round"), ("normal", "correlation with normal quantiles")):
        columns += [Column(f"{key} {e}", f"{said}, {e} epochs", numeric=True) for e in epochs]
        columns.append(Column(key, f"{many} − {few}", numeric=True, signed=True, digits=3))
    return Table("Figures 10, 11, 21 and 22: residuals", tuple(columns), tuple(rows))


def _findings(
    cut: ByArm, fresh: ByArm, test: ByArm, gains: ByArm, epochs: tuple[int, int], best: str, everyone: str
) -> list[Any]:
    few, many = epochs
    arms = list(cut[few])
    others = [arm for arm in arms if arm.count("1") == 2 and arm != best]

    def over_arms(statistic: Callable[[np.ndarray], float]) -> Estimate:
        samples = [cut[e][arm] for arm in arms for e in epochs]

        def change(*values: np.ndarray) -> float:
            pairs = zip(values[::2], values[1::2], strict=True)
            return sum(statistic(b) - statistic(a) for a, b in pairs) / len(arms)

        return jackknife(change, *samples)

    def gap(e: int) -> Float[np.ndarray, " experiments"]:
        return gains[e][best].mean(axis=1) - np.mean([gains[e][arm].mean(axis=1) for arm in others], axis=0)

    def rise(e: int) -> Float[np.ndarray, " experiments"]:
        return np.mean([fresh[e][arm][:, :_PHASE].mean(axis=1) for arm in arms], axis=0)

    top = {e: fresh[e][best].max(axis=1) for e in epochs}
    first, last = slice(None, _PHASE), slice(-_PHASE, None)
    of = f"{many} − {few} epochs"
    statements: tuple[tuple[str, str, str, Any, int], ...] = (
        ("Figure 8", "six epochs reach good performance in fewer rounds",
         f"validation AUC of rounds 1 to {_PHASE}, mean of the arms, {of}", rise(many) - rise(few), 1),
        ("Figure 8", "the best arm's best performance is a little higher with six epochs, not significantly",
         f"best validation AUC over rounds, {of}", top[many] - top[few], 0),
        ("Figure 9", "the gap from the best arm to the others is wider with six epochs",
         f"increment of {best} less that of the other pairs, {of}", gap(many) - gap(few), 1),
        ("Figure 9", "the best arm is above the target alone from the start",
         f"increment of {best}, rounds 1 to {_PHASE}", gains[many][best][:, first].mean(axis=1), 1),
        ("Figure 9", "federated averaging begins below the target alone",
         f"increment of {everyone}, rounds 1 to {_PHASE}", gains[many][everyone][:, first].mean(axis=1), -1),
        ("Figure 9", "federated averaging is above the target alone later",
         f"increment of {everyone}, last {_PHASE} rounds", gains[many][everyone][:, last].mean(axis=1), 1),
        ("Table 2", "six epochs do not make residuals larger", f"deviation, mean of the arms, {of}",
         over_arms(deviation), -1),
        ("Figures 10, 11", "with four epochs residuals have paths, with six they look like noise",
         f"correlation with the next round, mean of the arms, {of}", over_arms(persistence), -1),
        ("Figures 21, 22", "residuals are normal with six epochs and not with four",
         f"correlation with normal quantiles, mean of the arms, {of}", over_arms(normality), 1),
        ("Figure 14", "after its peak the performance goes down", f"test AUC of {best}, last round less peak",
         fall_after_peak(test[many][best]), -1),
    )  # fmt: skip
    return [words.Finding(*one) for one in statements]
