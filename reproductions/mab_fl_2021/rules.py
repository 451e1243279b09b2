"""Many decision rules, each under many seeds: Table 3, Figures 13, 16 to 20 and 23 to 28 of the thesis.

All settings have the same network, rows, random numbers of training and rounds. Models are evaluated after every round
on the target's validation and test rows: the thesis took the best *test* AUC over the rounds, which is optimistic;
beside it stands the test AUC of the round that is best on validation.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from fedrank.core.errors import ConfigError
from fedrank.core.frame import Frame
from fedrank.core.trees import Json
from fedrank.engine.native import NativeSimulator
from fedrank.engine.progress import Listener, Progress
from fedrank.engine.settings import from_dict, with_setting
from fedrank.engine.variations import read_sweep
from fedrank.report.charts import (
    INK,
    OKABE_ITO,
    Chart,
    Entry,
    Panel,
    compose,
    decimal_labels,
    element,
    nice_domain,
    ticks,
)
from fedrank.report.statistics import Estimate, mean_interval
from fedrank.report.tables import Column, Table
from fedrank.silos.bandit_fedavg import BanditFedAvg, evaluated_by
from fedrank.silos.bandits.rules import Rule, RuleSettings, code, members_of, name
from fedrank.silos.build import SiloExperiment, build_silos
from fedrank.silos.rounds import SiloEvaluator, begin_runs, models_of_runs
from fedrank_zoo.reproduce.study import Study, load_file, shorten_run

curves, words = (load_file(Path(__file__).with_name(f"{stem}.py")) for stem in ("curves", "findings"))

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
    def said(self) -> str:
        """Its settings for a reader, such as ``"c = 0.05, α = 0.75"``; a dash without any."""
        return ", ".join(_said(key, value) for key, value in self.settings) or "–"

    @property
    def family(self) -> str:
        """The kind of rule; UCB with binary rewards is one of its own."""
        return f"{self.kind}, binary" if self.kind == "ucb" and "threshold" in dict(self.settings) else self.kind

    def matches(self, wanted: Mapping[str, Any]) -> bool:
        """True if it has all of these values, or one of them where there is a list."""
        own = dict(self.settings)
        return all(own[key] in (value if isinstance(value, list) else [value]) for key, value in wanted.items())

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
        estimates: Estimated expected reward of each arm after each round.
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
    estimates: Float[np.ndarray, "settings seeds rounds arms"]
    arm: Int[np.ndarray, "settings seeds rounds"]
    messages: Float[np.ndarray, " settings"]
    seconds: float

    def until(self, rounds: int) -> Played:
        """The same with the models of the first rounds alone, of which a round is chosen."""
        return dataclasses.replace(self, test=self.test[..., : rounds + 1], vali=self.vali[..., : rounds + 1])

    def index_of(self, cell: Cell) -> int:
        """Position of a setting.

        Raises:
            ConfigError: It was not run.
        """
        names = [one.name for one in self.cells]
        if cell.name not in names:
            raise ConfigError(f"a figure is of a setting that is not in the table: {cell.name}.")
        return names.index(cell.name)

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
    experiment: SiloExperiment,
    todo: Sequence[Cell],
    listener: Listener | None = None,
    *,
    same_rows: bool = False,
    **how: Any,
) -> Played:
    """Run all settings under all seeds of the experiment.

    Args:
        experiment: Of ``bandit-fedavg``; its own rule does not matter.
        todo: The settings.
        listener: Hears of the progress.
        same_rows: All seeds have the first seed's division of rows, as the thesis's experiments do, and differ in
            first weights and batches only.
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
    divisions = np.tile(np.zeros(n, int) if same_rows else np.arange(n), settings)
    targets = np.full(settings * n, target)
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
        estimates=watched("estimates"),
        arm=watched("arm"),
        messages=crossed[:, 1:].mean(axis=1).reshape(settings, n).mean(axis=1),
        seconds=time.perf_counter() - begun,
    )


