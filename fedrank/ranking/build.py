"""From the settings of a run to the things that they name: data, users, ranker, protocol, devices, what goes wrong."""

from __future__ import annotations

import functools
import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedrank.aggregation.differences import ES_DEFENCES
from fedrank.aggregation.robust import AGGREGATORS
from fedrank.core.backends import on_cpu
from fedrank.core.compiled import COMPILES
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp
from fedrank.core.optional import require
from fedrank.core.protocol import Party, Protocol
from fedrank.core.registry import Registry
from fedrank.data import load
from fedrank.data.folders import files_state
from fedrank.data.places import OWN
from fedrank.engine import weight_attacks as weight_attacks
from fedrank.engine.attackers import ATTACKS, draw_attackers
from fedrank.engine.methods import method, method_names
from fedrank.engine.simulator import Conditions
from fedrank.metrics.online import REWARDS, OnlineMetric, discretised
from fedrank.privacy.quantise import GridTooFineError
from fedrank.ranking.attacks import inverted_user
from fedrank.ranking.central import Central
from fedrank.ranking.clicks.cascade import MAX_GRADES, USERS, CascadeUser
from fedrank.ranking.clicks.fit import is_file, user_of_file
from fedrank.ranking.config import (
    AdaptiveESConfig,
    AsyncPDGDConfig,
    Attack,
    CentralConfig,
    COLTRConfig,
    DBGDConfig,
    DefendedConfig,
    DeviceConfig,
    Devices,
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
    RankingConfig,
)
from fedrank.ranking.data import heterogeneous, partition
from fedrank.ranking.data.partition import Shares
from fedrank.ranking.data.queries import QuerySet
from fedrank.ranking.data.reader import QueryReader
from fedrank.ranking.data.splits import Splits
from fedrank.ranking.foltr_coltr import FoltrCOLTR
from fedrank.ranking.foltr_es import FoltrES
from fedrank.ranking.foltr_es.adaptive import AdaptiveES
from fedrank.ranking.foltr_es.cma import FoltrCMA
from fedrank.ranking.foltr_es.nes import FoltrNES
from fedrank.ranking.foltr_pdgd import FoltrPDGD
from fedrank.ranking.foltr_pdgd.asynchronous import AsyncPDGD
from fedrank.ranking.foltr_pdgd.fedopt import FedOptPDGD
from fedrank.ranking.foltr_pdgd.fedper import FedPerPDGD
from fedrank.ranking.foltr_pdgd.fedprox import FedProxPDGD
from fedrank.ranking.foltr_pdgd.rankguard import RankGuard
from fedrank.ranking.learners.counterfactual import Comparison
from fedrank.ranking.protocol import RankingProtocol
from fedrank.ranking.rankers.base import RANKERS, Ranker
from fedrank.ranking.rankers.given import as_ranker
from fedrank.ranking.sessions.devices import devices

