"""Settings of runs in which silos average models, beside those of the method; and tables that several methods have.

A method's settings are the fields of its class (:mod:`fedrank.silos.party`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from typing_extensions import override

from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting
from fedrank.core.privacy_report import DELTA
from fedrank.engine.config import Evaluation, RunConfig
from fedrank.silos.network import TabularNetwork

#: What a target is compared with.
SILO_BASELINES = ("alone", "everyone")
#: Target of a run that personalises for every silo, one after the other.
ALL = "all"
#: Share of a silo's rows that train where nothing is said; the thesis's 40 rows are for generated data, made for it.
TRAIN, TRAIN_GENERATED = 0.6, 40.0
#: Data that is no file of one's own.
_SETS = ("generated", "heart-disease", "health-insurance")
#: Settings of a file of one's own.
OWN_FILE = ("silo", "label", "positive", "drop", "categorical", "missing", "person")

#: Validation rows to test rows of the thesis (Lundahl 2021, Section 7): 40 % and 59 %.
VALIDATION = 40 / 99


@dataclass(frozen=True, kw_only=True)
class Silos:
    """Settings of the silos' rows."""

    target: str = setting(
        "",
        "The silo to personalise for: its name or number from 0, or 'all', one after the other; empty: the first.",
    )
    train: float | None = setting(
        None,
        "Training rows of each silo: 1 or more is a number, below 1 a share of the silo's rows; without it 0.6, "
        "stratified, and 40 of generated data.",
    )
    vali: float = setting(VALIDATION, "Share of the other rows that models are chosen by; the rest is the test.")
    measure: Literal["auc", "log-loss"] = setting("auc", "What models are judged by.")
    stratified: bool = setting(False, "Give every part a silo's share of positive labels; the thesis draws uniformly.")
    inverted: str = setting("", "A silo whose labels are inverted: a poisoned one.")
    exclude: tuple[str, ...] = setting((), "Silos that are left out.")
    gaps: Literal["drop", "impute"] = setting(
        "drop", "Rows with missing values of heart-disease: left out, or filled.", needs=("data", ("heart-disease",))
    )
    first_look: bool = setting(
        False,
        "Before the first round: who helps and who harms, and whose labels look inverted.",
    )
    silo: str = setting("silo", "Own file: the column that says whose row it is.")
    label: str = setting("label", "Own file: the column with the label.")
    positive: str | None = setting(None, "Own file: the value of the label that counts as 1.")
    drop: tuple[str, ...] = setting((), "Own file: columns that are no features, such as an id.")
    categorical: tuple[str, ...] = setting((), "Own file: columns of numbers that are names, one feature a value.")
    missing: tuple[str, ...] = setting((), "Own file: values that mean a missing one, such as -9 or 999.")
    person: str = setting("", "Own file: the column of persons who may have several rows, which stay together.")
    count: int = setting(4, "Generated data: number of silos.", needs=("data", ("generated", "own")))
    rows: int = setting(400, "Generated data: rows of a silo.", needs=("data", ("generated",)))

    def __post_init__(self):
        if self.train is not None and not (0 < self.train < 1 or (self.train >= 1 and float(self.train).is_integer())):
            raise ConfigError(f"silos.train must be a whole number of rows or a share below 1, got {self.train:g}.")
        if not 0 < self.vali < 1:
            raise ConfigError(f"silos.vali must be a share between 0 and 1, got {self.vali:g}.")


#: λ of the L2 penalty of a regression, of the mean loss of a row.
_DECAY = 0.3


@dataclass(frozen=True, kw_only=True)
class LocalNetwork:
    """The model that silos train, a logistic regression or a network, and how they train it."""

    widths: tuple[int, ...] = setting((), "Units of the hidden layers; none is a logistic regression.")
    norm: Literal["batch", "layer", "none"] | None = setting(
        None, "Normalisation between hidden layers; by default batch, and none without hidden layers."
    )
    momentum: float = setting(0.1, "Part of a batch in the running statistics of batch norm.")
    epochs: int = setting(6, "E, epochs of local training in a round.", low=1, high=10_000)
    batch: int = setting(
        16, "Largest number of rows of a mini-batch; batches of a silo are nearly equal.", low=1, high=10**6
    )
    weight_decay: float | None = setting(
        None, "λ of an L2 penalty λ/2·‖θ‖²; by default 0.3 for a regression, 0 for a network.", low=0, high=10**6
    )

    def build(self, n_features: int) -> TabularNetwork:
        """The network on a number of features."""
        norm = self.norm or ("batch" if self.widths else "none")
        return TabularNetwork(n_features, self.widths, norm, self.momentum)

    @property
    def penalty(self) -> float:
        """λ of the L2 penalty λ/2·‖θ‖² on the mean loss of a row: the setting, or the default of the kind of model."""
        if self.weight_decay is not None:
            return self.weight_decay
        return 0.0 if self.widths else _DECAY


