"""A silo's own table at its node, and a stand-in for the tables of all silos at the server, which has no rows.

Silos never see each other's tables, so what their columns mean has to be agreed beforehand. A node refuses what could
differ from silo to silo: text would become other columns at each. It takes the columns in order of their names and
tells the server a short hash of the names, so that a silo with others is noticed before anything is learnt.
"""

from __future__ import annotations

import csv
import dataclasses
import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int8

from fedrank.core.errors import ConfigError, DataError
from fedrank.silos.build import SiloExperiment, build_silos, public_standards, sizes
from fedrank.silos.config import Silos, SilosConfig
from fedrank.silos.data.files import read_columns
from fedrank.silos.data.looks import looks_wrong
from fedrank.silos.data.splits import SiloArrays, split_many, undefined_auc
from fedrank.silos.data.tables import Silo, SiloTable
from fedrank.silos.data.values import LARGEST, as_codes, cell_number, numbers_of, refuse_spellings, without
from fedrank.silos.private_sgd import PrivateSgd

_log = logging.getLogger("fedrank.silos")

#: Rows of each silo of a stand-in: enough for three parts with both labels in each.
_ROWS = 8


def stand_in(config: SilosConfig, n_features: int) -> SiloExperiment:
    """The experiment without anybody's rows: as many silos, as many features.

    Args:
        config: The run; ``silos.count`` says how many silos.
        n_features: Features of a row, at least 1.

    Raises:
        ConfigError: The run names silos, which have numbers only where each has its own table.
    """
    s = config.silos
    if s.exclude or s.inverted:
        raise ConfigError(
            "silos.exclude and silos.inverted name silos of a known set; here each silo has its own table."
        )
    if s.categorical:
        raise ConfigError("silos.categorical: where each silo has its own table, make a column of 0 and 1 a level.")
    silos = Silos(target=s.target, train=0.25, vali=0.5, stratified=True, count=s.count)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "stand-in.csv")
        with open(path, "w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(["silo", "label", *(f"x{column}" for column in range(n_features))])
            for number in range(s.count):
                rows.writerows([number, row % 2, *([row] * n_features)] for row in range(_ROWS))
        made = dataclasses.replace(config, data=str(path), silos=silos)
        if (privacy := config.record_privacy) is not None:
            ranges = tuple(f"x{column}=0:1" for column in range(n_features))
            made = dataclasses.replace(made, privacy=dataclasses.replace(privacy, ranges=ranges))
        whole = build_silos(made)
    sgd = whole.protocol.sgd
    if not isinstance(sgd, PrivateSgd):
        return whole
    elsewhere = dataclasses.replace(sgd, elsewhere=True)
    return dataclasses.replace(whole, protocol=dataclasses.replace(whole.protocol, sgd=elsewhere))


def read_table(path: Path, settings: Silos, *, private: bool = False) -> tuple[Silo, tuple[str, ...]]:
    """One silo's table from a CSV or parquet file: numbers only, columns in order of their names.

    Files are read as those of all silos together are (:func:`fedrank.silos.data.files.read_columns`). For a missing
    value stands the silo's training mean. Rows without a label go. What looks wrong in a column is logged at the silo.

    Args:
        path: The file.
        settings: Which column is the label, which of its values is 1, which columns are no features.
        private: Whether a record has an ε. Then nothing that is done depends on what a record holds: each cell is read
            by itself, one that is no number counts as missing, a label that is not the one that counts as 1 (1 or true,
            unless ``silos.positive`` says another) as 0; no row goes and none is refused.

    Returns:
        The silo, and the names of its features.

    Raises:
        MissingDataError: There is no such file.
        FormatError: The file, or a line of it, cannot be read.
        DataError: A column is missing or, without an ε, not of numbers, or the label is neither 0 and 1 nor told by
            ``silos.positive``.
    """
    columns = read_columns(path, settings.drop)
    if settings.label not in columns:
        raise DataError(
            f"there is no column {settings.label!r} with the label; the columns are {', '.join(columns)}.", path
        )
    label = columns[settings.label]
    names = tuple(sorted(set(columns) - {settings.label, settings.silo, *settings.drop}))
    known = np.array([private or value is not None for value in label])
    if not names or not known.any():
        raise DataError("there are no features or no rows with a label; nothing to learn from.", path)
    read = _each_cell if private else _numbers
    features = np.stack([read(name, columns[name], settings, path) for name in names], axis=1)[known]
    if private:
        labels = _each_label(label, settings, path)
    else:
        labels = _labels([value for value in label if value is not None], settings, path)
    for said in looks_wrong(features, labels, names):
        _log.warning("%s: %s", path.name, said)
    return Silo(path.name.split(".")[0], features, labels), names


def _each_cell(name: str, values: Sequence[Any], settings: Silos, path: Path) -> Float[np.ndarray, " rows"]:
    """A column as numbers, each cell read by itself; NaN where it is missing, no number or not finite."""
    cells = [None if value is None else cell_number(value) for value in without(values, settings.missing)]
    column = np.array([np.nan if number is None or not abs(number) <= LARGEST else number for number in cells], float)
    if odd := int(np.isnan(column).sum()) - sum(value is None for value in values):
        _log.warning("%s: %d values of column %r count as missing.", path.name, odd, name)
    return column


def _each_label(values: Sequence[Any], settings: Silos, path: Path) -> Int8[np.ndarray, " rows"]:
    """Labels, each cell read by itself: 1 where it is the value that counts as 1, else 0.

    What a cell holds refuses nothing; the silo alone is told what was read as 0 though it may not mean it.
    """
    if unlabelled := sum(value is None for value in values):
        _log.warning("%s: %d rows have no label, which counts as 0.", path.name, unlabelled)
    (one,) = as_codes([_as_digit("1" if settings.positive is None else settings.positive)])
    codes = [as_codes([_as_digit(value)])[0] for value in values]
    odd = 0 if settings.positive is not None else sum(code not in (None, "0", "1") for code in codes)
    if odd or one not in codes:
        _log.error(
            "%s: %d of %d labels %r count as 1, %d are neither 0 and 1 nor true and false and count as 0. The run says "
            "which value is 1 (silos-positive), for all silos alike.",
            path.name, codes.count(one), len(codes), settings.label, odd,
        )  # fmt: skip
    return np.array([code == one for code in codes], np.int8)


def _as_digit(value: Any) -> Any:
    """1 of true, 0 of false, in any spelling; other values as they are."""
    return {"true": 1, "false": 0}.get(str(value).lower(), value)


def _numbers(name: str, values: Sequence[Any], settings: Silos, path: Path) -> Float[np.ndarray, " rows"]:
    """A column as numbers, NaN where a value is missing; True and False are 1 and 0.

    Raises:
        DataError: It holds text, or a number that is not finite.
    """
    found = numbers_of(name, [_as_digit(value) for value in without(values, settings.missing)], path)
    if found is None:
        raise DataError(
            f"column {name!r} holds text, such as {next(v for v in values if v is not None)!r}; where each silo has "
            "its own file, all columns must be numbers. Make one column of 0 and 1 a level, the same at every silo, or "
            "name it in silos.drop.",
            path,
        )
    column, note = found
    if note:
        _log.warning("%s: %s", path.name, note)
    return column


def _labels(values: Sequence[Any], settings: Silos, path: Path) -> Int8[np.ndarray, " rows"]:
    codes = as_codes([_as_digit(value) for value in values])
    refuse_spellings(f"label {settings.label!r} has the values", codes, "Write each value in one way.", path)
    if settings.positive is not None:
        one = as_codes([_as_digit(settings.positive)])
        return np.array([[code] == one for code in codes], np.int8)
    if not set(codes) <= {"0", "1"}:
        raise DataError(
            f"the label {settings.label!r} must be 0 or 1, got {sorted(set(map(str, values)))[:5]}; else the run says "
            "which value is 1 (silos-positive), for all silos alike.",
            path,
        )
    return np.array([code == "1" for code in codes], np.int8)


def own_rows(path: Path, config: SilosConfig) -> tuple[SiloArrays, tuple[str, ...]]:
    """A silo's rows from its own file, divided and standardised by itself: leading axes [1, 1].

    Args:
        path: The file.
        config: The run: sizes, seed, names of columns.

    Returns:
        The rows and the names of the features.

    Raises:
        DataError: As :func:`read_table`, or there are too few rows.
    """
    silo, names = read_table(path, config.silos, private=config.record_privacy is not None)
    table = SiloTable(silo.name, (silo,), names, config.silos.label)
    public = public_standards(config, names)
    return split_many(table, [config.seed], sizes(config), config.silos.stratified, public), names


def refuse_undefined(arrays: SiloArrays, what: str) -> None:
    """Raise DataError where the silo that models are judged at has no rows to judge by."""
    for found in undefined_auc(arrays, (what,)):
        if found.part == "vali":
            raise DataError(
                f"{found.text} Take more rows (silos.train, silos.vali), silos.stratified, or silos.measure = "
                "'log-loss'."
            )
