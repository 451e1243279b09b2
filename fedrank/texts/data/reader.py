"""Text collections in every form that :func:`fedrank.data.load` takes: names, files, mappings, data frames.

What lies under a known name is checked against its published checksums; an edited or look-alike file is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from fedrank.core.errors import DataError, MissingDataError, UnknownNameError
from fedrank.core.registry import Entry
from fedrank.data.catalogue import DataSet
from fedrank.data.checksums import verify
from fedrank.data.frames import as_frame
from fedrank.data.places import find
from fedrank.data.sources import Reader
from fedrank.texts.data.collection import Judgement, Texts, UniqueTexts, texts_of
from fedrank.texts.data.files import read_texts
from fedrank.texts.data.generate import generate_texts
from fedrank.texts.data.smart import LAYOUTS, read_smart
from fedrank.texts.data.trec import read_npl, read_trec

if TYPE_CHECKING:
    import polars as pl

# Documents, queries, judgements. Where a set circulates in two forms, the ways to name its files, in this order.
_FILES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "cranfield": (("cran.all.1400", "cran.qry", "cranqrel"),),
    "cisi": (("CISI.ALL", "CISI.QRY", "CISI.REL"),),
    "adi": (("ADI.ALL", "ADI.QRY", "ADI.REL"),),
    "med": (("MED.ALL", "MED.QRY", "MED.REL"),),
    "cacm": (("cacm.all", "query.text", "qrels.text"),),
    "vaswani": (("doc-text.trec", "query-text.trec", "qrels"), ("doc-text", "query-text", "rlv-ass")),
}
_PACKED = ("", ".xz", ".gz", ".bz2")


_PARTS = ("documents", "queries", "judgements")
# Names of columns that are understood, the first found is taken.
_ID, _TEXT = ("id", "_id"), ("text", "body", "query")
_QUERY, _DOCUMENT = ("query", "query-id", "qid"), ("document", "corpus-id", "docid")
_GRADE = ("grade", "score", "label")


@dataclass(frozen=True, kw_only=True)
class TextReader(Reader[Texts]):
    """Reads a text collection. One that is handed over is taken as it is.

    In memory a collection is ``(documents, queries, judgements)``, or a mapping with these three names. Documents and
    queries are mappings from id to text, or data frames with columns ``id`` and ``text`` (documents may have a
    ``title``); judgements map a query's id to its documents' ids and grades, or are a data frame with columns
    ``query``, ``document`` and ``grade``. BEIR's names of columns are understood, too.

    Attributes:
        seed: Seed of the generated collection.
        documents: Number of documents of the generated collection.
        queries: Number of queries of the generated collection.
        judged: Whether files must have judgements, which training and measuring need, and searching does not.
    """

    kind: ClassVar[str] = "texts"
    called: ClassVar[str] = "text collection"
    arrays_form: ClassVar[str] = "(documents, queries, judgements), each a mapping or a data frame"

    seed: int = 0
    documents: int = 600
    queries: int = 120
    judged: bool = True

    @override
    def loaded(self, source: Any) -> Texts | None:
        return source if isinstance(source, Texts) else None

    @override
    def generated(self) -> Texts:
        return generate_texts(seed=self.seed, documents=self.documents, queries=self.queries)

    @override
    def named(self, entry: Entry[DataSet], folder: Path | None) -> Texts:
        name, place = entry.name, find(entry.obj, folder)
        if name not in _FILES:  # a set that another package describes: a folder, read as a user's own
            return replace(self.path(place), name=name, citation=entry.citation, notes=entry.obj.notes)
        paths, unverified = _located(entry.obj, place, _FILES[name])
        if name in LAYOUTS:
            texts = read_smart(name, *paths, LAYOUTS[name])
        elif paths[2].name.startswith("rlv"):
            texts = read_npl(name, *paths)
        else:
            texts = read_trec(name, *paths)
        notes = list(entry.obj.notes)
        if unverified:
            notes.append(f"No checksum is known for {', '.join(unverified)}; what was read was not verified.")
        return replace(texts, citation=entry.citation, notes=tuple(notes))

    @override
    def path(self, path: Path) -> Texts:
        return read_texts(path, self.judged)

    @override
    def frame(self, frame: pl.DataFrame) -> Texts:
        raise DataError(f"one data frame is no text collection; hand over {self.arrays_form}.")

    @override
    def arrays(self, arrays: tuple[Any, ...] | Mapping[str, Any]) -> Texts:
        parts = arrays if isinstance(arrays, tuple) else tuple(arrays[part] for part in _PARTS if part in arrays)
        if len(parts) != len(_PARTS) or len(arrays) != len(_PARTS):
            raise DataError(f"a text collection must be {self.arrays_form}; got {len(arrays)} parts.")
        documents, queries, judgements = parts
        texts, asked = (
            _texts(source, what, self.arrays_form) for source, what in ((documents, "documents"), (queries, "queries"))
        )
        return texts_of("own data", texts, asked, _judgements(judgements, self.arrays_form))


def _texts(source: Any, what: str, form: str) -> UniqueTexts:
    """Documents with their titles, or queries; raises DataError for another form."""
    frame = as_frame(source)
    if frame is None:
        if not isinstance(source, Mapping):
            raise DataError(f"{what} must be a mapping or a data frame in {form}; got {type(source).__name__}.")
        rows = [(str(key), "", text) for key, text in source.items()]
    else:
        keys, texts = _column(frame, _ID, what), _column(frame, _TEXT, what)
        titles = frame["title"].to_list() if "title" in frame.columns else [""] * len(keys)
        rows = [(str(key), title or "", text) for key, title, text in zip(keys, titles, texts, strict=True)]
    documents = what == "documents"
    found = UniqueTexts("document" if documents else "query")
    for row, (key, title, text) in enumerate(rows, start=1):
        if not isinstance(text, str) or not isinstance(title, str):
            raise DataError(f"{what}: the text of {key!r} must be text, got {type(text).__name__}.")
        found.put(key, (title, text) if documents else (text,), Path(what), row)
    return found


def _judgements(source: Any, form: str) -> Iterator[Judgement]:
    where = Path("judgements")  # for errors, with the number of the row
    frame = as_frame(source)
    if frame is not None:
        columns = (_column(frame, names, "judgements") for names in (_QUERY, _DOCUMENT, _GRADE))
        rows = list(zip(*columns, strict=True))
    elif isinstance(source, Mapping) and all(isinstance(own, Mapping) for own in source.values()):
        rows = [(query, document, grade) for query, own in source.items() for document, grade in own.items()]
    else:
        raise DataError(
            f"judgements must be a data frame, or a mapping of mappings, in {form}; got {type(source).__name__}."
        )
    for row, (query, document, grade) in enumerate(rows, start=1):
        if isinstance(grade, bool) or not isinstance(grade, int | float) or int(grade) != grade:
            raise DataError(f"a grade must be a whole number, got {grade!r}.", where, row)
        yield where, row, str(query), str(document), int(grade)


def _column(frame: pl.DataFrame, names: Sequence[str], what: str) -> list[Any]:
    """The first of some columns that a data frame has."""
    name = next((name for name in names if name in frame.columns), None)
    if name is None:
        raise UnknownNameError(f"column of the data frame of {what}", names[0], frame.columns)
    return frame[name].to_list()


def _located(
    entry: DataSet, place: Path, ways: Sequence[tuple[str, str, str]]
) -> tuple[tuple[Path, Path, Path], list[str]]:
    """The files of a collection, verified where a checksum is known, and the names of those that are not verified."""
    # Whatever the case of the names, and in a folder inside: archives often have one around.
    there = {path.name.lower(): path for path in sorted(place.rglob("*"), reverse=True) if path.is_file()}
    found = [
        [
            next((there[key] for key in (name.lower() + packed for packed in _PACKED) if key in there), None)
            for name in way
        ]
        for way in ways
    ]
    for way, paths in zip(ways, found, strict=True):
        if all(paths):
            documents, queries, judgements = (path for path in paths if path is not None)
            verified = {
                name: verify(path, entry.checksums.get(name, ()))
                for name, path in zip(way, (documents, queries, judgements), strict=True)
            }
            return (documents, queries, judgements), [name for name, known in verified.items() if not known]
    missing = [name for name, path in zip(ways[0], found[0], strict=True) if path is None]
    raise MissingDataError(
        f"there is no {' and no '.join(missing)}, plain or as .xz, .gz, .bz2. {entry.by_hand} Home: {entry.home}", place
    )
