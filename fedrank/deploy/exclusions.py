"""Settings of a hub that cannot be had together, and why: start-up errors and documentation are made of this table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fedrank.core.errors import ConfigError


class Case(NamedTuple):
    """A setting that says something.

    Attributes:
        words: How it is named in an error and in the documentation.
        holds: Whether settings have it.
    """

    words: str
    holds: Callable[[Any], bool]


class Exclusion(NamedTuple):
    """Settings that exclude one another: any of the first with any of the others.

    Attributes:
        first: A case.
        others: Further cases.
        why: The reason, a sentence without its stop.
    """

    first: Case
    others: tuple[Case, ...]
    why: str


def _case(words: str, holds: Callable[[Any], Any]) -> Case:
    return Case(words, lambda settings: bool(holds(settings)))


#: All of them. Terms have no ``collect``.
EXCLUSIONS: tuple[Exclusion, ...] = (
    Exclusion(
        _case("batch", lambda s: s.batch),
        (_case("tokens = 0", lambda s: not s.tokens),),
        "a relay hides nothing while devices show their own tokens",
    ),
    Exclusion(
        _case("checks", lambda s: s.checks),
        (
            _case("mechanism = laplace", lambda s: s.mechanism == "laplace"),
            _case("collect", lambda s: getattr(s, "collect", False)),
        ),
        "a check is a privatised difference of the hub's newest and its best model: there is none with the noise of "
        "sums, and a hub that collects for a coordinator has no best model",
    ),
    Exclusion(
        _case("interleaved", lambda s: s.interleaved),
        (_case("a mechanism other than piecewise", lambda s: s.mechanism != "piecewise"),),
        "interleaved lists tell of each interaction twice, once for each ranker",
    ),
)


def refuse_excluded(settings: Any) -> None:
    """Refuse settings that have what excludes one another.

    Args:
        settings: Settings of a hub, or terms.

    Raises:
        ConfigError: Two exclude one another.
    """
    for first, others, why in EXCLUSIONS:
        for other in others:
            if first.holds(settings) and other.holds(settings):
                raise ConfigError(f"{first.words} and {other.words} cannot be had together: {why}. Leave one out.")
