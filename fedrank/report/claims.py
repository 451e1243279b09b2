"""Results as values, and the words for them: first sentences, numbers at the top of a page, verdicts.

A :class:`Sentence` is text with results in it. Its text holds neither a decimal number nor a verdict; these come from
results (such as :class:`Measured`, :class:`Comparison` and :class:`Spent`), which refuse what cannot be: a value
outside its range, an interval over fewer than :data:`~fedrank.metrics.returns.LEAST_SEEDS` seeds, an ε that the
run's account does not have.

A page opens with a title, one sentence, one chart and at most four numbers, to be read in half a minute. A task hands
this :class:`Opening` over as data; what a specialist needs stands in the folded sections below it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from fedrank.core.privacy_report import PrivacyReport, Unit
from fedrank.metrics.returns import LEAST_SEEDS
from fedrank.report import wording
from fedrank.report.html import Html, h
from fedrank.report.statistics import Estimate, Interval

#: Decimals of measures at the top of a page.
DIGITS = 3

#: Measures that lie between 0 and 1, and those that are not negative, by name without "expected".
_SHARES = re.compile(
    r"(?:nDCG(?:\(dcg='exp-log2'\))?|MaxRR|RR|ERR|AP|MAP|P|R|AUC|accuracy|Brier score)(?:@\d+)?(?:$|[ ,])"
)
_NOT_NEGATIVE = re.compile(r"(?:log.loss|discounted|engagement)\b")
#: Text that only a result may put into a sentence: decimals, intervals, shares, verdicts.
_OF_RESULTS = re.compile(
    r"\d\.\d|±|%|\b(?:better|worse|told apart|equals?|gains?|gained|loses?|lost|helps?|harms?|beats?|level with)\b"
)


class Verdict(StrEnum):
    """The reading of a comparison."""

    BETTER = "better"
    WORSE = "worse"
    EQUAL = "equal within a bound"
    NOT_TOLD_APART = "not told apart"
    FEW_SEEDS = "too few seeds for a verdict"
    UNDEFINED = "not a number"


def range_of(measure: str) -> tuple[float, float]:
    """The least and the greatest value that a measure can have; infinite where they are not known.

    >>> range_of("expected MaxRR (navigational)"), range_of("discounted nDCG(dcg='exp-log2')@10"), range_of("users")
    ((0.0, 1.0), (0.0, inf), (-inf, inf))
    """
    name = measure.removeprefix("expected ")
    if _SHARES.match(name):
        return 0.0, 1.0
    return (0.0 if _NOT_NEGATIVE.match(name) else -math.inf), math.inf


def _check_seeds(value: Estimate | Interval) -> None:
    """Refuse an interval over too few seeds.

    Raises:
        ValueError: There is one.
    """
    if isinstance(value, Estimate) and value.half is not None and value.n < LEAST_SEEDS:
        raise ValueError(f"an interval needs {LEAST_SEEDS} seeds, got one over {value.n}")


@dataclass(frozen=True)
class Measured:
    """A measured value.

    Attributes:
        value: The value, with its interval if it has one.
        measure: What was measured, which says what it can be; empty: any number.
        digits: Decimals.

    Raises:
        ValueError: The value is none that the measure can have, or its interval is over too few seeds.
    """

    value: Estimate | Interval | float
    measure: str = ""
    digits: int = DIGITS

    def __post_init__(self):
        low, high = range_of(self.measure)
        if self.mean < low - 1e-9 or self.mean > high + 1e-9:  # a diverged run has no number, and says so
            raise ValueError(f"{self.measure} lies between {low:g} and {high:g}, got {self.mean:g}")
        if not isinstance(self.value, float | int):
            _check_seeds(self.value)

    @property
    def mean(self) -> float:
        """The value without its interval."""
        return float(self.value) if isinstance(self.value, float | int) else self.value.mean

    @property
    def ends(self) -> tuple[float, float] | None:
        """The interval, as far as the measure reaches; None if there is none."""
        if isinstance(self.value, float | int) or self.value.low is None or self.value.high is None:
            return None
        low, high = range_of(self.measure)
        return max(low, self.value.low), min(high, self.value.high)

    def __str__(self) -> str:
        return "undefined" if math.isnan(self.mean) else wording.format_value(self.mean, digits=self.digits)

    @property
    def note(self) -> str:
        """The interval, or the single values of seeds too few for one; empty for a number of no seed."""
        return spread_words(self.value, self.ends, self.digits)


def spread_words(
    value: Estimate | Interval | float, ends: tuple[float, float] | None, digits: int, *, signed: bool = False
) -> str:
    """The spread of a value: its interval, or the single values of seeds too few for one; empty for a plain number.

    Args:
        value: The value.
        ends: The ends of its interval that are said; None: it has none.
        digits: Decimals.
        signed: Numbers carry their sign.
    """

    def said(number: float) -> str:
        return wording.format_value(number, signed=signed, digits=digits)

    if isinstance(value, Estimate) and value.half is None:
        single = " and ".join(map(said, value.values))
        return f"{single}: {value.n} seeds, too few for an interval" if single else "one seed, no interval"
    if ends is None:
        return "no interval" if isinstance(value, Interval) else ""
    seeds = f" over {value.n} seeds" if isinstance(value, Estimate) else ""
    if isinstance(value, Estimate) and value.half is not None and ends == (value.low, value.high):
        return f"± {value.half:.{digits}f}, 95 % interval{seeds}"
    return f"95 % interval {said(ends[0])} to {said(ends[1])}{seeds}"


@dataclass(frozen=True)
class Comparison:
    """A value compared with another one.

    Attributes:
        difference: The value minus the other one, turned so that more is better.
        other: What it is compared with, as a sentence names it.
        base: The other value, of which the difference is said as a share; None or 0: the difference is said itself.
        ways: What more and less are called.
        amount: Says the difference itself, where there is no ``base``.
        than: What stands before ``other``.
        within: Largest difference that is called none; None: no difference is called none.
        digits: Decimals of differences.
        counted: Says of how few seeds it is, where they are too few for a verdict.
        unit: What an :class:`~fedrank.report.statistics.Interval` is over: seeds, or rows.

    Raises:
        ValueError: The interval is over too few seeds.
    """

    difference: Estimate | Interval
    other: str
    base: float | None = None
    ways: tuple[str, str] = ("better", "worse")
    than: str = "than"
    within: float | None = None
    digits: int = DIGITS
    counted: bool = True
    unit: str = "seeds"

    def __post_init__(self):
        _check_seeds(self.difference)

    @property
    def verdict(self) -> Verdict:
        """The reading of the interval."""
        low, high = self.difference.low, self.difference.high
        if math.isnan(self.difference.mean):
            return Verdict.UNDEFINED
        if low is None or high is None:
            return Verdict.FEW_SEEDS
        if self.within is not None and -self.within <= low and high <= self.within:
            return Verdict.EQUAL
        return Verdict.BETTER if low > 0 else Verdict.WORSE if high < 0 else Verdict.NOT_TOLD_APART

    def __str__(self) -> str:
        if self.verdict is Verdict.UNDEFINED:
            return f"not to be compared with {self.other}, because a value is not a number"
        if self.verdict is Verdict.NOT_TOLD_APART:
            return f"not told apart from {self.other} ({self.seen})"
        if self.verdict is Verdict.EQUAL:
            return f"equal to {self.other} within {self.within:.{self.digits}f}"
        way = self.ways[0 if self.difference.mean >= 0 else 1]
        said = f"{self.amount} {way} {self.than} {self.other}".replace("  ", " ")
        if self.verdict is Verdict.FEW_SEEDS and not self.difference.mean:
            said = f"the same as {self.other}"
        return f"{said} {self._few}" if self.counted and self.verdict is Verdict.FEW_SEEDS else said

    @property
    def amount(self) -> str:
        """The size of the difference: a share of ``base``, or the number."""
        if not self.base:
            return wording.format_value(abs(self.difference.mean), digits=self.digits)
        percent = 100 * abs(self.difference.mean) / abs(self.base)
        return f"{percent:.0f} %" if percent >= 1 else f"{percent:.1g} %"

    @property
    def seen(self) -> str:
        """The smallest difference that would have been told from none."""
        low, high = self.difference.low, self.difference.high
        half = (high - low) / 2 if low is not None and high is not None else 0.0
        who = f"{self.difference.n} seeds" if isinstance(self.difference, Estimate) else f"the {self.unit}"
        return f"{who} would have shown a difference of more than {half:.{self.digits}f}"

    @property
    def _few(self) -> str:
        if not isinstance(self.difference, Estimate):
            return f"(too few {self.unit} for an interval)"
        count = self.difference.n
        return "in the one seed that was run" if count == 1 else f"in the {count} seeds that were run"

    @property
    def signed(self) -> str:
        """The difference with its sign."""
        return wording.format_value(self.difference.mean, signed=True, digits=self.digits)

    @property
    def note(self) -> str:
        """The interval and its reading, for the note below a number."""
        low, high = self.difference.low, self.difference.high
        ends = None if low is None or high is None else (low, high)
        spread = spread_words(self.difference, ends, self.digits, signed=True)
        return spread if ends is None else f"{spread}: {reading(self.difference)}"


@dataclass(frozen=True)
class Unseen:
    """A difference that is not told from none, as the end of a sentence that says so."""

    comparison: Comparison

    def __post_init__(self):
        if self.comparison.verdict is not Verdict.NOT_TOLD_APART:
            raise ValueError(f"the difference is {self.comparison.verdict}")

    def __str__(self) -> str:
        return f"told from {self.comparison.other} ({self.comparison.seen})"


def diff_words(found: Estimate, digits: int = DIGITS) -> str:
    """A difference with its interval or single values.

    >>> diff_words(Estimate(81.2, 21.1, 5), 1)
    '+81.2 (95 % interval +60.1 to +102.3)'
    >>> diff_words(Estimate(0.03, None, 2, values=(0.02, 0.04)), 2)
    '+0.03 (+0.02 and +0.04: 2 seeds, too few for an interval)'
    """
    mean = wording.format_value(found.mean, signed=True, digits=digits)
    return f"{mean} ({_ends(found, digits) or spread_words(found, None, digits, signed=True)})"


def _ends(found: Estimate | Interval, digits: int) -> str:
    """The interval of a difference by its ends; empty if it has none."""
    if found.low is None or found.high is None:
        return ""
    low, high = (wording.format_value(end, signed=True, digits=digits) for end in (found.low, found.high))
    return f"95 % interval {low} to {high}"


@dataclass(frozen=True)
class Ends:
    """The ends of a comparison's interval; empty if it has none."""

    comparison: Comparison

    def __str__(self) -> str:
        said = _ends(self.comparison.difference, self.comparison.digits)
        return f" ({said})" if said else ""


