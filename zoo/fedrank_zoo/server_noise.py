"""Gaussian noise that a trusted server adds to the sums of successive rounds, and partly takes back in later ones.

It is the mechanism ``server-noise`` of FPDGD, a baseline: whoever runs the server sees every device's change.

What counts for a model that adds up the rounds' sums is the noise in the total so far. Independent noise in T rounds
adds up to √T times that of one. Noise of round t that is wₜ − r₁ zₜ₋₁ − r₂ zₜ₋₂ − … (w: independent normal variables,
z: the noise added before) adds up to Σ rⱼ wₜ₋ⱼ only: about √(1 + ln(t)/π) times that of one w, if the r are the
coefficients of (1 − x)^(−1/2). This is the matrix mechanism for totals with C = (1 − x)^(−1/2) as a lower triangular
Toeplitz matrix (Denisov et al., NeurIPS 2022; Fichtenberger, Henzinger and Upadhyay, ICML 2023): the server publishes
totals of X + C⁻¹ W, which tells of X what C X + W tells. A party that takes part in a round changes one column of C; so
w needs Gaussian noise for a vector as long as that column, also where later rounds depend on earlier ones.

With a *band* of b coefficients C is cut off after b − 1 steps (Choquette-Choo et al., NeurIPS 2023), so that the server
keeps no more than the noise of the last b − 1 rounds.

**The account.** One unit is everything a party puts into the run: the vectors of all rounds in which it takes part are
replaced by any others that the clip lets through. What the server shows tells of the rounds' sums X what C X with
independent Gaussian noise tells, which is one release of the Gaussian mechanism (Balle and Wang, ICML 2018), also where
later rounds depend on earlier ones (Denisov et al., NeurIPS 2022, Theorem 2.1).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Float32, UInt32
from typing_extensions import override

from fedrank.core.arrays import AnyArray, module_of
from fedrank.core.errors import ConfigError
from fedrank.core.fields import bound, setting
from fedrank.core.kernels import normals
from fedrank.core.lazy import jax, jnp
from fedrank.core.privacy_report import OF_A_RUN, SINGLE, PrivacyReport, Promise, Unit
from fedrank.core.streams import fold_words
from fedrank.core.words import format_count
from fedrank.privacy.calibration import gaussian_epsilon, gaussian_sigma, replacement_sensitivity
from fedrank.ranking.mechanisms.weights import CHANGE_CLIP, ClearWeights, check_bounds_of_user

#: Most rounds whose noise the server still takes back, which bounds its state.
BAND = 256


def coefficients(band: int) -> Float[np.ndarray, " band"]:
    """The first coefficients of (1 − x)^(−1/2): 1, 1/2, 3/8 and so on.

    >>> coefficients(4).tolist()
    [1.0, 0.5, 0.375, 0.3125]
    """
    if band < 1:
        raise ConfigError(f"band must be at least 1, got {band}.")
    k = np.arange(1, band)
    return np.concatenate([[1.0], np.cumprod(1.0 - 0.5 / k)])


def column_norm(band: int, rounds: int, times: int) -> float:
    """Largest distance by which a party that takes part in some rounds moves C X, in units of its input to one round.

    The entries of C are positive and its columns shrink, so that it is farthest with the first rounds, in all of which
    the same is put in.

    Args:
        band: Coefficients b.
        rounds: Rounds T.
        times: Rounds that the party takes part in, at most T of them count.

    Returns:
        The Euclidean norm of the sum of the first ``times`` columns of C; √times with a band of 1.
    """
    times = min(times, rounds)
    if times < 1:
        raise ConfigError(f"rounds and times must be at least 1, got {rounds} and {times}.")
    column = np.zeros(rounds)
    column[: min(band, rounds)] = coefficients(min(band, rounds))
    took_part = np.zeros(rounds)
    took_part[:times] = 1.0
    return math.sqrt(float((np.convolve(column, took_part)[:rounds] ** 2).sum()))


def next_noise(
    key: UInt32[AnyArray, "*runs 2"], round_: UInt32[AnyArray, "*runs"], past: Float[AnyArray, "*runs before d"]
) -> tuple[Float32[AnyArray, "*runs d"], Float32[AnyArray, "*runs before d"]]:
    """The noise of a round in units of σ, and what is to be kept for the next.

    Args:
        key: Data of a secret Threefry key, the same in all rounds; with NumPy one for each run.
        round_: The round's number, never twice the same.
        past: Noise of the last b − 1 rounds, the latest first, zero before the first round.

    Returns:
        The noise z of the round, and ``past`` with it in front.
    """
    before, d = past.shape[-2:]
    if module_of(key, past) is np:
        fresh = normals(fold_words(np.asarray(key), round_), d)
        taken_back = np.einsum("b,...bn->...n", coefficients(before + 1)[1:].astype(np.float32), past)
        noise = fresh - taken_back
        return noise, np.concatenate([noise[..., None, :], past], axis=-2)[..., :before, :]
    secret = jax.random.wrap_key_data(jnp.asarray(key), impl="threefry2x32")
    fresh = jax.random.normal(jax.random.fold_in(secret, round_), (d,), jnp.float32)
    noise = fresh - jnp.asarray(coefficients(before + 1)[1:], jnp.float32) @ past
    return noise, jnp.concatenate([noise[None], past])[:before]


_TRUST = "the server to clip what it is sent, to add the noise, and to keep secret what it was sent"


def correlated_account(
    *, sigma: float, sensitivity: float, band: int, rounds: int, times: int, delta: float
) -> PrivacyReport:
    """The privacy report of a run to whose sums a server adds noise.

    Args:
        sigma: σ of the independent noise w of a round, in each coordinate.
        sensitivity: Largest L2 distance between two vectors of one party in a round, in the same unit.
        band: Coefficients of C.
        rounds: Rounds of the run.
        times: Rounds that a party takes part in at most.
        delta: δ in (0, 1).

    Raises:
        ConfigError: A number is out of range.
    """
    if min(sigma, sensitivity, delta) <= 0.0 or delta >= 1.0:
        raise ConfigError(
            f"sigma and sensitivity must be positive and delta in (0, 1), got {sigma}, {sensitivity}, {delta}."
        )
    times = min(times, rounds)
    one, user = (gaussian_epsilon(sigma, delta, sensitivity * column_norm(band, rounds, count)) for count in (1, times))
    said = (
        f"Over all of training, whatever a user did changes what anybody but the server sees by a factor of at most "
        f"e^{user:.3g}, but for δ = {delta:.0e}. The server is trusted: it reads what each device sends, clips it, "
        "adds Gaussian noise to the sum of a round, and takes some of that noise back in later rounds. A device takes "
        f"part in at most {format_count(times, 'round')}."
    )
    return PrivacyReport(
        mechanism="Gaussian noise of the server, correlated between rounds",
        trust=_TRUST,
        promises=(
            Promise(Unit.ROUND, one, delta, SINGLE),
            Promise(Unit.USER, user, delta, "one Gaussian mechanism for the run"),
        ),
        covers=(
            "Against all who see the models of the rounds. Not against the server.",
            "Everything a party puts into the run, also where later rounds depend on earlier ones.",
        ),
        not_covered=(
            "Anybody, against the server, whoever runs it, or whoever reads what devices send it.",
            "The lowest bits of noisy floating-point numbers, which can tell what noise was added to.",
            *OF_A_RUN,
        ),
        details={
            "scale": sigma, "sensitivity": sensitivity, "band": band, "rounds": rounds, "participations": times,
            "delta": delta,
        },
        words=(said,),
    )  # fmt: skip


class ServerNoise(NamedTuple):
    """State of the server's noise.

    Attributes:
        key: uint32 [2], for the noise of all rounds.
        past: float32 [before, parameters]: noise of the last rounds in units of σ, the latest first.
    """

    key: UInt32[AnyArray, "2"]
    past: Float[AnyArray, "before parameters"]


@dataclass(frozen=True)
class ServerNoised(ClearWeights):
    """The server, which has to be trusted, clips changes of the weights and adds noise that later rounds take back.

    See the top of this file.
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
        """Number of rounds of the run, at least 1; 1 before the run's bounds are known."""
        return self.bounds.rounds if self.bounds else 1

    @property
    def times(self) -> int:
        """Most rounds in which one device takes part, at least 1; 1 before the run's bounds are known."""
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
