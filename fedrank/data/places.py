"""The place of a data set of the catalogue on this machine, and what to do if it is not there."""

from __future__ import annotations

from pathlib import Path

from fedrank.core.errors import MissingDataError
from fedrank.data.catalogue import DataSet
from fedrank.data.folders import place_of, places

#: The name of the set that needs no files.
GENERATED = "generated"
#: What a run's setting ``data`` says where its data was handed over as an object, or each party has its own.
OWN = "own"


def find(entry: DataSet, folder: Path | None = None) -> Path:
    """The folder that a set of the catalogue lies in.

    Args:
        entry: The set.
        folder: Where to look instead of the cache folder: the set's own folder or one that holds it.

    Raises:
        MissingDataError: It is nowhere; says where it was looked for, the set's home and how to get it.
    """
    place = place_of(entry, folder)
    if place is not None:
        return place
    if folder is not None and folder.is_dir():
        return folder
    raise MissingDataError(
        f"{entry.title} is not on this machine.\n"
        f"Looked for: {', '.join(map(str, places(entry, folder)))}\n"
        f"{how_to_get(entry)}\n"
        "Where it lies elsewhere, give the folder's path, or set FEDRANK_DATA to the folder that holds it."
    )


def how_to_get(entry: DataSet) -> str:
    """The home of a set and the ways to get a copy: lines for an error message."""
    get = f"Download it: fedrank data get {entry.name}. Or by hand: " if entry.downloads else ""
    return f"Home: {entry.home}\n{get}{entry.by_hand}"
