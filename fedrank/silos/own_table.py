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
from jaxtyping import Float32, Int8

from fedrank.core.errors import ConfigError, DataError
from fedrank.silos.build import SiloExperiment, build_silos, public_standards, sizes
from fedrank.silos.config import Silos, SilosConfig
from fedrank.silos.data.files import read_columns, without
from fedrank.silos.data.looks import is_date, looks_wrong, with_points
from fedrank.silos.data.splits import SiloArrays, split_many, undefined_auc
from fedrank.silos.data.tables import Silo, SiloTable
from fedrank.silos.data.values import as_number
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


def read_table(path: Path, settings: Silos) -> tuple[Silo, tuple[str, ...]]:
    """One silo's table from a CSV or parquet file: numbers only, columns in order of their names.

    Files are read as those of all silos together are (:func:`fedrank.silos.data.files.read_columns`). For a missing
    value stands the silo's training mean. Rows without a label go. What looks wrong in a column is logged at the silo.

    Args:
        path: The file.
        settings: Which column is the label, which of its values is 1, which columns are no features.

    Returns:
        The silo, and the names of its features.

    Raises:
        MissingDataError: There is no such file.
        FormatError: The file, or a line of it, cannot be read.
        DataError: A column is missing or not of numbers, or the label is neither 0 and 1 nor told by
            ``silos.positive``.
    """
    columns = read_columns(path, settings.drop)
    if settings.label not in columns:
        raise DataError(
            f"there is no column {settings.label!r} with the label; the columns are {', '.join(columns)}.", path
        )
    label = columns[settings.label]
    known = np.array([value is not None for value in label])
    names = tuple(sorted(set(columns) - {settings.label, settings.silo, *settings.drop}))
    if not names or not known.any():
        raise DataError("there are no features or no rows with a label; nothing to learn from.", path)
    features = np.stack([_numbers(name, columns[name], settings, path) for name in names], axis=1)[known]
    labels = _labels([value for value in label if value is not None], settings, path)
    for said in looks_wrong(features, labels, names):
        _log.warning("%s: %s", path.name, said)
    return Silo(path.name.split(".")[0], features, labels), names


def _numbers(name: str, values: Sequence[Any], settings: Silos, path: Path) -> Float32[np.ndarray, " rows"]:
    """A column as numbers, NaN where a value is missing; True and False are 1 and 0.

    Raises:
        DataError: It holds text, or a number that is not finite.
    """
    values = without(values, settings.missing)
    if (pointed := with_points(values)) is not None:
        _log.warning("%s: column %r has decimal commas and was read as numbers.", path.name, name)
        values = pointed
    numbers = [np.nan if value is None else _number(value) for value in values]
    if (odd := next((value for value, n in zip(values, numbers, strict=True) if n is None), None)) is not None:
        what = "dates" if is_date(values) else "text"
        raise DataError(
            f"column {name!r} holds {what}, such as {odd!r}; where each silo has its own file, all columns must be "
            "numbers. Make one column of 0 and 1 a level, the same at every silo, or name it in silos.drop.",
            path,
        )
    with np.errstate(over="ignore"):
        column = np.array(numbers, float).astype(np.float32)
    if np.isinf(column).any():
        raise DataError(f"column {name!r} has a value that is no finite number of 32 bits; mend it, or drop it.", path)
    return column


def _number(value: Any) -> float | None:
    """A cell as a number; 1 and 0 for True and False, however they are written; None for other text."""
    truth = {"true": 1.0, "false": 0.0}.get(str(value).lower())
    return as_number(value) if truth is None else truth


def _labels(values: Sequence[Any], settings: Silos, path: Path) -> Int8[np.ndarray, " rows"]:
    if settings.positive is not None:
        one = settings.positive
        return np.array([str(value) == one or _number(value) == _number(one) is not None for value in values], np.int8)
    numbers = [_number(value) for value in values]
    if not set(numbers) <= {0.0, 1.0}:
        raise DataError(
            f"the label {settings.label!r} must be 0 or 1, got {sorted(set(map(str, values)))[:5]}; else the run says "
            "which value is 1 (silos-positive), for all silos alike.",
            path,
        )
    return np.array(numbers, np.int8)


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
    silo, names = read_table(path, config.silos)
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
