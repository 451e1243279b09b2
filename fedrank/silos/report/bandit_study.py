"""Tables and figures of studies that play many decision rules: Table 3, Figures 13, 16 to 18 and 20."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from fedrank.core.errors import ConfigError
from fedrank.core.trees import Json
from fedrank.engine.progress import Listener
from fedrank.engine.settings import from_dict
from fedrank.engine.study import Study, shortened
from fedrank.engine.variations import read_sweep
from fedrank.report.charts import alt
from fedrank.report.figures import INK, MUTED, OKABE_ITO, RULE
from fedrank.report.statistics import Estimate, mean_interval
from fedrank.report.tables import Column, Table
from fedrank.silos.bandit_grid import Cell, Played, cells, play_cells
from fedrank.silos.bandits.arms import code, name
from fedrank.silos.build import SiloExperiment, build_silos

#: Interquartile ranges beyond the quartiles at which an increment counts as an outlier, as in a boxplot.
_WHISKER = 1.5


def grid_results(study: Study, fraction: float, listener: Listener) -> tuple[tuple[Table, ...], dict[str, Json]]:
    """Every setting of a table of rules: performance as the thesis chose it and chosen on validation, messages, arms.

    The study's ``settings`` hold ``rules``, rows as :func:`fedrank.silos.bandit_grid.cells` takes them.

    Returns:
        Tables, and figures by name.
    """
    experiment = _experiment(study, fraction)
    todo = cells(study.settings["rules"])
    played = play_cells(experiment, todo, listener)
    best = int(np.bincount(played.arm.ravel(), minlength=len(played.members)).argmax())
    label = _arm(experiment, played, best)
    rows = []
    for i, cell in enumerate(played.cells):
        rows.append(
            {
                "rule": cell.kind,
                "settings": ", ".join(_said(key, value) for key, value in cell.settings) or "–",
                "thesis": f"{np.median(played.best_test[i]):.4f}",
                "selected": mean_interval(played.selected[i].tolist()),
                "optimism": mean_interval((played.best_test[i] - played.selected[i]).tolist()),
                "messages": f"{played.messages[i]:.1f}",
                "best": f"{np.mean(played.arm[i] == best):.0%}".replace("%", " %"),
            }
        )
    columns = (
        Column("rule", "rule"),
        Column("settings", "settings"),
        Column("thesis", "best test AUC over rounds, median", numeric=True),
        Column("selected", "test AUC of the round best on validation", numeric=True),
        Column("optimism", "difference", numeric=True, signed=True),
        Column("messages", "messages a round", numeric=True),
        Column("best", f"rounds with {label}", numeric=True),
    )
    lift = (played.best_test - played.selected).mean(axis=0)
    notes = (
        f"{len(todo)} settings × {len(played.seeds)} experiments × {experiment.config.rounds} rounds in "
        f"{played.seconds:.0f} s.",
        f"Choosing the round on the test rows adds {_estimate(lift.tolist())} AUC on average over all settings.",
        "± is half of a 95 % Student t interval over experiments: other rows, other first weights.",
        "Extreme Explore takes the arm of the highest reward and here breaks ties by the increment: with continuous "
        "and with binary rewards it takes the same arm.",
    )
    figures = {f"{study.name}-{kind}": _boxes(played, kind) for kind in dict.fromkeys(c.kind for c in played.cells)}
    if "arms" in study.settings:
        wanted = cells([study.settings["arms"]])[0].name
        figures[f"{study.name}-arms"] = _arms_by_round(experiment, played, wanted)
    return (Table(study.title, columns, tuple(rows), notes),), figures


def reference_results(study: Study, fraction: float, listener: Listener) -> tuple[tuple[Table, ...], dict[str, Json]]:
    """Figure 13: increments of arms that are held fixed, over the target's own model and over the last round.

    The study's ``settings`` hold ``arms``, codes such as ``"0110"``.
    """
    experiment = _experiment(study, fraction)
    protocol = experiment.protocol
    codes = [str(one) for one in study.settings["arms"]]
    members = np.asarray(protocol.begin(_key(), protocol.rule, experiment.targets[0]).members)  # type: ignore[attr-defined]
    known = [code(row) for row in members]
    if missing := [one for one in codes if one not in known]:
        raise ConfigError(f"{study.path}: no arm {missing[0]!r}; there are {', '.join(known)}.")
    fixed = [Cell("fixed", (("fixed", float(known.index(one))),)) for one in codes]
    parts = {against: play_cells(experiment, fixed, listener, against=against) for against in ("own", "previous")}
    rows, points = [], []
    for i, one in enumerate(codes):
        label = name(members[known.index(one)], experiment.names, experiment.targets[0])
        row: dict[str, Json] = {"arm": one, "silos": label}
        for against, played in parts.items():
            values = played.increments[i][..., known.index(one)]
            seen = values[np.isfinite(values)]
            row[f"mean {against}"] = mean_interval(_means(values))
            row[f"sd {against}"] = f"{seen.std(ddof=1):.4f}" if len(seen) > 1 else "–"
            row[f"out {against}"] = f"{_outliers(seen):.1%}".replace("%", " %")
            for seed, curve in enumerate(values):
                points += [(one, against, seed, n + 1, float(v)) for n, v in enumerate(curve) if np.isfinite(v)]
        rows.append(row)
    columns = [Column("arm", "arm"), Column("silos", "silos")]
    for against, said in (("own", "over own model"), ("previous", "over last round")):
        columns += [
            Column(f"mean {against}", f"{said}: mean", numeric=True, signed=True),
            Column(f"sd {against}", f"{said}: s.d.", numeric=True),
            Column(f"out {against}", f"{said}: outliers", numeric=True),
        ]
    notes = (
        f"{experiment.config.seeds} experiments, {experiment.config.rounds} rounds, {experiment.config.network.epochs} "
        f"epochs a round. Outliers: beyond {_WHISKER} interquartile ranges from the quartiles.",
    )
    return (Table(study.title, tuple(columns), tuple(rows), notes),), {f"{study.name}-increments": _strips(points)}


def _experiment(study: Study, fraction: float) -> SiloExperiment:
    base, _, _ = read_sweep(study.path)
    config = from_dict(base).resolved()
    return build_silos(config if fraction == 1 else shortened(config, fraction))


def _key() -> Any:
    import jax

    return jax.random.key(0)


def _said(key: str, value: float | None) -> str:
    sign = {"epsilon": "ε", "alpha": "α", "gamma": "γ"}.get(key, key)
    return f"{sign} = {'stationary' if value is None else f'{value:g}'}"


def _arm(experiment: SiloExperiment, played: Played, arm: int) -> str:
    return name(played.members[arm], experiment.names, experiment.targets[0])


def _estimate(values: Sequence[float]) -> str:
    got: Estimate = mean_interval(list(values))
    return f"{got.mean:.4f}" + ("" if got.half is None else f" ± {got.half:.4f}")


def _means(values: np.ndarray) -> list[float]:
    return [float(np.nanmean(row)) for row in values if np.isfinite(row).any()]


def _outliers(values: np.ndarray) -> float:
    low, high = np.quantile(values, [0.25, 0.75]) if len(values) else (0.0, 0.0)
    reach = _WHISKER * (high - low)
    return float(np.mean((values < low - reach) | (values > high + reach))) if len(values) else 0.0


def _boxes(played: Played, kind: str) -> alt.TopLevelMixin:
    """Figures 16 to 18: test AUC of every experiment, as the thesis chose the round and chosen on validation."""
    rows = []
    for i, cell in enumerate(played.cells):
        if cell.kind == kind:
            label = ", ".join(_said(key, value) for key, value in cell.settings) or kind
            for how, values in (
                ("best on test (the thesis)", played.best_test),
                ("best on validation", played.selected),
            ):
                rows += [(label, how, float(v)) for v in values[i]]
    frame = pl.DataFrame(rows, schema=["setting", "round", "AUC"], orient="row")
    y = alt.Y("setting:N", title=None, sort=list(dict.fromkeys(frame["setting"])), axis=alt.Axis(labelLimit=320))
    colour = alt.Color(
        "round:N",
        title="round chosen",
        scale=alt.Scale(range=list(OKABE_ITO[:2])),
        legend=alt.Legend(orient="top"),
    )
    base = alt.Chart(frame).encode(y=y, yOffset="round:N", color=colour)
    x = alt.X("AUC:Q", title="test AUC of the target", scale=alt.Scale(zero=False))
    boxes = base.mark_boxplot(extent=_WHISKER, size=9, median={"color": INK}).encode(x=x)
    n = len(played.seeds)
    return _framed(boxes, f"{kind}: each box {n} experiments", 24 * max(3, frame["setting"].n_unique()))


def _arms_by_round(experiment: SiloExperiment, played: Played, wanted: str) -> alt.TopLevelMixin:
    """Figure 20: which arm was played, round by round."""
    names = [cell.name for cell in played.cells]
    if wanted not in names:
        raise ConfigError(f"the figure of arms is of a setting that is not in the table: {wanted}.")
    arms = played.arm[names.index(wanted)]
    rows = [
        (n + 1, _arm(experiment, played, arm), int((arms[:, n] == arm).sum()))
        for n in range(arms.shape[1])
        for arm in range(len(played.members))
    ]
    frame = pl.DataFrame(rows, schema=["round", "arm", "experiments"], orient="row")
    bars = (
        alt.Chart(frame)
        .mark_bar()
        .encode(
            x=alt.X("round:O", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("experiments:Q", title="experiments that played it"),
            color=alt.Color(
                "arm:N", scale=alt.Scale(range=list(OKABE_ITO)), legend=alt.Legend(orient="top", columns=2)
            ),
        )
    )
    return _framed(bars, f"Arms of {wanted}", 220)


def _strips(points: Sequence[tuple]) -> alt.TopLevelMixin:
    """Figure 13: every increment, round by round."""
    frame = pl.DataFrame(points, schema=["arm", "over", "seed", "round", "increment"], orient="row").with_columns(
        pl.col("over").replace({"own": "the target's own model", "previous": "the last round"})
    )
    dots = (
        alt.Chart(frame)
        .mark_circle(size=14, opacity=0.45, color=OKABE_ITO[0])
        .encode(
            x=alt.X("round:Q", axis=alt.Axis(title="round", tickMinStep=1, format="d")),
            y=alt.Y("increment:Q", title="increment of AUC"),
        )
    )
    mean = (
        alt.Chart(frame)
        .mark_line(color=OKABE_ITO[1])
        .encode(x="round:Q", y=alt.Y("mean(increment):Q", title="increment of AUC"))
    )
    layered = alt.layer(dots, mean, data=frame).properties(width=130, height=130)
    faceted = layered.facet(column=alt.Column("arm:N", title=None), row=alt.Row("over:N", title="over"))
    return faceted.configure(font="sans-serif").configure_axis(gridColor=RULE, labelColor=MUTED, titleColor=INK)


def _framed(chart: Any, title: str, height: int) -> alt.TopLevelMixin:
    return (
        chart.properties(title=title, width=460, height=height)
        .configure(font="sans-serif")
        .configure_view(stroke=None)
        .configure_axis(gridColor=RULE, labelColor=MUTED, titleColor=INK)
        .configure_title(anchor="start", color=INK)
    )
