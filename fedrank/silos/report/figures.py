"""Figures of runs over silos: who helps whom, how the target's model learnt, which arms were played and why.

Like those of :mod:`fedrank.report.figures`, each carries what a reader must know about the run. Figures over rounds
follow the thesis that the protocol is from (Lundahl 2021): increments by arm (its Figure 9), arms played (Figure 20),
estimates by arm (Figures 23 to 28).
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import polars as pl

from fedrank.core.trees import Json
from fedrank.report import describe, figures
from fedrank.report.charts import alt
from fedrank.report.run import Run
from fedrank.report.statistics import curve
from fedrank.silos.report.files import Arm, Silos

#: More arms than this in one figure cannot be told apart; the rest is summed up, or left out where it has no sum.
MOST_ARMS = 6

#: Silos up to which the numbers fit into the cells of the matrix.
MOST_NUMBERS = 12

#: Bars that fit into one figure; more rounds are averaged in blocks.
MOST_BARS = 60

#: Fewer seeds than this in one round give no band: its interval would be wider than the figure.
BAND_SEEDS = 3

#: Harm, nothing, help: ends of ColorBrewer's PuOr and RdBu, told apart with every kind of colour vision. The colours
#: are data and stay as they are on a dark page, and so do the numbers on them.
DIVERGING = ("#B35806", "#F7F7F7", "#2166AC")
_ON_PALE, _ON_DEEP, _NOTHING = "#101010", "#FDFDFD", "#C4C8CC"

#: What models are judged by where an AUC is undefined.
LOSS = "log-loss"

#: Verdicts as symbols: nothing is said by colour alone.
SYMBOLS = {"helps": "▲", "harms": "▼", "no evidence": "·"}


def learning_figure(run: Run, target: str) -> alt.LayerChart:
    """AUC on the target's test and validation rows by round, of the last model and of the best so far.

    Args:
        run: A run over silos.
        target: One of its targets.
    """
    measure = measured_by(run)
    last, best = measure_name(run, measure, target), measure_name(run, f"{measure}, best so far", target)
    wanted = [
        ("test", best, "test, best so far", figures.OKABE_ITO[0]),
        ("test", last, "test, last round", figures.OKABE_ITO[2]),
        ("vali", last, "validation, last round", figures.OKABE_ITO[1]),
    ]
    shown = [one for one in wanted if has(run, one[0], one[1])]
    frame, _ = figures.points(run, [one[:3] for one in shown], "round")
    if measure != LOSS:  # Student's interval of few seeds leaves what an AUC can be
        frame = frame.with_columns(pl.col("low", "high").clip(0.0, 1.0))
    marks = {_LABELS[name]: value for name, value in baseline_values(run, target).items()}
    colours = {label: colour for _, _, label, colour in shown}
    return figures.line_chart(
        run, frame, "round", f"{measure} of {target}’s model", measure, colours, {}, [], marks=marks
    )


def arm_figure(run: Run, target: str, column: str) -> alt.LayerChart:
    """Increment or estimate of the arms by round.

    Args:
        run: A run over silos that has arms.
        target: One of its targets.
        column: ``"increment"``, what was seen, or ``"estimate"``, what the decision rule made of it.
    """
    silos, plays = _arms_of(run, target)
    shown = _shown(silos, plays, target)
    # Arms from clusters may be the same set twice before the clusters are known.
    seen = plays.group_by("seed", "round", "code").agg(pl.col(column).mean()).filter(pl.col(column).is_not_null())
    parts = []
    for arm in shown:
        rows = seen.filter(pl.col("code") == arm.code).select(
            "seed", "round", interactions="round", bytes_up="round", epsilon=pl.lit(None, pl.Float64),
            split=pl.lit("arm"), measure=pl.lit("arm"), value=column,
        )  # fmt: skip
        if not rows.is_empty():
            part, _ = curve(rows, "arm", "arm")
            parts.append(
                part.with_columns(pl.col("round").cast(pl.Float64).alias("x"), pl.lit(arm.name).alias("series"))
            )
    frame = pl.concat(parts).with_columns(
        pl.when(pl.col("n") >= BAND_SEEDS).then(pl.col("low", "high")).otherwise(None)
    )
    notes = [] if len(shown) == plays["code"].n_unique() else [f"the {len(shown)} arms played most"]
    if column == "increment" and plays["increment"].null_count():
        notes.append("only what was judged; a band where 3 or more seeds were")
    titles = {
        "increment": f"What arms added to {target}’s own model",
        "estimate": f"What the decision rule expects for {target}",
    }
    axis = {"increment": f"increment of {measured_by(run)}", "estimate": "estimated reward"}[column]
    colours = _colours(shown)
    zero = {"": 0.0} if column == "increment" else {}
    return figures.line_chart(run, frame, "round", titles[column], axis, colours, {}, notes, marks=zero)


def played_figure(run: Run, target: str) -> Any:
    """Arms whose average became the model, by round: shares of the seeds, stacked."""
    silos, plays = _arms_of(run, target)
    shown = _shown(silos, plays, target)
    names = {arm.code: arm.name for arm in shown}
    played = plays.filter("played")
    block = -(-played["round"].n_unique() // MOST_BARS)
    first = played["round"].min()
    played = played.with_columns(
        pl.col("code").replace_strict(names, default="other arms", return_dtype=pl.String).alias("arm"),
        ((pl.col("round") - first) // block * block + first).alias("round"),
    )
    frame = played.group_by("round", "arm").agg(pl.len().alias("n"))
    frame = frame.with_columns((pl.col("n") / pl.col("n").sum().over("round")).alias("share")).sort("round", "arm")
    colours = _colours(shown) | ({"other arms": figures.MUTED} if "other arms" in frame["arm"].to_list() else {})
    order = {name: i for i, name in enumerate(colours)}
    notes = [f"Round {r['round']}: {r['arm']} in {r['share']:.0%}" for r in frame.iter_rows(named=True)]
    frame = frame.with_columns(
        pl.col("arm").replace_strict(order, return_dtype=pl.Int64).alias("order"),
        pl.Series("note", notes, dtype=pl.String),
    )
    said = [f"Share of {len(run.seeds)} seed{'s' if len(run.seeds) > 1 else ''} in which it became the model"]
    if block > 1:
        said[0] += f", means of {block} rounds"
    chart = (
        alt.Chart(frame)
        .mark_bar(strokeWidth=0)
        .encode(
            x=alt.X("round:O")
            .title("round")
            .axis(labelAngle=0, labelOverlap=True, ticks=False)
            .scale(paddingInner=0.12),
            y=alt.Y("share:Q").title("share of seeds").axis(format=".0%", tickCount=5).scale(domain=[0, 1]),
            color=alt.Color("arm:N")
            .scale(domain=list(colours), range=list(colours.values()))
            .legend(_legend(colours))
            .sort(list(colours)),
            order="order:Q",
            description="note:N",
        )
    )
    title = _title(f"Arms played for {target}", [*said, *describe.caveats(run)], 62)
    return figures.styled(chart.properties(width=380, height=230, title=title))


def matrix_figure(run: Run) -> Any:
    """Matrix of help: a row for each target, a column for each helper, the mean paired difference in the cell.

    Colour is for verdicts: the largest difference may well be the one that is known least.
    """
    silos = _silos(run)
    cells, most = _cells(silos)
    small = len(silos.names) > MOST_NUMBERS
    wide, high = (16, 16) if small else (96, 46)
    axis: Any = {"labelLimit": 140, "ticks": False, "domain": False, "labelOverlap": True}
    x = alt.X("helper:N").sort(list(silos.names)).title("silo that is averaged with it").axis(orient="top", **axis)
    x = x.axis(orient="top", labelAngle=-60 if small else 0, **axis)
    y = alt.Y("target:N").sort(list(silos.targets)).title("target").axis(**axis)
    legend = alt.Legend(
        title=f"mean paired difference of {measured_by(run)}",
        orient="bottom", format="+.2f", gradientLength=200, titleLimit=0,
        titleFontWeight="normal", titleFontSize=11.5, gradientThickness=10, tickCount=5,
    )  # fmt: skip
    scale = alt.Scale(domain=[-most, 0, most], range=list(DIVERGING))
    base = alt.Chart(cells).encode(x=x, y=y)
    known = base.transform_filter("isValid(datum.value)")
    layers = [
        base.transform_filter("!isValid(datum.value)").mark_rect(color=_NOTHING, opacity=0.35).encode(
            description="note:N"
        ),
        known.mark_rect(strokeWidth=0).encode(
            color=alt.Color("shade:Q").scale(scale).legend(legend), description="note:N"
        ),
    ]  # fmt: skip
    if not small:
        for ink, which in ((_ON_PALE, "!datum.deep"), (_ON_DEEP, "datum.deep")):
            text = known.transform_filter(which).mark_text(fontSize=12, color=ink, dy=-5)
            layers.append(text.encode(text="text:N"))
        small_print = known.mark_text(fontSize=9.5, color=_ON_PALE, dy=10).transform_filter("datum.below != ''")
        layers.append(small_print.encode(text="below:N"))
    said = ["With the silo minus without it, same round", "▲ helps, ▼ harms; · no evidence, no colour; grey: not asked"]
    if any(cells["below"]):
        said.append("Seen from: a harm of that size would have been seen with a probability of 0.8")
    if small:
        said[1:] = ["Point at a cell to read it; the tables below have the verdicts"]
    title = _title("Who helps whom", [*said, *describe.caveats(run)], 62)
    chart = alt.layer(*layers).properties(width=wide * len(silos.names), height=high * len(silos.targets), title=title)
    return figures.styled(chart).configure_scale(bandPaddingInner=0.04)


def measure_name(run: Run, base: str, target: str) -> str:
    """Name of a measure of a target in the metrics: as it is, or with the target in brackets."""
    named = f"{base} ({target})"
    return named if (run.metrics["measure"] == named).any() else base


def measured_by(run: Run) -> str:
    """Measure that models are judged by: ``"AUC"``, or :data:`LOSS`, of which less is better."""
    return LOSS if run.metrics["measure"].str.starts_with(LOSS).any() else "AUC"


def has(run: Run, split: str, measure: str) -> bool:
    """True if the metrics have any value of this measure."""
    return not run.metrics.filter((pl.col("split") == split) & (pl.col("measure") == measure)).is_empty()


#: Label of each baseline in figures.
_LABELS = {"alone": "target alone", "everyone": "everyone"}


def baseline_values(run: Run, target: str) -> dict[str, float]:
    """Mean test AUC of the target's own model and of federated averaging, where the run has them."""
    found: dict[str, float] = {}
    measure = measured_by(run)
    names = [measure_name(run, base, target) for base in (f"{measure}, best so far", measure)]
    for baseline in run.baselines:
        for measure in names:
            if baseline.name in _LABELS and ("test", measure) in baseline.values:
                found.setdefault(baseline.name, baseline.values["test", measure])
    return found


