"""Figures of runs over silos: who helps whom, how the target's model learnt, which arms were played and why.

Like those of :mod:`fedrank.report.figures`, each carries what a reader must know about the run. Figures over rounds
follow the thesis that the protocol is from (Lundahl 2021): increments by arm (its Figure 9), arms played (Figure 20),
estimates by arm (Figures 23 to 28).
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from fedrank.core.frame import Frame
from fedrank.engine.run_folder import SCHEMA
from fedrank.report import describe, figures, wording
from fedrank.report.charts import Chart, Entry, Panel, compose, element, text, text_width, ticks, tooltip_of
from fedrank.report.run import Run
from fedrank.report.statistics import curve
from fedrank.silos.report.files import Helper, Silos, silos_of

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
_OPEN = "no evidence"
SYMBOLS = {"helps": "▲", "harms": "▼", _OPEN: "·"}


def learning_figure(run: Run, target: str) -> Chart:
    """AUC on the target's test and validation rows by round, of the last model and of the best so far.

    Args:
        run: A run over silos.
        target: One of its targets.
    """
    measure = measured_by(run)
    last, best = measure_name(run, measure, target), measure_name(run, f"{measure}, best so far", target)
    wanted = [
        ("test", best, "test, best so far", figures.OKABE_ITO[0]),
        ("test", measure_name(run, f"{measure}, refit", target), "test, refit", figures.OKABE_ITO[3]),
        ("test", last, "test, last round", figures.OKABE_ITO[2]),
        ("vali", last, "validation, last round", figures.OKABE_ITO[1]),
    ]
    shown = [one for one in wanted if has(run, one[0], one[1])]
    frame, _ = figures.points(run, [one[:3] for one in shown], "round")
    if measure != LOSS:  # Student's interval of few seeds leaves what an AUC can be
        frame = frame.with_columns({end: frame[end].clip(0.0, 1.0) for end in ("low", "high")})
    marks = {_LABELS[name]: value for name, value in baseline_values(run, target).items()}
    colours = {label: colour for _, _, label, colour in shown}
    return figures.line_chart(run, frame, "round", f"{measure} of {target}’s model", measure, colours, marks=marks)


def arm_figure(run: Run, target: str, column: str) -> Chart:
    """Increment or estimate of the arms by round.

    Args:
        run: A run over silos that has arms.
        target: One of its targets.
        column: ``"increment"``, what was seen, or ``"estimate"``, what the decision rule made of it.
    """
    silos, plays = _arms_of(run, target)
    shown = _shown(silos, plays, target)
    # Arms from clusters may be the same set twice before the clusters are known.
    seen = plays[np.isfinite(plays[column])]
    parts = []
    for code, name in shown.items():
        rows = [(key, float(one[column].mean())) for key, one in seen.where(code=code).groups("seed", "round")]
        if rows:
            played = Frame.of_rows(((s, r, r, r, math.nan, "arm", "arm", value) for (s, r), value in rows), SCHEMA)
            part, _ = curve(played, "arm", "arm")
            parts.append(part.with_columns({"x": part["round"].astype(float), "series": name}))
    frame = Frame.concat(parts)
    narrow = frame["n"] < BAND_SEEDS
    frame = frame.with_columns({end: np.where(narrow, math.nan, frame[end]) for end in ("low", "high")})
    notes = [] if len(shown) == len(plays.unique("code")) else [f"the {len(shown)} arms played most"]
    if column == "increment" and np.isnan(plays["increment"]).any():
        notes.append("only what was judged; a band where 3 or more seeds were")
    titles = {
        "increment": f"What arms added to {target}’s own model",
        "estimate": f"What the decision rule expects for {target}",
    }
    axis = {"increment": f"increment of {measured_by(run)}", "estimate": "estimated reward"}[column]
    colours = _colours(shown.values())
    zero = {"": 0.0} if column == "increment" else {}
    return figures.line_chart(run, frame, "round", titles[column], axis, colours, notes, marks=zero)


def played_figure(run: Run, target: str) -> Chart:
    """Arms whose average became the model, by round: shares of the seeds, stacked."""
    silos, plays = _arms_of(run, target)
    names = _shown(silos, plays, target)
    played = plays.where(played=True)
    block = -(-len(played.unique("round")) // MOST_BARS)
    first = played["round"].min()
    arms = [names.get(code, "other arms") for code in played["code"].tolist()]
    blocks = ((played["round"] - first) // block * block + first).tolist()
    counts, sums = Counter(zip(blocks, arms, strict=True)), Counter(blocks)
    colours = _colours(names.values()) | ({"other arms": figures.MUTED} if "other arms" in arms else {})
    said = [f"Share of {len(run.seeds)} seed{'s' if len(run.seeds) > 1 else ''} in which it became the model"]
    if block > 1:
        said[0] += f", means of {block} rounds"
    rounds = sorted(sums)
    panel = Panel(380, 230, (-0.5, len(rounds) - 0.5), (0.0, 1.0))
    panel.y_axis(ticks(0, 1, 5), "{:.0%}".format, "share of seeds")
    every = -(-len(rounds) // 12)
    panel.x_axis(range(0, len(rounds), every), lambda place: str(rounds[round(place)]), "round")
    shares: list[dict[str, float]] = [{} for _ in rounds]
    for (number, arm), count in sorted(counts.items()):
        shares[rounds.index(number)][arm] = count / sums[number]
    panel.stacks(shares, colours, lambda place, arm: f"Round {rounds[place]}: {arm} in {shares[place][arm]:.0%}")
    legend = [Entry(name, colour, "square") for name, colour in colours.items()]
    return compose([panel], f"Arms played for {target}", [*said, *describe.caveats(run)], legend)


def matrix_figure(run: Run) -> Chart:
    """Matrix of help: a row for each target, a column for each helper, the mean paired difference in the cell.

    Colour is for verdicts: the largest difference may well be the one that is known least.
    """
    silos = silos_of(run)
    found = {(t, h.name): h for t, of in silos.findings.items() for h in of.helpers if h.difference is not None}
    shades = {pair: 0.0 if h.verdict == _OPEN else h.difference.mean for pair, h in found.items() if h.difference}
    most = max(map(abs, shades.values()), default=0.0) or 0.01
    small = len(silos.names) > MOST_NUMBERS
    wide, high = (16.0, 16.0) if small else (96.0, 46.0)
    panel = Panel(wide * len(silos.names), high * len(silos.targets))
    panel.rows([_short(name) for name in silos.targets])
    panel.add(
        text(panel.width / 2, -_columns_height(silos.names, small), "silo that is averaged with it", anchor="middle")
    )
    for column, name in enumerate(silos.names):
        x = (column + 0.5) * wide
        panel.add(text(x + 4, -6, _short(name), turn=-60) if small else text(x, -6, _short(name), anchor="middle"))
    panel.above = _columns_height(silos.names, small) + 14
    for (row, target), (column, name) in itertools.product(enumerate(silos.targets), enumerate(silos.names)):
        x, y = column * wide, row * high
        size = {"x": x + 1, "y": y + 1, "width": wide - 2, "height": high - 2}
        one, shade = found.get((target, name)), shades.get((target, name), 0.0)
        if one is None or one.difference is None:
            note = tooltip_of(f"{name} for {target}: not compared")
            panel.add(element("rect", note, fill=_NOTHING, **size, opacity=0.35))
            continue
        note = f"{name} for {target}: {wording.format_value(one.difference, signed=True)}, {one.verdict}"
        unseen = _visible_harm(one)
        note += f"; a harm of more than {unseen} would have been seen" if unseen else ""
        panel.add(element("rect", tooltip_of(note), fill=_shade(shade / most), **size))
        if small:
            continue
        words = f"{SYMBOLS[one.verdict]} {one.difference.mean:+.3f}".replace("-", "−")
        ink, line = _ON_DEEP if abs(shade) > 0.6 * most else _ON_PALE, y + high / 2 - (1 if unseen else -4)
        panel.add(text(x + wide / 2, line, words, size=12.0, fill=ink, anchor="middle"))
        if unseen:
            said = f"seen from −{unseen}"
            panel.add(text(x + wide / 2, y + high / 2 + 13, said, size=9.5, fill=_ON_PALE, anchor="middle"))
    said = ["With the silo minus without it, same round", "▲ helps, ▼ harms; · no evidence, no colour; grey: not asked"]
    if any(map(_visible_harm, found.values())):
        said.append("Seen from: a harm of that size would have been seen with a probability of 0.8")
    if small:
        said[1:] = ["Point at a cell to read it; the tables below have the verdicts"]
    said += describe.caveats(run)
    return compose([panel, _colour_bar(most, f"mean paired difference of {measured_by(run)}")], "Who helps whom", said)


def _short(name: str) -> str:
    return textwrap.shorten(name, 22, placeholder="…")


def _columns_height(names: Sequence[str], small: bool) -> float:
    """Height of the names of columns above the matrix."""
    return 24.0 if not small else 14 + 0.87 * max(text_width(_short(name), 12.5) for name in names)


def _shade(part: float) -> str:
    """Colour of a part of the largest difference, from −1 to 1."""
    ends = [int(DIVERGING[0 if part < 0 else 2][i : i + 2], 16) for i in (1, 3, 5)]
    middle = [int(DIVERGING[1][i : i + 2], 16) for i in (1, 3, 5)]
    mixed = [round(m + (e - m) * min(1.0, abs(part))) for m, e in zip(middle, ends, strict=True)]
    return "#" + "".join(f"{one:02X}" for one in mixed)


def _colour_bar(most: float, title: str) -> Panel:
    """The legend of the matrix: its colours over the differences that they stand for."""
    panel = Panel(200, 10, (-most, most))
    steps = 41
    for i in range(steps):
        x = panel.width * i / steps
        panel.add(
            element(
                "rect", x=x, y=0.0, width=panel.width / steps + 0.5, height=10.0, fill=_shade(2 * i / (steps - 1) - 1)
            )
        )
    panel.x_axis(
        [-most, 0.0, most], lambda value: f"{value:+.2f}".replace("-", "−") if value else "0", title, line=False
    )
    return panel


def measure_name(run: Run, base: str, target: str) -> str:
    """Name of a measure of a target in the metrics: as it is, or with the target in brackets."""
    named = f"{base} ({target})"
    return named if (run.metrics["measure"] == named).any() else base


def measured_by(run: Run) -> str:
    """Measure that models are judged by: ``"AUC"``, or :data:`LOSS`, of which less is better."""
    return LOSS if any(name.startswith(LOSS) for name in run.metrics.unique("measure")) else "AUC"


def has(run: Run, split: str, measure: str) -> bool:
    """True if the metrics have any value of this measure."""
    return measure in run.measures(split)


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


def _arms_of(run: Run, target: str) -> tuple[Silos, Frame]:
    """Files of the run about its silos, and the rows of a target's arms."""
    silos = silos_of(run)
    assert silos.plays is not None
    # Rounds are numbered from 0 where they are played and from 1 where they are measured, which readers see.
    plays = silos.plays.where(target=target)
    return silos, plays.with_columns({"round": plays["round"] + 1})


def _shown(silos: Silos, plays: Frame, target: str) -> dict[str, str]:
    """Code and name of the arms to draw, in the order of the run: all, or those that were played most."""
    arms = dict(silos.arms.get(target, {}))
    for code in plays.unique("code"):  # arms from clusters differ from seed to seed
        names = [name for name, digit in zip(silos.names, code, strict=False) if digit == "1"]
        arms.setdefault(code, " + ".join(names))
    if len(arms) > MOST_ARMS + 1:
        counts = Counter(plays.where(played=True)["code"].tolist())
        most = sorted(arms, key=lambda code: -counts[code])[:MOST_ARMS]
        arms = {code: name for code, name in arms.items() if code in most}
    return {code: name if len(name) <= 40 else code for code, name in arms.items()}


def _colours(names: Iterable[str]) -> dict[str, str]:
    return {name: figures.OKABE_ITO[i % len(figures.OKABE_ITO)] for i, name in enumerate(names)}


def _visible_harm(helper: Helper) -> str:
    """The harm that would have been seen of a silo without a verdict; empty where there is one."""
    return f"{helper.visible:.3f}" if helper.visible is not None and helper.verdict == _OPEN else ""