#: Results shown to a user where nothing else is said.
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
        conditions: What happens to replies on their way.
        kernels: Whether the compiled CPU kernels are used.
    """

    config: RankingConfig
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
        """Number of simulated devices."""
        return len(self.parties.own.amount)

    @property
    def interactions(self) -> int:
        """Interactions of all parties in a round."""
        return int(np.sum(np.asarray(self.parties.own.amount)))

    @property
    def citations(self) -> tuple[str, ...]:
        """Keys of the publications that this experiment rests on."""
        c = self.config
        population, attack = _population(c)
        rule = ()
        if isinstance(c, DefendedConfig) and c.aggregate != "mean":
            rule = _citations(rules_of(type(c)), c.aggregate)
        keys = [
            method(c.protocol).citation if c.protocol in method_names() else "",
            *_citations(RANKERS, c.ranker),
            *(key for user in self.users for key in _citations(USERS, user.name)),
            *_citations(REWARDS, c.reward),
            self.splits.citation,
            "kingma2015adam" if isinstance(c, FoltrESConfig) else "",
            "wang2022noniid" if (isinstance(c, DeviceConfig) and c.share in ("topic", "labels")) else "",
            "wang2022noniid" if population.users else "",
            *rule,
            *_citations(ATTACKS, attack.kind),
            "bonawitz2017secagg" if isinstance(c, FoltrPDGDConfig) and c.privacy.secure_sum else "",
        ]
        return tuple(dict.fromkeys(key for key in keys if key))


def _citations(registry: Registry, name: str) -> tuple[str, ...]:
    """What to cite for a part that is known by its name; nothing for one that is not."""
    return (registry.entry(name).citation,) if name in registry else ()


@dataclass(frozen=True)
class Parts:
    """What a protocol is made from besides its settings.

    Attributes:
        ranker: The ranker, a function from features to scores.
        users: Click models of all users.
        metric: The reward as users experience it, with all of its values.
        kernels: Use the compiled CPU kernels.
        aggregate: How the server combines the replies, where it may do so in several ways: a name, or a rule of the
            caller's own.
    """

    ranker: Ranker
    users: tuple[CascadeUser, ...]
    metric: OnlineMetric
    kernels: bool
    aggregate: Any = "mean"


def use_kernels(config: RankingConfig, ranker: Ranker) -> bool:
    """Whether the compiled CPU kernels are used: on a CPU, for rankers they know, unless the configuration differs.

    Raises:
        ConfigError: They are asked for and cannot be used.
        MissingExtraError: They are asked for, and what compiles them is not installed.
    """
    able = ranker.kernel_shape() is not None
    if config.compute.kernels == "on" and not able:
        raise ConfigError(f"compute.kernels = 'on', but the kernels do not know the ranker {config.ranker!r}.")
    if config.compute.kernels == "on":
        require("fast", "compute.kernels = 'on'", "numba")
    if config.compute.kernels == "auto":
        return able and COMPILES and on_cpu()
    return config.compute.kernels == "on"


def user_for(name: str, splits: Splits, depth: int = DEPTH) -> CascadeUser:
    """The click model for the grades of this data: as many as the set is known to have, or as its labels need."""
    grades = max(splits.grades, splits.max_label + 1)
    return user_of_file(name, grades, depth) if is_file(name) else USERS.get(name)(grades, depth)


#: Settings that may be objects of the caller's own.
_OBJECTS = ("ranker", "clicks", "aggregate")


@functools.lru_cache(maxsize=8)
def _load_named(data: str, reader: QueryReader, folder: str | None, cache: str, files: Hashable) -> Splits:
    """The data of a run; the runs of a sweep share it, for as long as its files stay the same.

    Args:
        data: Name or path.
        reader: How it is read.
        folder: Where sets are looked for.
        cache: Where sets are looked for without a folder.
        files: :func:`fedrank.data.folders.files_state` of a path.
    """
    del cache, files
    return load(data, reader, folder=folder)


def build(
    config: RankingConfig,
    folder: str | os.PathLike[str] | None = None,
    *,
    protocol: Protocol | None = None,
    data: Any = None,
    own: Mapping[str, Any] | None = None,
) -> Experiment:
    """Load the data and set everything up.

    Args:
        config: The settings.
        folder: Where data sets are looked for; by default ``FEDRANK_DATA`` or the platform's cache.
        protocol: A protocol of the caller's own instead of the one that ``config.protocol`` names. If it is no
            :class:`~fedrank.ranking.protocol.RankingProtocol`, its parties hold padded queries as
            :func:`fedrank.ranking.sessions.devices.devices` makes them, and its ``ranker``, if it has one, is the
            ranker that is evaluated.
        data: Queries of the caller's own instead of what ``config.data`` names, in any form that
            :func:`fedrank.data.load` takes.
        own: Objects of the caller's own where the settings say ``own``: as ``ranker`` what :func:`as_ranker` takes, as
            ``clicks`` a click model, as ``aggregate`` a :data:`~fedrank.aggregation.robust.Rule`, or of FOLtR-ES a
            :data:`~fedrank.aggregation.differences.Defence`.

    Raises:
        FedrankError: The configuration does not fit the protocol or the data, or the data is not there.
    """
    config = config.resolved()
    own = _objects(config, own or {})
    population, attack = _population(config)
    names = dict.fromkeys((config.clicks, *population.users, *config.evaluation.users))
    for registry, name in ((RANKERS, config.ranker), (REWARDS, config.reward), *((USERS, name) for name in names)):
        if (name == OWN and own) or (registry is USERS and is_file(name)):
            continue
        registry.entry(name)  # a misspelt name is told before files are read
    if attack.kind not in ("none", POISON):
        ATTACKS.entry(attack.kind)
    if isinstance(config, DefendedConfig) and config.aggregate != OWN:
        rules_of(type(config)).entry(config.aggregate)
    splits = splits_of(config, folder, data)
    ranker = getattr(protocol, "ranker", None)
    if ranker is None and "ranker" in own:
        ranker = as_ranker(own["ranker"], splits.train.n_features)
    elif ranker is None:
        ranker = RANKERS.get(config.ranker).build(splits.train.n_features, config.hidden)
    metric = REWARDS.get(config.reward)(config.depth)
    kernels = use_kernels(config, ranker) if protocol is None else getattr(protocol, "kernels", False)
    train, shares = _shares(config, splits.train)

    def user(name: str) -> CascadeUser:
        return own["clicks"] if name == OWN else user_for(name, splits, config.depth)

    models = [user(name) for name in population.users or (config.clicks,)]
    which = None
    if population.users:
        which = heterogeneous.users_of_parties(config.clients, len(models), config.data_seed)
    attacking = np.asarray(draw_attackers(config.clients, attack.share, config.data_seed)) if attack.share else None
    if attack.kind == POISON and attacking is not None:
        models.append(inverted_user(user("perfect")))
        which = np.where(attacking, len(models) - 1, 0 if which is None else which)
    users = tuple(models)
    if "aggregate" in own and isinstance(config, DefendedConfig):
        _check_rule(config, own["aggregate"], ranker.size)
    if protocol is None:
        rule = own.get("aggregate", getattr(config, "aggregate", "mean"))
        protocol = method(config.protocol).make(config, Parts(ranker, users, metric, kernels, rule))
        # Protocols of somebody else, and learners without a kernel, take padded queries.
        kernels = kernels and isinstance(protocol, RankingProtocol) and protocol.kernels
    amounts = None
    if population.amounts == "skewed":
        even = isinstance(protocol, FoltrES) and protocol.lists == 2
        amounts = heterogeneous.amounts(config.clients, config.interactions, even=even, seed=config.data_seed)
    queries = train.blocks() if kernels else train.padded()
    if isinstance(protocol, RankingProtocol):
        parties = protocol.devices(queries, shares, which, amounts)
    else:
        _check_model(protocol, ranker)
        parties = devices(ranker, users, queries, shares, config.interactions, which, amounts)
    trains = population.users or (config.clicks,)
    clicking = tuple(user(name) for name in dict.fromkeys((*trains, *config.evaluation.users)))
    conditions = _conditions(population, attack, protocol, attacking)
    return Experiment(config, splits, protocol, ranker, parties, metric, clicking, conditions, kernels)


def _objects(config: RankingConfig, own: Mapping[str, Any]) -> Mapping[str, Any]:
    """The caller's objects, one for each setting that says ``own`` and for no other.

    Raises:
        ConfigError: One is missing, or cannot be used here.
    """
    for name in own:
        if name not in _OBJECTS:
            raise ConfigError(f"{name}: no object can be given here; those of {', '.join(_OBJECTS)} can.")
    for name in _OBJECTS:
        if getattr(config, name, None) == OWN and name not in own:
            raise ConfigError(
                f"{name}: this run was made with an object of its caller's own, which no file holds. Hand it over "
                f"again: in Python, resume(folder, own={{{name!r}: …}})."
            )
    if "clicks" in own and not isinstance(own["clicks"], CascadeUser):
        raise ConfigError(f"clicks must be a name or a CascadeUser, got {type(own['clicks']).__name__}.")
    if "aggregate" in own and not callable(own["aggregate"]):
        raise ConfigError(f"aggregate must be a name or a function, got {type(own['aggregate']).__name__}.")
    return own


def _check_rule(config: DefendedConfig, rule: Any, size: int) -> None:
    """Refuse a rule of the caller's own that cannot be computed for the round's arrays, or gives another shape."""
    parties = config.clients
    one_each = [jax.ShapeDtypeStruct((parties,), kind) for kind in (jnp.float32, bool)]
    if isinstance(config, FoltrESConfig):
        said, wanted = f"(differences [{parties}], arrived [{parties}]) -> coefficients [{parties}]", (parties,)
        found = functools.partial(jax.eval_shape, rule, *one_each)
    else:
        said = f"(vectors [{parties}, {size}], weights [{parties}], arrived [{parties}], byzantine) -> vector [{size}]"
        wanted, vectors = (size,), jax.ShapeDtypeStruct((parties, size), jnp.float32)
        number = _byzantine(config)
        found = functools.partial(jax.eval_shape, lambda *arrays: rule(*arrays, number), vectors, *one_each)
    try:
        shape = found().shape
    except Exception as cause:  # whatever the caller's function raises
        raise ConfigError(f"aggregate: the rule cannot be computed; it must be {said}: {cause}") from cause
    if shape != wanted:
        raise ConfigError(f"aggregate: the rule must be {said}, got shape {shape}.")


def _check_model(protocol: Protocol, ranker: Ranker) -> None:
    """Refuse a protocol whose model is not the weights of its ranker."""
    shape = jax.eval_shape(lambda key: protocol.weights(protocol.init(key)), jax.random.key(0)).shape
    if shape != (ranker.size,):
        raise ConfigError(
            f"the protocol {protocol.name!r} has weights of shape {shape}, its ranker {ranker.size} weights; give the "
            "protocol the ranker that it trains as its attribute 'ranker'."
        )


def splits_of(config: RankingConfig, folder: str | os.PathLike[str] | None = None, data: Any = None) -> Splits:
    """The data that a configuration names, or of the caller's own; arguments and errors as of :func:`build`."""
    c = config
    reader = QueryReader(
        fold=c.fold, normalise=c.normalise, seed=c.data_seed, holdout=c.holdout, max_label=MAX_GRADES - 1
    )
    if data is not None:
        return load(data, reader, folder=folder)
    # The folder that data is looked for in may differ from call to call of one process.
    return _load_named(
        c.data,
        reader,
        None if folder is None else os.fspath(folder),
        os.environ.get("FEDRANK_DATA", ""),
        files_state(Path(c.data).expanduser()),
    )


