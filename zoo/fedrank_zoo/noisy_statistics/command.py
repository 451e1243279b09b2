"""``fedrank silos send`` and ``private``: one message of a silo with a record's ε, and what others get of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import cyclopts
from cyclopts import Parameter

from fedrank.cli.data import LabelledColumns, table_of
from fedrank.cli.terminal import AsJson, headline, print_json, say
from fedrank.cli.terminal import table as drawn
from fedrank.core.errors import ConfigError, DataError, RunError, UnknownNameError
from fedrank.core.fields import setting
from fedrank.core.privacy_report import DELTA
from fedrank.core.words import printable

#: Public ranges of columns of numbers, and levels of columns of names.
Ranges = Annotated[tuple[str, ...], Parameter(name="--range", consume_multiple=True, negative="")]
Levels = Annotated[tuple[str, ...], Parameter(name="--levels", consume_multiple=True, negative="")]


@dataclass(frozen=True, kw_only=True)
class Public:
    """Public knowledge of the columns of a table."""

    range_: Ranges = setting((), "Public range of a column of numbers, such as age=0:110.")
    levels: Levels = setting((), "Public levels of a column of names, such as sex=f,m.")
    codebook: Path | None = setting(None, "Codebook of a study: its ranges and levels, in place of the two above.")
    clip: float | None = setting(None, "Largest length of a row, in half ranges; the same at all silos.")

    @property
    def is_given(self) -> bool:
        """True if ranges of numbers are public knowledge."""
        return bool(self.range_) or self.codebook is not None

    def of(self, names: Sequence[str]) -> Any:
        """The :class:`~fedrank_zoo.noisy_statistics.ranges.Ranges` of columns.

        Raises:
            ConfigError: There are both a codebook and ranges or levels.
        """
        from fedrank.silos.records.ranges import parse_ranges
        from fedrank.silos.studies.codebook import read_codebook
        from fedrank_zoo.noisy_statistics.ranges import parsed_levels, ranges_of

        if self.codebook is not None:
            if self.range_ or self.levels:
                raise ConfigError("ranges and levels are those of the codebook; leave --range and --levels out.")
            about = [one for name, one in read_codebook(self.codebook).columns.items() if name in names]
            given = {one.name: (one.low, one.high) for one in about if one.range}
            levels = {one.name: one.levels for one in about if one.levels}
            return ranges_of(names, given, self.clip, levels)
        return ranges_of(names, parse_ranges(self.range_), self.clip, parsed_levels(self.levels))


def send(
    data: Path,
    /,
    *,
    epsilon: float,
    out: Path,
    of: str = "",
    delta: float = DELTA,
    limit: float = 8.0,
    book: Path | None = None,
    public: Annotated[Public, cyclopts.Parameter(name="*")] = Public(),
    meaning: Annotated[LabelledColumns, cyclopts.Parameter(name="*")] = LabelledColumns(),
    as_json: AsJson = False,
) -> None:
    """Write what a silo may send to others: sums of its rows with a record's ε, once, noise from the operating system.

    Args:
        data: A CSV or parquet file of this silo, or of several with a column for the silo.
        epsilon: ε of a record.
        out: The message's file.
        of: The silo whose rows these are; needed, also of a file of one silo.
        delta: δ.
        limit: Largest ε of a record over all that was ever sent of this table.
        book: File that counts what was sent; without it beside the data.
        public: Public ranges and levels of the columns, each of which needs one or the other.
        meaning: What the columns mean; the value of the label that counts as 1 is needed.
    """
    from fedrank.silos.data.files import read_columns
    from fedrank_zoo.noisy_statistics.account import record_account
    from fedrank_zoo.noisy_statistics.messages import Message, refuse_other_books, spend
    from fedrank_zoo.noisy_statistics.ranges import as_each, public_rows
    from fedrank_zoo.noisy_statistics.releases import noise_of, release_sums

    if not of:
        raise ConfigError("say whose rows are sent: --of NAME; the name must not come from the rows.")
    columns, meaning = _as_agreed(read_columns(data, meaning.drop), meaning, public, [of])
    if meaning.positive is None:
        raise ConfigError("say which value of the label counts as 1 (--positive); it must not come from the rows.")
    ranges = _public(columns, meaning, public)
    made = public_rows(
        columns, ranges, silo=meaning.silo, of=of, label=meaning.label, positive=meaning.positive,
        missing=meaning.missing,
    )  # fmt: skip
    noise = noise_of(ranges, epsilon, delta)
    if out.exists():
        raise RunError(f"{out} exists; a message is never written over, as it cannot be taken back.")
    column = meaning.silo if meaning.silo in columns else None
    if book is None:
        refuse_other_books(data, column)
    # A silo has one book, however its name is written (1, 1.0), and so has a table of one silo.
    book = book or Path(f"{data}.{as_each([of])[0]}.sent.json" if column else f"{data}.sent.json")
    # Counted before anything is drawn: a process that dies now has counted.
    total = spend(book, noise, delta, limit, {"silo": of, "column": column, "file": str(out)})
    own = made.own
    statistics = release_sums(own.x, own.y, ranges, epsilon, delta)
    Message(of, f"{meaning.label} = {meaning.positive}", ranges, epsilon, delta, statistics).write(out)
    _say(made.notes)
    report = record_account({"sums of the silo's rows": noise}, delta)
    if as_json:
        told = {"silo": of, "rows": own.rows, "out": str(out), "epsilon_so_far": total, "book": str(book)}
        print_json({**told, "privacy": report.as_json()})
        return
    say(
        f"written: {out}; sums of {own.rows:,} rows of {of} over {len(ranges.names)} columns. A record: ε = "
        f"{epsilon:g} at δ = {delta:.0e}; with all that was sent before: {total:.3g} of {limit:g} ({book}).",
        *(f"- Not covered: {line}" for line in report.not_covered),
    )


def _as_agreed(
    columns: dict[str, list[Any]], meaning: LabelledColumns, public: Public, silos: Sequence[str] = ()
) -> tuple[dict[str, list[Any]], LabelledColumns]:
    """Columns as a codebook reads them, without those that it does not have, and what they mean; else both as given.

    Args:
        columns: The table's columns by name.
        meaning: What they mean.
        public: The codebook, or none.
        silos: Silos that the codebook must name.

    Raises:
        UnknownNameError: The codebook does not name the label, a silo or a dropped column.
        ConfigError: The label has not two levels.
        DataError: The table lacks a column of the codebook.
    """
    if public.codebook is None:
        return columns, meaning
    from fedrank.silos.studies.codebook import as_text, read_codebook

    book = read_codebook(public.codebook)
    for silo in silos:
        if silo not in book.silos:
            raise UnknownNameError("silo of the codebook", silo, book.silos)
    label = book.column(meaning.label)
    if len(label.levels) != 2:
        raise ConfigError(f"the label must be a column of two levels, and {label.name!r} is none in the codebook.")
    out = {book.site: columns[book.site]} if book.site in columns else {}
    for name, about in book.columns.items():
        if about.role or name in meaning.drop:
            continue
        if name not in columns:
            raise DataError(f"there is no column {name!r}, which the codebook has.")
        texts = [None if cell is None else as_text(cell).strip() for cell in columns[name]]
        gone = set(about.missing)
        out[name] = [
            None if text is None or text in gone else about.codes.get(text, cell)
            for text, cell in zip(texts, columns[name], strict=True)
        ]
    known = set(label.levels)
    out[label.name] = [cell if as_text(cell) in known else None for cell in out[label.name]]
    return out, replace(meaning, silo=book.site, positive=meaning.positive or label.levels[1], drop=())


def _public(columns: Any, meaning: LabelledColumns, public: Public) -> Any:
    """The public columns of a table: those of its first line with the ranges and levels that are given."""
    for name in (meaning.label, *meaning.drop):
        if name not in columns:
            raise UnknownNameError("column", name, columns)
    return public.of([name for name in columns if name not in (meaning.silo, meaning.label, *meaning.drop)])


def _say(notes: tuple[str, ...]) -> None:
    """Tell the silo what was mapped: on the terminal's second stream, as it is about records."""
    for note in notes:
        print(f"note for this silo alone: {printable(note)}", file=sys.stderr)


