"""Tables of studies that are no sweeps."""

from __future__ import annotations

from typing import Any

from fedrank.core.trees import Json
from fedrank.engine.progress import Listener
from fedrank.engine.settings import from_dict
from fedrank.engine.study import Study, named_measure, shorten_run
from fedrank.engine.variations import read_sweep
from fedrank.ranking.build import build
from fedrank.ranking.personal import train, worth
from fedrank.ranking.privacy_table import table2
from fedrank.ranking.unlearning import unlearn
from fedrank.report import describe
from fedrank.report.statistics import mean_interval
from fedrank.report.tables import Column, Table


def privacy_results(study: Study, fraction: float, listener: Listener) -> tuple[tuple[Table, ...], dict[str, Json]]:
    """Table 2 of Kharitonov 2019: worst-case ε of one interaction, ours beside the printed one.

    It is computed, not run: ``fraction`` and ``listener`` are not used.

    Returns:
        The table, and no figures.
    """
    rows = [
        {
            "user": row.user,
            "p": f"{row.p:g}",
            "ours": f"{row.epsilon:.2f}",
            "paper": f"{row.paper:.2f}",
            "bound": f"{row.bound:.2f}",
        }
        for row in table2()
    ]
    columns = (
        Column("user", "click model"),
        Column("p", "p", numeric=True),
        Column("ours", "ours", numeric=True),
        Column("paper", "paper", numeric=True),
        Column("bound", "any clicks, equation (10)", numeric=True),
    )
    met = sum(row["ours"] == row["paper"] for row in rows)
    notes = (f"{met} of {len(rows)} numbers are met to two decimals.",)
    return (Table(study.title, columns, tuple(rows), notes, (met, len(rows))),), {}


def unlearning_results(study: Study, fraction: float, listener: Listener) -> tuple[tuple[Table, ...], dict[str, Json]]:
    """Results of forgetting, a table for each case of the study.

    The study's ``settings`` hold ``share`` of the devices to forget and ``tune``, the rounds of fine-tuning.

    Returns:
        The tables, and no figures.
    """
    base, _, cases = read_sweep(study.path)
    out = []
    for case in cases or ({"name": study.title},):
        config = from_dict({**base, **{k: v for k, v in case.items() if k != "name"}})
        if fraction < 1:
            config = shorten_run(config, fraction)
        ways = unlearn(config, float(study.settings["share"]), int(study.settings["tune"]), listener)
        measures = [(split, named_measure(pattern, config)) for split, pattern in study.measures]
        target = next(way for way in ways if way.name == "retraining")
        rows = [
            {
                "way": way.name,
                **{
                    f"m{i}": mean_interval(way.values[key].tolist())
                    for i, key in enumerate(measures)
                    if key in way.values
                },
                **{
                    f"d{i}": mean_interval((way.values[key] - target.values[key]).tolist())
                    for i, key in enumerate(measures)
                    if key in way.values
                },
                "distance": mean_interval(way.distance.tolist()),
                "cosine": mean_interval(way.cosine.tolist()),
                "influence": mean_interval(way.influence.tolist()),
                "wish": mean_interval(way.wish.tolist()),
                "rounds": str(way.rounds),
                "crossed": f"{way.crossed:.2f}",
                "seconds": f"{way.seconds:.2f}",
            }
            for way in ways
        ]
        columns = [Column("way", "way")]
        for i, (split, measure) in enumerate(measures):
            columns.append(Column(f"m{i}", f"{measure}, {describe.SPLIT_NAMES[split]}", numeric=True))
            columns.append(Column(f"d{i}", "difference to retraining", numeric=True, signed=True))
        columns += [
            Column("distance", "distance to retraining", numeric=True),
            Column("cosine", "cosine to retraining", numeric=True),
            Column("influence", "influence that is left", numeric=True),
            Column("wish", "what poisoners want", numeric=True),
            Column("rounds", "rounds", numeric=True),
            Column("crossed", "MB that cross", numeric=True),
            Column("seconds", "seconds", numeric=True),
        ]
        notes = [
            f"{float(study.settings['share']):.0%} of {config.clients:,} devices are forgotten after {config.rounds} "
            f"rounds; {config.seeds} seeds together take the seconds shown, compilation left out.",
            "Distance: of the weights, in mean distances between two retrainings with different seeds.",
            "Influence: how much is left of the way from the retrained model to the one as trained, 1 for all. The "
            "last row shows the effect of chance: no device is forgotten.",
            "What poisoners want: the expected metric of a user who wants the worst documents, on training queries.",
            "± is half of a 95 % Student t interval over seeds.",
        ]
        out.append(Table(case["name"], tuple(columns), tuple(rows), tuple(notes)))
    return tuple(out), {}


def own_ranker_results(study: Study, fraction: float, listener: Listener) -> tuple[tuple[Table, ...], dict[str, Json]]:
    """Quality of the rankers on devices for their users, a table for each case; a row for each method and group.

    The study's ``settings`` hold ``methods``: tables of settings with a ``name``, of which ``protocol`` is one. Each
    runs under each of the study's cases.

    Returns:
        The tables, and no figures.
    """
    base, _, cases = read_sweep(study.path)
    methods = study.settings["methods"]
    out = []
    for case in cases or ({"name": study.title},):
        rows, columns = [], [Column("method", "method"), Column("group", "users")]
        for i, (split, measure) in enumerate(study.measures):
            columns.append(Column(f"m{i}", f"{measure}, {describe.SPLIT_NAMES[split]}", numeric=True))
            columns.append(Column(f"d{i}", f"difference to {methods[0]['name']}", numeric=True, signed=True))
        columns.append(Column("online", "online, last tenth", numeric=True))
        first: dict[tuple[str, tuple[str, str]], Any] = {}
        for method in methods:
            listener.stage(f"{case['name']}: {method['name']}")
            settings = {**base, **{k: v for table in (case, method) for k, v in table.items() if k != "name"}}
            config = from_dict(settings)
            experiment = build(shorten_run(config, fraction) if fraction < 1 else config)
            trained = train(experiment)
            for group, values in worth(experiment, trained).items():
                row: dict[str, Any] = {"method": method["name"], "group": group}
                for i, key in enumerate(study.measures):
                    against = first.setdefault((group, key), values[key])
                    row[f"m{i}"] = mean_interval(values[key].tolist())
                    row[f"d{i}"] = mean_interval((values[key] - against).tolist())
                rows.append({**row, "online": mean_interval(trained.online.tolist())})
        notes = (
            "Each device's ranker is measured under the click model of its user, on all queries; the mean of the "
            "first 20 honest devices of a group. Online: what all users experienced, attackers included.",
            "± is half of a 95 % Student t interval over seeds; differences are taken seed by seed.",
        )
        out.append(Table(str(case["name"]), tuple(columns), tuple(rows), notes))
    listener.done()
    return tuple(out), {}
