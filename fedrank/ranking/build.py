"""From a configuration to the things it names: data, users, ranker, protocol, parties, what happens to replies."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from fedrank.aggregation.differences import ES_DEFENCES
from fedrank.aggregation.robust import AGGREGATORS
from fedrank.core.errors import ConfigError
from fedrank.core.protocol import Party, Protocol
from fedrank.data.catalogue import CATALOGUE
from fedrank.engine import weight_attacks as weight_attacks
from fedrank.engine.attackers import ATTACKS, liars
from fedrank.engine.simulator import Conditions
from fedrank.experiments.config import RunConfig
from fedrank.experiments.protocols import PROTOCOLS
from fedrank.metrics.online import REWARDS, OnlineMetric, discretised
from fedrank.ranking.central import Central
from fedrank.ranking.clicks.cascade import MOST_GRADES, USERS, CascadeUser
from fedrank.ranking.clicks.poison import inverted_user
from fedrank.ranking.data import heterogeneous, partition
from fedrank.ranking.data.load import load
from fedrank.ranking.data.partition import Shares
from fedrank.ranking.data.queries import QuerySet
from fedrank.ranking.data.splits import Splits
from fedrank.ranking.foltr_es import FoltrES
from fedrank.ranking.foltr_pdgd import FoltrPDGD
from fedrank.ranking.rankers import linear as linear
from fedrank.ranking.rankers import mlp as mlp
from fedrank.ranking.rankers.base import RANKERS, Ranker

#: Results shown to a user.
DEPTH = 10

#: The attack that is made with clicks, not with replies.
POISON = "poisoned-clicks"


@dataclass(frozen=True)
class Experiment:
    """What a configuration names.

    Attributes:
        config: The configuration, resolved.
        splits: The data.
        protocol: The protocol with its ranker, user and metric.
        parties: All devices, with the training queries they ask about; or the one service of a central learner.
        metric: Reward whose exact expectation is evaluated.
        users: Click models for it.
        conditions: What happens to replies.
        kernels: Whether the compiled CPU kernels are used.
    """

    config: RunConfig
    splits: Splits
    protocol: Protocol
    ranker: Ranker
    parties: Party
    metric: OnlineMetric
    users: tuple[CascadeUser, ...]
    conditions: Conditions
    kernels: bool

    @property
    def n_parties(self) -> int:
        """How many parties answer."""
        return jax.tree.leaves(self.parties.own)[0].shape[0]

    @property
    def interactions(self) -> int:
        """Interactions of all parties in a round."""
        return int(np.sum(np.asarray(self.parties.own.amount)))

    @property
    def citations(self) -> tuple[str, ...]:
        """Keys of the publications that this experiment rests on."""
        c = self.config
        keys = [
            PROTOCOLS.entry(c.protocol).citation,
            RANKERS.entry(c.ranker).citation,
            *(USERS.entry(user.name).citation for user in self.users),
            REWARDS.entry(c.reward).citation,
            self.splits.citation,
            "kingma2015adam" if c.protocol == "foltr-es" else "",
            "wang2022noniid" if c.share in ("topic", "labels") or c.devices.users else "",
            _defences(c).entry(c.aggregate).citation if c.aggregate != "mean" else "",
            ATTACKS.entry(c.attack.kind).citation if c.attack.kind in ATTACKS else "",
            "bonawitz2017secagg" if c.protocol == "foltr-pdgd" and c.privacy.secure_sum else "",
        ]
        return tuple(dict.fromkeys(key for key in keys if key))


def use_kernels(config: RunConfig, ranker: Ranker) -> bool:
    """Whether the compiled CPU kernels are used: on a CPU, for rankers they know, unless the configuration differs.

    Raises:
        ConfigError: They are asked for and cannot be used.
    """
    able = ranker.kernel_shape() is not None
    if config.compute.kernels == "on" and not able:
        raise ConfigError(f"compute.kernels = 'on', but the kernels do not know the ranker {config.ranker!r}.")
    if config.compute.kernels == "auto":
        return able and jax.default_backend() == "cpu"
    return config.compute.kernels == "on"


def user_for(name: str, splits: Splits, data: str) -> CascadeUser:
    """The click model for the grades of this data: a known set's own, else as many as its labels need."""
    known = CATALOGUE.get(data.lower()).grades if data.lower() in CATALOGUE else 2
    return USERS.get(name)(max(known, splits.max_label + 1), DEPTH)