def _population(config: RankingConfig) -> tuple[Devices, Attack]:
    """How devices differ, and who attacks; a central service has no devices."""
    return (config.devices, config.attack) if isinstance(config, DeviceConfig) else (Devices(), Attack())


def rules_of(settings: type[DefendedConfig]) -> Registry:
    """The rules that a server with such settings may combine replies by."""
    return ES_DEFENCES if issubclass(settings, FoltrESConfig) else AGGREGATORS


def _shares(config: RankingConfig, train: QuerySet) -> tuple[QuerySet, Shares]:
    """The training queries and the shares of the parties; with share = 'labels', queries are cut to some documents."""
    n, seed = train.n_queries, config.data_seed
    if not isinstance(config, DeviceConfig):
        return train, partition.uniform(n, 1)
    if config.share == "fixed":
        return train, partition.fixed_share(n, config.clients, config.queries_per_client, seed)
    if config.share == "topic":
        return train, heterogeneous.by_topic(train, config.clients, config.topics, seed)
    if config.share == "labels":
        return heterogeneous.by_labels(train, config.clients, config.labels_per_client, seed)
    return train, partition.uniform(n, config.clients)


def _conditions(population: Devices, attack: Attack, protocol: Protocol, attacking: np.ndarray | None) -> Conditions:
    made = None
    if attack.kind not in ("none", POISON) and attacking is not None:
        made = ATTACKS.get(attack.kind)()
        if not made.works_on(protocol):
            raise ConfigError(f"the attack {attack.kind!r} does not work on replies of {protocol.name!r}.")
    return Conditions(
        dropout=population.dropout,
        late=population.late,
        delay=population.delay if population.late else 0,
        attack=made,
        attackers=() if made is None or attacking is None else tuple(bool(x) for x in attacking),
    )


