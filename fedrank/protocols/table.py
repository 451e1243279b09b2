"""The protocols that work, one row each, for tables and help texts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One protocol.

    Attributes:
        name: As in ``fedrank run NAME``.
        paper: Author, title, venue, year.
        file: Where to read it.
        crosses: What leaves a party.
        citation: Key in ``core/references.bib``.
    """

    name: str
    paper: str
    file: str
    crosses: str
    citation: str


PROTOCOLS = (
    Row(
        "foltr-es",
        "Kharitonov: Federated Online Learning to Rank with Evolution Strategies, WSDM 2019",
        "fedrank/protocols/foltr_es.py",
        "a seed and two privatised sums: 9 bytes (at most 12)",
        "kharitonov2019foltr",
    ),
)
