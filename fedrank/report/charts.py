"""Altair and vl-convert, which figures are drawn with: loaded at the first figure, brought by the extra ``report``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedrank.core.optional import OptionalModule

if TYPE_CHECKING:
    import altair as alt
    import vl_convert
else:
    alt = OptionalModule("altair", "report", "A figure")
    vl_convert = OptionalModule("vl_convert", "report", "A figure")

__all__ = ["alt", "vl_convert"]