@dataclass(frozen=True, kw_only=True)
class Network(LocalNetwork):
    """The model that silos train, and which of its numbers cross."""

    crossing: Literal["average", "local", "recalibrate", "head-local"] = setting(
        "average",
        "What of a model crosses: all; all but the normalisations (FedBN); all but running statistics, which are "
        "estimated anew; all but the last layer (FedPer).",
    )


@dataclass(frozen=True, kw_only=True)
class Devices:
    """Faults of the silos' replies."""

    dropout: float = setting(0.0, "Probability that a silo is not heard in a round.")


@dataclass(frozen=True, kw_only=True)
class RecordPrivacy:
    """Noise that hides every record of a silo in what crosses during a run."""

    epsilon: float | None = setting(None, "ε of a record over the run: DP-SGD, noise on AUCs.")
    delta: float = setting(DELTA, "δ of it.", needs=("privacy.epsilon", ()))
    clip: float = setting(1.0, "Longest gradient of one row.", needs=("privacy.epsilon", ()))
    ranges: tuple[str, ...] = setting((), "Public range of each column: age=20:90.", needs=("privacy.epsilon", ()))

    def __post_init__(self):
        if self.epsilon is not None and not 0 < self.epsilon <= 100:
            raise ConfigError(f"privacy.epsilon of a record must be above 0 and at most 100, got {self.epsilon:g}.")
        if not 0 < self.delta < 0.1:
            raise ConfigError(f"privacy.delta must be above 0 and below 0.1, got {self.delta:g}.")
        if not 0 < self.clip < 1e6:
            raise ConfigError(f"privacy.clip must be positive and finite, got {self.clip:g}.")


@dataclass(frozen=True, kw_only=True)
class SilosEvaluation(Evaluation):
    """Settings of the evaluation."""

    baselines: tuple[str, ...] = setting(
        SILO_BASELINES, "What the target is compared with: alone, by itself; everyone, federated averaging."
    )
    sceptic: bool = setting(
        True,
        "Also fit simple baselines: logistic regression, boosted trees, one average.",
    )


@dataclass(frozen=True, kw_only=True)
class SiloRun(RunConfig):
    """Settings of every run of silos: the method, the rows, the evaluation, and silos that are not heard."""

    task: ClassVar[str] = "silos"

    data: str = setting("generated", "Name in the catalogue (fedrank data list), a CSV or parquet file, or generated.")
    data_seed: int = setting(0, "Seed of generated data.", low=0, high=2**63 - 1)
    rounds: int = setting(15, "Rounds; a round is one step of the server.", low=1, high=10**6)
    devices: Devices = field(default_factory=Devices)
    evaluation: SilosEvaluation = field(default_factory=SilosEvaluation)
    silos: Silos = field(default_factory=Silos)

    @override
    def derive_settings(self) -> Any:
        default = Silos()
        changed = [name for name in OWN_FILE if getattr(self.silos, name) != getattr(default, name)]
        if self.data.lower() in _SETS and changed:
            raise ConfigError(
                f"silos.{changed[0]} is about a file of one's own; it means nothing to data = {self.data!r}."
            )
        private = self.record_privacy is not None
        if private:
            self._refuse_without_noise()
        if self.silos.train is not None:
            return self
        if self.data.lower() == "generated":
            return replace(self, silos=replace(self.silos, train=TRAIN_GENERATED))
        return replace(self, silos=replace(self.silos, train=TRAIN, stratified=not private))

    @property
    def bound_to_rounds(self) -> bool:
        """True if noise is made for the number of rounds of the run."""
        return self.record_privacy is not None

    @property
    def record_privacy(self) -> RecordPrivacy | None:
        """Settings of the method's noise, where a record has an ε."""
        return getattr(self.method, "record_privacy", None)  # a protocol of another task is refused when it is built

    @property
    def delta(self) -> float:
        """δ of a record over the whole run."""
        return DELTA if self.record_privacy is None else self.record_privacy.delta

    def _refuse_without_noise(self) -> None:
        """Refuse what would tell of records without noise, beside a record's ε."""
        for name, why in {
            "stratified": "divides rows by their labels, so that one record moves others",
            "person": "keeps rows of a person together, so that one record moves others, and the ε is of a row",
            "first_look": "sends exact sums of rows; one message with an ε is fedrank silos send (fedrank-zoo)",
        }.items():
            if getattr(self.silos, name):
                raise ConfigError(f"leave silos.{name} out where a record has an ε (privacy.epsilon): it {why}.")
