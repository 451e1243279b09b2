"""Divide the rows of every silo into training, validation and test rows, each silo by itself.

No row of a silo leaves it: its columns are brought to mean 0 and standard deviation 1 with the mean and the deviation
of the silo's *training* rows, and what is missing becomes the training mean, which is 0 afterwards.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int

from fedrank.core.errors import ConfigError, DataError
from fedrank.silos.data.looks import group_rows
from fedrank.silos.data.tables import Silo, SiloTable
from fedrank.silos.glm import Moments, moments_of


class Rows(NamedTuple):
    """Rows of one silo, or of many with leading axes, such as [silos] or [seeds, silos].

    Attributes:
        x: Features; 0 on padding.
        y: Labels, 0 or 1; 0 on padding.
        n: Number of valid rows, 0 .. rows. They come first.
    """

    x: Float[np.ndarray, "*lead rows features"]
    y: Float[np.ndarray, "*lead rows"]
    n: Int[np.ndarray, "*lead"]

    @property
    def where(self) -> Bool[np.ndarray, "*lead rows"]:
        """Mask of rows that are data rather than padding.

        >>> Rows(np.zeros((3, 2), np.float32), np.zeros(3, np.float32), np.int32(2)).where
        array([ True,  True, False])
        """
        return np.asarray(self.n)[..., None] > np.arange(self.y.shape[-1], dtype=np.int32)


#: Keeps the draw of divisions apart from other uses of a seed.
_SPLIT = 0x51105
#: Products of shares and numbers of rows are whole up to this.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Sizes:
    """Number of rows of each silo that train and that validate; the others are the test.

    A whole number is a number of rows and is taken first. A share is of the rows that are left after those: of all rows
    if there are only shares, as in the thesis (Lundahl 2021, section 4.1): 1 % to train, 40 % to validate, 59 % to
    test. For a silo of few rows 1 % is nothing: take a number of rows.

    Attributes:
        train: A number of rows, at least 1, or a share in (0, 1).
        vali: The same.

    Raises:
        ConfigError: A size is out of range.
    """

    train: float | int
    vali: float | int

    def __post_init__(self):
        for part, size in (("train", self.train), ("vali", self.vali)):
            if not (size >= 1 if isinstance(size, int) else 0 < size < 1):
                raise ConfigError(
                    f"{part} rows of a silo must be a whole number of at least 1 or a share between 0 and 1, got "
                    f"{size!r}."
                )

    def of(self, rows: int, silo: str = "") -> tuple[int, int, int]:
        """Rows to train, validate and test on, of a silo of ``rows`` rows.

        Raises:
            DataError: There are too few rows for these sizes.
        """
        sizes = (self.train, self.vali)
        left = rows - sum(size for size in sizes if isinstance(size, int))
        # Shares are cut at rounded places of their running sum, so that every row is used.
        upto, numbers = 0.0, []
        for size in sizes:
            if isinstance(size, int):
                numbers.append(size)
            else:
                numbers.append(_place(upto + size, left) - _place(upto, left))
                upto += size
        train, vali, test = *numbers, left - _place(upto, left)
        if left < 0 or min(train, vali, test) < 1:
            got = f"train {train}, vali {vali}, test {test} rows"
            got = got if left >= 0 else f"{rows - left} rows before anything else"
            raise DataError(
                f"silo {silo!r} has {rows} rows, too few for train={self.train:g}, vali={self.vali:g} and a test, "
                f"which would take {got}. Give each part one row at least: take other sizes, such as a number of "
                "training rows, or leave the silo out."
            )
        return train, vali, test


class SiloArrays(NamedTuple):
    """Every silo's rows, standardised, padded to the longest silo.

    Attributes:
        train: Rows to train on; leading axes [silos] or [seeds, silos].
        vali: Rows by which models are chosen.
        test: Rows on which the chosen models are evaluated.
    """

    train: Rows
    vali: Rows
    test: Rows


class UndefinedAuc(NamedTuple):
    """Rows of one class only, on which AUC does not exist.

    Attributes:
        silo: The silo's number.
        part: ``train``, ``vali`` or ``test``.
        text: The sentence about it.
    """

    silo: int
    part: str
    text: str


_PARTS = ("train", "vali", "test")
_TITLES = {"train": "training", "vali": "validation", "test": "test"}


#: Mean and deviation of each column by which rows are standardised.
Standards: TypeAlias = tuple[Float[np.ndarray, " features"], Float[np.ndarray, " features"]]


def split(
    table: SiloTable, seed: int, sizes: Sizes, stratified: bool = False, public: Standards | None = None
) -> SiloArrays:
    """Divide and standardise every silo, uniformly at random.

    A silo's division depends on the seed, its name and its number of rows, and on nothing of any other silo: leaving a
    silo out or inverting its labels changes no other.

    Args:
        table: The silos.
        seed: At least 0, of NumPy's PCG64.
        sizes: How many rows go where.
        stratified: Whether all parts have a silo's share of positive labels, up to one row. The thesis draws uniformly.
        public: Mean and deviation for all silos that come from no row; None: those of each silo's training rows.

    Returns:
        NumPy arrays with the leading axis [silos]. A training part may have one row or one class.

    Raises:
        DataError: A silo has too few rows for the sizes.
    """
    numbers = [sizes.of(silo.n_rows, silo.name) for silo in table.silos]
    longest = [max(silo[part] for silo in numbers) for part in range(len(_PARTS))]
    silos = []
    for silo, taken in zip(table.silos, numbers, strict=True):
        order = _order(silo, seed, stratified)
        if public is None:  # else which rows train would depend on what records hold
            order = _groups_together(silo, order)
        train, vali, test, _ = np.split(order, np.cumsum(taken))
        x = standardise_rows(silo.features, *(moments_of(silo.features[train])[1:] if public is None else public))
        y = silo.labels.astype(np.float32)
        silos.append([_pad(x[part], y[part], rows) for part, rows in zip((train, vali, test), longest, strict=True)])
    return SiloArrays(*(_stack([silo[part] for silo in silos]) for part in range(len(_PARTS))))


def split_many(
    table: SiloTable,
    seeds: Sequence[int],
    sizes: Sizes,
    stratified: bool = False,
    public: Standards | None = None,
) -> SiloArrays:
    """Several divisions at once; arguments and errors as :func:`split`.

    Returns:
        NumPy arrays with the leading axes [seeds, silos].
    """
    many = [split(table, seed, sizes, stratified, public) for seed in seeds]
    return SiloArrays(*(_stack([getattr(arrays, part) for arrays in many]) for part in _PARTS))


def undefined_auc(arrays: SiloArrays, names: Sequence[str] = ()) -> list[UndefinedAuc]:
    """The silos whose validation or test rows are of one class, so that their AUC does not exist.

    Args:
        arrays: Leading axes [silos] or [..., silos]; the others count as divisions.
        names: Names of the silos, for the sentences; without them they are numbered.
    """
    return [
        found._replace(text=found.text + "; AUC is undefined there.")
        for part in ("vali", "test")
        for found in _one_class(getattr(arrays, part), part, names)
    ]


def training_notes(arrays: SiloArrays, names: Sequence[str] = ()) -> list[str]:
    """A sentence for each silo whose training rows are of one class; such a silo can still train."""
    return [found.text + "." for found in _one_class(arrays.train, "train", names)]


def _one_class(rows: Rows, part: str, names: Sequence[str]) -> list[UndefinedAuc]:
    """The silos whose rows of a part are of one class."""
    positive, n = np.asarray(rows.y).sum(axis=-1), np.asarray(rows.n)
    alike = ((positive == 0) | (positive == n)).reshape(-1, n.shape[-1])
    found = []
    for silo in np.flatnonzero(alike.any(axis=0)).tolist():
        name = names[silo] if names else silo
        often = "" if len(alike) == 1 else f" in {int(alike[:, silo].sum())} of {len(alike)} divisions"
        found.append(UndefinedAuc(silo, part, f"Silo {name} has {_TITLES[part]} rows of one class only{often}"))
    return found


def _place(share: float, rows: int) -> int:
    """A share of ``rows`` rows, rounded to a whole number."""
    return int(share * rows + 0.5 + _ROUNDING)


def _order(silo: Silo, seed: int, stratified: bool) -> Int[np.ndarray, " rows"]:
    """The silo's rows in random order; if stratified, classes alternate so that every prefix is balanced."""
    rng = np.random.Generator(np.random.PCG64([seed, _SPLIT, zlib.crc32((silo.drawn_as or silo.name).encode())]))
    order = rng.permutation(silo.n_rows)
    if not stratified:
        return order
    labels = silo.labels[order]
    turn = np.empty(silo.n_rows)
    for label in (0, 1):
        own = np.flatnonzero(labels == label)
        turn[own] = (np.arange(len(own)) + 0.5) / max(len(own), 1)
    return order[np.argsort(turn, kind="stable")]


