"""From the settings of a run to the things that they name: data, users, ranker, protocol, devices, what goes wrong."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedrank.aggregation.differences import ES_DEFENCES
from fedrank.core.errors import ConfigError, ModelError
from fedrank.core.fields import is_part
from fedrank.core.lazy import jax, jnp, on_cpu
from fedrank.core.protocol import Party, Protocol
from fedrank.core.registry import Registry
from fedrank.data import load
from fedrank.data.folders import OWN, files_state
from fedrank.engine.attackers import ATTACKS, draw_attackers
from fedrank.engine.methods import method, method_names
from fedrank.engine.model import read_model
from fedrank.engine.simulator import Conditions
from fedrank.metrics.online import REWARDS, OnlineMetric
from fedrank.ranking.clicks.browsing import is_file, user_of_file
from fedrank.ranking.clicks.cascade import MAX_GRADES, USERS, CascadeUser, inverted_user
from fedrank.ranking.config import Attack, DeviceRun, Devices, RankingRun
from fedrank.ranking.data import partition
from fedrank.ranking.data.partition import Shares
from fedrank.ranking.data.queries import QuerySet
from fedrank.ranking.data.reader import QueryReader
from fedrank.ranking.data.splits import Splits
from fedrank.ranking.model import RankingModel
from fedrank.ranking.protocol import Parts, RankingProtocol
from fedrank.ranking.rankers.base import RANKERS, Ranker
from fedrank.ranking.rankers.given import as_ranker
from fedrank.ranking.sessions.devices import devices

#: Results shown to a user where nothing else is said.
DEPTH = 10

#: The attack that is made with clicks, not with replies.
POISON = "poisoned-clicks"


@dataclass(frozen=True)
class Experiment:
    """The parts of a run that a configuration names.

    Attributes:
        config: The configuration, resolved.
        splits: The data.
        protocol: The protocol with its ranker, user and metric.
        parties: All devices, with the training queries they ask about; or the one service of a central learner.
        metric: Reward whose exact expectation is evaluated.
        users: Click models for it.
        device_users: Click models of the devices, by the numbers that devices have.
        conditions: Drop-outs, stragglers and attackers of the simulation.
        kernels: Whether the compiled CPU kernels are used.
    """

    config: RankingRun
    splits: Splits
    protocol: Protocol
    ranker: Ranker
    parties: Party
    metric: OnlineMetric
    users: tuple[CascadeUser, ...]
    device_users: tuple[CascadeUser, ...]
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
        rules, rule = getattr(c.method, "rules", None), getattr(c.method, "aggregate", "mean")
        parts = [value for _, value, one in _parts(c.method)]
        keys = [
            method(c.protocol).citation if c.protocol in method_names() else "",
            *_citations(RANKERS, c.ranker),
            *(key for user in self.users for key in _citations(USERS, user.name)),
            *_citations(REWARDS, c.reward),
            self.splits.citation,
            *(getattr(value, "citation", "") for value in parts),
            "wang2022noniid" if getattr(c, "share", "") in ("topic", "labels") else "",
            "wang2022noniid" if population.users else "",
            *(() if rules is None or rule == "mean" else _citations(rules, rule)),
            *_citations(ATTACKS, attack.kind),
        ]
        return tuple(dict.fromkeys(key for key in keys if key))


def _parts(method: Any) -> list[tuple[str, Any, Any]]:
    """Name, value and field of the parts that a method is made of."""
    if not dataclasses.is_dataclass(method):
        return []
    return [(one.name, getattr(method, one.name), one) for one in dataclasses.fields(method) if is_part(one)]


def _citations(registry: Registry, name: str) -> tuple[str, ...]:
    """The citation of a registered part; empty for a part that is not registered."""
    return (registry.entry(name).citation,) if name in registry else ()


def use_kernels(config: RankingRun, ranker: Ranker) -> bool:
    """True if the compiled CPU kernels are used: on a CPU, for rankers they know, unless the configuration differs.

    Raises:
        ConfigError: They are asked for and cannot be used.
    """
    able = ranker.kernel_shape() is not None
    if config.compute.kernels == "on" and not able:
        raise ConfigError(f"compute.kernels = 'on', but the kernels do not know the ranker {config.ranker!r}.")
    if config.compute.kernels == "auto":
        return able and on_cpu()
    return config.compute.kernels == "on"


def start_model(config: RankingRun) -> RankingModel | None:
    """The model that a run starts from; None if it starts from the ranker's own start.

    Raises:
        ModelError: There is no such file, or it is no model of this wing.
    """
    if not config.start_from:
        return None
    model = read_model(config.start_from)
    if not isinstance(model, RankingModel):
        raise ModelError(f"{config.start_from}: is a {type(model).__name__}; a run of this task starts from a ranker.")
    return model


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
    config: RankingRun,
    folder: str | os.PathLike[str] | None = None,
    *,
    protocol: Any = None,
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
    rules = getattr(config.method, "rules", None)
    if rules is not None and config.method.aggregate != OWN:
        rules.entry(config.method.aggregate)
    start = start_model(config)
    splits = (
        splits_of(config, folder, data)
        if start is None
        else start.prepare(splits_of(dataclasses.replace(config, normalise="none"), folder, data))
    )
    ranker = getattr(protocol, "ranker", None)
    if ranker is None and "ranker" in own:
        ranker = as_ranker(own["ranker"], splits.train.n_features)
    elif ranker is None:
        ranker = RANKERS.get(config.ranker).build(splits.train.n_features, config.hidden)
    if start is not None and start.ranker != ranker:
        raise ConfigError(f"start_from: its ranker is {start.ranker}, and the run's {ranker}; they must be the same.")
    metric = REWARDS.get(config.reward)(config.depth)
    kernels = use_kernels(config, ranker) if protocol is None else getattr(protocol, "kernels", False)
    train, shares = _shares(config, splits.train)

    def user(name: str) -> CascadeUser:
        return own["clicks"] if name == OWN else user_for(name, splits, config.depth)

    models = [user(name) for name in population.users or (config.clicks,)]
    which = None
    if population.users:
        which = partition.users_of_parties(config.clients, len(models), config.data_seed)
    attacking = np.asarray(draw_attackers(config.clients, attack.share, config.data_seed)) if attack.share else None
    if attack.kind == POISON and attacking is not None:
        models.append(inverted_user(user("perfect")))
        which = np.where(attacking, len(models) - 1, 0 if which is None else which)
    users = tuple(models)
    if "aggregate" in own and rules is not None:
        _check_rule(config, own["aggregate"], ranker.size)
    if protocol is None or getattr(protocol, "user", protocol) is None:  # a method without users is settings alone
        known = Parts(ranker, users, metric, kernels, config.bounds, own.get("aggregate"), attackers_of(config))
        known = known if start is None else dataclasses.replace(known, start=tuple(map(float, start.weights)))
        protocol = config.method.bind(known)
        # Learners without a kernel take padded queries.
        kernels = kernels and protocol.kernels
    amounts = None
    if population.amounts == "skewed":
        even = getattr(protocol, "group", 1) == 2
        amounts = partition.amounts(config.clients, config.interactions, even=even, seed=config.data_seed)
    queries = train.blocks() if kernels else train.padded()
    if isinstance(protocol, RankingProtocol):
        users, parties = protocol.users, protocol.devices(queries, shares, which, amounts)
    else:
        _check_model(protocol, ranker)
        parties = devices(ranker, users, queries, shares, config.interactions, which, amounts)
    trains = population.users or (config.clicks,)
    clicking = tuple(user(name) for name in dict.fromkeys((*trains, *config.evaluation.users)))
    conditions = _conditions(population, attack, protocol, attacking)
    return Experiment(config, splits, protocol, ranker, parties, metric, clicking, users, conditions, kernels)


def _objects(config: RankingRun, own: Mapping[str, Any]) -> Mapping[str, Any]:
    """The caller's objects, one for each setting that says ``own`` and for no other.

    Raises:
        ConfigError: One is missing, or cannot be used here.
    """
    for name in own:
        if name not in _OBJECTS:
            raise ConfigError(f"{name}: no object can be given here; those of {', '.join(_OBJECTS)} can.")
    for name in _OBJECTS:
        if getattr(config, name, getattr(config.method, name, None)) == OWN and name not in own:
            raise ConfigError(
                f"{name}: this run was made with an object of its caller's own, which no file holds. Hand it over "
                f"again: in Python, resume(folder, own={{{name!r}: …}})."
            )
    if "clicks" in own and not isinstance(own["clicks"], CascadeUser):
        raise ConfigError(f"clicks must be a name or a CascadeUser, got {type(own['clicks']).__name__}.")
    if "aggregate" in own and not callable(own["aggregate"]):
        raise ConfigError(f"aggregate must be a name or a function, got {type(own['aggregate']).__name__}.")
    return own


def _check_rule(config: RankingRun, rule: Any, size: int) -> None:
    """Refuse a rule of the caller's own that cannot be computed for the round's arrays, or gives another shape."""
    parties = config.clients
    one_each = [jax.ShapeDtypeStruct((parties,), kind) for kind in (jnp.float32, bool)]
    if config.method.rules is ES_DEFENCES:
        said, wanted = f"(differences [{parties}], arrived [{parties}]) -> coefficients [{parties}]", (parties,)
        found = functools.partial(jax.eval_shape, rule, *one_each)
    else:
        said = f"(vectors [{parties}, {size}], weights [{parties}], arrived [{parties}], byzantine) -> vector [{size}]"
        wanted, vectors = (size,), jax.ShapeDtypeStruct((parties, size), jnp.float32)
        number = config.method.byzantine or max(1, attackers_of(config))
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


def splits_of(config: RankingRun, folder: str | os.PathLike[str] | None = None, data: Any = None) -> Splits:
    """The data that a configuration names, or of the caller's own; arguments and errors as of :func:`build`."""
    c = config
    reader = QueryReader(
        fold=c.fold,
        normalise=c.normalise,
        seed=c.data_seed,
        holdout=c.holdout,
        divide=c.divide,
        max_label=MAX_GRADES - 1,
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


def _population(config: RankingRun) -> tuple[Devices, Attack]:
    """Settings of devices and of the attack; the defaults for a central service, which has no devices."""
    return (config.devices, config.attack) if isinstance(config, DeviceRun) else (Devices(), Attack())


def attackers_of(config: RankingRun) -> int:
    """Number of devices that attack."""
    share = _population(config)[1].share
    return int(np.sum(draw_attackers(config.clients, share, config.data_seed))) if share else 0


def _shares(config: RankingRun, train: QuerySet) -> tuple[QuerySet, Shares]:
    """The training queries and the shares of the parties; with share = 'labels', queries are cut to some documents."""
    n, seed = train.n_queries, config.data_seed
    if not isinstance(config, DeviceRun):
        return train, partition.uniform(n, 1)
    if config.share == "fixed":
        return train, partition.fixed_share(n, config.clients, config.queries_per_client, seed)
    if config.share == "topic":
        return train, partition.by_topic(train, config.clients, config.topics, seed)
    if config.share == "labels":
        return partition.by_labels(train, config.clients, config.labels_per_client, seed)
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
