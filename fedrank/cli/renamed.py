"""Commands and flags that have new names: the old ones are understood until the next release."""

from __future__ import annotations

import sys
from itertools import pairwise

from fedrank.core.errors import ConfigError

#: The release that no longer knows the old names.
GONE_IN = "0.3"

#: Old name → new name. A flag stands after its command's new name.
NEW_NAMES = {
    "attack": "privacy attack",
    "audit": "privacy audit",
    "cite": "report --cite",
    "clicks": "data clicks",
    "clicks replay": "reproduce aol4foltr",
    "data clicks replay": "reproduce aol4foltr",
    "coordinate": "slates coordinate",
    "coordinate platforms": "slates coordinate",
    "leaderboard": "reproduce leaderboard",
    "log": "hub log",
    "new protocol": "new",
    "owner": "search owner",
    "owner card": "search owner serve",
    "owner statistics": "search statistics",
    "plan": "privacy plan",
    "protocols": "run --list",
    "replay": "hub replay",
    "search": "search ask",
    "serve": "hub serve",
    "serve broker": "search broker",
    "serve platform": "slates serve",
    "serve portal": "search portal",
    "serve relay": "hub relay",
    "serve search": "search owner serve",
    "silos glm": "silos analyse",
    "silos survival": "silos analyse",
    "simulate-fleet": "hub simulate",
    "simulate-visits": "slates simulate",
    "slates evaluate-logged": "slates evaluate",
    "witness": "hub witness",
    "data clicks fit --model": "data clicks fit --models",
    "export --silo": "export --party",
    "hub relay --seconds": "hub relay --batch-seconds",
    "hub serve --relay": "hub serve --collect",
    "hub simulate --out": "hub simulate --keep",
    "hub simulate --relay": "hub simulate --through",
    "hub simulate --share": "hub simulate --own-queries",
    "privacy attack links --mode": "privacy attack links --modes",
    "privacy attack sketch --mode": "privacy attack sketch --modes",
    "reproduce leaderboard --engine": "reproduce leaderboard --executor",
    "rank --silo": "rank --party",
    "search ask --fetch": "search ask --open",
    "silos compare --exclude": "silos compare --without",
    "silos compare --model": "silos compare --save-model",
    "sweep --engine": "sweep --executor",
}
#: Values of flags that are gone, and what takes their place.
GONE_VALUES = {
    ("--sketch.mode", "per-query"): "take publish-once, which finds more at the same ε",
    ("--sketch.mode", "paper"): "it is the protocol silo-sketch-2021 of fedrank-zoo",
}


def use_new_names(tokens: list[str]) -> list[str]:
    """A command line with old names replaced; a line on stderr says each new name.

    Args:
        tokens: The command line, without the program's name.

    Raises:
        ConfigError: A value of a flag is gone; says what takes its place.
    """
    for (flag, value), instead in GONE_VALUES.items():
        if f"{flag}={value}" in tokens or (flag, value) in pairwise(tokens):
            raise ConfigError(f"{flag} {value} is gone: {instead}.")
    tokens = list(tokens)
    for length in (2, 1):
        old = " ".join(tokens[:length])
        if old in NEW_NAMES and not _is_new(tokens):
            tokens[:length] = NEW_NAMES[old].split()
            _say(old, NEW_NAMES[old])
            break
    for old, new in NEW_NAMES.items():
        *command, flag = old.split()
        for place, token in enumerate(tokens if tokens[: len(command)] == command else ()):
            if flag.startswith("--") and token.partition("=")[0] == flag:
                tokens[place] = token.replace(flag, new.split()[-1], 1)
                _say(old, new)
    return tokens


def _is_new(tokens: list[str]) -> bool:
    """True if a name is meant as it is today: ``search`` was a command and is a group of commands."""
    if tokens[0] != "search":
        return False
    from fedrank.cli.search import app

    return len(tokens) == 1 or tokens[1] in app


def _say(old: str, new: str) -> None:
    print(f"fedrank: '{old}' is now '{new}'; version {GONE_IN} no longer knows the old name.", file=sys.stderr)