def _groups_together(silo: Silo, order: Int[np.ndarray, " rows"]) -> Int[np.ndarray, " rows"]:
    """The order with copies of a row, and rows of one person, behind the first one: parts have none of each other's.

    A group that lies across the end of a part is cut there, as parts have fixed sizes.
    """
    if (found := group_rows(silo.features, silo.person)) is None:
        return order
    group = found[order]
    first = np.unique(group, return_index=True)[1]
    return order[np.argsort(first[group], kind="stable")]


def standards(table: SiloTable, seed: int, sizes: Sizes, stratified: bool, silo: int) -> Standards:
    """Mean and deviation that standardise a silo's rows; see :func:`standardise_rows`.

    Args:
        table: The silos.
        seed: Of the division.
        sizes: How many rows go where.
        stratified: As :func:`split` has it.
        silo: The silo's number.

    Returns:
        Mean and deviation (divisor n) of the training rows; the deviation of a constant column is 0.
    """
    mine = table.silos[silo]
    train = _groups_together(mine, _order(mine, seed, stratified))[: sizes.of(mine.n_rows, mine.name)[0]]
    return moments_of(mine.features[train])[1:]


def standardise_rows(
    features: Float[np.ndarray, "rows features"],
    mean: Float[np.ndarray, " features"],
    deviation: Float[np.ndarray, " features"],
) -> Float[np.ndarray, "rows features"]:
    """Rows as networks get them, float32: (x − mean) / deviation; 0 for what is missing and for constant columns."""
    moments = Moments(np.full(len(mean), np.nan), mean, deviation)  # of how many rows plays no part
    return moments.standardise(features.astype(float)).astype(np.float32)


def _pad(x: Float[np.ndarray, "n features"], y: Float[np.ndarray, " n"], rows: int) -> Rows:
    """Rows of one silo, padded with zeros to a length."""
    extra = rows - len(y)
    return Rows(np.pad(x, ((0, extra), (0, 0))), np.pad(y, (0, extra)), np.asarray(len(y), np.int32))


def _stack(many: Sequence[Rows]) -> Rows:
    """Rows with a leading axis more."""
    return Rows(*(np.stack(arrays) for arrays in zip(*many, strict=True)))