@functools.lru_cache(maxsize=8)
def load_splits(
    data: str, fold: int, normalise: str, seed: int, holdout: float, folder: str | None, cache: str
) -> Splits:
    """The data of a run; the runs of a sweep share it. ``cache`` is where sets are looked for without a folder."""
    del cache
    splits = load(data, fold=fold, normalise=normalise, seed=seed, folder=folder, max_label=MOST_GRADES - 1)
    return splits.hold_out(holdout, seed)


def build_ranking(config: RunConfig, folder: str | os.PathLike[str] | None = None) -> Experiment:
    """The same of a protocol that learns to rank; arguments and errors as :func:`fedrank.experiments.build.build`."""
    config = config.resolved()
    names = dict.fromkeys((config.clicks, *config.devices.users, *config.evaluation.users))
    for registry, name in ((RANKERS, config.ranker), (REWARDS, config.reward), *((USERS, name) for name in names)):
        registry.entry(name)  # a misspelt name is told before files are read
    if config.attack.kind not in ("none", POISON):
        ATTACKS.entry(config.attack.kind)
    _defences(config).entry(config.aggregate)
    # The folder that data is looked for in may differ from call to call of one process.
    where, cache = None if folder is None else os.fspath(folder), os.environ.get("FEDRANK_DATA", "")
    c = config
    splits = load_splits(c.data, c.fold, c.normalise, c.data_seed, c.holdout, where, cache)
    ranker = RANKERS.get(config.ranker).build(splits.train.n_features, config.hidden)
    metric = REWARDS.get(config.reward)(DEPTH)
    kernels = use_kernels(config, ranker)
    if config.as_published and config.protocol == "foltr-es" and not kernels:
        raise ConfigError("as_published needs the CPU kernels; set compute.kernels = 'on'.")
    train, shares = _shares(config, splits.train)
    own = [user_for(name, splits, config.data) for name in config.devices.users or (config.clicks,)]
    which = None
    if config.devices.users:
        which = heterogeneous.users_of_parties(config.clients, len(own), config.data_seed)
    lying = np.asarray(liars(config.clients, config.attack.share, config.data_seed)) if config.attack.share else None
    if config.attack.kind == POISON and lying is not None:
        own.append(inverted_user(user_for("perfect", splits, config.data)))
        which = np.where(lying, len(own) - 1, 0 if which is None else which)
    amounts = None
    if config.devices.amounts == "skewed":
        even = config.protocol == "foltr-es" and config.antithetic
        amounts = heterogeneous.amounts(config.clients, config.interactions, even=even, seed=config.data_seed)
    protocol = _PROTOCOLS[config.protocol](config, ranker, own, metric, kernels)
    parties = protocol.devices(train.blocks() if kernels else train.padded(), shares, which, amounts)
    trains = config.devices.users or (config.clicks,)
    users = tuple(user_for(name, splits, config.data) for name in dict.fromkeys((*trains, *config.evaluation.users)))
    conditions = _conditions(config, protocol, lying)
    return Experiment(config, splits, protocol, ranker, parties, metric, users, conditions, kernels)


def _defences(config: RunConfig) -> Any:
    return ES_DEFENCES if config.protocol == "foltr-es" else AGGREGATORS


def _shares(config: RunConfig, train: QuerySet) -> tuple[QuerySet, Shares]:
    """Who holds which queries; the queries are others where parties see some documents only."""
    n, seed = train.n_queries, config.data_seed
    if config.protocol not in ("foltr-es", "foltr-pdgd"):
        return train, partition.uniform(n, 1)
    if config.share == "fixed":
        return train, partition.fixed_share(n, config.clients, config.queries_per_client, seed)
    if config.share == "topic":
        return train, heterogeneous.by_topic(train, config.clients, config.topics, seed)
    if config.share == "labels":
        return heterogeneous.by_labels(train, config.clients, config.labels_per_client, seed)
    return train, partition.uniform(n, config.clients)