#: Interquartile ranges beyond the quartiles at which an increment counts as an outlier, as in a boxplot.
_WHISKER = 1.5


def grid_results(study: Study, fraction: float, listener: Listener) -> tuple[tuple[Table, ...], dict[str, Json]]:
    """Every setting of a table of rules: performance, messages, arms, curves and estimates; Figures 16 to 20, 23 to 28.

    The study's ``settings`` hold ``rules``, rows as :func:`cells` takes them; ``figure19``, by name the setting of each
    of its curves; ``fedavg_rounds``, the rounds of federated averaging there; and ``figure20``, the name of the curve
    whose arms Figure 20 shows.

    Returns:
        Tables, and figures by name.
    """
    experiment = experiment_of(study, fraction)
    todo = cells(study.settings["rules"])
    played = play_cells(experiment, todo, listener)
    best = int(np.bincount(played.arm.ravel(), minlength=len(played.members)).argmax())
    # The thesis's experiments have the same rows; how far they differ is measured on such.
    same = play_cells(experiment, todo, listener, same_rows=True)
    chosen = {name: played.index_of(cells([row])[0]) for name, row in study.settings["figure19"].items()}
    fixed = [Cell("fixed", (("fixed", float(best)),))], [Cell("fixed", (("fixed", 0.0),))]
    longer = with_setting(experiment.config, "rounds", int(study.settings["fedavg_rounds"]))
    longer = dataclasses.replace(experiment, config=longer if fraction == 1 else experiment.config)
    constant = {
        f"{_arm(experiment, played, best)}, fixed": play_cells(experiment, fixed[0], listener),
        "FedAvg": play_cells(longer, fixed[1], listener, arms="everyone"),
    }
    one = chosen[study.settings["figure20"]]
    arms = [_arm(experiment, played, arm) for arm in range(len(played.members))]
    figures = _figures(study.name, played, arms)
    shown = {name: played.test[i] for name, i in chosen.items()} | {n: p.test[0] for n, p in constant.items()}
    figures[f"{study.name}-rules"] = curves.spline_chart(
        "Figure 19: learning curves", {name: values[:, 1:] for name, values in shown.items()}, "test AUC"
    )
    figures[f"{study.name}-arms"] = _arms_by_round(arms, played, one)
    tables = (
        _performances(study, played, experiment.config.rounds, best, arms[best]),
        _highest(study, played, chosen, constant),
        _curves_and_estimates(played, same, best, arms[best]),
        words.findings_table(
            "Figures 16 to 20 and 23 to 28: findings",
            _findings(played, same, chosen, constant["FedAvg"].until(experiment.config.rounds), best, one),
            ("Of a level, both ways of choosing the round: the thesis takes the best test AUC over the rounds.",),
        ),
    )
    return tables, figures


