"""The protocols that learn to rank, by name: settings, a row of the table of protocols, and how each is made."""

from __future__ import annotations

from typing import Any

from fedrank.core.protocol import Protocol
from fedrank.engine.methods import Method, PrivacyMode
from fedrank.ranking.config import (
    AsyncPDGDConfig,
    COLTRConfig,
    DBGDConfig,
    FedOptPDGDConfig,
    FedPerPDGDConfig,
    FedProxPDGDConfig,
    FoltrCMAConfig,
    FoltrCOLTRConfig,
    FoltrESConfig,
    FoltrNESConfig,
    FoltrPDGDConfig,
    MDPRankConfig,
    MGDConfig,
    PDGDConfig,
    RankGuardConfig,
)


def _foltr_es(config: Any, parts: Any) -> Protocol:
    from fedrank.ranking.build import foltr_es

    return foltr_es(config, parts)


def _adaptive_es(config: Any, parts: Any) -> Protocol:
    from fedrank.ranking.build import adaptive_es

    return adaptive_es(config, parts)


def _foltr_pdgd(config: Any, parts: Any) -> Protocol:
    from fedrank.ranking.build import foltr_pdgd

    return foltr_pdgd(config, parts)


def _pdgd_variant(config: Any, parts: Any) -> Protocol:
    from fedrank.ranking.build import pdgd_variant

    return pdgd_variant(config, parts)


def _central(config: Any, parts: Any) -> Protocol:
    from fedrank.ranking.build import central

    return central(config, parts)


#: 200,000 devices, of which each takes part in one round.
_LIFE = {"population": 200_000, "rounds": 100, "clients": 2000, "interactions": 16, "learning_rate": 0.004}

#: 20,000 devices, which are enough in a secure sum.
_FEWER = {"population": 20_000, "rounds": 50, "clients": 400, "interactions": 16, "learning_rate": 0.3}

FOLTR_ES = Method(
    name="foltr-es",
    task="ranking",
    settings=FoltrESConfig,
    make=_foltr_es,
    summary="Devices try random perturbations of the ranker and report how well they went.",
    paper="Kharitonov: Federated Online Learning to Rank with Evolution Strategies, WSDM 2019",
    crosses="a seed and two privatised sums: 9 bytes",
    file="fedrank/ranking/foltr_es/__init__.py",
    citation="kharitonov2019foltr",
    modes=(
        PrivacyMode(
            "a user's life",
            {**_LIFE, "privacy": {"epsilon_user": 1.0}},
            "expected MaxRR 0.6 to 1.0 % below the same without privacy (MQ2008)",
        ),
        PrivacyMode(
            "a user's life, anonymous channel",
            {**_LIFE, "population": 100_000, "clients": 1000, "privacy": {"epsilon_user": 1.0, "channel": "anonymous"}},
            "with half the devices 0.3 % below the same without privacy (MQ2008)",
        ),
        PrivacyMode("noise on the sums of rewards", {"privacy": {"mechanism": "laplace", "epsilon_interaction": 1.0}}),
    ),
)

#: What crosses in FOLtR-ES whose server adapts the perturbations.
_SHAPED = "a seed and two privatised sums: 9 bytes; down the model and the shape of its perturbations"

FOLTR_NES = Method(
    name="foltr-nes",
    task="ranking",
    settings=FoltrNESConfig,
    make=_adaptive_es,
    summary="FOLtR-ES whose server follows the natural gradient of ranks and adapts a spread a weight.",
    paper="Wierstra et al.: Natural Evolution Strategies, JMLR 2014",
    crosses=_SHAPED,
    file="fedrank/ranking/foltr_es/nes.py",
    citation="wierstra2014nes",
)

FOLTR_CMA = Method(
    name="foltr-cma",
    task="ranking",
    settings=FoltrCMAConfig,
    make=_adaptive_es,
    summary="FOLtR-ES whose server is CMA-ES: step size and covariance follow the ranks.",
    paper="Hansen: The CMA Evolution Strategy: A Tutorial, 2016",
    crosses=_SHAPED,
    file="fedrank/ranking/foltr_es/cma.py",
    citation="hansen2016cma",
)

FOLTR_PDGD = Method(
    name="foltr-pdgd",
    task="ranking",
    settings=FoltrPDGDConfig,
    make=_foltr_pdgd,
    summary="Devices learn from their users' clicks with PDGD; the server averages their weights.",
    paper="Wang et al.: Effective and Privacy-Preserving Federated Online Learning to Rank, ICTIR 2021",
    crosses="weights: 4 bytes each; or integers of which the server sees the sum only",
    file="fedrank/ranking/foltr_pdgd/__init__.py",
    citation="wang2021fpdgd",
    modes=(
        PrivacyMode(
            "a user's life, secure sum",
            {**_FEWER, "privacy": {"epsilon_user": 1.0}},
            "expected MaxRR at most 0.4 % below the same without privacy (MQ2008)",
        ),
        PrivacyMode(
            "a user's life, trusted server",
            {**_FEWER, "privacy": {"epsilon_user": 1.0, "noise": "server"}},
            "as good as with a secure sum (MQ2008)",
        ),
        PrivacyMode("noise in a secure sum", {"privacy": {"epsilon": 1.0}}),
    ),
)

#: What crosses where devices send their weights as they are.
_WEIGHTS = "weights: 4 bytes each"

