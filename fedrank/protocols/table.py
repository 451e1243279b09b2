"""The protocols that work, one row each, for tables and help texts."""

from __future__ import annotations

from dataclasses import dataclass

from fedrank.core.registry import Registry


@dataclass(frozen=True)
class Row:
    """What a table says about a protocol.

    Attributes:
        paper: Author, title, venue, year.
        file: Where to read it.
        crosses: What leaves a party.
    """

    paper: str
    file: str
    crosses: str


#: Protocols by name. Light on purpose: names and help texts need no arrays.
PROTOCOLS: Registry[Row] = Registry("protocol")

PROTOCOLS.register(
    "foltr-es",
    summary="Devices try random perturbations of the ranker and report how well they went.",
    citation="kharitonov2019foltr",
)(
    Row(
        paper="Kharitonov: Federated Online Learning to Rank with Evolution Strategies, WSDM 2019",
        file="fedrank/protocols/foltr_es.py",
        crosses="a seed and two privatised sums: 9 bytes",
    )
)
