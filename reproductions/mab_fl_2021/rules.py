"""Many decision rules, each under many seeds: Table 3, Figures 13, 16 to 18 and 20 of the thesis.

All settings have the same network, rows, random numbers of training and rounds. Models are evaluated after every round
on the target's validation and test rows: the thesis took the best *test* AUC over the rounds, which is optimistic;
beside it stands the test AUC of the round that is best on validation.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from fedrank.core.errors import ConfigError
from fedrank.core.frame import Frame
from fedrank.core.trees import Json
from fedrank.engine.native import NativeSimulator
from fedrank.engine.progress import Listener, Progress
from fedrank.engine.settings import from_dict
from fedrank.engine.study import Study, shorten_run
from fedrank.engine.variations import read_sweep
from fedrank.report.charts import INK, OKABE_ITO, Chart, Entry, Panel, compose, decimal_labels, element, ticks
from fedrank.report.figures import nice_domain
from fedrank.report.statistics import Estimate, mean_interval
from fedrank.report.tables import Column, Table
from fedrank.silos.bandit_fedavg import BanditFedAvg, evaluated_by
from fedrank.silos.bandits.arms import code, members_of, name
from fedrank.silos.bandits.rules import Rule, RuleSettings
from fedrank.silos.build import SiloExperiment, build_silos
from fedrank.silos.rounds import SiloEvaluator, begin_runs, models_of_runs

#: How a table calls a mean of all rewards, as opposed to a recency weight.
STATIONARY = "stationary"


@dataclass(frozen=True)
class Cell:
    """One setting of a decision rule.

    Attributes:
        kind: One of :data:`fedrank.silos.bandits.rules.KINDS`.
        settings: Its other settings as :class:`fedrank.silos.bandits.rules.RuleSettings` has them.
    """

    kind: str
    settings: tuple[tuple[str, float | None], ...]

    @property
    def name(self) -> str:
        """Such as ``"ucb, c = 0.05, alpha = 0.75"``."""
        said = (f"{key} = {STATIONARY if value is None else f'{value:g}'}" for key, value in self.settings)
        return ", ".join((self.kind, *said))

    @property
    def rule(self) -> Rule:
        """The decision rule with these settings."""
        return RuleSettings(rule=self.kind, **dict(self.settings)).scalars()  # type: ignore[arg-type] - checked there


def cells(table: Sequence[Mapping[str, Json]]) -> list[Cell]:
    """All combinations of each row's lists, without those that make the same rule as an earlier one.

    Args:
        table: Rows with ``rule`` and lists of parameters; ``"stationary"`` is the mean of all rewards.

    Raises:
        ConfigError: No such rule, or a value out of range.

    >>> [cell.name for cell in cells([{"rule": "ucb", "c": [0.1], "alpha": ["stationary", 0.5]}])]
    ['ucb, c = 0.1, alpha = stationary', 'ucb, c = 0.1, alpha = 0.5']
    """
    out: dict[tuple, Cell] = {}
    for row in table:
        names = [key for key in row if key != "rule"]
        for values in itertools.product(*(row[key] for key in names)):
            given = {n: None if v == STATIONARY else float(v) for n, v in zip(names, values, strict=True)}
            if given.get("gamma", 0) is None:
                given["gamma"] = 1.0  # of discounted Thompson sampling that is the stationary one
            cell = Cell(str(row["rule"]), tuple(given.items()))
            key = (cell.kind, *(float(np.nan_to_num(leaf, nan=-1.0)) for leaf in cell.rule))
            out.setdefault(key, cell)
    return list(out.values())


@dataclass(frozen=True, eq=False)
class Played:
    """The results of every setting and seed.

    Attributes:
        cells: The settings.
        seeds: The seeds.
        members: Which silos an arm has.
        test: Test AUC of θ after each number of rounds, from 0.
        vali: Validation AUC of θ, likewise.
        own: Validation AUC of the target's own local model, by round.
        increments: Increment of each arm, by round; NaN where not observed.
        arm: The arm whose average became θ, by round.
        messages: Mean number of messages in a round.
        seconds: Seconds that the rounds took.
    """

    cells: tuple[Cell, ...]
    seeds: tuple[int, ...]
    members: Bool[np.ndarray, "arms silos"]
    test: Float[np.ndarray, "settings seeds models"]
    vali: Float[np.ndarray, "settings seeds models"]
    own: Float[np.ndarray, "settings seeds rounds"]
    increments: Float[np.ndarray, "settings seeds rounds arms"]
    arm: Int[np.ndarray, "settings seeds rounds"]
    messages: Float[np.ndarray, " settings"]
    seconds: float

    @property
    def best_test(self) -> Float[np.ndarray, "settings seeds"]:
        """Best test AUC over the rounds, as the thesis reports it."""
        return self.test[..., 1:].max(axis=-1)

    @property
    def selected(self) -> Float[np.ndarray, "settings seeds"]:
        """Test AUC of the round that is best on validation, the first of several."""
        chosen = self.vali[..., 1:].argmax(axis=-1)[..., None]
        return np.take_along_axis(self.test[..., 1:], chosen, axis=-1)[..., 0]


def play_cells(
    experiment: SiloExperiment, todo: Sequence[Cell], listener: Listener | None = None, **how: Any
) -> Played:
    """Run all settings under all seeds of the experiment.

    Args:
        experiment: Of ``bandit-fedavg``; its own rule does not matter.
        todo: The settings.
        listener: Hears of the progress.
        how: Settings of the bandit that replace the experiment's.

    Raises:
        ConfigError: The experiment is of another protocol, or there are no settings.
    """
    base, config, listener = experiment.protocol, experiment.config, listener or Listener()
    if not isinstance(base, BanditFedAvg) or not todo:
        raise ConfigError("a grid needs the protocol bandit-fedavg and at least one setting.")
    rules = [cell.rule for cell in todo]
    needed = {evaluated_by(rule) for rule in rules}
    evaluates = needed.pop() if len(needed) == 1 else "either"
    protocol = dataclasses.replace(base, bandit=dataclasses.replace(base.bandit, **how), evaluates=evaluates)
    seeds, target = np.asarray(config.all_seeds), experiment.targets[0]
    settings, n = len(todo), len(seeds)
    divisions, targets = np.tile(np.arange(n), settings), np.full(settings * n, target)
    parties = protocol.parties(experiment.arrays, divisions)
    chunk = max(1, config.compute.chunk // (settings * n))
    rounds = NativeSimulator(protocol, parties, chunk, experiment.conditions)
    evaluator = SiloEvaluator(protocol, experiment.arrays, divisions, targets[:, None])
    begun, own = time.perf_counter(), parties.own
    keys, states = begin_runs(protocol, np.tile(seeds, settings), targets, [rule for rule in rules for _ in range(n)])

    def look() -> dict[str, Float[np.ndarray, "runs 1"]]:
        return evaluator(models_of_runs(protocol, states, parties.shared, own, targets[:, None]))

    looks, seen = [look()], []
    for number in range(config.rounds):
        states, own, now = rounds.advance(keys, states, parties.shared, own, number, 1)
        seen.append(now)
        looks.append(look())
        done = int((number + 1) * settings * n)
        rate = done / (time.perf_counter() - begun)
        left = (config.rounds - number - 1) * settings * n / rate
        auc = float(np.nanmean(looks[-1]["vali: last"]))
        listener.progress(Progress(number + 1, config.rounds, done, rate, left, "AUC", auc))
    listener.done()

    def watched(name):
        values = np.stack([row["watched"][name][0] for row in seen], axis=1)  # [runs, rounds, ...]
        return values.reshape(settings, n, *values.shape[1:])

    crossed = np.stack([row["crossed"][0].sum(axis=(1, 2)) for row in seen], axis=1)
    values = {
        part: np.stack([look[f"{part}: last"][:, 0] for look in looks], axis=-1).reshape(settings, n, -1)
        for part in ("test", "vali")
    }
    return Played(
        cells=tuple(todo),
        seeds=tuple(config.all_seeds),
        members=watched("members")[0, 0, -1],
        **values,
        own=watched("own"),
        increments=watched("increments"),
        arm=watched("arm"),
        messages=crossed[:, 1:].mean(axis=1).reshape(settings, n).mean(axis=1),
        seconds=time.perf_counter() - begun,
    )


#: Interquartile ranges beyond the quartiles at which an increment counts as an outlier, as in a boxplot.
_WHISKER = 1.5


def grid_results(study: Study, fraction: float, listener: Listener) -> tuple[tuple[Table, ...], dict[str, Json]]:
    """Every setting of a table of rules: performance as the thesis chose it and chosen on validation, messages, arms.

    The study's ``settings`` hold ``rules``, rows as :func:`cells` takes them.

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
    assert isinstance(protocol, BanditFedAvg)
    members = members_of(protocol.table, experiment.targets[0], experiment.n_parties)
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
        f"{experiment.config.seeds} experiments, {experiment.config.rounds} rounds, {protocol.network.epochs} "
        f"epochs a round. Outliers: beyond {_WHISKER} interquartile ranges from the quartiles.",
    )
    return (Table(study.title, tuple(columns), tuple(rows), notes),), {f"{study.name}-increments": _strips(points)}


