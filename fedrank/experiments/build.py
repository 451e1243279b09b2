"""From a configuration to the things it names: data, users, ranker, protocol, parties."""

from __future__ import annotations

import os
from dataclasses import dataclass

import jax

from fedrank.clicks.cascade import MOST_GRADES, USERS, CascadeUser
from fedrank.core.errors import ConfigError
from fedrank.core.protocol import Party
from fedrank.data import partition
from fedrank.data.catalogue import CATALOGUE
from fedrank.data.sources import load
from fedrank.data.splits import Splits
from fedrank.experiments.config import RunConfig
from fedrank.metrics.online import REWARDS
from fedrank.protocols.foltr_es import FoltrES
from fedrank.protocols.table import PROTOCOLS
from fedrank.rankers import linear as linear
from fedrank.rankers import mlp as mlp
from fedrank.rankers.base import RANKERS, Ranker

#: Results shown to a user.
DEPTH = 10


@dataclass(frozen=True)
class Experiment:
    """What a configuration names.

    Attributes:
        config: The configuration.
        splits: The data.
        protocol: The protocol with its ranker, user and metric.
        parties: All devices, with the training queries they ask about.
        users: Click models for the exact expected metric.
        kernels: Whether the compiled CPU kernels are used.
    """

    config: RunConfig
    splits: Splits
    protocol: FoltrES
    parties: Party
    users: tuple[CascadeUser, ...]
    kernels: bool

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
            "kingma2015adam",
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


def build(config: RunConfig, folder: str | os.PathLike[str] | None = None) -> Experiment:
    """Load the data and set up everything.

    Args:
        config: The configuration.
        folder: Where data sets are looked for; by default ``FEDRANK_DATA`` or the platform's cache.

    Raises:
        FedrankError: The configuration does not fit the data, or the data is not there.
    """
    for registry, name in ((RANKERS, config.ranker), (USERS, config.clicks), (REWARDS, config.reward)):
        registry.entry(name)  # a misspelt name is told before files are read
    splits = load(
        config.data,
        fold=config.fold,
        normalise=config.normalise,
        seed=config.data_seed,
        folder=folder,
        max_label=MOST_GRADES - 1,
    )
    train = splits.train
    user = user_for(config.clicks, splits, config.data)
    users = tuple(
        user_for(name, splits, config.data) for name in dict.fromkeys((config.clicks, *config.evaluation.users))
    )
    ranker = RANKERS.get(config.ranker).build(train.n_features, config.hidden)
    metric = REWARDS.get(config.reward)(DEPTH)
    kernels = use_kernels(config, ranker)
    if config.as_published and not kernels:
        raise ConfigError("as_published needs the CPU kernels; set compute.kernels = 'on'.")
    if config.protocol != FoltrES.name:
        raise ConfigError(f"experiments cannot set up the protocol {config.protocol!r} yet; add it in this module.")
    protocol = FoltrES(
        ranker=ranker,
        user=user,
        metric=metric,
        interactions=config.interactions,
        sigma=config.sigma,
        learning_rate=config.learning_rate,
        p=config.privacy.probability(metric.n),
        antithetic=config.antithetic,
        ties=config.ties,
        as_published=config.as_published,
        kernels=kernels,
    )
    if config.share == "uniform":
        shares = partition.uniform(train.n_queries, config.clients)
    else:
        shares = partition.fixed_share(train.n_queries, config.clients, config.queries_per_client, config.data_seed)
    parties = protocol.devices(train.blocks() if kernels else train.padded(), shares)
    return Experiment(config, splits, protocol, parties, users, kernels)
