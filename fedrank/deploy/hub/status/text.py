"""Numbers, sizes and times as the hub's status page writes them."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from fedrank.report.html import Html, h

#: A no-break space.
JOINT = "\u00a0"


def finite(value: float | None) -> float | None:
    """The number, or None where it is missing or not finite."""
    return value if value is not None and math.isfinite(value) else None


def count(number: int, noun: str) -> str:
    """A number with its noun, in the plural unless it is 1."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def value_text(reward: float) -> str:
    """A reward with three digits."""
    return f"{reward:.3f}" if abs(reward) < 1000 else f"{reward:.3g}"


def epsilon_text(value: float) -> str:
    """An ε with two or three digits, or as a whole number from 100 on."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 0.01 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def size(number: float) -> str:
    """A number of bytes in decimal units."""
    if number < 1000:
        return count(round(number), "byte")
    units = ("kB", "MB", "GB", "TB", "PB")
    power = next((i for i in range(1, 5) if number < 999.5 * 1000**i), 5)
    return f"{float(f'{number / 1000**power:.3g}'):,.6g}{JOINT}{units[power - 1]}"


def clock(seconds: float) -> str:
    """A duration: seconds, minutes and hours as a clock from a minute on, days and hours from two days on."""
    if seconds < 59.5:
        return f"{seconds:.2g}{JOINT}s" if seconds < 9.95 else f"{seconds:.0f}{JOINT}s"
    whole = round(seconds)
    minutes, hours, days = whole // 60 % 60, whole // 3600, whole // 86400
    if days >= 2:
        return f"{days:,}{JOINT}days {hours % 24}{JOINT}h"
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def span(seconds: float) -> str:
    """A duration in the largest unit that divides it."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds % length == 0 and seconds >= length * (2 if unit == "days" else 1):
            return f"{seconds / length:,.0f}{JOINT}{unit}"
    return clock(seconds)


def when(moment: float) -> Html:
    """A time in seconds since 1970, as UTC."""
    at = datetime.fromtimestamp(moment, UTC)
    return h("time", f"{at:%Y-%m-%d %H:%M:%S} UTC", datetime=f"{at:%Y-%m-%dT%H:%M:%SZ}")