def reading(value: Estimate | Interval | None) -> str:
    """The reading of a difference's interval in two or three words, for a number at the top of a page."""
    if value is None or value.low is None or value.high is None:
        return "no interval"
    return "a gain" if value.low > 0 else "a loss" if value.high < 0 else "may be chance"


@dataclass(frozen=True)
class Share:
    """A number of cases among all of their kind, such as silos that gain.

    Attributes:
        part: Number of cases.
        of: Number of all.

    Raises:
        ValueError: There are more cases than there are.
    """

    part: int
    of: int

    def __post_init__(self):
        if not 0 <= self.part <= self.of:
            raise ValueError(f"{self.part} of {self.of} cannot be")

    def __str__(self) -> str:
        return f"{self.part:,} of {self.of:,}"


@dataclass(frozen=True)
class Percent:
    """A share as a percentage.

    Attributes:
        share: From 0 to 1.
        digits: Decimals of the percentage.

    Raises:
        ValueError: It is no share.
    """

    share: float
    digits: int = 0

    def __post_init__(self):
        if not -1e-9 <= self.share <= 1 + 1e-9:
            raise ValueError(f"a share lies between 0 and 1, got {self.share:g}")

    def __str__(self) -> str:
        return f"{100 * self.share:.{self.digits}f} %"


