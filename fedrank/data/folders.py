"""The place of a data set of the catalogue on this machine: its files in a folder, whichever way it was unpacked.

Three layouts are known, each file plain or packed (.gz, .bz2, .xz):

* folders ``Fold1`` .. ``Fold5``, each with train, vali and test (LETOR, MSLR-WEB);
* the five parts ``S1`` .. ``S5`` (also ``part1`` .. ``part5``), of which a fold is put together: see
  :func:`~fedrank.data.catalogue.rotation`;
* train, vali and test in the folder itself: ``train.txt``, ``set1.valid.txt``, ``rank.train``.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from fedrank.core.errors import ConfigError, DataError, MissingDataError
from fedrank.data.catalogue import PARTS, DataSet, rotation

_WORDS = {
    "train": {"train", "training"},
    "vali": {"vali", "valid", "validation", "dev"},
    "test": {"test", "testing"},
}
_PACKED = {".gz", ".bz2", ".xz"}
_TEXT = {"", ".txt", ".dat", ".svm", ".svmlight", ".libsvm", ".letor"}


@dataclass(frozen=True)
class Located:
    """The files of one fold.

    Attributes:
        files: For each of ``train``, ``vali``, ``test`` found: its files by part (``S1`` .. ``S5``,
            or the split's own name if it is one file), in order.
        fold: Number of the fold; None if the folder has one division only.
        notes: What is absent, one sentence each.
    """

    files: dict[str, dict[str, Path]]
    fold: int | None
    notes: tuple[str, ...] = ()


def cache_folder() -> Path:
    """The folder in which data sets are looked for and kept: ``FEDRANK_DATA``, or the platform's cache folder."""
    chosen = os.environ.get("FEDRANK_DATA", "")
    if chosen:
        return Path(chosen).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("fedrank", appauthor=False))


def places(entry: DataSet, root: Path | None = None) -> list[Path]:
    """The places that a named set may have in the cache folder, or in another folder that holds sets."""
    root = cache_folder() if root is None else root
    return [root / between / name for between in ("", "ltr") for name in entry.folders]


def place_of(entry: DataSet, root: Path | None = None) -> Path | None:
    """The folder of a named set; None if it is not there."""
    return next((place for place in places(entry, root) if place.is_dir()), None)


def locate(folder: Path, fold: int = 1, prefix: str = "") -> Located:
    """The files of one fold in a folder.

    Args:
        folder: A folder in one of the three layouts, or one that holds nothing but such a folder.
        fold: 1 .. 5.
        prefix: What the names of the files begin with, where a folder holds several sets.

    Raises:
        MissingDataError: The files to train on are not all there; says which folds can be trained.
        DataError: Several files could be meant.
        ConfigError: No such fold.
    """
    if not 1 <= fold <= PARTS:
        raise ConfigError(f"fold must be in 1..{PARTS}, got {fold}.")
    folder = _inner(folder, prefix)
    folds = _fold_folders(folder)
    if folds:
        if fold not in folds:
            there = ", ".join(f"Fold{k}" for k in folds)
            raise MissingDataError(f"there is no folder Fold{fold}, only {there}.", folder)
        splits = _splits(folds[fold], "")
        if "train" not in splits:
            raise MissingDataError("there is no file to train on (train.txt, also packed).", folds[fold])
        return Located({split: {split: path} for split, path in splits.items()}, fold, _list_absent_parts(splits))
    parts = _parts(folder)
    if parts:
        return _from_parts(folder, parts, fold)
    splits = _splits(folder, prefix)
    if "train" not in splits:
        wanted = f"{prefix}.train.txt" if prefix else "train.txt, S1.txt .. S5.txt, Fold1 .. Fold5"
        raise MissingDataError(
            f"there are no data files: looked for {wanted}, plain or as .gz, .bz2, .xz.",
            folder,
        )
    if fold != 1:
        raise ConfigError(f"{folder} has one division only, not folds; fold must be 1, got {fold}.")
    return Located({split: {split: path} for split, path in splits.items()}, None, _list_absent_parts(splits))


def stem(path: Path) -> str:
    """A file's name without what says how it is packed and that it is text: ``S1.txt.xz`` → ``S1``."""
    name = path.with_suffix("").name if path.suffix.lower() in _PACKED else path.name
    base, suffix = os.path.splitext(name)
    return base if suffix.lower() in _TEXT else name


