"""Settings of runs in which silos average models: the tables ``[silos]``, ``[network]`` and ``[bandit]``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting

#: Protocols in which silos average models.
SILO_PROTOCOLS = (
    "bandit-fedavg",
    "fedavg",
    "fedavg-finetune",
    "local-only",
    "pooled",
    "fedper",
    "fedbn",
    "ditto",
    "apfl",
    "fedfomo",
    "ifca",
    "leave-one-out",
)
#: Rounds where none are given: Lundahl 2021, Section 8.2.1, "until peak performance".
SILO_ROUNDS = 15
#: Step size of local training; the thesis names none.
SILO_RATE = 0.05
#: What a target is compared with.
SILO_BASELINES = ("alone", "everyone")
#: Data that is no file of one's own.
_SETS = ("generated", "heart-disease", "health-insurance")
#: Settings that mean something only where another has one of these values.
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
#: Settings of a file of one's own.
OWN_FILE = ("silo", "label", "positive", "drop", "categorical")

#: Validation rows to test rows of the thesis (Lundahl 2021, Section 7): 40 % and 59 %.
VALIDATION = 40 / 99


@dataclass(frozen=True)
class Silos:
    """Who has which rows."""

    target: str = setting(
        "",
        "Who is personalised for: name or number from 0 of a silo, or 'all', one after the other; empty: the first.",
    )
    train: float = setting(
        40.0, "Training rows of each silo: 1 or more is a number, below 1 a share of the silo's rows."
    )
    vali: float = setting(VALIDATION, "Share of the other rows that models are chosen by; the rest is for the test.")
    measure: Literal["auc", "log-loss"] = setting("auc", "What models are judged by.")
    stratified: bool = setting(False, "Give every part a silo's share of positive labels; the thesis draws uniformly.")
    inverted: str = setting("", "A silo whose labels are turned round: a poisoned one.")
    exclude: tuple[str, ...] = setting((), "Silos that are left out.")
    gaps: Literal["drop", "impute"] = setting("drop", "Rows with missing values of heart-disease: left out, or filled.")
    silo: str = setting("silo", "Own file: the column that says whose row it is.")
    label: str = setting("label", "Own file: the column with the label.")
    positive: str | None = setting(None, "Own file: the value of the label that counts as 1.")
    drop: tuple[str, ...] = setting((), "Own file: columns that are no features, such as an id.")
    categorical: tuple[str, ...] = setting((), "Own file: columns of numbers that are names, one feature a value.")
    count: int = setting(4, "Generated data: number of silos.")
    rows: int = setting(400, "Generated data: rows of a silo.")

    def __post_init__(self):
        if not (0 < self.train < 1 or (self.train >= 1 and float(self.train).is_integer())):
            raise ConfigError(f"silos.train must be a whole number of rows or a share below 1, got {self.train:g}.")
        if not 0 < self.vali < 1:
            raise ConfigError(f"silos.vali must be a share between 0 and 1, got {self.vali:g}.")


@dataclass(frozen=True)
class Network:
    """What silos train, and how."""

    widths: tuple[int, ...] = setting((64, 32, 16), "Units of the hidden layers.")
    norm: Literal["batch", "layer", "none"] = setting("batch", "Normalisation between them.")
    crossing: Literal["average", "local", "recalibrate", "head-local"] = setting(
        "average",
        "What of a model crosses: all; all but the normalisations (FedBN); all but running statistics, which are "
        "estimated anew; all but the last layer (FedPer).",
    )
    momentum: float = setting(0.1, "Part of a batch in the running statistics of batch norm.")
    epochs: int = setting(6, "E, epochs of local training in a round.")
    batch: int = setting(16, "Most rows of a mini-batch; batches of a silo are nearly equal.")
    weight_decay: float = setting(0.0, "λ of an L2 penalty λ/2·‖θ‖².")


@dataclass(frozen=True)
class Personal:
    """Settings of single methods that bandit-fedavg is compared with."""

    pull: float = setting(1.0, "ditto: λ, how strongly a silo's model is pulled to everybody's.")
    share: float = setting(0.5, "apfl: α, the part of a silo's own model before the first round.")
    adaptive: bool = setting(True, "apfl: let every silo adapt it.")
    downloads: int | None = setting(None, "fedfomo: how many models of others a silo is sent; without it all.")
    explore: float = setting(0.3, "fedfomo: the chance that one of them is random.")
    clusters: int = setting(2, "ifca: models that silos choose from.")
    evidence: float = setting(
        0.0, "leave-one-out: e-value at which a silo is dropped for good; 0: 20 times the number of silos."
    )


@dataclass(frozen=True)
class Bandit:
    """bandit-fedavg: who is averaged with the target, and what is learnt from it."""

    rule: Literal["epsilon-greedy", "ucb", "thompson", "extreme-explore", "bayesian-extreme-explore", "fixed"] = (
        setting("extreme-explore", "Decision rule.")
    )
    epsilon: float = setting(0.2, "epsilon-greedy: probability of another arm than the best.")
    c: float = setting(0.05, "ucb: inclination to explore.")
    alpha: float | None = setting(None, "Weight of the newest reward in (0, 1]; without it the mean of all.")
    gamma: float = setting(1.0, "thompson, bayesian-extreme-explore: discount of older rewards in (0, 1].")
    threshold: float | None = setting(
        None, "Reward 1 for an increment above it, else 0; without it the increment. thompson needs one: 0.025."
    )
    initial: float = setting(0.05, "Optimistic first estimate of every arm.")
    every: int = setting(0, "Every so many rounds, the first included, is an Extreme-Explore round; 0: none.")
    chance: float = setting(0.0, "Probability that a round is an Extreme-Explore round.")
    fixed: int = setting(0, "fixed: number of the arm; 0 is the target alone where that is an arm.")
    arms: Literal["pairs", "all", "clusters", "everyone"] = setting(
        "pairs", "Sets that are tried: the target with one silo; all sets; clusters of silos; all silos at once."
    )
    alone: bool = setting(True, "pairs, everyone: the target alone is an arm, too.")
    clusters: int = setting(0, "arms = clusters: how many; 0: 8, or one fewer than there are silos.")
    delayed: bool = setting(False, "extreme-explore: rewards a round late, for fewer messages.")
    against: Literal["own", "previous"] = setting(
        "own", "What an average must beat: the target's own model of the round, or the model of the round before."
    )
    target_weight: float | None = setting(None, "Weight of the target in every average; without it by rows.")
    patience: int | None = setting(None, "Rounds without a better model after which the run stops asking.")
    pretrain: bool = setting(True, "Train for E epochs before the first round.")
    probe: bool = setting(False, "Let the target judge every silo's first model: tells inverted labels.")


def check_own_file(data: str, silos: Silos) -> None:
    """Refuse settings of a file of one's own where the data is none.

    Raises:
        ConfigError: One was changed.
    """
    default = Silos()
    changed = [name for name in OWN_FILE if getattr(silos, name) != getattr(default, name)]
    if data.lower() in _SETS and changed:
        raise ConfigError(f"silos.{changed[0]} is about a file of one's own; it means nothing to data = {data!r}.")
