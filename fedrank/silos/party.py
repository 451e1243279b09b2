"""A silo as all protocols see it that average models of silos: its rows, its local model, training and judging.

A silo keeps its rows and its own last model. Which numbers of a model cross is one of :data:`CROSSINGS`; what does not
cross stays as the silo has it. That is how batch normalisation's statistics, its γ and β, or a last layer stay local.

All of it is computed with NumPy for several silos at once: the leaves of ``party.own`` have a leading axis [silos].

Axes of arrays: ``size`` numbers of a whole model, ``parameters`` of them cross, ``silos``, ``epochs``, ``rows``.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, UInt32
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.fields import bound, setting
from fedrank.core.native import map_trees
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Exchange, Party, Protocol
from fedrank.core.streams import run_words
from fedrank.metrics.offline import host_auc, host_log_loss
from fedrank.silos.config import Network, RecordPrivacy, SiloRun
from fedrank.silos.data.splits import Rows, SiloArrays
from fedrank.silos.data.tables import SiloTable
from fedrank.silos.local_sgd import LocalSgd
from fedrank.silos.messages import Model, Ready
from fedrank.silos.network import TabularNetwork
from fedrank.silos.records.private_sgd import PrivateSgd


@dataclass(frozen=True)
class Crossing:
    """The numbers of a model that cross.

    Attributes:
        stays: Part of the network that stays at a silo; None: nothing.
        of_batch_norm: It is about batch norm, and means nothing to another normalisation.
        recalibrates: Whoever uses a model estimates its running statistics anew on its own training rows.
        citation: Key of its publication; empty if there is nothing to cite.
    """

    stays: Literal["norm", "statistics", "head"] | None = None
    of_batch_norm: bool = False
    recalibrates: bool = False
    citation: str = ""


#: By name: all; all but the normalisations, γ, β and statistics (FedBN, Li et al. 2021); all but the running
#: statistics; all but the last layer (FedPer, Arivazhagan et al. 2019).
CROSSINGS: Mapping[str, Crossing] = {
    "average": Crossing(),
    "local": Crossing("norm", of_batch_norm=True, citation="li2021fedbn"),
    "recalibrate": Crossing("statistics", of_batch_norm=True, recalibrates=True),
    "head-local": Crossing("head", citation="arivazhagan2019fedper"),
}

#: What a model is judged by on validation rows: larger is better. The log-loss is negated.
MEASURES = ("auc", "log-loss")

#: Numbers of a layer's units, over all rows and models, that are judged at once.
_AT_ONCE = 1 << 22

#: Which rows of a silo.
Part = Literal["train", "vali", "test"]

#: Seed of the model that a silo has before it has received one; public, and the same at every silo.
_LOCAL_SEED = 0


class SiloOwn(NamedTuple):
    """State of silos; in a simulator every leaf has leading axes [silos] or [runs, silos].

    Attributes:
        number: Which silo of the arrays it is.
        split: Which division of its rows it uses.
        model: Its local model after it trained last.
        best: Performance of the best model that it judged; −∞ before.
        best_model: Its local model when it judged that one: it holds the numbers that do not cross.
    """

    number: Int[np.ndarray, "*lead"]
    split: Int[np.ndarray, "*lead"]
    model: Float[np.ndarray, "*lead size"]
    best: Float[np.ndarray, "*lead"]
    best_model: Float[np.ndarray, "*lead size"]


@dataclass(frozen=True)
class Parts:
    """Parts that a run gives to a method besides its settings.

    Attributes:
        config: Settings of the run.
        n_features: Features of a row.
        silos: Number of silos.
        rows: Training rows of each silo in every division.
        most_rows: Training rows of the silo that has most.
        target: Number of the silo to personalise for; the first of several.
    """

    config: SiloRun
    n_features: int
    silos: int
    rows: Int[np.ndarray, "..."]
    most_rows: int
    target: int


class Held(NamedTuple):
    """The rows of a run as its parties hold them.

    Attributes:
        table: Rows of every party.
        arrays: The same, divided and standardised: leading axes [seeds, parties].
        targets: Numbers of the parties that are measured.
    """

    table: SiloTable
    arrays: SiloArrays
    targets: tuple[int, ...]


@dataclass(frozen=True)
class SiloProtocol(Protocol):
    """A method whose parties are silos, which train a network on their tables.

    Subclasses are frozen dataclasses whose fields are settings. The first four fields below are filled in by a run
    (:meth:`bind`).

    Attributes:
        sgd: Local training, and the network.
        silos: k, number of silos.
        most_rows: Training rows of the silo that has most; the others' are padded to it.
        measure: One of :data:`MEASURES`.
        privacy: Noise that hides records; None: the method has none.
        for_one_target: A run is for one silo; other methods personalise for all silos at once.
        tells_standards: A model may tell mean and deviation of its silo's columns.
        pretrain: Silos train for E epochs before the first round.
        rule_name: Name of the rule that chooses silos; None: there is none.
        always_crossing: Key of :data:`CROSSINGS`, of a method for which it is no setting; empty: it is one.
    """

    sgd: LocalSgd = bound()
    silos: int = bound(0)
    most_rows: int = bound(0)
    measure: str = bound("auc")
    learning_rate: float = setting(0.05, "Step size of local training; the thesis names none.")
    network: Network = field(default_factory=Network)

    task: ClassVar[str] = "silos"
    run_settings: ClassVar[type] = SiloRun
    privacy: ClassVar[Any] = None
    for_one_target: ClassVar[bool] = False
    tells_standards: ClassVar[bool] = True
    pretrain: ClassVar[Any] = True
    rule_name: ClassVar[str | None] = None
    always_crossing: ClassVar[str] = ""

    def __post_init__(self):
        if self.sgd is None:  # settings alone
            return
        if self.silos < 1 or self.most_rows < 1:
            raise ConfigError(f"there must be a silo with a row to train on, got {self.silos} of {self.most_rows}.")
        for what, value, options in (("crossing", self.crossing, CROSSINGS), ("measure", self.measure, MEASURES)):
            if value not in options:
                raise ConfigError(f"{what} must be one of {', '.join(options)}, got {value!r}.")
        if CROSSINGS[self.crossing].of_batch_norm and self.net.norm != "batch":
            raise ConfigError(
                f"network.crossing = {self.crossing!r} is about batch norm, and this model has none; give it hidden "
                "layers, as network.widths = [64, 32, 16], and network.norm = 'batch'."
            )
        if CROSSINGS[self.crossing].stays == "head" and not self.net.widths:
            raise ConfigError(
                f"network.crossing = {self.crossing!r} keeps the last layer at the silo, and of a regression nothing "
                "else is left to cross; give it hidden layers, as network.widths = [64, 32, 16]."
            )

    def hold(self, held: Held) -> Held:
        """The rows of a run as this method's parties hold them, from those of all silos.

        Raises:
            ConfigError: The method cannot learn for these targets.
        """
        return held

    def bind(self, parts: Parts) -> Any:
        """The method of a run.

        Args:
            parts: What the run gives.

        Raises:
            ConfigError: The settings do not fit the run.
        """
        net = self.network
        training = net.build(parts.n_features), net.epochs, net.batch, self.learning_rate, net.penalty
        if self.record_privacy is None:
            sgd = LocalSgd(*training)
        else:  # one training is before the first round
            sgd = PrivateSgd(*training, privacy=self.record_privacy, trainings=parts.config.rounds + 1)
            sgd = sgd.for_rows(set(np.ravel(parts.rows).tolist()))
        measure = parts.config.silos.measure
        return dataclasses.replace(self, sgd=sgd, silos=parts.silos, most_rows=parts.most_rows, measure=measure)

    @property
    def record_privacy(self) -> RecordPrivacy | None:
        """Settings of noise, where a record has an ε."""
        return None if self.privacy is None or self.privacy.epsilon is None else self.privacy

    @property
    def crossing(self) -> str:
        """Key of :data:`CROSSINGS`: the numbers of a model that cross."""
        return self.always_crossing or self.network.crossing

    @property
    def net(self) -> TabularNetwork:
        """The network that every silo trains."""
        return self.sgd.network

    @property
    def citations(self) -> tuple[str, ...]:
        """Keys of the publications that the method rests on with its settings; may be empty or repeat."""
        return self.paper, "mcmahan2017fedavg", CROSSINGS[self.crossing].citation

    @cached_property
    def shared_positions(self) -> Int[np.ndarray, " parameters"]:
        """Positions of the numbers of a model that cross, ascending."""
        stays = CROSSINGS[self.crossing].stays
        everything = np.arange(self.net.size)
        return everything if stays is None else np.setdiff1d(everything, self.net.positions(stays))

    @property
    def parameters(self) -> int:
        """Number of a model's numbers that cross."""
        return len(self.shared_positions)

    def begin(self, key: Any, rule: Any = None, target: int = -1) -> PyTree:
        """The state before the first round of a run among several that differ in rule and target.

        Args:
            key: Both words of the server's key; consumed.
            rule: Rule that chooses silos, of methods that have one; None: that of the settings.
            target: The silo of the run; −1: the run is for all.
        """
        return self.init(key)

    @property
    def sizes(self) -> dict[str, int]:  # type: ignore[override]
        """Lengths of the messages' axes."""
        return {"parameters": self.parameters}

    def parties(self, arrays: SiloArrays, splits: Sequence[int] | Int[np.ndarray, " runs"] | None = None) -> Party:
        """All silos of a simulation.

        Args:
            arrays: Rows with leading axes [divisions, silos].
            splits: Which division each run uses; then the leaves of ``own`` are [runs, silos, ...]. Without it all use
                the first, and they are [silos, ...].

        Raises:
            ConfigError: There are not as many silos as the protocol has, or other features.
        """
        _, silos, rows, features = np.shape(arrays.train.x)
        if (silos, rows, features) != (self.silos, self.most_rows, self.net.n_features):
            raise ConfigError(
                f"the protocol is made for {self.silos} silos of at most {self.most_rows} training rows with "
                f"{self.net.n_features} features, the data has {silos} of {rows} with {features}."
            )
        shape = (silos,) if splits is None else (len(splits), silos)
        which = np.zeros(1, np.int32) if splits is None else np.asarray(splits, np.int32)[:, None]
        # What never crosses begins here: γ = 1, statistics that do nothing, a last layer that is the same everywhere.
        fresh = self.net.initial(run_words([_LOCAL_SEED]))[0]
        model = np.broadcast_to(fresh, (*shape, self.net.size))
        own = SiloOwn(
            np.broadcast_to(np.arange(silos, dtype=np.int32), shape),
            np.broadcast_to(which, shape),
            model,
            np.full(shape, -np.inf, np.float32),
            model,
        )
        return Party(arrays, own)

    def first_model(self, key: UInt32[np.ndarray, "*lead 2"]) -> Float32[np.ndarray, "*lead parameters"]:
        """The numbers of fresh networks that cross; both words of each key are consumed."""
        return self.shared_part(self.net.initial(key))

    def shared_part(self, models: Float[np.ndarray, "*lead size"]) -> Float[np.ndarray, "*lead parameters"]:
        """The numbers of models that cross."""
        return models if self.parameters == self.net.size else models[..., self.shared_positions]

    def whole_model(
        self, weights: Float[np.ndarray, "*#lead parameters"], models: Float[np.ndarray, "*#lead size"]
    ) -> Float[np.ndarray, "*lead size"]:
        """Models from the numbers that crossed, and those of silos' own models that do not."""
        lead = np.broadcast_shapes(weights.shape[:-1], models.shape[:-1])
        if self.parameters == self.net.size:
            return np.broadcast_to(weights, (*lead, self.net.size))
        out = np.array(np.broadcast_to(models, (*lead, self.net.size)))
        out[..., self.shared_positions] = weights
        return out

    def offer(self, state: PyTree) -> Any:
        """The message with which the server hands out what training starts from."""
        return Model(state.round, state.weights)

    def starting_model(self, weights: Float[np.ndarray, "silos ..."], party: Party) -> Float[np.ndarray, "silos size"]:
        """The model that each silo's training starts from, given the weights of :meth:`offer`."""
        return self.whole_model(weights, party.own.model)

    def train(
        self, models: Float[np.ndarray, "silos numbers"], party: Party, draws: PyTree, stepper: Any = None
    ) -> Float32[np.ndarray, "silos numbers"]:
        """Models after the silos' local training; ``draws`` and ``stepper`` as :meth:`LocalSgd.train` has them.

        Where the training diverges a model is not finite. It cannot cross then and the server leaves the silo out; see
        :meth:`keep`.
        """
        return self.sgd.train(models, rows_of(party, "train"), draws, stepper)

    def keep(self, party: Party, after: Float[np.ndarray, "silos size"]) -> Party:
        """The silos with their new local models; with the old ones where training diverged."""
        return party._replace(own=party.own._replace(model=finite_or(after, party.own.model)))

    def usable(self, models: Float[np.ndarray, "silos *more size"], party: Party) -> Float[np.ndarray, "..."]:
        """Models as the silos would use them: where it recalibrates, with statistics of the silos' training rows."""
        if not CROSSINGS[self.crossing].recalibrates:
            return models
        rows = rows_of(party, "train")
        silos, *more = models.shape[:-1]

        def beside(leaf: np.ndarray) -> np.ndarray:
            tail = leaf.shape[1:]
            return np.broadcast_to(leaf.reshape(silos, *(1 for _ in more), *tail), (silos, *more, *tail))

        return self.net.recalibrate(models, beside(rows.x), beside(rows.where))

    def performance(
        self, models: Float[np.ndarray, "silos models size"], party: Party, part: Part = "vali", measure: str = ""
    ) -> Float32[np.ndarray, "silos models"]:
        """A measure of models on each silo's rows of a part, larger is better; NaN where it is undefined.

        Args:
            models: Some models for each silo.
            party: The silos.
            part: The rows.
            measure: One of :data:`MEASURES`; by default the protocol's.
        """
        by_auc = (measure or self.measure) == "auc"
        usable = self.usable(models, party)
        out = np.empty(models.shape[:2], np.float32)
        widest = max(self.net.n_features, 2, *self.net.widths)
        size = widest * getattr(party.shared, part).x.shape[-2] * max(1, models.shape[1])
        step = max(1, _AT_ONCE // size)
        for first in range(0, len(models), step):
            here = slice(first, first + step)
            rows = rows_of(some_of(party, here), part)
            most = max(1, int(rows.n.max(initial=0)))  # no more padding than needed
            with np.errstate(all="ignore"):  # numbers of models that diverged
                found = self.net.scores(usable[here], rows.x[:, None, :most])
            if self.sgd.draws_noise and by_auc:
                # One row whose score is no number must not decide, without noise, whether there is an AUC.
                found = np.where(np.isfinite(found), found, np.float32(0))
            labels, where = rows.y[:, None, :most], rows.where[:, None, :most]
            judged = host_auc(found, labels, where) if by_auc else -host_log_loss(found, labels, where)
            out[here] = judged
        return out

    @abc.abstractmethod
    def models(self, state: PyTree, party: Party) -> dict[str, Float[np.ndarray, "silos size"]]:
        """The models that silos could use now, by name: at least ``"last"``, that of the last round.

        Args:
            state: The server's state of one run.
            party: The silos that are asked about.
        """

    @abc.abstractmethod
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        """Privacy report of a number of rounds."""


@dataclass(frozen=True)
class SiloExchange(Exchange):
    """An exchange in which silos train, or do something that needs no random numbers.

    Attributes:
        settings: The protocol.
    """

    settings: Any

    batched = True

    #: Whether the answer takes the random numbers of a local training.
    trains = True
    #: Whether it takes place in the first round only.
    once = False

    @override
    def due(self, number: Any) -> Any:
        return number == 0 if self.once else super().due(number)

    @override
    def draw(self, key: Any) -> PyTree:
        return self.settings.sgd.draw(key, self.rng_shape()) if self.trains else ()

    @override
    def draw_from_os(self) -> PyTree:
        return self.settings.sgd.draw_from_os(self.rng_shape()) if self.trains else ()

    def rng_shape(self) -> tuple[int, int]:
        """Shape of the random bits of an answer: [epochs, rows]."""
        return self.settings.sgd.rng_shape(self.settings.most_rows)


@dataclass(frozen=True)
class Pretrain(SiloExchange, request=Model, reply=Ready):
    """Before round 0 every silo trains the same fresh network and keeps the outcome (Lundahl 2021, Section 8.5)."""

    name, once = "pretrain", True

    @override
    def ask(self, state: PyTree) -> PyTree:
        return self.settings.offer(state)

    def train(self, request: PyTree, party: Party, draws: PyTree) -> Float32[np.ndarray, "silos size"]:
        """Train the silos' first models from the common start."""
        return self.settings.train(self.settings.starting_model(request.weights, party), party, draws)

    @override
    def respond(self, request: PyTree, party: Party, draws: PyTree) -> tuple[Party, Any]:
        return self.settings.keep(party, self.train(request, party, draws)), Ready(row_count(party))

    @override
    def tell(self, state: PyTree, replies: PyTree, arrived: Bool[np.ndarray, " silos"]) -> PyTree:
        return state._replace(rows=update_rows(state.rows, replies.rows, arrived))


def some_of(party: Party, which: Any) -> Party:
    """Some of several silos, by an index of NumPy."""
    return party._replace(own=map_trees(lambda leaf: leaf[which], party.own))


def rows_of(party: Party, part: Part) -> Rows:
    """The silos' own rows of ``train``, ``vali`` or ``test``: leading axis [silos]."""
    return Rows(*(np.asarray(leaf)[party.own.split, party.own.number] for leaf in getattr(party.shared, part)))


def row_count(party: Party) -> UInt32[np.ndarray, " silos"]:
    """Number of rows that each silo has to train on."""
    return np.asarray(party.shared.train.n)[party.own.split, party.own.number].astype(np.uint32)


def update_rows(
    known: Float[np.ndarray, " silos"], reported: UInt32[np.ndarray, " silos"], heard: Bool[np.ndarray, " silos"]
) -> Float[np.ndarray, " silos"]:
    """n_k as far as the server knows: what the silos that were heard reported, else what was known before."""
    return np.where(heard, reported.astype(np.float32), known)


def is_finite(models: Float[np.ndarray, "*lead size"]) -> Bool[np.ndarray, "*lead"]:
    """Mask of models without NaN and infinity."""
    return np.asarray(np.isfinite(models).all(axis=-1))


def finite_or(
    after: Float[np.ndarray, "silos size"], before: Float[np.ndarray, "silos size"]
) -> Float[np.ndarray, "silos size"]:
    """Models after training; those before where training diverged."""
    return np.where(is_finite(after)[:, None], after, before)
