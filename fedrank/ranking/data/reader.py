"""Ranking data in every form that :func:`fedrank.data.load` takes: names, LETOR files and folders, frames, arrays.

``generated`` is a made-up ranking problem of the size and look of MQ2007, for machines without data. It is no model of
web search, and no number measured on it says anything about a real set. It is made so that the same things are hard:

* the features of a query run from 0 to 1, come in correlated groups, many are 0 on most documents, and some
  are 0 everywhere;
* most documents are not relevant, and some queries have no relevant document at all;
* a document's relevance is partly linear in hidden properties, partly not (an interaction, a preferred
  middle), partly chance. The features show the hidden properties blurred. A linear ranker gains much, a
  better one a little more, and none gets everything right.
"""

from __future__ import annotations

import math
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
from fedrank.data.folders import Located, find, group_sizes, how_to_get, locate, place_of, stem
from fedrank.data.frames import DOCUMENT, LABEL, QUERY, as_array, as_frame, column, features_of, ids_of, with_columns
from fedrank.data.lines import verify
from fedrank.data.sources import Reader
from fedrank.ranking.data.letor import read_parts
from fedrank.ranking.data.queries import QuerySet, concatenate
from fedrank.ranking.data.splits import CONSTANT, HOWS, Splits, fit_constants, in_unit_range, normalise
from fedrank.ranking.data.splits import normalise as normalise_queries

_HIDDEN = 8
# Shares of documents with a label of at least 1, and how many of the documents with a label reach the next
# one.
_RELEVANT, _NEXT = 0.26, 0.23
# Of MQ2008's 46 features six are 0 throughout; its queries have up to 121 documents, MQ2007's 41 on average.
_DEAD = 6 / 46
_SHORTEST, _TYPICAL, _LONGEST = 5, 38, 147


def generate_queries(
    seed: int = 0,
    n_queries: int = 1692,
    n_features: int = 46,
    grades: int = 3,
    noise: float = 0.7,
) -> Splits:
    """Generated queries, three fifths to train, one to validate, one to test.

    Args:
        seed: Seed of everything, the hidden truth included (NumPy's PCG64).
        n_queries: Queries of all parts together, at least 5; MQ2007 has 1,692.
        n_features: Features, at least 1.
        grades: Number of labels, 0 .. grades − 1, at least 2. A quarter of the documents is relevant, and a
            quarter of those with one grade reach the next.
        noise: Standard deviation of the chance in a document's relevance, where that of the rest is 1; at
            least 0.

    Returns:
        Splits with ``generated=True`` and features in [0, 1]. The same arguments give the same labels and
        features.

    Raises:
        ConfigError: A number is out of range.
    """
    for what, value, least in (("n_queries", n_queries, 5), ("n_features", n_features, 1), ("grades", grades, 2)):
        if value < least:
            raise ConfigError(f"{what} of a generated set must be at least {least}, got {value}.")
    if not 0 <= noise < math.inf:
        raise ConfigError(f"noise of a generated set must be a finite number of at least 0, got {noise}.")
    rng = np.random.Generator(np.random.PCG64(seed))
    lengths = np.clip(np.rint(rng.lognormal(math.log(_TYPICAL), 0.4, n_queries)), _SHORTEST, _LONGEST).astype(np.int64)
    hidden = rng.standard_normal((lengths.sum(), _HIDDEN))
    everything = QuerySet(
        _features(hidden, n_features, rng),
        _labels(hidden, lengths, grades, noise, rng),
        np.concatenate([[0], np.cumsum(lengths)]),
        np.arange(1, n_queries + 1).astype(np.str_),
        generated=True,
    )
    everything = normalise(everything, "query-minmax")
    cuts = n_queries * 3 // 5, n_queries * 4 // 5
    parts = np.split(np.arange(n_queries), cuts)
    train, vali, test = (
        QuerySet(part.features, part.labels, part.offsets, part.qids, f"generated/{name}", generated=True)
        for part, name in zip(map(everything.select, parts), ("train", "vali", "test"), strict=True)
    )
    note = (
        f"Generated data, not a real collection: {n_queries} queries, {n_features} features, {grades} grades, "
        f"noise {noise:g}, seed {seed}."
    )
    return Splits(train, vali, test, "generated", generated=True, notes=(note,))


def _labels(hidden: np.ndarray, lengths: np.ndarray, grades: int, noise: float, rng: np.random.Generator) -> np.ndarray:
    """Labels from a truth that is not linear: int64 [documents]."""
    direction = rng.uniform(0.5, 1.0, _HIDDEN - 1) * rng.choice([1.0, 1.0, 1.0, -1.0], _HIDDEN - 1)
    linear = hidden[:, 1:] @ (direction / np.linalg.norm(direction))
    together = hidden[:, 1] * hidden[:, 2]
    middle = math.sqrt(2) - np.abs(hidden[:, 0]) * math.sqrt(2)
    truth = 0.75 * linear + 0.4 * together + 0.4 * middle
    chance = noise * rng.standard_normal(len(truth))
    # Some queries have many good documents, others none.
    ease = np.repeat(1.2 * rng.standard_normal(len(lengths)), lengths)
    relevance = truth / truth.std() + chance + ease
    shares = _RELEVANT * _NEXT ** np.arange(grades - 1)
    return np.searchsorted(np.quantile(relevance, 1 - shares), relevance, side="left")


def _features(hidden: np.ndarray, n_features: int, rng: np.random.Generator) -> np.ndarray:
    """Features that show the hidden properties [documents, _HIDDEN] with noise: float64 [documents, f]."""
    # Each feature shows one property well and the others faintly, so that features of one property are
    # correlated.
    shows = 0.15 * rng.standard_normal((_HIDDEN, n_features))
    shows[np.arange(n_features) % _HIDDEN, np.arange(n_features)] += 1.0
    seen = hidden @ shows + 0.8 * rng.standard_normal((len(hidden), n_features))
    kind = rng.integers(3, size=n_features)
    # Even, as a similarity; long-tailed, as a count; 0 on most documents, as a match in a title.
    seen = np.where(kind == 1, np.exp(0.7 * seen), np.where(kind == 2, np.maximum(seen - 0.5, 0.0), seen))
    seen[:, rng.choice(n_features, int(n_features * _DEAD), replace=False)] = 0.0
    return seen


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
        normalise: ``auto``, ``query-minmax`` or ``none`` (:func:`fedrank.ranking.data.splits.normalise`), or
            constants of the training part: ``standard``, ``min-max``, ``log``
            (:func:`fedrank.ranking.data.splits.fit_constants`). All parts are treated alike.
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
