"""Choc and Kale: one user, K platforms, and satisfaction that is slow to build and quick to spend.

The long-term-satisfaction world of RecSim (Ie et al. 2019, Section 5.2, and its tutorial), as FedSlate uses it (Deng et
al. 2024, equations 16–18). Every candidate has a *kaleness* in [0, 1]. Chocolate is engaging at once and lowers the
user's *net kale exposure*; kale is dull and raises it. Satisfaction is the logistic function of the exposure, and every
engagement is scaled with it. So what pays now costs later, and what one platform serves, all others feel.

The state moves by a pure function of explicit draws, one *tick* a platform (:meth:`Satisfaction.step`); a *round* is
one tick of every platform (:meth:`Satisfaction.round`). All is written once for NumPy, with leading axes of users, and
for JAX, where it is for one user: ``jax.vmap`` it over users, ``jax.lax.scan`` it over rounds.

**Two readings of kaleness.** RecSim's code lets a *high* kaleness engage and cost (as chocolate does), yet lets the
user prefer a *low* one; the publications' text is consistent. Write c for what a candidate has of chocolate:

================  =================  ===============
semantics         c                  the user's logit
================  =================  ===============
``recsim-code``   kaleness           1 − c
``paper``         1 − kaleness       c
================  =================  ===============

The logit is 1 − kaleness in both. Under ``recsim-code`` users pick, of a slate, rather what does them good; under
``paper`` rather what does not. All else is the same function of c:

* engagement r = exp((c μ_choc + (1 − c) μ_kale) · satisfaction + (c σ_choc + (1 − c) σ_kale) · z)
* exposure ← β · exposure − 2 (c − ½) + η · z′

Satisfaction is σ(τ · exposure). τ is one number, or one a platform (users forgive some more than others), and may drift
over a user's stay, by the factor e^drift from its first tick to its last.

A tick on which nothing is clicked gives no engagement and counts as c = ½: the exposure fades and wanders.

**Worlds by name.** ``recsim`` is what published runs were made in, ``paper`` what the publication's text describes,
``tension`` a world in which greed does not pay, ``stock`` RecSim's own long-term satisfaction as it comes: a user
clicks what stands first, so that a slate is one item, forgets sooner, and shows nothing of how satisfied they are. All
but ``tension`` have almost none of it: with a sensitivity of 0.01 the satisfaction never leaves [0.475, 0.525], so that
serving chocolate for ever is optimal.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Key, Shaped, UInt32
from scipy.special import expit

from fedrank.core.arrays import AnyArray, ArrayT, JaxArray, module_of, take
from fedrank.core.arrays import AnyArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax
from fedrank.core.native import map_trees
from fedrank.core.registry import Registry
from fedrank.core.rng import uniform as to_uniform
from fedrank.core.streams import erf_inv, stream
from fedrank.slates.world.choice import Multinomial, SlateChoice
from fedrank.slates.world.departures import Departure

#: Noise on an observed satisfaction is truncated at ± this.
OBSERVATION_BOUND = 1.0
#: Share of chocolate that leaves the exposure as it is; a tick without a click counts as this.
NEUTRAL = 0.5
#: Largest drift, either way: a factor of a thousand.
MOST_DRIFT = 7.0
#: The default choice model.
ALWAYS_CLICKS = Multinomial()
SEMANTICS = ("recsim-code", "paper")
TURNS = ("in-order", "shuffled")


class User(NamedTuple):
    """The user's state.

    Attributes:
        exposure: Net kale exposure.
        left: Ticks until the user leaves.
        kind: What sets the user apart where users depart from what is believed; uniform in [0, 1).
    """

    exposure: Float[Array, "*users"]
    left: Int[Array, "*users"]
    kind: Float[Array, "*users"] = np.zeros((), np.float32)


class Draws(NamedTuple):
    """The random numbers of one tick.

    Attributes:
        choice: Decides which slot is clicked; uniform in [0, 1).
        engagement: Noise on the log-engagement; standard normal.
        innovation: Noise on the exposure; standard normal.
        observation: Noise on the satisfaction that is observed after the tick, scaled and truncated already.
    """

    choice: Float[Array, "*ticks"]
    engagement: Float[Array, "*ticks"]
    innovation: Float[Array, "*ticks"]
    observation: Float[Array, "*ticks"]


#: The item of a turn in which a user does not visit the platform.
ABSENT = -2


class Turn(NamedTuple):
    """The outcome of one tick.

    Attributes:
        slot: The slot that was clicked; n: nothing.
        item: The candidate that was clicked; −1: nothing; −2: the user did not visit the platform (:data:`ABSENT`).
        engagement: Engagement with it; 0 if nothing was clicked.
        observed: The satisfaction right after the tick, with noise.
    """

    slot: Int[Array, "*ticks"]
    item: Int[Array, "*ticks"]
    engagement: Float[Array, "*ticks"]
    observed: Float[Array, "*ticks"]


class Scene(NamedTuple):
    """User, candidates and observations when a round begins.

    Attributes:
        user: The user; platforms do not see this.
        documents: Kaleness of each platform's candidates, in [0, 1].
        observed: The satisfaction that each platform observes.
    """

    user: User
    documents: Float[Array, "platforms candidates"]
    observed: Float[Array, " platforms"]


class RoundDraws(NamedTuple):
    """The random numbers of one round.

    Attributes:
        ticks: :class:`Draws` with entries [K], one a platform.
        documents: Kaleness of the candidates of the *next* round, uniform in [0, 1).
        observation: Noise on what is observed when the next round begins.
        newcomer: Decides the exposure of the next user, if this one leaves; uniform in [0, 1).
        order: The platforms in the order in which they act.
    """

    ticks: Draws
    documents: Float[Array, "platforms candidates"]
    observation: Float[Array, " platforms"]
    newcomer: Float[Array, ""]
    order: Int[Array, " platforms"]


@dataclass(frozen=True)
class Satisfaction:
    """The world's settings, and its transitions. Hashable: a static argument of ``jax.jit``.

    Attributes:
        candidates: N, candidates a platform has in a round; new ones in every round.
        slate: n, items a platform shows.
        platforms: K.
        memory_discount: β in [0, 1): what is left of the exposure after a tick.
        sensitivity: τ ≥ 0, how strongly the satisfaction follows the exposure.
        innovation: η ≥ 0, standard deviation of the exposure's wandering in a tick.
        choc_mean: μ_choc, location of the log-engagement of pure chocolate at full satisfaction.
        choc_sd: σ_choc ≥ 0.
        kale_mean: μ_kale.
        kale_sd: σ_kale ≥ 0.
        time_budget: Ticks a user stays, all platforms together; a multiple of K.
        observation_noise: Standard deviation of the noise on an observed satisfaction, before truncation at ± 1.
        semantics: ``"recsim-code"`` or ``"paper"``; see the module.
        choice: What the user clicks of a slate.
        shared_candidates: All platforms have the same candidates in a round (the "dense" setting), or each its own.
        turns: ``"in-order"``: platform 0 acts first in every round; ``"shuffled"``: a new order in every round.
        sensitivities: τ of each platform in place of ``sensitivity``; empty: the same for all.
        drift: Logarithm of the factor by which τ has changed after all of a user's ticks: above 0, users react more
            and more strongly.
        fresh: Platforms see the satisfaction as it is when the round begins, each with separate noise. If False, what
            each saw right after its own tick, so that those who act early see a stale value, as in FedSlate's code.
        features: d: by how many features platforms know an item, see :meth:`item_features`.
        departure: How users depart from what platforms believe; None: not at all.

    Raises:
        ConfigError: A setting is out of range, the slate is longer than the list of candidates, or the time budget is
            not a multiple of the number of platforms.
    """

    candidates: int = 10
    slate: int = 3
    platforms: int = 2
    memory_discount: float = 0.9
    sensitivity: float = 0.01
    innovation: float = 0.05
    choc_mean: float = 5.0
    choc_sd: float = 1.0
    kale_mean: float = 4.0
    kale_sd: float = 1.0
    time_budget: int = 122
    observation_noise: float = 0.1
    semantics: str = "recsim-code"
    choice: SlateChoice = ALWAYS_CLICKS
    shared_candidates: bool = True
    turns: str = "in-order"
    fresh: bool = True
    sensitivities: tuple[float, ...] = ()
    drift: float = 0.0
    features: int = 1
    departure: Departure | None = None

    def __post_init__(self):
        for name in ("candidates", "slate", "platforms", "features"):
            if getattr(self, name) < 1:
                raise ConfigError(f"A world needs {name} of at least 1, got {getattr(self, name)}.")
        if self.slate > self.candidates:
            raise ConfigError(
                f"A slate of {self.slate} items cannot be filled from {self.candidates} candidates; "
                "lower slate or raise candidates."
            )
        if self.time_budget < 1 or self.time_budget % self.platforms:
            raise ConfigError(
                f"time_budget counts one tick a platform and must be a positive multiple of platforms="
                f"{self.platforms}, got {self.time_budget}."
            )
        if not 0.0 <= self.memory_discount < 1.0:
            raise ConfigError(f"memory_discount must be in [0, 1), got {self.memory_discount}.")
        for name in ("sensitivity", "innovation", "choc_sd", "kale_sd", "observation_noise"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name} must be finite and not negative, got {getattr(self, name)}.")
        if self.sensitivities and len(self.sensitivities) != self.platforms:
            raise ConfigError(
                f"sensitivities must be one a platform, {self.platforms} of them, got {len(self.sensitivities)}."
            )
        if not all(0.0 <= one < math.inf for one in self.sensitivities):
            raise ConfigError(f"sensitivities must be finite and not negative, got {self.sensitivities}.")
        if not abs(self.drift) <= MOST_DRIFT:
            raise ConfigError(f"drift must be within ±{MOST_DRIFT:g}, got {self.drift}.")
        for name in ("choc_mean", "kale_mean"):
            if not math.isfinite(getattr(self, name)):
                raise ConfigError(f"{name} must be finite, got {getattr(self, name)}.")
        for name, known in (("semantics", SEMANTICS), ("turns", TURNS)):
            if getattr(self, name) not in known:
                raise ConfigError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}.")

    @property
    def rounds_per_episode(self) -> int:
        """Rounds of an episode: of one user."""
        return self.time_budget // self.platforms

    def chocolate(self, kaleness: Float[AnyArray | float, "*shape"]) -> Any:  # of the kind and shape of what is given
        """The share of chocolate of candidates, in [0, 1]: the higher, the more engaging now and costly later."""
        return kaleness if self.semantics == "recsim-code" else 1.0 - kaleness

    def appeal(self, kaleness: Float[AnyArray | float, "*shape"]) -> Any:  # of the kind and shape of what is given
        """The user's score of candidates, 1 − kaleness.

        Equation 17 and RecSim's code agree on it. Under ``"paper"`` it draws users to chocolate, under
        ``"recsim-code"``, where a high kaleness is chocolate, away from it.
        """
        return 1.0 - kaleness

    def item_features(
        self, kaleness: Float[np.ndarray, "*shape candidates"]
    ) -> Float[np.ndarray, "*shape candidates features"]:
        """The d features by which platforms know candidates: 2 · kaleness − 1, turned among d − 1 that say nothing.

        Those are uniform in [−1, 1] as well, and follow from the bits of the kaleness, so that an item is the same
        wherever it comes up. A rotation that all worlds of d features share hides the direction that matters.
        """
        found: list[Any] = [2.0 * kaleness - 1.0]
        bits = np.ascontiguousarray(kaleness, np.float32).view(np.uint32)
        for place in range(1, self.features):
            mixed = (bits ^ np.uint32(0x9E3779B9 * place & 0xFFFFFFFF)) * np.uint32(0x85EBCA6B)
            mixed = (mixed ^ (mixed >> np.uint32(13))) * np.uint32(0xC2B2AE35)
            found.append(2.0 * to_uniform(mixed ^ (mixed >> np.uint32(16)), np) - 1.0)
        turned = np.linalg.qr(np.random.default_rng(self.features).standard_normal((self.features,) * 2))[0]
        return np.stack(found, axis=-1) @ turned.T.astype(np.float32)

    @property
    def even(self) -> bool:
        """True if τ is the same at all platforms in all ticks."""
        return not self.sensitivities and self.drift == 0.0

    def tau(self, left: Int[AnyArray | int, "..."], platform: Int[AnyArray | int, "..."]) -> Any:
        """τ at a platform before a tick; shapes broadcast.

        Args:
            left: Ticks until the user leaves.
            platform: Number of the platform.
        """
        xp = module_of(left, platform)
        tau: Any = xp.asarray(self.sensitivities, xp.float32)[platform] if self.sensitivities else self.sensitivity
        if not self.drift:
            return tau
        return tau * xp.exp(self.drift * (1.0 - xp.asarray(left, xp.float32) / self.time_budget))

    def satisfaction(self, exposure: Float[AnyArray | float, "..."], tau: Any = None) -> Float[Array, "..."]:
        """Equation 16: the logistic function of τ · exposure, in (0, 1); τ by default ``sensitivity``."""
        reaction = (self.sensitivity if tau is None else tau) * exposure
        return jax.nn.sigmoid(reaction) if isinstance(reaction, JaxArray) else expit(reaction)

    def _log_engagement(
        self, chocolate: Float[AnyArray | float, "..."], exposure: Float[AnyArray | float, "..."], tau: Any = None
    ) -> tuple[Any, Any]:  # of the kinds of what is given
        """Mean and standard deviation of the log-engagement; shapes broadcast."""
        location = chocolate * self.choc_mean + (1.0 - chocolate) * self.kale_mean
        return location * self.satisfaction(exposure, tau), chocolate * self.choc_sd + (1.0 - chocolate) * self.kale_sd

    def mean_engagement(
        self, kaleness: Float[AnyArray | float, "..."], exposure: Float[AnyArray | float, "..."], tau: Any = None
    ) -> Float[Array, "..."]:
        """The expected engagement of a clicked candidate, exp(mu + sd²/2) of equation 18; shapes broadcast."""
        mean, sd = self._log_engagement(self.chocolate(kaleness), exposure, tau)
        return module_of(mean, sd).exp(mean + sd * sd / 2)

    def new_user(self, uniform: Float[AnyArray | float, "*users"]) -> User:
        """A user with all the time left and an exposure uniform in ± ½ / (1 − β); ``uniform`` is in [0, 1)."""
        xp = module_of(uniform)
        exposure = (uniform - 0.5) / (1.0 - self.memory_discount)
        # The lower half of the bits says nothing that matters of the exposure.
        kind = xp.asarray(uniform * 4096.0 % 1.0, xp.float32)
        return User(xp.asarray(exposure, xp.float32), xp.full(xp.shape(uniform), self.time_budget, xp.int32), kind)

    def observe(
        self, user: User, noise: Float[Array, "*observations"], platform: Int[AnyArray | int, "..."] | None = None
    ) -> Float[Array, "*observations"]:
        """The user's satisfaction with noise on it.

        Args:
            user: The user.
            noise: One number for each observation.
            platform: Who observes; None: each platform once, in order, as the noise's last axis.
        """
        if platform is None:
            user, platform = User(user.exposure[..., None], user.left[..., None]), np.arange(self.platforms)
        return self.satisfaction(user.exposure, None if self.even else self.tau(user.left, platform)) + noise

    def step(
        self,
        user: User,
        kaleness: Float[Array, "*#users candidates"],
        slate: Int[Array, "*#users slots"],
        draws: Draws,
        platform: Int[AnyArray | int, "*#users"] = 0,
    ) -> tuple[User, Turn]:
        """One tick: one platform shows a slate, the user clicks, engages and changes.

        Args:
            user: The user before.
            kaleness: Of the platform's candidates.
            slate: Candidates in slot order.
            draws: The tick's random numbers.
            platform: Whose slate it is.

        Returns:
            The user after, and the outcome. The tick counts whether or not anything is clicked.
        """
        xp = module_of(kaleness, slate, user.exposure)
        shown = take(kaleness, slate)
        size = slate.shape[-1]
        scores, choice, departs = self.appeal(shown), self.choice, self.departure
        if departs is not None:
            choice = departs.choice or choice
            bot = user.kind < departs.bots
            scores = xp.where(bot[..., None], np.float32(0), scores)
        slot, missing = choice.choose(scores, draws.choice), np.int32(-1)
        if departs is not None:
            there = self._is_there(departs, user, platform)
            slot, missing = xp.where(there, slot, np.int32(size)), xp.where(there, np.int32(-1), np.int32(ABSENT))
        clicked = slot < size
        place = xp.minimum(slot, size - 1)[..., None]
        chocolate = xp.where(clicked, self.chocolate(take(shown, place)[..., 0]), np.float32(NEUTRAL))
        tau = None if self.even else self.tau(user.left, platform)
        mean, sd = self._log_engagement(chocolate, user.exposure, tau)
        effect = chocolate - NEUTRAL
        if departs is not None:
            third = clicked & (xp.abs(chocolate - NEUTRAL) < departs.third / 2)
            mean = xp.where(third, self._log_engagement(xp.ones_like(chocolate), user.exposure, tau)[0], mean)
            effect = xp.where(third, np.float32(-NEUTRAL), effect)
            effect = xp.where(clicked & (chocolate > 1.0 - departs.spoils), 4.0 * effect, effect)
            mean = xp.where(bot, np.float32((self.choc_mean + self.kale_mean) / 4), mean)
        engagement = xp.where(clicked, xp.exp(mean + sd * draws.engagement), np.float32(0))
        after = User(
            self.memory_discount * user.exposure - 2.0 * effect + self.innovation * draws.innovation,
            user.left - 1,
            user.kind,
        )
        item = xp.where(clicked, take(slate, place)[..., 0], missing)
        return after, Turn(slot, item, engagement, self.observe(after, draws.observation, platform))

    def _is_there(self, departs: Departure, user: User, platform: Any) -> Any:
        """True if the user visits a platform in a tick: the first always."""
        over = 1.0 - module_of(user.exposure).asarray(user.left, np.float32) / self.time_budget
        return (platform == 0) | ((user.kind < departs.few) & (over >= departs.late * user.kind))

    def draw(self, key: Key[Array, ""] | UInt32[np.ndarray, "*users 2"]) -> RoundDraws:
        """The random numbers of one round, all from one block of random bits.

        Args:
            key: Typed JAX key, or both words of each of several; a new one for every round and user.
        """
        k, lists = self.platforms, 1 if self.shared_candidates else self.platforms
        sizes = [k, 4 * k, lists * self.candidates, 1, k if self.turns == "shuffled" else 0]
        words = stream(key, sum(sizes)) if isinstance(key, np.ndarray) else jax.random.bits(key, (sum(sizes),))
        xp, users = module_of(words), words.shape[:-1]
        blocks, start = [], 0
        for size in sizes:
            blocks.append(words[..., start : start + size])
            start += size
        choice, normal, documents, newcomer, order = blocks
        engagement, innovation, after, next_round = (
            _symmetric(normal)[..., part * k : (part + 1) * k] for part in range(4)
        )
        noise = self._noise(xp.stack([after, next_round]))
        items = to_uniform(documents, xp).reshape(*users, lists, self.candidates)
        by_lot = self.turns == "shuffled"
        order = xp.argsort(order, stable=True) if by_lot else xp.broadcast_to(xp.arange(k), (*users, k))
        return RoundDraws(
            ticks=Draws(to_uniform(choice, xp), _normal(engagement), _normal(innovation), noise[0]),
            documents=xp.broadcast_to(items, (*users, k, self.candidates)),
            observation=noise[1],
            newcomer=to_uniform(newcomer[..., 0], xp),
            order=order.astype(xp.int32),
        )

    def _noise(self, symmetric: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Normal noise of standard deviation ``observation_noise``, truncated at ± 1, by inversion."""
        xp = module_of(symmetric)
        if self.observation_noise == 0.0:
            return xp.zeros_like(symmetric)
        inside = math.erf(OBSERVATION_BOUND / (self.observation_noise * math.sqrt(2.0)))  # mass within the bounds
        noise = self.observation_noise * _normal(symmetric * inside)
        return xp.clip(noise, -OBSERVATION_BOUND, OBSERVATION_BOUND)

    def first(self, draws: RoundDraws) -> Scene:
        """The first round of a new user, from the draws of a round before it; ``ticks`` and ``order`` are unused."""
        user = self.new_user(draws.newcomer)
        return Scene(user, draws.documents, self.observe(user, draws.observation))

    def round(
        self, scene: Scene, slates: Int[Array, "*#users platforms slots"], draws: RoundDraws
    ) -> tuple[Scene, Turn, Bool[Array, "*#users"]]:
        """Every platform acts once.

        Args:
            scene: The round's beginning.
            slates: Candidates in slot order.
            draws: The round's random numbers.

        Returns:
            The next round's scene, the turns with entries [K] by platform, and whether the user left (bool). When the
            user left, the scene is a new user's first.
        """
        xp, order = module_of(scene.documents, slates), draws.order
        axis = (slice(None),) * (draws.ticks.choice.ndim - 1)
        acting = (scene.documents, slates, draws.ticks)
        if self.turns == "shuffled":
            acting = map_trees(lambda rows: _by_platform(rows, order), acting)
        user, turns = scene.user, []
        for place in range(self.platforms):  # written out: one fused step instead of a loop within the loop over rounds
            who = order[(*axis, place)] if self.turns == "shuffled" else place
            documents, slate, ticks = map_trees(lambda rows, at=place: rows[(*axis, at)], acting)
            user, turn = self.step(user, documents, slate, ticks, who)
            turns.append(turn)
        turns = map_trees(lambda *rows: xp.stack(rows, axis=-1), *turns)
        if self.turns == "shuffled":
            turns = map_trees(lambda rows: _by_platform(rows, xp.argsort(order)), turns)
        done = user.left <= 0
        new = self.new_user(draws.newcomer)
        user = map_trees(lambda arriving, staying: xp.where(done, arriving, staying), new, user)
        observed = self.observe(user, draws.observation)
        if not self.fresh:
            observed = xp.where(done[..., None], observed, turns.observed)
        return Scene(user, draws.documents, observed), turns, done


