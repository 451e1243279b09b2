"""Tables of silos in every form that :func:`fedrank.data.load` takes: names, files, data frames, arrays.

Every file of a named table is checked; a damaged, edited or look-alike one is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from fedrank.core.errors import ConfigError, DataError, FormatError, MissingDataError, UnknownNameError
from fedrank.core.frame import Frame
from fedrank.core.registry import Entry
from fedrank.core.trees import Json
from fedrank.data.catalogue import DataSet
from fedrank.data.checksums import verify
from fedrank.data.folders import find
from fedrank.data.frames import as_array, as_frame, with_columns
from fedrank.data.lines import read_lines
from fedrank.data.sources import Reader
from fedrank.silos.config import OWN_FILE, Silos
from fedrank.silos.data.coding import Coding
from fedrank.silos.data.files import columns_of, read_silos, table_of
from fedrank.silos.data.generate import generate_silos
from fedrank.silos.data.tables import Silo, SiloTable

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
_ALL_LEVELS = {"cp": (1, 2, 3, 4), "restecg": (0, 1, 2)}
# No living patient has a cholesterol or a blood pressure of 0.
_NEVER_ZERO = ("trestbps", "chol")
_PACKED = ("", ".xz", ".gz", ".bz2")
_OWN = "own data"


@dataclass(frozen=True, kw_only=True)
class SiloReader(Reader[SiloTable]):
    """Reads a table of silos. One that is handed over is taken as it is.

    Attributes:
        settings: Settings of a run's silos, of which those count that say how a table is read or made up: ``count``
            (in :func:`fedrank.data.load`: ``silos``), ``rows``, ``gaps`` (see :func:`heart_disease`), and of a file
            or a data frame ``silo``, ``label``, ``positive``, ``drop``, ``categorical``, ``missing`` and ``person``
            (see :func:`~fedrank.silos.data.files.read_silos`).
        seed: Seed of the generated table.
        fewest: Fewest silos of a file; with 1 that of one silo is read, with or without its column.
    """

    kind: ClassVar[str] = "silos"
    called: ClassVar[str] = "silo data set"
    arrays_form: ClassVar[str] = "(features, labels, silos), or {silo: (features, labels)}"

    settings: Silos = field(default_factory=Silos)
    seed: int = 0
    fewest: int = 2

    @override
    def changed(self, settings: Mapping[str, Json]) -> SiloReader:
        known = ("seed", "fewest", "silos", "rows", "gaps", *OWN_FILE)
        for name in settings:
            if name not in known:
                raise UnknownNameError(f"setting of reading data of {self.kind}", name, known)
        own: dict[str, Any] = {name: value for name, value in settings.items() if name in ("seed", "fewest")}
        table: Any = {"count" if name == "silos" else name: settings[name] for name in settings if name not in own}
        return replace(self, settings=replace(self.settings, **table), **own)

    @override
    def loaded(self, source: Any) -> SiloTable | None:
        return source if isinstance(source, SiloTable) else None

    @override
    def generated(self) -> SiloTable:
        return generate_silos(self.settings.count, self.settings.rows, seed=self.seed)

    @override
    def named(self, entry: Entry[DataSet], folder: Path | None) -> SiloTable:
        if entry.name == "heart-disease":
            return heart_disease(entry, folder, self.settings.gaps)
        if entry.name == "health-insurance":
            return health_insurance(entry, folder)
        # A set that another package describes: one file, read as a user's own.
        paths = _files(entry.obj, folder)
        if len(paths) != 1:
            raise ConfigError(f"{entry.name!r} must list one file in its checksums, or be a function that reads it.")
        (path,) = paths.values()
        return replace(self.path(path), name=entry.name, citation=entry.citation)

    @override
    def path(self, path: Path) -> SiloTable:
        return read_silos(path, *self._columns, fewest=self.fewest)

    @override
    def frame(self, frame: Frame) -> SiloTable:
        return table_of(columns_of(frame, self.settings.drop), _OWN, *self._columns)

    @property
    def _columns(self) -> tuple[Any, ...]:
        """Arguments of :func:`~fedrank.silos.data.files.read_silos` that say what columns mean."""
        s = self.settings
        return s.silo, s.label, s.positive, s.drop, s.categorical, s.missing, s.person

    @override
    def arrays(self, arrays: tuple[Any, ...] | Mapping[str, Any]) -> SiloTable:
        if isinstance(arrays, tuple):
            if len(arrays) == 3 and (frame := as_frame(arrays[0])) is not None:
                beside = {self.settings.label: arrays[1], self.settings.silo: arrays[2]}
                return self.frame(with_columns(frame, beside))
            arrays = _by_silo(arrays, self.arrays_form)
        silos = tuple(_silo(str(name), rows, self.arrays_form) for name, rows in arrays.items())
        if len(silos) < 2:
            raise DataError(f"{_OWN} has {len(silos)} silos; a federation needs two.")
        names = tuple(f"feature {k + 1}" for k in range(silos[0].features.shape[1]))
        return SiloTable(_OWN, silos, names, "label 1").drop_uninformative()


def _by_silo(arrays: tuple[Any, ...], form: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The rows of each silo, silos in order of their names."""
    if len(arrays) != len(("features", "labels", "silos")):
        raise DataError(f"{_OWN} must be {form}; got {len(arrays)} parts.")
    features, labels, owners = map(as_array, arrays)
    if owners.ndim != 1 or features.shape[:1] != owners.shape or labels.shape != owners.shape:
        raise DataError(
            f"{_OWN} needs features [rows, features], labels [rows] and silos [rows], got {list(features.shape)}, "
            f"{list(labels.shape)} and {list(owners.shape)}."
        )
    return {str(name): (features[owners == name], labels[owners == name]) for name in np.unique(owners)}


