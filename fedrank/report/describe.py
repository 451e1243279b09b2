"""A run in words: what must be said beside its numbers, what its parties are called, how numbers are written."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from fedrank.report.run import Run
from fedrank.report.statistics import LEVEL, Estimate, Interval

#: Splits in the order in which they are shown.
SPLITS = ("online", "total", "train", "vali", "test")

#: How splits are called.
SPLIT_NAMES = {"online": "online", "total": "sum", "train": "train", "vali": "validation", "test": "test"}

#: With fewer seeds than this an interval over them is wide and rests on its assumptions.
FEW_SEEDS = 5


def party(run: Run) -> tuple[str, str]:
    """The names of one party of this run and of several, such as ``("device", "devices")``."""
    return run.shown.parties_of(run)


def digits(*runs: Run) -> int:
    """Decimals of measures in a table of these runs: the fewest that all of them want, 4 of no run."""
    return min((run.shown.digits for run in runs), default=4) if len({run.shown.digits for run in runs}) < 2 else 4


def caveats(run: Run) -> list[str]:
    """The caveats that a reader of any number of this run must know; each is said on the figures too."""
    out = run.shown.caveats(run)
    if run.shown.generated(run):
        out.append(run.shown.generated_words())
    out.extend(run.shown.more_caveats(run))
    asked = run.setting("rounds") or (run.privacy and run.privacy.details.get("rounds"))
    done = run.shown.done_rounds(run)
    short = isinstance(asked, int) and done < asked
    if not run.finished:
        out.append(
            f"Unfinished: {done:,} of {asked:,} rounds so far" if short else f"Unfinished: {done:,} rounds so far"
        )
    elif short:
        out.append(f"Cut short: {done:,} of {asked:,} rounds")
    wanted, have = asked_seeds(run), len(run.seeds)
    if wanted is not None and have < wanted:
        out.append(f"Fewer seeds than asked for: {have} of {wanted}")
    out.extend(run.shown.notes(run))
    return out


def few_seeds(run: Run) -> list[str]:
    """The caveat of a run with fewer seeds than :data:`FEW_SEEDS`, if it is one."""
    return [f"Few seeds: {len(run.seeds)}"] if len(run.seeds) < FEW_SEEDS else []


def asked_seeds(run: Run) -> int | None:
    """Number of seeds that the configuration asks for: ``seeds`` may be a number or a list."""
    asked = run.setting("seeds")
    return len(asked) if isinstance(asked, list) else asked if isinstance(asked, int) else None


def in_words(names: Iterable[str]) -> str:
    """Names in a sentence.

    >>> in_words(["a"]), in_words(["a", "b"]), in_words("abc")
    ('a', 'a and b', 'a, b and c')
    """
    *some, last = names
    return f"{', '.join(some)} and {last}" if some else last


def seeds_in_words(n: int) -> str:
    """The spread that is shown, in words: ``"Mean of 5 seeds; band: 95 % interval"``."""
    return "One seed: no interval" if n == 1 else f"Mean of {n} seeds; band: {LEVEL:.0%} interval".replace("%", " %")


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
    """A measure's value with ``digits`` decimals, and its interval if it has one.

    >>> format_value(Estimate(0.71234, 0.0041, 5)), format_value(Estimate(0.0123, None, 1), signed=True)
    ('0.7123 ± 0.0041', '+0.0123')
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
    mean, half = (value.mean, value.half) if isinstance(value, Estimate) else (value, None)
    text = f"{mean:+.{digits}f}" if signed else f"{mean:.{digits}f}"
    text = text.replace("-", "−")
    return text if half is None else f"{text} ± {half:.{digits}f}"


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
