"""Publications to cite for a run: those of the parts that it used."""

from __future__ import annotations

import importlib

from fedrank.core.citations import bibtex
from fedrank.report.run import Run

#: Where the names of a configuration are registered: setting, module, registry.
REGISTRIES = (
    ("clicks", "fedrank.ranking.clicks.cascade", "USERS"),
    ("reward", "fedrank.metrics.online", "REWARDS"),
)


def citation_keys(run: Run) -> list[str]:
    """Keys of ``core/references.bib``, each once: what the run wrote down, or else those of the names it configures."""
    written = run.environment.get("citations")
    if written is not None:
        return list(dict.fromkeys(str(k) for k in written if k))
    keys = []
    for setting, module, attribute in REGISTRIES:
        name = run.setting(f"{setting}.name", run.setting(setting))
        registry = getattr(importlib.import_module(module), attribute)
        if isinstance(name, str) and name in registry:
            keys.append(registry.entry(name).citation)
    return list(dict.fromkeys(k for k in keys if k))


def citations(run: Run) -> str:
    """The BibTeX of what this run used; empty if nothing of it is to be cited.

    Raises:
        UnknownNameError: The run names a reference that this version does not know.
    """
    return bibtex(citation_keys(run))
