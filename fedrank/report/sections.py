"""Sections that every page of a run has: what left, privacy, how to repeat it, its configuration, what to cite."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence

from fedrank.core.errors import RunError
from fedrank.core.privacy_report import BASIC, Unit
from fedrank.core.registry import bibtex
from fedrank.report import describe, tables, wording, words
from fedrank.report.charts import Chart
from fedrank.report.claims import Number, Size, Spent
from fedrank.report.figures import Level, levels_figure
from fedrank.report.html import Html, bullets, h
from fedrank.report.run import Run, Section

#: A larger ε is a formal bound that means little by itself.
MEANINGFUL = 10.0


def opening_chart(
    run: Run, levels: Sequence[Level], title: str, digits: int = 3, *, signed: bool = False
) -> Chart | None:
    """The chart of levels that a page opens with, arguments as of :func:`levels_figure`; None without levels."""
    said = [wording.seeds_in_words(len(run.seeds), shown="line"), *describe.caveats(run)]
    return levels_figure(levels, title, said, digits, signed=signed) if levels else None


def found(lines: Sequence[str]) -> Section:
    """Section of a page with the run's results, a line of a list for each sentence."""
    return Section("found", "What was found", (bullets(lines, class_="verdicts"),))


def side_by_side(drawn: Mapping[str, Chart], described: Mapping[str, str]) -> Html | None:
    """Charts side by side: of these names those that are drawn, each with what it shows; None if none is."""
    shown = [drawn[name].figure(name, what) for name, what in described.items() if name in drawn]
    return h("div", *shown, class_="charts") if shown else None


def curves(
    run: Run, drawn: Mapping[str, Chart], described: Mapping[str, str], title: str = "How it learnt", more: str = ""
) -> Section:
    """Charts side by side.

    Args:
        run: The run.
        drawn: All charts of the page, by name.
        described: Names of those that are shown, in order, and what each shows, for who does not see it.
        title: Heading of the section.
        more: What is said below them besides how to read them.
    """
    shown = side_by_side(drawn, {name: describe.chart_words(run, what) for name, what in described.items()})
    note = "Point at a curve to read its values." if shown else "There are no curves yet."
    return Section(
        "curves", title, (shown, h("p", note, " Files of the figures: folder figures.", more, class_="note"))
    )


def sent(run: Run, shares: float, when: str, said: str = "") -> Number | None:
    """Bytes that a party sends and receives, for the top of a page; None where nothing crosses.

    Args:
        run: The run.
        shares: What the ledger's bytes are divided by: parties, times rounds or not.
        when: Such as ``"in a round"``.
        said: What is added to the note.
    """
    if run.ledger is None or not len(run.ledger):
        return None
    up, down = (run.ledger.bytes_from(who) / shares for who in ("parties", "server"))
    label = f"Sent by a {describe.party(run)[0]} {when}"
    return Number(label, Size(round(up)), f"{wording.size(round(down))} received{said}")


def left(run: Run, *more: object) -> Section:
    """The messages that left the parties, in words and tables, from the ledger.

    Args:
        run: The run.
        more: What stands between the words and the tables, which are then folded away.
    """
    said = run.shown.crossed_title(run)
    if said is not None:
        return Section("left", said, tuple(h("p", line) for line in words.ledger_words(run)))
    crossed = run.ledger is not None and len(run.ledger) and run.shown.reads_every_ledger_line
    found = (words.ledger_table(run) if crossed else None, words.fields_table(run))
    every: list[object] = [table for table in found if table is not None]
    if every and more:
        every = [h("details", h("summary", "Every message and its fields"), *every)]
    title = f"What left the {describe.party(run)[1]}"
    return Section("left", title, (bullets(words.ledger_words(run)), *more, *every))


def privacy(run: Run) -> Section:
    """The privacy promises, with what they cover and what they do not."""
    statement = bullets(words.privacy_words(run))
    return Section("privacy", "Privacy", (statement, list_coverage(run)))


def list_coverage(run: Run) -> Html | None:
    """The two lists of what the promises about privacy cover and do not; None before the run wrote its statement."""
    if run.privacy is None:
        return None
    lists = (("Covered", run.privacy.covers), ("Not covered", run.privacy.not_covered))
    parts = (h("div", h("h3", title), bullets(items)) for title, items in lists if items)
    return h("div", *parts, class_="two")


def repeat(run: Run) -> Section:
    """The command that runs it again."""
    parts = [h("p", "The run directory holds the whole configuration. This runs it again, with equal draws:")]
    parts.append(h("pre", f"fedrank run {shlex.quote(str(run.path / 'config.toml'))}"))
    if command := run.environment.get("command"):
        text = shlex.join(map(str, command)) if isinstance(command, list) else str(command)
        parts += [h("p", "It was started with:"), h("pre", text)]
    return Section("repeat", "Run it again", tuple(parts))


def configuration(run: Run, *, notes: bool = True) -> Section:
    """Settings and environment, and what must be known about the data unless the page says that elsewhere."""
    said = (run.model or {}).get("notes") or () if notes else ()
    return Section(
        "configuration",
        "Configuration and environment",
        (
            h("div", h("div", tables.config_table(run)), h("div", tables.environment_table(run)), class_="two"),
            *(h("p", f"Data: {note}", class_="note") for note in said),
        ),
    )


def citation(run: Run) -> Section:
    """BibTeX of what the run used."""
    try:
        entries = citations(run)
        said = h("pre", entries) if entries else h("p", "Nothing that this run used asks for a citation.")
    except RunError:
        said = h("p", "The run did not write down what to cite.")
    return Section("citation", "What to cite", (said,))


def privacy_number(run: Run) -> Number | None:
    """ε of a person over the whole run and of one piece; None if the run has not written its statement yet."""
    if run.privacy is None:
        return None
    units = {promise.unit for promise in run.privacy.promises}
    unit = Unit.INTERACTION if Unit.INTERACTION in units else Unit.ROUND
    one, said = run.privacy.epsilon(unit), Spent(run.privacy, Unit.USER, BASIC)
    if math.isinf(said.epsilon):  # as it adds up; where a run promises another, that
        said = Spent(run.privacy, Unit.USER)
    each = f"{wording.epsilon_text(one)} per {unit}"
    if math.isinf(said.epsilon):
        note = "nothing is promised" if math.isinf(one) else each
    elif said.epsilon == one:
        note = f"of everything a {run.shown.person} did, over the whole run"
    else:
        note = f"over the run{', which means little' if said.epsilon > MEANINGFUL else ''}; {each}"
    return Number(f"Privacy bound of a {run.shown.person} (ε)", said, note)


def citations(run: Run) -> str:
    """The BibTeX of what this run used; empty if nothing of it is to be cited.

    Raises:
        RunError: The run did not write down what to cite.
        UnknownNameError: The run names a reference that this version does not know.
    """
    if (keys := run.environment.get("citations")) is None:
        raise RunError(
            f"{run.path / 'environment.json'}: has no 'citations', so what this run used is not known. "
            "Run again with this version, or cite what config.toml names."
        )
    return bibtex(map(str, keys))