def _experiment(study: Study, fraction: float) -> SiloExperiment:
    base, _, _ = read_sweep(study.path)
    config = from_dict(base).resolved()
    return build_silos(config if fraction == 1 else shorten_run(config, fraction))


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


def _boxes(played: Played, kind: str) -> Chart:
    """Figures 16 to 18: test AUC of every experiment, as the thesis chose the round and chosen on validation."""
    ways = {"best on test (the thesis)": played.best_test, "best on validation": played.selected}
    rows = [(i, cell) for i, cell in enumerate(played.cells) if cell.kind == kind]
    names = [", ".join(_said(key, value) for key, value in cell.settings) or kind for _, cell in rows]
    domain = nice_domain([float(v) for values in ways.values() for i, _ in rows for v in values[i]])
    panel = Panel(460, 24.0 * max(3, len(rows)), domain)
    panel.rows(names)
    places = ticks(*domain, 6)
    panel.x_axis(places, decimal_labels(places), "test AUC of the target", grid=True)
    step = panel.height / len(rows)
    for row, (i, _) in enumerate(rows):
        for way, (values, colour) in enumerate(zip(ways.values(), OKABE_ITO, strict=False)):
            _draw_box(panel, np.asarray(values[i]), step * (row + 0.3 + 0.4 * way), colour)
    legend = [Entry(name, colour, "square") for name, colour in zip(ways, OKABE_ITO, strict=False)]
    return compose([panel], f"{kind}: each box {len(played.seeds)} experiments", ["By how the round is chosen"], legend)


