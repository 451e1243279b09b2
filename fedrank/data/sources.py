"""The one way into fedrank for data: :func:`load`, and :class:`Reader`, which says how a kind of data is read.

A task hands its reader over (:attr:`fedrank.engine.task.Task.reader`); what a source may be is decided here, for all
tasks alike.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, overload

from fedrank.core import registry
from fedrank.core.errors import ConfigError, DataError, FedrankWarning, MissingDataError, UnknownNameError
from fedrank.core.frame import Frame
from fedrank.core.registry import Entry
from fedrank.core.trees import Json
from fedrank.data.catalogue import CATALOGUE, DataSet, is_described, names_of
from fedrank.data.folders import GENERATED, OWN, place_of
from fedrank.data.frames import as_frame

Data = TypeVar("Data")

#: What an id of the package ir-datasets begins with, as a source.
IR_DATASETS = "ir_datasets:"


class Reader(abc.ABC, Generic[Data]):
    """A reader of one kind of data. A subclass is a frozen dataclass; its fields are the settings of reading.

    Attributes:
        kind: Name of the task that takes such data.
        called: What a named set of the kind is called in errors.
        arrays_form: What a tuple or a mapping of the kind's arrays must hold, for errors.
    """

    kind: ClassVar[str]
    called: ClassVar[str]
    arrays_form: ClassVar[str]

    @abc.abstractmethod
    def loaded(self, source: Any) -> Data | None:
        """The source, if it is data of this kind already, as it is; None if it is not."""

    @abc.abstractmethod
    def generated(self) -> Data:
        """The set that a program makes up."""

    @abc.abstractmethod
    def named(self, entry: Entry[DataSet], folder: Path | None) -> Data:
        """A set of the catalogue, of this kind.

        Args:
            entry: Its entry.
            folder: Where it is looked for instead of the cache folder.
        """

    @abc.abstractmethod
    def path(self, path: Path) -> Data:
        """Read the data of an existing file or folder."""

    def collection(self, name: str) -> Data:
        """The data of an id of ir-datasets; by default refused.

        Raises:
            DataError: ir-datasets has documents, queries and judgements, which are no data of this kind.
        """
        raise DataError(
            f"{IR_DATASETS}{name}: ir-datasets has documents, queries and judgements, where data of {self.kind} is "
            "needed. Give it to a task of texts."
        )

    @abc.abstractmethod
    def frame(self, frame: Frame) -> Data:
        """The data in a data frame, whose columns are as the task's page on own data says."""

    @abc.abstractmethod
    def arrays(self, arrays: tuple[Any, ...] | Mapping[str, Any]) -> Data:
        """Read data from arrays in the form that :attr:`arrays_form` describes."""

    def changed(self, settings: Mapping[str, Json]) -> Reader[Data]:
        """The reader with other settings.

        Raises:
            UnknownNameError: There is no such setting.
        """
        known = [field.name for field in dataclasses.fields(self)]  # type: ignore[arg-type]  # subclasses are
        for name in settings:
            if name not in known:
                raise UnknownNameError(f"setting of reading data of {self.kind}", name, known)
        return dataclasses.replace(self, **settings)  # type: ignore[type-var]


@overload
def load(source: Any, kind: Reader[Data], *, folder: str | os.PathLike[str] | None = None, **settings: Any) -> Data: ...


@overload
def load(source: Any, kind: str, *, folder: str | os.PathLike[str] | None = None, **settings: Any) -> Any: ...


