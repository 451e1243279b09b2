"""FPDGD: federated pairwise differentiable gradient descent (Wang, Liu, Zhuang, Zuccon, ICTIR 2021).

A device learns from its user's clicks by itself, for a few interactions, and sends the weights that it has come to. The
server takes their mean (federated averaging; McMahan et al., AISTATS 2017). What is sent can be clipped, noised and
summed in secret.

One round::

    server   hands out the weights θ                                              Request
    device   B interactions, each with one step of PDGD from where the last one ended
             clips its weights to the norm s; adds its share of noise
             sends the weights and the number a of its interactions               WeightsReply, or SumReply
    server   θ ← Σ aᵢ θᵢ / Σ aᵢ over the devices that were heard; of nobody, θ stays

**Noise.** A device's share is the difference of two Gamma (or Pólya) variables of shape 1/n. The shares of n devices
add up to Laplace noise, and a share by itself protects nothing: nearly all of 1,000 devices' shares are nearly zero. A
server that sees single messages sees the weights. What the noise is for takes ``secure_sum``: devices send (aᵢ/B)·θᵢ in
whole steps of a grid, with a Pólya share, as integers modulo 2³², and the server is shown their sum only. In a
deployment each vector is masked so that the masks cancel in the sum (:mod:`fedrank.privacy.secure_sum`). Here the masks
are left out: :meth:`LearnLocally.tell` uses nothing of the vectors but their sum modulo 2³², which has no part of them.
How many interactions a device made is public.

ε is that of one round for one device: whatever else it had learned, what the server is shown would be about as likely.
Two vectors clipped to an L1 norm of s differ by up to 2s in that norm, and that is what the noise is made for. An L2
norm of s may be an L1 norm of √n·s, which takes much more noise. Rounding to the grid is allowed for.

**ε of a user** takes Gaussian noise, and a clip of how a device *changes* the weights, which is much shorter than the
weights: then θ ← θ + Σ aᵢ Δᵢ / Σ aᵢ. Every device takes part in at most ``times`` rounds. Either each device adds its
share of discrete Gaussian noise, in a secure sum (``noise="gaussian"``; the distributed discrete Gaussian mechanism,
Kairouz, Liu and Steinke, ICML 2021). Or the server, which sees what each device sends and has to be trusted, clips and
adds noise that later rounds partly take back (``noise="server"``; :mod:`fedrank.privacy.noise.correlated`). In both
cases as many interactions of every device are presumed.

**As published**, ``as_published=True``: an L2 norm of s, noise of scale s/ε on weights that the server sees one by one,
and a start at a random direction of length 0.01. That ε is not the ε of a round (:meth:`FoltrPDGD.account` says what
is): it takes an L2 norm for an L1 norm, and s for 2s. Both presume that all devices make as many interactions. The
published code clips after every local step; here weights are clipped once, before they are sent, which bounds what is
sent by as much.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Key, UInt32
from typing_extensions import override

from fedrank.aggregation import robust
from fedrank.core.arrays import AnyArray, PyTree
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.compiled import COMPILES
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp
from fedrank.core.messages import Layout
from fedrank.core.privacy_report import BASIC, DELTA, AuditedBy, PrivacyReport, Unit
from fedrank.core.protocol import Exchange, Party
from fedrank.metrics.online import OnlineMetric, max_rr
from fedrank.privacy.accounts.correlated import correlated_account
from fedrank.privacy.accounts.sums import sum_account
from fedrank.privacy.calibration import gaussian_sigma, laplace_scale, replacement_sensitivity, shared_gaussian_sigma
from fedrank.privacy.noise.correlated import column_norm, next_noise
from fedrank.privacy.noise.discrete import discrete_gaussian, enough_parties, laplace_shares
from fedrank.privacy.noise.simulated import (
    LARGEST_SCALE,
    gamma_shares,
    simulated_discrete_gaussian,
    simulated_laplace_shares,
)
from fedrank.privacy.quantise import GridTooFineError, check_sum, clip_to_norm, dequantise, quantise
from fedrank.privacy.randomised_response import os_words
from fedrank.privacy.secure_sum.extra_messages import extra_messages
from fedrank.ranking.clicks.cascade import CascadeUser
from fedrank.ranking.data.partition import Shares
from fedrank.ranking.data.queries import FeatureBlocks, PaddedQueries
from fedrank.ranking.foltr_pdgd.messages import Draws, ServerNoise, ServerState, SumReply, WeightsReply
from fedrank.ranking.learners.pdgd import Learned, PdgdDraws, pdgd_steps
from fedrank.ranking.on_device.messages import Request
from fedrank.ranking.protocol import RankingProtocol
from fedrank.ranking.rankers.base import Ranker
from fedrank.ranking.sessions.devices import PerDevice, draw_queries, record_experience

#: Noise: none; Gamma shares of devices in what the server sees; Pólya shares, or discrete Gaussian ones, in what is
#: summed in secret; noise of the server.
NOISES, NORMS = ("none", "gamma", "polya", "gaussian", "server"), ("l1", "l2")
#: Noise for ε of a user, in changes of the weights.
OF_A_USER = ("gaussian", "server")
#: Most rounds whose noise the server still takes back, which bounds its state.
BAND = 256

#: Standard deviation of a network's weights at the start: with all of them zero its gradient is zero, for ever.
INITIAL = 0.1
#: How weights become steps. Towards zero they would shrink a little every round.
ROUNDING = "nearest"
#: Discrete Laplace noise exceeds so many scales with a probability of e⁻⁴⁰.
_TAIL = 40


@dataclass(frozen=True)
class FoltrPDGD(RankingProtocol):
    """The protocol's settings; the defaults are the paper's, without noise.

    Attributes:
        ranker: The ranker, a function from features to scores.
        user: Click model of the simulated user; on a real device the user is the person who holds it.
        others: Further users of a simulation whose devices are not all alike; ``user`` is number 0.
        metric: For the curve of what users experience; nothing is learned from it.
        interactions: B, most interactions a device makes in a round.
        learning_rate: η, of each local step.
        decay: What η is multiplied by after each round, in (0, 1].
        clip: s, largest norm of the weights that are sent; None sends them as they are.
        clip_norm: ``"l1"`` or ``"l2"``.
        noise: ``"none"``; ``"gamma"`` for replies that the server sees; ``"polya"`` or ``"gaussian"`` for a secure sum;
            ``"server"``.
        epsilon: ε of a device in one round, in nats; with Gaussian noise and that of the server, of all that it puts
            into ``times`` rounds, at ``delta``; None without noise.
        delta: δ for those two.
        times: Rounds that a device takes part in at most, for those two.
        rounds: Rounds of a run, for the noise of the server.
        secure_sum: Send integers of which the server is shown the sum only.
        grid: Steps that a unit is cut into for that, a power of two.
        parties: n, devices in a round; needed for noise and for a secure sum.
        absent: Largest part of the devices that may be missing without the noise falling short, in [0, 1). Shares are
            of shape 1/m with m = (1 − absent)·n.
        aggregate: Name in :data:`fedrank.aggregation.robust.AGGREGATORS`, or a rule of the caller's own. Sums allow the
            mean only.
        byzantine: Number of attacking devices that the rule assumes.
        as_published: Clip, noise and start as the paper does; see above. For comparison only.
        kernels: Use the compiled CPU kernel, for data as feature blocks, or JAX, for padded queries; equal draws, sums
            equal to about 1e-6.
    """

    ranker: Ranker
    user: CascadeUser
    metric: OnlineMetric = field(default_factory=max_rr)
    interactions: int = 4
    learning_rate: float = 0.1
    decay: float = 1.0
    clip: float | None = None
    clip_norm: str = "l1"
    noise: str = "none"
    epsilon: float | None = None
    delta: float = DELTA
    times: int = 1
    rounds: int = 1
    secure_sum: bool = False
    grid: int = 2**16
    parties: int | None = None
    absent: float = 0.0
    aggregate: str | robust.Rule = "mean"
    byzantine: int = 0
    as_published: bool = False
    kernels: bool = COMPILES
    others: tuple[CascadeUser, ...] = ()

    name = "foltr-pdgd"

    def __post_init__(self):
        for what, value, options in (("noise", self.noise, NOISES), ("clip_norm", self.clip_norm, NORMS)):
            if value not in options:
                raise ConfigError(f"{what} must be one of {', '.join(options)}, got {value!r}.")
        if not 1 <= self.interactions < 2**16:
            raise ConfigError(f"interactions must be in 1..65,535, got {self.interactions}.")
        if not 0 < self.learning_rate < 1e30:
            raise ConfigError(f"learning_rate must be positive and finite, got {self.learning_rate}.")
        if not 0 < self.decay <= 1:
            raise ConfigError(f"decay must be in (0, 1], got {self.decay}.")
        if self.clip is not None and not 1e-30 < self.clip < 1e30:
            raise ConfigError(f"clip must be positive and finite, got {self.clip}; use None to send weights unclipped.")
        if self.user.depth != self.metric.depth:
            raise ConfigError(f"{self.metric.name} looks at {self.metric.depth} ranks, the user at {self.user.depth}.")
        robust.check(self.aggregate, self.parties or robust.fewest(self.aggregate, self.byzantine), self.byzantine)
        if self.as_published and (self.secure_sum or (self.clip is not None and self.clip_norm != "l2")):
            raise ConfigError("as_published clips an L2 norm and has no secure sum.")
        self._check_noise()
        if self.secure_sum:
            self._check_secure_sum(self.parties)

    def _check_noise(self) -> None:
        if (self.noise == "none") != (self.epsilon is None):
            raise ConfigError(f"noise = {self.noise!r} and epsilon = {self.epsilon} contradict each other; set both.")
        if self.noise == "none":
            return
        if self.aggregate != "mean":
            raise ConfigError(f"noise is made for the mean; aggregate = {self.aggregate!r} would show single messages.")
        if (self.noise in ("polya", "gaussian")) != self.secure_sum:
            raise ConfigError(
                f"noise = {self.noise!r} does not go with secure_sum = {self.secure_sum}: 'polya' and 'gaussian' need "
                "it, the others cannot have it."
            )
        if self.noise in OF_A_USER and (self.clip_norm != "l2" or self.times < 1 or self.rounds < 1):
            raise ConfigError(
                f"noise = {self.noise!r} needs clip_norm = 'l2', times and rounds of at least 1; got "
                f"{self.clip_norm!r}, {self.times}, {self.rounds}."
            )
        if self.clip is None or self.parties is None:
            raise ConfigError(
                f"noise = {self.noise!r} needs clip, a bound of what it hides, and parties, who share it."
            )
        enough_parties(self.parties, self.absent)
        if self.secure_sum and self.scale > LARGEST_SCALE:
            raise GridTooFineError(
                f"noise of scale {self.scale:,.0f} steps is beyond {LARGEST_SCALE:,}; use fewer steps than grid = "
                f"{self.grid:,}, a larger epsilon or a smaller clip."
            )

    def _check_secure_sum(self, parties: int | None) -> None:
        if self.aggregate != "mean":
            raise ConfigError(f"aggregate = {self.aggregate!r} looks at single replies, which a secure sum hides.")
        if self.clip is None or parties is None:
            raise ConfigError("secure_sum needs clip and parties, which together bound the sum.")
        if parties < 2:
            raise ConfigError("a secure sum of one device is what that device sends; it needs at least 2.")
        noise = math.ceil(_TAIL * self.scale * parties / self.enough) if self.noise != "none" else 0
        check_sum(parties, self.clip, self.grid, noise)

    @property
    def enough(self) -> int:
        """m: so many shares are Laplace noise of the scale that is needed; of n devices, n − m may be missing."""
        return enough_parties(self.parties or 1, self.absent)

    @property
    def changes(self) -> bool:
        """Whether devices send how the weights change, in place of the weights."""
        return self.noise in OF_A_USER

    @property
    def band(self) -> int:
        """Coefficients of the server's noise."""
        return min(self.rounds, BAND)

    @property
    def sensitivity(self) -> float:
        """How far apart two replies of one device can be; in steps for a secure sum. Needs ``clip``.

        In L1 for Laplace noise, in L2 for Gaussian noise.
        """
        steps = self.grid if self.secure_sum else None
        norm = "l2" if self.changes else "l1"
        return replacement_sensitivity(self.clip or 0.0, self.clip_norm, self.ranker.size, norm, steps, ROUNDING)

    @functools.cached_property
    def scale(self) -> float:
        """Scale of Laplace noise, or σ of Gaussian noise, in the sum over devices. Needs ``noise``.

        In steps for a secure sum. The noise of the server has this σ before some of it is taken back.
        """
        epsilon = self.epsilon or 0.0
        if self.noise == "gaussian":
            return shared_gaussian_sigma(
                epsilon, self.delta, self.sensitivity, self.enough, self.ranker.size, self.times
            )
        if self.noise == "server":
            apart = self.sensitivity * column_norm(self.band, self.rounds, self.times)
            return gaussian_sigma(epsilon, self.delta, apart, integers=False)
        return (self.clip or 0.0) / epsilon if self.as_published else laplace_scale(epsilon, self.sensitivity)

    @property
    def sizes(self) -> dict[str, int]:  # type: ignore[override] - elsewhere an attribute of the class
        """Weights of the ranker, and most interactions of a device."""
        return {"parameters": self.ranker.size, "interactions": self.interactions}

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        return (LearnLocally(self),)

    def init(self, key: Any) -> ServerState:
        """Zero for a linear ranker, small normal numbers for others; ``key`` is consumed."""
        secret = None
        if self.noise == "server":  # nothing that is published may be drawn from the key of the noise
            key, secret = jax.random.split(key)
        linear = (self.ranker.kernel_shape() or (0, 1))[1] == 0
        weights = jnp.asarray(self.ranker.initial())
        if self.as_published or not linear:
            noise = jax.random.normal(key, weights.shape, jnp.float32)
            length = jnp.sqrt(jnp.sum(noise * noise))
            weights = weights + (0.01 / length if self.as_published and linear else INITIAL) * noise
        noise = None
        if secret is not None:
            noise = ServerNoise(
                jax.random.key_data(secret).astype(jnp.uint32),
                jnp.zeros((self.band - 1, self.ranker.size), jnp.float32),
            )
        return ServerState(jnp.uint32(0), weights, noise)

    def devices(
        self,
        data: PaddedQueries | FeatureBlocks,
        shares: Shares,
        user_index: PerDevice = None,
        amounts: PerDevice = None,
    ) -> Party:
        """All devices of a simulation; see :func:`fedrank.ranking.sessions.devices.devices`.

        Raises:
            ConfigError: As there; too few devices for the aggregation or the noise, or so many that their sum may run
                over; or data in a layout that ``kernels`` does not go with.
        """
        if isinstance(data, FeatureBlocks) != self.kernels:
            layout = "blocks" if self.kernels else "padded"
            raise ConfigError(f"kernels = {self.kernels} takes data as queries.{layout}(), got {type(data).__name__}.")
        robust.check(self.aggregate, shares.parties, self.byzantine)
        if self.secure_sum:
            self._check_secure_sum(shares.parties)
        if self.noise not in ("none", "server") and shares.parties < self.enough:
            raise ConfigError(f"noise is shared by {self.enough} devices or more, there are {shares.parties}.")
        return super().devices(data, shares, user_index, amounts)

    def account(self, rounds: int, delta: float) -> PrivacyReport:
        """The account of the noise in the sums of a run; of a run without noise, that nothing is protected."""
        if self.noise == "none":
            seen = "the sum of the devices' weights" if self.secure_sum else "each device's weights"
            why = "What the server learns has no bound: there is no local privacy." if not self.secure_sum else ""
            return PrivacyReport.none(rounds, f"Nothing is noised. The server sees {seen} as they are. {why}".rstrip())
        if self.noise == "server":
            return correlated_account(
                sigma=self.scale,
                sensitivity=self.sensitivity,
                band=self.band,
                rounds=self.rounds,
                times=self.times,
                delta=self.delta,
            )
        report = sum_account(
            mechanism="gaussian" if self.changes else "laplace",
            scale=self.scale,
            sensitivity=self.sensitivity,
            rounds=min(rounds, self.times) if self.changes else rounds,
            enough=self.enough,
            secure_sum=self.secure_sum,
            parameters=self.ranker.size,
            delta=delta,
            integers=self.secure_sum,
            published=self.epsilon if self.as_published else None,
        )
        if self.changes:
            audit = AuditedBy("gaussian-shares", {"epsilon": report.epsilon_round, "delta": delta})
            kept = tuple(promise for promise in report.promises if promise.basis != BASIC)  # the noise is made for one
            return replace(report, promises=kept, words=(_over_a_life(report), *report.words), audit=audit)
        exact = self.secure_sum  # shares in whole numbers, which devices draw exactly
        return replace(report, audit=AuditedBy("laplace-shares", {"epsilon": report.epsilon_round}) if exact else None)


