"""The protocols of silos by name: their settings, and how each is made from them.

``make`` gets the configuration and the :class:`fedrank.silos.build.Parts` that the task built from the data.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fedrank.engine.methods import Method
from fedrank.silos.config import (
    BanditFedAvgConfig,
    FedAvgConfig,
    FedPerConfig,
    FineTunedConfig,
    LeaveOneOutConfig,
    LocalOnlyConfig,
    PooledConfig,
)

#: Number of clusters where none is given, if there are more silos than that.
_MOST_CLUSTERS = 8
#: E-value, times the number of silos, at which one is left out for good: a wrong one in 20 runs at most.
_DROPPED = 20.0


def _bandit_fedavg(config: BanditFedAvgConfig, parts: Any) -> Any:
    from fedrank.silos.bandit_fedavg import BanditFedAvg
    from fedrank.silos.bandits.rules import make_rule

    b = config.bandit
    rule = make_rule(
        b.rule,
        epsilon=b.epsilon,
        c=b.c,
        alpha=b.alpha,
        gamma=b.gamma,
        threshold=b.threshold,
        initial=b.initial,
        every=b.every,
        chance=b.chance,
        fixed=b.fixed,
    )
    made = BanditFedAvg(
        **parts.common,
        crossing=config.network.crossing,
        rule=rule,
        target=parts.target,
        arms=b.arms,
        alone=b.alone,
        clusters=b.clusters or min(_MOST_CLUSTERS, parts.silos - 1),
        delayed=b.delayed,
        against=b.against,
        target_weight=b.target_weight,
        pretrain=b.pretrain,
        probe=b.probe,
        patience=b.patience,
    )
    if (privacy := config.record_privacy) is None:
        return made
    from fedrank.silos.records.private_sgd import NoisyJudgements

    assert privacy.epsilon is not None
    noise = NoisyJudgements(privacy.epsilon, privacy.delta, made.values_judged(parts.rounds))
    return replace(made, judgements=noise)


def _fedavg(config: FedAvgConfig, parts: Any) -> Any:
    from fedrank.silos.averaging import FedAvg

    return FedAvg(**parts.common, crossing=config.network.crossing)


def _fedavg_finetune(config: FineTunedConfig, parts: Any) -> Any:
    from fedrank.silos.averaging import FineTuned

    return FineTuned(**parts.common, crossing=config.network.crossing)


def _fedper(config: FedPerConfig, parts: Any) -> Any:
    from fedrank.silos.averaging import FedPer

    return FedPer(**parts.common)


def _leave_one_out(config: LeaveOneOutConfig, parts: Any) -> Any:
    from fedrank.silos.leave_one_out import LeaveOneOut

    evidence = config.personal.evidence or _DROPPED * parts.silos
    return LeaveOneOut(**parts.common, crossing=config.network.crossing, evidence=evidence)


def _local_only(config: LocalOnlyConfig, parts: Any) -> Any:
    from fedrank.silos.averaging import LocalOnly

    return LocalOnly(**parts.common, crossing=config.network.crossing)


def _make_pooled(config: PooledConfig, parts: Any) -> Any:
    from fedrank.silos.averaging import Pooled

    return Pooled(**parts.common, crossing=config.network.crossing)


BANDIT_FEDAVG = Method(
    name="bandit-fedavg",
    task="silos",
    settings=BanditFedAvgConfig,
    make=_bandit_fedavg,
    summary="Silos: a bandit finds whose models to average with the target's (MAB-FL).",
    paper="Lundahl: Personalization by Combination, master's thesis, Stockholm University, 2021",
    crosses="models, and how good the target finds them",
    file="fedrank/silos/bandit_fedavg.py",
    citation="lundahl2021mabfl",
)
FEDAVG = Method(
    name="fedavg",
    task="silos",
    settings=FedAvgConfig,
    make=_fedavg,
    summary="Silos: the average of all silos' models.",
    paper="McMahan et al.: Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017",
    crosses="models",
    file="fedrank/silos/averaging.py",
    citation="mcmahan2017fedavg",
)
FEDAVG_FINETUNE = Method(
    name="fedavg-finetune",
    task="silos",
    settings=FineTunedConfig,
    make=_fedavg_finetune,
    summary="Silos: the average of all silos, trained on at each silo.",
    paper="McMahan et al., AISTATS 2017, and local training afterwards",
    crosses="models",
    file="fedrank/silos/averaging.py",
    citation="mcmahan2017fedavg",
)
FEDPER = Method(
    name="fedper",
    task="silos",
    settings=FedPerConfig,
    make=_fedper,
    summary="Silos: the average of all silos, but for the last layer.",
    paper="Arivazhagan et al.: Federated Learning with Personalization Layers, 2019",
    crosses="models",
    file="fedrank/silos/averaging.py",
    citation="arivazhagan2019fedper",
)
LEAVE_ONE_OUT = Method(
    name="leave-one-out",
    task="silos",
    settings=LeaveOneOutConfig,
    make=_leave_one_out,
    summary="Silos: a general model without the silos that harm it.",
    paper="Lundahl 2021, Section 10: which silos to leave out",
    crosses="models",
    file="fedrank/silos/leave_one_out.py",
    citation="lundahl2021mabfl",
)
LOCAL_ONLY = Method(
    name="local-only",
    task="silos",
    settings=LocalOnlyConfig,
    make=_local_only,
    summary="Silos: every silo by itself.",
    crosses="nothing",
    file="fedrank/silos/averaging.py",
)
POOLED = Method(
    name="pooled",
    task="silos",
    settings=PooledConfig,
    make=_make_pooled,
    summary="Silos: one learner on the rows of all, a bound of what federating can reach.",
    crosses="everything: all rows",
    file="fedrank/silos/averaging.py",
)
