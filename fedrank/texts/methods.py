"""The protocols of organisations with texts, by name, with their settings and what tables say about them."""

from __future__ import annotations

from typing import Any

from fedrank.core.protocol import Protocol
from fedrank.engine.methods import Method, PrivacyMode
from fedrank.texts.config import TextsConfig


def _silo_sketch(config: Any, parts: Any) -> Protocol:
    from fedrank.texts.build import silo_sketch

    return silo_sketch(config, parts)


SILO_SKETCH = Method(
    name="silo-sketch",
    task="texts",
    settings=TextsConfig,
    make=_silo_sketch,
    summary="Silos train one ranker over each other's queries and documents, through private sketches (CS-F-LTR).",
    paper="Shi et al.: Cross-silo Federated Learning-to-rank, J. Software 2021; Wang et al., ICDE 2021",
    crosses="noisy sketches of documents, a secure sum of statistics, changes of a ranker",
    file="fedrank/texts/silo_sketch/__init__.py",
    citation="shi2021csfltr",
    modes=(PrivacyMode("noise as printed", {"sketch": {"mode": "paper"}, "i_know": True}, "broken by a few answers"),),
)