def private(
    data: str,
    /,
    *,
    target: str = "",
    epsilon: float = 4.0,
    delta: float = DELTA,
    messages: Annotated[tuple[Path, ...], cyclopts.Parameter(consume_multiple=True, negative="")] = (),
    auc_epsilon: float | None = None,
    public: Annotated[Public, cyclopts.Parameter(name="*")] = Public(),
    meaning: Annotated[LabelledColumns, cyclopts.Parameter(name="*")] = LabelledColumns(),
    seed: int = 0,
    as_json: AsJson = False,
) -> None:
    """Compare the ways in which a silo can use others' messages with a record's ε, side by side on its own rows.

    With --messages the others' files are read, and the data is the silo's own: a file of one silo, or of several.
    Without, the others' rows are in the data, and their messages are simulated.

    Args:
        data: A CSV or parquet file; or the name of a set (fedrank data list), with simulated messages.
        target: The silo that asks, by name; without it the first, or the one that a file is of.
        epsilon: ε of a record in each simulated message.
        delta: δ.
        messages: What others sent (fedrank silos send).
        auc_epsilon: Also print the AUC of the others' model on the own rows with this ε, to be told to others.
        public: Public ranges and levels of the columns; with --messages theirs are taken.
        meaning: What the columns mean.
        seed: Draws the folds, and the noise of simulated messages.
    """
    import numpy as np

    from fedrank.silos.data.files import read_columns
    from fedrank.silos.sceptic.compare import FEWEST
    from fedrank_zoo.noisy_statistics.account import record_account
    from fedrank_zoo.noisy_statistics.messages import check_ranges, read_message
    from fedrank_zoo.noisy_statistics.releases import noise_of, noisy_auc, release_sums
    from fedrank_zoo.noisy_statistics.ways import Linear, private_answer

    if seed < 0:
        raise ConfigError(f"seed must be at least 0, got {seed}.")
    if auc_epsilon is not None and meaning.positive is None:
        raise ConfigError("an AUC that is told needs --positive: which label counts as 1 must not come from the rows.")
    received = [read_message(path) for path in messages]
    if received:
        ranges = received[0].ranges
        for one in received:
            check_ranges(one, ranges)
        columns, meaning = _as_agreed(read_columns(Path(data), meaning.drop), meaning, public)
        present = _names_in(columns, meaning.silo)
        mine = target or (present[0] if present else Path(data).name.split(".")[0])
        own = _rows(columns, meaning, ranges, [mine])[mine]
        names, sent = [one.silo for one in received], [one.statistics for one in received]
        spent = [{"epsilon": one.epsilon, "delta": one.delta} for one in received]
    else:
        silos, ranges = _load_silos(data, meaning, public)
        if len(silos) < 2:
            raise ConfigError("there is one silo only; give what others sent with --messages.")
        if target and target not in silos:
            raise UnknownNameError("silo", target, tuple(silos))
        mine = target or next(iter(silos))
        own = silos.pop(mine)
        names = list(silos)
        rng = np.random.default_rng([seed, 1])
        sent = [release_sums(one.x, one.y, ranges, epsilon, delta, rng) for one in silos.values()]
        spent = [{"epsilon": epsilon, "delta": delta}] * len(sent)
    if own.rarer < FEWEST:
        raise DataError(f"silo {mine} has {own.rarer} rows of the rarer label, {FEWEST} are needed to judge by.")
    found = private_answer(own, sent, ranges, seed)
    told: dict[str, Any] = {
        "sentence": str(found.headline(mine, own.rows)),
        "data": Path(data).name.split(".")[0], "target": mine, "rows": own.rows, "simulated": not received,
        "messages": {n: {"rows": s.rows, **e} for n, s, e in zip(names, sent, spent, strict=True)},
        **found.as_json(names),
    }  # fmt: skip
    if not received:
        told["privacy"] = record_account({"sums of the silo's rows": noise_of(ranges, epsilon, delta)}, delta).as_json()
    if auc_epsilon is not None:
        total = sent[0]
        for one in sent[1:]:
            total = total + one
        value, noise = noisy_auc(Linear(total.model(3.0), ranges)(own.x), own.y, auc_epsilon, delta)
        told["told_auc"] = {"value": value, "sigma": noise.sigma, "epsilon": auc_epsilon, "delta": delta}
    if as_json:
        print_json(told)
        return
    _print(told, found, names)


