"""Altair and vl-convert, which figures are drawn with: loaded at the first figure, brought by the extra ``report``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from fedrank.core.optional import OptionalModule

if TYPE_CHECKING:
    import altair as alt
    import vl_convert
    from altair.typing import ChartType

    #: A figure that :mod:`fedrank.report.figures` draws.
    Chart: TypeAlias = ChartType
else:
    Chart = Any
    alt = OptionalModule("altair", "report", "A figure")
    vl_convert = OptionalModule("vl_convert", "report", "A figure")

__all__ = ["Chart", "alt", "vl_convert"]