# ----------------------------------------------------------------------------------------------------------- protocols


def foltr_es(config: FoltrESConfig, parts: Parts) -> FoltrES:
    """FOLtR-ES from its settings.

    Raises:
        ConfigError: The published random stream without the kernels that have it, or settings that do not fit.
    """
    if config.as_published and not parts.kernels:
        raise ConfigError("as_published needs the CPU kernels; set compute.kernels = 'on'.")
    metric, privacy = parts.metric, config.privacy
    sent = metric if config.reward_values is None else discretised(metric, config.reward_values)
    noisy = privacy.mechanism in ("laplace", "gaussian")
    return FoltrES(
        ranker=parts.ranker,
        user=parts.users[0],
        others=parts.users[1:],
        metric=sent,
        observed=metric,
        interactions=config.interactions,
        sigma=config.sigma,
        learning_rate=config.learning_rate,
        p=privacy.probability(sent.n) if privacy.mechanism == "randomised-response" else 1.0,
        mechanism=privacy.mechanism,
        epsilon=privacy.epsilon_interaction if noisy else None,
        delta=privacy.delta,
        piecewise=config.piecewise,
        participations=config.participations,
        anonymity=config.anonymity,
        clip=1.0 if privacy.clip is None else privacy.clip,
        antithetic=config.antithetic,
        interleaved=bool(config.interleaved),
        ties=config.ties,
        as_published=config.as_published,
        kernels=parts.kernels,
        aggregate=parts.aggregate,
        byzantine=_byzantine(config),
    )


