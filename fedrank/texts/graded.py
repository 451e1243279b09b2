"""Linear rankers of graded documents, trained on labels and guessed labels: pointwise, pairwise and listwise losses.

The rankers of CS-F-LTR (Shi et al., *Cross-silo Federated Learning-to-rank*, Journal of Software 2021): a linear model
of 16 features, cross-entropy over the grades, an L2 penalty, mini-batch SGD. Its authors name pairwise and listwise
losses as future work.

A model is a flat vector. ``classification``: a matrix [features + 1, grades], whose softmax is the distribution of the
grade; the score is its mean. ``regression``: a vector [features + 1], whose score is the grade itself. ``pairwise``
(RankNet's loss) and ``listwise`` (ListNet's): a vector like it, and a classifier beside it, because a score that only
orders documents cannot say which grade one has; see :meth:`GradedLearner.labels`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Bool, Float32, Int32

from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp

#: Loss functions.
LOSSES = ("classification", "regression", "pairwise", "listwise")
#: Whether a guessed label is the likeliest grade, or the whole distribution.
LABELS = ("hard", "soft")

#: Losses over single documents.
_POINTWISE = ("classification", "regression")


class Batch(NamedTuple):
    """Documents to learn from: [n] of them for pointwise losses, [n, documents] in lists for the others.

    Attributes:
        x: Features.
        grades: Distribution of each document's grade.
        where: False on padding.
    """

    x: Float32[Array, "*items features"]
    grades: Float32[Array, "*items grades"]
    where: Bool[Array, "*items"]


@dataclass(frozen=True)
class GradedLearner:
    """A ranker's settings: its size, its loss, and how it is trained.

    Attributes:
        features: Number of features of a document.
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
        """True if the loss is over single documents, not lists."""
        return self.loss in _POINTWISE

    @property
    def _inputs(self) -> int:
        return self.features + 1

    @property
    def size(self) -> int:
        """Number of parameters of a model."""
        scorer = 0 if self.loss == "classification" else self._inputs
        classifier = 0 if self.loss == "regression" else self._inputs * self.grades
        return scorer + classifier

    def initial(self) -> Float32[Array, " size"]:
        """The untrained model: zeros. The losses are convex, so that a random start would gain nothing."""
        return jnp.zeros(self.size, jnp.float32)

    def scores(self, model: Float32[Array, " size"], x: Float32[Array, "*items features"]) -> Float32[Array, "*items"]:
        """Scores by which documents are ranked, the largest first.

        Args:
            model: Parameters.
            x: Features of the documents.
        """
        if self.loss == "classification":
            return jax.nn.softmax(self._logits(model, x)) @ self._values
        return x @ model[: self.features] + model[self.features]

    def labels(
        self, model: Float32[Array, " size"], x: Float32[Array, "*items features"]
    ) -> Float32[Array, "*items grades"]:
        """Distributions of the grades that a model guesses (Algorithm 3, line 5).

        A hard guess has all probability on one grade. The soft guess of a regression is the distribution over the two
        nearest grades that has the predicted mean.

        Args:
            model: Parameters.
            x: Features of the documents.
        """
        if self.loss == "regression":
            value = jnp.clip(self.scores(model, x), 0.0, self.grades - 1.0)
            value = jnp.round(value) if self.guess == "hard" else value
            return jnp.maximum(0.0, 1.0 - jnp.abs(value[..., None] - _along(self._values, x)))
        logits = self._logits(model, x)
        if self.guess == "soft":
            return jax.nn.softmax(logits)
        return jax.nn.one_hot(jnp.argmax(logits, axis=-1), self.grades)

    def of_grades(self, y: Int32[Array, "*items"]) -> Float32[Array, "*items grades"]:
        """Grades as distributions with all probability on one; grades beyond the scale count as its largest."""
        return jax.nn.one_hot(jnp.clip(y, 0, self.grades - 1), self.grades)

    def loss_of(self, model: Float32[Array, " size"], batch: Batch) -> Float32[Array, ""]:
        """Mean loss over a batch; 0 for an empty batch."""
        if self.loss == "classification":
            return self._cross_entropy(model, batch)
        scores, grades = self.scores(model, batch.x), batch.grades @ self._values
        if self.loss == "regression":
            return _mean(0.5 * (scores - grades) ** 2, batch.where)
        ranked = _pairwise if self.loss == "pairwise" else _listwise
        return ranked(scores, grades, batch.where) + self._cross_entropy(model, batch)

    def step(
        self,
        model: Float32[Array, " size"],
        labelled: Batch,
        guessed: Batch,
        weight: Float32[Array, ""],
    ) -> Float32[Array, " size"]:
        """The model after one SGD step on equation (9): the loss, β times that of guessed labels, and the penalty.

        Args:
            model: Parameters before.
            labelled: Documents with labels.
            guessed: Documents with guessed labels.
            weight: β.
        """

        def objective(model):
            return (
                self.loss_of(model, labelled)
                + weight * self.loss_of(model, guessed)
                + self.l2 * jnp.sum(jnp.where(self._penalty_mask, model, 0.0) ** 2)
            )

        return model - self.learning_rate * jax.grad(objective)(model)

    @property
    def _values(self) -> Float32[Array, " grades"]:
        return jnp.arange(self.grades, dtype=jnp.float32)

    @property
    def _penalty_mask(self) -> Bool[Array, " size"]:
        """Parameters under the penalty: all but intercepts."""
        parts = [] if self.loss == "classification" else [jnp.arange(self._inputs) < self.features]
        if self.loss != "regression":
            parts.append(jnp.arange(self._inputs * self.grades) < self.features * self.grades)
        return jnp.concatenate(parts)

    def _logits(
        self, model: Float32[Array, " size"], x: Float32[Array, "*items features"]
    ) -> Float32[Array, "*items grades"]:
        """Logits of the classifier of grades, for each row and grade."""
        matrix = model[-self._inputs * self.grades :].reshape(self._inputs, self.grades)
        return x @ matrix[:-1] + _along(matrix[-1], x)

    def _cross_entropy(self, model: Float32[Array, " size"], batch: Batch) -> Float32[Array, ""]:
        return _mean(-jnp.sum(batch.grades * jax.nn.log_softmax(self._logits(model, batch.x)), axis=-1), batch.where)


