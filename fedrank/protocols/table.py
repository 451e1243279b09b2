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

PROTOCOLS.register(
    "foltr-pdgd",
    summary="Devices learn from their users' clicks with PDGD; the server averages their weights.",
    citation="wang2021fpdgd",
)(
    Row(
        paper="Wang et al.: Effective and Privacy-Preserving Federated Online Learning to Rank, ICTIR 2021",
        file="fedrank/protocols/foltr_pdgd.py",
        crosses="weights: 4 bytes each; or integers of which the server sees the sum only",
    )
)

for _name, _summary, _citation, _paper in (
    (
        "pdgd",
        "Central: one service learns from all clicks with PDGD.",
        "oosterhuis2018pdgd",
        "Oosterhuis, de Rijke: Differentiable Unbiased Online Learning to Rank, CIKM 2018",
    ),
    (
        "dbgd",
        "Central: one service duels its ranker with a random neighbour.",
        "yue2009dbgd",
        "Yue, Joachims: Interactively Optimizing Information Retrieval Systems, ICML 2009",
    ),
    (
        "mgd",
        "Central: one service multileaves its ranker with several neighbours.",
        "schuth2016mgd",
        "Schuth, Oosterhuis, Whiteson, de Rijke: Multileave Gradient Descent, WSDM 2016",
    ),
):
    PROTOCOLS.register(_name, summary=_summary, citation=_citation)(
        Row(paper=_paper, file="fedrank/protocols/central.py", crosses="everything: queries, results and clicks")
    )

PROTOCOLS.register(
    "bandit-fedavg",
    summary="Silos: a bandit finds whose models to average with the target's (MAB-FL).",
    citation="lundahl2021mabfl",
)(
    Row(
        paper="Lundahl: Personalization by Combination, master's thesis, Stockholm University, 2021",
        file="fedrank/protocols/bandit_fedavg.py",
        crosses="models, and how good the target finds them",
    )
)