def _silos(run: Run) -> Silos:
    return run.details


def _arms_of(run: Run, target: str) -> tuple[Silos, pl.DataFrame]:
    """Files of the run about its silos, and the rows of a target's arms."""
    silos = _silos(run)
    assert silos.plays is not None
    # Rounds are numbered from 0 where they are played and from 1 where they are measured, which readers see.
    return silos, silos.plays.filter(pl.col("target") == target).with_columns(pl.col("round") + 1)


def _shown(silos: Silos, plays: pl.DataFrame, target: str) -> list[Arm]:
    """The arms to draw, in the order of the run: all, or those that were played most."""
    arms = {arm.code: arm for arm in silos.arms.get(target, ())}
    for code in plays["code"].unique().sort().to_list():  # arms from clusters differ from seed to seed
        if code not in arms:
            members = tuple(digit == "1" for digit in code)
            names = [name for name, there in zip(silos.names, members, strict=False) if there]
            arms[code] = Arm(code, " + ".join(names), members)
    if len(arms) > MOST_ARMS + 1:
        counts = dict(plays.filter("played").group_by("code").agg(pl.len()).iter_rows())
        most = sorted(arms, key=lambda code: -counts.get(code, 0))[:MOST_ARMS]
        arms = {code: arm for code, arm in arms.items() if code in most}
    return [Arm(a.code, a.name if len(a.name) <= 40 else a.code, a.members) for a in arms.values()]


