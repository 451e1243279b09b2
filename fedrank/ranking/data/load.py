"""Load a data set by name or path.

A set is looked for in this order: a path that the user gives; the cache folder (``FEDRANK_DATA``, or the
platform's cache folder). Downloads happen only when asked for (:mod:`fedrank.data.fetch`). The name
``generated`` needs no files.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from fedrank.core.errors import ConfigError, MissingDataError, UnknownNameError
from fedrank.data.catalogue import CATALOGUE, DataSet
from fedrank.data.checksums import verify
from fedrank.data.folders import Located, group_sizes, locate, stem
from fedrank.data.places import GENERATED, find, how_to_get
from fedrank.ranking.data.generate import generated
from fedrank.ranking.data.letor import read_parts
from fedrank.ranking.data.normalise import HOWS, in_unit_range
from fedrank.ranking.data.normalise import normalise as normalise_queries
from fedrank.ranking.data.queries import concatenate
from fedrank.ranking.data.splits import Splits as Splits


def load(
    spec: str | os.PathLike[str],
    *,
    fold: int = 1,
    normalise: str = "auto",
    seed: int = 0,
    folder: str | os.PathLike[str] | None = None,
    max_label: int | None = None,
) -> Splits:
    """A data set's training, validation and test queries.

    Args:
        spec: A name of the catalogue, ``generated``, or a path: of one file, of a folder with train, vali and
            test, or of a folder with the parts S1 .. S5 or the folders Fold1 .. Fold5. A name of the
            catalogue wins over a path: write ``./mq2008`` for a folder of that name.
        fold: 1 .. 5; must be 1 where there are no folds.
        normalise: ``auto``, ``query-minmax`` or ``none``; see :func:`fedrank.ranking.data.normalise.normalise`. All
            parts are treated alike.
        seed: Seed of the generated set; of no meaning for others.
        folder: Where to look for a named set instead of the cache folder: the set's own folder or one that
            holds it.
        max_label: Largest label that is of use, for files that the catalogue does not know; a larger one is an error
            with its line.

    Returns:
        The splits. ``vali`` and ``test`` are None where their files are absent; ``notes`` says so.

    Raises:
        MissingDataError: The set, or a part needed to train, is not here; says where it was looked for and
        how to get it. ChecksumError: A file of a named set is not the published one.
        FormatError: A line of a file cannot be used.
        UnknownNameError: Neither a known name nor a path.
        ConfigError: A setting is out of range.
    """
    if normalise not in HOWS:
        raise UnknownNameError("normalisation", normalise, HOWS)
    name = os.fspath(spec)
    if name.lower() == GENERATED:
        if fold != 1:
            raise ConfigError(f"the generated set has no folds; fold must be 1, got {fold}. Change the seed instead.")
        splits = generated(seed)
    elif name.lower() in CATALOGUE:
        splits = _load_named(name.lower(), fold, None if folder is None else Path(folder))
    else:
        splits = _load_path(name, fold, max_label)
    return _normalise(splits, normalise)


def _load_named(name: str, fold: int, folder: Path | None) -> Splits:
    entry = CATALOGUE.entry(name)
    dataset = entry.obj
    if not 1 <= fold <= dataset.folds:
        raise ConfigError(f"fold of {name} must be in 1..{dataset.folds}, got {fold}.")
    place = find(dataset, folder)
    try:
        located = locate(place, fold, dataset.prefix)
    except MissingDataError as cause:  # some of it is here
        raise MissingDataError(f"{cause}\n{how_to_get(dataset)}") from cause
    known = {
        (split, part): verify(path, dataset.checksums_of(part, fold))
        for split, files in located.files.items()
        for part, path in files.items()
    }
    unproved = dict.fromkeys(part for (_, part), proved in known.items() if not proved)
    notes = (f"No checksum is known for {', '.join(unproved)}; what was read was not verified.",) if unproved else ()
    splits = _read(located, f"{name}/fold{fold}" if dataset.folds > 1 else name, dataset)
    return replace(splits, citation=entry.citation, notes=splits.notes + notes)


def _load_path(spec: str, fold: int, max_label: int | None) -> Splits:
    path = Path(spec).expanduser()
    if path.is_file():
        if fold != 1:
            raise ConfigError(f"{path} is one file and has no folds; fold must be 1, got {fold}.")
        note = "One file, all of it for training: there is no validation and no test part."
        return _read(Located({"train": {"train": path}}, None, (note,)), stem(path), max_label=max_label)
    if path.is_dir():
        located = locate(path, fold)
        base = path.resolve().name
        return _read(located, base if located.fold is None else f"{base}/fold{located.fold}", max_label=max_label)
    if os.sep in spec or "/" in spec or path.suffix or spec.startswith(("~", ".")):
        raise MissingDataError("there is no such file or folder.", path)
    raise UnknownNameError("data set or path", spec, [GENERATED, *CATALOGUE.names()])


def _read(located: Located, name: str, dataset: DataSet | None = None, max_label: int | None = None) -> Splits:
    """Read all files together, so that all parts agree on their features."""
    places = [(split, part, path) for split, files in located.files.items() for part, path in files.items()]
    parts = read_parts(
        [path for _, _, path in places],
        n_features=None if dataset is None else dataset.features,
        max_label=max_label if dataset is None else dataset.grades - 1,
        groups=[group_sizes(path) for _, _, path in places],
        names=[str(path) for _, _, path in places],
    )
    joined = {
        split: concatenate(
            [queries for (owner, _, _), queries in zip(places, parts, strict=True) if owner == split],
            f"{name}/{split}",
        )
        for split in located.files
    }
    return Splits(joined["train"], joined.get("vali"), joined.get("test"), name, notes=located.notes)


def _normalise(splits: Splits, how: str) -> Splits:
    """All parts alike: one feature outside [0, 1] in one part changes all of them."""
    if how == "auto":
        how = "none" if all(in_unit_range(queries) for queries in splits.parts().values()) else "query-minmax"
    if how == "none":
        return splits
    changed = splits.map(lambda queries: normalise_queries(queries, how))
    return replace(changed, notes=(*splits.notes, "Features were normalised to [0, 1] within each query."))
