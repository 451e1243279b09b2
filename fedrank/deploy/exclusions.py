"""Settings of a hub that cannot be had together, and why: start-up errors and documentation are made of this table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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


_TOKENS, _NO_TOKENS = _case("tokens", lambda s: s.tokens), _case("tokens = 0", lambda s: not s.tokens)
_BATCH = _case("batch", lambda s: s.batch)
_DUE, _SEEDS = _case("due below 1", lambda s: s.due < 1), _case("drawn_seeds", lambda s: s.drawn_seeds)
_CHECKS = _case("checks", lambda s: s.checks)
_RELAY = _case("relay", lambda s: s.relay)
_ATTESTATION = _case("attestation", lambda s: s.attestation)

#: Those of what is agreed on with devices, which a device refuses too.
OF_TERMS: tuple[Exclusion, ...] = (
    Exclusion(
        _TOKENS,
        (_DUE, _SEEDS, _CHECKS),
        "a draw is made of the token that a device enrolled with, and blind tokens hide which device reports",
    ),
    Exclusion(_BATCH, (_NO_TOKENS,), "a relay hides nothing while devices show their own tokens"),
    Exclusion(
        _CHECKS,
        (_case("mechanism = laplace", lambda s: s.mechanism == "laplace"),),
        "a check is one more message of a device, and there is none with the noise of sums",
    ),
    Exclusion(
        _case("interleaved", lambda s: s.interleaved),
        (_case("a mechanism other than piecewise", lambda s: s.mechanism != "piecewise"),),
        "interleaved lists tell of each interaction twice, once for each ranker",
    ),
)
#: All of a hub.
OF_HUBS: tuple[Exclusion, ...] = (
    *OF_TERMS,
    Exclusion(
        _case("deadline = 0", lambda s: not s.deadline),
        (_DUE, _SEEDS),
        "a round in which no device is due has to end by itself",
    ),
    Exclusion(_RELAY, (_CHECKS,), "a hub that collects for a coordinator does not learn, and has no best model"),
    Exclusion(_RELAY, (_BATCH,), "a hub that collects for a coordinator has no gateway for an oblivious relay"),
    Exclusion(_ATTESTATION, (_BATCH,), "a statement is longer than what an oblivious relay passes on"),
    Exclusion(
        _case("witnesses", lambda s: s.witnesses),
        (_case("log = no", lambda s: s.log == "no"),),
        "witnesses cosign the heads of a log",
    ),
)


def refuse_excluded(settings: Any, table: Iterable[Exclusion]) -> None:
    """Refuse settings that have what excludes one another.

    Args:
        settings: What the cases of the table are asked of.
        table: :data:`OF_TERMS` or :data:`OF_HUBS`.

    Raises:
        ConfigError: Two exclude one another.
    """
    for first, others, why in table:
        for other in others:
            if first.holds(settings) and other.holds(settings):
                raise ConfigError(f"{first.words} and {other.words} cannot be had together: {why}. Leave one out.")
