"""Vectors of which the server learns the sum alone, without noise or with shares of noise that devices add.

Devices send whole steps of a grid as integers modulo 2³². In a deployment each vector is masked so that the masks
cancel in the sum (:mod:`fedrank.privacy.secure_sum`). Here the masks are left out: the server uses nothing of the
vectors but their sum modulo 2³², which has no part of them. How many interactions a device made is public.

A device's share is a Pólya variable or a discrete Gaussian one. The shares of n devices add up to the noise; a share by
itself protects nothing: nearly all of 1,000 devices' shares are nearly zero. Rounding to the grid is allowed for.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Int64
from typing_extensions import override

from fedrank.core.arrays import module_of
from fedrank.core.errors import ConfigError
from fedrank.core.fields import bound, setting
from fedrank.core.lazy import jnp
from fedrank.core.privacy_report import BASIC, DELTA, AuditedBy, PrivacyReport, Unit
from fedrank.privacy.accounts.vectors import sum_account
from fedrank.privacy.audit import Audit
from fedrank.privacy.calibration import laplace_scale, replacement_sensitivity, shared_gaussian_sigma
from fedrank.privacy.noise.discrete import discrete_gaussian, enough_parties, laplace_shares
from fedrank.privacy.noise.simulated import LARGEST_SCALE, simulated_discrete_gaussian, simulated_laplace_shares
from fedrank.privacy.quantise import GridTooFineError, check_sum, clip_to_norm, dequantise, quantise
from fedrank.privacy.secure_sum.messages import extra_messages
from fedrank.ranking.mechanisms import Bounds, VectorMechanism
from fedrank.ranking.mechanisms.weights import CHANGE_CLIP, SumReply, check_bounds_of_user, check_clip

#: How weights become steps. Towards zero they would shrink a little every round.
ROUNDING = "nearest"
#: Discrete Laplace noise exceeds this many scales with a probability of e⁻⁴⁰, Gaussian noise with a much smaller one.
_TAIL = 40
#: Finest and coarsest grid, as powers of two of the steps that a unit is cut into.
_FINEST, _COARSEST = 16, 5
#: Devices of an audit whose shares are added up, and by how many steps one device's vector changes the sum.
_AUDITED, _AUDITED_STEPS = 3, 64
#: Norm that weights are clipped to where there is noise (ICTIR 2021, at its larger budgets).
DEFAULT_CLIP = 5.0


@dataclass(frozen=True)
class SecureSum(VectorMechanism):
    """The server sees the sum of the devices' clipped vectors only; nothing is noised.

    Attributes:
        grid: Steps that a unit is cut into, a power of two; None: the finest for which the sum stays within 32 bits.
    """

    name = "secure-sum"
    citation = "bonawitz2017secagg"

    clip: float = setting(DEFAULT_CLIP, "Largest norm of the weights that a device sends.")
    clip_norm: Literal["l1", "l2"] = setting("l1", "The norm that is clipped; the paper's is l2.")
    grid: int | None = bound()

    def __post_init__(self):
        super().__post_init__()
        check_clip(self.clip)

    @override
    def bind(self, bounds: Bounds, size: int, interactions: int) -> Any:
        if bounds.late:
            raise ConfigError(
                f"a secure sum is of one round's messages: set devices.late = 0 with privacy.name = {self.name!r}, got "
                f"{bounds.late}."
            )
        made = super().bind(bounds, size, interactions)
        if made.grid is not None:
            made.check_grid()
            return made
        for bits in range(_FINEST, _COARSEST - 1, -1):  # many devices or much noise need a coarser grid
            finer = dataclasses.replace(made, grid=2**bits)
            try:
                finer.check_grid()
            except GridTooFineError:
                if bits == _COARSEST:
                    raise
                continue
            return finer
        raise AssertionError("the loop returns or raises")

    def check_grid(self) -> None:
        """Refuse a grid on which the sum may run over.

        Raises:
            GridTooFineError: It is too fine.
            ConfigError: The number of devices is missing, or one.
        """
        if self.parties is None:
            raise ConfigError(f"the mechanism {self.name!r} needs the number of clients, which bounds the sum.")
        self.check_parties(self.parties)

    @property
    def steps(self) -> int:
        """Steps that a unit is cut into."""
        return self.grid or 2**_FINEST

    @override
    def check_parties(self, parties):
        if parties < 2:
            raise ConfigError("a secure sum of one device is what that device sends; it needs at least 2.")
        check_sum(parties, self.clip, self.steps, self.largest_noise(parties))

    def largest_noise(self, parties: int) -> int:
        """Bound of the noise in a number of the sum, in steps; exceeded with a probability of about e⁻⁴⁰ at most."""
        del parties
        return 0

    @override
    def check_rule(self, rule):
        if rule != "mean":
            raise ConfigError(f"aggregate = {rule!r} looks at single replies, which a secure sum hides.")

    @property
    @override
    def reply(self) -> type:
        return SumReply

    @override
    def extra_messages(self, parties):
        """Keys, sealed shares and what takes the masks out again."""
        return extra_messages(self.size, parties)

    @property
    def enough(self) -> int:
        """Fewest devices whose sum is shown."""
        return 2

    @override
    def message(self, vector, amount, noise):
        xp = module_of(vector, amount)
        part = xp.asarray(amount).astype(xp.float32) / np.float32(self.interactions)
        clipped = clip_to_norm(vector, self.clip, self.clip_norm, xp)
        steps = quantise(part[..., None] * clipped, self.steps, self.clip, ROUNDING, xp=xp)
        return SumReply((steps if noise is None else steps + noise).astype(xp.uint32), amount)

    @override
    def combine(self, state, replies, arrived, rule, byzantine):
        xp = module_of(replies.values, arrived)
        amounts = xp.sum(xp.where(arrived, replies.interactions, 0), axis=-1, keepdims=True).astype(xp.float32)
        total = xp.sum(xp.where(arrived[..., None], replies.values, 0), axis=-2, dtype=xp.uint32)
        mean = dequantise(total, self.steps, xp) * (np.float32(self.interactions) / xp.maximum(amounts, np.float32(1)))
        # A sum with too few shares of noise is not made: below its threshold the secure sum stops.
        heard = xp.sum(arrived, axis=-1) >= self.enough
        mean = mean + state.weights if self.changes else mean
        return mean.astype(xp.float32), heard, state.noise

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        del delta
        return PrivacyReport.none(
            rounds, "Nothing is noised. The server sees the sum of the devices' weights as they are."
        )


@dataclass(frozen=True)
class Shares(SecureSum):
    """Devices add shares of noise to a secure sum.

    Attributes:
        absent: Largest part of the devices that may be missing without the noise falling short, in [0, 1); None: four
            standard deviations more than drop out on average.
    """

    absent: float | None = bound()

    @override
    def bind(self, bounds: Bounds, size: int, interactions: int) -> Any:
        if bounds.attackers:
            raise ConfigError(
                "shares of noise hide a device among all devices of a round, and attackers know their shares: set "
                f"attack.share = 0, got {bounds.attackers}."
            )
        made = self.derive_settings()
        if self.absent is None:
            p, clients = bounds.dropout, bounds.clients or 1
            made = dataclasses.replace(self, absent=min(0.95, p + 4 * (p * (1 - p) / clients) ** 0.5))
        return super(Shares, made).bind(bounds, size, interactions)

    @override
    def check_grid(self):
        enough_parties(self.parties or 1, self.absent or 0.0)
        if self.scale > LARGEST_SCALE:
            raise GridTooFineError(
                f"noise of scale {self.scale:,.0f} steps is beyond {LARGEST_SCALE:,}; use a coarser grid than "
                f"{self.steps:,} steps, a larger epsilon or a smaller clip."
            )
        super().check_grid()

    @override
    def check_parties(self, parties):
        super().check_parties(parties)
        if parties < self.enough:
            raise ConfigError(f"noise is shared by {self.enough} devices or more, there are {parties}.")

    @override
    def largest_noise(self, parties):
        return math.ceil(_TAIL * self.scale * parties / self.enough)

    @override
    def check_rule(self, rule):
        if rule != "mean":
            raise ConfigError(f"noise is made for the mean; aggregate = {rule!r} would show single messages.")

    @property
    @override
    def enough(self):
        """m: fewest devices whose shares have the scale that is needed; of n devices, n − m may be missing."""
        return enough_parties(self.parties or 1, self.absent or 0.0)

    @property
    @abc.abstractmethod
    def scale(self) -> float:
        """Scale of the noise in the sum over devices, in steps."""

    @property
    @abc.abstractmethod
    def sensitivity(self) -> float:
        """Largest distance between two replies of one device, in steps."""

    def account_of_sum(self, mechanism: str, rounds: int, delta: float) -> PrivacyReport:
        """The account of the noise in the sums, ``"laplace"`` or ``"gaussian"``, of a number of rounds."""
        known = {"scale": self.scale, "sensitivity": self.sensitivity, "enough": self.enough, "parameters": self.size}
        return sum_account(mechanism=mechanism, rounds=rounds, secure_sum=True, delta=delta, **known)

    @classmethod
    def audit_sum(
        cls,
        shares: Callable[[int], Int64[np.ndarray, "devices trials"]],
        epsilon: float,
        delta: float = 0.0,
        **more: Any,
    ) -> Audit:
        """An attack on a secure sum of three devices, one of which sends a vector or none.

        Args:
            shares: Called with a number of trials: the devices' shares of noise, in steps.
            epsilon: ε of a device in a round, in nats.
            delta: δ of it.
            more: Further fields of the audit.
        """
        worlds = f"one number of the sum is {_AUDITED_STEPS} steps larger, the largest change of one device, or not"

        def sample(world: int, trials: int) -> Int64[np.ndarray, " trials"]:
            return shares(trials).sum(axis=0) + world * _AUDITED_STEPS

        return Audit(cls.name, Unit.ROUND, worlds, epsilon, sample, delta, ordered=True, **more)


@dataclass(frozen=True)
class LaplaceShares(Shares):
    """Shares of Laplace noise, with an ε of one round for one device.

    Two vectors clipped to an L1 norm of s differ by up to 2s in that norm, and that is what the noise is made for. An
    L2 norm of s may be an L1 norm of √n·s, which takes much more noise.
    """

    name = "laplace-shares"
    implied_by = ("epsilon",)

    epsilon: float | None = setting(None, "ε of one round of one device.", low=0, high=1000)

    @override
    def derive_settings(self):
        self.check_epsilon("epsilon")
        return self

    @override
    def bind(self, bounds, size, interactions):
        if bounds.population is not None:
            raise ConfigError(
                "privacy.epsilon is of one round; with a population use an ε of a user: privacy.epsilon_user."
            )
        return super().bind(bounds, size, interactions)

    @property
    def sensitivity(self) -> float:
        """Largest L1 distance between two replies of one device, in steps."""
        return replacement_sensitivity(self.clip, self.clip_norm, self.size, "l1", self.steps, ROUNDING)

    @functools.cached_property
    def scale(self) -> float:  # type: ignore[override] - a cached property
        """Scale of the Laplace noise in the sum over devices, in steps."""
        return laplace_scale(self.epsilon or 0.0, self.sensitivity)

    @override
    def draw(self, key):
        return simulated_laplace_shares(key, (self.size,), self.scale, self.enough)

    @override
    def draw_from_os(self):
        return jnp.asarray(laplace_shares(self.scale, self.enough, self.size).astype(np.int32))

    @override
    def draw_of_cohort(self, noise):
        return noise.laplace_shares(self.scale, self.enough, self.size)

    @override
    def account(self, rounds, delta):
        report = self.account_of_sum("laplace", rounds, delta)
        return replace(report, audit=AuditedBy(self.name, {"epsilon": report.epsilon_round}))

    @classmethod
    @override
    def audit(cls, epsilon=1.0, delta=DELTA):
        def shares(trials: int) -> Int64[np.ndarray, "devices trials"]:
            drawn = laplace_shares(_AUDITED_STEPS / epsilon, _AUDITED, _AUDITED * trials)
            return drawn.reshape(_AUDITED, trials)

        return cls.audit_sum(shares, epsilon, trials=10_000)


@dataclass(frozen=True)
class GaussianShares(Shares):
    """Shares of discrete Gaussian noise on how devices change the weights, with an ε of a user over all rounds.

    A change is much shorter than the weights. The distributed discrete Gaussian mechanism (Kairouz, Liu and Steinke,
    ICML 2021). Equally many interactions of every device are presumed.
    """

    name = "gaussian-shares"
    implied_by = ("epsilon_user",)
    changes = True

    epsilon_user: float | None = setting(
        None,
        "ε, at delta, of all that a user ever does, over all rounds that a device takes part in.",
        low=0,
        high=1000,
    )
    clip: float = setting(CHANGE_CLIP, "Largest norm of how a device changes the weights.")
    clip_norm: Literal["l1", "l2"] = bound("l2")

    @override
    def derive_settings(self):
        self.check_epsilon("epsilon_user")
        return self

    @override
    def bind(self, bounds, size, interactions):
        check_bounds_of_user(bounds)
        return super().bind(bounds, size, interactions)

    @property
    @override
    def of_a_user(self):
        return True

    @property
    def times(self) -> int:
        """Most rounds in which one device takes part, at least 1; 1 before the run's bounds are known."""
        return min(self.bounds.times, self.bounds.rounds) if self.bounds else 1

    @property
    def sensitivity(self) -> float:
        """Largest L2 distance between two replies of one device, in steps."""
        return replacement_sensitivity(self.clip, "l2", self.size, "l2", self.steps, ROUNDING)

    @functools.cached_property
    def scale(self) -> float:  # type: ignore[override] - a cached property
        """σ of the noise in the sum over devices, in steps."""
        return shared_gaussian_sigma(
            self.epsilon_user or 0.0, self.delta, self.sensitivity, self.enough, self.size, self.times
        )

    @property
    def share(self) -> float:
        """σ of one device's share, in steps."""
        return self.scale / self.enough**0.5

    @override
    def draw(self, key):
        return simulated_discrete_gaussian(key, (self.size,), self.share)

    @override
    def draw_from_os(self):
        return jnp.asarray(discrete_gaussian(self.share, self.size).astype(np.int32))

    @override
    def draw_of_cohort(self, noise):
        return noise.gaussian(self.share, self.size)

    @override
    def account(self, rounds, delta):
        report = self.account_of_sum("gaussian", min(rounds, self.times), delta)
        audit = AuditedBy(self.name, {"epsilon": report.epsilon_round, "delta": delta})
        kept = tuple(promise for promise in report.promises if promise.basis != BASIC)  # the noise is made for one
        return replace(report, promises=kept, words=(_over_a_life(report), *report.words), audit=audit)

    @classmethod
    @override
    def audit(cls, epsilon=1.0, delta=DELTA):
        sigma = shared_gaussian_sigma(epsilon, delta, _AUDITED_STEPS, _AUDITED, 1) / _AUDITED**0.5

        def shares(trials: int) -> Int64[np.ndarray, "devices trials"]:
            return discrete_gaussian(sigma, _AUDITED * trials).reshape(_AUDITED, trials)

        return cls.audit_sum(shares, epsilon, delta, gaussian=True, trials=100_000)


def _over_a_life(report: PrivacyReport) -> str:
    """The first sentence of the account of a user's ε."""
    user = next(promise for promise in report.promises if promise.unit == Unit.USER)
    return (
        "Over all of training, whatever a user did changes what anybody sees by a factor of at most "
        f"e^{user.epsilon:.3g} = {math.exp(min(user.epsilon, 700)):.3g}, but for δ = {user.delta:.0e}, as long as the "
        f"server keeps to the rules of the secure sum and {report.details['enough']:,} of a round's devices add their "
        "noise."
    )
