"""Noise on integers that protects people: discrete Laplace and discrete Gaussian, drawn exactly.

For sums of integers, as :mod:`fedrank.privacy.secure_sum` makes them. Noise made of floating-point numbers shows, in
its lowest bits, what it was added to (Mironov, CCS 2012); integers do not, if each value comes with exactly the right
probability. The samplers use nothing but whole numbers and the operating system's randomness, after Canonne, Kamath and
Steinke, *The discrete Gaussian for differential privacy* (NeurIPS 2020). They are for real devices and cannot be
seeded; :mod:`fedrank.privacy.noise.simulated` has quick ones for simulations. How long they take depends on what they
draw. How large noise has to be is the matter of :mod:`fedrank.privacy.calibration`.

**Shares.** Discrete Laplace noise is infinitely divisible: it is the sum of n independent differences of two Pólya
(negative binomial) variables of shape 1/n. Every party adds one such share, and if only the sum is seen the sum is
protected, without anybody who knows the noise. A share by itself protects nothing: among many parties it is nearly
always zero (:func:`zero_share`), so that whoever sees one message sees the numbers themselves. Shares of shape 1/m
instead of 1/n are enough if any m of the n parties add theirs; more than enough does no harm.
"""

from __future__ import annotations

import math
from fractions import Fraction
from secrets import randbelow
from typing import TYPE_CHECKING

import numpy as np

from fedrank.core.errors import ConfigError

if TYPE_CHECKING:  # a device, which runs this, has NumPy only
    from jaxtyping import Int64

#: Largest scale of noise, in steps: sums of more would not leave room for anything else in 32 bits.
LARGEST_SCALE = 2**30


def zero_share(scale: float, enough: int) -> float:
    """The probability that one party's share of discrete Laplace noise is exactly zero in a coordinate.

    (1 − α)^(2/m) · ₂F₁(1/m, 1/m; 1; α²), the chance that two Pólya variables are equal.

    Args:
        scale: Scale t of the noise in the sum, in steps.
        enough: Shares m that make up the noise.

    >>> round(zero_share(scale=72_818, enough=1000), 3)
    0.978
    """
    from scipy.special import hyp2f1

    _check_shares(scale, enough)
    alpha = math.exp(-1.0 / scale)
    return float((-math.expm1(-1.0 / scale)) ** (2.0 / enough) * hyp2f1(1.0 / enough, 1.0 / enough, 1.0, alpha**2))


def enough_parties(parties: int, absent: float) -> int:
    """Number of parties that are sure to add their shares if at most the part ``absent`` of them is absent.

    Args:
        parties: Parties n that are asked.
        absent: Largest part of them, in [0, 1), that drops out or lets its share be known.

    >>> enough_parties(1000, 0.1)
    900
    """
    if parties < 1 or not 0.0 <= absent < 1.0:
        raise ConfigError(f"parties must be at least 1 and absent in [0, 1), got {parties} and {absent}.")
    return max(1, math.ceil(parties * (1 - Fraction(absent).limit_denominator(10**6))))


def discrete_laplace(scale: float | Fraction, size: int) -> Int64[np.ndarray, "{size}"]:
    """Draw discrete Laplace noise (Algorithm 2 of Canonne et al.).

    Args:
        scale: Scale t in steps, taken as the exact fraction that it is.
        size: Numbers wanted.

    Returns:
        int64 [size].
    """
    exact = _check_shares(scale, 1)
    return np.array([_laplace(exact.numerator, exact.denominator) for _ in range(size)], np.int64)


def discrete_gaussian(sigma: float | Fraction, size: int) -> Int64[np.ndarray, "{size}"]:
    """Draw discrete Gaussian noise, P(x) ∝ e^(−x²/(2σ²)) (Algorithm 3 of Canonne et al.).

    Args:
        sigma: σ in steps, taken as the exact fraction that it is.
        size: Numbers wanted.

    Returns:
        int64 [size].
    """
    return np.array([_gaussian(_check_shares(sigma, 1) ** 2) for _ in range(size)], np.int64)


