"""Choice models: the click of a user on a slate, at most one item.

Every model here turns the scores of the shown items into one probability a slot and one for "nothing", so that a
choice is one uniform number and one look at the running sum. Leading axes are of lists, in NumPy and JAX alike. The
three families are those of RecSim (Ie et al. 2019, Section 4): multinomial logit, multinomial proportional, and
cascade.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from typing_extensions import override

from fedrank.core.arrays import AnyArray, module_of
from fedrank.core.errors import ConfigError
from fedrank.core.registry import Registry

#: Logit of "nothing" where a multinomial user may leave without a click (RecSim's interest-evolution world).
NO_CLICK = 1.0


@dataclass(frozen=True)
class SlateChoice(ABC):
    """A user who clicks one item of a slate, or nothing. Hashable: a static argument of ``jax.jit``."""

    @abstractmethod
    def weights(self, scores: Float[AnyArray, "*lists slots"]) -> Float[AnyArray, "*lists slots+1"]:
        """Probabilities of a click on each slot, and of no click as the last entry, up to a common factor.

        None is negative, and at least one is positive.

        Args:
            scores: In slot order.
        """

    @property
    @abstractmethod
    def always_clicks(self) -> bool:
        """True if the model has no option to click nothing."""

    def probabilities(self, scores: Float[AnyArray, "*lists slots"]) -> Float[AnyArray, "*lists slots+1"]:
        """The probability of a click on each slot, and of no click as the last entry; they sum to 1.

        Args:
            scores: In slot order.
        """
        weights = self.weights(scores)
        return weights / weights.sum(axis=-1, keepdims=True)

    def choose(
        self, scores: Float[AnyArray, "*lists slots"], uniform: Float[AnyArray, "*lists"]
    ) -> Int[AnyArray, "*lists"]:
        """The slot that is clicked, by inversion of the distribution function in slot order; n if nothing is clicked.

        A slot of probability 0 is never chosen.

        Args:
            scores: In slot order.
            uniform: Random number in [0, 1).
        """
        xp = module_of(scores, uniform)
        weights = self.weights(scores)
        running, total = [], xp.zeros(scores.shape[:-1], xp.float32)
        for slot in range(scores.shape[-1] + 1):  # one by one: a running sum that never falls, whatever the rounding
            total = total + weights[..., slot]
            running.append(total)
        # A product that rounds up to the total would fall off the end.
        mark = xp.minimum(uniform * total, xp.nextafter(total, xp.zeros_like(total)))
        return functools.reduce(xp.add, [(edge <= mark).astype(xp.int32) for edge in running])


@dataclass(frozen=True)
class Multinomial(SlateChoice):
    """Multinomial logit: the probability of a slot is proportional to exp(score).

    Attributes:
        no_click: Logit of clicking nothing; None: the user always clicks.
    """

    no_click: float | None = None

    @property
    @override
    def always_clicks(self) -> bool:
        return self.no_click is None

    @override
    def weights(self, scores):
        xp = module_of(scores)
        nothing = xp.full((*scores.shape[:-1], 1), -np.inf if self.no_click is None else self.no_click, xp.float32)
        logits = xp.concatenate([scores, nothing], axis=-1)
        return xp.exp(logits - logits.max(axis=-1, keepdims=True))


@dataclass(frozen=True)
class Proportional(SlateChoice):
    """Multinomial proportional: the probability of a slot is proportional to score − minimum.

    Scores below the minimum count as the minimum. A slate on which nothing has a weight is not clicked.

    Attributes:
        minimum: What is taken off every score, of "nothing" too.
        no_click: Score of clicking nothing; None: the user clicks if anything has a weight.
    """

    minimum: float = 0.0
    no_click: float | None = None

    def __post_init__(self):
        if self.no_click is not None and self.no_click < self.minimum:
            raise ConfigError(
                f"The score of no click must be at least the minimum, got no_click={self.no_click} and "
                f"minimum={self.minimum}."
            )

    @property
    @override
    def always_clicks(self) -> bool:
        return self.no_click is None

    @override
    def weights(self, scores):
        xp = module_of(scores)
        shown = xp.maximum(scores - self.minimum, 0.0)
        if self.no_click is None:
            nothing = xp.where(shown.sum(axis=-1, keepdims=True) > 0, 0.0, 1.0)
        else:
            # The smallest weight stands in where no_click = minimum, so that a slate of zeros has an outcome.
            least = max(np.float32(self.no_click - self.minimum), np.finfo(np.float32).tiny)
            nothing = xp.full((*shown.shape[:-1], 1), least)
        return xp.concatenate([shown, nothing.astype(xp.float32)], axis=-1)


@dataclass(frozen=True)
class Cascade(SlateChoice):
    """The user looks at the slots in order and clicks, or does not click, each in turn until the first click.

    An examined slot is clicked with probability attention · scaling · score, where the score is exp(x)
    (``"exponential"``) or x − minimum (``"proportional"``), and scaling · score is kept within [0, 1].

    Attributes:
        attention: Probability that a slot gets a look, in [0, 1].
        scaling: Factor that brings scores into the range of probabilities; not negative.
        score: ``"exponential"`` or ``"proportional"``.
        minimum: What is taken off the scores if proportional.
    """

    attention: float = 0.65
    scaling: float = 0.05
    score: str = "exponential"
    minimum: float = 0.0

    def __post_init__(self):
        if not 0.0 <= self.attention <= 1.0:
            raise ConfigError(f"A cascade user's attention is a probability in [0, 1], got {self.attention}.")
        if not self.scaling >= 0.0:
            raise ConfigError(f"A cascade user's scaling must not be negative, got {self.scaling}.")
        if self.score not in ("exponential", "proportional"):
            raise ConfigError(f"A cascade user's score is 'exponential' or 'proportional', got {self.score!r}.")

    @property
    @override
    def always_clicks(self) -> bool:
        return False

    @override
    def weights(self, scores):
        xp = module_of(scores)
        value = xp.exp(scores) if self.score == "exponential" else scores - self.minimum
        click = self.attention * xp.clip(self.scaling * value, 0.0, 1.0)
        looking, slots = xp.ones(scores.shape[:-1], xp.float32), []
        for slot in range(scores.shape[-1]):
            slots.append(looking * click[..., slot])
            looking = looking * (1.0 - click[..., slot])
        return xp.stack([*slots, looking], axis=-1)


#: Choice models by name; each entry makes one, with its settings as keywords.
CHOICES: Registry[Callable[..., SlateChoice]] = Registry("choice model")

CHOICES.register(
    "multinomial", summary="Multinomial logit: p ∝ exp(score); the user always clicks.", citation="ie2019recsim"
)(Multinomial)
CHOICES.register(
    "multinomial-no-click",
    summary="Multinomial logit with the option to click nothing.",
    citation="ie2019recsim",
)(functools.partial(Multinomial, no_click=NO_CLICK))
CHOICES.register(
    "proportional",
    summary="p ∝ score − minimum: differences count, not ratios of exponentials.",
    citation="ie2019recsim",
)(Proportional)
CHOICES.register(
    "cascade",
    summary="Slots are examined in order until one is clicked; the order of the slate matters.",
    citation="ie2019recsim",
)(Cascade)
