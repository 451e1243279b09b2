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
        file="fedrank/ranking/foltr_es.py",
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
        file="fedrank/ranking/foltr_pdgd/__init__.py",
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
        Row(paper=_paper, file="fedrank/ranking/central.py", crosses="everything: queries, results and clicks")
    )

PROTOCOLS.register(
    "bandit-fedavg",
    summary="Silos: a bandit finds whose models to average with the target's (MAB-FL).",
    citation="lundahl2021mabfl",
)(
    Row(
        paper="Lundahl: Personalization by Combination, master's thesis, Stockholm University, 2021",
        file="fedrank/silos/bandit_fedavg/__init__.py",
        crosses="models, and how good the target finds them",
    )
)

for _name, _summary, _citation, _paper, _file in (
    (
        "fedavg",
        "Silos: the average of everybody's models.",
        "mcmahan2017fedavg",
        "McMahan et al.: Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017",
        "personalised",
    ),
    (
        "fedavg-finetune",
        "Silos: everybody's average, trained on at each silo.",
        "mcmahan2017fedavg",
        "McMahan et al., AISTATS 2017, and local training afterwards",
        "personalised",
    ),
    (
        "fedper",
        "Silos: everybody's average, but for the last layer.",
        "arivazhagan2019fedper",
        "Arivazhagan et al.: Federated Learning with Personalization Layers, 2019",
        "personalised",
    ),
    (
        "fedbn",
        "Silos: everybody's average, but for the normalisations.",
        "li2021fedbn",
        "Li et al.: FedBN, ICLR 2021",
        "personalised",
    ),
    (
        "ditto",
        "Silos: a model of one's own, pulled to everybody's average.",
        "li2021ditto",
        "Li et al.: Ditto, ICML 2021",
        "personalised",
    ),
    (
        "apfl",
        "Silos: a mixture of a model of one's own and everybody's average.",
        "deng2020apfl",
        "Deng, Kamani, Mahdavi: Adaptive Personalized Federated Learning, 2020",
        "personalised",
    ),
    (
        "fedfomo",
        "Silos: each mixes the others' models by how much they help it.",
        "zhang2021fedfomo",
        "Zhang et al.: Personalized Federated Learning with First Order Model Optimization, ICLR 2021",
        "fedfomo",
    ),
    (
        "ifca",
        "Silos: several averages, each silo picks the one that suits it.",
        "ghosh2020ifca",
        "Ghosh et al.: An Efficient Framework for Clustered Federated Learning, NeurIPS 2020",
        "ifca",
    ),
    (
        "leave-one-out",
        "Silos: a general model without the silos that harm it.",
        "lundahl2021mabfl",
        "Lundahl 2021, Section 10: which silos to leave out",
        "leave_one_out",
    ),
):
    PROTOCOLS.register(_name, summary=_summary, citation=_citation)(
        Row(paper=_paper, file=f"fedrank/protocols/{_file}.py", crosses="models")
    )

for _name, _summary, _crosses in (
    ("local-only", "Silos: every silo by itself.", "nothing"),
    ("pooled", "Silos: one learner on the rows of all, a bound of what federating can reach.", "everything: all rows"),
):
    PROTOCOLS.register(_name, summary=_summary)(
        Row(paper="for comparison", file="fedrank/silos/personalised.py", crosses=_crosses)
    )

PROTOCOLS.register(
    "silo-sketch",
    summary="Silos train one ranker over each other's queries and documents, through private sketches (CS-F-LTR).",
    citation="shi2021csfltr",
)(
    Row(
        paper="Shi et al.: Cross-silo Federated Learning-to-rank, J. Software 2021; Wang et al., ICDE 2021",
        file="fedrank/texts/silo_sketch/__init__.py",
        crosses="noisy sketches of documents, a secure sum of statistics, changes of a ranker",
    )
)

PROTOCOLS.register(
    "vertical-slate",
    summary="Platforms that share users learn which slates please them for long; one has no feedback (FedSlate).",
    citation="deng2024fedslate",
)(
    Row(
        paper="Deng et al.: FedSlate, a Federated Deep RL Recommender System, arXiv 2409.14872, 2024",
        file="fedrank/slates/fedslate/__init__.py",
        crosses="values of candidates, and gradients of them",
    )
)

for _name, _summary, _crosses in (
    ("slateq", "Platforms that share users, each by itself (SlateQ).", "nothing"),
    (
        "slateq-central",
        "Platforms that see the user as all of them do, to compare with (SlateQ).",
        "everything: states, clicks and engagement",
    ),
):
    PROTOCOLS.register(_name, summary=_summary, citation="ie2019slateq")(
        Row(
            paper="Ie et al.: SlateQ, a Tractable Decomposition for RL with Recommendation Sets, IJCAI 2019",
            file="fedrank/slates/fedslate/__init__.py",
            crosses=_crosses,
        )
    )
