"""Load a table of silos by name or path.

A named table is looked for as ranking sets are: in a folder that the user gives, else in the cache folder
(``FEDRANK_DATA``). Every file of it is checked; a damaged, edited or look-alike one is refused. ``generated`` needs no
files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from fedrank.core.errors import FormatError, MissingDataError, UnknownNameError
from fedrank.data.catalogue import SILO_CATALOGUE, DataSet
from fedrank.data.checksums import verify
from fedrank.data.lines import unpacked
from fedrank.data.places import find
from fedrank.silos.data.files import read_silos
from fedrank.silos.data.generate import generate_silos
from fedrank.silos.data.tables import Silo, SiloTable

#: The table that needs no files.
GENERATED = "generated"
#: Ways to treat rows with missing values.
GAPS = ("drop", "impute")

_HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
# Columns of the files (heart-disease.names).
_COLUMNS: tuple[str, ...] = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak"),
    *("slope", "ca", "thal", "num"),
)
# Almost wholly missing outside Cleveland: 309, 611 and 486 of 920 rows.
_SPARSE = ("slope", "ca", "thal")
# Codes without an order: type of chest pain 1 .. 4, electrocardiogram 0 .. 2. The first level is the zero of the rest.
_LEVELS = {"cp": (2, 3, 4), "restecg": (1, 2)}
# Nobody has a cholesterol or a blood pressure of 0.
_NEVER_ZERO = ("trestbps", "chol")
_PACKED = ("", ".xz", ".gz", ".bz2")


def load_silos(
    data: str | os.PathLike[str],
    *,
    folder: str | os.PathLike[str] | None = None,
    seed: int = 0,
    silos: int = 4,
    rows: int = 400,
    gaps: str = "drop",
    silo: str = "silo",
    label: str = "label",
    positive: str | int | float | bool | None = None,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
) -> SiloTable:
    """A table of silos.

    Args:
        data: ``heart-disease``, ``health-insurance``, ``generated``, or the path of a CSV or parquet file. A name wins
            over a path: write ``./generated`` for a file of that name.
        folder: Where to look for a named table instead of the cache folder: its own folder or one that holds it.
        seed: Of the generated table.
        silos: Number of silos of the generated table.
        rows: Rows a silo of the generated table.
        gaps: For ``heart-disease``; see :func:`heart_disease`.
        silo: Column of a file that says whose row it is.
        label: Column of a file with the label.
        positive: Which value of the label is 1; see :func:`~fedrank.silos.data.files.read_silos`.
        drop: Columns of a file to leave out.
        categorical: Columns of a file whose numbers are codes.

    Raises:
        MissingDataError: It is not here; says where it was looked for and how to get it.
        ChecksumError: A file of a named table is not the published one; says what was expected and what it is.
        UnknownNameError: Neither a known name nor a path.
        DataError: A file cannot be used.
    """
    name = os.fspath(data)
    place = None if folder is None else Path(folder)
    if name.lower() == GENERATED:
        return generate_silos(silos=silos, rows=rows, seed=seed)
    if name.lower() == "heart-disease":
        return heart_disease(place, gaps)
    if name.lower() == "health-insurance":
        return health_insurance(place)
    path = Path(name).expanduser()
    if not path.is_file():
        if os.sep in name or "/" in name or path.suffix or name.startswith(("~", ".")):
            raise MissingDataError("there is no such file.", path)
        raise UnknownNameError("silo data set or path", name, [GENERATED, *SILO_CATALOGUE.names()])
    return read_silos(path, silo, label, positive, drop, categorical)


def heart_disease(folder: Path | None = None, gaps: str = "drop") -> SiloTable:
    """The UCI Heart Disease data of four hospitals, by FLamby's recipe.

    The columns slope, ca and thal go; chest pain and electrocardiogram become one column a level, without the first;
    that makes 13. Label 1 is any heart disease (num > 0). Rows: Cleveland 303, Hungarian 261, Switzerland 46, Long
    Beach (va) 130. A cholesterol of 0 stays 0 there, although nobody measured it.

    Args:
        folder: Where to look instead of the cache folder.
        gaps: ``drop`` leaves out rows with a gap in the 13 columns, as the recipe does. ``impute`` keeps all 920 rows
            with NaN in the gaps, and takes a cholesterol or a blood pressure of 0 for a gap; what becomes of NaN is
            the division's business (:func:`~fedrank.silos.data.splits.split`: the training mean).

    Raises:
        MissingDataError: A file is not here.
        ChecksumError: A file is not the published one.
        UnknownNameError: No such way with gaps.
    """
    if gaps not in GAPS:
        raise UnknownNameError("way with gaps", gaps, GAPS)
    entry = SILO_CATALOGUE.entry("heart-disease")
    paths = _files(entry.obj, folder)
    notes = ["The columns slope, ca and thal were left out: they are almost wholly missing outside Cleveland."]
    silos, names = [], ()
    for hospital in _HOSPITALS:
        values = _numbers(paths[f"processed.{hospital}.data"])
        labels = (values[:, -1] > 0).astype(np.int8)
        table = dict(zip(_COLUMNS[:-1], values.T, strict=False))
        for column in _NEVER_ZERO if gaps == "impute" else ():
            table[column] = np.where(table[column] == 0, np.nan, table[column])
        columns = _heart_columns(table)
        features, names = np.stack(list(columns.values()), axis=1).astype(np.float32), tuple(columns)
        whole = np.logical_not(np.isnan(features).any(axis=1))
        if gaps == "drop":
            if not whole.all():
                notes.append(f"{int((~whole).sum())} of {len(values)} rows of {hospital} have gaps and were left out.")
            features, labels = features[whole], labels[whole]
        elif not whole.all():
            notes.append(f"{int((~whole).sum())} of {len(values)} rows of {hospital} have gaps and were kept.")
        silos.append(Silo(hospital, features, labels))
    notes.append(
        "A cholesterol of 0 means missing and was left 0, as in FLamby's recipe; in Switzerland all are."
        if gaps == "drop"
        else "A cholesterol or a blood pressure of 0 was taken for missing."
    )
    meaning = "heart disease (num > 0)"
    return SiloTable("heart-disease", tuple(silos), names, meaning, notes=tuple(notes), citation=entry.citation)


def health_insurance(folder: Path | None = None) -> SiloTable:
    """The Medical Expenditure Panel Survey of 1996 by region; label 1 = no health insurance.

    Features: the own health and a limit by it, age, gender, married, self-employed, family size, ethnicity (3 levels)
    and education (7 levels), the last two with one column a level: 17 columns, without gaps.

    Args:
        folder: Where to look instead of the cache folder.

    Raises:
        MissingDataError: The file is not here.
        ChecksumError: It is not the published one.
    """
    entry = SILO_CATALOGUE.entry("health-insurance")
    path = _files(entry.obj, folder)["HealthInsurance.csv"]
    table = read_silos(path, silo="region", label="insurance", positive="no")
    return SiloTable(
        "health-insurance",
        table.silos,
        table.feature_names,
        "no health insurance",
        notes=table.notes,
        citation=entry.citation,
    )


def _files(entry: DataSet, folder: Path | None) -> dict[str, Path]:
    """Every file of a set by its plain name, with its checksum verified."""
    place = find(entry, folder)
    found = {}
    for name, checksums in entry.checksums.items():
        path = next((p for p in (place / (name + packed) for packed in _PACKED) if p.is_file()), None)
        if path is None:
            raise MissingDataError(
                f"there is no {name}, plain or as .xz, .gz, .bz2. {entry.by_hand} Home: {entry.home}", place
            )
        verify(path, checksums)
        found[name] = path
    return found


def _numbers(path: Path) -> Float[np.ndarray, "rows 14"]:
    """The rows of a UCI file: numbers between commas, ``?`` where one is missing (NaN)."""
    rows = []
    for number, line in enumerate(unpacked(path), start=1):
        try:
            values = [np.nan if cell.strip() == b"?" else float(cell) for cell in line.split(b",")]
        except ValueError as cause:
            raise FormatError(f"expected numbers between commas, or ?; {cause}.", path, number) from cause
        if len(values) != len(_COLUMNS):
            raise FormatError(f"expected {len(_COLUMNS)} values, got {len(values)}.", path, number)
        rows.append(values)
    return np.array(rows)


def _heart_columns(table: dict[str, Float[np.ndarray, " rows"]]) -> dict[str, np.ndarray]:
    """The columns of FLamby's recipe: sparse ones left out, codes without an order as one column a level."""
    columns = {}
    for name, values in table.items():
        if name in _SPARSE:
            continue
        for level in _LEVELS.get(name, ()):
            columns[f"{name}={level}"] = np.where(np.isnan(values), np.nan, values == level)
        if name not in _LEVELS:
            columns[name] = values
    return columns