FEDOPT_PDGD = Method(
    name="fedopt-pdgd",
    task="ranking",
    settings=FedOptPDGDConfig,
    make=_pdgd_variant,
    summary="FPDGD whose server takes an adaptive step (Adam, Yogi, Adagrad) towards the devices' mean.",
    paper="Reddi et al.: Adaptive Federated Optimization, ICLR 2021",
    crosses=_WEIGHTS,
    file="fedrank/ranking/foltr_pdgd/fedopt.py",
    citation="reddi2021fedopt",
)

FEDPROX_PDGD = Method(
    name="fedprox-pdgd",
    task="ranking",
    settings=FedProxPDGDConfig,
    make=_pdgd_variant,
    summary="FPDGD whose local steps are pulled back to the server's model.",
    paper="Li et al.: Federated Optimization in Heterogeneous Networks, MLSys 2020",
    crosses=_WEIGHTS,
    file="fedrank/ranking/foltr_pdgd/fedprox.py",
    citation="li2020fedprox",
)

ASYNC_PDGD = Method(
    name="async-pdgd",
    task="ranking",
    settings=AsyncPDGDConfig,
    make=_pdgd_variant,
    summary="FPDGD whose server merges each device's weights as they arrive, by how stale they are.",
    paper="Xie, Koyejo, Gupta: Asynchronous Federated Optimization, 2019",
    crosses=_WEIGHTS,
    file="fedrank/ranking/foltr_pdgd/asynchronous.py",
    citation="xie2019fedasync",
)

FEDPER_PDGD = Method(
    name="fedper-pdgd",
    task="ranking",
    settings=FedPerPDGDConfig,
    make=_pdgd_variant,
    summary="FPDGD whose devices keep a part of the ranker: the output layer, or a part of each weight.",
    paper="Arivazhagan et al.: Federated Learning with Personalization Layers, 2019",
    crosses=_WEIGHTS,
    file="fedrank/ranking/foltr_pdgd/fedper.py",
    citation="arivazhagan2019fedper",
)

RANKGUARD = Method(
    name="rankguard",
    task="ranking",
    settings=RankGuardConfig,
    make=_pdgd_variant,
    summary="Devices exchange rankers and merge those that explain their own clicks better.",
    paper="Gregoriadis et al.: Efficient and Robust Online Learning to Rank in Decentralized Systems, 2026; its idea",
    crosses="weights: 4 bytes each; down the weights of some other devices",
    file="fedrank/ranking/foltr_pdgd/rankguard.py",
    citation="gregoriadis2026rankguard",
)

FOLTR_COLTR = Method(
    name="foltr-coltr",
    task="ranking",
    settings=FoltrCOLTRConfig,
    make=_pdgd_variant,
    summary="Devices compare candidates on the logs of their own clicks (COLTR); the server averages their weights.",
    paper="Zhuang, Zuccon: Counterfactual Online Learning to Rank, ECIR 2020, on devices",
    crosses=_WEIGHTS,
    file="fedrank/ranking/foltr_coltr.py",
    citation="zhuang2020coltr",
)

#: What crosses in the central learners, which are not federated.
_IN_THE_CLEAR = "everything: queries, results and clicks"

PDGD = Method(
    name="pdgd",
    task="ranking",
    settings=PDGDConfig,
    make=_central,
    summary="Central: one service learns from all clicks with PDGD.",
    paper="Oosterhuis, de Rijke: Differentiable Unbiased Online Learning to Rank, CIKM 2018",
    crosses=_IN_THE_CLEAR,
    file="fedrank/ranking/central.py",
    citation="oosterhuis2018pdgd",
)

MDPRANK = Method(
    name="mdprank",
    task="ranking",
    settings=MDPRankConfig,
    make=_central,
    summary="Central: one service learns from all clicks by REINFORCE on ranking as a sequence of choices.",
    paper="Wei et al.: Reinforcement Learning to Rank with Markov Decision Process, SIGIR 2017",
    crosses=_IN_THE_CLEAR,
    file="fedrank/ranking/learners/policy_gradient.py",
    citation="wei2017mdprank",
)

COLTR = Method(
    name="coltr",
    task="ranking",
    settings=COLTRConfig,
    make=_central,
    summary="Central: one service compares hundreds of candidates on the log of each interaction.",
    paper="Zhuang, Zuccon: Counterfactual Online Learning to Rank, ECIR 2020",
    crosses=_IN_THE_CLEAR,
    file="fedrank/ranking/learners/counterfactual.py",
    citation="zhuang2020coltr",
)

DBGD = Method(
    name="dbgd",
    task="ranking",
    settings=DBGDConfig,
    make=_central,
    summary="Central: one service duels its ranker with a random neighbour.",
    paper="Yue, Joachims: Interactively Optimizing Information Retrieval Systems, ICML 2009",
    crosses=_IN_THE_CLEAR,
    file="fedrank/ranking/central.py",
    citation="yue2009dbgd",
)

MGD = Method(
    name="mgd",
    task="ranking",
    settings=MGDConfig,
    make=_central,
    summary="Central: one service multileaves its ranker with several neighbours.",
    paper="Schuth, Oosterhuis, Whiteson, de Rijke: Multileave Gradient Descent, WSDM 2016",
    crosses=_IN_THE_CLEAR,
    file="fedrank/ranking/central.py",
    citation="schuth2016mgd",
)
