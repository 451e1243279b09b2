"""Nested dictionaries, as JSON and TOML have them: settings, results, what parts say about themselves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

#: A value of JSON or TOML: text, a number, true or false, null, a list or a dictionary of such. Who reads one knows
#: what it holds; static types cannot.
Json: TypeAlias = Any


def flat(values: Mapping[str, Json], prefix: str = "") -> Iterator[tuple[str, Json]]:
    """The values of nested dictionaries with dotted keys, in order.

    >>> dict(flat({"rounds": 3, "privacy": {"p": 0.9}}))
    {'rounds': 3, 'privacy.p': 0.9}
    """
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def finite(value: Json) -> Json:
    """The value with null in place of not-a-number and infinities, which JSON does not have.

    >>> finite({"ndcg": [0.5, float("nan")]})
    {'ndcg': [0.5, None]}
    """
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def nest(values: Mapping[str, Json]) -> dict[str, Json]:
    """Nested dictionaries from values with dotted keys: the inverse of :func:`flat`.

    >>> nest({"rounds": 3, "privacy.p": 0.9})
    {'rounds': 3, 'privacy': {'p': 0.9}}
    """
    out: dict[str, Json] = {}
    for name, value in values.items():
        *path, last = name.split(".")
        table = out
        for part in path:
            table = table.setdefault(part, {})
        table[last] = value
    return out
