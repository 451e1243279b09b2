"""Weights that the server sees as they are, clipped or not; and the same with noise that a trusted server adds.

Messages are vectors: what a device sends that has learnt weights, and the state of a server that adds noise.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, UInt32
from typing_extensions import override

from fedrank.aggregation import robust
from fedrank.core.arrays import AnyArray, module_of
from fedrank.core.errors import ConfigError
from fedrank.core.fields import bound, setting
from fedrank.core.lazy import jax, jnp
from fedrank.core.messages import Array, f4, field, message, u2, u4
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.streams import fold_words
from fedrank.privacy.calibration import gaussian_sigma, replacement_sensitivity
from fedrank.privacy.noise.correlated import column_norm, correlated_account, next_noise
from fedrank.privacy.quantise import clip_to_norm
from fedrank.ranking.mechanisms import Bounds, VectorMechanism


@message(kind=2)
class WeightsReply:
    """Device to server: weights after learning, or their change, which the server sees.

    The run's mechanism says which of the two is sent, and whether it is clipped or has a share of noise.
    """

    weights: Array = field(
        f4["parameters"], "weights after learning, or their change, with the device's share of noise if it has one"
    )
    interactions: Array = field(u2, "number of interactions learnt from", largest="interactions")


@message(kind=3)
class SumReply:
    """Device to secure sum: a vector of which the server learns nothing but the sum over devices.

    The values are clipped weights, or with an ε of a user their clipped change, times the device's part of B
    interactions, in steps of the grid, with the device's share of noise, modulo 2³². In a deployment they are masked.
    The number of interactions is public.
    """

    values: Array = field(
        u4["parameters"], "weights after learning, as integers that mean nothing until all devices' are added up"
    )
    interactions: Array = field(u2, "number of interactions learnt from", largest="interactions")


class ServerNoise(NamedTuple):
    """State of the server's noise: see :mod:`fedrank.privacy.noise.correlated`.

    Attributes:
        key: uint32 [2], for the noise of all rounds.
        past: float32 [before, parameters]: noise of the last rounds in units of σ, the latest first.
    """

    key: UInt32[AnyArray, "2"]
    past: Float[AnyArray, "before parameters"]


#: Most rounds whose noise the server still takes back, which bounds its state.
BAND = 256
#: Norm that the change of a ranker is clipped to where ε is that of a user.
CHANGE_CLIP = 1.0


def check_clip(clip: float | None) -> None:
    """Refuse a norm that is no norm."""
    if clip is not None and not 1e-30 < clip < 1e30:
        raise ConfigError(f"privacy.clip must be positive and finite, got {clip}.")


def check_bounds_of_user(bounds: Bounds) -> None:
    """Refuse a run in which an ε of a user would not hold.

    Raises:
        ConfigError: Devices attack, come late or make unequal numbers of interactions.
    """
    if bounds.attackers:
        raise ConfigError(
            "privacy.epsilon_user is a promise to honest devices, counted with all of them: set attack.share = 0, got "
            f"{bounds.attackers}."
        )
    if bounds.late:
        raise ConfigError(
            "privacy.epsilon_user counts on one message of a device in a round, and one that is late comes beside "
            f"another: set devices.late = 0, got {bounds.late}."
        )
    if not bounds.equal:
        raise ConfigError(
            "privacy.epsilon_user does not hide how many interactions a device made, which every message says: set "
            "devices.amounts = 'equal'."
        )


@dataclass(frozen=True)
class ClearWeights(VectorMechanism):
    """Weights are sent as they are, or clipped to a norm."""

    name = "clear"

    clip: float | None = setting(None, "Largest norm of the weights that a device sends; none if nothing is said.")
    clip_norm: Literal["l1", "l2"] = setting("l1", "The norm that is clipped; the paper's is l2.")

    def __post_init__(self):
        super().__post_init__()
        check_clip(self.clip)

    @property
    @override
    def reply(self) -> type:
        return WeightsReply

    @property
    @override
    def in_the_clear(self):
        return True

    def clip_vectors(self, vectors: Float[AnyArray, "*parties n"]) -> Float[AnyArray, "*parties n"]:
        """Vectors clipped to the norm, each by itself."""
        if self.clip is None:
            return vectors
        return clip_to_norm(vectors, self.clip, self.clip_norm, module_of(vectors))

    def clipped_again(self, vectors: Float[AnyArray, "*parties n"]) -> Float[AnyArray, "*parties n"]:
        """Vectors that arrived, clipped by the server: attackers do not clip."""
        return self.clip_vectors(vectors)

    @override
    def message(self, vector, amount, noise):
        return WeightsReply(self.clip_vectors(vector), amount)

    @override
    def combine(self, state, replies, arrived, rule, byzantine):
        xp = module_of(replies.weights, arrived)
        sent = self.clipped_again(xp.asarray(replies.weights))
        heard = xp.asarray(arrived) & xp.all(xp.isfinite(replies.weights), axis=-1)
        amounts = xp.asarray(replies.interactions).astype(xp.float32)
        combine: Any = robust.rule_of(rule)
        return combine(sent, amounts, heard, byzantine), xp.any(heard, axis=-1), state.noise

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        del delta
        return PrivacyReport.none(
            rounds,
            "Nothing is noised. The server sees each device's weights as they are. What the server learns has no "
            "bound: there is no local privacy.",
        )


@dataclass(frozen=True)
class ServerNoised(ClearWeights):
    """The server, which has to be trusted, clips changes of the weights and adds noise that later rounds take back.

    See :mod:`fedrank.privacy.noise.correlated`.
    """

    name = "server-noise"
    changes = True
    simulated = (
        "the noise of privacy.name = 'server-noise' follows from the run's seed, so that it can be simulated only. Use "
        "gaussian-shares: devices add their noise, drawn from their operating systems."
    )

    epsilon_user: float | None = setting(
        None,
        "ε, at delta, of all that a user ever does, over all rounds that a device takes part in.",
        low=0,
        high=1000,
    )
    clip: float | None = setting(CHANGE_CLIP, "Largest norm of how a device changes the weights.")
    clip_norm: Literal["l1", "l2"] = bound("l2")

    @property
    @override
    def in_the_clear(self):
        return False

    @override
    def derive_settings(self):
        self.check_epsilon("epsilon_user")
        return self

    @override
    def bind(self, bounds, size, interactions):
        self.derive_settings()
        check_bounds_of_user(bounds)
        if self.clip is None or bounds.clients is None:
            raise ConfigError("server-noise needs privacy.clip, a bound of what it hides, and the number of clients.")
        return super().bind(bounds, size, interactions)

    @property
    @override
    def of_a_user(self):
        return True

    @override
    def check_rule(self, rule):
        if rule != "mean":
            raise ConfigError(f"noise is made for the mean; aggregate = {rule!r} would show single messages.")

    @property
    def rounds(self) -> int:
        """Rounds of the run."""
        return self.bounds.rounds if self.bounds else 1

    @property
    def times(self) -> int:
        """Rounds of a device."""
        return min(self.bounds.times, self.rounds) if self.bounds else 1

    @property
    def band(self) -> int:
        """Coefficients of the noise."""
        return min(self.rounds, BAND)

    @property
    def sensitivity(self) -> float:
        """Largest L2 distance between two replies of one device, in units of the weights."""
        return replacement_sensitivity(self.clip or 0.0, "l2", self.size, "l2", None, "nearest")

    @functools.cached_property
    def scale(self) -> float:
        """σ of the noise before some of it is taken back."""
        apart = self.sensitivity * column_norm(self.band, self.rounds, self.times)
        return gaussian_sigma(self.epsilon_user or 0.0, self.delta, apart, integers=False)

    @override
    def init(self, key):
        # Nothing that is published may be drawn from the key of the noise.
        if isinstance(key, np.ndarray):
            key, secret = fold_words(key, 0), fold_words(key, 1)
            return key, ServerNoise(secret, np.zeros((self.band - 1, self.size), np.float32))
        key, secret = jax.random.split(key)
        words = jax.random.key_data(secret).astype(jnp.uint32)
        return key, ServerNoise(words, jnp.zeros((self.band - 1, self.size), jnp.float32))

    @override
    def combine(self, state, replies, arrived, rule, byzantine):
        xp = module_of(replies.weights, arrived)
        sent = self.clip_vectors(xp.asarray(replies.weights))
        parts = xp.minimum(
            xp.asarray(replies.interactions).astype(xp.float32) / np.float32(self.interactions), np.float32(1)
        )
        parts = xp.where(arrived, parts, np.float32(0))
        noise, past = next_noise(state.noise.key, state.round, state.noise.past)
        # The number of devices that the sum is divided by is fixed: one that depends on who came would tell who did.
        total = np.einsum("...p,...pn->...n", parts, sent) if xp is np else parts @ sent
        mean = state.weights + (total + np.float32(self.scale) * noise) / np.float32(self.parties or 1)
        return mean, xp.ones(np.shape(arrived)[:-1], bool), state.noise._replace(past=past)

    @override
    def account(self, rounds, delta):
        return correlated_account(
            sigma=self.scale,
            sensitivity=self.sensitivity,
            band=self.band,
            rounds=self.rounds,
            times=self.times,
            delta=self.delta,
        )
