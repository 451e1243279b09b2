"""Audits of the noise on lists of Q-values and on sums: platforms' own code, with the operating system's randomness."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64
from typing_extensions import override

from fedrank.core.lazy import jnp
from fedrank.core.native import map_trees
from fedrank.core.privacy_report import DELTA, Unit
from fedrank.core.protocol import Party
from fedrank.privacy.audit import Audit
from fedrank.privacy.noisy_values import ValueNoise
from fedrank.slates.config import Privacy
from fedrank.slates.planning.learner import PlanLearner
from fedrank.slates.sums import SummedSlates, SumSharing
from fedrank.slates.sums.learner import SumLearner, clip_stay, norm_bin
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
        return np.zeros(self.length, np.float32)

    @override
    def solve(self, sums, rounds, model, noise):
        return np.zeros(1, np.float32)

    @override
    def values(self, own):
        return np.zeros(self.world.candidates, np.float32)


def _sums_audit(
    name: str,
    worlds: str,
    protocol: SummedSlates,
    names: Sequence[str],
    add: Callable[[int], dict[str, np.ndarray]],
) -> Audit:
    """An audit of what all platforms send in some exchanges, one after the other.

    Args:
        name: Name of the audit.
        worlds: Both worlds, in a sentence.
        protocol: What is audited; its messages have noise.
        names: Names of these exchanges.
        add: What a user adds to each platform's state before the first of them, in a world, by the state's fields.
    """
    platforms, state = protocol.world.platforms, protocol.init(None)
    exchanges = {exchange.name: exchange for exchange in protocol.exchanges}
    own = protocol.platform(None, np.arange(platforms, dtype=np.int32))

    def send(world: int, place: int, noisy: bool = True) -> Int64[np.ndarray, " numbers"]:
        party, sent = Party(None, map_trees(lambda leaf: leaf[place], own)._replace(**add(world))), []
        for exchange in (exchanges[name] for name in names):
            noise = exchange.draw_from_os() if noisy else np.zeros_like(exchange.draw_from_os())
            party, reply = exchange.respond(exchange.ask(state), party, noise)
            sent += [np.asarray(getattr(reply, field.name), np.int64) for field in fields(reply)]
        return np.concatenate(sent)

    apart = np.stack([send(1, place, False) - send(0, place, False) for place in range(platforms)])
    # The likelihood ratio of normal noise: how far a message lies in the direction from one world to the other.
    towards = np.rint(apart / max(1.0, float(np.abs(apart).max())) * 1000).astype(np.int64)

    def sample(world: int, trials: int) -> Int64[np.ndarray, " trials"]:
        sent = ([send(world, place) for _ in range(trials)] for place in range(platforms))
        return np.sum([np.stack(rows) @ along for rows, along in zip(sent, towards, strict=True)], axis=0)

    trials = int(np.clip(_DRAWN // apart.size, 2_000, 20_000))
    epsilon = float(protocol.epsilon or 0.0)
    return Audit(name, Unit.USER, worlds, epsilon, sample, protocol.delta, True, True, trials)


def _protocol(learner: type[SumLearner], epsilon: float, delta: float, platforms: int, **given: Any) -> SummedSlates:
    """Platforms with feedback that send sums with noise."""
    world = Satisfaction(candidates=3, slate=2, platforms=platforms, time_budget=platforms)
    made = learner(world, (True,) * platforms, **given)
    return SummedSlates(made, SumSharing(epsilon=epsilon), Privacy(delta=delta))


def _signs(numbers: int) -> Float32[np.ndarray, " numbers"]:
    """A direction in which noise that coordinates share falls out."""
    return np.where(np.arange(numbers) % 2, -1.0, 1.0).astype(np.float32)


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
    protocol = _protocol(_Vector, epsilon, delta, platforms, explorers=(1,) * releases, length=numbers)

    def add(world: int) -> dict[str, np.ndarray]:
        return {"sums": np.asarray(clip_stay(1e4 * _signs(numbers) * (2 * world - 1), protocol.learner.clip))}

    worlds = "a user adds as much as the clip allows to the sums of all platforms, or the opposite"
    return _sums_audit("slate-sums", worlds, protocol, ["release"] * releases, add)


def slate_bound(epsilon: float = 1.0, delta: float = DELTA, platforms: int = 2) -> Audit:
    """The release by which platforms that send sums find their clip, and the sums after it: one user is counted in it.

    Args:
        epsilon: ε of a user's whole stay at all platforms, in nats.
        delta: δ of it.
        platforms: Platforms with feedback, at least 1.
    """
    protocol = _protocol(_Vector, epsilon, delta, platforms, explorers=(1,), bounders=1, length=3)
    middle = protocol.learner.clip

    def add(world: int) -> dict[str, np.ndarray]:
        return {"norms": np.asarray(norm_bin(np.array([1e3 * middle * world], np.float32), middle))}

    worlds = "a user's vector is longer than any bin at all platforms, or zero"
    return _sums_audit("slate-bound", worlds, protocol, ["bound", "release"], add)


def slate_trial(epsilon: float = 1.0, delta: float = DELTA, platforms: int = 2) -> Audit:
    """The sums of a plan's trial, of platforms with feedback: one stay is in them.

    Args:
        epsilon: ε of a user's whole stay at all platforms, in nats.
        delta: δ of it.
        platforms: Platforms with feedback, at least 1.
    """
    protocol = _protocol(PlanLearner, epsilon, delta, platforms, explorers=(1,), trial=(1,))

    def add(world: int) -> dict[str, np.ndarray]:
        return {"tested": np.asarray(clip_stay(1e4 * _signs(NUMBERS) * (2 * world - 1), CLIP))}

    worlds = "a stay adds as much as the clip allows to a trial's sums at all platforms, or the opposite"
    return _sums_audit("slate-trial", worlds, protocol, ["trial"], add)
