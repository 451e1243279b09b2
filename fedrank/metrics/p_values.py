"""The form of a p-value that medical journals ask for: never 0, never 1 (AMA Manual of Style, 11th edition)."""

from __future__ import annotations


def p_value(p: float | None) -> str:
    """A p-value with two significant digits, ``< 0.0001`` or ``> 0.99``; a dash for none.

    >>> [p_value(p) for p in (0.00003, 0.0213, 0.9951, None)]
    ['< 0.0001', '0.021', '> 0.99', '–']
    """
    if p is None or p != p:
        return "–"
    return "< 0.0001" if p < 1e-4 else "> 0.99" if p > 0.99 else f"{p:.2g}"


def p_is(p: float | None) -> str:
    """The same after the letter, for a sentence: ``p = 0.021``, ``p < 0.0001``."""
    said = p_value(p)
    return f"p {said}" if said[0] in "<>" else f"p = {said}"
