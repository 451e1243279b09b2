"""Lines of logs on a terminal, which may quote what other machines have sent."""

from __future__ import annotations

import logging

from typing_extensions import override

from fedrank.core.words import printable


class LogLine(logging.Formatter):
    """A line of a log, in which control characters do nothing; arguments as of the base class."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), lines=True)
