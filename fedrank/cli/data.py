"""``fedrank data``: which data sets there are, how to get them, and whether a file is in order.

:class:`LabelledColumns` are the flags that say what the columns of a table of silos mean.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import cyclopts

from fedrank.cli.terminal import AsJson, print_json, say
from fedrank.cli.terminal import table as drawn
from fedrank.core.fields import setting
from fedrank.core.trees import Json
from fedrank.ranking.logs.columns import LogFormat

app = cyclopts.App(name="data", help="List, describe, download and check data sets; models of how people click.")
app.command("fedrank.cli.clicks:app", name="clicks", help="List the simulated users; make up a click log.")

_GENERATED = {
    "name": "generated",
    "title": "Generated set",
    "summary": "Made up by a program; needs no files. Its numbers say nothing about real data.",
    "here": True,
}

_FACTS = ("silos", "rows", "queries", "documents", "features", "grades", "judged", "judgements")

_KINDS = ("ranking", "silos", "texts")

#: Characters of a line of a paragraph; an address that is longer stays whole.
_LINE = 79
#: Files of these kinds are tables of silos; ranking sets come as LETOR text.
_TABLES = (".csv", ".tsv", ".parquet", ".pq")


@dataclass(frozen=True, kw_only=True)
class LabelledColumns:
    """The meaning of the columns of a table with a label."""

    silo: str = setting("silo", "Column that says whose row it is.")
    drop: tuple[str, ...] = setting((), "Columns that are no features, such as an id.")
    categorical: tuple[str, ...] = setting((), "Columns of numbers that are names, one feature a value.")
    missing: tuple[str, ...] = setting((), "Values that mean a missing one, such as −9 or 999.")
    label: str = setting("label", "Column with the label.")
    positive: str | None = setting(None, "Value of the label that counts as 1.")


def table_of(data: str, columns: LabelledColumns, **more: Any) -> Any:
    """The silos of a file or of a set's name; gaps stay gaps.

    Args:
        data: The file, or the name of a set.
        columns: What its columns mean.
        more: Further settings of :func:`fedrank.data.load`.

    Raises:
        FedrankError: There is no such data, or no such column.
    """
    from fedrank.data import load

    return load(data, "silos", gaps="impute", **asdict(columns), **more)


@app.command(name="list")
def list_(*, as_json: AsJson = False) -> None:
    """List the data sets that are known by name, and which of them are on this machine."""
    from fedrank.data.catalogue import CATALOGUE, is_described, list_data_sets
    from fedrank.data.folders import place_of

    rows: list[dict[str, Json]] = [
        {
            "name": entry.name,
            "kind": kind,
            "title": entry.obj.title,
            "summary": entry.summary,
            **{fact: getattr(entry.obj, fact) for fact in _FACTS},
            "here": place_of(entry.obj) is not None,
            "home": entry.obj.home,
            "terms": entry.obj.terms,
            "get": _how_to_get(entry.obj),
        }
        for kind in _KINDS
        for entry in list_data_sets(kind)
    ]
    installed = [
        {"name": entry.name, "kind": "", "title": entry.name, "summary": entry.summary, "here": True}
        for entry in CATALOGUE
        if not is_described(entry.obj)
    ]
    if as_json:
        print_json([*rows, *installed, _GENERATED])
        return
    for kind in _KINDS:
        of_kind = [row for row in rows if row["kind"] == kind] + ([_GENERATED] if kind == "ranking" else [])
        table = drawn("name", "what there is", "here", whole=("name",), title=kind)
        for row in of_kind:
            shape = "" if row is _GENERATED else _shape(CATALOGUE.entry(row["name"]).obj)
            table.add_row(row["name"], shape, "yes" if row["here"] else "no")
        say(table, *(_what_it_is(row) for row in of_kind), "")
    say(*(f"{row['name']}: {row['summary']}" for row in installed))


@app.command
def show(name: str, /, *, as_json: AsJson = False) -> None:
    """Describe a data set: home, terms, shape, traps, citation.

    Args:
        name: A name from ``fedrank data list``.
    """
    from fedrank.core.registry import bibtex
    from fedrank.data.folders import place_of

    if name.lower() == _GENERATED["name"]:
        print_json(_GENERATED) if as_json else say(f"{_GENERATED['title']}: {_GENERATED['summary']}")
        return
    entry = _entry(name)
    place = place_of(entry.obj)
    if as_json:
        facts = {**asdict(entry.obj), "kind": entry.obj.kind, "summary": entry.summary, "citation": entry.citation}
        print_json({**facts, "here": None if place is None else str(place)})
        return
    dataset = entry.obj
    table = drawn("", dataset.title)
    for what, text in (
        ("what it is", entry.summary),
        ("home", dataset.home),
        ("terms", dataset.terms),
        ("shape", _shape(dataset)),
        ("files proved by", f"{len(dataset.checksums)} checksums" if dataset.checksums else "no checksum is known"),
        *(("note", note) for note in dataset.notes),
        ("here", f"no; get it: {_how_to_get(dataset)}" if place is None else str(place)),
    ):
        table.add_row(what, text)
    say(table)
    if entry.citation:
        say(bibtex([entry.citation]))


@app.command
def get(name: str, /, *, as_json: AsJson = False) -> None:
    """Download a data set from its own home, check it, and unpack it into the cache folder.

    Args:
        name: A name from ``fedrank data list``.
    """
    import sys

    from fedrank.data.fetch import fetch

    if name.lower() == _GENERATED["name"]:
        print_json(_GENERATED) if as_json else say("The generated set needs no download.")
        return
    entry = _entry(name)
    if not as_json:
        say(f"{entry.obj.title}. Terms: {entry.obj.terms}")
    place = fetch(entry.obj, progress=sys.stderr.isatty() and not as_json)
    print_json({"name": entry.name, "folder": str(place)}) if as_json else say(f"It is in {place}.")


@app.command
def check(
    spec: str,
    /,
    *,
    fold: int = 1,
    folder: Path | None = None,
    meaning: Annotated[LabelledColumns, cyclopts.Parameter(name="*")] = LabelledColumns(),
    format: Annotated[LogFormat, cyclopts.Parameter(name="format")] = LogFormat(),
    as_json: AsJson = False,
) -> None:
    """Read a data set from end to end and say what is in it; stops at the first fault with its file and line.

    Args:
        spec: A path, a name from ``fedrank data list``, or ``generated``. A table with the columns query, document and
            click, or a folder of User Behavior Insights, is a click log; another .csv, .tsv or .parquet file is a table
            of silos; another .jsonl file, or a folder with documents.jsonl or corpus.jsonl, is a text collection.
        fold: Which fold of a ranking set, 1 to 5.
        folder: Where to look for a named set instead of the cache folder.
        meaning: What the columns of a table mean.
        format: Meaning of a click log's columns.
    """
    from fedrank.data import load

    kind, words = _kind(spec, format), ""
    told: dict[str, Any]
    columns: Mapping[str, Mapping[str, Json]]  # statistics by the column in which they stand
    if kind == "log":
        from fedrank.ranking.logs.read import read_log

        log = read_log(spec, format)
        notes = [f"No feature: {one}." for one in log.odd_features(are=False)]
        notes += [f"Feature {one}." for one in log.odd_features(are=True)]
        notes += [f"Left out: {count:,} {why}." for why, count in log.left_out.items() if count]
        name, facts = Path(spec).name, log.facts()
        told, columns = {"name": name, "kind": kind, **facts, "feature_names": log.names}, {name: facts}
        words = f"Features: {', '.join(log.names) or 'none'}."
    elif kind == "texts":
        from fedrank.texts.data.corpus import corpus_of

        corpus = corpus_of(load(spec, kind, folder=folder))
        notes, facts = corpus.notes, _text_statistics(corpus)
        told, columns = {"name": corpus.name, "kind": kind, **facts}, {corpus.name: facts}
    elif kind == "silos":
        table = load(spec, kind, folder=folder, fewest=1, **asdict(meaning))
        notes, columns = table.notes, {silo.name: _silo_statistics(silo, table.feature_names) for silo in table.silos}
        about = {"label": table.label, "features": table.feature_names}
        told = {"name": table.name, "kind": kind, **about, "silos": columns}
        words = f"Label 1: {table.label}. Features, {table.n_features}: {', '.join(table.feature_names)}."
    else:
        from fedrank.ranking.clicks.cascade import MAX_GRADES
        from fedrank.ranking.data.splits import in_unit_range

        # What can be trained on.
        splits = load(spec, kind, folder=folder, fold=fold, normalise="none", max_label=MAX_GRADES - 1)
        notes, columns = splits.notes, {part: _statistics(queries) for part, queries in splits.parts().items()}
        inside = all(in_unit_range(queries) for queries in splits.parts().values())
        told = {"name": splits.name, "parts": columns, "normalise": "none" if inside else "query-minmax"}
        told["warnings"] = splits.label_warnings
        words = "Normalisation: " + (
            "none needed, all features lie in [0, 1]."
            if inside
            else "query-minmax (the default): features lie outside [0, 1]."
        )
    if as_json:
        print_json({**told, "notes": list(notes)})
        return
    shown = drawn("" if told["name"] in columns else told["name"], *columns)
    for what in next(iter(columns.values())):
        shown.add_row(what, *(_cell(values[what]) for values in columns.values()))
    warnings = [f"Warning: {warning}." for warning in told.get("warnings", ())]
    say(shown, *filter(None, (words,)), *(f"Note: {note}" for note in notes), *warnings)


def _kind(spec: str, form: LogFormat) -> str:
    """The kind of data that a name or a path stands for."""
    from fedrank.core.lazy import is_installed
    from fedrank.data.catalogue import CATALOGUE, is_described
    from fedrank.ranking.logs.read import is_log
    from fedrank.texts.data.reader import is_text_path

    if spec.lower() in CATALOGUE:
        dataset = CATALOGUE.get(spec.lower())
        return dataset.kind if is_described(dataset) else "ranking"
    if is_installed("polars") and is_log(Path(spec).expanduser(), form):
        return "log"
    if is_text_path(Path(spec).expanduser()):
        return "texts"
    return "silos" if set(Path(spec.lower()).suffixes) & set(_TABLES) else "ranking"


def _entry(name: str) -> Any:
    """A data set that the catalogue describes, by name."""
    from fedrank.core.errors import ConfigError
    from fedrank.data.catalogue import CATALOGUE, is_described

    entry = CATALOGUE.entry(name.lower())
    if not is_described(entry.obj):
        raise ConfigError(f"{name!r} is made by an installed package: {entry.summary}")
    return entry


def _how_to_get(dataset: Any) -> str:
    """The command that downloads a data set, or what to do by hand."""
    return f"fedrank data get {dataset.name}" if dataset.downloads else dataset.by_hand


def _what_it_is(row: dict[str, Json]) -> str:
    """The paragraph of ``list`` about a data set; of one that is not here, its terms and how to get it, too."""
    about = [f"{row['name']}: {row['summary']}"]
    if not row["here"]:
        about.append(f"Terms: {row['terms']}")
        by_hand = not row["get"].startswith("fedrank ")
        about += [f"By hand: {row['get']}", f"Home: {row['home']}"] if by_hand else [f"Get it: {row['get']}"]
    return textwrap.fill(
        " ".join(about), _LINE, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def _shape(dataset: Any) -> str:
    if dataset.kind == "silos":
        return f"{dataset.silos} silos, {dataset.rows:,} rows, {dataset.features} features, labels 0 and 1"
    if dataset.kind == "texts":
        return (
            f"{dataset.documents:,} documents, {dataset.queries:,} queries, {dataset.judged:,} of them with a relevant "
            f"document, {dataset.judgements:,} judged pairs, grades 0 to {dataset.grades - 1}"
        )
    return (
        f"{dataset.queries:,} queries, {dataset.documents:,} documents, {dataset.features} features, "
        f"labels 0 to {dataset.grades - 1}, {'5 folds' if dataset.folds > 1 else 'one division'}"
    )


def _text_statistics(corpus: Any) -> dict[str, Json]:
    """The statistics of ``check`` on a text collection; words without stop words, stemmed."""
    import numpy as np

    grades = np.bincount(corpus.grades, minlength=1)
    titled = int((corpus.lengths[:, 1] > 0).sum())
    words = np.median(corpus.lengths, axis=0)
    return {
        "documents": corpus.n_documents,
        "documents with a title": titled,
        "words of a body, median": float(words[0]),
        "words of a title, median": float(words[1]),
        "different words": len(corpus.vocabulary),
        "queries": corpus.n_queries,
        "queries without a relevant document": corpus.n_queries - len(corpus.answerable_queries()),
        "judged pairs": len(corpus.grades),
        "grades": {str(grade): int(count) for grade, count in enumerate(grades)},
    }


def _silo_statistics(silo: Any, names: tuple[str, ...]) -> dict[str, Json]:
    """The statistics of ``check`` on one silo."""
    import numpy as np

    missing = np.isnan(silo.features)
    low, high = np.fmin.reduce(silo.features), np.fmax.reduce(silo.features)
    return {
        "rows": silo.n_rows,
        "label 1": silo.positive,
        "share of label 1": round(silo.positive / max(silo.n_rows, 1), 3),
        "rows with a gap": int(missing.any(axis=1).sum()),
        "constant or missing features": [name for name, a, b in zip(names, low, high, strict=True) if not b > a],
    }


def _statistics(queries: Any) -> dict[str, Json]:
    """The statistics of ``check`` on one part."""
    import numpy as np

    low, high = queries.features.min(axis=0), queries.features.max(axis=0)
    labels = np.bincount(queries.labels)
    return {
        "queries": queries.n_queries,
        "queries without a relevant document": int((~queries.has_relevant).sum()),
        "documents": queries.n_documents,
        "documents a query, fewest": int(queries.lengths.min()),
        "documents a query, most": queries.longest,
        "labels": {str(label): int(count) for label, count in enumerate(labels)},
        "features": queries.n_features,
        "constant features": [int(column) + 1 for column in np.flatnonzero(low == high)],
        "lowest feature value": float(low.min()),
        "highest feature value": float(high.max()),
    }


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {count:,}" for key, count in value.items())
    if isinstance(value, list):
        shown = ", ".join(map(str, value[:10]))
        return f"{shown}, … ({len(value)})" if len(value) > 10 else shown or "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
