"""Numbers, names and spreads as text for a reader."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from fedrank.metrics.returns import LEAST_SEEDS
from fedrank.report.statistics import Estimate, Interval


def in_words(names: Iterable[str]) -> str:
    """Names in a sentence.

    >>> in_words(["a"]), in_words(["a", "b"]), in_words("abc")
    ('a', 'a and b', 'a, b and c')
    """
    *some, last = names
    return f"{', '.join(some)} and {last}" if some else last


def capital(text: str) -> str:
    """A text that begins with a capital letter, the rest as it is."""
    return text[:1].upper() + text[1:]


def seeds_in_words(*counts: int, shown: str = "band") -> str:
    """The spread that a chart shows, in words.

    Args:
        counts: Number of seeds of each run.
        shown: What an interval is drawn as.

    >>> seeds_in_words(1), seeds_in_words(2), seeds_in_words(5)
    ('One seed: no interval', 'Mean of 2 seeds, too few for a band', 'Mean of 5 seeds; band: 95 % interval')
    """
    if set(counts) == {1}:
        return "One seed: no interval"
    mean = f"Mean of {' or '.join(map(str, counts))} seeds"
    return f"{mean}, too few for a {shown}" if max(counts) < LEAST_SEEDS else f"{mean}; {shown}: 95 % interval"


def spread_note(*counts: int, drawn: str = "") -> str:
    """A note on the spread in a table.

    Args:
        counts: Number of seeds of each value.
        drawn: What each seed draws anew, after "each with".

    >>> spread_note(2), spread_note(5, drawn="its own split")
    ('In brackets: the values of the 2 seeds, too few for an interval.', \
'± is half of a 95 % Student t interval over 5 seeds, each with its own split.')
    """
    many = f"{' or '.join(map(str, sorted(set(counts))))} seeds{f', each with {drawn}' if drawn else ''}"
    if set(counts) == {1}:
        return "One seed: no interval."
    if max(counts) < LEAST_SEEDS:
        return f"In brackets: the values of the {many}, too few for an interval."
    return f"± is half of a 95 % Student t interval over {many}."


def order_measures(measures: Iterable[str]) -> list[str]:
    """Measures by importance: expected reward first, then nDCG, then the best model so far, then others by name."""
    return sorted(
        set(measures), key=lambda m: (not m.startswith("expected"), not m.startswith("nDCG"), "best so far" not in m, m)
    )


def number(value: Any) -> str:
    """Any value of a configuration or a table, for a reader.

    >>> number(2000000), number(0.001), number([1, 2]), number(True), number(float("inf"))
    ('2,000,000', '0.001', '1, 2', 'yes', '∞')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return "∞" if value == math.inf else f"{value:,.4g}" if abs(value) < 1e5 else f"{value:,.0f}"
    if isinstance(value, list | tuple):
        return ", ".join(number(v) for v in value) or "–"
    return "–" if value is None else str(value)


def format_value(value: float | Estimate | Interval | None, *, signed: bool = False, digits: int = 4) -> str:
    """A measure's value with ``digits`` decimals, with its interval, or with single values too few for one.

    >>> format_value(Estimate(0.71234, 0.0041, 5)), format_value(Estimate(0.0123, None, 1), signed=True)
    ('0.7123 ± 0.0041', '+0.0123')
    >>> format_value(Estimate(0.71, None, 2, values=(0.70, 0.72)), digits=2)
    '0.71 (0.70, 0.72)'
    >>> format_value(None)
    '–'
    >>> format_value(Interval(-0.02, -0.05, 0.0), signed=True), format_value(Interval(0.7, 0.65, 0.72))
    ('−0.0200 (−0.0500 to +0.0000)', '0.7000 (0.6500 to 0.7200)')
    """
    if value is None:
        return "–"
    if isinstance(value, Interval):
        known = (v for v in (value.mean, value.low, value.high) if v is not None)
        mean, *ends = (format_value(v, signed=signed, digits=digits) for v in known)
        return f"{mean} ({' to '.join(ends)})" if len(ends) == 2 else mean
    if isinstance(value, Estimate):
        mean = format_value(value.mean, signed=signed, digits=digits)
        single = ", ".join(format_value(one, signed=signed, digits=digits) for one in value.values)
        if value.half is not None:
            return f"{mean} ± {value.half:.{digits}f}"
        return f"{mean} ({single})" if single else mean
    return f"{value:{'+' if signed else ''}.{digits}f}".replace("-", "−")


def size(count: float) -> str:
    """Bytes in decimal units.

    >>> size(9), size(1), size(4_500_000), size(96_500)
    ('9 bytes', '1 byte', '4.5 MB', '96.5 kB')
    """
    if count < 1000:
        return f"{number(count)} byte{'' if count == 1 else 's'}"
    for unit, factor in (("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12)):
        if count < factor * 999.5 or unit == "TB":
            break
    return f"{count / factor:.3g} {unit}"


def epsilon_text(value: float | None) -> str:
    """An ε for a reader: two decimals below 100, then whole.

    >>> epsilon_text(4.4998), epsilon_text(4500.2), epsilon_text(math.inf), epsilon_text(None)
    ('4.50', '4,500', '∞', 'not stated')
    """
    if value is None:
        return "not stated"
    return "∞" if math.isinf(value) else f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def slug(text: str) -> str:
    """A text in lower-case letters, digits and hyphens, such as for the name of a figure's file.

    >>> slug("nDCG@10, test")
    'ndcg-10-test'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