def _by_platform(rows: Shaped[ArrayT, "*users platforms *shape"], order: Int[AnyArray, "*users platforms"]) -> ArrayT:
    """Rows of platforms in an order."""
    places = order.reshape(*order.shape, *[1] * (rows.ndim - order.ndim))
    return module_of(rows).take_along_axis(rows, places, axis=order.ndim - 1)


def _symmetric(words: UInt32[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Random words to numbers in the open interval (−1, 1): odd multiples of 2⁻²³, exact and symmetric about 0."""
    return (2.0 * (words >> np.uint32(9)).astype(np.float32) + 1.0) * 2.0**-23 - 1.0


def _normal(symmetric: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Uniform in (−1, 1) to standard normal, by inversion."""
    inverse = jax.lax.erf_inv(symmetric) if isinstance(symmetric, JaxArray) else erf_inv(symmetric)
    return math.sqrt(2.0) * inverse


#: Sensitivity at which serving only chocolate loses to moderation.
TENSION = 0.03

#: Noise on an observed satisfaction beside which a user's own is nothing; what is observed stays within ± 1.
NOTHING_SEEN = 100.0

#: Presets by name.
PRESETS: Registry[Satisfaction] = Registry("world")

PRESETS.register(
    "recsim",
    summary="Choc and Kale as RecSim's code and FedSlate's experiments have it: users prefer what does them good.",
    citation="ie2019recsim",
)(Satisfaction())
PRESETS.register(
    "paper",
    summary="Choc and Kale as the publications describe it: users prefer chocolate.",
    citation="deng2024fedslate",
)(Satisfaction(semantics="paper"))
PRESETS.register(
    "tension",
    summary="Satisfaction follows consumption three times as closely, so that short-sighted service loses.",
)(Satisfaction(sensitivity=TENSION))

PRESETS.register(
    "stock",
    summary="Long-term satisfaction as RecSim has it: a slate is one item, the past fades faster, nothing is seen.",
    citation="ie2019recsim",
)(Satisfaction(slate=1, platforms=1, memory_discount=0.7, time_budget=60, observation_noise=NOTHING_SEEN))


def preset(name: str, **overrides: Any) -> Satisfaction:
    """The world of that name, with some settings replaced.

    Args:
        name: ``"recsim"``, ``"paper"``, ``"tension"`` or ``"stock"``.
        overrides: Fields of :class:`~fedrank.slates.world.satisfaction.Satisfaction`.

    Raises:
        UnknownNameError: No such preset.
        ConfigError: No such setting, or a value is out of range.

    >>> preset("tension", candidates=100, slate=10).sensitivity
    0.03
    """
    world = PRESETS.get(name)
    known = [field.name for field in dataclasses.fields(world)]
    if unknown := sorted(set(overrides) - set(known)):
        raise ConfigError(f"A world has no setting {', '.join(unknown)}. Known: {', '.join(known)}.")
    return dataclasses.replace(world, **overrides)