def _colours(arms: list[Arm]) -> dict[str, str]:
    return {arm.name: figures.OKABE_ITO[i % len(figures.OKABE_ITO)] for i, arm in enumerate(arms)}


def _cells(silos: Silos) -> tuple[pl.DataFrame, float]:
    """One row for each cell of the matrix with its text and colour, and the largest absolute value with a verdict."""
    rows: list[dict[str, Json]] = []
    for target in silos.targets:
        found = silos.findings.get(target)
        helpers = {h.name: h for h in found.helpers} if found else {}
        for name in silos.names:
            one = helpers.get(name)
            value = one.difference.mean if one and one.difference else None
            row: dict[str, Json] = {
                "target": target,
                "helper": name,
                "value": value,
                "shade": 0.0,
                "text": "",
                "below": "",
            }
            row["note"] = f"{name} for {target}: not compared"
            if one is not None and value is not None:
                row["shade"] = 0.0 if one.verdict == "no evidence" else value
                row["text"] = f"{SYMBOLS[one.verdict]} {value:+.3f}".replace("-", "−")
                row["note"] = f"{name} for {target}: {describe.measured(one.difference, signed=True)}, {one.verdict}"
                if one.visible is not None and one.verdict == "no evidence":
                    row["below"] = f"seen from −{one.visible:.3f}"
                    row["note"] += f"; a harm of more than {one.visible:.3f} would have been seen"
            rows.append(row)
    most = max((abs(row["shade"]) for row in rows), default=0.0) or 0.01
    for row in rows:
        row["deep"] = abs(row["shade"]) > 0.6 * most
    kinds: Mapping[str, Any] = {"value": pl.Float64, "shade": pl.Float64}
    return pl.DataFrame(rows, schema_overrides=kinds, infer_schema_length=None), most


def _legend(colours: Mapping[str, str]) -> alt.Legend:
    longest = max(map(len, colours))
    columns = 3 if longest < 16 else 2 if longest < 30 else 1
    return alt.Legend(
        title=None, orient="top", direction="horizontal", columns=columns, labelLimit=0, symbolType="square",
        symbolStrokeWidth=0,
    )  # fmt: skip


def _title(text: str, said: list[str], width: int) -> alt.Title:
    lines = [line for one in said for line in textwrap.wrap(one, width)]
    return alt.Title(text, subtitle=lines, anchor="start", frame="group")
