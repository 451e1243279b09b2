"""Fields of configurations: a default and the sentence that a command line's help and the reference print."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def setting(default: Any, help: str) -> Any:
    """A field of a configuration with its help text."""
    return field(default=default, metadata={"help": help})