def _names_in(columns: Any, silo: str) -> list[str]:
    """Names of the silos in a column, in order; none where there is no such column."""
    from fedrank.silos.data.files import in_order, silo_names

    return in_order({name for name in silo_names(columns.get(silo, ()), silo) if name is not None})


def _rows(columns: Any, meaning: LabelledColumns, ranges: Any, names: list[str]) -> dict[str, Any]:
    """Labelled rows of some silos in public columns, by name."""
    from fedrank.silos.data.coding import as_codes
    from fedrank.silos.data.files import positive_of
    from fedrank_zoo.noisy_statistics.ranges import public_rows

    if meaning.label not in columns:
        raise UnknownNameError("column", meaning.label, columns)
    positive = meaning.positive or positive_of(as_codes(columns[meaning.label]), meaning.label, None, None)
    out = {}
    for name in names:
        made = public_rows(
            columns, ranges, silo=meaning.silo, of=name, label=meaning.label, positive=positive, missing=meaning.missing
        )
        _say(made.notes)
        out[name] = made.own[made.own.y != 0.5]
    return out


def _load_silos(data: str, meaning: LabelledColumns, public: Public) -> tuple[dict[str, Any], Any]:
    """Rows of all silos by name, and their public columns: those of the flags, or of a known set."""
    from fedrank.data.sources import is_known
    from fedrank.silos.data.files import read_columns
    from fedrank.silos.sceptic.learners import rows_of

    if is_known(data, "silos"):
        table = table_of(data, meaning)
        return dict(zip(table.names, rows_of(table), strict=True)), public.of(table.feature_names)
    columns, meaning = _as_agreed(read_columns(Path(data), meaning.drop), meaning, public)
    ranges = _public(columns, meaning, public)
    names = _names_in(columns, meaning.silo)
    known = [row for row, name in enumerate(columns.get(meaning.silo, ())) if name is not None]
    columns = {column: [values[row] for row in known] for column, values in columns.items()}
    return _rows(columns, meaning, ranges, names), ranges


