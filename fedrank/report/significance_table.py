"""Tests over queries, corrected for their number: would a difference be there with other queries?

Seeds say whether a difference would be there with other clicks, queries whether it would be there with other queries.
Tables of a study have both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from fedrank.core.trees import Json
from fedrank.engine.study import Study, named_measure
from fedrank.engine.variations import Variation
from fedrank.report import describe
from fedrank.report.run import Run
from fedrank.report.significance import adjust, compare_per_query
from fedrank.report.statistics import Estimate
from fedrank.report.tables import Column, Table


def significance_table(study: Study, runs: Sequence[tuple[Variation, Run]]) -> Table | None:
    """Every ranker against the study's reference and against the label-trained ones, query by query.

    A query's value is the mean over seeds, and over what the study pools (folds) where they share the query.

    Args:
        study: With ``against``, which names the reference.
        runs: Its runs.

    Returns:
        None if no run kept its values by query, or no group has a reference.
    """
    groups = _groups(study, runs)
    found = []
    for about, members in groups.items():
        reference = next((name for name, (is_reference, _) in members.items() if is_reference), None)
        per_query = {name: values for name, (_, values) in members.items() if values}
        if reference in per_query and len(per_query) > 1:
            paired = _pair_queries(per_query, per_query[reference])
            if any(name != reference for name in paired):
                found.extend((about, row) for row in compare_per_query(paired, reference))
    if not found:
        return None
    by_t = _adjust_p_values([row.p_t for _, row in found])
    by_randomisation = _adjust_p_values([row.p_randomisation for _, row in found])
    table = [
        {
            "about": about,
            "name": row.name,
            "split": describe.SPLIT_NAMES[row.split],
            "measure": row.measure,
            "difference": Estimate(
                row.difference, None if row.high is None else row.high - row.difference, row.queries
            ),
            "dz": None if row.dz is None else f"{row.dz:+.2f}".replace("-", "−").replace("inf", "∞"),
            "wins": f"{row.wins}/{row.ties}/{row.losses}",
            "p_t": _p(t),
            "p_r": _p(r),
        }
        for (about, row), t, r in zip(found, by_t, by_randomisation, strict=True)
    ]
    columns = (
        Column("about", "runs"),
        Column("name", "ranker"),
        Column("split", "split"),
        Column("measure", "measure"),
        Column("difference", f"difference to {_said(study.against)}", numeric=True, signed=True),
        Column("dz", "effect d", numeric=True),
        Column("wins", "better/equal/worse", numeric=True),
        Column("p_t", "p, t-test", numeric=True),
        Column("p_r", "p, randomisation", numeric=True),
    )
    notes = (
        "Paired over queries, each the mean over seeds; ± is half of a 95 % t interval over queries.",
        f"p values are corrected for the {len(found)} comparisons of this table (Holm); effect d: mean difference over "
        "its standard deviation.",
    )
    return Table(f"{study.title.split(':')[0]}: would it be so with other queries?", columns, tuple(table), notes)


def _groups(study: Study, runs: Sequence[tuple[Variation, Run]]) -> dict[str, dict[str, tuple[bool, dict]]]:
    """By what runs have in common: ranker -> (is it the reference, (split, measure) -> values by query)."""
    groups: dict[str, dict[str, tuple[bool, dict]]] = {}
    for variation, run in runs:
        where = {key: value for key, value in variation.where.items() if key not in study.pool}
        common = {key: value for key, value in where.items() if key not in study.against}
        is_reference = all(where.get(key) == value for key, value in study.against.items())
        name = _said({key: where[key] for key in study.against if key in where})
        group = groups.setdefault(_said(common) or "all", {})
        for ranker, values in _per_query(study, variation, run).items():
            label = name if ranker == "learnt" else run.shown.baseline_label(ranker)
            if ranker != "learnt" and not is_reference:
                continue  # the same baseline stands beside every run
            old = group.get(label, (False, {}))[1]
            joined = {key: _together(old.get(key, {}), by_query) for key, by_query in values.items()}
            group[label] = (is_reference and ranker == "learnt", {**old, **joined})
    return groups


def _together(old: dict, new: dict) -> dict:
    """Values by query, all of one query in a list: what is pooled may hold a query several times."""
    return {query: [*old.get(query, ()), *new.get(query, ())] for query in (*old, *(q for q in new if q not in old))}


def _pair_queries(per_query: dict[str, dict], reference: dict) -> dict[str, dict[tuple[str, str], np.ndarray]]:
    """Arrays over queries, of each measure the same ones for all rankers that have it.

    A ranker need not have all measures: some are of a search that it does not do. Without any in common with the
    reference it is left out.
    """
    queries = {
        key: [q for q in reference[key] if all(q in values[key] for values in per_query.values() if key in values)]
        for key in reference
    }
    arrays = {
        name: {
            key: np.array([np.mean(values[key][q]) for q in qs]) for key, qs in queries.items() if qs and key in values
        }
        for name, values in per_query.items()
    }
    return {name: values for name, values in arrays.items() if values}


def _per_query(study: Study, variation: Variation, run: Run) -> dict[str, dict[tuple[str, str], dict]]:
    """Ranker -> (split, measure) -> (query, how often it has come) -> its value, in a list."""
    file = run.path / "per_query.parquet"
    if not file.exists():
        return {}
    frame = pl.read_parquet(file)
    wanted = dict.fromkeys(
        (split, named_measure(pattern, variation.config))
        for split, pattern in study.measures
        if split in ("vali", "test", "train") and "(judged)" not in pattern
    )
    unseen = [key for key in wanted if key[0] != "train"] or list(wanted)  # not trained on, where there are such
    out: dict[str, dict[tuple[str, str], dict]] = {}
    for (ranker, split, measure), part in frame.group_by("ranker", "split", "measure", maintain_order=True):
        if (split, measure) in unseen:
            counts = part.with_columns(pl.int_range(pl.len()).over("qid").alias("time"))
            rows = counts.select("qid", "time", "value").iter_rows()
            out.setdefault(str(ranker), {})[str(split), str(measure)] = {(q, n): [v] for q, n, v in rows}
    return out


def _adjust_p_values(values: Sequence[float | None]) -> list[float | None]:
    tested = [i for i, value in enumerate(values) if value is not None]
    adjusted = dict(zip(tested, adjust([values[i] for i in tested]).tolist(), strict=True))  # type: ignore[misc]
    return [adjusted.get(i) for i in range(len(values))]


def _p(value: float | None) -> str:
    if value is None:
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _said(where: dict[str, Json]) -> str:
    plain = ("case", "clicks", "ranker", "data")
    return ", ".join(str(v) if k in plain else f"{k} {describe.number(v)}" for k, v in where.items())