def adaptive_es(config: AdaptiveESConfig, parts: Parts) -> AdaptiveES:
    """FOLtR-ES with natural evolution strategies or CMA-ES, from its settings.

    Raises:
        ConfigError: Settings that do not fit each other.
    """
    common: dict[str, Any] = {
        "ranker": parts.ranker,
        "user": parts.users[0],
        "others": parts.users[1:],
        "metric": parts.metric,
        "interactions": config.interactions,
        "sigma": config.sigma,
        "p": config.privacy.probability(parts.metric.n),
        "ties": config.ties,
        "kernels": parts.kernels,
    }
    if isinstance(config, FoltrNESConfig):
        return FoltrNES(**common, learning_rate=config.learning_rate, spread_rate=config.spread_rate)
    assert isinstance(config, FoltrCMAConfig)
    return FoltrCMA(**common, learning_rate=config.learning_rate, covariance=config.covariance)


def foltr_pdgd(config: FoltrPDGDConfig, parts: Parts) -> FoltrPDGD:
    """FPDGD from its settings, on the finest grid that keeps a secure sum within 32 bits.

    Raises:
        ConfigError: Settings that do not fit each other.
    """
    p, d = config.privacy, config.devices
    if config.as_published and p.epsilon is not None and (d.dropout or d.amounts != "equal"):
        raise ConfigError("the published noise needs all devices, and as much of each; set no dropout and no amounts.")
    noise = "none" if p.epsilon is None else "gamma" if config.as_published else "polya"
    if p.epsilon_user is not None:
        noise = "gaussian" if p.noise == "shares" else "server"
    made = functools.partial(
        FoltrPDGD,
        ranker=parts.ranker,
        user=parts.users[0],
        others=parts.users[1:],
        metric=parts.metric,
        interactions=config.interactions,
        learning_rate=config.learning_rate,
        clip=p.clip,
        clip_norm=p.clip_norm or "l1",
        noise=noise,
        epsilon=p.epsilon if p.epsilon_user is None else p.epsilon_user,
        delta=p.delta,
        times=min(config.times, config.rounds),
        rounds=config.rounds,
        secure_sum=bool(p.secure_sum),
        as_published=config.as_published,
        parties=config.clients,
        absent=_absent(config) if noise in ("polya", "gaussian") else 0.0,
        aggregate=parts.aggregate,
        byzantine=_byzantine(config),
        kernels=parts.kernels,
    )
    for bits in range(16, 5, -1):  # many devices or much noise need a coarser grid
        try:
            return made(grid=2**bits)
        except GridTooFineError:
            continue
    return made(grid=2**5)


