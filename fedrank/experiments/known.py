"""Which settings which protocols know, and what they are where nobody says: the tables behind a configuration."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from fedrank.core.errors import ConfigError
from fedrank.silos.config import SILO_BASELINES
from fedrank.texts.config import TextsConfig

_TEXTS_CONFIG = TextsConfig()
TEXT_PROTOCOLS = ("silo-sketch",)
SILO_PROTOCOLS = (
    *("bandit-fedavg", "fedavg", "fedavg-finetune", "local-only", "pooled", "fedper", "fedbn"),
    *("ditto", "apfl", "fedfomo", "ifca", "leave-one-out"),
)
SILO_ROUNDS, SILO_RATE = 15, 0.05
SILO_NEEDS = (
    ("bandit.epsilon", "bandit.rule", ("epsilon-greedy",)),
    ("bandit.c", "bandit.rule", ("ucb",)),
    ("bandit.gamma", "bandit.rule", ("thompson", "bayesian-extreme-explore")),
    ("bandit.fixed", "bandit.rule", ("fixed",)),
    ("bandit.clusters", "bandit.arms", ("clusters",)),
    ("silos.count", "data", ("generated", "own")),
    ("silos.rows", "data", ("generated",)),
    ("silos.gaps", "data", ("heart-disease",)),
    ("personal.pull", "protocol", ("ditto",)),
    ("personal.share", "protocol", ("apfl",)),
    ("personal.adaptive", "protocol", ("apfl",)),
    ("personal.downloads", "protocol", ("fedfomo",)),
    ("personal.explore", "protocol", ("fedfomo",)),
    ("personal.clusters", "protocol", ("ifca",)),
    ("personal.evidence", "protocol", ("leave-one-out",)),
)
#: Rounds when neither rounds nor a budget is given: 2 million interactions of 2,000 devices with 4 each (the paper's).
DEFAULT_ROUNDS = 250
#: Step sizes of the papers: Kharitonov 2019; Wang et al. ECIR and ICTIR 2021; Yue & Joachims 2009; Schuth et al. 2016.
LEARNING_RATES = {"foltr-es": 1e-3, "foltr-pdgd": 0.1, "pdgd": 0.1, "dbgd": 0.01, "mgd": 0.01}

_ES, _FEDERATED, _SILOS, _TEXTS = ("foltr-es",), ("foltr-es", "foltr-pdgd"), SILO_PROTOCOLS, TEXT_PROTOCOLS
_RANKING = tuple(LEARNING_RATES)
#: Settings that only some protocols know.
KNOWN_BY = {
    "sigma": _ES,
    "antithetic": _ES,
    "as_published": _FEDERATED,
    "ties": _ES,
    "reward_values": _ES,
    "privacy.p": _ES,
    "privacy.mechanism": _ES,
    "privacy.epsilon": _FEDERATED,
    "privacy.clip": ("foltr-pdgd",),
    "privacy.clip_norm": ("foltr-pdgd",),
    "privacy.secure_sum": ("foltr-pdgd",),
    "aggregate": _FEDERATED,
    "byzantine": _FEDERATED,
    "radius": ("dbgd", "mgd"),
    "candidates": ("mgd",),
    "batch": ("pdgd",),
    "share": _FEDERATED,
    "devices.amounts": _FEDERATED,
    "devices.users": _FEDERATED,
    "devices.dropout": (*_FEDERATED, *_SILOS, *_TEXTS),
    "devices.late": _FEDERATED,
    "attack.kind": _FEDERATED,
    **{
        name: _RANKING
        for name in (
            "fold", "normalise", "holdout", "clicks", "ranker", "hidden", "clients", "interactions", "budget", "reward",
            "evaluation.users", "evaluation.tie_orders", "compute.kernels",
        )
    },
    "data": (*_RANKING, *_SILOS, *_TEXTS),
    "data_seed": (*_RANKING, *_SILOS, *_TEXTS),
    "evaluation.measures": (*_RANKING, *_TEXTS),
    "privacy.delta": (*_RANKING, *_TEXTS),
    "texts": _TEXTS,
    "sketch": _TEXTS,
    "training": _TEXTS,
    "i_know": _TEXTS,
    "silos": _SILOS,
    "network": _SILOS,
    "bandit": ("bandit-fedavg",),
    "personal": ("ditto", "apfl", "fedfomo", "ifca", "leave-one-out"),
}  # fmt: skip


#: Settings that mean something only where another has one of these values, or any but its default.
NEEDS = (
    ("topics", "share", ("topic",)),
    ("labels_per_client", "share", ("labels",)),
    ("devices.delay", "devices.late", ()),
    ("attack.kind", "attack.share", ()),
)


class Family(NamedTuple):
    """Protocols whose runs are of one kind, and what they do where nothing is said.

    Attributes:
        name: ``devices``, ``silos``, ``texts`` or ``platforms``.
        rounds: Rounds.
        every: Rounds between evaluations.
        measures: What is measured.
        baselines: What is compared with.
    """

    name: str
    rounds: int
    every: int
    measures: tuple[str, ...]
    baselines: tuple[str, ...]


_DEVICES = Family("devices", DEFAULT_ROUNDS, 10, ("nDCG@10", "RR@10"), ("MSE",))
_OF_SILOS = Family("silos", SILO_ROUNDS, 1, ("AUC",), SILO_BASELINES)
_OF_TEXTS = Family(
    "texts",
    _TEXTS_CONFIG.rounds,
    _TEXTS_CONFIG.evaluation.every,
    _TEXTS_CONFIG.evaluation.measures,
    _TEXTS_CONFIG.evaluation.baselines,
)
_FAMILIES = {
    **dict.fromkeys(SILO_PROTOCOLS, _OF_SILOS),
    **dict.fromkeys(TEXT_PROTOCOLS, _OF_TEXTS),
}


def family(protocol: str) -> Family:
    """The family of a protocol: devices or a service that learn from clicks, silos with tables or texts, platforms."""
    return _FAMILIES.get(protocol, _DEVICES)


def step_size(protocol: str) -> float:
    """The step size of a protocol's paper.

    Args:
        protocol: The protocol.
    """
    others = {"silos": SILO_RATE, "texts": _TEXTS_CONFIG.learning_rate}
    return LEARNING_RATES[protocol] if protocol in LEARNING_RATES else others[family(protocol).name]


def refuse_meaningless(config: Any, default: Any) -> None:
    """Refuse settings that were changed and that the protocol, or what else is set, gives no meaning.

    Args:
        config: The configuration.
        default: The same protocol's, with nothing changed.

    Raises:
        ConfigError: Says which, and whose setting it is.
    """
    for name, protocols in KNOWN_BY.items():
        if config.protocol not in protocols and _value(config, name) != _value(default, name):
            raise ConfigError(
                f"{_changed(_value(config, name), _value(default, name), name)} means nothing to the protocol "
                f"{config.protocol!r}; it is a setting of {', '.join(protocols)}. Leave it out."
            )
    for name, where, needed in (*NEEDS, *SILO_NEEDS):
        if _value(config, name) == _value(default, name):
            continue
        given = _value(config, where)
        if given not in needed if needed else given == _value(default, where):
            what = f"{where} = {' or '.join(map(repr, needed))}" if needed else where
            raise ConfigError(f"{name} means nothing without {what}; set both, or leave it out.")


def _changed(value: Any, default: Any, name: str) -> str:
    """The name of a setting; of a table, its first setting that was changed."""
    if not dataclasses.is_dataclass(value):
        return name
    changed = (f.name for f in dataclasses.fields(value) if getattr(value, f.name) != getattr(default, f.name))
    return f"{name}.{next(changed)}"


def _value(config: Any, name: str) -> Any:
    for part in name.split("."):
        config = getattr(config, part)
    return config
