"""``fedrank silos send`` and ``private``: one message of a silo with a record's ε, and what others get of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import cyclopts

from fedrank.cli.flags import AsJson
from fedrank.cli.silo_tables import LabelledColumns, table_of
from fedrank.cli.silos import ends_of, signed_number
from fedrank.cli.terminal import print_json
from fedrank.cli.terminal import table as drawn
from fedrank.core.privacy_report import DELTA
from fedrank.privacy.caps import LIFETIME_EPSILON

#: Public ranges of columns.
RangeFlag = Annotated[tuple[str, ...], cyclopts.Parameter(name="--range", consume_multiple=True, negative="")]


def send(
    data: str,
    *,
    epsilon: float,
    out: Path,
    of: str = "",
    delta: float = DELTA,
    limit: float = LIFETIME_EPSILON,
    book: Path | None = None,
    range_: RangeFlag = (),
    clip: float | None = None,
    meaning: Annotated[LabelledColumns, cyclopts.Parameter(name="*")] = LabelledColumns(),  # noqa: B008 - frozen
    as_json: AsJson = False,
) -> None:
    """Write what a silo may send to anybody: sums of its rows with a record's ε, once, noise from the operating system.

    Args:
        data: A CSV or parquet file, of this silo or with a column for the silo.
        epsilon: ε of a record.
        out: The message's file.
        of: The silo whose rows these are, where the file has several.
        delta: δ.
        limit: Largest ε of a record over all that was ever sent of this table.
        book: File that counts what was sent; without it beside the data.
        range_: Public range of a column, such as age=0:110; of all columns but those of levels.
        clip: Largest length of a row, in half ranges; the same at all silos.
        meaning: What the columns mean.
        as_json: Print JSON instead of a sentence.
    """
    from fedrank.core.errors import ConfigError, RunError
    from fedrank.silos.records.account import record_account
    from fedrank.silos.records.messages import Message, spend
    from fedrank.silos.records.ranges import parsed, ranges_of
    from fedrank.silos.records.statistics import noise_of, released
    from fedrank.silos.sceptic.rows import rows_of

    table = table_of(data, meaning)
    if not of and table.n_silos > 1:
        raise ConfigError(f"the file has rows of {table.n_silos} silos; say whose are sent: --of {table.names[0]}.")
    number = table.index(of) if of else 0
    own, name = rows_of(table)[number], table.names[number]
    ranges = ranges_of(table.feature_names, parsed(range_), clip)
    noise = noise_of(ranges, epsilon, delta)
    if out.exists():
        raise RunError(f"{out} exists; a message is never written over, as it cannot be taken back.")
    book = book or Path(f"{data}.{name}.sent.json")
    # Counted before anything is drawn: a process that dies now has counted.
    total = spend(book, noise, delta, limit, {"silo": name, "file": str(out)})
    statistics = released(own.x, own.y, ranges, epsilon, delta)
    Message(name, table.label, ranges, epsilon, delta, statistics).write(out)
    report = record_account({"sums of the silo's rows": noise}, delta)
    if as_json:
        told = {"silo": name, "rows": own.rows, "out": str(out), "epsilon_so_far": total, "book": str(book)}
        print_json({**told, "privacy": report.as_json()})
        return
    from fedrank.cli.console import Console

    console = Console()
    console.print(
        f"written: {out}; sums of {own.rows:,} rows of {name} over {len(ranges.names)} columns. A record: ε = "
        f"{epsilon:g} at δ = {delta:.0e}; with all that was sent before: {total:.3g} of {limit:g} ({book}).",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    for line in report.not_covered:
        console.print(f"- Not covered: {line}", highlight=False)


def private(
    data: str,
    *,
    target: str = "",
    epsilon: float = 4.0,
    delta: float = DELTA,
    messages: Annotated[tuple[Path, ...], cyclopts.Parameter(consume_multiple=True, negative="")] = (),
    auc_epsilon: float | None = None,
    range_: RangeFlag = (),
    clip: float | None = None,
    meaning: Annotated[LabelledColumns, cyclopts.Parameter(name="*")] = LabelledColumns(),  # noqa: B008 - frozen
    seed: int = 0,
    as_json: AsJson = False,
) -> None:
    """What a silo gets of others' messages with a record's ε: every way side by side, judged on its own rows.

    With --messages the others' files are read, and the data is the silo's own. Without, the others' rows are in the
    data, and their messages are simulated.

    Args:
        data: A CSV or parquet file; or the name of a set (fedrank data list).
        target: The silo that asks, by name; without it the first.
        epsilon: ε of a record in each simulated message.
        delta: δ.
        messages: What others sent (fedrank silos send).
        auc_epsilon: Also print the AUC of the others' model on the own rows with this ε, to be told to others.
        range_: Public range of a column, such as age=0:110; with --messages theirs are taken.
        clip: Largest length of a row, in half ranges.
        meaning: What the columns mean.
        seed: Draws the folds, and the noise of simulated messages.
        as_json: Print JSON instead of tables.
    """
    import numpy as np

    from fedrank.core.errors import ConfigError, DataError
    from fedrank.silos.records.account import record_account
    from fedrank.silos.records.answer import private_answer
    from fedrank.silos.records.auc import noisy_auc
    from fedrank.silos.records.messages import check_ranges, read_message
    from fedrank.silos.records.ranges import Ranges, parsed, ranges_of
    from fedrank.silos.records.statistics import noise_of, released
    from fedrank.silos.records.ways import Linear
    from fedrank.silos.sceptic.compare import FEWEST
    from fedrank.silos.sceptic.rows import rows_of

    if seed < 0:
        raise ConfigError(f"seed must be at least 0, got {seed}.")
    table = table_of(data, meaning)
    number = table.index(target) if target else 0
    own = rows_of(table)[number]
    if own.rarer < FEWEST:
        raise DataError(
            f"silo {table.names[number]} has {own.rarer} rows of the rarer label, {FEWEST} are needed to judge by."
        )
    received = [read_message(path) for path in messages]
    if received:
        ranges: Ranges = received[0].ranges
        check_ranges(received[0], Ranges(tuple(table.feature_names), ranges.low, ranges.high, ranges.clip))
        for one in received:
            check_ranges(one, ranges)
        names, sent = [one.silo for one in received], [one.statistics for one in received]
        spent = [{"epsilon": one.epsilon, "delta": one.delta} for one in received]
    else:
        if table.n_silos < 2:
            raise ConfigError("there is one silo only; give what others sent with --messages.")
        ranges = ranges_of(table.feature_names, parsed(range_), clip)
        names = [name for k, name in enumerate(table.names) if k != number]
        rng = np.random.default_rng([seed, 1])
        others = [one for k, one in enumerate(rows_of(table)) if k != number]
        sent = [released(one.x, one.y, ranges, epsilon, delta, rng) for one in others]
        spent = [{"epsilon": epsilon, "delta": delta}] * len(sent)
    found = private_answer(own, sent, ranges, seed)
    told: dict[str, Any] = {
        "data": table.name, "target": table.names[number], "rows": own.rows, "simulated": not received,
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


def _print(told: dict[str, Any], found: Any, names: list[str]) -> None:
    from fedrank.cli.console import Console
    from fedrank.silos.records.ways import WAYS

    console = Console()
    use = "your own model" if found.recommended == "alone" else f"the model “{WAYS[found.recommended]}”"
    console.print(
        f"[bold]{told['target']} ({told['rows']:,} rows): use {use}, AUC {found.reached.value:.3f}; "
        f"{signed_number(found.gain.value)} ({ends_of(found.gain, signed=True)}) over its own model.[/bold]",
        highlight=False,
    )
    shown = drawn("way", "AUC", "95 %", "over alone", "95 % ", numbers=("AUC", "over alone"))
    for way, (auc, gain) in found.rows.items():
        mark = " ←" if way == found.recommended else ""
        more = ("", "") if way == "alone" else (signed_number(gain.value), ends_of(gain, signed=True))
        shown.add_row(WAYS[way] + mark, f"{auc.value:.3f}", ends_of(auc), *more)
    console.print(shown)
    shown = drawn("silo", "rows", "ε of a record", f"with its message, {told['target']}’s AUC", numbers=("rows",))
    for verdict in found.verdicts:
        about = told["messages"][names[verdict.silo]]
        shown.add_row(names[verdict.silo], f"{about['rows']:,}", f"{about['epsilon']:g}", verdict.text)
    console.print(shown)
    simulated = "Messages are simulated from the rows in the data. " if told["simulated"] else ""
    console.print(
        f"{simulated}Everything else is chosen on the target’s own rows and costs the others no ε.", highlight=False
    )
    if "told_auc" in told:
        one = told["told_auc"]
        console.print(
            f"AUC of the others’ model here, with noise of σ = {one['sigma']:.3f}, to be told: {one['value']:.3f} "
            f"(ε = {one['epsilon']:g} of a record; how many rows have each label is public).",
            highlight=False,
        )
