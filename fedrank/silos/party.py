"""What a silo is, to every protocol that averages models of silos: rows, a local model, training, judging.

A silo keeps its rows and its own last model. Which numbers of a model cross is one of :data:`CROSSING`; what does not
cross stays as the silo has it. That is how batch normalisation's statistics, its γ and β, or a last layer stay local.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedrank.core.errors import ConfigError
from fedrank.core.protocol import Exchange, Party, Promise, Protocol
from fedrank.metrics.auc import auc, log_loss
from fedrank.privacy.randomised_response import os_words
from fedrank.silos.data.rows import Rows
from fedrank.silos.data.splits import SiloArrays
from fedrank.silos.local_sgd import LocalSgd
from fedrank.silos.network import TabularNetwork

#: What of a network crosses. ``average``: all of it. ``local``: all but the normalisations, γ, β and statistics (FedBN,
#: Li et al. 2021). ``recalibrate``: all but the running statistics, which whoever uses the model estimates anew on its
#: own training rows. ``head-local``: all but the last layer (FedPer, Arivazhagan et al. 2019).
CROSSING = ("average", "local", "recalibrate", "head-local")

#: What of a network stays at a silo.
_STAYS: dict[str, Literal["norm", "statistics", "head"]] = {
    "local": "norm",
    "recalibrate": "statistics",
    "head-local": "head",
}

#: What a model is judged by on validation rows: larger is better. Of a loss, minus it.
MEASURES = ("auc", "log-loss")


#: Key of what a silo has before it has received anything; public, and the same at every silo.
_LOCAL = 0


class SiloOwn(NamedTuple):
    """What a silo has for itself.

    Attributes:
        number: int32, which silo of the arrays it is.
        split: int32, which division of its rows it uses.
        model: float32 [size], its local model after it trained last.
        best: float32, how good the best average was that it judged; −∞ before.
        best_model: float32 [size], its local model when it judged that: with what did not cross.
    """

    number: Any
    split: Any
    model: Any
    best: Any
    best_model: Any


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
        """The network."""
        return self.sgd.network

    @cached_property
    def crosses(self) -> np.ndarray:
        """Which numbers of a model cross: int [parameters], ascending."""
        everything = np.arange(self.network.size)
        if self.crossing == "average":
            return everything
        return np.setdiff1d(everything, self.network.positions(_STAYS[self.crossing]))

    @property
    def parameters(self) -> int:
        """How many numbers of a model cross."""
        return len(self.crosses)

    def parties(self, arrays: SiloArrays, splits: Any = None) -> Party:
        """All silos of a simulation.

        Args:
            arrays: Rows with leading axes [divisions, silos].
            splits: int [runs], which division each run uses; then the leaves of ``own`` are [runs, silos, ...]. Without
                it all use the first, and they are [silos, ...].

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
        which = jnp.zeros((1,), jnp.int32) if splits is None else jnp.asarray(splits, jnp.int32)[:, None]
        # What never crosses begins here: γ = 1, statistics that do nothing, a last layer that is the same everywhere.
        fresh = self.network.initial(jax.random.key(_LOCAL))
        own = SiloOwn(
            jnp.broadcast_to(jnp.arange(silos, dtype=jnp.int32), shape),
            jnp.broadcast_to(which, shape),
            jnp.broadcast_to(fresh, (*shape, self.network.size)),
            jnp.full(shape, -jnp.inf, jnp.float32),
            jnp.broadcast_to(fresh, (*shape, self.network.size)),
        )
        return Party(jax.tree.map(jnp.asarray, arrays), own)

    def first_model(self, key: Any) -> jax.Array:
        """A fresh network, what crosses of it: float32 [parameters]."""
        return self.sent(self.network.initial(key))

    def sent(self, model: jax.Array) -> jax.Array:
        """What crosses of a model [size]: float32 [parameters]."""
        return model if self.parameters == self.network.size else model[self.crosses]

    def received(self, weights: jax.Array, own: Any) -> jax.Array:
        """A whole model [size] from what crossed, with what the silo kept of its own."""
        return weights if self.parameters == self.network.size else own.model.at[self.crosses].set(weights)

    def trained(self, model: jax.Array, party: Party, words: jax.Array, **how: Any) -> jax.Array:
        """A model [size] after the silo's local training; ``how`` as :meth:`LocalSgd.train` has it.

        Where the training runs away it is not finite. It cannot cross then and the silo is not heard; see :meth:`kept`.
        """
        return self.sgd.train(model, rows_of(party, "train"), words, **how)

    def kept(self, party: Party, after: jax.Array) -> Party:
        """The silo with its new local model; with its old one, where training ran away."""
        model = jnp.where(jnp.all(jnp.isfinite(after)), after, party.own.model)
        return party._replace(own=party.own._replace(model=model))

    def usable(self, model: jax.Array, party: Party) -> jax.Array:
        """A model [size] as the silo would use it: where ``recalibrate``, with statistics of its own training rows."""
        if self.crossing != "recalibrate":
            return model
        rows = rows_of(party, "train")
        return self.network.recalibrated(model, rows.x, jnp.arange(rows.x.shape[0]) < rows.n)

    def judged(self, model: jax.Array, party: Party, part: str = "vali") -> jax.Array:
        """How good a model [size] is on the silo's rows of a part, float32; NaN where that is undefined."""
        rows = rows_of(party, part)
        where = jnp.arange(rows.x.shape[0]) < rows.n
        model = self.usable(model, party)
        if self.measure == "auc":
            return auc(self.network.scores(model, rows.x), rows.y, where)
        return -log_loss(self.network.logits(model, rows.x), rows.y, where)

    @abc.abstractmethod
    def models(self, state: Any, party: Party) -> dict[str, jax.Array]:
        """The models [size] that a silo could use now, by name: at least ``"last"``, that of the last round."""

    @abc.abstractmethod
    def account(self, rounds: int, delta: float) -> Promise:
        """What everybody gets to know; nothing is noised."""


@dataclass(frozen=True)
class SiloExchange(Exchange):
    """An exchange in which silos train, or do something that takes no chance.

    Attributes:
        settings: The protocol.
    """

    settings: Any

    #: Whether the answer takes the chance of a local training.
    trains = True

    def draw(self, key: Any) -> Any:
        """The words of a local training's shuffles; nothing where there is none."""
        if not self.trains:
            return ()
        return jax.random.bits(key, self._shape(), jnp.uint32)

    def draw_from_os(self) -> Any:
        """The same from the operating system. The order of rows protects nobody."""
        return jnp.asarray(os_words(self._shape())) if self.trains else ()

    def _shape(self) -> tuple[int, int]:
        return self.settings.sgd.words(self.settings.most_rows)


def rows_of(party: Party, part: str) -> Rows:
    """A silo's own rows of ``train``, ``vali`` or ``test``."""
    own = party.own
    rows = getattr(party.shared, part)
    return Rows(*(leaf[own.split, own.number] for leaf in rows))