def _draw_box(panel: Panel, values: Float[np.ndarray, " experiments"], y: float, colour: str) -> None:
    """Draw the quartiles of values, whiskers to the last values within their reach, and the values beyond."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    reach = _WHISKER * (high - low)
    near = values[(values >= low - reach) & (values <= high + reach)]
    panel.interval(float(near.min()), float(near.max()), y, colour, width=1.0, opacity=1.0)
    panel.interval(float(low), float(high), y, colour, width=8.0, opacity=1.0)
    at = panel.x(float(middle))
    panel.add(element("line", x1=at, x2=at, y1=y - 4, y2=y + 4, stroke=INK))
    for value in values[(values < low - reach) | (values > high + reach)]:
        panel.dot(panel.x(float(value)), y, colour, radius=2.0)


def _arms_by_round(experiment: SiloExperiment, played: Played, wanted: str) -> Chart:
    """Figure 20: which arm was played, round by round."""
    cells = [cell.name for cell in played.cells]
    if wanted not in cells:
        raise ConfigError(f"the figure of arms is of a setting that is not in the table: {wanted}.")
    arms = played.arm[cells.index(wanted)]
    names = [_arm(experiment, played, arm) for arm in range(len(played.members))]
    colours = {name: OKABE_ITO[i % len(OKABE_ITO)] for i, name in enumerate(names)}
    counts = [{name: float((column == arm).sum()) for arm, name in enumerate(names)} for column in arms.T]
    panel = Panel(460, 220, (-0.5, len(counts) - 0.5), (0.0, float(len(arms))))
    levels = ticks(0, len(arms), 5, whole=True)
    panel.y_axis(levels, decimal_labels(levels), "experiments that played it")
    panel.x_axis(range(len(counts)), lambda place: f"{place + 1:.0f}", "round")
    panel.stacks(counts, colours, lambda place, arm: f"Round {place + 1}: {arm} in {counts[place][arm]:.0f}")
    return compose([panel], f"Arms of {wanted}", (), [Entry(n, colour, "square") for n, colour in colours.items()])


def _strips(points: Sequence[tuple]) -> Chart:
    """Figure 13: every increment, round by round."""
    frame = Frame.of_rows(points, {"arm": str, "over": str, "seed": int, "round": int, "increment": float})
    over = {"own": "the target's own model", "previous": "the last round"}
    low, high = nice_domain([0.0, *frame["increment"].tolist()])
    panels = []
    for (arm, against), part in frame.groups("arm", "over"):
        panel = Panel(
            340, 110, (0.0, 1.0 + float(frame["round"].max())), (low, high), title=f"{arm}, over {over[against]}"
        )
        levels = ticks(low, high, 4)
        panel.y_axis(levels, decimal_labels(levels), "increment")
        panel.x_axis(ticks(0, panel.x.high, 6, whole=True), decimal_labels([0, 1]), "round")
        for number, value in part.select(["round", "increment"]).tuples():
            panel.dot(panel.x(number), panel.y(value), OKABE_ITO[0], radius=2.0, opacity=0.45)
        panel.line(part.means("round", "increment").items(), OKABE_ITO[1])
        panels.append(panel)
    return compose(panels, "Increments of AUC", ["A point an experiment; line: their mean"])
