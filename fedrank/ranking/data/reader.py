"""Ranking data in every form that :func:`fedrank.data.load` takes: names, LETOR files and folders, frames, arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from fedrank.core.errors import ConfigError, DataError, MissingDataError, UnknownNameError
from fedrank.core.frame import Frame, missing_in
from fedrank.core.registry import Entry
from fedrank.data.catalogue import CATALOGUE, PARTS, DataSet, is_described
from fedrank.data.checksums import verify
from fedrank.data.folders import Located, find, group_sizes, how_to_get, locate, place_of, stem
from fedrank.data.frames import DOCUMENT, LABEL, QUERY, as_array, as_frame, column, features_of, ids_of, with_columns
from fedrank.data.sources import Reader
from fedrank.ranking.data.generate import generate_queries
from fedrank.ranking.data.letor import read_parts
from fedrank.ranking.data.normalise import CONSTANT, HOWS, fit_constants, in_unit_range
from fedrank.ranking.data.normalise import normalise as normalise_queries
from fedrank.ranking.data.queries import QuerySet, concatenate
from fedrank.ranking.data.splits import Splits

_PARTS = ("train", "vali", "test")
_OWN = "own data"
_ALL_TRAIN = "All queries are for training: there is no validation and no test part."


@dataclass(frozen=True, kw_only=True)
class QueryReader(Reader[Splits]):
    """Reads training, validation and test queries.

    ``vali`` and ``test`` of the splits are None where there are none; ``notes`` says so. Splits and query sets that
    are handed over are taken as they are: nothing is normalised and nothing held out.

    Attributes:
        fold: 1 .. 5; must be 1 where there are no folds.
        normalise: ``auto``, ``query-minmax`` or ``none`` (:func:`fedrank.ranking.data.normalise.normalise`), or
            constants of the training part: ``standard``, ``min-max``, ``log``
            (:func:`fedrank.ranking.data.normalise.fit_constants`). All parts are treated alike.
        seed: Seed of the generated set, and of the draw of queries that are held out.
        holdout: Share of the training queries that become the test part, in [0, 1), where the data has none.
        divide: Seed by which all queries at hand are divided in five by lot; ``fold`` says which fifth is tested.
        max_label: Largest label that is of use, for data that the catalogue does not know; a larger one is an error.
        query: Column of a data frame with the query of a row's document. Rows of a query stand together.
        label: Column of a data frame with the label.
        labelled: Whether a data frame must have that column; without it all labels are 0.
        document: Column of a data frame with the documents' names, if it has such a column.
        drop: Columns of a data frame to leave out.

    Raises:
        UnknownNameError: There is no such normalisation.
    """

    kind: ClassVar[str] = "ranking"
    called: ClassVar[str] = "data set"
    arrays_form: ClassVar[str] = "(features, labels, query ids), or such tuples under 'train', 'vali' and 'test'"

    fold: int = 1
    normalise: str = "auto"
    seed: int = 0
    holdout: float = 0.0
    divide: int | None = None
    max_label: int | None = None
    query: str = QUERY
    label: str = LABEL
    labelled: bool = True
    document: str = DOCUMENT
    drop: tuple[str, ...] = ()

    def __post_init__(self):
        if self.normalise not in HOWS + CONSTANT:
            raise UnknownNameError("normalisation", self.normalise, HOWS + CONSTANT)

    @override
    def loaded(self, source: Any) -> Splits | None:
        if isinstance(source, QuerySet):
            return Splits(source, None, None, source.name or _OWN, generated=source.generated)
        return source if isinstance(source, Splits) else None

    @override
    def generated(self) -> Splits:
        if self.fold != 1 and self.divide is None:
            raise ConfigError(
                f"the generated set has no folds; fold must be 1, got {self.fold}. Change the seed instead."
            )
        return self._normalise_and_hold_out(generate_queries(self.seed))

    @override
    def named(self, entry: Entry[DataSet], folder: Path | None) -> Splits:
        dataset, name = entry.obj, entry.name
        fold = self.fold if self.divide is None else folds_here(name, folder)[0]
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
        notes = (
            (f"No checksum is known for {', '.join(unproved)}; what was read was not verified.",) if unproved else ()
        )
        splits = _read(located, f"{name}/fold{fold}" if dataset.folds > 1 else name, dataset.grades - 1, dataset)
        splits = replace(splits, grades=dataset.grades, citation=entry.citation, notes=splits.notes + notes)
        return self._normalise_and_hold_out(splits)

    @override
    def path(self, path: Path) -> Splits:
        if path.is_dir():
            located = locate(path, self.fold if self.divide is None else folds_here(str(path))[0])
            base = path.resolve().name
            name = base if located.fold is None else f"{base}/fold{located.fold}"
            return self._normalise_and_hold_out(_read(located, name, self.max_label))
        if self.fold != 1 and self.divide is None:
            raise ConfigError(f"{path} is one file and has no folds; fold must be 1, got {self.fold}.")
        note = "One file, all of it for training: there is no validation and no test part."
        located = Located({"train": {"train": path}}, None, (note,))
        return self._normalise_and_hold_out(_read(located, stem(path), self.max_label))

    @override
    def frame(self, frame: Frame) -> Splits:
        queries, names = self._frame(frame, _OWN)
        return self._normalise_and_hold_out(Splits(queries, None, None, _OWN, notes=(_ALL_TRAIN,), feature_names=names))

    @override
    def arrays(self, arrays: tuple[Any, ...] | Mapping[str, Any]) -> Splits:
        if isinstance(arrays, tuple):
            queries, names = self._part(arrays, _OWN)
            return self._normalise_and_hold_out(
                Splits(queries, None, None, _OWN, notes=(_ALL_TRAIN,), feature_names=names)
            )
        if "train" not in arrays or not set(arrays) <= set(_PARTS):
            raise DataError(
                f"a mapping of ranking data must have 'train' and may have 'vali' and 'test', got "
                f"{', '.join(map(repr, arrays)) or 'an empty one'}. Make a data frame of a mapping of columns."
            )
        parts: dict[str, QuerySet | None] = dict.fromkeys(_PARTS)
        named: dict[str, tuple[str, ...]] = {}
        for part, source in arrays.items():
            parts[part], names = self._part(source, f"{_OWN}/{part}")
            named |= {part: names} if names else {}
        first = next(iter(named), "")
        for part, names in named.items():
            if names != named[first]:
                odd = sorted(set(names) ^ set(named[first]))
                raise DataError(
                    f"the parts must have the same columns in the same order: {first} and {part} differ"
                    f"{f' in {odd[0]!r}' if odd else ' in their order'}."
                )
        assert parts["train"] is not None
        splits = Splits(parts["train"], parts["vali"], parts["test"], _OWN, feature_names=named.get(first, ()))
        return self._normalise_and_hold_out(splits)

    def _frame(self, frame: Frame, name: str) -> tuple[QuerySet, tuple[str, ...]]:
        """The queries in a frame, and the names of their features."""
        for dropped in self.drop:
            column(frame, dropped)
        others = {self.query, self.label, self.document, *self.drop}
        labels = np.zeros(len(frame), np.int64)
        if self.labelled or self.label in frame.columns:
            if missing_in(column(frame, self.label)).any():
                raise DataError(f"column {self.label!r} must have a value in every row.")
            labels = frame[self.label]
        names = tuple(other for other in frame.columns if other not in others)
        made = self._arrays((features_of(frame, names), labels, column(frame, self.query)), name)
        if self.document in frame.columns:
            made = replace(made, documents=ids_of(frame[self.document], f"column {self.document!r}").astype(np.str_))
        return made, names

    def _part(self, source: Any, name: str) -> tuple[QuerySet, tuple[str, ...]]:
        """The queries in a frame, in arrays, or in a frame of features with labels and query ids beside it."""
        frame = as_frame(source)
        if frame is None and isinstance(source, tuple) and len(source) == 3 and (of := as_frame(source[0])) is not None:
            frame = with_columns(of, {self.label: source[1], self.query: source[2]})
        return (self._arrays(source, name), ()) if frame is None else self._frame(frame, name)

    def _arrays(self, arrays: Any, name: str) -> QuerySet:
        if not isinstance(arrays, tuple) or len(arrays) != len(("features", "labels", "query ids")):
            got = f"{len(arrays)} parts" if isinstance(arrays, tuple) else type(arrays).__name__
            raise DataError(f"{name} must be {self.arrays_form}; got {got}.")
        features, labels, ids = as_array(arrays[0]), np.asarray(arrays[1]), ids_of(arrays[2], f"query ids of {name}")
        if len(ids) != len(np.atleast_1d(labels)) or not len(ids):
            raise DataError(
                f"{name} needs one query id a document, and a document at least: got {len(np.atleast_1d(labels))} "
                f"labels and query ids of shape {ids.shape}."
            )
        starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
        qids = ids[starts].astype(np.str_)
        repeated = np.setdiff1d(np.arange(len(qids)), np.unique(qids, return_index=True)[1])
        if repeated.size:
            place = int(repeated[0])
            raise DataError(
                f"query {str(qids[place])!r} of {name} begins again in row {starts[place]}; put the rows of a query "
                "next to each other."
            )
        queries = QuerySet(features, labels, np.append(starts, len(ids)), qids, name)
        if self.max_label is not None and queries.max_label > self.max_label:
            row = int(np.argmax(queries.labels))
            raise DataError(
                f"labels of {name} must be grades of at most {self.max_label}, got {queries.max_label} in row {row}."
            )
        return queries

    def _normalise_and_hold_out(self, splits: Splits) -> Splits:
        """Normalised, all parts alike: one feature outside [0, 1] in one part changes all; and held out, or divided."""
        how = self.normalise
        if how == "auto":
            how = "none" if all(in_unit_range(queries) for queries in splits.parts().values()) else "query-minmax"
        if how in CONSTANT:
            constants = fit_constants(splits.train.features, how)
            splits = splits.map(lambda queries: replace(queries, features=constants.apply(queries.features)))
            notes = (*splits.notes, f"Features were normalised by constants of the training part ({how}).")
            splits = replace(splits, normalised=how, constants=constants, notes=notes)
        elif how != "none":
            splits = splits.map(lambda queries: normalise_queries(queries, how))
            notes = (*splits.notes, "Features were normalised to [0, 1] within each query.")
            splits = replace(splits, normalised=how, notes=notes)
        return (
            splits.hold_out(self.holdout, self.seed) if self.divide is None else splits.divide(self.divide, self.fold)
        )


def folds_here(source: str, folder: Path | None = None) -> list[int]:
    """The folds of a data set that can be trained on this machine; all of a set that is not here at all.

    Args:
        source: A name of the catalogue, or a path.
        folder: Where a named set is looked for instead of the cache folder.
    """
    place = Path(source).expanduser()
    if source.lower() in CATALOGUE:
        dataset = CATALOGUE.get(source.lower())
        if not is_described(dataset):
            return [1]
        found, known = place_of(dataset, folder), dataset.folds
        if found is None:  # a run of it says how to get it
            return list(range(1, known + 1))
        place, prefix = found, dataset.prefix
    else:
        known, prefix = PARTS if place.is_dir() else 1, ""
    here = []
    for fold in range(1, known + 1):
        try:
            locate(place, fold, prefix)
        except (DataError, ConfigError):
            continue
        here.append(fold)
    return here or [1]


def _read(located: Located, name: str, max_label: int | None, dataset: DataSet | None = None) -> Splits:
    """Read all files together, so that all parts agree on their features."""
    places = [(split, part, path) for split, files in located.files.items() for part, path in files.items()]
    parts = read_parts(
        [path for _, _, path in places],
        n_features=None if dataset is None else dataset.features,
        max_label=max_label,
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