def _silo(name: str, rows: Any, form: str) -> Silo:
    if not isinstance(rows, tuple) or len(rows) != len(("features", "labels")):
        raise DataError(f"{_OWN} of silo {name!r} must be (features, labels) in {form}; got {type(rows).__name__}.")
    features, labels = map(as_array, rows)
    if features.dtype.kind not in "biuf" or not np.isin(labels, (0, 1)).all():
        raise DataError(f"silo {name!r} needs features that are numbers, and labels that are 0 or 1.")
    return Silo(name, features.astype(float), labels.astype(np.int8))


def heart_disease(entry: Entry[DataSet], folder: Path | None = None, gaps: str = "drop") -> SiloTable:
    """The UCI Heart Disease data of four hospitals, by FLamby's recipe.

    The columns slope, ca and thal go; chest pain and electrocardiogram become one column a level, without the first;
    that makes 13. Label 1 is any heart disease (num > 0). Rows: Cleveland 303, Hungarian 261, Switzerland 46, Long
    Beach (va) 130. A cholesterol of 0 stays 0 there, although it was not measured.

    Args:
        entry: Its entry in the catalogue.
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
        features, names = np.stack(list(columns.values()), axis=1).astype(float), tuple(columns)
        whole = np.logical_not(np.isnan(features).any(axis=1))
        if gaps == "drop":
            if not whole.all():
                notes.append(f"{int((~whole).sum())} of {len(values)} rows of {hospital} have gaps and were left out.")
            features, labels = features[whole], labels[whole]
        elif not whole.all():
            notes.append(f"{int((~whole).sum())} of {len(values)} rows of {hospital} have gaps.")
        silos.append(Silo(hospital, features, labels))
    notes.append(
        "A cholesterol of 0 means missing and was left 0, as in FLamby's recipe; in Switzerland all are."
        if gaps == "drop"
        else "A cholesterol or a blood pressure of 0 was taken for missing."
    )
    meaning = "heart disease (num > 0)"
    coding = Coding(
        {name: tuple(map(str, levels)) for name, levels in _ALL_LEVELS.items()},
        codes=tuple(_ALL_LEVELS),
        never_zero=_NEVER_ZERO if gaps == "impute" else (),
    )
    return SiloTable("heart-disease", tuple(silos), names, meaning, False, tuple(notes), entry.citation, coding)


def health_insurance(entry: Entry[DataSet], folder: Path | None = None) -> SiloTable:
    """The Medical Expenditure Panel Survey of 1996 by region; label 1 = no health insurance.

    Features: the own health and a limit by it, age, gender, married, self-employed, family size, ethnicity (3 levels)
    and education (7 levels), the last two with one column a level: 17 columns, without gaps.

    Args:
        entry: Its entry in the catalogue.
        folder: Where to look instead of the cache folder.

    Raises:
        MissingDataError: The file is not here.
        ChecksumError: It is not the published one.
    """
    path = _files(entry.obj, folder)["HealthInsurance.csv"]
    table = read_silos(path, silo="region", label="insurance", positive="no")
    return SiloTable(
        "health-insurance",
        table.silos,
        table.feature_names,
        "no health insurance",
        notes=table.notes,
        citation=entry.citation,
        coding=table.coding,
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
    for number, line in enumerate(read_lines(path), start=1):
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
        for level in _ALL_LEVELS.get(name, ())[1:]:
            columns[f"{name}={level}"] = np.where(np.isnan(values), np.nan, values == level)
        if name not in _ALL_LEVELS:
            columns[name] = values
    return columns
