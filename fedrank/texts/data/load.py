"""Text collections by name or path: Cranfield and its like from files, a user's own, or generated.

What lies under a known name is checked against its published checksums; an edited or look-alike file is refused.
``generated`` needs no files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedrank.core.errors import MissingDataError, UnknownNameError
from fedrank.data.catalogue import TEXT_CATALOGUE, DataSet
from fedrank.data.checksums import verify
from fedrank.data.places import find
from fedrank.texts.data.collection import Texts
from fedrank.texts.data.files import is_text_path, read_texts
from fedrank.texts.data.generate import generate_texts
from fedrank.texts.data.smart import LAYOUTS, read_smart
from fedrank.texts.data.trec import read_npl, read_trec

#: The collection that needs no files.
GENERATED = "generated"

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


def load_texts(
    data: str | os.PathLike[str],
    *,
    folder: str | os.PathLike[str] | None = None,
    seed: int = 0,
    documents: int = 600,
    queries: int = 120,
) -> Texts:
    """A text collection.

    Args:
        data: A name of the catalogue (``cranfield``, ``cisi``, ``med``, ``cacm``, ``vaswani``, ``adi``),
            ``generated``, or a path: see :func:`~fedrank.texts.data.files.read_texts`. A name wins over a path: write
            ``./cisi`` for a folder of that name.
        folder: Where to look for a named collection instead of the cache folder: its own folder or one that holds it.
        seed: Seed of the generated collection.
        documents: Number of documents of the generated collection.
        queries: Number of queries of the generated collection.

    Raises:
        MissingDataError: It is not here; says where it was looked for and how to get it.
        ChecksumError: A file of a named collection is not the published one.
        FormatError: A line of a file cannot be used.
        UnknownNameError: Neither a known name nor a path.
    """
    name = os.fspath(data)
    if name.lower() == GENERATED:
        return generate_texts(seed=seed, documents=documents, queries=queries)
    if name.lower() in TEXT_CATALOGUE:
        return _named(name.lower(), None if folder is None else Path(folder))
    path = Path(name).expanduser()
    if path.exists() or is_text_path(path) or os.sep in name or "/" in name or name.startswith(("~", ".")):
        return read_texts(path)
    raise UnknownNameError("text collection or path", name, [GENERATED, *TEXT_CATALOGUE.names()])


def _named(name: str, folder: Path | None) -> Texts:
    entry = TEXT_CATALOGUE.entry(name)
    paths, unverified = _located(entry.obj, find(entry.obj, folder), _FILES[name])
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
