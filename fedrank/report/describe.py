"""A run in words: what must be said beside its numbers, what its parties are called."""

from __future__ import annotations

from fedrank.report.claims import Sentence, say
from fedrank.report.run import Run

#: Splits on which models are measured, and all splits, in the order in which they are shown.
OFFLINE = ("train", "vali", "test")
SPLITS = ("online", "total", *OFFLINE)

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
        out.append(run.shown.generated_words)
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
    wanted, have = run.setting("seeds", 0), len(run.seeds)
    if have < wanted:
        out.append(f"Fewer seeds than asked for: {have} of {wanted}")
    out.extend(run.shown.notes(run))
    return out


def few_seeds(run: Run) -> list[str]:
    """The caveat of a run with fewer seeds than :data:`FEW_SEEDS`, if it is one."""
    return [f"Few seeds: {len(run.seeds)}"] if len(run.seeds) < FEW_SEEDS else []


def closing(run: Run) -> Sentence:
    """The caveat that belongs into the first sentence: of an unfinished run, and of generated data."""
    said = Sentence(())
    if not run.finished:
        asked, done = run.setting("rounds"), run.shown.done_rounds(run)
        of = f" of {asked:,}" if isinstance(asked, int) and done < asked else ""
        said += say(f" The run is not finished: {done:,}{of} rounds so far.")
    if run.shown.generated(run):
        said += say(f" {run.shown.generated_sentence}")
    return said


def other_caveats(run: Run) -> tuple[str, ...]:
    """The caveats of a run but the one about generated data, which :func:`closing` says."""
    said = run.shown.generated_words if run.shown.generated(run) else ""
    return tuple(caveat for caveat in caveats(run) if caveat != said)


def chart_words(run: Run, what: str) -> str:
    """The description of a chart, with every caveat of its run."""
    return f"{what}. The final values are in the tables.{''.join(f' {caveat}.' for caveat in caveats(run))}"
