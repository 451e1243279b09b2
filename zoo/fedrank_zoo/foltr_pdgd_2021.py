"""FPDGD with the noise and the start of the code published with it (Wang et al., ICTIR 2021).

An L2 norm of s is clipped, a device adds a Gamma share of noise of scale s/ε to weights that the server sees one by
one, and a linear ranker starts at a random direction of length 0.01. That ε is not the ε of a round
(:meth:`GammaShares.account` says what is): it takes an L2 norm for an L1 norm, and s for 2s; and a share by itself
protects nothing. All devices are presumed to make equally many interactions. The published code clips after every local
step; here weights are clipped once, before they are sent, which bounds what is sent by as much.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32, Key
from typing_extensions import override

from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.fields import bound, part, setting
from fedrank.core.lazy import jax, jnp
from fedrank.core.native import NotNativeError
from fedrank.core.protocol import Party
from fedrank.core.streams import wrap_keys
from fedrank.privacy.accounts.vectors import sum_account
from fedrank.privacy.calibration import replacement_sensitivity
from fedrank.privacy.noise.discrete import enough_parties
from fedrank.privacy.randomised_response import os_words
from fedrank.ranking.foltr_pdgd import FoltrPDGD
from fedrank.ranking.mechanisms import VectorMechanism
from fedrank.ranking.mechanisms.secure_sum import DEFAULT_CLIP
from fedrank.ranking.mechanisms.weights import ClearWeights, WeightsReply
from fedrank.ranking.protocol import INITIAL


def gamma_shares(key: Key[Array, ""], shape: tuple[int, ...], scale: float, parties: int) -> Float32[Array, "*shape"]:
    """One party's shares of continuous Laplace noise as published with FPDGD: differences of two Gamma variables.

    Gamma variables of shape 1/n are made from their logarithms: nearly all of them are far below what single precision
    holds (for n = 1,000 nine in ten are below 10⁻³⁸), and become zero because they are that small, not on the way.

    Args:
        key: Typed key, consumed.
        shape: Shape wanted.
        scale: Scale of the noise in the sum over all parties, in the unit of what it is added to.
        parties: Parties n; all of them must add their shares.

    Returns:
        float32 ``shape``.

    Source:
        Wang, Liu, Zhuang, Zuccon: *Effective and privacy-preserving federated online learning to rank*, ICTIR 2021.
    """
    if not 0.0 < scale < math.inf or parties < 1:
        raise ConfigError(f"scale must be positive and finite and parties at least 1, got {scale} and {parties}.")
    logs = jax.random.loggamma(key, jnp.float32(1.0 / parties), (2, *shape), jnp.float32)
    plus, minus = jnp.exp(logs + jnp.float32(math.log(scale)))
    return plus - minus


@dataclass(frozen=True)
class PublishedClip(ClearWeights):
    """Weights clipped to an L2 norm, or sent as they are."""

    name, kind = "clear-2021", "vector-2021"

    clip_norm: Literal["l1", "l2"] = bound("l2")


@dataclass(frozen=True)
class GammaShares(PublishedClip):
    """Gamma shares of Laplace noise on weights that the server sees one by one."""

    name = "gamma-shares"
    implied_by = ("epsilon",)

    epsilon: float | None = setting(None, "ε as published, which is not that of a round.", low=0, high=1000)
    clip: float | None = setting(DEFAULT_CLIP, "Largest norm of the weights that a device sends.")

    @override
    def derive_settings(self):
        self.check_epsilon("epsilon")
        return self

    @override
    def bind(self, bounds, size, interactions):
        self.derive_settings()
        if bounds.clients is None or self.clip is None:
            raise ConfigError("gamma-shares needs privacy.clip and the number of clients, who share the noise.")
        if bounds.dropout or not bounds.equal:
            raise ConfigError("the published noise needs all devices, and as much of each: set no dropout, no amounts.")
        if bounds.population is not None:
            raise ConfigError("privacy.epsilon is of one round; with a population use foltr-pdgd.")
        return super().bind(bounds, size, interactions)

    @property
    @override
    def native(self):
        return False  # drawn by rejection, which in JAX is a separate loop for each number

    @property
    @override
    def in_the_clear(self):
        return False

    @override
    def check_rule(self, rule):
        if rule != "mean":
            raise ConfigError(f"noise is made for the mean; aggregate = {rule!r} would show single messages.")

    @override
    def check_parties(self, parties):
        if parties < self.enough:
            raise ConfigError(f"noise is shared by {self.enough} devices or more, there are {parties}.")

    @property
    def enough(self) -> int:
        """Devices that share the noise."""
        return enough_parties(self.parties or 1, 0.0)

    @functools.cached_property
    def scale(self) -> float:
        """Scale of the Laplace noise in the sum over devices, as published."""
        return (self.clip or 0.0) / (self.epsilon or math.nan)

    @override
    def draw(self, key):
        return gamma_shares(key, (self.size,), self.scale, self.enough)

    @override
    def draw_from_os(self):
        """In floating point, never exact; from a generator with a key of the operating system."""
        return gamma_shares(wrap_keys(jnp.asarray(os_words((2,)))), (self.size,), self.scale, self.enough)

    @override
    def message(self, vector, amount, noise):
        sent = self.clip_vectors(vector)
        return WeightsReply(sent if noise is None else sent + noise, amount)

    @override
    def clipped_again(self, vectors):
        return vectors  # noised weights are longer than the clip

    @override
    def account(self, rounds, delta):
        return sum_account(
            mechanism="laplace",
            scale=self.scale,
            sensitivity=replacement_sensitivity(self.clip or 0.0, "l2", self.size, "l1", None, "nearest"),
            rounds=rounds,
            enough=self.enough,
            secure_sum=False,
            parameters=self.size,
            delta=delta,
            integers=False,
            published=self.epsilon,
        )


@dataclass(frozen=True)
class FoltrPDGD2021(FoltrPDGD):
    """FPDGD with the noise as published, without what it needs to protect anybody."""

    privacy: VectorMechanism = part(
        PublishedClip, "What is done to the weights that devices send.", "fedrank.mechanisms", ["vector-2021"]
    )

    name = "foltr-pdgd-2021"
    caveat = "As published: noise that protects no device from the server"
    modes = ()

    @override
    def cohort(self, parties: Party) -> Any:
        raise NotNativeError(f"the protocol {self.name!r}")

    @override
    def first_weights(self, key):
        """A random direction of length 0.01 for a linear ranker; small normal numbers for others."""
        key = wrap_keys(jnp.asarray(key)) if isinstance(key, np.ndarray) else key
        weights = jnp.asarray(self.ranker.initial())
        noise = jax.random.normal(key, weights.shape, jnp.float32)
        linear = (self.ranker.kernel_shape() or (0, 1))[1] == 0
        return weights + (0.01 / jnp.sqrt(jnp.sum(noise * noise)) if linear else INITIAL) * noise
