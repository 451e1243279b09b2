"""The rankers of a study compared query by query: tests over queries beside intervals over seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from fedrank.core.frame import Frame
from fedrank.core.trees import Json
from fedrank.engine.variations import Variation
from fedrank.report import describe, wording
from fedrank.report.run import Run
from fedrank.report.significance import COMPARED, compare_queries, compared_cells
from fedrank.report.tables import Column, Table
from fedrank_zoo.reproduce.study import Study, named_measure


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
            theirs = paired.pop(reference, {})
            for name, values in paired.items():
                found += [((about, name, *key), compare_queries(values[key], theirs[key])) for key in values]
    if not found:
        return None
    cells = compared_cells([one for _, one in found])
    table = [
        {
            "about": about,
            "name": name,
            "split": describe.SPLIT_NAMES[split],
            "measure": measure,
            "dz": None if one.dz is None else f"{one.dz:+.2f}".replace("-", "−").replace("inf", "∞"),
            **of,
        }
        for ((about, name, split, measure), one), of in zip(found, cells, strict=True)
    ]
    columns = (
        Column("about", "runs"),
        Column("name", "ranker"),
        Column("split", "split"),
        Column("measure", "measure"),
        Column("difference", f"difference to {say_settings(study.against)}", numeric=True, signed=True),
        Column("dz", "effect d", numeric=True),
        *COMPARED,
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
        name = say_settings({key: where[key] for key in study.against if key in where})
        group = groups.setdefault(say_settings(common) or "all", {})
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
    frame = Frame.from_parquet(file.read_bytes())
    wanted = dict.fromkeys(
        (split, named_measure(pattern, variation.config))
        for split, pattern in study.measures
        if split in ("vali", "test", "train") and "(judged)" not in pattern
    )
    unseen = [key for key in wanted if key[0] != "train"] or list(wanted)  # not trained on, where there are such
    out: dict[str, dict[tuple[str, str], dict]] = {}
    for (ranker, split, measure), part in frame.groups("ranker", "split", "measure"):
        if (split, measure) in unseen:
            times: Counter[str] = Counter()
            values = out.setdefault(ranker, {})[split, measure] = {}
            for query, value in part.select(("qid", "value")).tuples():
                values[query, times[query]] = [value]
                times[query] += 1
    return out


def say_settings(where: Mapping[str, Json]) -> str:
    """Settings that vary, for a reader: a value alone where that says what it is of."""
    plain = ("case", "clicks", "ranker", "data")
    return ", ".join(str(v) if k in plain else f"{k} {wording.number(v)}" for k, v in where.items())
