"""The perturbation of a seed, with the standard library alone: a text to translate from."""

import struct
from statistics import NormalDist

WORD = 0xFFFFFFFF


def block(seed: int, b: int) -> tuple[int, int]:
    """Step 1: Threefry-2x32-20 with the key (0x66725F76, seed) and the counter (b, 0)."""
    key = (0x66725F76, seed, 0x66725F76 ^ seed ^ 0x1BD11BDA)
    x0, x1 = (b + key[0]) & WORD, key[1]
    for i in range(5):
        for r in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
            x0 = (x0 + x1) & WORD
            x1 = ((x1 << r | x1 >> (32 - r)) & WORD) ^ x0
        x0 = (x0 + key[(i + 1) % 3]) & WORD
        x1 = (x1 + key[(i + 2) % 3] + i + 1) & WORD
    return x0, x1


def halves(seed: int, size: int) -> list[int]:
    """Step 2: four 16-bit numbers a block, low half first."""
    out = []
    for b in range((size + 3) // 4):
        for word in block(seed, b):
            out += [word & 0xFFFF, word >> 16]
    return out[:size]


def normal(h: int) -> float:
    """Step 3: the quantile, rounded to single precision; the lower half mirrors the upper."""
    if h < 32768:
        return -normal(65535 - h)
    quantile = NormalDist().inv_cdf((h + 0.5) / 65536)
    return struct.unpack("<f", struct.pack("<f", quantile))[0]


def perturbation(seed: int, size: int) -> list[float]:
    """The vector that belongs to a seed in 0 .. 2³² − 1."""
    return [normal(h) for h in halves(seed, size)]
