"""Audits of the noise on lists of Q-values: the code that platforms run, with the operating system's randomness."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Int64

from fedrank.core.privacy_report import DELTA, Unit
from fedrank.privacy.audit import Audit
from fedrank.privacy.noise.values import ValueNoise

#: Values of a list. The more there are, the rarer is a list that tells as much as is promised.
_CANDIDATES = 2


def _values(mechanism: str, epsilon: float, delta: float) -> Audit:
    noise = ValueNoise(1.0, epsilon, delta, mechanism)

    def sample(world: int, trials: int) -> Int64[np.ndarray, " trials"]:
        shape = (trials, _CANDIDATES)
        sent = noise.applied(jnp.full(shape, 2.0 * world - 1.0, jnp.float32), noise.draw_from_os(shape))
        steps = np.rint(np.asarray(sent, np.float64) * noise.steps)
        # What lies beyond the range says no more than its end with Laplace noise, and more with Gaussian noise.
        said = np.clip(steps, -noise.steps, noise.steps) if mechanism == "laplace" else steps
        return said.sum(axis=1).astype(np.int64)

    gaussian = mechanism == "gaussian"
    worlds = "all values of a list are at the upper end of the range, or at the lower"
    delta, trials = (delta, 400_000) if gaussian else (0.0, 200_000)
    return Audit(f"{mechanism}-values", Unit.VECTOR, worlds, epsilon, sample, delta, gaussian, True, trials)


def laplace_values(epsilon: float = 1.0, delta: float = DELTA) -> Audit:
    """A list of Q-values with discrete Laplace noise.

    Args:
        epsilon: ε of a list, in nats.
        delta: Not used: Laplace noise has none.
    """
    return _values("laplace", epsilon, delta)


def gaussian_values(epsilon: float = 1.0, delta: float = DELTA) -> Audit:
    """A list of Q-values with discrete Gaussian noise.

    Args:
        epsilon: ε of a list, in nats.
        delta: δ of it.
    """
    return _values("gaussian", epsilon, delta)
