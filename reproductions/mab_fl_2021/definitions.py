"""What the thesis defines or counts, without any training of note: Table 1, Figures 5 and 7, messages, overlap."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
from jaxtyping import Float

from fedrank.core.trees import Json
from fedrank.engine.progress import Listener
from fedrank.metrics.offline import host_auc
from fedrank.report.charts import OKABE_ITO, Entry, Panel, compose, decimal_labels, ticks
from fedrank.report.statistics import mean_interval
from fedrank.report.tables import Column, Table
from fedrank.silos.bandits.rules import RuleSettings, combination_table, start, update
from fedrank_zoo.reproduce.study import Study, load_file

_HERE = Path(__file__).parent
rules, words = (load_file(_HERE / f"{stem}.py") for stem in ("rules", "findings"))

#: Samples of Figure 5.
_SAMPLES = 5


def share_results(study: Study, fraction: float, listener: Listener) -> tuple[tuple[Table, ...], dict[str, Json]]:
    """Table 1: rows of every silo in each part, and the share of them with label 1.

    The rows are divided and nothing is trained: ``listener`` is not used.
    """
    experiment = rules.experiment_of(study, fraction)
    parts = {part: getattr(experiment.arrays, part) for part in ("train", "vali", "test")}
    rows: list[dict[str, Json]] = []
    for silo, name in enumerate(experiment.names):
        row: dict[str, Json] = {"whose": "ours", "silo": name}
        for part, held in parts.items():
            counts = np.asarray(held.n)[:, silo]
            here = np.arange(held.y.shape[-1]) < counts[:, None]
            positive = ((np.asarray(held.y)[:, silo] > 0) & here).sum(axis=1) / counts
            row[f"rows {part}"] = f"{counts.mean():.0f}"
            row[part] = mean_interval((100 * positive).tolist())
        rows.append(row)
    for worker in range(1, 5):
        printed = {part: words.printed_value(study, {"worker": worker}, part, "share of label 1") for part in parts}
        row = {part: None if value is None else f"{100 * value:.0f}" for part, value in printed.items()}
        rows.append({"whose": "thesis", "silo": f"worker {worker}", **row})
    columns = [Column("whose", ""), Column("silo", "silo")]
    for part, said in (("train", "training"), ("vali", "validation"), ("test", "test")):
        columns += [
            Column(f"rows {part}", f"{said} rows", numeric=True),
            Column(part, f"label 1, {said}, %", numeric=True, digits=1),
        ]
    notes = (
        f"Ours: mean over {len(experiment.config.all_seeds)} divisions, with the interval of the mean. The thesis's "
        "workers have about 10,000 rows each, of which 1 % train, 40 % validate and 59 % test; worker 2 is the target.",
    )
    return (Table(study.title, tuple(columns), tuple(rows), notes),), {}


def reward_weights(alpha: float, samples: int = _SAMPLES) -> Float[np.ndarray, " samples"]:
    """Weight of each reward, the oldest first, in an estimate that the bandit has updated with all of them."""
    rule = RuleSettings(rule="ucb", alpha=alpha, initial=0.0).scalars()
    weights = []
    for place in range(samples):
        estimates = start(rule, 1)
        for number in range(samples):
            estimates = update(rule, estimates, np.array([float(number == place)], np.float32), np.array([True]))
        weights.append(float(estimates.value[0]))
    return np.array(weights)


def quarter_circle_auc(rows: int = 4_000) -> float:
    """AUC of scores whose ROC curve is a quarter of a circle: at the angle θ, TPR = sin θ and FPR = 1 − cos θ."""
    share = (np.arange(rows) + 0.5) / rows
    scores = np.concatenate([-np.arcsin(share), -np.arccos(1 - share)])
    labels = np.arange(2 * rows) < rows
    return float(host_auc(scores, labels, np.ones(2 * rows, bool)))


def mean_overlap(silos: int) -> float:
    """Mean number of other silos that two different sets have in common, over all pairs of sets."""
    pairs = list(itertools.combinations(combination_table(silos), 2))
    return sum(int((a & b).sum()) for a, b in pairs) / len(pairs)


def definition_results(study: Study, fraction: float, listener: Listener) -> tuple[tuple[Table, ...], dict[str, Json]]:
    """Figures 5 and 7, messages of Section 8.3.2 and overlap of Section 8.3.1, ours beside what the thesis says.

    The study's file sets up six silos. Messages are those that cross, not a formula.
    """
    experiment = rules.experiment_of(study, fraction)
    k = experiment.n_parties

    def messages(cells: list, **how: Json) -> float:
        return float(rules.play_cells(experiment, cells, listener, **how).messages.mean())

    pairs = [rules.Cell("ucb", (("c", 0.05),))]
    every = [rules.Cell("fixed", (("fixed", float(arm)),)) for arm in range(2 ** (k - 1))]
    computed = (
        ("Figure 7: area under a quarter of a circle", "AUC", quarter_circle_auc(), 2),
        ("Messages of a round: a pair", "messages, pair", messages(pairs, alone=False), 0),
        (f"Messages of a round: mean over all sets of {k}", "messages, any set", messages(every, arms="all"), 0),
        (f"Messages of a round: Extreme Explore over pairs of {k}, rewards a round late", "messages, extreme explore",
         messages([rules.Cell("extreme-explore", ())], delayed=True), 0),
        ("Overlap of two different sets of 4 silos", "overlap", mean_overlap(4), 3),
    )  # fmt: skip
    rows: list[dict[str, Json]] = []
    for said, measure, ours, digits in computed:
        thesis = words.printed_value(study, {}, "total", measure)
        met = math.isclose(round(ours, digits), round(float(thesis), digits))
        shown = {"thesis": f"{float(thesis):.{digits}f}", "ours": f"{ours:.{digits}f}", "met": "yes" if met else "no"}
        rows.append({"what": said, **shown})
    columns = (
        Column("what", "what"),
        Column("thesis", "thesis", numeric=True),
        Column("ours", "ours", numeric=True),
        Column("met", "met"),
    )
    met = sum(row["met"] == "yes" for row in rows)
    notes = (
        "Overlap: the thesis's formula (k − 1)/4 − 1/4^(k − 1) is that of two independent sets less the case of two "
        "full ones; ours counts all pairs of different sets.",
    )
    table = Table(study.title, columns, tuple(rows), notes, (met, len(rows)))
    alphas = [float(one) for one in study.settings["alphas"]]
    return (table, _weights_table(alphas)), {f"{study.name}-weights": _weights_chart(alphas)}


def _weights_table(alphas: list[float]) -> Table:
    rows = tuple(
        {"alpha": f"{a:g}", **{str(n): f"{w:.3f}" for n, w in enumerate(reward_weights(a), 1)}} for a in alphas
    )
    columns = [Column("alpha", "α", numeric=True)]
    columns += [Column(str(n), f"reward {n}", numeric=True) for n in range(1, _SAMPLES + 1)]
    notes = (
        "Reward 5 is the most recent. The thesis says that a smaller α gives more weight to recent rewards; by its "
        "formula, which is implemented, it is a larger one.",
    )
    return Table("Figure 5: weights of rewards", tuple(columns), rows, notes)


def _weights_chart(alphas: list[float]):
    panel = Panel(460, 220, (0.5, _SAMPLES + 0.5), (0.0, 1.0))
    levels = ticks(0, 1, 5)
    panel.y_axis(levels, decimal_labels(levels), "weight")
    panel.x_axis(range(1, _SAMPLES + 1), decimal_labels([0, 1]), "reward, the last is the most recent")
    legend = []
    for alpha, colour in zip(alphas, OKABE_ITO, strict=False):
        panel.line(enumerate(reward_weights(alpha).tolist(), 1), colour)
        legend.append(Entry(f"α = {alpha:g}", colour))
    return compose([panel], "Figure 5: weights of rewards", (), legend)