def _performances(study: Study, played: Played, rounds: int, best: int, label: str) -> Table:
    """Table 3 and Figures 16 to 18: a row for each setting."""
    rows = []
    for i, cell in enumerate(played.cells):
        rows.append(
            {
                "rule": cell.kind,
                "settings": cell.said,
                "thesis": f"{np.median(played.best_test[i]):.4f}",
                "selected": mean_interval(played.selected[i].tolist()),
                "optimism": mean_interval((played.best_test[i] - played.selected[i]).tolist()),
                "messages": f"{played.messages[i]:.1f}",
                "best": _percent(np.mean(played.arm[i] == best), 0),
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
        f"{len(played.cells)} settings × {len(played.seeds)} experiments × {rounds} rounds in {played.seconds:.0f} s.",
        f"Choosing the round on the test rows adds {_estimate(lift.tolist())} AUC on average over all settings.",
        "± is half of a 95 % Student t interval over experiments: other rows, other first weights.",
        "Extreme Explore takes the arm of the highest reward and here breaks ties by the increment, then by the "
        "estimate: with continuous and with binary rewards it takes the same arm unless increments are equal.",
    )
    return Table(study.title, columns, tuple(rows), notes)


def _highest(study: Study, played: Played, chosen: Mapping[str, int], constant: Mapping[str, Played]) -> Table:
    """Figure 19: how high each curve comes and when, what the thesis prints, and the round chosen on validation."""
    of = {name: (played, i) for name, i in chosen.items()} | {name: (one, 0) for name, one in constant.items()}
    rows = []
    for curve, (one, i) in of.items():
        mean = one.test[i][:, 1:].mean(axis=0)
        thesis = [words.printed_value(study, {"curve": curve}, "test", key) for key in ("AUC, highest", "round of it")]
        rows.append(
            {
                "curve": curve,
                "rounds": str(len(mean)),
                "highest": f"{mean.max():.4f}",
                "at": str(int(mean.argmax()) + 1),
                "thesis": "–" if thesis[0] is None else f"{thesis[0]:g}, round {thesis[1]}",
                "best": mean_interval(one.best_test[i].tolist()),
                "selected": mean_interval(one.selected[i].tolist()),
            }
        )
    columns = (
        Column("curve", "curve"),
        Column("rounds", "rounds", numeric=True),
        Column("highest", "highest mean test AUC", numeric=True),
        Column("at", "its round", numeric=True),
        Column("thesis", "thesis", numeric=True),
        Column("best", "best test AUC over rounds", numeric=True),
        Column("selected", "test AUC of the round best on validation", numeric=True),
    )
    notes = ("The thesis's rows are others: levels cannot be compared, only their order.",)
    return Table("Figure 19: learning curves", columns, tuple(rows), notes)


def _curves_and_estimates(played: Played, same: Played, best: int, label: str) -> Table:
    """Figures 23 to 28: a row for each setting."""
    spread, gap, reach = _spread(same.test[..., 1:]), _gap(played, best), _reach(played)
    rows = []
    for i, cell in enumerate(played.cells):
        rows.append(
            {
                "rule": cell.kind,
                "settings": cell.said,
                "changes": mean_interval(_changes(played)[i].tolist()),
                "spread": mean_interval(spread[i].tolist()),
                "reach": mean_interval(reach[i].tolist()),
                "gap": mean_interval(gap[i].tolist()),
                "first": f"{int((gap[i] > 0).sum())} of {gap.shape[1]}",
            }
        )
    columns = (
        Column("rule", "rule"),
        Column("settings", "settings"),
        Column("changes", "change of test AUC from round to round", numeric=True),
        Column("spread", "distance of an experiment from their mean, same rows", numeric=True),
        Column("reach", "largest less smallest estimate", numeric=True),
        Column("gap", f"estimate of {label} less the best other", numeric=True, signed=True),
        Column("first", "experiments in which it is highest", numeric=True),
    )
    notes = (
        "Means of absolute values over the rounds; estimates are those after the last round. With binary rewards an "
        "estimate is a share of rewards, else an increment of AUC.",
    )
    return Table("Figures 23 to 28: learning curves and estimates", columns, tuple(rows), notes)


def _changes(played: Played) -> Float[np.ndarray, "settings seeds"]:
    """Mean absolute change of the test AUC from one round to the next."""
    return np.abs(np.diff(played.test[..., 1:], axis=-1)).mean(axis=-1)


def _spread(values: Float[np.ndarray, "settings seeds rounds"]) -> Float[np.ndarray, "settings seeds"]:
    """Mean absolute distance of an experiment from the mean of all experiments in the same round."""
    return np.abs(values - values.mean(axis=1, keepdims=True)).mean(axis=-1)


def _gap(played: Played, best: int) -> Float[np.ndarray, "settings seeds"]:
    """Last estimate of an arm less the largest of the others."""
    last = played.estimates[..., -1, :]
    return last[..., best] - np.delete(last, best, axis=-1).max(axis=-1)


def _reach(played: Played) -> Float[np.ndarray, "settings seeds"]:
    """Largest less smallest of the last estimates of all arms."""
    return np.ptp(played.estimates[..., -1, :], axis=-1)


def _findings(
    played: Played,
    same: Played,
    chosen: Mapping[str, int],
    fedavg: Played,
    best: int,
    one: int,
) -> list[Any]:
    """What the thesis says in words about Figures 16 to 20 and 23 to 28, each with a number of ours."""

    def of(values: Float[np.ndarray, "settings seeds"], family: str, **wanted: Any) -> np.ndarray:
        """Mean by seed over the settings of a rule that have these values; a list is any of them."""
        rows = [i for i, cell in enumerate(played.cells) if cell.family == family and cell.matches(wanted)]
        return values[rows].mean(axis=0)

    made: list[tuple[str, str, str, np.ndarray, int]] = []

    def level(figure: str, says: str, of_what: str, contrast: Callable[[np.ndarray], np.ndarray], sign: int) -> None:
        for how, values in (("best test AUC over rounds", played.best_test), ("chosen on validation", played.selected)):
            made.append((figure, says, f"{of_what}: {how}", contrast(values), sign))

    eps, ucb, ts = "epsilon-greedy", "ucb", "thompson"
    recent = [0.25, 0.5, 0.75]
    top = np.abs(played.best_test - np.median(played.best_test, axis=1, keepdims=True))
    made.append(
        (
            "Figure 16",
            "stationary rewards: best performances vary more",
            "distance of the best test AUC from its median, stationary − recency",
            of(top, eps, alpha=None) - of(top, eps, alpha=recent),
            1,
        )
    )
    level(
        "Figure 16",
        "ε = 0.2: recency weights are better",
        "recency − stationary",
        lambda v: of(v, eps, epsilon=0.2, alpha=recent) - of(v, eps, epsilon=0.2, alpha=None),
        1,
    )
    level(
        "Figure 16",
        "ε = 0.5: recency weights and the mean are alike",
        "recency − stationary",
        lambda v: of(v, eps, epsilon=0.5, alpha=recent) - of(v, eps, epsilon=0.5, alpha=None),
        0,
    )
    level(
        "Figure 17",
        "c = 0.05 and α = 0.75 are best",
        "that setting − mean of UCB's others",
        lambda v: _against_others(v, played, chosen["UCB"], lambda cell: cell.family == ucb),
        1,
    )
    level(
        "Figure 18",
        "threshold 0.025 and γ = 0.75 are best",
        "that setting − mean of Thompson's others",
        lambda v: _against_others(v, played, chosen["Thompson"], lambda cell: cell.family == ts),
        1,
    )
    level(
        "Figure 18",
        "the very best are with a threshold of 0.05",
        "threshold 0.05 − lower ones",
        lambda v: of(v, ts, threshold=0.05) - of(v, ts, threshold=[0.01, 0.025]),
        1,
    )
    rules = list(chosen.values())
    level(
        "Figure 19",
        "Thompson sampling is worst",
        "Thompson − mean of the other rules",
        lambda v: v[chosen["Thompson"]] - v[[i for i in rules if i != chosen["Thompson"]]].mean(axis=0),
        -1,
    )
    good = [chosen[name] for name in ("UCB, binary", "Extreme Explore", "Extreme Explore, binary")]
    level(
        "Figure 19",
        "Extreme Explore and binary UCB are best",
        "their mean − mean of the other rules",
        lambda v: v[good].mean(axis=0) - v[[i for i in rules if i not in good]].mean(axis=0),
        1,
    )
    level(
        "Figure 19",
        "UCB is better with binary rewards",
        "binary − continuous",
        lambda v: v[chosen["UCB, binary"]] - v[chosen["UCB"]],
        1,
    )
    for how, values, theirs in (
        ("best test AUC over rounds", played.best_test, fedavg.best_test[0]),
        ("chosen on validation", played.selected, fedavg.selected[0]),
    ):
        made.append(
            (
                "Figure 19",
                "the rules are above federated averaging",
                f"mean of the rules − FedAvg: {how}",
                values[rules].mean(axis=0) - theirs,
                1,
            )
        )
    explored = chosen["Extreme Explore"]
    made.append(
        (
            "Figure 20",
            "Extreme Explore takes the best arm in more than 90 % of the rounds",
            "share of its rounds with the best arm − 0.9",
            (played.arm[explored] == best).mean(axis=1) - 0.9,
            1,
        )
    )
    made.append(
        (
            "Figure 20",
            "binary UCB keeps playing other arms than the best",
            "share of its rounds, after the first of each arm, with another arm",
            (played.arm[one][:, min(len(played.members), played.arm.shape[-1] - 1) :] != best).mean(axis=1),
            1,
        )
    )
    changes, gap, reach, spread = _changes(played), _gap(played, best), _reach(played), _spread(same.test[..., 1:])
    wander = np.mean([_spread(same.estimates[..., arm]) for arm in range(len(same.members))], axis=0)
    made += [
        ("Figure 23", "with a larger ε performances oscillate more", "change from round to round, ε = 0.5 − 0.1",
         of(changes, eps, epsilon=0.5) - of(changes, eps, epsilon=0.1), 1),
        ("Figure 23", "ε = 0.1 and 0.2: less variance with a smaller α", "distance from the mean, α = 0.25 − 0.75",
         of(spread, eps, epsilon=[0.1, 0.2], alpha=0.25) - of(spread, eps, epsilon=[0.1, 0.2], alpha=0.75), -1),
        ("Figure 24", "α = 0.25: all estimates are very close", "largest less smallest estimate, α = 0.25 − 0.5, 0.75",
         of(reach, eps, alpha=0.25) - of(reach, eps, alpha=[0.5, 0.75]), -1),
        ("Figure 24", "stationary: estimates vary most between experiments",
         "distance of estimates from their mean, stationary − recency", of(wander, eps, alpha=None)
         - of(wander, eps, alpha=recent), 1),
        ("Figure 24", "the best arm is told best with α = 0.5 or 0.75", "estimate less best other, those − rest",
         of(gap, eps, alpha=[0.5, 0.75]) - of(gap, eps, alpha=[None, 0.25]), 1),
        ("Figure 25", "with a larger c performances oscillate more", "change from round to round, c = 0.1 − 0.01",
         of(changes, ucb, c=0.1) - of(changes, ucb, c=0.01), 1),
        ("Figure 25", "c = 0.01: oscillation stops after five rounds", "change between rounds, rounds 6 on − before",
         of(_later(np.abs(np.diff(played.test[..., 1:], axis=-1)), 5), ucb, c=0.01), -1),
        ("Figure 26", "α = 0.75 or stationary: the best arm is told best", "estimate less best other, those − rest",
         of(gap, ucb, alpha=[None, 0.75]) - of(gap, ucb, alpha=[0.25, 0.5]), 1),
        ("Figure 26", "there, estimates converge after round 5", "change of estimates, rounds 6 on − before",
         of(_later(np.abs(np.diff(played.estimates, axis=2)).mean(axis=-1), 5), ucb, alpha=[None, 0.75]), -1),
        ("Figure 27", "γ = 1: less variance", "distance from the mean, γ = 1 − others",
         of(spread, ts, gamma=1.0) - of(spread, ts, gamma=[0.5, 0.75]), -1),
        ("Figure 28", "threshold 0.05: the best arm is told best", "estimate less best other, 0.05 − others",
         of(gap, ts, threshold=0.05) - of(gap, ts, threshold=[0.01, 0.025]), 1),
        ("Figure 28", "a discount makes the best arm harder to tell", "estimate less best other, γ = 1 − others",
         of(gap, ts, gamma=1.0) - of(gap, ts, gamma=[0.5, 0.75]), 1),
    ]  # fmt: skip
    return [words.Finding(*finding) for finding in made]


def _against_others(
    values: Float[np.ndarray, "settings seeds"], played: Played, one: int, belongs: Callable[[Cell], bool]
) -> Float[np.ndarray, " seeds"]:
    """One setting's values less the mean of the other settings of its group."""
    others = [i for i, cell in enumerate(played.cells) if i != one and belongs(cell)]
    return values[one] - values[others].mean(axis=0)


def _later(values: Float[np.ndarray, "settings seeds rounds"], after: int) -> Float[np.ndarray, "settings seeds"]:
    """Mean of the later rounds less mean of the first ones; of few rounds, of the halves."""
    after = min(after, values.shape[-1] // 2)
    return values[..., after:].mean(axis=-1) - values[..., :after].mean(axis=-1)


def _figures(study: str, played: Played, arms: Sequence[str]) -> dict[str, Json]:
    """Figures 16 to 18 and 23 to 28: boxes of each kind of rule; learning curves and estimates of each family."""
    out: dict[str, Json] = {
        f"{study}-{kind}": _boxes(played, kind) for kind in dict.fromkeys(cell.kind for cell in played.cells)
    }
    for family in dict.fromkeys(cell.family for cell in played.cells):
        rows = {cell.said: i for i, cell in enumerate(played.cells) if cell.family == family}
        file = f"{study}-{family.replace(', ', '-')}"
        tests = {said: played.test[i][:, 1:] for said, i in rows.items()}
        out[f"{file}-curves"] = curves.learning_curves(f"{family}: learning curves", tests, "test AUC")
        estimates = {said: played.estimates[i] for said, i in rows.items()}
        out[f"{file}-estimates"] = curves.estimate_curves(f"{family}: estimated rewards", estimates, arms)
    return out


def reference_results(study: Study, fraction: float, listener: Listener) -> tuple[tuple[Table, ...], dict[str, Json]]:
    """Figure 13: increments of arms that are held fixed, over the target's own model and over the last round.

    The study's ``settings`` hold ``arms``, codes such as ``"0110"``.
    """
    experiment = experiment_of(study, fraction)
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
            row[f"out {against}"] = _percent(_outliers(seen), 1)
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


def experiment_of(study: Study, fraction: float) -> SiloExperiment:
    """The experiment that the study's file sets up, shortened where a fraction is asked for."""
    base, _, _ = read_sweep(study.path)
    config = from_dict(base).resolved()
    return build_silos(config if fraction == 1 else shorten_run(config, fraction))


def _said(key: str, value: float | None) -> str:
    sign = {"epsilon": "ε", "alpha": "α", "gamma": "γ"}.get(key, key)
    return f"{sign} = {'stationary' if value is None else f'{value:g}'}"


def _arm(experiment: SiloExperiment, played: Played, arm: int) -> str:
    return name(played.members[arm], experiment.names, experiment.targets[0])


def _percent(share: float, digits: int) -> str:
    return f"{share:.{digits}%}".replace("%", " %")


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
    names = [cell.said if cell.settings else kind for _, cell in rows]
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


def _arms_by_round(arms: Sequence[str], played: Played, one: int) -> Chart:
    """Figure 20: the learning curve, and which arm was played, round by round."""
    chosen = played.arm[one]
    colours = {name: OKABE_ITO[i % len(OKABE_ITO)] for i, name in enumerate(arms)}
    counts = [{name: float((column == arm).sum()) for arm, name in enumerate(arms)} for column in chosen.T]
    above = curves.played_curves("Learning curve", played.test[one][:, 1:], chosen, arms, "test AUC")
    panel = Panel(460, 160, (-0.5, len(counts) - 0.5), (0.0, float(len(chosen))), title="Arms")
    levels = ticks(0, len(chosen), 5, whole=True)
    panel.y_axis(levels, decimal_labels(levels), "experiments")
    panel.x_axis(range(len(counts)), lambda place: f"{place + 1:.0f}", "round")
    panel.stacks(counts, colours, lambda place, arm: f"Round {place + 1}: {arm} in {counts[place][arm]:.0f}")
    legend = [Entry(name, colour, "square") for name, colour in colours.items()]
    return compose(
        [above, panel], f"Arms of {played.cells[one].name}", ["A point an experiment; black: spline"], legend
    )


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
