"""How columns of a table became features, so that other rows become the same features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from fedrank.core.errors import DataError
from fedrank.core.trees import Json
from fedrank.silos.data.values import as_codes, numbers_of

_SHOWN = 5


@dataclass(frozen=True)
class Coding:
    """How columns become features: numbers stay numbers, text and codes become a column of 0 and 1 a level.

    Attributes:
        levels: Column -> its levels. The feature of a level is named ``column=level``; not every level has one.
        codes: Those of these columns whose numbers are codes: 1 and 1.0 are one level.
        never_zero: Columns in which 0 means that nobody measured it.
        label: Column of the label; empty where the table has none.
        positive: The value of the label that counts as 1.
    """

    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    codes: tuple[str, ...] = ()
    never_zero: tuple[str, ...] = ()
    label: str = ""
    positive: str = ""

    def as_json(self) -> dict[str, Json]:
        """The coding as JSON can hold it."""
        return {
            "levels": {name: list(levels) for name, levels in self.levels.items()},
            "codes": list(self.codes),
            "never_zero": list(self.never_zero),
            "label": self.label,
            "positive": self.positive,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Json]) -> Coding:
        """The inverse of :meth:`as_json`."""
        return cls(
            levels={name: tuple(levels) for name, levels in value["levels"].items()},
            codes=tuple(value["codes"]),
            never_zero=tuple(value["never_zero"]),
            label=value["label"],
            positive=value["positive"],
        )

    def sources(self, names: Sequence[str], columns: Sequence[str]) -> dict[str, tuple[str, str | None]]:
        """Where each feature comes from: a column of numbers, or a level of a column.

        Args:
            names: Names of the features.
            columns: Names of the columns that there are.

        Returns:
            Feature -> (column, None), or (column, level).

        Raises:
            DataError: Columns are missing; says which.
        """
        of_level = {f"{column}={level}": (column, level) for column, levels in self.levels.items() for level in levels}
        found: dict[str, tuple[str, str | None]] = {}
        missing: list[str] = []
        for name in names:
            column, level = of_level.get(name, (name, None))
            if name in columns:
                found[name] = (name, None)
            elif column in columns:
                found[name] = (column, level)
            elif column not in missing:
                missing.append(column)
        if missing:
            more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
            listed = ", ".join(map(repr, missing[:_SHOWN])) + more
            raise DataError(f"the table lacks {len(missing)} of the columns that the model needs: {listed}.")
        return found

    def features(
        self, columns: Mapping[str, Sequence[Any]], names: Sequence[str]
    ) -> Float[np.ndarray, "rows features"]:
        """The features of rows.

        Args:
            columns: Columns by name, None where a value is missing; others than those needed are left out.
            names: Names of the features, in order.

        Returns:
            float64 [rows, features], NaN where a value is missing.

        Raises:
            DataError: A column is missing, holds no number where one is needed, or a level that is not known.
        """
        sources = self.sources(names, list(columns))
        coded: dict[str, list[str | None]] = {}
        for column in {column for column, level in sources.values() if level is not None}:
            values = columns[column]
            coded[column] = (
                as_codes(values) if column in self.codes else [None if v is None else str(v) for v in values]
            )
            for row, value in enumerate(coded[column], 1):
                if value is not None and value not in self.levels[column]:
                    known = ", ".join(map(repr, self.levels[column]))
                    raise DataError(
                        f"column {column!r} has the value {value!r} in row {row}, which no row of training had; "
                        f"known are {known}. Leave it empty where it is unknown."
                    )
        out = []
        for column, level in sources.values():
            if level is None:
                out.append(self._numbers(column, columns[column]))
            else:
                out.append(np.array([np.nan if v is None else float(v == level) for v in coded[column]]))
        rows = len(next(iter(columns.values()), ()))
        return np.stack(out, axis=1) if out else np.zeros((rows, 0))

    def _numbers(self, column: str, values: Sequence[Any]) -> Float[np.ndarray, " rows"]:
        found = numbers_of(column, [float(value) if isinstance(value, bool) else value for value in values])
        if found is None:
            text = next(value for value in values if value is not None)
            raise DataError(f"column {column!r} holds text, such as {text!r}; the model needs numbers.")
        numbers = found[0]
        if column in self.never_zero:
            numbers[numbers == 0] = np.nan
        return numbers
