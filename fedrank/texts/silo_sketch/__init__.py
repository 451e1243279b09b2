"""CS-F-LTR: silos train one ranker, each also on its queries with the others' documents, whose labels it guesses.

Shi, Wang, Zheng, Tong: *Cross-silo Federated Learning-to-rank*, Journal of Software 32(3), 2021 (JOS); its
sibling Wang, Tong, Shi, Xu: *An Efficient Approach for Cross-Silo Federated Learning to Rank*, ICDE 2021, learns
without the labeller. Here is Algorithm 3 of the former::

    1–2  every silo Pᵢ trains Mᵢ on its labelled rows (Xᵢ, yᵢ)                          exchange "local"
    3–4  M = Agg(M₁ … Mₙ), the mean of the parameters: labeller and first ranker        its tell
    5    y′ = M(x′) for the cross pairs x′ ∈ X′ᵢ                                        exchange "label"
    6–9  θ ← θ + Δθ, from batches of labelled and guessed rows, in turn or all at once  exchange "step"
    10   M

    minimise over θ   Σ_(Xᵢ,yᵢ) L(M(θ, x), y) + β Σ_X′ᵢ L(M(θ, x′), y′) + λ‖θ‖²          (equation 9)

Where the rows come from, private sketches, is the opening: :mod:`fedrank.texts.silo_sketch.setup`.

A step takes the mean loss of a batch of each kind, so that β weighs the two means; the paper's sums weigh a kind by its
number of rows, too. Models are averaged as they are, also where each silo scales features by its own rows.

What the paper compares with is learnt on the way. A silo keeps its own ``Local`` model, which it never changes, and
``Local+``: trained for as many steps again, also on cross pairs, whose labels its own model guessed once (the paper's
are guessed anew by the model of the last round). ``Global`` is β = 0, labelled rows only. A silo
whose validation queries are ranked better by its own model need not adopt everybody's (:meth:`SiloSketch.models`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedrank.core.errors import ConfigError
from fedrank.core.messages import Layout
from fedrank.core.protocol import Exchange, Party, Promise, Protocol
from fedrank.privacy.randomised_response import os_words
from fedrank.texts.graded import Batch, GradedLearner
from fedrank.texts.silo_sketch.messages import (
    Begin,
    Change,
    Labelled,
    Labeller,
    LocalModel,
    Ranker,
    begin_layout,
    change_layout,
    labelled_layout,
    labeller_layout,
    local_model_layout,
    ranker_layout,
)
from fedrank.texts.silo_sketch.state import SketchOwn, SketchRows, SketchState, rows_of

#: Name of everybody's ranker among :meth:`SiloSketch.models`.
FEDERATED = "CS-F-LTR"


@dataclass(frozen=True)
class SiloSketch(Protocol):
    """Algorithm 3 with its settings.

    Attributes:
        learner: Ranker, loss, labels and step size.
        silos: Number of silos.
        promise: What the opening's noise promises; training adds nothing to it, and nothing here is noised.
        local_steps: Steps of SGD of a silo by itself.
        steps: Steps of SGD of a silo in a round; the paper's is 1.
        batch: Labelled rows in a batch; lists of as many rows where a loss is about lists.
        cross_batch: Cross pairs in a batch.
        beta: β, weight of guessed labels.
        ramp: Steps in which β grows from 0, linearly.
        plus_beta: β of Local+.
        serial: One silo a round, in turn, instead of all at once.
        opening: How silos come to their rows; None where they have them.
    """

    learner: GradedLearner
    silos: int
    # Neither changes a step of training, so that runs with other noise share a compiled program.
    promise: Any = field(compare=False)
    local_steps: int = 1000
    steps: int = 1
    batch: int = 200
    cross_batch: int = 200
    beta: float = 0.3
    ramp: int = 200
    plus_beta: float = 0.3
    serial: bool = False
    opening: Protocol | None = field(default=None, compare=False)

    name = "silo-sketch"

    def __post_init__(self):
        for what, value in (
            ("silos", self.silos),
            ("local_steps", self.local_steps),
            ("steps", self.steps),
            ("batch", self.batch),
            ("cross_batch", self.cross_batch),
        ):
            if value < 1:
                raise ConfigError(f"{what} must be at least 1, got {value}.")
        if not (self.beta >= 0 and self.plus_beta >= 0 and self.ramp >= 0):
            raise ConfigError(
                f"beta, plus_beta and ramp must not be negative, got {self.beta}, {self.plus_beta}, {self.ramp}."
            )

    @cached_property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Alone first, then labels, then steps; the first two in the first round only."""
        return TrainAlone(self), LabelPairs(self), TakeSteps(self)

    def init(self, key: Any) -> SketchState:
        """Nothing is drawn: rankers begin at zero."""
        del key
        first = self.learner.initial()
        return SketchState(jnp.uint32(0), first, first)

    def weights(self, state: SketchState) -> jax.Array:
        """Everybody's ranker, float32 [size]."""
        return state.weights

    def account(self, rounds: int, delta: float) -> Promise:
        """What the opening promises; training costs nothing further by the paper's account, and has no bound."""
        del rounds, delta
        return self.promise

    def parties(self, rows: SketchRows, beta: Any = None, features: Any = None, truth: Any = None) -> Party:
        """All silos of all splits: leaves of ``own`` are [runs, silos, ...].

        Args:
            rows: Every silo's rows, [feature sets, splits, silos, ...].
            beta: β of each run, float [runs]; None: this protocol's.
            features: Feature set of each run, integers [runs]; None: the first.
            truth: Whether a run's cross pairs have their true labels, bool [runs].

        Returns:
            Runs are variants · splits, splits inside, where the arguments have as many entries as there are variants.
        """
        variants = 1 if beta is None else len(beta)
        _, splits, silos, queries, foreign = rows.cross_where.shape
        runs = variants * splits
        values = (
            np.zeros(variants) if features is None else np.asarray(features),
            np.full(variants, self.beta) if beta is None else np.asarray(beta),
            np.zeros(variants, bool) if truth is None else np.asarray(truth),
        )
        feature, weight, true = (np.repeat(value, splits) for value in values)
        own = SketchOwn(
            _each(feature, silos, jnp.int32),
            _each(np.tile(np.arange(splits), variants), silos, jnp.int32),
            jnp.broadcast_to(jnp.arange(silos, dtype=jnp.int32), (runs, silos)),
            _each(weight, silos, jnp.float32),
            _each(true, silos, bool),
            jnp.zeros((runs, silos, self.learner.size), jnp.float32),
            jnp.zeros((runs, silos, self.learner.size), jnp.float32),
            jnp.zeros((runs, silos, queries, foreign, self.learner.grades), jnp.float32),
        )
        return Party(jax.tree.map(jnp.asarray, rows), own)

    def models(self, state: SketchState, party: Party) -> dict[str, jax.Array]:
        """The rankers that a silo could use, by name: everybody's, its own, and its own taught by itself."""
        return {FEDERATED: state.weights, "Local": party.own.local, "Local+": party.own.plus}

    def trained(
        self, model: jax.Array, party: Party, guessed: jax.Array, words: jax.Array, first: Any, steps: int, beta: Any
    ) -> jax.Array:
        """A ranker [size] after some steps of SGD.

        Args:
            model: float32 [size].
            party: The silo.
            guessed: Labels of its cross pairs, float32 [queries, foreign, grades].
            words: uint32 [2]: the chance of its batches.
            first: Number of the first of these steps, for the ramp.
            steps: How many.
            beta: β after the ramp.
        """
        rows, key = rows_of(party), jax.random.wrap_key_data(words)
        grades = self.learner.of_grades(rows.y)

        def step(model, number):
            own_key, cross_key = jax.random.split(jax.random.fold_in(key, number))
            done = jnp.asarray(first, jnp.float32) + number.astype(jnp.float32)
            ramp = jnp.minimum(1.0, done / self.ramp) if self.ramp else 1.0
            own = self._batch(own_key, rows.x, grades, rows.where, rows.rows, rows, 0, self.batch)
            cross = self._batch(
                cross_key, rows.cross_x, guessed, rows.cross_where, rows.cross_rows, rows, 1, self.cross_batch
            )
            return self.learner.step(model, own, cross, beta * ramp * jnp.any(cross.where)), None

        model, _ = jax.lax.scan(step, model, jnp.arange(steps, dtype=jnp.uint32))
        return model

    def _batch(self, key, x, grades, where, places, rows: SketchRows, which: int, size: int) -> Batch:
        """Rows, or lists of about as many, of training queries; with replacement."""
        if self.learner.pointwise:
            chosen = places[jax.random.randint(key, (size,), 0, jnp.maximum(rows.counts[which], 1))]
            there = jnp.broadcast_to(rows.counts[which] > 0, (size,))
            return Batch(x.reshape(-1, x.shape[-1])[chosen], grades.reshape(-1, grades.shape[-1])[chosen], there)
        lists = max(1, size // max(1, x.shape[1]))
        chosen = rows.queries[jax.random.randint(key, (lists,), 0, jnp.maximum(rows.counts[2], 1))]
        return Batch(x[chosen], grades[chosen], where[chosen] & (rows.counts[2] > 0))


@dataclass(frozen=True)
class _Trains(Exchange):
    """An exchange in which silos train.

    Attributes:
        settings: The protocol.
    """

    settings: SiloSketch

    def draw(self, key: Any) -> Any:
        """What batches are drawn from: uint32 [2]."""
        return jax.random.bits(key, (2,), jnp.uint32)

    def draw_from_os(self) -> Any:
        """The same from the operating system. Which rows make a batch protects nobody."""
        return jnp.asarray(os_words((2,)))

    @property
    def size(self) -> int:
        """Numbers of a model."""
        return self.settings.learner.size


class TrainAlone(_Trains):
    """Lines 1 to 4: every silo by itself; the server takes the mean, as labeller and as first ranker."""

    name = "local"

    @property
    def request(self) -> Layout[Begin]:
        """A round's number."""
        return begin_layout()

    @property
    def reply(self) -> Layout[LocalModel]:
        """A model."""
        return local_model_layout(self.size)

    def due(self, number: Any) -> Any:
        """Once."""
        return number == 0

    def ask(self, state: SketchState) -> Begin:
        """To begin."""
        return Begin(state.round)

    def respond(self, request: Begin, party: Party, draws: Any) -> tuple[Party, LocalModel]:
        """Train, and train on: the first is sent, both are kept."""
        s, own = self.settings, party.own
        rows = rows_of(party)
        words, more = draws, draws ^ jnp.uint32(0x9E3779B9)
        none = jnp.zeros_like(own.guessed)
        local = s.trained(s.learner.initial(), party, none, words, 0, s.local_steps, jnp.float32(0))
        mine = s.learner.labels(local, rows.cross_x)
        plus = s.trained(local, party, mine, more, 0, s.local_steps, jnp.float32(s.plus_beta))
        party = party._replace(own=own._replace(local=local, plus=plus))
        return party, LocalModel(local, rows.counts[0].astype(jnp.uint32))

    def tell(self, state: SketchState, replies: LocalModel, arrived: Any) -> SketchState:
        """M, the mean of the models that arrived."""
        mean = _mean(replies.weights, arrived, state.weights)
        return state._replace(weights=mean, labeller=mean)


class LabelPairs(_Trains):
    """Line 5: the labeller goes round, and every silo keeps the labels that it guesses."""

    name = "label"

    @property
    def request(self) -> Layout[Labeller]:
        """A model."""
        return labeller_layout(self.size)

    @property
    def reply(self) -> Layout[Labelled]:
        """A count."""
        return labelled_layout()

    def due(self, number: Any) -> Any:
        """Once."""
        return number == 0

    def ask(self, state: SketchState) -> Labeller:
        """The labeller."""
        return Labeller(state.round, state.labeller)

    def respond(self, request: Labeller, party: Party, draws: Any) -> tuple[Party, Labelled]:
        """Guess; where a simulation's control knows the truth, take that."""
        s, rows = self.settings, rows_of(party)
        guessed = s.learner.labels(jnp.asarray(request.weights), rows.cross_x)
        guessed = jnp.where(party.own.truth, s.learner.of_grades(rows.cross_y), guessed)
        party = party._replace(own=party.own._replace(guessed=guessed))
        return party, Labelled(rows.counts[1].astype(jnp.uint32))

    def tell(self, state: SketchState, replies: Labelled, arrived: Any) -> SketchState:
        """Nothing to do."""
        return state


class TakeSteps(_Trains):
    """Lines 6 to 9: steps of SGD from everybody's ranker; the server adds their mean, or one silo's after the other."""

    name = "step"

    @property
    def request(self) -> Layout[Ranker]:
        """A model."""
        return ranker_layout(self.size)

    @property
    def reply(self) -> Layout[Change]:
        """A change."""
        return change_layout(self.size)

    def asked(self, state: SketchState, parties: int) -> Any:
        """Everybody, or whose turn it is."""
        if not self.settings.serial:
            return None
        return jnp.arange(parties) == state.round.astype(jnp.int32) % parties

    def most(self, parties: int) -> int:
        """One, where silos take turns."""
        return 1 if self.settings.serial else parties

    def ask(self, state: SketchState) -> Ranker:
        """Everybody's ranker."""
        return Ranker(state.round, state.weights)

    def respond(self, request: Ranker, party: Party, draws: Any) -> tuple[Party, Change]:
        """A silo's steps."""
        s, before = self.settings, jnp.asarray(request.weights)
        done = jnp.asarray(request.round).astype(jnp.float32) * s.steps
        after = s.trained(before, party, party.own.guessed, draws, done, s.steps, party.own.beta)
        return party, Change(after - before)

    def tell(self, state: SketchState, replies: Change, arrived: Any) -> SketchState:
        """θ + mean of Δθ."""
        weights = state.weights + _mean(replies.weights, arrived, jnp.zeros_like(state.weights))
        return state._replace(round=state.round + jnp.uint32(1), weights=weights)


def _mean(rows: jax.Array, arrived: jax.Array, otherwise: jax.Array) -> jax.Array:
    """Mean of the rows that arrived and are finite, [size]; of none of them what there was."""
    good = jnp.asarray(arrived) & jnp.all(jnp.isfinite(rows), axis=-1)
    total = jnp.sum(jnp.where(good[:, None], rows, 0.0), axis=0)
    return jnp.where(jnp.any(good), total / jnp.maximum(jnp.sum(good), 1), otherwise)


def _each(values: np.ndarray, silos: int, dtype: Any) -> jax.Array:
    """A value a run, for each of its silos: [runs, silos]."""
    return jnp.broadcast_to(jnp.asarray(values, dtype)[:, None], (len(values), silos))
