"""Help texts without frames: a line or two for each command and setting; settings grouped by ``config.toml``'s tables.

The frames that the library draws by default take twice the lines, and a third of the time of ``fedrank --help``.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from cyclopts.help.formatters.plain import PlainFormatter
from typing_extensions import override

#: Characters of a line at most; of names before a sentence, where a line has room for a column: longer names reach
#: into it.
_WIDTH, _NAMES = 120, 22
#: Characters of a line from which on names stand in a column, where some are longer than a command's.
_ROOMY = 100
_NEGATIVE = (
    "A list takes its values one after the other: --KEY a b. --no-KEY or --TABLE.no-KEY switches off what is on; "
    "--empty-KEY or --TABLE.empty-KEY is an empty list."
)


class HelpText(PlainFormatter):
    """Prints ``--table.key  sentence [choices; default]``, table by table, and ``command  sentence``.

    The flags that switch something off (``--no-key``, ``--empty-key``) are described once, at the end, where there are
    tables.
    """

    @override
    def __call__(self, console: Any, options: Any, panel: Any) -> None:
        if panel.entries:
            lines = list(_lines(panel, min(console.width, _WIDTH)))
            console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)


def _lines(panel: Any, width: int) -> Iterator[str]:
    tables: dict[str, list[Any]] = {"": []}
    for entry in panel.entries:
        flag = next(iter(entry.positive_names), "")
        tables.setdefault(flag[2:].rpartition(".")[0] if flag.startswith("--") else "", []).append(entry)
    of_commands = panel.format == "command"
    if of_commands:
        yield f"{panel.title}:"
    longest = max(len(_names(entry)) for entry in panel.entries)
    column = min(longest, _NAMES) if width >= _ROOMY or of_commands else 0
    for table, entries in tables.items():
        if table:
            yield f"[{table}]"
        yield from (_describe_entry(entry, column, width) for entry in entries)
    if any("." in next(iter(entry.negative_names), "") for entry in panel.entries):
        yield textwrap.fill(_NEGATIVE, width)


def _names(entry: Any) -> str:
    """The names of a command or the flags of a setting; of an argument without flags, what stands for it."""
    return " ".join((*entry.positive_names, *entry.positive_shorts)) or str(entry.positional_label or "")


def _describe_entry(entry: Any, column: int, width: int) -> str:
    """The lines of one entry: its names, what it means, what it can be, and what it is where nothing is said."""
    said = " ".join(_words(entry.description))
    about = [*filter(None, (" | ".join(entry.choices or ()), _format_default(entry.default)))]
    sentence = f"{said} [{'; default '.join(about)}]" if about else said
    return textwrap.fill(
        f"{sentence} [required]" if entry.required and entry.positive_names else sentence,
        width,
        initial_indent=f"  {_names(entry):<{column}} " if column else f"  {_names(entry)}  ",
        subsequent_indent=" " * (column + 3 if column else 6),
        break_on_hyphens=False,
    )


def _words(description: Any) -> list[str]:
    """The words of a description, which is a string or text with a style."""
    text = getattr(description, "primary_renderable", description)
    return str(getattr(text, "plain", text) or "").split()


def _format_default(default: Any) -> str:
    """A default as one types it: the values of a list without quotes and brackets; a switch that is off has none."""
    said = "" if default is None else str(default)
    if said in ("True", "False"):
        return "on" if said == "True" else ""
    return said[1:-1].replace("'", "").removesuffix(",") if said.startswith("(") else said