@dataclass(frozen=True)
class Spent:
    """An ε of a run's account.

    Attributes:
        report: The account.
        unit: What may change.
        basis: How it was composed; None: as in the first promise for the unit.
    """

    report: PrivacyReport
    unit: Unit
    basis: str | None = None

    @property
    def epsilon(self) -> float:
        """The ε that the account has for the unit; infinite where it has none."""
        return self.report.epsilon(self.unit, basis=self.basis)

    def __str__(self) -> str:
        return wording.epsilon_text(self.epsilon)


@dataclass(frozen=True)
class Size:
    """An amount of data, in decimal units from 1,000 bytes on.

    Attributes:
        bytes: Number of bytes, 0 or more; a mean need not be whole.
    """

    bytes: float

    def __str__(self) -> str:
        return wording.size(self.bytes)


@dataclass(frozen=True)
class Named:
    """A name, a setting or an amount, which may hold any text."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Effects:
    """Those to whom something brings more, those to whom less, and the number of the others.

    Attributes:
        helped: Names of those whose interval is above 0.
        harmed: Names of those whose interval is below 0.
        rest: Number of the others.
    """

    helped: tuple[str, ...]
    harmed: tuple[str, ...]
    rest: int = 0

    def __str__(self) -> str:
        of = (("helps", self.helped), ("harms", self.harmed))
        return " and ".join(f"{verb} {wording.in_words(names)}" for verb, names in of if names)


Result = Measured | Comparison | Unseen | Ends | Spent | Share | Percent | Size | Named | Effects


@dataclass(frozen=True)
class Sentence:
    """Text with results in it.

    Attributes:
        parts: Text, and results whose words stand in their place.

    Raises:
        ValueError: Text has a decimal number, an interval or a verdict, which only a result may say.
    """

    parts: tuple[str | Result, ...]

    def __post_init__(self):
        for part in self.parts:
            if isinstance(part, str) and (found := _OF_RESULTS.search(part)):
                raise ValueError(f"only a result may say {found[0]!r}, got it in the text {part!r}")

    def __str__(self) -> str:
        return "".join(map(str, self.parts))

    def __add__(self, other: Sentence) -> Sentence:
        return Sentence(self.parts + other.parts)

    def __bool__(self) -> bool:
        return bool(str(self))

    @property
    def results(self) -> tuple[Result, ...]:
        """The results in it, in order."""
        return tuple(part for part in self.parts if not isinstance(part, str))


def say(*parts: str | Result | Sentence) -> Sentence:
    """A sentence of text and results; parts that are sentences are taken apart.

    >>> str(say("It is ", Comparison(Estimate(0.009, 0.002, 5), "BM25", 0.6), "."))
    'It is 2 % better than BM25.'
    >>> str(Comparison(Estimate(0.009, 0.02, 5), "BM25", 0.6))
    'not told apart from BM25 (5 seeds would have shown a difference of more than 0.020)'
    >>> str(Comparison(Estimate(-0.286, None, 2, values=(-0.3, -0.272)), "BM25", 0.324))
    '88 % worse than BM25 in the 2 seeds that were run'
    """
    flat: list[str | Result] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, Sentence) else (part,))
    return Sentence(tuple(flat))


def join_all(sentences: Sequence[Sentence]) -> Sentence:
    """Sentences after each other, with spaces between them."""
    return say(*(part for i, one in enumerate(sentences) for part in ((" ", one) if i else (one,))))


def list_all(parts: Sequence[Comparison]) -> Sentence:
    """Comparisons as a list: "a, b and c"; the last says of how few seeds all are.

    >>> few = [Comparison(Estimate(0.1, None, 1), name, 0.5) for name in ("BM25", "chance")]
    >>> str(list_all(few))
    '20 % better than BM25 and 20 % better than chance in the one seed that was run'
    """
    joined: list[Comparison | str] = []
    few = all(part.verdict is Verdict.FEW_SEEDS for part in parts)
    for i, part in enumerate(parts):
        last = i == len(parts) - 1
        joined += [" and " if last else ", "] * bool(i) + [part if last or not few else replace(part, counted=False)]
    return say(*joined)


#: More numbers than this at the top of a page are a table.
MOST_NUMBERS = 4


@dataclass(frozen=True)
class Number:
    """A number at the top of a page.

    Attributes:
        label: What it is.
        value: The result.
        note: What belongs to it; by default the interval of a result that has one.
    """

    label: str
    value: Result
    note: str = ""

    def __post_init__(self):
        if not self.note and isinstance(self.value, Measured | Comparison):
            object.__setattr__(self, "note", self.value.note)  # frozen: resolved once, here

    @property
    def figure(self) -> str:
        """The number as a reader sees it; of a comparison, the difference with its sign."""
        return self.value.signed if isinstance(self.value, Comparison) else str(self.value)


@dataclass(frozen=True)
class Opening:
    """The opening at the top of a page.

    Attributes:
        title: What the page is about, in the words of the task.
        sentence: The result as it can be repeated to others, with its caveat if it has one.
        numbers: At most :data:`MOST_NUMBERS`.
        chart: Name of the page's chart that shows the result; empty if there is none.
        description: What the chart shows, for those who do not see it.
        advice: What to do next, as the beginning of a sentence, and its command; empty if there is nothing.

    Raises:
        ValueError: There are more than :data:`MOST_NUMBERS` numbers.
    """

    title: str
    sentence: Sentence
    numbers: tuple[Number, ...] = ()
    chart: str = ""
    description: str = ""
    advice: tuple[str, str] = ("", "")

    def __post_init__(self):
        if len(self.numbers) > MOST_NUMBERS:
            raise ValueError(f"a page opens with at most {MOST_NUMBERS} numbers, got {len(self.numbers)}")


def head(opening: Opening, about: str, caveats: Iterable[str], chart: Html | None, warning: Html | None = None) -> Html:
    """The top of a page as markup.

    Args:
        opening: What it says.
        about: What tells this page from others of its kind, in one line.
        caveats: What a reader must know beside every number.
        chart: The chart as a figure, or None.
        warning: What must be seen before any number, or None.
    """
    said = [h("li", caveat) for caveat in caveats]
    numbers = [
        h("div", h("dt", one.label), h("dd", h("b", one.figure), h("small", one.note) if one.note else None))
        for one in opening.numbers
    ]
    return h(
        "header",
        h("p", about, class_="about"),
        h("h1", opening.title),
        h("p", str(opening.sentence), class_="sentence"),
        h("p", f"Next: {opening.advice[0]} ", h("code", opening.advice[1]), class_="next")
        if any(opening.advice)
        else None,
        h("ul", *said, class_="caveats", aria_label="Caveats") if said else None,
        warning,
        h("div", chart, h("dl", *numbers, class_="numbers") if numbers else None, class_="opening")
        if chart is not None or numbers
        else None,
    )