def laplace_shares(scale: float | Fraction, enough: int, size: int) -> Int64[np.ndarray, "{size}"]:
    """Draw one party's shares of discrete Laplace noise: differences of two Pólya variables of shape 1/m.

    A Pólya variable of shape r is the sum of the points of a Poisson process on 1, 2, … that has r α^k/k points at k on
    average (its form as a compound Poisson sum of logarithmic variables). Points are proposed block by block,
    2^b ≤ k < 2^(b+1), at the same rate r in each, uniformly within a block, and kept with probability
    (2^b/k) e^(−k/t). The infinitely many blocks beyond the scale are proposed together: the j-th of them with
    probability 2^−j, and points in it are kept 2^j times as often.

    Args:
        scale: Scale t of the noise in the sum, in steps, taken as the exact fraction that it is.
        enough: Shares m whose sum is discrete Laplace noise of that scale.
        size: Numbers wanted.

    Returns:
        int64 [size].
    """
    exact = _check_shares(scale, enough)
    return np.array([_share(exact.numerator, exact.denominator, enough) for _ in range(size)], np.int64)


def _bernoulli_exp(numerator: int, denominator: int) -> bool:
    """True with probability e^(−numerator/denominator) (Algorithm 1 of Canonne et al.)."""
    while numerator > denominator:
        if not _bernoulli_exp(1, 1):
            return False
        numerator -= denominator
    k = 1
    while randbelow(denominator * k) < numerator:
        k += 1
    return k % 2 == 1


def _bernoulli_two_by_e() -> bool:
    """True with probability 2/e = 1 − 1/3 + 1/(3·4) − 1/(3·4·5) + …, by the same argument as above."""
    k = 3
    while randbelow(k) == 0:
        k += 1
    return k % 2 == 1


def _laplace(numerator: int, denominator: int) -> int:
    """Discrete Laplace of scale numerator/denominator."""
    while True:
        remainder = randbelow(numerator)
        if not _bernoulli_exp(remainder, numerator):
            continue
        whole = 0
        while _bernoulli_exp(1, 1):
            whole += 1
        magnitude = (remainder + numerator * whole) // denominator
        negative = randbelow(2)
        if magnitude or not negative:  # else zero would come twice as often
            return -magnitude if negative else magnitude


def _gaussian(variance: Fraction) -> int:
    scale = math.isqrt(variance.numerator // variance.denominator) + 1
    while True:
        proposal = _laplace(scale, 1)
        exponent = (abs(proposal) - variance / scale) ** 2 / (2 * variance)
        if _bernoulli_exp(exponent.numerator, exponent.denominator):
            return proposal


def _share(numerator: int, denominator: int, enough: int) -> int:
    """A difference of two Pólya variables: their points together, each with a sign by chance."""
    blocks = ((numerator + denominator - 1) // denominator - 1).bit_length()  # 2^blocks ≥ scale
    total = 0
    for _ in range(_poisson(Fraction(2 * (blocks + 1), enough))):
        block = randbelow(blocks + 1)
        while block >= blocks and randbelow(2):
            block += 1
        beyond = max(0, block - blocks + 1)
        k = 2**block + randbelow(2**block)
        # k/t ≥ 2^(beyond − 1) ≥ beyond, so that 2^beyond e^(−k/t) = (2/e)^beyond e^(−(k/t − beyond)) is a probability.
        if (
            randbelow(k) < 2**block
            and all(_bernoulli_two_by_e() for _ in range(beyond))
            and _bernoulli_exp(k * denominator - beyond * numerator, numerator)
        ):
            total += k if randbelow(2) else -k
    return total


def _poisson(rate: Fraction) -> int:
    """A Poisson variable, as a sum of ones with a rate λ ≤ 1/2: x from λ^x (1 − λ), kept with probability 1/x!."""
    parts = math.ceil(2 * rate)
    part = rate / parts
    total = 0
    for _ in range(parts):
        while True:
            x = 0
            while randbelow(part.denominator) < part.numerator:
                x += 1
            if all(randbelow(i) == 0 for i in range(2, x + 1)):
                break
        total += x
    return total


def _check_shares(scale: float | Fraction, enough: int) -> Fraction:
    """The scale as an exact fraction.

    Raises:
        ConfigError: Scale or number of shares are out of range.
    """
    if not 0 < scale <= LARGEST_SCALE:
        raise ConfigError(f"scale of noise must be in (0, 2**30] steps, got {scale}.")
    if enough < 1:
        raise ConfigError(f"the shares that make up the noise must be at least 1, got {enough}.")
    return Fraction(scale)