def _conditions(config: RunConfig, protocol: Protocol, lying: np.ndarray | None) -> Conditions:
    d, attack = config.devices, None
    if config.attack.kind not in ("none", POISON) and lying is not None:
        attack = ATTACKS.get(config.attack.kind)()
        if not attack.works_on(protocol):
            raise ConfigError(f"the attack {config.attack.kind!r} does not work on replies of {config.protocol!r}.")
    return Conditions(
        dropout=d.dropout,
        late=d.late,
        delay=d.delay if d.late else 0,
        attack=attack,
        liars=() if attack is None or lying is None else tuple(bool(x) for x in lying),
    )


def _absent(config: RunConfig) -> float:
    """The part of the devices that noise must do without: four standard deviations more than drop out on average."""
    p = config.devices.dropout
    return min(0.95, p + 4 * (p * (1 - p) / config.clients) ** 0.5)


def _byzantine(config: RunConfig) -> int:
    if config.byzantine is not None:
        return config.byzantine
    return max(1, int(np.sum(liars(config.clients, config.attack.share, config.data_seed))))


def _foltr_es(config: RunConfig, ranker: Ranker, users: list[CascadeUser], metric: OnlineMetric, kernels: bool):
    sent = metric if config.reward_values is None else discretised(metric, config.reward_values)
    noisy = config.privacy.mechanism != "randomised-response"
    return FoltrES(
        ranker=ranker,
        user=users[0],
        others=tuple(users[1:]),
        metric=sent,
        observed=metric,
        interactions=config.interactions,
        sigma=config.sigma,
        learning_rate=config.learning_rate,  # type: ignore[arg-type] - resolved
        p=1.0 if noisy else config.privacy.probability(sent.n),
        mechanism=config.privacy.mechanism,
        epsilon=config.privacy.epsilon if noisy else None,
        delta=config.privacy.delta,
        antithetic=config.antithetic,
        ties=config.ties,
        as_published=config.as_published,
        kernels=kernels,
        aggregate=config.aggregate,
        byzantine=_byzantine(config),
    )


def _foltr_pdgd(config: RunConfig, ranker: Ranker, users: list[CascadeUser], metric: OnlineMetric, kernels: bool):
    p, d = config.privacy, config.devices
    if config.as_published and p.epsilon is not None and (d.dropout or d.amounts != "equal"):
        raise ConfigError("the published noise needs all devices, and as much of each; set no dropout and no amounts.")
    noise = "none" if p.epsilon is None else "gamma" if config.as_published else "polya"
    settings = dict(
        ranker=ranker,
        user=users[0],
        others=tuple(users[1:]),
        metric=metric,
        interactions=config.interactions,
        learning_rate=config.learning_rate,  # type: ignore[arg-type] - resolved
        clip=p.clip,
        clip_norm=p.clip_norm,
        noise=noise,
        epsilon=p.epsilon,
        secure_sum=bool(p.secure_sum),
        as_published=config.as_published,
        parties=config.clients,
        absent=_absent(config) if noise == "polya" else 0.0,
        aggregate=config.aggregate,
        byzantine=_byzantine(config),
        kernels=kernels,
    )
    # Many devices or much noise need a coarser grid: the finest that keeps the sum within 32 bits.
    for bits in range(16, 4, -1):
        try:
            return FoltrPDGD(**settings, grid=2**bits)  # type: ignore[arg-type]
        except ConfigError as error:
            if not p.secure_sum or "fewer steps" not in str(error).lower() or bits == 5:
                raise


def _central(config: RunConfig, ranker: Ranker, users: list[CascadeUser], metric: OnlineMetric, kernels: bool):
    return Central(
        learner=config.protocol,
        ranker=ranker,
        user=users[0],
        others=tuple(users[1:]),
        metric=metric,
        interactions=config.clients * config.interactions,
        learning_rate=config.learning_rate,  # type: ignore[arg-type] - resolved
        radius=config.radius,
        candidates=config.candidates if config.protocol == "mgd" else 1,
        batch=config.batch,
        kernels=kernels,
    )


_PROTOCOLS = {
    "foltr-es": _foltr_es,
    "foltr-pdgd": _foltr_pdgd,
    "pdgd": _central,
    "dbgd": _central,
    "mgd": _central,
}
