"""A data set cut into the part to learn from, the part to choose by, and the part to judge by.

Features are brought to a common range, within each query or by constants. Online learners take one step size for all
features, so a feature that counts to 10⁸ drowns the others. LETOR 4.0 publishes its features normalised within each
query (``Querylevelnorm``); MSLR-WEB's are as they were measured. The same recipe here: each feature of each query runs
from 0 to 1. It needs no statistics of other queries, so a device can do it alone; but a document's score depends on
which others are scored with it, which no search engine computes. :class:`Constants` are fitted once, and a document
alone has the score that it has among others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Float32, Float64

from fedrank.core.errors import DataError, UnknownNameError
from fedrank.core.trees import Json
from fedrank.ranking.data.queries import QuerySet, concatenate

#: Normalisations that :func:`normalise` knows.
HOWS = ("none", "query-minmax", "auto")
#: Those by constants, which :func:`fit_constants` fits.
CONSTANT = ("standard", "min-max", "log")


@dataclass(frozen=True, eq=False)
class Constants:
    """A normalisation by constants: (x − centre) / spread of each feature; 0 where the spread is 0.

    Attributes:
        how: ``standard``: mean and standard deviation; ``min-max``: least value and range; ``log``: mean and standard
            deviation of sign(x) · ln(1 + |x|), which is taken first.
        centre: float64 [f].
        spread: float64 [f], at least 0.
    """

    how: str
    centre: Float64[np.ndarray, " f"]
    spread: Float64[np.ndarray, " f"]

    def apply(self, features: Float[np.ndarray, "documents f"]) -> Float32[np.ndarray, "documents f"]:
        """Features normalised by the constants, float32 of the shape of the features given."""
        x = _signed_log(features) if self.how == "log" else features
        varies = self.spread > 0
        scaled = (np.asarray(x, np.float64) - self.centre) / np.where(varies, self.spread, 1.0)
        return np.where(varies, scaled, 0.0).astype(np.float32)

    def as_json(self) -> dict[str, Json]:
        """The constants as JSON can hold them, exactly."""
        return {"how": self.how, "centre": self.centre.tolist(), "spread": self.spread.tolist()}

    @classmethod
    def from_json(cls, kept: dict[str, Json]) -> Constants:
        """The inverse of :meth:`as_json`.

        Raises:
            KeyError: Something is missing.
            ValueError: A spread is negative, or a number is not finite.
        """
        centre, spread = np.array(kept["centre"], np.float64), np.array(kept["spread"], np.float64)
        if not (np.isfinite(centre) & np.isfinite(spread) & (spread >= 0)).all():
            raise ValueError("constants of a normalisation must be finite, and spreads at least 0")
        return cls(str(kept["how"]), centre, spread)


def fit_constants(features: Float[np.ndarray, "documents f"], how: str) -> Constants:
    """Constants of the documents' features.

    Args:
        features: The documents.
        how: One of :data:`CONSTANT`.

    Raises:
        UnknownNameError: There is no such normalisation.
    """
    if how not in CONSTANT:
        raise UnknownNameError("normalisation", how, CONSTANT)
    x = _signed_log(features) if how == "log" else features
    low, high = x.min(axis=0).astype(np.float64), x.max(axis=0).astype(np.float64)
    if how == "min-max":
        return Constants(how, low, high - low)
    # A constant feature has no deviation, though rounding may make one.
    return Constants(how, x.mean(axis=0, dtype=np.float64), np.where(high > low, x.std(axis=0, dtype=np.float64), 0.0))


def _signed_log(x: Float[np.ndarray, "documents f"]) -> Float32[np.ndarray, "documents f"]:
    wide = np.asarray(x, np.float64)
    return (np.sign(wide) * np.log1p(np.abs(wide))).astype(np.float32)


def in_unit_range(queries: QuerySet) -> bool:
    """True if every feature of every document lies in [0, 1]."""
    return in_range(queries.features)


def in_range(features: Float[np.ndarray, "documents f"]) -> bool:
    """True if every feature lies in [0, 1]."""
    return bool(features.min() >= 0.0 and features.max() <= 1.0)


def normalise(queries: QuerySet, how: str = "auto") -> QuerySet:
    """Normalised features.

    Args:
        queries: Any features that 32 bits can hold.
        how: ``none`` leaves the features alone; ``query-minmax`` maps each feature of each query to [0, 1] by
            (x − min) / (max − min), and to 0 where a feature is constant within the query; ``auto`` leaves
            the features alone if all of them lie in [0, 1], and is ``query-minmax`` otherwise.

    Returns:
        A new set; or ``queries`` itself if nothing is to be done.

    Raises:
        UnknownNameError: There is no such normalisation.

    >>> features = np.array([[1.0, 7.0], [5.0, 7.0], [2.0, 7.0]])
    >>> raw = QuerySet(features, np.zeros(3, int), np.array([0, 3]), np.array(["q"]))
    >>> normalise(raw).features.tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.25, 0.0]]
    """
    if how not in HOWS:
        raise UnknownNameError("normalisation", how, HOWS)
    if how == "none" or (how == "auto" and in_unit_range(queries)):
        return queries
    normal = np.empty_like(queries.features)
    for first, last in itertools.pairwise(queries.offsets):
        # Double precision: max − min of two float32 near the largest ones overflows in 32 bits.
        rows = queries.features[first:last].astype(np.float64)
        low = rows.min(axis=0)
        span = rows.max(axis=0) - low
        normal[first:last] = np.where(span > 0, (rows - low) / np.where(span > 0, span, 1.0), 0.0)
    return replace(queries, features=normal)


#: Keep the draws of held-out queries and of divisions apart from other uses of a seed.
_HOLD_OUT, _DIVIDE = 0x401D, 0xD1F1DE
#: Parts that a division has.
PARTS = 5


@dataclass(frozen=True, eq=False)
class Splits:
    """Training, validation and test queries of one data set; equal only to itself.

    Attributes:
        train: What is learned from.
        vali: What settings are chosen by; None if the set has none here.
        test: What is reported; None if the set has none here.
        name: Such as ``"mq2008/fold1"``.
        generated: True if the data was made up by a program; said wherever its numbers appear.
        citation: Key in ``core/references.bib``; empty if there is nothing to cite.
        notes: What a reader of the numbers should know, one sentence each.
        grades: Number of labels that the set is known to have, 0 .. grades − 1; 2 where nothing is known.
        feature_names: Names of the features in their order; empty where they have none.
        normalised: How the features were normalised when they were read: ``none``, ``query-minmax``, or the name of
            the constants.
        constants: The constants that they were normalised by, if any.

    Raises:
        DataError: The parts differ in their number of features.
    """

    train: QuerySet
    vali: QuerySet | None
    test: QuerySet | None
    name: str
    generated: bool = False
    citation: str = ""
    notes: tuple[str, ...] = ()
    grades: int = 2
    feature_names: tuple[str, ...] = ()
    normalised: str = "none"
    constants: Constants | None = None

    def __post_init__(self):
        for part, queries in self.parts().items():
            if queries.n_features != self.train.n_features:
                raise DataError(
                    f"the parts of {self.name!r} must have the same features: train has {self.train.n_features}, "
                    f"{part} has {queries.n_features}."
                )

    def parts(self) -> dict[str, QuerySet]:
        """The existing parts by name: ``train``, ``vali``, ``test``, in this order."""
        named = {"train": self.train, "vali": self.vali, "test": self.test}
        return {part: queries for part, queries in named.items() if queries is not None}

    @property
    def label_warnings(self) -> list[str]:
        """A sentence for each part without a relevant document, and one where no order is better than another."""
        alike = (
            "No query of the part 'train' has two documents of different labels: every order is as good as any other, "
            "and nothing can be learned from it"
        )
        same = self.train.max_label > 0 and not self.train.comparable
        return [alike] * same + [
            f"The part {part!r} has no relevant document, all of its {queries.n_documents:,} labels are 0: "
            + ("nothing can be learned from it" if part == "train" else "every measure of it is 0")
            for part, queries in self.parts().items()
            if queries.max_label == 0
        ]

    @property
    def warnings(self) -> list[str]:
        """Problems that make the data useless or hard to learn from, one sentence each: labels, range of features."""
        parts = self.parts().values()
        if self.constants is not None or all(in_unit_range(queries) for queries in parts):
            return self.label_warnings
        low = min(float(queries.features.min()) for queries in parts)
        high = max(float(queries.features.max()) for queries in parts)
        raw = (
            f"Features run from {low:g} to {high:g} and are not normalised, so those with large numbers drown the "
            "others; normalise = 'query-minmax' brings all of them to [0, 1]"
        )
        return [*self.label_warnings, raw]

    @property
    def max_label(self) -> int:
        """The highest label of all parts."""
        return max(queries.max_label for queries in self.parts().values())

    def hold_out(self, share: float, seed: int) -> Splits:
        """The same with some training queries made the test part, where there is none.

        Args:
            share: Of the training queries, in [0, 1), rounded down, but one query at least stays on each side.
            seed: Of the draw (PCG64).

        Raises:
            DataError: One query cannot be divided.
        """
        if self.test is not None or share == 0:
            return self
        n = self.train.n_queries
        if n < 2:
            raise DataError(f"{self.name!r} has {n} training query; none can be held out.")
        order = np.random.Generator(np.random.PCG64([seed, _HOLD_OUT])).permutation(n)
        held = min(max(1, int(n * share)), n - 1)
        note = f"{held} of {n} training queries were held out as test part (seed {seed})."
        train, test = self.train.select(np.sort(order[held:])), self.train.select(np.sort(order[:held]))
        return replace(self, train=train, test=test, notes=(*self.notes, note))

    def divide(self, seed: int, fold: int) -> Splits:
        """The same queries in five parts of equal size by lot: three to train, one for validation, one to test.

        Args:
            seed: Of the draw (PCG64).
            fold: 1 .. 5: the part that is the test part; the next one is for validation.

        Raises:
            DataError: There are fewer than five queries.
        """
        whole = concatenate(list(self.parts().values()), self.train.name, repeats=True)
        if len(set(whole.qids)) < whole.n_queries:  # each part numbers its own
            names = [f"{part}/{qid}" for part, queries in self.parts().items() for qid in queries.qids]
            whole = replace(whole, qids=np.array(names))
        if whole.n_queries < PARTS:
            raise DataError(f"{self.name!r} has {whole.n_queries} queries; {PARTS} parts need one each.")
        order = np.random.Generator(np.random.PCG64([seed, _DIVIDE])).permutation(whole.n_queries)
        parts = [whole.select(np.sort(one)) for one in np.array_split(order, PARTS)]
        parts = parts[fold - 1 :] + parts[: fold - 1]
        note = f"All {whole.n_queries} queries were divided in five by lot (seed {seed}); part {fold} is tested."
        train = concatenate(parts[2:], self.train.name, repeats=True)
        name = f"{self.name}, division {seed}, part {fold}"
        return replace(self, train=train, vali=parts[1], test=parts[0], name=name, notes=(*self.notes, note))

    def map(self, change: Callable[[QuerySet], QuerySet]) -> Splits:
        """The same splits with every part changed."""
        return replace(self, **{part: change(queries) for part, queries in self.parts().items()})
