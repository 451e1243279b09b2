"""The terminal as rich draws on it, for text that partly comes from outside: names in files, messages of machines.

Control characters of such text are shown, not obeyed (:func:`~fedrank.core.words.printable`), and what looks like a tag
of rich's markup is text, unless it is one of the few that commands use themselves.
"""

from __future__ import annotations

import re
from typing import Any

import rich.console
from rich.text import Text
from typing_extensions import override

from fedrank.core.words import printable

#: A tag that no command uses, and the backslashes before it.
_FOREIGN_TAG = re.compile(r"(\\*)(\[(?!/?(?:bold|dim|red|green)\])[a-zA-Z#/@][^\[]*?\])")


class Console(rich.console.Console):
    """A terminal that colours nothing by itself; arguments as of rich's class."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, **options)

    @override
    def render_str(self, text: str, *, markup: bool | None = None, **options: Any) -> Text:
        text = printable(text, lines=True)
        if markup or (markup is None and self._markup):
            text = _FOREIGN_TAG.sub(r"\1\1\\\2", text)
        return super().render_str(text, markup=markup, **options)
