"""Formulas of R, ``ill ~ age + sex * crp + ns(bmi, 3) + strata(site)``, as designs that follow from the codebook alone.

Terms: columns, ``a:b`` and ``a*b``, ``log(x)``, ``sqrt(x)``, ``I(x^2)``, natural splines ``ns(x, df)``, ``offset(…)``,
``weights(x)``, ``cluster(id)``, ``strata(x)``, and ``site`` for the silo. ``0 +`` leaves the intercept out. A column of
levels becomes a column of 0 and 1 for each level but the first, as in R's treatment contrasts; a natural spline has R's
basis (``splines::ns``) with the knots of the codebook, or knots at equal distances in the public range.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from fedrank.core.errors import ConfigError
from fedrank.silos.studies.codebook import Codebook
from fedrank.silos.studies.protocol import Rows
from fedrank.silos.studies.table import Block

#: Name of the intercept's coefficient.
INTERCEPT = "(Intercept)"
#: Functions of a number: what computes them, and the smallest argument that they take.
_FUNCTIONS: Mapping[str, tuple[Callable[[np.ndarray], np.ndarray], float]] = {
    "log": (np.log, 0.0),
    "log2": (np.log2, 0.0),
    "log10": (np.log10, 0.0),
    "sqrt": (np.sqrt, -1e-300),
    "exp": (np.exp, -np.inf),
}
#: Most characters of a formula.
_LONGEST = 2000
_SPECIAL = ("offset", "weights", "cluster", "strata")
_TOKEN = re.compile(r"\s*(?:(\d+\.?\d*(?:e[+-]?\d+)?)|(`[^`]+`|[^\W\d]\w*(?:\.\w+)*)|(.))", re.IGNORECASE)


class Field(NamedTuple):
    """A column of a design before it is scaled.

    Attributes:
        name: Name of its coefficient.
        value: Computes it from a block.
        low: Smallest value that there can be.
        high: Largest value that there can be.
        is_level: Whether it is 1 for the rows of one level (or silo) and 0 for the others.
        columns: Columns of levels that it is the product of, the silo not among them.
    """

    name: str
    value: Callable[[Block], Float[np.ndarray, " rows"]]
    low: float
    high: float
    is_level: bool = False
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Design:
    """The columns and parts of a silo's rows that a formula asks for.

    Attributes:
        text: The formula.
        outcome: Column of the outcome; empty without one.
        time: Column of times, of ``Surv(time, event)``, whose event is then the outcome.
        fields: Columns of the design, the intercept not among them.
        intercept: Whether the model has one.
        codebook: What the columns are.
        factors: Columns of the codebook that the right side names.
        offset: Computes the offset, or None.
        weights: Column of case weights, or empty.
        cluster: Column of clusters, or empty.
        strata: Columns whose levels make strata; ``site`` stands for the silo.
        by: Column of groups after ``|``, of Table 1.
        terms: Term of the formula that each column of the design belongs to, such as ``ns(crp, 3)`` or ``age:sex``.
        needed: Columns of which a row must have all values; None: those of the formula.
    """

    text: str
    codebook: Codebook
    outcome: str
    time: str
    fields: tuple[Field, ...]
    intercept: bool
    factors: tuple[str, ...]
    offset: tuple[Field, ...] = ()
    weights: str = ""
    cluster: str = ""
    strata: tuple[str, ...] = ()
    by: str = ""
    terms: tuple[str, ...] = ()
    needed: tuple[str, ...] | None = None

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Columns of the codebook that are read."""
        return tuple(dict.fromkeys((*self.all_columns, *(self.needed or ()))))

    @cached_property
    def all_columns(self) -> tuple[str, ...]:
        """Columns of the codebook that the formula names."""
        named = [self.outcome, self.time, *self.factors, self.weights, self.cluster, *self.strata, self.by]
        return tuple(dict.fromkeys(name for name in named if name and name != self.codebook.site))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coefficients."""
        return (*([INTERCEPT] if self.intercept else []), *(one.name for one in self.fields))

    @cached_property
    def units(self) -> Float[np.ndarray, "p p"]:
        """T with b = T β: coefficients in the columns' own units, of those of the scaled design."""
        middle, half = self._scale
        p = len(self.names)
        out = np.eye(p)
        first = int(self.intercept)
        out[first:, first:] = np.diag(1 / half)
        if self.intercept:
            out[0, 1:] = -middle / half
        return out

    @cached_property
    def _scale(self) -> tuple[Float[np.ndarray, " fields"], Float[np.ndarray, " fields"]]:
        """Middle and half range of each column; without an intercept nothing is moved, and levels are left alone."""
        low, high = (np.array([getattr(one, end) for one in self.fields], float) for end in ("low", "high"))
        levels = np.array([one.is_level for one in self.fields], bool)
        middle = np.where(levels | (not self.intercept), 0.0, (low + high) / 2)
        half = np.where(levels, 1.0, (high - low) / 2 if self.intercept else np.maximum(np.abs(low), np.abs(high)))
        return middle, half

    def n_strata(self) -> int:
        """Number of strata."""
        return math.prod(len(self._levels_of(name)) for name in self.strata)

    def _levels_of(self, name: str) -> tuple[str, ...]:
        return self.codebook.silos if name == self.codebook.site else self.codebook.column(name).levels

    def complete(self, block: Block) -> Bool[np.ndarray, " rows"]:
        """Mask of the rows that have every value that is needed."""
        ok = np.ones(len(next(iter(block.values()))) if block else 0, bool)
        for name in self.all_columns if self.needed is None else self.needed:
            ok &= ~np.isnan(block[name])
        return ok

    def rows(self, block: Block, silo: str) -> tuple[Rows, Bool[np.ndarray, " rows"]]:
        """The complete rows of a block, and the mask of them."""
        site = self.codebook.silos.index(silo)
        n = len(next(iter(block.values()))) if block else 0
        block = {**block, self.codebook.site: np.full(n, float(site))}
        ok = self.complete(block)
        kept = block if ok.all() else {name: values[ok] for name, values in block.items()}
        n = int(ok.sum())
        middle, half = self._scale
        x = np.empty((n, len(self.names)), order="F")
        if self.intercept:
            x[:, 0] = 1.0
        for k, one in enumerate(self.fields):
            into = x[:, k + self.intercept]
            np.subtract(one.value(kept), middle[k], out=into)
            into /= half[k]
        stratum = np.zeros(n, int)
        for name in self.strata:
            stratum = stratum * len(self._levels_of(name)) + kept[name].astype(int)
        outcome = kept[self.outcome] if self.outcome else np.zeros(n)
        offset = np.sum([one.value(kept) for one in self.offset], axis=0) if self.offset else None
        made = Rows.of(
            x,
            kept[self.time] if self.time else outcome,
            outcome if self.time else None,
            offset,
            kept[self.weights] if self.weights else None,
            stratum,
            kept[self.cluster].astype(int) if self.cluster else None,
        )
        return made, ok


