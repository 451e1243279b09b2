"""Tables that lie at a few organisations: one table of the same columns a silo, with a yes-or-no label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float, Int

from fedrank.core.errors import DataError, UnknownNameError
from fedrank.silos.data.coding import LARGEST, Coding


@dataclass(frozen=True, eq=False)
class Silo:
    """The rows of one organisation.

    Attributes:
        name: Such as ``"hungarian"``.
        features: NaN where a value is missing.
        labels: 8-bit integers, 0 or 1.
        drawn_as: Name by which the division of its rows is drawn; empty: its own.
        person: Number of each row's person, where a person may have several rows; None: each row is another's.

    Raises:
        DataError: The arrays do not fit each other, a feature is infinite, or a label is neither 0 nor 1.
    """

    name: str
    features: Float[np.ndarray, "rows features"]
    labels: Int[np.ndarray, " labels"]  # as many as rows, which is checked with words for whoever made the table
    drawn_as: str = ""
    person: Int[np.ndarray, " rows"] | None = None

    def __post_init__(self):
        if self.features.ndim != 2 or self.labels.shape != self.features.shape[:1]:
            raise DataError(
                f"silo {self.name!r} needs features [rows, features] and labels [rows], "
                f"got {list(self.features.shape)} and {list(self.labels.shape)}."
            )
        if self.features.dtype.kind != "f" or self.labels.dtype != np.int8:
            raise DataError(
                f"silo {self.name!r} needs features of floating-point numbers and int8 labels, "
                f"got {self.features.dtype} and {self.labels.dtype}."
            )
        if len(odd := np.argwhere(np.abs(self.features) > LARGEST)):
            row, column = odd[0]
            raise DataError(
                f"feature {column} of row {row} of silo {self.name!r} is no finite number of 32 bits; "
                "mark it as missing (NaN)."
            )
        if not np.isin(self.labels, (0, 1)).all():
            raise DataError(f"labels of silo {self.name!r} must be 0 or 1, got {np.unique(self.labels).tolist()}.")

    @property
    def n_rows(self) -> int:
        """Number of rows of the silo."""
        return len(self.labels)

    @property
    def positive(self) -> int:
        """Number of rows with label 1."""
        return int(self.labels.sum())


@dataclass(frozen=True, eq=False)
class SiloTable:
    """A table of several silos.

    Attributes:
        name: Such as ``"heart-disease"``.
        silos: The silos, in a fixed order; a silo's number is its place here, from 0.
        feature_names: One name a column.
        label: What label 1 means.
        generated: True if the data was made up by a program; said wherever its numbers appear.
        notes: Sentences that a reader of the numbers should know.
        citation: Key in ``core/references.bib``; empty if there is nothing to cite.
        coding: How the columns of the file or the data frame became features.

    Raises:
        DataError: There is no silo, two have one name, or their columns differ in number from the names.
    """

    name: str
    silos: tuple[Silo, ...]
    feature_names: tuple[str, ...]
    label: str
    generated: bool = False
    notes: tuple[str, ...] = ()
    citation: str = ""
    coding: Coding = field(default_factory=Coding)

    def __post_init__(self):
        if not self.silos:
            raise DataError(f"table {self.name!r} has no silo; it needs one at least.")
        twice = [name for name in self.names if self.names.count(name) > 1]
        if twice:
            raise DataError(f"two silos of table {self.name!r} are named {twice[0]!r}; give each another name.")
        for silo in self.silos:
            if silo.features.shape[1] != self.n_features:
                raise DataError(
                    f"silo {silo.name!r} of table {self.name!r} has {silo.features.shape[1]} columns, "
                    f"but there are {self.n_features} names of features."
                )

    @property
    def n_silos(self) -> int:
        """Number of silos in the table."""
        return len(self.silos)

    @property
    def n_features(self) -> int:
        """Number of columns of features."""
        return len(self.feature_names)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the silos, in order."""
        return tuple(silo.name for silo in self.silos)

    @property
    def n_rows(self) -> int:
        """Number of rows of all silos together."""
        return sum(silo.n_rows for silo in self.silos)

    def index(self, silo: str | int) -> int:
        """A silo's number.

        Args:
            silo: Its name, whatever the case of its letters, or its number from 0, also as text. A name wins over
                a number.

        Raises:
            UnknownNameError: There is no such silo; says which was probably meant.
        """
        text = str(silo)
        if isinstance(silo, str):
            same = [k for k, name in enumerate(self.names) if name == silo]
            same = same or [k for k, name in enumerate(self.names) if name.lower() == silo.lower()]
            if len(same) == 1:
                return same[0]
        if text.isdecimal() and int(text) < self.n_silos:
            return int(text)
        raise UnknownNameError("silo", text, self.names)

    def without(self, silo: str | int) -> SiloTable:
        """The same table without one silo.

        Raises:
            UnknownNameError: There is no such silo.
            DataError: It is the only one.
        """
        number = self.index(silo)
        left = tuple(other for k, other in enumerate(self.silos) if k != number)
        return replace(self, silos=left, notes=(*self.notes, f"Silo {self.names[number]} was left out."))

    def with_inverted_labels(self, silo: str | int) -> SiloTable:
        """The same table with one silo poisoned: all of its labels are inverted.

        Raises:
            UnknownNameError: There is no such silo.
        """
        number = self.index(silo)
        bad = self.silos[number]
        silos = list(self.silos)
        silos[number] = replace(bad, labels=(1 - bad.labels).astype(np.int8))
        note = f"The labels of silo {bad.name} were inverted on purpose."
        return replace(self, silos=tuple(silos), notes=(*self.notes, note))

    def drop_uninformative(self) -> SiloTable:
        """The same table without rows that have no value and without columns that never vary.

        Whether a column varies is decided over all silos together, so that all keep the same columns. In a federation
        the silos agree on their columns beforehand; here it is done for them. A note says what was removed.
        """
        notes = list(self.notes)
        kept = []
        for silo in self.silos:
            empty = np.isnan(silo.features).all(axis=1)
            if empty.any():
                notes.append(f"{_count(int(empty.sum()), 'row')} of silo {silo.name} had no value at all and went.")
            person = None if silo.person is None else silo.person[~empty]
            kept.append(replace(silo, features=silo.features[~empty], labels=silo.labels[~empty], person=person))
        everything = np.concatenate([silo.features for silo in kept])
        # fmin and fmax pass over NaN; a column without any value compares as False.
        low, high = np.fmin.reduce(everything, initial=np.nan), np.fmax.reduce(everything, initial=np.nan)
        varies = high > low
        if not varies.all():
            gone = [name for name, keep in zip(self.feature_names, varies, strict=True) if not keep]
            notes.append(f"{_count(len(gone), 'column')} never varied and went: {_list_names(gone)}.")
            kept = [replace(silo, features=silo.features[:, varies]) for silo in kept]
        names = tuple(name for name, keep in zip(self.feature_names, varies, strict=True) if keep)
        return replace(self, silos=tuple(kept), feature_names=names, notes=tuple(notes))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _list_names(names: Sequence[str], most: int = 10) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
