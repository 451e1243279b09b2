"""Parts of the sentence at the top of a page: how much better, how sure, what it must not be taken for."""

from __future__ import annotations

from fedrank.report import describe
from fedrank.report.run import Run
from fedrank.report.statistics import Estimate, Interval, direction

#: Decimals of measures at the top of a page.
DIGITS = 3
#: Seeds without which a first sentence has no interval: Student's t of two is thirteen standard errors wide.
LEAST_SEEDS = 3


def change(difference: float, base: float) -> str:
    """A difference in parts of what it is compared with, for measures of which more is better.

    >>> change(0.26, 0.35), change(-0.012, 0.6), change(0.0002, 0.6)
    ('74 % better than', '2 % worse than', '0.03 % better than')
    """
    percent = 100 * abs(difference) / abs(base)
    said = f"{percent:.0f}" if percent >= 1 else f"{percent:.1g}"
    return f"{said} % {'better' if difference >= 0 else 'worse'} than"


def against(difference: Estimate, base: float, other: str) -> str:
    """Comparison with another value: better, worse, or not told apart by the seeds.

    >>> against(Estimate(0.009, 0.002, 5), 0.6, "BM25")
    '2 % better than BM25'
    >>> against(Estimate(0.009, 0.02, 5), 0.6, "BM25")
    'not told apart from BM25 (5 seeds would have shown a difference of more than 0.020)'
    >>> against(Estimate(-0.286, 0.29, 2), 0.324, "BM25")
    '88 % worse than BM25 in the 2 seeds that were run'
    >>> against(Estimate(0.009, None, 1), 0.6, "BM25")
    '2 % better than BM25 in the one seed that was run'
    """
    if difference.n >= LEAST_SEEDS and direction(difference) == "neither":
        return f"not told apart from {other} ({seen_from(difference)})"
    if not base:
        said = f"{'better' if difference.mean >= 0 else 'worse'} than {other}"
    else:
        said = f"{change(difference.mean, base)} {other}"
    return said if difference.n >= LEAST_SEEDS and difference.half is not None else f"{said} {in_few(difference.n)}"


def seen_from(difference: Estimate, digits: int = DIGITS) -> str:
    """The smallest difference that the seeds would have told from none."""
    return f"{difference.n} seeds would have shown a difference of more than {difference.half or 0:.{digits}f}"


def in_few(seeds: int) -> str:
    """The end of a sentence about seeds too few for an interval."""
    return "in the one seed that was run" if seeds == 1 else f"in the {seeds} seeds that were run"


def interval_words(value: Estimate | Interval | None) -> str:
    """The reading of a difference's interval, in two or three words."""
    ends = None if value is None else (value.low, value.high)
    if ends is None or ends[0] is None or ends[1] is None:
        return "no interval"
    return "a gain" if ends[0] > 0 else "a loss" if ends[1] < 0 else "may be chance"


def spread(value: Estimate | None, digits: int = DIGITS) -> str:
    """The interval of a number at the top of a page, for the note below it."""
    if value is None or value.half is None:
        return "one seed, no interval"
    if value.n < LEAST_SEEDS:
        return f"mean of {value.n} seeds, too few for an interval"
    return f"± {value.half:.{digits}f}, 95 % interval over {value.n} seeds"


def closing(run: Run) -> str:
    """The caveat that belongs into the sentence itself: of an unfinished run, and of generated data."""
    said = ""
    if not run.finished:
        asked, done = run.setting("rounds"), run.shown.done_rounds(run)
        of = f" of {asked:,}" if isinstance(asked, int) and done < asked else ""
        said += f" The run is not finished: {done:,}{of} rounds so far."
    if run.shown.generated(run):
        said += f" {run.shown.generated_sentence()}"
    return said


def other_caveats(run: Run) -> tuple[str, ...]:
    """The caveats of a run but the one about generated data, which :func:`closing` says."""
    said = run.shown.generated_words() if run.shown.generated(run) else ""
    return tuple(caveat for caveat in describe.caveats(run) if caveat != said)


def format_difference(value: float, digits: int = DIGITS) -> str:
    """A difference with its sign."""
    return describe.format_value(value, signed=True, digits=digits)