def group_sizes(path: Path) -> Path | None:
    """The file of query sizes that LightGBM wants next to a file (``rank.train.query``), if it is there."""
    plain = path.with_suffix("") if path.suffix.lower() in _PACKED else path
    sizes = plain.with_name(plain.name + ".query")
    return sizes if sizes.is_file() else None


def _from_parts(folder: Path, parts: dict[str, Path], fold: int) -> Located:
    wanted = rotation(fold)
    missing = [part for part in wanted["train"] if part not in parts]
    if missing:
        possible = [str(k) for k in range(1, PARTS + 1) if all(part in parts for part in rotation(k)["train"])]
        raise MissingDataError(
            f"fold {fold} trains on {', '.join(wanted['train'])}, but {', '.join(missing)} is not here. "
            + (f"Folds that can be trained: {', '.join(possible)}." if possible else "No fold can be trained."),
            folder,
        )
    files = {
        split: {name: parts[name] for name in names}
        for split, names in wanted.items()
        if all(name in parts for name in names)
    }
    notes = tuple(
        f"{_TITLES[split]} of fold {fold} ({wanted[split][0]}) is not here."
        for split in ("vali", "test")
        if split not in files
    )
    return Located(files, fold, notes)


_TITLES = {"vali": "The validation part", "test": "The test part"}


def _list_absent_parts(splits: dict[str, Path]) -> tuple[str, ...]:
    return tuple(f"{title} is not here." for split, title in _TITLES.items() if split not in splits)


def _inner(folder: Path, prefix: str) -> Path:
    """The folder itself, or the only one inside it if it holds no data: archives often have a folder around."""
    while not (_fold_folders(folder) or _parts(folder) or _splits(folder, prefix)):
        inside = [path for path in _children(folder) if path.is_dir() and not path.name.startswith((".", "__"))]
        if len(inside) != 1:
            break
        folder = inside[0]
    return folder


def _children(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise MissingDataError("there is no such folder.", folder)
    return sorted(folder.iterdir())


def _fold_folders(folder: Path) -> dict[int, Path]:
    named = ((re.fullmatch(rf"fold([1-{PARTS}])", path.name.lower()), path) for path in _children(folder))
    return {int(match.group(1)): path for match, path in named if match and path.is_dir()}


def _files(folder: Path) -> list[tuple[str, Path]]:
    """Files that may be data, with their stems in lower case."""
    return [(stem(path).lower(), path) for path in _children(folder) if path.is_file()]


def _parts(folder: Path) -> dict[str, Path]:
    found: dict[str, list[Path]] = {}
    for name, path in _files(folder):
        match = re.fullmatch(rf"(?:s|part)([1-{PARTS}])", name)
        if match:
            found.setdefault(f"S{match.group(1)}", []).append(path)
    return {part: _only(part, paths) for part, paths in found.items()}


def _splits(folder: Path, prefix: str) -> dict[str, Path]:
    found: dict[str, list[Path]] = {}
    for name, path in _files(folder):
        words = re.split(r"[._\-]+", name)
        # rank.train.query and features.json are about the data, not the data: a suffix left over must be a
        # split's name.
        suffix = os.path.splitext(name)[1].lstrip(".")
        split = next((split for split, known in _WORDS.items() if known & set(words)), None)
        foreign = suffix.isalpha() and suffix not in set().union(*_WORDS.values())
        if split and not foreign and name.startswith(prefix):
            found.setdefault(split, []).append(path)
    return {split: _only(split, found[split]) for split in _WORDS if split in found}


def _only(part: str, paths: list[Path]) -> Path:
    if len(paths) > 1:
        raise DataError(
            f"several files could be {part}: {', '.join(path.name for path in paths)}. "
            "Give the path of one, or leave one in the folder.",
            paths[0].parent,
        )
    return paths[0]


def files_state(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Name, size and time of change in nanoseconds of a file, or of all files of a folder; empty if there is neither.

    Whoever keeps what was read from a path keeps this as well, so that a file that was changed is read again.
    """
    files = sorted(path.iterdir()) if path.is_dir() else [path] if path.exists() else []
    return tuple((file.name, found.st_size, found.st_mtime_ns) for file in files for found in (file.stat(),))


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