def _print(told: dict[str, Any], found: Any, names: list[str]) -> None:
    from fedrank_zoo.noisy_statistics.ways import WAYS

    ways = drawn("way", "AUC", "95 %", "over alone", "95 % ", numbers=("AUC", "over alone"))
    for way, (auc, gain) in found.rows.items():
        mark = " ←" if way == found.recommended else ""
        more = ("", "") if way == "alone" else (signed_number(gain.value), ends_of(gain, signed=True))
        ways.add_row(WAYS[way] + mark, f"{auc.value:.3f}", ends_of(auc), *more)
    silos = drawn("silo", "rows", "ε of a record", f"with its message, {told['target']}’s AUC", numbers=("rows",))
    for verdict in found.verdicts:
        about = told["messages"][names[verdict.silo]]
        silos.add_row(names[verdict.silo], f"{about['rows']:,}", f"{about['epsilon']:g}", verdict.text)
    simulated = "Messages are simulated from the rows in the data. " if told["simulated"] else ""
    words = [f"{simulated}Everything else is chosen on the target’s own rows and costs the others no ε."]
    if one := told.get("told_auc"):
        words.append(
            f"AUC of the others’ model here, with noise of σ = {one['sigma']:.3f}, to be told: {one['value']:.3f} "
            f"(ε = {one['epsilon']:g} of a record; how many rows have each label is public)."
        )
    say(headline(told["sentence"]), ways, silos, *words)


def ends_of(found: Any, signed: bool = False) -> str:
    """The ends of a 95 % interval."""
    low, high = found.interval()
    if low != low:
        return "no interval"
    form = "+.3f" if signed else ".3f"
    return f"{low:{form}} to {high:{form}}".replace("-", "−")


def signed_number(value: float) -> str:
    """A number with three decimals and its sign, plus or minus, as text."""
    return f"{value:+.3f}".replace("-", "−")
