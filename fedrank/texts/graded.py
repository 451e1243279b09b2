"""Linear rankers of graded documents, learnt from labels and from guessed labels: pointwise, pairwise and listwise.

The rankers of CS-F-LTR (Shi et al., *Cross-silo Federated Learning-to-rank*, Journal of Software 2021): a linear model
of 16 features, cross-entropy over the grades, an L2 penalty, mini-batch SGD. Its authors name pairwise and listwise
losses as future work; here they are.

A model is a flat vector. ``classification``: a matrix [features + 1, grades], whose softmax is the distribution of the
grade; the score is its mean. ``regression``: a vector [features + 1], whose score is the grade itself. ``pairwise``
(RankNet's loss) and ``listwise`` (ListNet's): a vector like it, and a classifier beside it, because a score that only
orders documents cannot say which grade one has; see :meth:`GradedLearner.labels`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedrank.core.errors import ConfigError

#: What is minimised.
LOSSES = ("classification", "regression", "pairwise", "listwise")
#: Whether a guessed label is the likeliest grade, or the whole distribution.
LABELS = ("hard", "soft")

#: Losses over single documents.
_POINTWISE = ("classification", "regression")


class Batch(NamedTuple):
    """Documents to learn from. Pointwise losses take single ones, the others whole lists.

    Attributes:
        x: float32 [n, features], or [n, documents, features].
        grades: float32 [n, grades], or [n, documents, grades]: the distribution of each document's grade.
        where: bool [n] or [n, documents]: False on padding.
    """

    x: jax.Array
    grades: jax.Array
    where: jax.Array


@dataclass(frozen=True)
class GradedLearner:
    """Settings of a ranker and of what it learns by.

    Attributes:
        features: Features of a document.
        grades: Number of grades, at least 2.
        loss: One of :data:`LOSSES`.
        guess: One of :data:`LABELS`; the paper's labels are hard.
        l2: λ of the penalty λ‖θ‖² (equations 8 and 9), not on intercepts.
        learning_rate: Step size of SGD.
    """

    features: int
    grades: int = 3
    loss: str = "classification"
    guess: str = "hard"
    l2: float = 1e-4
    learning_rate: float = 0.05

    def __post_init__(self):
        if self.loss not in LOSSES:
            raise ConfigError(f"loss must be one of {', '.join(LOSSES)}, got {self.loss!r}.")
        if self.guess not in LABELS:
            raise ConfigError(f"guessed labels must be one of {', '.join(LABELS)}, got {self.guess!r}.")
        if self.features < 1 or self.grades < 2:
            raise ConfigError(f"needs a feature and two grades, got {self.features} and {self.grades}.")
        if not (self.learning_rate > 0 and self.l2 >= 0):
            raise ConfigError(
                f"learning_rate must be positive and l2 not negative, got {self.learning_rate} and {self.l2}."
            )

    @property
    def pointwise(self) -> bool:
        """Whether the loss is about single documents."""
        return self.loss in _POINTWISE

    @property
    def _inputs(self) -> int:
        return self.features + 1

    @property
    def size(self) -> int:
        """Length of a model."""
        scorer = 0 if self.loss == "classification" else self._inputs
        classifier = 0 if self.loss == "regression" else self._inputs * self.grades
        return scorer + classifier

    def initial(self) -> jax.Array:
        """The model that knows nothing: zeros, float32 [size]. The losses are convex: there is nothing to draw."""
        return jnp.zeros(self.size, jnp.float32)

    def scores(self, model: jax.Array, x: jax.Array) -> jax.Array:
        """What documents are ranked by.

        Args:
            model: float32 [size].
            x: float32 [..., features].

        Returns:
            float32 [...].
        """
        if self.loss == "classification":
            return jax.nn.softmax(self._logits(model, x)) @ self._values
        return x @ model[: self.features] + model[self.features]

    def labels(self, model: jax.Array, x: jax.Array) -> jax.Array:
        """The grades that a model guesses (Algorithm 3, line 5).

        Args:
            model: float32 [size].
            x: float32 [..., features].

        Returns:
            float32 [..., grades], a distribution: all on one grade where guesses are hard. A regression's soft guess is
            the distribution over the two nearest grades that has its mean.
        """
        if self.loss == "regression":
            value = jnp.clip(self.scores(model, x), 0.0, self.grades - 1.0)
            value = jnp.round(value) if self.guess == "hard" else value
            return jnp.maximum(0.0, 1.0 - jnp.abs(value[..., None] - _along(self._values, x)))
        logits = self._logits(model, x)
        if self.guess == "soft":
            return jax.nn.softmax(logits)
        return jax.nn.one_hot(jnp.argmax(logits, axis=-1), self.grades)

    def of_grades(self, y: jax.Array) -> jax.Array:
        """Labels [...] as distributions [..., grades]; larger ones than the scale has count as its largest."""
        return jax.nn.one_hot(jnp.clip(y, 0, self.grades - 1), self.grades)

    def loss_of(self, model: jax.Array, batch: Batch) -> jax.Array:
        """The mean loss over a batch, float32; 0 of an empty one."""
        if self.loss == "classification":
            return self._cross_entropy(model, batch)
        scores, grades = self.scores(model, batch.x), batch.grades @ self._values
        if self.loss == "regression":
            return _mean(0.5 * (scores - grades) ** 2, batch.where)
        ranked = _pairwise if self.loss == "pairwise" else _listwise
        return ranked(scores, grades, batch.where) + self._cross_entropy(model, batch)

    def step(self, model: jax.Array, labelled: Batch, guessed: Batch, weight: jax.Array) -> jax.Array:
        """One step of SGD on equation (9): the loss, β times that of guessed labels, and the penalty.

        Args:
            model: float32 [size].
            labelled: Documents with labels.
            guessed: Documents with guessed ones.
            weight: float32, β.

        Returns:
            The model after it, float32 [size].
        """

        def objective(model):
            return (
                self.loss_of(model, labelled)
                + weight * self.loss_of(model, guessed)
                + self.l2 * jnp.sum(jnp.where(self._penalised, model, 0.0) ** 2)
            )

        return model - self.learning_rate * jax.grad(objective)(model)

    @property
    def _values(self) -> jax.Array:
        return jnp.arange(self.grades, dtype=jnp.float32)

    @property
    def _penalised(self) -> jax.Array:
        """Which numbers of a model are no intercepts: bool [size]."""
        parts = [] if self.loss == "classification" else [jnp.arange(self._inputs) < self.features]
        if self.loss != "regression":
            parts.append(jnp.arange(self._inputs * self.grades) < self.features * self.grades)
        return jnp.concatenate(parts)

    def _logits(self, model: jax.Array, x: jax.Array) -> jax.Array:
        """Of the classifier: [..., grades]."""
        matrix = model[-self._inputs * self.grades :].reshape(self._inputs, self.grades)
        return x @ matrix[:-1] + _along(matrix[-1], x)

    def _cross_entropy(self, model: jax.Array, batch: Batch) -> jax.Array:
        return _mean(-jnp.sum(batch.grades * jax.nn.log_softmax(self._logits(model, batch.x)), axis=-1), batch.where)


def _along(row: jax.Array, x: jax.Array) -> jax.Array:
    """A row [n] with as many axes as x, to be added to what has n at the end."""
    return row.reshape((1,) * (x.ndim - 1) + (-1,))


def _mean(values: jax.Array, where: jax.Array) -> jax.Array:
    return jnp.sum(jnp.where(where, values, 0.0)) / jnp.maximum(jnp.sum(where), 1)


def _pairwise(scores: jax.Array, grades: jax.Array, where: jax.Array) -> jax.Array:
    """A variant of RankNet (Burges et al. 2005): log(1 + e^−(sᵢ − sⱼ)), weighted by how far the two grades are apart.

    A list in which all grades are the same teaches nothing.
    """
    apart = grades[..., :, None] - grades[..., None, :]
    both = where[..., :, None] & where[..., None, :]
    weight = jnp.where(both, jnp.maximum(apart, 0.0), 0.0)
    loss = jax.nn.softplus(-(scores[..., :, None] - scores[..., None, :]))
    per_list = jnp.sum(weight * loss, axis=(-2, -1)) / jnp.maximum(jnp.sum(weight, axis=(-2, -1)), 1e-6)
    return _mean(per_list, jnp.any(weight > 0, axis=(-2, -1)))


def _listwise(scores: jax.Array, grades: jax.Array, where: jax.Array) -> jax.Array:
    """A variant of ListNet's top one (Cao et al. 2007): cross-entropy of the scores' softmax and shares of gain.

    The shares are of 2^grade − 1, where Cao et al. take a softmax of grades: documents of grade 0 have none. A list
    without a relevant document teaches nothing.
    """
    gain = jnp.where(where, 2.0**grades - 1.0, 0.0)
    total = jnp.sum(gain, axis=-1, keepdims=True)
    share = gain / jnp.maximum(total, 1e-6)
    logs = jax.nn.log_softmax(jnp.where(where, scores, -1e9))
    return _mean(-jnp.sum(jnp.where(where, share * logs, 0.0), axis=-1), total[..., 0] > 0)
