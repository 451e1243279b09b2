"""Audits of the noise on lists of Q-values and on sums: platforms' own code, with the operating system's randomness."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, Int64, Shaped
from typing_extensions import override

from fedrank.core.arrays import AnyArray as Array
from fedrank.core.arrays import PyTree
from fedrank.core.lazy import jax, jnp
from fedrank.core.native import map_trees
from fedrank.core.privacy_report import DELTA, Unit
from fedrank.core.protocol import Exchange, Party
from fedrank.privacy.audit import Audit
from fedrank.privacy.noisy_values import ValueNoise
from fedrank.slates.config import Privacy
from fedrank.slates.planning.learner import PlanLearner
from fedrank.slates.sums import CoordinatorState, SummedSlates, SumSharing, Trial
from fedrank.slates.sums.learner import PlatformState, SumLearner, clip_stay, norm_bin
from fedrank.slates.sums.trial import CLIP, NUMBERS
from fedrank.slates.world.satisfaction import Satisfaction

#: Values of a list. The more there are, the rarer is a list that tells as much as is promised.
_CANDIDATES = 2


def _values(mechanism: str, epsilon: float, delta: float) -> Audit:
    noise = ValueNoise(1.0, epsilon, delta, mechanism)

    def sample(world: int, trials: int) -> Int64[np.ndarray, " trials"]:
        shape = (trials, _CANDIDATES)
        sent = noise.apply(jnp.full(shape, 2.0 * world - 1.0, jnp.float32), noise.draw_from_os(shape))
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


class Parties(NamedTuple):
    """Coordinator and platforms between two messages.

    Attributes:
        state: What the coordinator has.
        own: What each platform has, leaves [K, ...].
    """

    state: CoordinatorState
    own: PlatformState


class Seen(NamedTuple):
    """Messages of an exchange, leaves [K, ...]; zeros where a platform was not asked.

    Attributes:
        request: What each platform was sent.
        reply: What each answered.
    """

    request: PyTree
    reply: PyTree

    @property
    def coordinator(self) -> list[Shaped[Array, "..."]]:
        """Values that the coordinator reads from others."""
        return jax.tree.leaves(self.reply)

    def platform(self, number: int) -> list[Shaped[Array, "..."]]:
        """Values that a platform is sent and sends.

        Args:
            number: Number of the platform, from 0.
        """
        return [leaf[number] for leaf in jax.tree.leaves((self.request, self.reply))]


def first_parties(protocol: SummedSlates) -> Parties:
    """Coordinator and platforms before the first user."""
    numbers = jnp.arange(protocol.world.platforms)
    return Parties(protocol.init(None), jax.vmap(lambda number: protocol.platform(None, number))(numbers))


def due(protocol: SummedSlates, number: int) -> list[Exchange]:
    """The exchanges of a round in which something crosses.

    Args:
        protocol: The protocol.
        number: Number of the round.
    """
    return [exchange for exchange in protocol.exchanges if not exchange.silent and exchange.due(number)]


def play_round(
    protocol: SummedSlates,
    before: Parties,
    number: int,
    draws: list[PyTree],
    *,
    sums: Int[Array, "platforms statistics"] | int = 0,
    norms: Int[Array, "platforms bins"] | int = 0,
) -> tuple[Parties, list[Seen]]:
    """The messages of a round, after its users.

    Args:
        protocol: The protocol.
        before: Coordinator and platforms before.
        number: Number of the round.
        draws: Noise of each exchange that is due, leaves [K, ...].
        sums: What the users of this release added to each platform's sums, in steps.
        norms: What those by whom the clip is found added to each platform's counts.

    Returns:
        Coordinator and platforms afterwards, and what each exchange shows.
    """
    k = protocol.world.platforms
    # The round's users have been served, which coordinator and platforms have counted.
    state, own = before.state._replace(round=jnp.uint32(number + 1)), before.own
    own = own._replace(sums=own.sums + sums, norms=own.norms + norms)
    seen = []
    for exchange, noise in zip(due(protocol, number), draws, strict=True):
        request = exchange.ask(state)
        axis = 0 if exchange.personal else None
        party, reply = jax.vmap(exchange.respond, in_axes=(axis, 0, 0))(request, Party(None, own), noise)
        asked = exchange.asked(state, k)
        asked = jnp.ones(k, bool) if asked is None else jnp.asarray(asked)
        own = _where(asked, party.own, own)
        reply = _where(asked, reply, jax.tree.map(jnp.zeros_like, reply))
        state = exchange.tell(state, reply, asked)
        if not exchange.personal:
            request = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (k, *jnp.shape(leaf))), request)
        seen.append(Seen(_where(asked, request, jax.tree.map(jnp.zeros_like, request)), reply))
    return Parties(state, own), seen


def _where(asked: Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(asked.reshape(-1, *(1,) * (a.ndim - 1)), a, b), yes, no)


# -- sums over users ----------------------------------------------------------------------------------------------

#: Noise numbers that an audit of sums draws in each world: a thousand take some 30 ms.
_DRAWN = 250_000


@dataclass(frozen=True)
class _Vector(SumLearner):
    """A learner of as many numbers as wanted, whose sums are released and not used.

    Attributes:
        length: Numbers that cross.
    """

    length: int = 1

    name = "audited"
    numbers = property(lambda self: self.length)  # type: ignore[assignment] - elsewhere an attribute of the class

    @override
    def contribution(self, own, item, engagement):
        return jnp.zeros(self.length, jnp.float32)

    @override
    def solve(self, sums, rounds, model, noise):
        return jnp.zeros(1, jnp.float32)

    @override
    def values(self, own):
        return jnp.zeros(self.world.candidates, jnp.float32)


def _release_audit(
    name: str, worlds: str, protocol: SummedSlates, users: Callable[[Parties, int], dict[str, Array]]
) -> Audit:
    """An audit of everything that crosses, of all releases.

    Args:
        name: Name of the audit.
        worlds: Both worlds, in a sentence.
        protocol: What is audited; its messages have noise.
        users: What the first release's users add in a world, as keywords of :func:`.play_round`.
    """
    learner, k = protocol.learner, protocol.world.platforms
    rounds = (learner.bound_round,) * bool(learner.bounders) + learner.release_rounds

    def messages(world: int, draws: list[list[PyTree]]) -> Int[Array, " numbers"]:
        at, out = first_parties(protocol), []
        for place, number in enumerate(rounds):
            at, seen = play_round(protocol, at, number, draws[place], **(users(at, world) if place == 0 else {}))
            out += [leaf.reshape(-1) for one in seen for leaf in one.coordinator]
        return jnp.concatenate([leaf for leaf in out if jnp.issubdtype(leaf.dtype, jnp.integer)])

    program = jax.jit(jax.vmap(messages, in_axes=(None, 0)), static_argnums=0)

    def of_os(exchange: Exchange, trials: int) -> PyTree:
        each = [exchange.draw_from_os() for _ in range(trials * k)]
        return jax.tree.map(lambda *leaves: np.stack(leaves).reshape(trials, k, *np.shape(leaves[0])), *each)

    def drawn(trials: int) -> list[list[PyTree]]:
        return [[of_os(exchange, trials) for exchange in due(protocol, number)] for number in rounds]

    nothing = jax.tree.map(np.zeros_like, drawn(1))
    clean = [np.asarray(program(world, nothing), np.int64)[0] for world in (0, 1)]
    apart = clean[1] - clean[0]
    # The likelihood ratio of normal noise: how far a message lies in the direction from one world to the other.
    towards = np.rint(apart / max(1.0, float(np.abs(apart).max())) * 1000).astype(np.int64)

    def sample(world: int, trials: int) -> Int64[np.ndarray, " trials"]:
        return np.asarray(program(world, drawn(trials)), np.int64) @ towards

    trials = int(np.clip(_DRAWN // len(apart), 2_000, 20_000))
    epsilon, delta = float(protocol.epsilon or 0.0), protocol.delta
    return Audit(name, Unit.USER, worlds, epsilon, sample, delta, True, True, trials)


def _audit_protocol(
    epsilon: float, delta: float, numbers: int, platforms: int, explorers: tuple[int, ...], bounders: int
) -> SummedSlates:
    world = Satisfaction(candidates=3, slate=2, platforms=platforms, time_budget=platforms)
    learner = _Vector(world, (True,) * platforms, explorers, bounders=bounders, length=numbers)
    return SummedSlates(learner, SumSharing(epsilon=epsilon), Privacy(delta=delta))


def slate_sums(
    epsilon: float = 1.0, delta: float = DELTA, numbers: int = 12, platforms: int = 2, releases: int = 2
) -> Audit:
    """All releases of platforms that send sums: one user is added to the first.

    Args:
        epsilon: ε of a user's whole stay at all platforms, in nats.
        delta: δ of it.
        numbers: Numbers of a release, at least 1: five of planned slates, eleven with the matrix of least squares.
        platforms: Platforms with feedback, at least 1.
        releases: Releases, at least 1; another user's stay would be in each.
    """
    protocol = _audit_protocol(epsilon, delta, numbers, platforms, (1,) * releases, 0)
    # As long as the clip allows, in a direction in which noise that coordinates share falls out.
    signs = np.where(np.arange(numbers) % 2, -1.0, 1.0).astype(np.float32)

    def users(at: Parties, world: int) -> dict[str, Array]:
        stay = 1e4 * signs * (2 * world - 1)
        return {"sums": jax.vmap(lambda clip: clip_stay(jnp.asarray(stay, jnp.float32), clip))(at.own.clip)}

    worlds = "a user adds as much as the clip allows to the sums of all platforms, or the opposite"
    return _release_audit("slate-sums", worlds, protocol, users)


def slate_bound(epsilon: float = 1.0, delta: float = DELTA, platforms: int = 2) -> Audit:
    """The release by which platforms that send sums find their clip, and the sums after it: one user is counted in it.

    Args:
        epsilon: ε of a user's whole stay at all platforms, in nats.
        delta: δ of it.
        platforms: Platforms with feedback, at least 1.
    """
    protocol = _audit_protocol(epsilon, delta, 3, platforms, (1,), 1)

    def users(at: Parties, world: int) -> dict[str, Array]:
        middle = protocol.learner.clip
        stay = jnp.asarray([1e3 * middle if world else 0.0])
        return {"norms": jnp.broadcast_to(norm_bin(stay, middle), at.own.norms.shape)}

    return _release_audit(
        "slate-bound", "a user's vector is longer than any bin at all platforms, or zero", protocol, users
    )


def slate_trial(epsilon: float = 1.0, delta: float = DELTA, platforms: int = 2) -> Audit:
    """The sums of a plan's trial, of platforms with feedback: one stay is in them.

    Args:
        epsilon: ε of a user's whole stay at all platforms, in nats.
        delta: δ of it.
        platforms: Platforms with feedback, at least 1.
    """
    world = Satisfaction(candidates=3, slate=2, platforms=platforms, time_budget=platforms)
    learner = PlanLearner(world, (True,) * platforms, (1,), trial=(1,))
    protocol = SummedSlates(learner, SumSharing(epsilon=epsilon), Privacy(delta=delta))
    exchange: Any = next(one for one in protocol.exchanges if isinstance(one, Trial))
    own, request = protocol.platform(None, np.arange(platforms, dtype=np.int32)), exchange.ask(protocol.init(None))
    signs = np.where(np.arange(NUMBERS) % 2, -1.0, 1.0).astype(np.float32)

    def sample(world: int, trials: int) -> Int64[np.ndarray, " trials"]:
        added = np.asarray(clip_stay(1e4 * signs * (2 * world - 1), CLIP), np.int32)
        found = np.zeros(trials, np.int64)
        for at in range(platforms):
            mine = map_trees(lambda leaf, at=at: leaf[at], own)._replace(tested=added)
            for trial in range(trials):
                reply = exchange.respond(request, Party(None, mine), exchange.draw_from_os())[1]
                found[trial] += np.asarray(reply.sums, np.int64) @ signs.astype(np.int64)
        return found

    trials = _DRAWN // (NUMBERS * platforms)
    worlds = "a stay adds as much as the clip allows to a trial's sums at all platforms, or the opposite"
    return Audit("slate-trial", Unit.USER, worlds, float(epsilon), sample, delta, True, True, trials)
