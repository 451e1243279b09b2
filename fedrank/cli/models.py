"""``fedrank rank``, ``evaluate``, ``export``: trained models at work, from a run's folder or from a file."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any, Literal

from fedrank.cli.terminal import AsJson, print_json, say, table
from fedrank.core.errors import ConfigError


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
        raise ConfigError(f"{out}: the name must end in {' or '.join(writes)}, which says what is written.")
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
