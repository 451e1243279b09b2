"""Tables of silos in every form that :func:`fedrank.data.load` takes: names, files, data frames, arrays.

Every file of a named table is checked; a damaged, edited or look-alike one is refused.

``generated`` is a table of silos in which it is known who helps whom, for machines without data and for tests. It says
nothing about real hospitals. A concept is the probability of label 1 as a function of a row: a linear part, a part that
changes its sign between two kinds of rows, and a product of two features. Silos are named ``hospital-A``,
``hospital-B`` and so on; a note of the table says which is which. Their roles, the first four in this order:

* ``target``: a concept of the first five features; 20 % of its rows are of the second kind (told by the sixth feature);
* ``complementary``: the same concept, and 55 % of the second kind, of which the target sees little;
* ``neutral``: three quarters of the target's concept, which helps, and two thirds of another one in the columns that
  are noise to the target, which distracts about as much;
* ``harmful``: the opposite of the target's concept;
* ``foreign``: in larger federations, groups of silos that share a concept that has nothing to do with the target's.

Forty rows are few for it: a small network has much to gain from a silo of the same concept.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
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
from fedrank.data.folders import find
from fedrank.data.frames import as_array, as_frame, with_columns
from fedrank.data.lines import read_lines, verify
from fedrank.data.sources import Reader
from fedrank.silos.config import OWN_FILE, Silos
from fedrank.silos.data.coding import Coding
from fedrank.silos.data.files import columns_of, read_silos, table_of
from fedrank.silos.data.tables import Silo, SiloTable

#: Silos whose roles a note names.
_SAID = 8
#: Roles of silos.
ROLES = ("target", "complementary", "neutral", "harmful", "foreign")

# The target's concept uses the first five columns, the sixth tells the kind, the others are noise to it.
_USED, _KIND, _LEAST = 5, 5, 8
# Of the parts of a concept, where the linear part is 1.
_BY_KIND, _PRODUCT = 0.3, 0.4
# Standard deviation of a row's logit, about: the higher, the less noise in the labels.
_STRENGTH = 2.0
# Share of rows of the second kind, and how far the two kinds' sixth features blur.
_RARE, _COVERED, _EVEN, _BLUR = 0.2, 0.55, 0.5, 0.3
# A neutral silo's part of the target's concept; the rest, in squares, is its own.
_SHARED = 0.72
# Larger federations: one complementary and one harmful silo in eight, at most five of each; of the others two in
# three are foreign, in groups of about ten.
_ONE_IN, _MOST, _FOREIGN, _GROUP = 8, 5, 2 / 3, 10

_Concept = Callable[[np.ndarray, np.ndarray], np.ndarray]


def generate_silos(silos: int = 4, rows: int = 400, features: int = 10, seed: int = 0) -> SiloTable:
    """Generated silos ``hospital-A`` (target), ``-B`` (complementary), ``-C`` (neutral), ``-D`` (harmful); see module.

    With 40 training rows each and rounds of Federated Averaging of a 32-16-8 network between the target and one other,
    the target's test AUC of .75 alone changed, over 20 seeds, by about +.04 (s.e. .01) with the complementary silo,
    not measurably with the neutral one, and by −.26 (.02) with the harmful one.

    Args:
        silos: Number of silos, at least 2; fewer than 4 are the first ones. Of more there are several of a kind,
            numbered: about one in eight is complementary, at most 5, and as many are harmful; of the others two in
            three are foreign, in groups of about 10, and one is neutral.
        rows: Rows a silo, at least 2.
        features: At least 8.
        seed: Seed (of NumPy's PCG64), at least 0. What is in a silo depends on the seed, its role with its number, and
            the numbers of rows and features.

    Returns:
        A table with ``generated=True``. About half of the labels of a silo are 1.

    Raises:
        ConfigError: A number is out of range.
    """
    limits = (("silos", silos, 2), ("rows", rows, 2), ("features", features, _LEAST), ("seed", seed, 0))
    for what, value, least in limits:
        if value < least:
            raise ConfigError(f"{what} of generated silos must be at least {least}, got {value}.")
    roles = _roles(silos)
    made = tuple(_generated_silo(number, role, rows, features, seed) for number, role in enumerate(roles))
    who = ", ".join(f"{one.name} {role}" for one, role in zip(made[:_SAID], roles, strict=False))
    who += f" and {silos - _SAID} more" if silos > _SAID else ""
    return SiloTable(
        "generated",
        made,
        tuple(f"x{column}" for column in range(features)),
        "generated",
        generated=True,
        notes=("Generated data: numbers measured on it say nothing about real silos.", f"Made as: {who}."),
    )


def _name(number: int) -> str:
    """Name of a silo: hospital-A to hospital-Z, then hospital-AA and so on."""
    letters = ""
    number += 1
    while number:
        number, letter = divmod(number - 1, 26)
        letters = chr(ord("A") + letter) + letters
    return f"hospital-{letters}"


def _roles(silos: int) -> list[str]:
    """Roles of a number of silos, numbered where several silos have one."""
    first = list(ROLES[:4])[:silos]
    some = min(_MOST, max(1, (silos - 1) // _ONE_IN))
    names = [*first, *(f"{role}-{k}" for k in range(2, some + 1) for role in ("complementary", "harmful"))]
    left = max(0, silos - len(names))
    foreign = round(left * _FOREIGN)
    groups = max(1, round(foreign / _GROUP))
    names += [f"neutral-{k}" for k in range(2, left - foreign + 2)]
    return [*names, *(f"foreign-{k % groups + 1}-{k // groups + 1}" for k in range(foreign))]


def _generated_silo(number: int, numbered: str, rows: int, features: int, seed: int) -> Silo:
    """The silo of that number, whose role with its number is given."""
    rng = _rng(seed, f"rows of {numbered}")
    role = numbered.split("-")[0]
    x = rng.standard_normal((rows, features))
    second = {"target": _RARE, "complementary": _COVERED}.get(role, _EVEN)
    kind = np.where(rng.random(rows) < second, 1.0, -1.0)
    x[:, _KIND] = kind + _BLUR * x[:, _KIND]
    concept = _concept(_rng(seed, "target"), 0, _USED)
    if role == "neutral":
        own = _concept(_rng(seed, f"concept of {numbered}"), _KIND + 1, features)
        logit = _SHARED * concept(x, kind) + (1 - _SHARED**2) ** 0.5 * own(x, kind)
    elif role == "foreign":
        group = numbered.rsplit("-", 1)[0]
        logit = _concept(_rng(seed, f"concept of {group}"), 0, _USED)(x, kind)
    else:
        logit = (-1 if role == "harmful" else 1) * concept(x, kind)
    labels = rng.random(rows) < 1 / (1 + np.exp(-_STRENGTH * logit))
    return Silo(_name(number), x.astype(np.float32), labels.astype(np.int8), drawn_as=numbered)


def _concept(rng: np.random.Generator, first: int, last: int) -> _Concept:
    """A random concept of the columns ``first`` .. ``last`` − 1; its values have a variance of about 1."""
    always, by_kind = rng.standard_normal((2, last - first))
    always /= np.linalg.norm(always)
    by_kind -= (by_kind @ always) * always
    by_kind /= np.linalg.norm(by_kind)
    size = (1 + _BY_KIND**2 + _PRODUCT**2) ** 0.5

    def value(x: Float[np.ndarray, "rows features"], kind: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " rows"]:
        used = x[:, first:last]
        return (used @ always + _BY_KIND * kind * (used @ by_kind) + _PRODUCT * used[:, 0] * used[:, 1]) / size

    return value


def _rng(seed: int, what: str) -> np.random.Generator:
    """A random generator that is used for one purpose only."""
    return np.random.Generator(np.random.PCG64([seed, zlib.crc32(what.encode())]))


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
        return read_silos(path, self.settings, self.fewest)

    @override
    def frame(self, frame: Frame) -> SiloTable:
        return table_of(columns_of(frame, self.settings.drop), _OWN, self.settings)

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
    table = read_silos(path, Silos(silo="region", label="insurance", positive="no"))
    return replace(table, name="health-insurance", label="no health insurance", citation=entry.citation)


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
