"""The help of a protocol's settings: a line or two each, grouped by their tables in ``config.toml``."""

from __future__ import annotations

import textwrap
from typing import Any

from cyclopts.help.formatters.plain import PlainFormatter
from typing_extensions import override

#: Characters of a line at most; of the flags that come before a setting's sentence, where a line has room for a column.
_WIDTH, _FLAGS = 120, 29
#: Characters of a line from which on flags stand in a column.
_ROOMY = 100


class SettingsHelp(PlainFormatter):
    """Prints settings as ``--table.key  sentence [choices; default]``, table by table, without frames.

    The flags that switch something off (``--no-key``, ``--empty-key``) are described once, at the end.
    """

    @override
    def __call__(self, console: Any, options: Any, panel: Any) -> None:
        width, tables = min(console.width, _WIDTH), {"": []}
        for entry in panel.entries:
            flag = next(iter(entry.positive_names), "")
            tables.setdefault(flag[2:].rpartition(".")[0], []).append(entry)
        for table, entries in tables.items():
            if table:
                self._print_plain(console, f"[{table}]")
            for entry in entries:
                self._print_plain(console, _setting(entry, width))
        if any(entry.negative_names for entry in panel.entries):
            said = (
                "--no-KEY or --TABLE.no-KEY switches off what is on; --empty-KEY or --TABLE.empty-KEY is an empty list."
            )
            self._print_plain(console, textwrap.fill(said, width))


def _setting(entry: Any, width: int) -> str:
    """The lines of one setting: its flags, what it means, what it can be, and what it is where nothing is said."""
    flags = " ".join((*entry.positive_names, *entry.positive_shorts)) or "PROTOCOL"
    said = " ".join(_words(entry.description))
    about = [*filter(None, (" | ".join(entry.choices or ()), _typed(entry.default)))]
    sentence = f"{said} [{'; default '.join(about)}]" if about else said
    column = _FLAGS if width >= _ROOMY else 0
    return textwrap.fill(
        sentence,
        width,
        initial_indent=f"  {flags:<{column}} " if column else f"  {flags}  ",
        subsequent_indent=" " * (column + 3 if column else 6),
        break_on_hyphens=False,
    )


def _words(description: Any) -> list[str]:
    """The words of a description, which is a string or text with a style."""
    text = getattr(description, "primary_renderable", description)
    return str(getattr(text, "plain", text) or "").split()


def _typed(default: Any) -> str:
    """A default as one types it: the values of a list without quotes and brackets; a switch that is off has none."""
    said = "" if default is None else str(default)
    if said in ("True", "False"):
        return "on" if said == "True" else ""
    return said[1:-1].replace("'", "").removesuffix(",") if said.startswith("(") else said
