"""The publications behind the parts: one bibliography, ``references.bib`` in this folder."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from importlib import resources

from fedrank.core.errors import UnknownNameError


@functools.cache
def references() -> dict[str, str]:
    """All BibTeX entries, by key."""
    text = resources.files("fedrank.core").joinpath("references.bib").read_text(encoding="utf-8")
    starts = [m.start() for m in re.finditer(r"^@\w+\{", text, flags=re.MULTILINE)]
    entries = [text[a:b].strip() for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]
    return {re.match(r"@\w+\{([^,\s]+)", entry).group(1): entry for entry in entries}  # type: ignore[union-attr]


def bibtex(keys: Iterable[str]) -> str:
    """The BibTeX entries of these keys, each once, in the order given; empty keys are skipped.

    Raises:
        UnknownNameError: No entry has that key.
    """
    known = references()
    chosen: dict[str, str] = {}
    for key in keys:
        if key and key not in known:
            raise UnknownNameError("reference", key, known)
        if key:
            chosen[key] = known[key]
    return "\n\n".join(chosen.values())
