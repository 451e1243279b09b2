"""``fedrank rank``, ``evaluate``, ``export``: trained models at work, from a run's folder or from a file.

``fedrank learn-from-log``: a ranker from a team's click log, and what it would have been worth.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from fedrank.cli.terminal import AsJson, headline, print_json, say, table
from fedrank.core.errors import ConfigError
from fedrank.ranking.logs.columns import LogFormat


def rank(
    model: Path,
    data: str,
    /,
    *,
    out: Path | None = None,
    part: str | None = None,
    fold: int | None = None,
    depth: int | None = None,
    name: str = "fedrank",
    seed: int | None = None,
    party: str | None = None,
) -> None:
    """Rank the documents of queries with a trained model: a TREC run, which every evaluation tool reads.

    A line is: query, Q0, document, rank, score, name of the run. Documents have the names of the data (#docid = NAME
    in LETOR's comments); one without is named after its query and its place in it, from 1, as in q7-3. A model of texts
    ranks what BM25 finds in a collection.

    Args:
        model: A run's folder, or a model's file.
        data: A LETOR file or a folder of such; of texts a folder with documents.jsonl and queries.jsonl, as BEIR has
            it; or a name of the catalogue (fedrank data list).
        out: Write to this file; by default to the standard output.
        part: Of rankers: part of the data: train, vali or test; by default test if the data has it, else all.
        fold: Of rankers: fold of a set that has folds.
        depth: Of texts: documents that BM25 finds for a query, and the model ranks; by default 30.
        name: Name of the run, the last word of each line.
        seed: Of a run's folder: the model's seed; by default the first.
        party: The party whose model it is, where each has its own or prepares inputs in its own way.
    """
    loaded = _load(model, seed, party)
    lines = loaded.trec_run(data, **_given(loaded.trec_run, loaded, name=name, part=part, fold=fold, depth=depth))
    if out is None:
        for line in lines:
            sys.stdout.write(f"{line}\n")
        return
    from fedrank.engine.model import write_file

    write_file(out, "".join(f"{line}\n" for line in lines).encode())


def evaluate(
    model: Path,
    data: str,
    /,
    *,
    measures: list[str] | None = None,
    fold: int | None = None,
    depth: int | None = None,
    label: str | None = None,
    positive: str | None = None,
    silo: str | None = None,
    seed: int | None = None,
    party: str | None = None,
    as_json: AsJson = False,
) -> None:
    """Measure what a trained model is worth on labelled data.

    Args:
        model: A run's folder, or a model's file.
        data: A file or a folder with labels, or a name of the catalogue (fedrank data list).
        measures: Of rankers and texts: measures by the names of ir-measures, such as nDCG(dcg='exp-log2')@10 (gain
            2^label - 1), nDCG@10 (gain label), P@5, R@10 or RR@10.
        fold: Of rankers: fold of a set that has folds.
        depth: Of texts: documents that BM25 finds for a query, and the model ranks; by default 30.
        label: Of tables: column of the label; by default that of the training data.
        positive: Of tables: the value of the label that counts as 1; by default that of the training data.
        silo: Of tables: column that names the silo of each row, so that each is measured by itself, too.
        seed: Of a run's folder: the model's seed; by default the first.
        party: The party whose model it is, where each has its own or prepares inputs in its own way.
    """
    loaded = _load(model, seed, party)
    flags = {"measures": measures, "fold": fold, "depth": depth, "label": label, "positive": positive, "silo": silo}
    found = loaded.evaluate(data, **_given(loaded.evaluate, loaded, **flags))
    if as_json:
        print_json(found)
        return
    names = list(dict.fromkeys(name for values in found.values() for name in values))
    drawn = table("part", *names, numbers=names)
    for part, values in found.items():
        drawn.add_row(part, *(f"{values[name]:.4g}" if name in values else "" for name in names))
    say(drawn)


def export(
    model: Path,
    out: Path,
    /,
    *,
    to: Literal["elasticsearch-ltr", "opensearch-ltr", "vespa-onnx"] | None = None,
    seed: int | None = None,
    party: str | None = None,
) -> None:
    """Write a trained model for other libraries or a search engine.

    Without --to it is ONNX, or safetensors with everything that scoring needs, as the file's name says.

    Args:
        model: A run's folder, or a model's file.
        out: The file to write: name.onnx (needs the extra onnx) or name.safetensors; of the Learning to Rank plugins
            name.json, the body of a request.
        to: Of rankers: the engine's form. What it cannot express is refused.
        seed: Of a run's folder: the model's seed; by default the first.
        party: The party whose model it is, where each has its own or prepares inputs in its own way.
    """
    loaded = _load(model, seed, party)
    if to is not None:
        from fedrank.ranking.engines import export_for_engine

        for path in export_for_engine(loaded, out, to):
            print(f"wrote {path}")
        return
    writes = {".onnx": "to_onnx", ".safetensors": "save"}
    if out.suffix not in writes:
        raise ConfigError(
            f"{out}: the name must end in {' or '.join(writes)}, which says what is written; for a search engine say "
            "which: --to elasticsearch-ltr, opensearch-ltr or vespa-onnx."
        )
    getattr(loaded, writes[out.suffix])(out)


def _load(path: Path, seed: int | None, party: str | None) -> Any:
    from fedrank.api.training import load

    return load(path, seed=seed, party=party)


def _given(method: Any, model: Any, **flags: Any) -> dict[str, Any]:
    """The flags that were given, as arguments of a model's method.

    Raises:
        ConfigError: The method has no such argument.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    known = inspect.signature(method).parameters
    if any(one.kind is one.VAR_KEYWORD for one in known.values()):  # it takes none of them, and says why itself
        return given
    if unknown := [name for name in given if name not in known]:
        raise ConfigError(f"{unknown[0]}: means nothing to a {type(model).__name__}; leave --{unknown[0]} out.")
    return given


def learn_from_log(
    log: Path,
    /,
    *,
    out: Path | None = None,
    page: Path | None = None,
    features: Path | None = None,
    ranker: Literal["linear", "mlp"] = "linear",
    position_bias: Literal["estimate", "given", "none"] = "estimate",
    normalise: Literal["auto", "none", "standard", "min-max", "log"] = "auto",
    measure: Literal["DCG@10", "clicks"] = "DCG@10",
    held_out: float = 0.25,
    compare: bool = True,
    format: Annotated[LogFormat, Parameter(name="format")] = LogFormat(),
    seed: int = 0,
    as_json: AsJson = False,
) -> None:
    """Learn a ranker from a click log, freed of position bias, and judge it by searches that it has not seen.

    The log has a row for each result that was shown: query, document, position, click, and the features that the
    document had then. It is CSV, TSV, Parquet or JSON lines; or a folder of User Behavior Insights (ubi_queries and
    ubi_events as JSON lines). The page "From a click log to a ranker in your search engine" goes the whole way.

    Args:
        log: The file or the folder.
        out: Write the ranker to this file, such as ranker.safetensors; fedrank export makes other forms of it.
        page: Also write a page with a figure there, such as ranker.html.
        features: Table of features beside the log, with columns query (or session) and document.
        ranker: Ranker to learn.
        position_bias: estimate: from results that stood at several positions; given: the column of propensities; none:
            take clicks as they are.
        normalise: Constants of the log that features are normalised by; auto: standard, unless all lie in [0, 1].
        measure: What rankings are judged by: DCG@10 with attraction as the gain, or clicks a search.
        held_out: Share of the queries that rankings are judged by.
        compare: Also judge the other ranker, weights by propensity alone, the best single feature, and LightGBM with
            positions where it is installed.
        format: Meaning of the log's columns.
        seed: Of the draw of held-out queries.
    """
    from fedrank.ranking.logs import learn as report
    from fedrank.ranking.logs.learn import learn_from_log as learn

    found = learn(
        log, ranker=ranker, position_bias=position_bias, normalise=normalise, measure=measure, held_out=held_out,
        form=format, features=features, compare=compare, seed=seed,
    )  # fmt: skip
    if out is not None:
        found.model.save(out)
    sentence = str(report.log_opening(found).sentence)
    if page is not None:
        report.write_page(found, page, log.name)
    if as_json:
        print_json({"sentence": sentence, **found.as_json()})
        return
    say(headline(sentence))
    drawn = table("ranking", measure, "against logged", "", "clicks", whole=("ranking", measure, "against logged"))
    for row in found.rows:
        against = _with_half(row.gain, "+") if row.verdict else ""
        drawn.add_row(
            row.name, _with_half(row.worth.estimates["dr"]), against, row.verdict, f"{row.worth.effective_clicks:,.0f}"
        )
    bias = table("position", *(str(k) for k in range(1, len(found.bias.theta)) if found.bias.usable[k]))
    usable = found.bias.usable
    bias.add_row("looked at", *(f"{value:.3f}" for value in found.bias.theta[usable]))
    bias.add_row("± of its logarithm", *(f"{value:.3f}" for value in found.bias.error[usable]))
    say(drawn)
    say(
        f"Doubly robust estimates with 95 % intervals, from {found.held_out:,} searches for queries that nothing was "
        f"learnt from ({found.learnt:,} were learnt from); clicks: effective number behind an estimate.",
        bias,
        *report.column_words(found),
        *(f"Left out: {count:,} {why}." for why, count in found.left_out.items()),
        *(f"Warning: {warning}" for warning in found.warnings),
    )
    written = () if out is None else (f"wrote {out}: fedrank export {out} model.json --to elasticsearch-ltr",)
    say(*written, page=page)


def _with_half(estimate: Any, sign: str = "") -> str:
    """An estimate with half the width of its interval."""
    return f"{estimate.value:{sign}.4f} ± {(estimate.high - estimate.low) / 2:.4f}"
