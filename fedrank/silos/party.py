"""What a silo is to every protocol that averages models of silos: its rows, its local model, training and judging.

A silo keeps its rows and its own last model. Which numbers of a model cross is one of :data:`CROSSING`; what does not
cross stays as the silo has it. That is how batch normalisation's statistics, its γ and β, or a last layer stay local.

Axes of arrays: ``size`` numbers of a whole model, ``parameters`` of them cross, ``silos``, ``epochs``, ``rows``.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Key, Shaped, UInt32
from typing_extensions import override

from fedrank.core.arrays import AnyArray, PyTree, module_of
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jnp
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Exchange, Party, Protocol
from fedrank.core.streams import normals, run_words, stream
from fedrank.metrics.auc import auc, log_loss
from fedrank.silos.data.rows import Rows
from fedrank.silos.data.splits import SiloArrays
from fedrank.silos.local_sgd import LocalSgd
from fedrank.silos.messages import Model, Ready
from fedrank.silos.network import TabularNetwork

#: What of a network crosses. ``average``: all of it. ``local``: all but the normalisations, γ, β and statistics (FedBN,
#: Li et al. 2021). ``recalibrate``: all but the running statistics, which whoever uses the model estimates anew on its
#: own training rows. ``head-local``: all but the last layer (FedPer, Arivazhagan et al. 2019).
CROSSING = ("average", "local", "recalibrate", "head-local")

#: What of a network stays at a silo.
_LOCAL_PARTS: dict[str, Literal["norm", "statistics", "head"]] = {
    "local": "norm",
    "recalibrate": "statistics",
    "head-local": "head",
}

#: What a model is judged by on validation rows: larger is better. The log-loss is negated.
MEASURES = ("auc", "log-loss")

#: Which rows of a silo.
Part = Literal["train", "vali", "test"]

#: Seed of the model that a silo has before it has received one; public, and the same at every silo.
_LOCAL_SEED = 0


class SiloOwn(NamedTuple):
    """What a silo keeps for itself; in a simulator every leaf has leading axes [silos] or [runs, silos].

    Attributes:
        number: Which silo of the arrays it is.
        split: Which division of its rows it uses.
        model: Its local model after it trained last.
        best: Performance of the best model that it judged; −∞ before.
        best_model: Its local model when it judged that one: it holds the numbers that do not cross.
    """

    number: Int[AnyArray, "*lead"]
    split: Int[AnyArray, "*lead"]
    model: Float[AnyArray, "*lead size"]
    best: Float[AnyArray, "*lead"]
    best_model: Float[AnyArray, "*lead size"]


@dataclass(frozen=True)
class SiloProtocol(Protocol):
    """Settings that all protocols of silos have.

    Attributes:
        sgd: Local training, and the network.
        silos: k, number of silos.
        most_rows: Training rows of the silo that has most; the others' are padded to it.
        crossing: One of :data:`CROSSING`.
        measure: One of :data:`MEASURES`.
    """

    sgd: LocalSgd
    silos: int
    most_rows: int
    crossing: str = "average"
    measure: str = "auc"

    task: ClassVar[str] = "silos"

    def __post_init__(self):
        if self.silos < 1 or self.most_rows < 1:
            raise ConfigError(f"there must be a silo with a row to train on, got {self.silos} of {self.most_rows}.")
        for what, value, options in (("crossing", self.crossing, CROSSING), ("measure", self.measure, MEASURES)):
            if value not in options:
                raise ConfigError(f"{what} must be one of {', '.join(options)}, got {value!r}.")
        if self.crossing in ("local", "recalibrate") and self.network.norm != "batch":
            raise ConfigError(f"crossing = {self.crossing!r} is about batch norm; this network's norm is another.")

    @property
    def network(self) -> TabularNetwork:
        """The network that every silo trains."""
        return self.sgd.network

    @cached_property
    def crosses(self) -> Int[np.ndarray, " parameters"]:
        """Positions of the numbers of a model that cross, ascending."""
        everything = np.arange(self.network.size)
        if self.crossing == "average":
            return everything
        return np.setdiff1d(everything, self.network.positions(_LOCAL_PARTS[self.crossing]))

    @property
    def parameters(self) -> int:
        """Number of a model's numbers that cross."""
        return len(self.crosses)

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
        if (silos, rows, features) != (self.silos, self.most_rows, self.network.n_features):
            raise ConfigError(
                f"the protocol is made for {self.silos} silos of at most {self.most_rows} training rows with "
                f"{self.network.n_features} features, the data has {silos} of {rows} with {features}."
            )
        shape = (silos,) if splits is None else (len(splits), silos)
        which = np.zeros(1, np.int32) if splits is None else np.asarray(splits, np.int32)[:, None]
        # What never crosses begins here: γ = 1, statistics that do nothing, a last layer that is the same everywhere.
        words = stream(run_words([_LOCAL_SEED]), self.network.size)[0]
        model = np.broadcast_to(self.network.initial_of(normals(words)), (*shape, self.network.size))
        own = SiloOwn(
            np.broadcast_to(np.arange(silos, dtype=np.int32), shape),
            np.broadcast_to(which, shape),
            model,
            np.full(shape, -np.inf, np.float32),
            model,
        )
        return Party(arrays, own)

    def first_model(self, key: Key[Array, ""]) -> Float[AnyArray, " parameters"]:
        """The numbers of a fresh network that cross."""
        return self.shared_part(self.network.initial(key))

    def shared_part(self, model: Float[AnyArray, " size"]) -> Float[AnyArray, " parameters"]:
        """The numbers of a model that cross."""
        return model if self.parameters == self.network.size else model[self.crosses]

    def whole_model(self, weights: Float[AnyArray, " parameters"], own: PyTree) -> Float[AnyArray, " size"]:
        """A model from the numbers that crossed and those that the silo kept of its own."""
        if self.parameters == self.network.size:
            return weights
        return jnp.asarray(own.model).at[self.crosses].set(jnp.asarray(weights))

    def offer(self, state: PyTree) -> Any:
        """The message with which the server hands out what training starts from."""
        return Model(state.round, state.weights)

    def starting_model(self, weights: Float[AnyArray, "..."], party: Party) -> Float[AnyArray, " size"]:
        """The model that a silo's training starts from, given the weights of :meth:`offer`."""
        return self.whole_model(weights, party.own)

    def train(
        self, model: Float[AnyArray, " size"], party: Party, rng_bits: PyTree, **how: Any
    ) -> Float[AnyArray, " size"]:
        """A model after the silo's local training; ``rng_bits`` and ``how`` as :meth:`LocalSgd.train` has them.

        Where the training diverges it is not finite. It cannot cross then and the silo is not heard; see :meth:`keep`.
        """
        return self.sgd.train(model, rows_of(party, "train"), rng_bits, **how)

    def keep(self, party: Party, after: Float[AnyArray, " size"]) -> Party:
        """The silo with its new local model; with its old one where training diverged."""
        return party._replace(own=party.own._replace(model=finite_or(after, party.own.model)))

    def usable(self, model: Float[AnyArray, " size"], party: Party) -> Float[AnyArray, " size"]:
        """A model as the silo would use it: where ``recalibrate``, with statistics of its own training rows."""
        if self.crossing != "recalibrate":
            return model
        rows = rows_of(party, "train")
        return self.network.recalibrated(model, rows.x, jnp.arange(rows.x.shape[0]) < rows.n)

    def performance(self, model: Float[AnyArray, " size"], party: Party, part: Part = "vali") -> Float[AnyArray, ""]:
        """The measure of a model on the silo's rows of a part, larger is better; NaN where it is undefined."""
        rows = rows_of(party, part)
        where = jnp.arange(rows.x.shape[0]) < rows.n
        model = self.usable(model, party)
        if self.measure == "auc":
            scores = self.network.scores(model, rows.x)
            if self.sgd.draws_noise:
                # One row whose score is no number must not decide, without noise, whether there is an AUC.
                scores = jnp.where(jnp.isfinite(scores), scores, 0.0)
            return auc(scores, rows.y, where)
        return -log_loss(self.network.logits(model, rows.x), rows.y, where)

    @abc.abstractmethod
    def models(self, state: PyTree, party: Party) -> dict[str, Float[AnyArray, " size"]]:
        """The models that a silo could use now, by name: at least ``"last"``, that of the last round."""

    @abc.abstractmethod
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        """What everybody gets to know."""