def _along(row: Float32[Array, " n"], x: Float32[Array, " ..."]) -> Float32[Array, " ..."]:
    """The row with leading axes of length 1, so that it has as many axes as x."""
    return row.reshape((1,) * (x.ndim - 1) + (-1,))


def _mean(values: Float32[Array, "*items"], where: Bool[Array, "*items"]) -> Float32[Array, ""]:
    """Mean of the values that are ``where``; 0 where there are none."""
    return jnp.sum(jnp.where(where, values, 0.0)) / jnp.maximum(jnp.sum(where), 1)


def _pairwise(
    scores: Float32[Array, "lists documents"],
    grades: Float32[Array, "lists documents"],
    where: Bool[Array, "lists documents"],
) -> Float32[Array, ""]:
    """A variant of RankNet (Burges et al. 2005): log(1 + e^−(sᵢ − sⱼ)), weighted by the difference of the two grades.

    Lists whose grades are all equal do not count.
    """
    apart = grades[..., :, None] - grades[..., None, :]
    both = where[..., :, None] & where[..., None, :]
    weight = jnp.where(both, jnp.maximum(apart, 0.0), 0.0)
    loss = jax.nn.softplus(-(scores[..., :, None] - scores[..., None, :]))
    per_list = jnp.sum(weight * loss, axis=(-2, -1)) / jnp.maximum(jnp.sum(weight, axis=(-2, -1)), 1e-6)
    return _mean(per_list, jnp.any(weight > 0, axis=(-2, -1)))


def _listwise(
    scores: Float32[Array, "lists documents"],
    grades: Float32[Array, "lists documents"],
    where: Bool[Array, "lists documents"],
) -> Float32[Array, ""]:
    """A variant of ListNet's top one (Cao et al. 2007): cross-entropy of the scores' softmax and shares of gain.

    The shares are of 2^grade − 1, where Cao et al. take a softmax of grades: documents of grade 0 have none. Lists
    without a relevant document do not count.
    """
    gain = jnp.where(where, 2.0**grades - 1.0, 0.0)
    total = jnp.sum(gain, axis=-1, keepdims=True)
    share = gain / jnp.maximum(total, 1e-6)
    logs = jax.nn.log_softmax(jnp.where(where, scores, -1e9))
    return _mean(-jnp.sum(jnp.where(where, share * logs, 0.0), axis=-1), total[..., 0] > 0)
