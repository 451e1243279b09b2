"""A silo's own table at its node, and a stand-in for the tables of all silos at the server, which has no rows.

Silos never see each other's tables, so what their columns mean has to be agreed beforehand. A node refuses what could
differ from silo to silo: text would become other columns at each. It takes the columns in order of their names and
tells the server a short hash of the names, so that a silo with others is noticed before anything is learnt.
"""

from __future__ import annotations

import csv
import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from fedrank.core.errors import ConfigError, DataError, FormatError, MissingDataError
from fedrank.silos.build import SiloExperiment, build_silos, public_standards, sizes
from fedrank.silos.config import Silos, SilosConfig
from fedrank.silos.data.files import MISSING
from fedrank.silos.data.splits import SiloArrays, split_many, undefined_auc
from fedrank.silos.data.tables import Silo, SiloTable
from fedrank.silos.data.values import as_number
from fedrank.silos.private_sgd import PrivateSgd

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

    A value is missing where a cell is empty or NaN; the silo's training mean stands for it. Rows without a label go.

    Args:
        path: The file.
        settings: Which column is the label, which of its values is 1, which columns are no features.

    Returns:
        The silo, and the names of its features.

    Raises:
        DataError: A column is missing or not of numbers, or the label is neither 0 and 1 nor told by
            ``silos.positive``.
    """
    import polars as pl

    if not path.is_file():
        raise MissingDataError("there is no such file; give the path of the silo's CSV or parquet file.", path)
    try:
        if path.read_bytes()[:4] == b"PAR1":
            frame = pl.read_parquet(path)
        else:
            with open(path, encoding="utf-8-sig") as file:
                first = file.readline()
            missing = [word for m in MISSING for word in {m, m.upper(), m.capitalize(), "NaN"}]
            separator = max(",;\t", key=first.count)
            frame = pl.read_csv(path, separator=separator, null_values=missing, infer_schema_length=None)
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as cause:
        raise FormatError(f"the file cannot be read: {cause}.", path) from cause
    if settings.label not in frame.columns:
        raise DataError(f"there is no column {settings.label!r} with the label; the columns are {frame.columns}.", path)
    frame = frame.filter(pl.col(settings.label).is_not_null())
    label = frame[settings.label]
    features = frame.drop([settings.label, settings.silo, *settings.drop], strict=False)
    names = tuple(sorted(features.columns))
    for name in names:
        kind = features.schema[name]
        if not (kind.is_numeric() or kind == pl.Boolean):
            raise DataError(
                f"column {name!r} is of type {kind}; where each silo has its own file, all columns must be numbers. "
                "Make one column of 0 and 1 a level, the same at every silo, or name it in silos.drop.",
                path,
            )
    if not names or not frame.height:
        raise DataError("there are no features or no rows with a label; nothing to learn from.", path)
    columns = [features[name].cast(pl.Float32).to_numpy() for name in names]
    codes = [number for one in settings.missing if (number := as_number(one)) is not None]
    columns = [np.where(np.isin(column, codes), np.float32(np.nan), column) for column in columns]
    return Silo(path.name.split(".")[0], np.stack(columns, axis=1), _labels(label, settings, path)), names


def _labels(label: Any, settings: Silos, path: Path) -> np.ndarray:
    values = [int(value) if isinstance(value, bool) else value for value in label.to_list()]
    if settings.positive is not None:
        one = settings.positive
        return np.array(
            [str(value) == one or as_number(value) == as_number(one) is not None for value in values], np.int8
        )
    numbers = [as_number(value) for value in values]
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