def pdgd_variant(config: DeviceConfig, parts: Parts) -> FoltrPDGD:
    """FPDGD with another server, other local steps or asynchronous merging, from its settings.

    Raises:
        ConfigError: Settings that do not fit each other.
    """
    common: dict[str, Any] = {
        "ranker": parts.ranker,
        "user": parts.users[0],
        "others": parts.users[1:],
        "metric": parts.metric,
        "interactions": config.interactions,
        "parties": config.clients,
        "kernels": parts.kernels,
    }
    if isinstance(config, DefendedConfig):
        common |= {"aggregate": parts.aggregate, "byzantine": _byzantine(config)}
    if isinstance(config, FedOptPDGDConfig):
        return FedOptPDGD(
            **common,
            learning_rate=config.learning_rate,
            optimiser=config.optimiser,
            server_rate=config.server_rate,
            betas=(config.beta_1, config.beta_2),
            tau=config.tau,
        )
    if isinstance(config, FedProxPDGDConfig):
        return FedProxPDGD(**common, learning_rate=config.learning_rate, mu=config.mu)
    if isinstance(config, FedPerPDGDConfig):
        return FedPerPDGD(**common, learning_rate=config.learning_rate, personal=config.personal)
    if isinstance(config, RankGuardConfig):
        common["kernels"] = False
        screen = {"peers": config.peers, "history": config.history, "threshold": config.threshold}
        return RankGuard(**common, learning_rate=config.learning_rate, **screen)
    if isinstance(config, FoltrCOLTRConfig):
        common["kernels"] = False
        return FoltrCOLTR(**common, learning_rate=config.learning_rate, comparison=_comparison(config))
    assert isinstance(config, AsyncPDGDConfig)
    return AsyncPDGD(**common, learning_rate=config.learning_rate, mixing=config.mixing, staleness=config.staleness)


def _comparison(config: COLTRConfig | FoltrCOLTRConfig) -> Comparison:
    return Comparison(config.candidates, config.radius, config.temperature, config.smoothing, config.caution)


def central(config: CentralConfig, parts: Parts) -> Central:
    """A central learner from its settings.

    Raises:
        ConfigError: Settings that do not fit each other.
    """
    coltr = _comparison(config) if isinstance(config, COLTRConfig) else Comparison()
    candidates = config.candidates if isinstance(config, MGDConfig | COLTRConfig) else 1
    return Central(
        learner=config.protocol,
        ranker=parts.ranker,
        user=parts.users[0],
        others=parts.users[1:],
        metric=parts.metric,
        interactions=config.clients * config.interactions,
        learning_rate=config.learning_rate,
        radius=config.radius if isinstance(config, DBGDConfig | MGDConfig) else coltr.radius,
        candidates=candidates,
        batch=config.batch if isinstance(config, PDGDConfig) else False,
        discount=config.discount if isinstance(config, MDPRankConfig) else 1.0,
        temperature=coltr.temperature,
        smoothing=coltr.smoothing,
        caution=coltr.caution,
        kernels=parts.kernels and not isinstance(config, MDPRankConfig | COLTRConfig),
    )


def _absent(config: DeviceConfig) -> float:
    """The part of the devices that noise must do without: four standard deviations more than drop out on average."""
    p = config.devices.dropout
    return min(0.95, p + 4 * (p * (1 - p) / config.clients) ** 0.5)


def _byzantine(config: DefendedConfig) -> int:
    if config.byzantine is not None:
        return config.byzantine
    return max(1, int(np.sum(draw_attackers(config.clients, config.attack.share, config.data_seed))))
