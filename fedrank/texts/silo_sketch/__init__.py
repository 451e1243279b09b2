"""CS-F-LTR: silos train one ranker, also on their queries with the others' documents, whose labels are guessed.

Shi, Wang, Zheng, Tong: *Cross-silo Federated Learning-to-rank*, Journal of Software 32(3), 2021 (JOS); its
sibling Wang, Tong, Shi, Xu: *An Efficient Approach for Cross-Silo Federated Learning to Rank*, ICDE 2021, learns
without the labeller. Here is Algorithm 3 of the former::

    1–2  every silo Pᵢ trains Mᵢ on its labelled rows (Xᵢ, yᵢ)                          exchange "local"
    3–4  M = Agg(M₁ … Mₙ), the mean of the parameters: labeller and first ranker        its tell
    5    y′ = M(x′) for the cross pairs x′ ∈ X′ᵢ                                        exchange "label"
    6–9  θ ← θ + Δθ, from batches of labelled and guessed rows, in turn or all at once  exchange "step"
    10   M

    minimise over θ   Σ_(Xᵢ,yᵢ) L(M(θ, x), y) + β Σ_X′ᵢ L(M(θ, x′), y′) + λ‖θ‖²          (equation 9)

The rows are made from private sketches in the setup before the first round: :mod:`fedrank.texts.silo_sketch.setup`.

A step takes the mean loss of a batch of each kind, so that β weighs the two means; the paper's sums weigh a kind by its
number of rows, too. Models are averaged as they are, also where each silo scales features by its own rows.

The paper's baselines are trained in the same run. A silo keeps its own ``Local`` model, which it never changes, and
``Local+``: trained for as many steps again, also on cross pairs, whose labels its own model guessed once (the paper's
are guessed anew by the model of the last round). ``Global`` is β = 0, labelled rows only. A silo whose validation
queries are ranked better by its own model need not adopt the common one (:meth:`SiloSketch.models`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int32, Shaped, UInt32
from typing_extensions import override

from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.fields import bound, setting
from fedrank.core.lazy import jax, jnp
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Exchange, Party, Protocol
from fedrank.engine.config import check_ranges
from fedrank.privacy.randomised_response import os_words
from fedrank.texts.config import Privacy, Sketch, TextsRun, Training
from fedrank.texts.data.features import NAMES
from fedrank.texts.graded import Batch, GradedLearner
from fedrank.texts.silo_sketch.messages import Begin, Change, Labelled, Labeller, LocalModel, Ranker
from fedrank.texts.silo_sketch.setup import SketchSetup
from fedrank.texts.silo_sketch.state import SketchOwn, SketchRows, SketchState, rows_of

#: Name of the common ranker among :meth:`SiloSketch.models`.
FEDERATED = "CS-F-LTR"


class Parts(NamedTuple):
    """Parts that a run gives to the method besides its settings: sizes that all silos know before anything crosses.

    Attributes:
        config: Settings of the run; its ``texts.documents`` wins over the size here.
        silos: Number of silos.
        grades: Number of grades.
        documents: Largest number of documents of a silo.
        words: Largest number of different query words of a silo.
        occurrences: Words of the longest document, for the privacy account.
    """

    config: TextsRun
    silos: int
    grades: int
    documents: int
    words: int
    occurrences: int = 0


@dataclass(frozen=True)
class SiloSketch(Protocol):
    """Silos train one ranker over each other's queries and documents, through private sketches (CS-F-LTR).

    A run fills in the attributes below (:meth:`bind`).

    Attributes:
        learner: Ranker, loss, labels and step size.
        setup: The protocol that makes the silos' rows; None where they have rows.

    Raises:
        ConfigError: A number is out of range.
    """

    learning_rate: float = setting(0.05, "Step size of SGD; the papers name none.")
    sketch: Sketch = field(default_factory=Sketch)
    training: Training = field(default_factory=Training)
    privacy: Privacy = field(default_factory=Privacy)
    learner: GradedLearner = bound()
    setup: SketchSetup | None = bound()  # type: ignore[assignment] - the setup of this protocol

    name = "silo-sketch"
    task = "texts"
    paper = "shi2021csfltr"
    published = "Shi et al.: Cross-silo Federated Learning-to-rank, J. Software 2021; Wang et al., ICDE 2021"
    crosses = "noisy sketches of documents, a secure sum of statistics, changes of a ranker"
    recommended = True
    run_settings: ClassVar[type[TextsRun]] = TextsRun
    setup_class: ClassVar[type[SketchSetup]] = SketchSetup

    def __post_init__(self):
        check_ranges(self)

    def resolved(self) -> Any:
        """The same with the defaults of the mode of sketches filled in.

        Raises:
            ConfigError: Settings contradict each other.
        """
        if self.sketch.mode == "plain" and self.sketch.epsilon is not None:
            raise ConfigError(
                "sketch.mode = 'plain' has no noise, so that sketch.epsilon means nothing; leave one of them out."
            )
        return dataclasses.replace(self, sketch=self.sketch.with_defaults())

    def bind(self, parts: Parts) -> Any:
        """The method of a run, with its learner and its setup.

        Args:
            parts: What the run gives.

        Raises:
            ConfigError: The settings do not fit the run.
        """
        training = self.training
        features, grades = len(NAMES), parts.grades
        learner = GradedLearner(features, grades, training.loss, training.labels, training.l2, self.learning_rate)
        return dataclasses.replace(self, learner=learner, setup=self.setup_of(parts))

    def setup_of(self, parts: Parts, **more: Any) -> SketchSetup:
        """The setup of a run.

        Args:
            parts: What the run gives.
            more: Attributes that the method's class of setups has beside.
        """
        return self.setup_class(
            silos=parts.silos,
            texts=parts.config.texts,
            sketch=self.sketch,
            delta=self.privacy.delta,
            seed=parts.config.data_seed,
            documents=parts.config.texts.documents or parts.documents,
            occurrences=parts.occurrences,
            **more,
        )

    @cached_property
    def trainer(self) -> Any:
        """The same without sketches and setup, which change no step: runs with other noise share compiled programs."""
        return dataclasses.replace(self, sketch=type(self.sketch)(), privacy=Privacy(), setup=None)

    @cached_property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        return TrainAlone(self), LabelPairs(self), TakeSteps(self)

    @property
    def sizes(self) -> dict[str, int]:
        """Number of parameters of the ranker."""
        return {"parameters": self.learner.size}

    @override
    def init(self, key: Any) -> SketchState:
        del key  # rankers begin at zero
        first = self.learner.initial()
        return SketchState(jnp.uint32(0), first, first)

    @override
    def weights(self, state: SketchState) -> Float32[Array, " ..."]:
        return state.weights

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        del rounds, delta  # of the setup; training has no noise and no bound
        assert self.setup is not None  # the run is built
        return self.setup.promise

    def parties(
        self,
        rows: SketchRows,
        beta: Sequence[float] | None = None,
        features: Sequence[int] | None = None,
        truth: Sequence[bool] | None = None,
    ) -> Party:
        """The silos of all runs. Runs are variants × splits, with splits as the inner axis.

        Args:
            rows: Rows of every silo, leaves [feature sets, splits, silos, ...].
            beta: β of each variant; None for one variant with this protocol's β.
            features: Feature set of each variant; None for the first.
            truth: Whether the cross pairs of each variant have their true labels; None for no.

        Returns:
            A party whose own leaves are [runs, silos, ...].
        """
        variants = 1 if beta is None else len(beta)
        _, splits, silos, queries, foreign = rows.cross_where.shape
        runs = variants * splits
        values = (
            np.zeros(variants) if features is None else np.asarray(features),
            np.full(variants, self.training.beta) if beta is None else np.asarray(beta),
            np.zeros(variants, bool) if truth is None else np.asarray(truth),
        )
        feature, weight, true = (np.repeat(value, splits) for value in values)
        own = SketchOwn(
            _for_each_silo(feature, silos, jnp.int32),
            _for_each_silo(np.tile(np.arange(splits), variants), silos, jnp.int32),
            jnp.broadcast_to(jnp.arange(silos, dtype=jnp.int32), (runs, silos)),
            _for_each_silo(weight, silos, jnp.float32),
            _for_each_silo(true, silos, bool),
            jnp.zeros((runs, silos, self.learner.size), jnp.float32),
            jnp.zeros((runs, silos, self.learner.size), jnp.float32),
            jnp.zeros((runs, silos, queries, foreign, self.learner.grades), jnp.float32),
        )
        return Party(jax.tree.map(jnp.asarray, rows), own)

    def models(self, state: SketchState, party: Party) -> dict[str, Float32[Array, " ..."]]:
        """The rankers that a silo could use, by name: the common one, Local and Local+."""
        return {FEDERATED: state.weights, "Local": party.own.local, "Local+": party.own.plus}

    def train(
        self,
        model: Float32[Array, " size"],
        party: Party,
        guessed: Float32[Array, "queries foreign grades"],
        rng_bits: UInt32[Array, " 2"],
        first: int | Float32[Array, ""],
        steps: int,
        beta: Float32[Array, ""],
    ) -> Float32[Array, " size"]:
        """A ranker after some SGD steps at one silo.

        Args:
            model: The ranker before.
            party: The silo.
            guessed: Labels of its cross pairs, as distributions over the grades.
            rng_bits: Random bits that batches are drawn from.
            first: Number of the first of these steps, for the ramp.
            steps: Number of steps.
            beta: β after the ramp.
        """
        rows, key, t = rows_of(party), jax.random.wrap_key_data(rng_bits), self.training
        grades = self.learner.of_grades(rows.y)

        def step(model, number):
            own_key, cross_key = jax.random.split(jax.random.fold_in(key, number))
            done = jnp.asarray(first, jnp.float32) + number.astype(jnp.float32)
            ramp = jnp.minimum(1.0, done / t.ramp) if t.ramp else 1.0
            own = self._batch(own_key, rows.x, grades, rows.where, rows.rows, rows, 0, t.batch)
            cross = self._batch(
                cross_key, rows.cross_x, guessed, rows.cross_where, rows.cross_rows, rows, 1, t.cross_batch
            )
            return self.learner.step(model, own, cross, beta * ramp * jnp.any(cross.where)), None

        model, _ = jax.lax.scan(step, model, jnp.arange(steps, dtype=jnp.uint32))
        return model

    def _batch(
        self,
        key: Any,
        x: Float32[Array, "queries documents features"],
        grades: Float32[Array, "queries documents grades"],
        where: Bool[Array, "queries documents"],
        places: Int32[Array, " rows"],
        rows: SketchRows,
        which: int,
        size: int,
    ) -> Batch:
        """A batch of ``size`` rows of training queries, or of lists with about as many; with replacement."""
        if self.learner.pointwise:
            chosen = places[jax.random.randint(key, (size,), 0, jnp.maximum(rows.counts[which], 1))]
            there = jnp.broadcast_to(rows.counts[which] > 0, (size,))
            return Batch(x.reshape(-1, x.shape[-1])[chosen], grades.reshape(-1, grades.shape[-1])[chosen], there)
        lists = max(1, size // max(1, x.shape[1]))
        chosen = rows.queries[jax.random.randint(key, (lists,), 0, jnp.maximum(rows.counts[2], 1))]
        return Batch(x[chosen], grades[chosen], where[chosen] & (rows.counts[2] > 0))


@dataclass(frozen=True)
class _Training(Exchange):
    """An exchange in which silos train.

    Attributes:
        settings: The protocol.
    """

    settings: SiloSketch

    @override
    def draw(self, key: Any) -> UInt32[Array, " 2"]:
        return jax.random.bits(key, (2,), jnp.uint32)

    @override
    def draw_from_os(self) -> UInt32[Array, " 2"]:
        return jnp.asarray(os_words((2,)))  # which rows make a batch is no protection


class TrainAlone(_Training, request=Begin, reply=LocalModel):
    """Lines 1 to 4: every silo trains by itself; the server takes the mean, as labeller and as first ranker."""

    name = "local"

    @override
    def due(self, number: Any) -> Any:
        return number == 0

    @override
    def ask(self, state: SketchState) -> Begin:
        return Begin(state.round)

    @override
    def respond(self, request: Begin, party: Party, draws: UInt32[Array, " 2"]) -> tuple[Party, LocalModel]:
        """Train Local, and Local+ from it; Local is sent, both are kept."""
        s, own, t = self.settings, party.own, self.settings.training
        rows = rows_of(party)
        local_bits, plus_bits = draws, draws ^ jnp.uint32(0x9E3779B9)
        none = jnp.zeros_like(own.guessed)
        local = s.train(s.learner.initial(), party, none, local_bits, 0, t.local_steps, jnp.float32(0))
        guessed = s.learner.labels(local, rows.cross_x)
        plus = s.train(local, party, guessed, plus_bits, 0, t.local_steps, jnp.float32(t.plus_beta))
        party = party._replace(own=own._replace(local=local, plus=plus))
        return party, LocalModel(local, rows.counts[0].astype(jnp.uint32))

    @override
    def tell(self, state: SketchState, replies: LocalModel, arrived: Bool[Array, " silos"]) -> SketchState:
        mean = _mean(replies.weights, arrived, state.weights)
        return state._replace(weights=mean, labeller=mean)


class LabelPairs(_Training, request=Labeller, reply=Labelled):
    """Line 5: the server sends the labeller, and every silo keeps the labels that it guesses for its cross pairs."""

    name = "label"

    @override
    def due(self, number: Any) -> Any:
        return number == 0

    @override
    def ask(self, state: SketchState) -> Labeller:
        return Labeller(state.round, state.labeller)

    @override
    def respond(self, request: Labeller, party: Party, draws: UInt32[Array, " 2"]) -> tuple[Party, Labelled]:
        s, rows = self.settings, rows_of(party)
        guessed = s.learner.labels(jnp.asarray(request.weights), rows.cross_x)
        # A control of simulations takes the true labels instead.
        guessed = jnp.where(party.own.truth, s.learner.of_grades(rows.cross_y), guessed)
        party = party._replace(own=party.own._replace(guessed=guessed))
        return party, Labelled(rows.counts[1].astype(jnp.uint32))

    @override
    def tell(self, state: SketchState, replies: Labelled, arrived: Bool[Array, " silos"]) -> SketchState:
        return state


class TakeSteps(_Training, request=Ranker, reply=Change):
    """Lines 6 to 9: SGD steps from the common ranker; the server adds their mean, or one silo's after the other."""

    name = "step"

    @override
    def asked(self, state: SketchState, parties: int) -> Bool[Array, " silos"] | None:
        if not self.settings.training.serial:
            return None
        return jnp.arange(parties) == state.round.astype(jnp.int32) % parties

    @override
    def max_asked(self, parties: int) -> int:
        return 1 if self.settings.training.serial else parties

    @override
    def ask(self, state: SketchState) -> Ranker:
        return Ranker(state.round, state.weights)

    @override
    def respond(self, request: Ranker, party: Party, draws: UInt32[Array, " 2"]) -> tuple[Party, Change]:
        s, before = self.settings, jnp.asarray(request.weights)
        steps = s.training.steps
        done = jnp.asarray(request.round).astype(jnp.float32) * steps
        after = s.train(before, party, party.own.guessed, draws, done, steps, party.own.beta)
        return party, Change(after - before)

    @override
    def tell(self, state: SketchState, replies: Change, arrived: Bool[Array, " silos"]) -> SketchState:
        weights = state.weights + _mean(replies.weights, arrived, jnp.zeros_like(state.weights))
        return state._replace(round=state.round + jnp.uint32(1), weights=weights)


def _mean(
    rows: Float32[Array, "silos size"], arrived: Bool[Array, " silos"], otherwise: Float32[Array, " size"]
) -> Float32[Array, " size"]:
    """Mean of the rows that arrived and are finite; ``otherwise`` where there are none."""
    good = jnp.asarray(arrived) & jnp.all(jnp.isfinite(rows), axis=-1)
    total = jnp.sum(jnp.where(good[:, None], rows, 0.0), axis=0)
    return jnp.where(jnp.any(good), total / jnp.maximum(jnp.sum(good), 1), otherwise)


def _for_each_silo(values: Shaped[np.ndarray, " runs"], silos: int, dtype: Any) -> Shaped[Array, "runs silos"]:
    """The value of each run, repeated for its silos."""
    return jnp.broadcast_to(jnp.asarray(values, dtype)[:, None], (len(values), silos))