def load(source: Any, kind: str | Reader[Any], *, folder: str | os.PathLike[str] | None = None, **settings: Any) -> Any:
    """Data of one kind, in whatever form it comes.

    A source is one of these:

    * ``"generated"``: a set that a program makes up; needs no files.
    * Another name, as text: a set of the catalogue (``fedrank data list``), which lies in the cache folder
      (``FEDRANK_DATA``), or what the entry point of that name in ``fedrank.data`` leads to. A name wins over a path:
      write ``"./mq2008"`` for a folder of that name.
    * ``"ir_datasets:ID"``: for texts, a collection of the package ir-datasets (an extra), which fetches it.
    * A path, as text or ``Path``, of a file or a folder: LETOR for ranking; CSV or parquet for silos; documents,
      queries and judgements, as BEIR or TREC have them, for texts. A file whose ending is the name of an entry point
      of ``fedrank.formats`` is what that function, called with its path, returns in any of these forms.
    * A data frame of polars, pandas, or another library with ``__arrow_c_stream__``. Ranking: a
      document a row, with columns ``qid`` and ``label``. Silos: columns ``silo`` and ``label``. Every other column is
      a feature.
    * Arrays for ranking: ``(features, labels, query ids)``; or a mapping of ``train``, ``vali`` and ``test`` to such
      tuples or to data frames.
    * Arrays for silos: ``(features, labels, silos)``, or ``{silo: (features, labels)}``.
    * Features of these tuples may be a sparse matrix of scipy, or a data frame, whose columns ``qid`` or ``silo`` and
      ``label`` are replaced by what stands beside it; None there leaves the frame's own.
    * Texts: ``(documents, queries, judgements)``, each a mapping or a data frame; see
      :class:`~fedrank.texts.data.reader.TextReader`.
    * Data that was loaded before, which is returned as it is.

    Args:
        source: The data.
        kind: ``"ranking"``, ``"silos"``, ``"texts"`` or another task that reads data; or a reader.
        folder: Where a named set is looked for instead of the cache folder: its own folder or one that holds it.
        settings: Fields of the kind's reader: :class:`fedrank.ranking.data.reader.QueryReader`,
            :class:`fedrank.silos.data.reader.SiloReader`, :class:`fedrank.texts.data.reader.TextReader`.

    Returns:
        :class:`~fedrank.ranking.data.splits.Splits`, :class:`~fedrank.silos.data.tables.SiloTable` or
        :class:`~fedrank.texts.data.collection.Texts`.

    Raises:
        MissingDataError: A named set or a path is not here; says where it was looked for and how to get it.
        ChecksumError: A file of a named set is not the published one; says what was expected and what it is.
        FormatError: A line of a file cannot be used.
        UnknownNameError: There is no such name, kind, setting or column; says which was probably meant.
        DataError: The source is of none of these forms, or what is in it cannot be used.
        ConfigError: A setting is out of range.
    """
    reader = kind if isinstance(kind, Reader) else reader_of(kind)
    if settings:
        reader = reader.changed(settings)
    known = reader.loaded(source)
    if known is not None:
        return known
    if isinstance(source, str):
        if source.lower() == GENERATED:
            return reader.generated()
        if source.lower() in CATALOGUE:
            with _shadowing(source):
                return _read_from_catalogue(source.lower(), reader, None if folder is None else Path(folder))
        if source.startswith(IR_DATASETS):
            return reader.collection(source.removeprefix(IR_DATASETS))
    if isinstance(source, str | os.PathLike):
        path = _found(source, reader)
        ending = path.suffix[1:].lower()
        if ending in registry.names("fedrank.formats"):
            return load(registry.get("fedrank.formats", ending)(path), reader)
        return reader.path(path)
    frame = as_frame(source)
    if frame is not None:
        return reader.frame(frame)
    if isinstance(source, tuple | Mapping):
        return reader.arrays(source)
    raise DataError(
        f"data of {reader.kind} must be a name of the catalogue, a path, a data frame, or arrays "
        f"({reader.arrays_form}); got {type(source).__module__}.{type(source).__qualname__}."
    )


def reader_of(kind: str) -> Reader[Any]:
    """The reader of a task, with its default settings.

    Raises:
        UnknownNameError: There is no such task.
        ConfigError: The task reads no data.
    """
    reader = registry.get("fedrank.tasks", kind).reader
    if reader is None:
        raise ConfigError(f"the task {kind!r} makes its data up itself; it reads none.")
    return reader


def is_known(name: str, kind: str) -> bool:
    """True if a name stands for the same data on every machine: the generated set, or one that a task may be given."""
    return name.lower() in (GENERATED, *names_of(kind))


@contextlib.contextmanager
def _shadowing(name: str) -> Iterator[None]:
    """Say that a name of the catalogue was taken, where a file or a folder of that name might be meant."""
    path = Path(name)
    if not path.exists():
        yield
        return
    what = f"{'a folder' if path.is_dir() else 'a file'} {name!r} is here"
    try:
        yield
    except MissingDataError as cause:
        raise MissingDataError(f"{cause}\n{what[0].upper()}{what[1:]}, too; for it, write './{name}'.") from cause
    entry = CATALOGUE.get(name.lower())
    place = place_of(entry) if is_described(entry) else None
    if place is None or place.resolve() != path.resolve():
        warnings.warn(
            f"{name!r} is taken as the name of the catalogue's data set, and {what}, too; for it, write './{name}'.",
            FedrankWarning,
            stacklevel=3,
        )


def _read_from_catalogue(name: str, reader: Reader[Any], folder: Path | None) -> Any:
    entry = CATALOGUE.entry(name)
    found = entry.obj
    if not is_described(found):
        return load(found(), reader)
    if found.kind != reader.kind:
        raise ConfigError(
            f"{name!r} is data of {found.kind}, where data of {reader.kind} is needed: "
            f"{', '.join([GENERATED, *names_of(reader.kind)])}, a path, a data frame or arrays."
        )
    return reader.named(Entry(name, found, entry.summary, entry.citation), folder)


def _found(source: str | os.PathLike[str], reader: Reader[Any]) -> Path:
    """The path that is meant, which is there."""
    path, text = Path(source).expanduser(), os.fspath(source)
    if path.exists():
        return path
    if text == OWN:
        raise ConfigError(f"data = {OWN!r} stands for data that was handed over as an object; hand it over: data=….")
    if not isinstance(source, str) or os.sep in text or "/" in text or path.suffix or text.startswith(("~", ".")):
        raise MissingDataError("there is no such file or folder.", path)
    raise UnknownNameError(f"{reader.called} or path", text, [GENERATED, *names_of(reader.kind)])