@dataclass(frozen=True)
class SiloExchange(Exchange):
    """An exchange in which silos train, or do something that needs no random numbers.

    Attributes:
        settings: The protocol.
    """

    settings: Any

    #: Whether the answer takes the random numbers of a local training.
    trains = True

    @override
    def draw(self, key: Key[Array, ""]) -> PyTree:
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

    name = "pretrain"

    @override
    def due(self, number: Any) -> Any:
        return number == 0

    @override
    def ask(self, state: PyTree) -> PyTree:
        return self.settings.offer(state)

    def train(self, request: PyTree, party: Party, draws: PyTree) -> Float[AnyArray, " size"]:
        """Train the silo's first model from the common start."""
        return self.settings.train(self.settings.starting_model(request.weights, party), party, draws)

    @override
    def respond(self, request: PyTree, party: Party, draws: PyTree) -> tuple[Party, Any]:
        return self.settings.keep(party, self.train(request, party, draws)), Ready(row_count(party))

    @override
    def tell(self, state: PyTree, replies: PyTree, arrived: Bool[AnyArray, " silos"]) -> PyTree:
        return state._replace(rows=update_rows(state.rows, replies.rows, arrived))


def rows_of(party: Party, part: Part) -> Rows:
    """A silo's own rows of ``train``, ``vali`` or ``test``."""
    return Rows(*(_of_silo(leaf, party.own) for leaf in getattr(party.shared, part)))


def row_count(party: Party) -> UInt32[AnyArray, ""]:
    """Number of rows that a silo has to train on."""
    return _of_silo(party.shared.train.n, party.own).astype(jnp.uint32)


def _of_silo(leaf: Shaped[AnyArray, "divisions silos ..."], own: PyTree) -> Shaped[AnyArray, "..."]:
    """A silo's part of an array; the numbers of silo and division may be traced by JAX where the array is NumPy's."""
    return module_of(own.number).asarray(leaf)[own.split, own.number]


def update_rows(
    known: Float[AnyArray, " silos"], told: UInt32[AnyArray, " silos"], heard: Bool[AnyArray, " silos"]
) -> Float[AnyArray, " silos"]:
    """n_k as far as the server knows: what the silos that were heard said, else what was known before."""
    return module_of(known).where(heard, told.astype(np.float32), known)


def is_finite(models: Float[AnyArray, "*lead size"]) -> Bool[AnyArray, "*lead"]:
    """Which models have no NaN and no infinity."""
    xp = module_of(models)
    return xp.all(xp.isfinite(models), axis=-1)


def finite_or(after: Float[AnyArray, " size"], before: Float[AnyArray, " size"]) -> Float[AnyArray, " size"]:
    """A model after training; the one before where training diverged."""
    return jnp.where(jnp.all(jnp.isfinite(after)), after, before)
