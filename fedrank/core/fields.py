"""Fields of configurations: a default, the sentence that help texts print, a range, and what the field depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    needs: tuple[str, Sequence[Any]] | None = None,
    replaces: Sequence[str] = (),
    name: str | None = None,
) -> Any:
    """A field of a configuration.

    Args:
        default: Its value where nothing is said.
        help: What it means, in a sentence; the command line's help, the reference and ``config.toml`` print it.
        low: Smallest allowed value, of numbers; None is always allowed where the default is None.
        high: Largest allowed value, of numbers.
        needs: Dotted name of another setting and the values of it with which this one means something; no values
            for any value but that setting's default.
        replaces: Dotted names of settings that say the same in another way; giving this one takes them back.
        name: How tables of a report call the setting; by default by its dotted name.
    """
    about = {"help": help, "low": low, "high": high, "needs": needs, "replaces": tuple(replaces), "name": name}
    return field(default=default, metadata=about)
