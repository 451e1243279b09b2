"""Audits of what a device sends in FOLtR-ES and FPDGD: its own code, with the operating system's randomness.

A hostile server may hand out a ranker that is made for one person, so that what it wants to know decides the rewards
themselves. That is what the worlds here are: the rewards are as far apart as they can be. How much one message tells
such a server is within what is promised, or the audit says that it is not.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int32, Int64

from fedrank.core.privacy_report import DELTA, Unit
from fedrank.metrics.online import REWARDS, OnlineMetric
from fedrank.privacy.audit import Audit
from fedrank.privacy.calibration import shared_gaussian_sigma
from fedrank.privacy.noise.discrete import discrete_gaussian, laplace_shares
from fedrank.privacy.noisy_sums import NoisyValues
from fedrank.privacy.piecewise import WORDS, Piecewise, best_clipped
from fedrank.privacy.randomised_response import os_words, probability
from fedrank.ranking.on_device.reply import CLIP, ClicksToReply

#: Patterns of clicks: on the first result, and on none; and the results that a click can be on.
_FIRST, _NONE = 1, 0
_DEPTH = 10
#: Devices whose shares are added up, and by how many steps one device's vector changes the sum.
_DEVICES, _STEPS = 3, 64


def _metric() -> OnlineMetric:
    return REWARDS.get("MaxRR")(_DEPTH)


def piecewise(
    epsilon: float = 1.0,
    delta: float = DELTA,
    interactions: int = 4,
    inside: int = 0,
    outside: int = 0,
    clip: float = CLIP,
) -> Audit:
    """A message of FOLtR-ES with one number about everything that the device did.

    Args:
        epsilon: ε of a message, in nats.
        delta: Not used: the promise has none.
        interactions: B, interactions behind a message; even.
        inside: Reports in the mechanism's window; 0: the best for this ε.
        outside: Reports outside it.
        clip: Largest difference that a message tells, as a part of the largest there can be.
    """
    mechanism = Piecewise(epsilon, inside, outside) if inside else best_clipped(epsilon, clip)
    made = ClicksToReply(_metric(), max(1, interactions // 2), piecewise=mechanism, clip=clip)

    def sample(world: int, trials: int) -> Int64[np.ndarray, " trials"]:
        patterns = np.full((2, trials, made.per_half), _NONE, np.int32)
        patterns[world] = _FIRST
        sums = made.sums(patterns, np.zeros((*patterns.shape, 2), np.uint32), None, np)
        reply = made.message(np.zeros(trials, np.uint32), sums, os_words((trials, WORDS)), np)
        return np.asarray(reply.report, np.int64)  # type: ignore[union-attr] - a PrivateReply

    worlds = "the user clicks on the first result of every list of one half and on none of the other, or the reverse"
    return Audit("piecewise", Unit.MESSAGE, worlds, epsilon, sample)


def _one_interaction(made: ClicksToReply, world: int, trials: int) -> tuple[np.ndarray, np.ndarray]:
    """Patterns [2, trials, interactions] with one click in the second world, and their random words."""
    patterns: Int32[np.ndarray, "2 trials interactions"] = np.full((2, trials, made.per_half), _NONE, np.int32)
    patterns[0, :, 0] = _FIRST if world else _NONE
    return patterns, os_words((*patterns.shape, 2))


_ONE_CLICK = "the user clicks on the first result of one list, or on none"


def randomised_response(epsilon: float = 1.0, delta: float = DELTA, values: int = 11) -> Audit:
    """A message of FOLtR-ES whose rewards are privatised one by one, as in the paper.

    There is one interaction a half: a sum of several hides more of each than is promised.

    Args:
        epsilon: ε of an interaction, in nats.
        delta: Not used: the promise has none.
        values: n, values of the reward, at least 2.
    """
    every = np.minimum(np.arange(2**_DEPTH), values - 1).astype(np.int32)  # a click on the first result: the next value
    metric = OnlineMetric("audited", _DEPTH, tuple(range(values)), max(1, values - 1), every)
    made = ClicksToReply(metric, 1, p=probability(epsilon, values))

    def sample(world: int, trials: int) -> Int64[np.ndarray, " trials"]:
        patterns, words = _one_interaction(made, world, trials)
        reply = made.message(np.zeros(trials, np.uint32), made.sums(patterns, words, None, np), None, np)
        return np.asarray(reply.plus, np.int64)  # type: ignore[union-attr] - a Reply; the other half says nothing of it

    return Audit("randomised-response", Unit.INTERACTION, _ONE_CLICK, epsilon, sample)


def _noisy_sums(name: str, epsilon: float, delta: float) -> Audit:
    metric = _metric()
    made = ClicksToReply(metric, 1, noisy=True)
    noise = NoisyValues(name, epsilon, delta, metric.largest)

    def sample(world: int, trials: int) -> Int64[np.ndarray, " trials"]:
        patterns, words = _one_interaction(made, world, trials)
        drawn = np.stack([np.asarray(noise.draw_from_os((trials,))), np.zeros(trials, np.int32)])
        reply = made.message(np.zeros(trials, np.uint32), made.sums(patterns, words, None, np), drawn, np)
        return np.asarray(reply.plus, np.int64)  # type: ignore[union-attr] - a NoisyReply; the other half has no part

    gaussian = name == "gaussian"
    delta = delta if gaussian else 0.0
    # Noise of devices is drawn number by number.
    return Audit(f"{name}-sums", Unit.INTERACTION, _ONE_CLICK, epsilon, sample, delta, gaussian, True, 50_000)


def laplace_sums(epsilon: float = 1.0, delta: float = DELTA) -> Audit:
    """A message of FOLtR-ES with discrete Laplace noise on the sums of rewards.

    Args:
        epsilon: ε of an interaction, in nats.
        delta: Not used: the promise has none.
    """
    return _noisy_sums("laplace", epsilon, delta)


def gaussian_sums(epsilon: float = 1.0, delta: float = DELTA) -> Audit:
    """A message of FOLtR-ES with discrete Gaussian noise on the sums of rewards.

    Args:
        epsilon: ε of an interaction, in nats.
        delta: δ of it.
    """
    return _noisy_sums("gaussian", epsilon, delta)


def laplace_shares_in_a_sum(epsilon: float = 1.0, delta: float = DELTA) -> Audit:
    """A secure sum of FPDGD: the shares of noise of three devices, one of which sends a vector or none.

    Args:
        epsilon: ε of a device in a round, in nats.
        delta: Not used: the promise has none.
    """

    def sample(world: int, trials: int) -> Int64[np.ndarray, " trials"]:
        shares = laplace_shares(_STEPS / epsilon, _DEVICES, _DEVICES * trials).reshape(_DEVICES, trials)
        return shares.sum(axis=0) + world * _STEPS

    worlds = f"one number of the sum is {_STEPS} steps larger, the largest change of one device, or not"
    return Audit("laplace-shares", Unit.ROUND, worlds, epsilon, sample, ordered=True, trials=10_000)


def gaussian_shares_in_a_sum(epsilon: float = 1.0, delta: float = DELTA) -> Audit:
    """A secure sum of FPDGD with Gaussian noise: the shares of three devices, one of which changes a number or not.

    Args:
        epsilon: ε of a device in a round, in nats.
        delta: δ of it.
    """
    sigma = shared_gaussian_sigma(epsilon, delta, _STEPS, _DEVICES, 1) / _DEVICES**0.5

    def sample(world: int, trials: int) -> Int64[np.ndarray, " trials"]:
        shares = discrete_gaussian(sigma, _DEVICES * trials).reshape(_DEVICES, trials)
        return shares.sum(axis=0) + world * _STEPS

    worlds = f"one number of the sum is {_STEPS} steps larger, the largest change of one device, or not"
    return Audit("gaussian-shares", Unit.ROUND, worlds, epsilon, sample, delta, True, True, 100_000)