def design_of(text: str, codebook: Codebook, *, strata_as_fields: bool = False) -> Design:
    """The design of a formula.

    Args:
        text: Such as ``ill ~ age + sex``; ``Surv(days, died) ~ age``; ``~ age + sex | treatment``.
        codebook: What the columns are.
        strata_as_fields: Make ``strata(x)`` coefficients of x's levels, as of a model without baselines.

    Raises:
        ConfigError: The formula cannot be read, or asks of a column what it is not; says where.
        UnknownNameError: The codebook has no such column.
    """
    return _Parser(text, codebook, strata_as_fields).design()


class _Parser:
    """A formula, token by token."""

    def __init__(self, text: str, codebook: Codebook, strata_as_fields: bool):
        self.text, self.book, self.strata_as_fields = text, codebook, strata_as_fields
        if len(text) > _LONGEST:
            raise ConfigError(f"a formula has at most {_LONGEST} characters, got {len(text)}.")
        self.tokens = [one for one in _TOKEN.findall(text.strip())]
        self.at = 0
        self.fields: dict[frozenset[str], list[Field]] = {}
        self.special: dict[str, list[tuple[str, list[Field]]]] = {name: [] for name in _SPECIAL}
        self.factors: list[str] = []

    def design(self) -> Design:
        outcome, time = self._outcome()
        self._take("~")
        intercept = True
        while True:
            if self._peek() in ("0", "1"):
                intercept = self._next() == "1"
            elif self._peek() == "-":
                self._take("-")
                self._take("1")
                intercept = False
            else:
                self._term()
            if self._peek() == "+":
                self._take("+")
            elif self._peek() != "-":
                break
        by = ""
        if self._peek() == "|":
            self._take("|")
            by = self._name()
            self._levels_of(by)
        if self._peek():
            raise self._wrong(f"{self._peek()!r} is not expected here")
        in_order = sorted(self.fields.items(), key=lambda item: len(item[0]))
        columns = [one for _, fields in in_order for one in fields]
        for key in self.fields:
            for name in key if len(key) > 1 else ():
                if key - {name} not in self.fields:
                    raise self._wrong(f"{':'.join(sorted(key))} needs {':'.join(sorted(key - {name}))} beside it")
        if not intercept and any(one.is_level for one in columns):
            raise self._wrong("columns of levels are measured from their first level, which needs an intercept")
        weights, clusters = ([name for name, _ in self.special[kind]] for kind in ("weights", "cluster"))
        if len(weights) > 1 or len(clusters) > 1:
            raise self._wrong("there is more than one weights() or cluster()")
        return Design(
            text=self.text.strip(),
            codebook=self.book,
            outcome=outcome,
            time=time,
            fields=tuple(columns),
            intercept=intercept,
            factors=tuple(dict.fromkeys(self.factors)),
            offset=tuple(one for _, fields in self.special["offset"] for one in fields),
            weights=weights[0] if weights else "",
            cluster=clusters[0] if clusters else "",
            strata=tuple(dict.fromkeys(name for name, _ in self.special["strata"])),
            by=by,
            terms=tuple(":".join(sorted(key)) for key, fields in in_order for _ in fields),
        )

    def _outcome(self) -> tuple[str, str]:
        if self._peek() == "~":
            return "", ""
        name = self._name()
        if name != "Surv" or self._peek() != "(":
            self.book.column(name)
            return name, ""
        self._take("(")
        time = self._name()
        self._take(",")
        event = self._name()
        self._take(")")
        if not self.book.column(time).range or self.book.column(time).low < 0:
            raise self._wrong(f"times need a number with a range from 0 on, and {time!r} is none")
        if len(self.book.column(event).levels) != 2:
            raise self._wrong(f"events need a column of two levels, and {event!r} is none")
        return event, time

    def _term(self) -> None:
        """A term: factors joined by : and *."""
        parts: list[tuple[frozenset[str], list[Field]]] = [self._factor()]
        crossed = False
        while self._peek() in (":", "*"):
            crossed |= self._next() == "*"
            parts.append(self._factor())
        if len(parts) == 1:
            if parts[0][1] or parts[0][0]:
                self.fields.setdefault(*parts[0])
            return
        if any(not key for key, _ in parts):
            raise self._wrong("offset, weights, cluster and strata do not interact")
        if crossed:
            for key, fields in parts:
                self.fields.setdefault(key, fields)
        key, fields = parts[0]
        for number, (other, more) in enumerate(parts[1:], 2):
            fields = [_product(one, two) for two in more for one in fields]
            key = key | other
            if crossed or number == len(parts):
                self.fields.setdefault(key, fields)

    def _factor(self) -> tuple[frozenset[str], list[Field]]:
        """One factor: its key, which is empty of what is no part of the design, and its columns."""
        name = self._name()
        if self._peek() != "(":
            self.factors.append(name)
            return frozenset([name]), self._columns(name)
        self._take("(")
        if name in _SPECIAL:
            made = self._special(name)
        elif name == "ns":
            made = self._spline()
        elif name == "I":
            column = self._number()
            self._take("^")
            if not re.fullmatch(r"\d+(\.\d+)?", power_text := self._next()):
                raise self._wrong(f"a power is a number above 0, got {power_text!r}")
            power = float(power_text)
            made = (
                frozenset([f"I({column}^{power:g})"]),
                [self._function(column, f"I({column}^{power:g})", lambda v: v**power)],
            )
        elif name in _FUNCTIONS:
            column = self._number()
            function, least = _FUNCTIONS[name]
            if not self.book.column(column).low > least:
                raise self._wrong(f"{name}({column}) needs a range above {max(least, 0):g} in the codebook")
            made = frozenset([f"{name}({column})"]), [self._function(column, f"{name}({column})", function)]
        else:
            raise self._wrong(f"there is no function {name!r}; known: {', '.join((*_FUNCTIONS, 'ns', 'I', *_SPECIAL))}")
        self._take(")")
        return made

    def _special(self, kind: str) -> tuple[frozenset[str], list[Field]]:
        if kind == "offset":
            self.special["offset"].append(("", self._factor()[1]))
            return frozenset(), []
        name = self._name()
        if kind == "strata":
            self._levels_of(name)
            if self.strata_as_fields:
                if name != self.book.site:
                    self.factors.append(name)
                return frozenset([name]), self._columns(name)
        elif kind == "cluster" and self.book.column(name).role != "cluster":
            raise self._wrong(f"cluster({name}) needs a column whose role is cluster")
        elif kind == "weights" and not (self.book.column(name).range and self.book.column(name).low >= 0):
            raise self._wrong(f"weights({name}) needs a number with a range from 0 on")
        self.special[kind].append((name, []))
        return frozenset(), []

    def _spline(self) -> tuple[frozenset[str], list[Field]]:
        name = self._number()
        self._take(",")
        if self._peek() == "df":
            self._next()
            self._take("=")
        degrees = self._next()
        if not degrees.isdecimal() or not 1 <= int(degrees) <= 20:
            raise self._wrong(f"ns({name}, …) needs degrees of freedom from 1 to 20, got {degrees!r}")
        df, about = int(degrees), self.book.column(name)
        knots = np.array(about.knots or np.linspace(about.low, about.high, df + 1)[1:-1])
        if len(knots) != df - 1:
            raise self._wrong(f"ns({name}, {df}) needs {df - 1} knots, and the codebook has {len(knots)}")
        basis = natural_spline(knots, about.low, about.high)
        key = f"ns({name}, {df})"

        def part(k: int) -> Callable[[Block], np.ndarray]:
            return lambda block: basis(block[name])[:, k]

        return frozenset([key]), [Field(f"{key}{k + 1}", part(k), -1.0, 1.0) for k in range(df)]

    def _function(self, column: str, name: str, function: Callable[[np.ndarray], np.ndarray]) -> Field:
        about = self.book.column(column)
        with np.errstate(all="ignore"):
            ends = function(np.linspace(about.low, about.high, 1001))
        if not np.isfinite(ends).all():
            raise self._wrong(f"{name} is not finite everywhere from {about.low:g} to {about.high:g}")
        return Field(name, lambda block: function(block[column]), float(ends.min()), float(ends.max()))

    def _columns(self, name: str) -> list[Field]:
        """A column as it is: a number, or a column of 0 and 1 for each level but the first."""
        if name == self.book.site:
            return [Field(f"site={s}", _is(name, k), 0.0, 1.0, True) for k, s in enumerate(self.book.silos) if k]
        about = self.book.column(name)
        if about.role:
            raise self._wrong(f"{name!r} is a column of role {about.role}, and no term")
        if about.range:
            return [Field(name, lambda block: block[name], about.low, about.high)]
        return [
            Field(f"{name}={level}", _is(name, k), 0.0, 1.0, True, (name,)) for k, level in enumerate(about.levels) if k
        ]

    def _levels_of(self, name: str) -> None:
        if name != self.book.site and not self.book.column(name).levels:
            raise self._wrong(f"{name!r} has no levels")

    def _number(self) -> str:
        name = self._name()
        if not self.book.column(name).range:
            raise self._wrong(f"{name!r} is no number")
        self.factors.append(name)
        return name

    def _name(self) -> str:
        token = self.tokens[self.at] if self.at < len(self.tokens) else ("", "", "")
        if not token[1]:
            raise self._wrong(f"a column is expected, got {''.join(token) or 'the end'!r}")
        self.at += 1
        return token[1].strip("`")

    def _peek(self) -> str:
        return "".join(self.tokens[self.at]) if self.at < len(self.tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self.at += 1
        return token

    def _take(self, token: str) -> None:
        if self._peek() != token:
            raise self._wrong(f"{token!r} is expected, got {self._peek() or 'the end'!r}")
        self.at += 1

    def _wrong(self, what: str) -> ConfigError:
        before = "".join(" ".join("".join(one) for one in self.tokens[: self.at]))
        return ConfigError(f"formula {self.text!r}: {what}, after {before!r}.")


def _is(name: str, level: int) -> Callable[[Block], Float[np.ndarray, " rows"]]:
    return lambda block: (block[name] == level).astype(float)


def _product(one: Field, two: Field) -> Field:
    ends = np.outer([one.low, one.high], [two.low, two.high])

    def value(block: Block) -> Float[np.ndarray, " rows"]:
        return one.value(block) * two.value(block)

    levels, columns = one.is_level and two.is_level, one.columns + two.columns
    return Field(f"{one.name}:{two.name}", value, float(ends.min()), float(ends.max()), levels, columns)


def natural_spline(
    knots: Float[np.ndarray, " knots"], low: float, high: float
) -> Callable[[Float[np.ndarray, " rows"]], Float[np.ndarray, "rows df"]]:
    """The basis of natural cubic splines of R's ``splines::ns``, without an intercept.

    Cubic B-splines with knots at both ends, without the first, in the space where the second derivative is 0 at both
    ends; of that space the basis that Householder's QR of the constraint gives.

    Args:
        knots: Inner knots.
        low: Left end.
        high: Right end.
    """
    from scipy.interpolate import BSpline

    all_knots = np.concatenate([[low] * 4, knots, [high] * 4])
    splines = BSpline(all_knots, np.eye(len(all_knots) - 4), 3)
    constraint = splines.derivative(2)(np.array([low, high]))[:, 1:].T
    q = np.linalg.qr(constraint, mode="complete")[0]
    rest = q[:, 2:]

    def basis(x: Float[np.ndarray, " rows"]) -> Float[np.ndarray, "rows df"]:
        inside = np.clip(np.nan_to_num(x, nan=low), low, high)
        made = splines(inside)[:, 1:] @ rest
        made[np.isnan(x)] = np.nan
        return made

    return basis
