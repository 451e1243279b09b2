"""FedSlate for three platforms or more whose coordinator sees nothing but sums (a variant; not in the paper).

The published federated network Ω joins [own values ‖ others' values] at the coordinator (equations 9 and 10 of Deng et
al., arXiv 2409.14872, 2024), which must see every platform's values for it. Here Ω is sent to the platforms. Each
evaluates it on its own values and on the mean of the others', which it gets by taking its own out of the sum of all. A
sum is all that the coordinator is shown (:mod:`fedrank.privacy.secure_sum`). Two platforms cannot do that: each could
take its own values out of the sum, and what is left are the other's. A round::

    look       platforms send Q(s)                                          the coordinator sees Σ Q(s)
    recommend  it sends Σ Q(s) and Ω; each platform shows its best slate by Ω(own, (Σ − own)/(K − 1)); users act

and every so many rounds they learn from moments that all remember::

    batch      platforms send Q(s) and Q̄(s′) of the same B moments          Σ Q(s), Σ Q̄(s′)
    targets    it sends Σ Q̄(s′) and Ω̄; with feedback, y of equation 13      Σ y over the platforms with feedback
    learn      it sends Σ Q(s), the mean y and Ω; each platform takes the gradient of its loss, equation 14 or 15, by
               its own weights, which step, and by Ω's                      the sum of the gradients by Ω, which steps

**How this differs from FedSlate.**

* Ω takes one step a batch, by the sum of all losses, instead of K steps one after the other.
* All platforms learn at once. In FedSlate a platform's new values are sent around before the next one learns; here the
  others' values in a batch stay those from before.
* A platform joins its own values as they are, without rounding and noise, which are on what it sends only.
* Ω belongs to everybody. It travels to each platform in every round, and twice more with a batch: 4 H bytes each time.
  With N = 10, B = 32, K = 3 and two hidden layers of 32 units (H = 1,249) a platform is sent 5.4 kB in a round, and
  13.9 kB more with a batch; it sends 0.5 kB and 8.9 kB: keys and shares of the secure sums and all. In FedSlate it is
  sent 0.05 kB and up to 4.1 kB, and sends 0.04 kB and up to 5.3 kB.
* A sum is made of everybody or not at all (so the threshold of the secure sum is K). Without it platforms show slates
  as if the others valued nothing, and learn nothing in that round.
* Faults of the published code that need single values cannot be had.

A mean over the platforms makes the size of Ω's input independent of K, too.

**Who sees what.** The coordinator: sums of values, of targets and of gradients, each modulo 2³². In the simulator masks
are left out; :func:`~fedrank.slates.vertical_slate.pooled.state.summed` is all that is done with replies, and it has
no part of them. With a single platform with feedback the sum of targets is that platform's targets. With feedback
everywhere and ``objective = "own"``, nobody needs another's target and none crosses. A platform: Ω, the mean target and
every sum without its own part; with K = 3 that is the sum of what two others sent, and two platforms that put together
what they know have what the third one sent. Noise of the platforms' own (``settings.noise``) is added before summing
and protects values against everybody.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from fedrank.core.errors import ConfigError
from fedrank.core.protocol import Exchange, Party, Promise
from fedrank.privacy.unprotected import Unprotected
from fedrank.slates.learners import choice_fit
from fedrank.slates.vertical_slate import VerticalSlate
from fedrank.slates.vertical_slate.pooled.rounds import (
    PooledBatch,
    PooledCopy,
    PooledLearn,
    PooledLook,
    PooledRecommend,
    PooledTargets,
)
from fedrank.slates.vertical_slate.pooled.state import Grid, PooledOwn, PooledState, summed
from fedrank.slates.vertical_slate.state import (
    PlatformOwn,
    items_of,
    user_of,
)
from fedrank.slates.vertical_slate.visits import Greedy
from fedrank.slates.world.rollout import rollout

#: Below it, a sum without one's own part is another platform's.
FEWEST = 3
#: Discrete Laplace noise exceeds so many scales with a probability of e⁻⁴⁰, Gaussian noise more rarely.
_TAIL = 40
_NOT_COVERED = (
    "Sums of targets and of gradients: no noise is on them. Where a single platform has feedback, the sum of targets "
    "is its targets, which tell engagement nearly exactly; the mean of targets reaches every platform.",
    "The sum without one's own part, which every platform knows: with three platforms, of what two others sent. "
    "Platforms that put together what they know can take more out of it.",
    "Ω before and after its steps, which all platforms see: it tells them much of the sum of gradients.",
    "A coordinator that breaks the rules: of the secure sum, with keys of its own making for instance, or by asking "
    "for sums that differ in one platform's part only.",
)


@dataclass(frozen=True)
class PooledSlate(VerticalSlate):
    """FedSlate by sums.

    Attributes:
        settings: What everybody agrees on; three platforms or more. ``noise`` is each platform's own, before summing.
        clip: Largest absolute value of a Q-value, a target or a parameter of a choice model; what is beyond is set to
            it. Where there is noise, Q-values are cut to its range instead.
        steps: Steps that a unit of those is cut into, a power of two. With noise that has an ε, its grid is taken.
        gradient_clip: Largest L2 norm of a platform's gradient by Ω.
        gradient_steps: Steps that a unit of a gradient is cut into, a power of two.

    Raises:
        ConfigError: Fewer platforms than three, settings that need single values, or a sum that may run over.
    """

    clip: float = 1024.0
    steps: int = 2**16
    gradient_clip: float = 10.0
    gradient_steps: int = 2**22

    name = "vertical-slate-pooled"

    def __post_init__(self):
        super().__post_init__()
        s = self.settings
        if s.platforms < FEWEST:
            raise ConfigError(
                f"pooled values need {FEWEST} platforms or more, got {s.platforms}: of two, each can always subtract "
                "its own values from the sum, and what is left are the other's. Take vertical-slate."
            )
        if self.silent or s.central:
            raise ConfigError("pooled values are for platforms that federate: neither silent nor central.")
        if s.faults.online_others:
            raise ConfigError(
                "the fault online_others takes single platforms' values apart, and a coordinator that sees sums has "
                "none; leave it out or take vertical-slate."
            )
        noisy = s.noise is not None and s.noise.epsilon is not None
        noise = math.ceil(_TAIL * s.noise.scale(s.world.candidates)) if noisy else 0  # type: ignore[union-attr]
        self.values_grid.check(s.platforms, noise)
        self.targets_grid.check(s.platforms)
        self.gradient_grid.check(s.platforms)

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """A round's exchanges; those after the second are due where there is a batch to learn from."""
        learning = (PooledBatch(self), PooledTargets(self), PooledLearn(self))
        return PooledLook(self), PooledRecommend(self), *learning, PooledCopy(self)

    # -- sums -----------------------------------------------------------------------------------------------------

    @property
    def values_grid(self) -> Grid:
        """Of Q-values; the noise's own, where there is noise, so that what is added are whole steps."""
        noise = self.settings.noise
        if noise is None:
            return self.targets_grid
        steps = self.steps if noise.epsilon is None else noise.steps
        return Grid(1.0, steps, noise.centre, noise.clip)

    @property
    def targets_grid(self) -> Grid:
        """Of targets and choice models."""
        return Grid(self.clip, self.steps)

    @property
    def gradient_grid(self) -> Grid:
        """Of gradients."""
        return Grid(self.gradient_clip, self.gradient_steps)

    @property
    def shares_targets(self) -> bool:
        """Whether anybody needs another's target."""
        return self.settings.objective == "team" or not all(self.settings.feedback)

    def noise_of(self, draws: Any) -> Any:
        """Noise in steps as an exchange drew it; None without any."""
        noise = self.settings.noise
        return None if noise is None or noise.epsilon is None else draws

    # -- what platforms have and compute -----------------------------------------------------------------------------

    def parties(self, keys: Any) -> Party:
        """As :meth:`VerticalSlate.parties`, with room for what platforms have sent."""
        platforms: PlatformOwn = super().parties(keys).own
        s, lead = self.settings, (*keys.shape, self.settings.platforms)
        zeros = lambda *shape: jnp.zeros((*lead, *shape), jnp.uint32)  # noqa: E731
        n, b = s.world.candidates, s.batch
        targets = jnp.zeros((*lead, b), jnp.float32)
        return Party(None, PooledOwn(platforms, zeros(n), zeros(b, n), zeros(b, n), targets))

    def values_now(self, own: PlatformOwn) -> jax.Array:
        """Q(s) of one platform: float32 [N]."""
        return self.local(own.weights, user_of(self.settings, own.view), items_of(self.settings, own.view))

    def others_in(self, total: Any, sent: Any, there: Any) -> jax.Array:
        """What a platform tells Ω of the others: the mean of their values, float32 [..., N].

        Args:
            total: uint32 [..., N], the sum over all platforms.
            sent: uint32 [..., N], what this one put in.
            there: Above 0 if there is a sum; else the others value nothing.
        """
        others = self.values_grid.mean(total - sent, self.settings.platforms - 1)
        if self.settings.others == "pooled":
            others = jnp.broadcast_to(jnp.mean(others, axis=-1, keepdims=True), others.shape)
        return jnp.where(there > 0, others, 0.0)

    def acting(self, weights: Any, values: Any) -> jax.Array:
        """Federated values of all platforms in a round, [K, N] of [K, N], each made at its platform: (9), (10)."""
        return self._joined(weights, values, self.values_grid.words(values))

    def played(self, weights: Any, values: Any, key: Any) -> jax.Array:
        """The same with the noise of ``key`` on what platforms send; their own values they join as they are."""
        noise = self.settings.noise
        drawn = None if noise is None else self.noise_of(noise.draw(key, values.shape))
        return self._joined(weights, values, self.values_grid.words(values, drawn))

    def _joined(self, weights: Any, values: Any, words: Any) -> jax.Array:
        total = summed(words, jnp.ones(self.settings.platforms, bool))
        return jax.vmap(lambda own, sent: self.joint(weights, own, self.others_in(total, sent, 1)))(values, words)

    # -- the coordinator ----------------------------------------------------------------------------------------------

    def init(self, key: Any) -> PooledState:  # type: ignore[override] - it keeps sums
        """A fresh Ω; ``key`` is consumed."""
        s = self.settings
        b, n = s.batch, s.world.candidates
        weights_key, own = jax.random.split(key)
        weights = s.head.init(weights_key)
        zeros = lambda *shape: jnp.zeros(shape, jnp.uint32)  # noqa: E731
        return PooledState(
            round=jnp.uint32(0),
            key=own,
            weights=weights,
            target=weights,
            optimiser=self.adam.init(weights),
            looked=jnp.bool_(False),
            values=zeros(n),
            whole=jnp.bool_(False),
            batch=zeros(b, n),
            following=zeros(b, n),
            targets=jnp.zeros(b, jnp.float32),
            choice=choice_fit.initial(),
        )

    def weights(self, state: PooledState) -> jax.Array:  # type: ignore[override]
        """Ω."""
        return state.weights

    def watch(self, state: PooledState) -> dict[str, Any]:  # type: ignore[override]
        """The mean target of the last batch, where targets are shared."""
        return {"target": jnp.mean(state.targets)} if self.shares_targets else {}

    def evaluated(self, states: PooledState, own: PooledOwn, keys: Any) -> jax.Array:  # type: ignore[override]
        """As :meth:`VerticalSlate.evaluated`; values are summed on the grid, with their noise."""

        def of_run(weights, platforms, keys):
            policy = Greedy(self, weights, platforms)
            return jax.vmap(lambda key: jnp.sum(rollout(self.settings.world, policy, key).engagement, axis=0))(keys)

        return jax.vmap(of_run)(states.weights, own.platform, keys)

    def account(self, rounds: int, delta: float) -> Promise:
        """What is seen by whom, and what noise on Q-values promises.

        The account of noise counts values sent anew after a step, as FedSlate has them; here there are none, so that
        the ε of a stay and of a run are upper bounds.
        """
        s, world = self.settings, self.settings.world
        if s.noise is None or s.noise.epsilon is None:
            seen = (
                f"Sums over {s.platforms} platforms of values, targets and gradients, by the coordinator, if they are "
                "summed in secret; nothing is noised, and a sum has no bound on what it tells."
            )
            return Unprotected(rounds, seen, _NOT_COVERED)
        report = s.noise.account(
            rounds,
            delta,
            candidates=world.candidates,
            platforms=s.platforms,
            batch=s.batch,
            learn_every=s.learn_every,
            burn_in=s.burn_in,
            memory=s.memory,
            episode_rounds=world.rounds_per_episode,
        )
        # The first of FedSlate's own is about targets and gradients that cross one by one.
        return replace(report, not_covered=(*_NOT_COVERED, *report.not_covered[1:]))
