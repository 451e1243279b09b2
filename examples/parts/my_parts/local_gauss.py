"""Gaussian noise that each device adds to its clipped weights: no server has to be trusted, and no sum is secret."""

from dataclasses import dataclass

import numpy as np

from fedrank.core.fields import bound, setting
from fedrank.core.lazy import jax
from fedrank.core.privacy_report import DELTA, NOBODY, OF_A_RUN, AuditedBy, PrivacyReport, Promise, Unit
from fedrank.privacy.audit import Audit
from fedrank.privacy.calibration import gaussian_epsilon, gaussian_sigma, replacement_sensitivity
from fedrank.ranking.mechanisms.weights import ClearWeights, WeightsReply


@dataclass(frozen=True)
class LocalGauss(ClearWeights):
    """Each device clips its weights and adds Gaussian noise to each of them."""

    name = "local-gauss"
    implied_by = ("sigma",)
    simulated = "noise in floating point gives secrets away by its last bits; simulate it, and deploy gaussian-shares."

    sigma: float = setting(1.0, "Standard deviation of the noise on each weight.", low=1e-9, high=1e9)
    clip: float = setting(1.0, "Largest L2 norm of the weights that a device sends.", low=1e-9, high=1e9)
    clip_norm: str = bound("l2")

    in_the_clear, native = False, False  # type: ignore[assignment] - constants of this class

    def draw(self, key):
        """A simulated device's noise of a round."""
        return self.sigma * jax.random.normal(key, (self.size,))

    def message(self, vector, amount, noise):
        """The reply: clipped, then noised."""
        return WeightsReply(self.clip_vectors(vector) + noise, amount)

    def clipped_again(self, vectors):
        """What arrived, as it is: noise moves honest weights beyond the clip."""
        return vectors

    def account(self, rounds, delta):
        """One release a round; k of them are one whose vectors are √k times as far apart."""
        apart = replacement_sensitivity(self.clip, "l2", self.size, "l2")
        times = min(rounds, self.bounds.times) if self.bounds else rounds
        each, whole = (gaussian_epsilon(self.sigma, delta, apart * k**0.5) for k in (1, times))
        return PrivacyReport(
            "Gaussian noise at each device",
            NOBODY,
            (Promise(Unit.USER, whole, delta), Promise(Unit.MESSAGE, each, delta)),
            covers=("The weights that a device sends.",),
            not_covered=("How many interactions they come from.", *OF_A_RUN),
            details={"rounds": rounds, "sigma": self.sigma, "clip": self.clip},
            audit=AuditedBy(self.name, {"epsilon": each, "delta": delta}),
        )

    @classmethod
    def audit(cls, epsilon=1.0, delta=DELTA):
        """An attack on one number that is as small as it may be, or as large: 2 apart."""
        made = cls(sigma=gaussian_sigma(epsilon, delta, 2.0), size=1)

        def sample(world, trials):
            noise = np.random.default_rng().normal(0.0, made.sigma, (trials, 1))
            weights = np.full((trials, 1), 2.0 * world - 1.0, np.float32)
            sent = made.message(weights, np.ones(trials, np.int32), noise).weights
            return np.rint(np.asarray(sent)[:, 0] / made.sigma * 100).astype(np.int64)

        worlds = "the number that a device sends is -1 or 1"
        return Audit(
            cls.name, Unit.MESSAGE, worlds, epsilon, sample, delta, gaussian=True, ordered=True, trials=100_000
        )