@dataclass(frozen=True)
class LearnLocally(Exchange, request=Request):
    """The exchange of :class:`FoltrPDGD`: a device learns from its user's clicks and sends its weights."""

    settings: FoltrPDGD

    name = "learn-locally"

    @property
    def reply(self) -> Layout[SumReply | WeightsReply]:
        """Four bytes a weight, and two that say how many interactions they come from."""
        return self.layout(SumReply if self.settings.secure_sum else WeightsReply)

    def extra_messages(self, parties: int) -> tuple[tuple[str, str, Layout], ...]:
        """Keys, sealed shares and what takes the masks out again, where there is a secure sum."""
        return extra_messages(self.settings.ranker.size, parties) if self.settings.secure_sum else ()

    @override
    def ask(self, state: ServerState) -> Request:
        return Request(state.round, state.weights)

    def draw(self, key: Key[Array, ""]) -> Draws:
        """A simulated device's random bits of a round, from its key."""
        s, noise = self.settings, None
        words_key, noise_key = jax.random.split(key)
        rng_bits = jax.random.bits(words_key, (self.n_bits,), jnp.uint32)
        if s.noise == "gamma":
            noise = gamma_shares(noise_key, (s.ranker.size,), s.scale, s.enough)
        elif s.noise == "polya":
            noise = simulated_laplace_shares(noise_key, (s.ranker.size,), s.scale, s.enough)
        elif s.noise == "gaussian":
            noise = simulated_discrete_gaussian(noise_key, (s.ranker.size,), s.scale / s.enough**0.5)
        return self.cut(rng_bits, noise)

    def draw_from_os(self) -> Draws:
        """A real device's random bits of a round, from the operating system.

        Pólya shares and discrete Gaussian ones are exact. Gamma shares, in floating point, never are; they come from a
        generator with a key of the operating system.
        """
        s, noise = self.settings, None
        if s.noise == "gamma":
            key = jax.random.wrap_key_data(jnp.asarray(os_words((2,))), impl="threefry2x32")
            noise = gamma_shares(key, (s.ranker.size,), s.scale, s.enough)
        elif s.noise == "polya":
            noise = jnp.asarray(laplace_shares(s.scale, s.enough, s.ranker.size).astype(np.int32))
        elif s.noise == "gaussian":
            noise = jnp.asarray(discrete_gaussian(s.scale / s.enough**0.5, s.ranker.size).astype(np.int32))
        return self.cut(jnp.asarray(os_words((self.n_bits,))), noise)

    @property
    def n_bits(self) -> int:
        """Random words of a device in a round, without those of its noise."""
        return self.settings.interactions * (self.settings.user.depth + 3)

    def cut(self, rng_bits: UInt32[AnyArray, "*cohort bits"], noise: Any) -> Draws:
        """The words of a round, of one device or of each of a cohort, by what they are for."""
        b, depth, lead = self.settings.interactions, self.settings.user.depth, rng_bits.shape[:-1]
        documents, clicks = rng_bits[..., b : 3 * b], rng_bits[..., 3 * b :]
        return Draws(rng_bits[..., :b], documents.reshape(*lead, b, 2), clicks.reshape(*lead, b, depth), noise)

    def respond(self, request: Request, party: Party, draws: Draws) -> tuple[Party, SumReply | WeightsReply]:
        """Simulate the user's sessions, learn from them with PDGD, and make the reply with the new weights."""
        metric, own = self.settings.metric, party.own
        learned = self.learn(request, party, draws)
        values = jnp.asarray(metric.values, jnp.float32)[jnp.asarray(metric.index)[learned.sessions.patterns]]
        after = record_experience(own, values, learned.sessions, self._active(own.amount))
        result = learned.weights - request.weights if self.settings.changes else learned.weights
        return party._replace(own=after), self.report(result, own.amount, draws.noise)

    def _active(self, amount: Int[AnyArray, ""]) -> Bool[Array, "interactions"]:
        return jnp.arange(self.settings.interactions) < amount

    def learn(self, request: Request, party: Party, draws: Draws) -> Learned:
        """PDGD with a simulated user, one step an interaction."""
        s = self.settings
        (data, queries), own = party.shared, party.own
        rate = jnp.float32(s.learning_rate) * jnp.float32(s.decay) ** jnp.asarray(request.round, jnp.float32)
        return pdgd_steps(
            s.ranker,
            s.users,
            own.user,
            data,
            request.weights,
            rate,
            draw_queries(queries, own, draws.queries),
            self._active(own.amount),
            PdgdDraws(draws.documents, draws.clicks),  # type: ignore[arg-type] - arrays of JAX in a program of JAX
        )

    def report(
        self,
        weights: Float[AnyArray, "parameters"],
        amount: Int[AnyArray, ""],
        noise: Float[AnyArray, "parameters"] | Int[AnyArray, "parameters"] | None = None,
    ) -> SumReply | WeightsReply:
        """The reply with the weights that a device has come to, or their change: clipped, with its share of noise.

        Args:
            weights: float32 [parameters].
            amount: int32, interactions they come from, at least 1.
            noise: The device's share of noise, as :class:`Draws` has it.

        Returns:
            :class:`SumReply` for a secure sum, else :class:`WeightsReply`.
        """
        s = self.settings
        if s.clip is not None:
            weights = clip_to_norm(weights, s.clip, s.clip_norm, jnp)
        part = jnp.asarray(amount, jnp.float32) / s.interactions
        if not s.secure_sum:
            if noise is not None:
                # The server weights by aᵢ, the noise too: a device with few interactions must add more to make up.
                weights = weights + (noise if s.as_published else noise / part)
            return WeightsReply(weights, amount)
        assert s.clip is not None  # checked when the settings were made
        steps = quantise(part * weights, s.grid, s.clip, ROUNDING, xp=jnp)
        if noise is not None:
            steps = steps + noise
        return SumReply(steps.astype(jnp.uint32), amount)

    def tell(self, state: ServerState, replies: PyTree, arrived: Bool[AnyArray, "parties"]) -> ServerState:
        """The mean of the devices' weights, each counting as its interactions; or what ``aggregate`` makes of them."""
        s = self.settings
        start = state.weights if s.changes else 0.0
        if s.secure_sum:
            amounts = jnp.sum(jnp.where(arrived, replies.interactions, 0)).astype(jnp.float32)
            total = jnp.sum(jnp.where(arrived[:, None], replies.values, 0), axis=0, dtype=jnp.uint32)
            mean = start + dequantise(total, s.grid, jnp) * (s.interactions / jnp.maximum(amounts, 1.0))
            # A sum with too few shares of noise is not made: below its threshold the secure sum stops.
            heard = jnp.sum(arrived) >= (2 if s.noise == "none" else s.enough)
            return ServerState(state.round + 1, jnp.where(heard, mean, state.weights))
        amounts = replies.interactions.astype(jnp.float32)
        sent = replies.weights
        if s.clip is not None and s.noise in ("none", "server"):  # attackers do not clip
            clip = s.clip
            sent = jax.vmap(lambda w: clip_to_norm(w, clip, s.clip_norm, jnp))(sent)
        if s.noise == "server":
            return self._noisy_mean(state, sent, amounts, jnp.asarray(arrived))
        mean = robust.rule_of(s.aggregate)(sent, amounts, jnp.asarray(arrived), s.byzantine)
        heard = jnp.any(arrived & jnp.all(jnp.isfinite(replies.weights), axis=1))
        return ServerState(state.round + 1, jnp.where(heard, mean, state.weights))

    def _noisy_mean(
        self,
        state: ServerState,
        sent: Float[AnyArray, "parties parameters"],
        amounts: Float[AnyArray, "parties"],
        arrived: Bool[AnyArray, "parties"],
    ) -> ServerState:
        """The weights and the sum of clipped changes with the server's noise, over as many as were to come.

        The number of devices that the sum is divided by is fixed: one that depends on who came would tell who did.
        """
        s = self.settings
        assert state.noise is not None and s.parties is not None  # with noise of the server
        parts = jnp.where(arrived, jnp.minimum(amounts / s.interactions, 1.0), 0.0)
        noise, past = next_noise(state.noise.key, state.round, state.noise.past)
        mean = (parts @ sent + jnp.float32(s.scale) * noise) / s.parties
        return ServerState(state.round + 1, state.weights + mean, state.noise._replace(past=past))


def _over_a_life(report: PrivacyReport) -> str:
    """The first sentence of the account of a user's ε."""
    user = next(promise for promise in report.promises if promise.unit == Unit.USER)
    return (
        "Over all of training, whatever a user did changes what anybody sees by a factor of at most "
        f"e^{user.epsilon:.3g} = {math.exp(min(user.epsilon, 700)):.3g}, but for δ = {user.delta:.0e}, as long as the "
        f"server keeps to the rules of the secure sum and {report.details['enough']:,} of a round's devices add their "
        "noise."
    )
