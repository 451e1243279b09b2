"""One round at a device of a hub, with the standard library alone: a text to translate from."""

import decimal
import hashlib
import hmac
import json
import math
import os
import struct
from fractions import Fraction
from secrets import randbelow

from perturbation_reference import perturbation  # see "Randomness, down to the bit"

# ------------------------------------------------------------------------------------------------------ the reward


def reward_of(terms: dict) -> tuple[list[int], int, list[int]]:
    """Numerators of the values, ascending; their denominator; the number of the value of each click pattern."""
    depth, name, gain = terms["depth"], terms["reward"], [1 / math.log2(1 + r) for r in range(1, 11)]
    steps = math.lcm(*range(1, depth + 1)) if name == "MaxRR" else 10_000
    table = []
    for pattern in range(2**depth):
        ranks = [i + 1 for i in range(depth) if pattern >> i & 1]
        if not ranks:
            value = Fraction(0)
        elif name == "MaxRR":
            value = Fraction(1, ranks[0])
        elif name == "MeanRR":
            value = sum(Fraction(1, r) for r in ranks) / len(ranks)
        elif name == "DCG":
            value = sum(gain[r - 1] for r in ranks)
        elif name == "nDCG":
            value = sum(gain[r - 1] for r in ranks) / sum(gain[: len(ranks)])
        else:
            raise ValueError(f"unknown reward {name}")
        table.append(round(value * steps))  # halves to even; exact, where there can be halves
    numerators = sorted(set(table))
    index = [numerators.index(v) for v in table]
    n = terms["reward_values"]
    if n is None:
        return numerators, steps, index
    # Coarser: n values from 0 to the largest. Double precision, operations in this order.
    most = numerators[-1] / steps
    nearest = [math.floor(v / steps / most * (n - 1) + 0.5) for v in numerators]
    common = math.gcd(numerators[-1], (n - 1) * steps)
    unit = numerators[-1] // common
    return [i * unit for i in range(n)], (n - 1) * steps // common, [nearest[i] for i in index]


def epsilon_of_message(terms: dict) -> float:
    """What a message may reveal, in nats; a device computes it by itself."""
    n, p = len(reward_of(terms)[0]), terms["p"]
    if terms["mechanism"] == "laplace":
        return terms["interactions"] * terms["epsilon"]
    if terms["mechanism"] == "piecewise":
        return terms["epsilon"]
    if p == 1:
        return math.inf
    return 0.0 if p == 1 / n else terms["interactions"] * math.log(p * (n - 1) / (1 - p))


# --------------------------------------------------------------------------------------------- what the user is shown


def model_of(terms: dict, request: bytes) -> tuple[int, list[float]]:
    """Round and weights of a model message."""
    f, h = terms["n_features"], terms["hidden"]
    size = h * (f + 2) if h else f
    if len(request) != 5 + 4 * size or request[0] != 0x21:
        raise ValueError("not a model of these terms")
    round_, *weights = struct.unpack(f"<I{size}f", request[1:])
    if not all(map(math.isfinite, weights)):
        raise ValueError("not a model of these terms")
    return round_, weights


def scores_of(terms: dict, weights: list[float], seed: int, half: int, features: list[list[float]]) -> list[float]:
    """Of each document, under θ + σv (half 0) or θ − σv (half 1)."""
    f, h, step = terms["n_features"], terms["hidden"], -terms["sigma"] if half else terms["sigma"]
    w = [theta + step * v for theta, v in zip(weights, perturbation(seed, len(weights)), strict=True)]

    def dot(a: list[float], b: list[float]) -> float:
        return sum(x * y for x, y in zip(a, b, strict=True))

    def score(x: list[float]) -> float:
        if not h:
            return dot(w, x)
        hidden = [max(0.0, dot(w[k * f : k * f + f], x) + w[h * f + k]) for k in range(h)]
        return dot(w[h * f + h :], hidden)

    return [score(x) for x in features]


def order_of(scores: list[float]) -> list[int]:
    """Documents, best first; equal scores in the order of the data."""
    return sorted(range(len(scores)), key=lambda i: -scores[i])  # a stable sort


# --------------------------------------------------------------------------------------------------------- privacy


def threshold(p: float, n: int) -> int:
    """How many of the 2³² first words mean "say the truth"."""
    if p == 1:
        return 2**32
    exact = p * 2**32  # no rounding: a power of two
    words = math.floor(exact) if p * n >= 1 else min(math.ceil(exact), 2**32 // n)
    return min(max(words, 1), 2**32 - 1)


def privatise(index: int, words: list[int], p: float, n: int) -> int:
    """Randomised response on the number of a value; ``words``: two fresh ones of the operating system, below 2³²."""
    if words[0] < threshold(p, n):
        return index
    other = words[1] * (n - 1) >> 32  # 0 .. n − 2
    return other + 1 if other >= index else other  # all but the truth


def laplace(scale: Fraction) -> int:
    """Discrete Laplace noise, exactly (Canonne, Kamath and Steinke, NeurIPS 2020, Algorithms 1 and 2)."""

    def chance(a: int, b: int) -> bool:  # true with probability e^(−a/b), 0 ≤ a ≤ b
        k = 1
        while randbelow(b * k) < a:
            k += 1
        return k % 2 == 1

    s, t = scale.numerator, scale.denominator
    while True:
        rest, whole = randbelow(s), 0
        if not chance(rest, s):
            continue
        while chance(1, 1):
            whole += 1
        size, negative = (rest + s * whole) // t, randbelow(2)
        if size or not negative:
            return -size if negative else size


def noise_of(terms: dict) -> list[int]:
    """What is added to the two sums, once, in the moment in which the message is made."""
    largest, epsilon = reward_of(terms)[0][-1], terms["epsilon"]
    scale = largest / epsilon
    if Fraction(scale) * Fraction(epsilon) < largest:  # rounded down: not enough
        scale = math.nextafter(scale, math.inf)
    return [laplace(Fraction(scale)), laplace(Fraction(scale))]


def window_threshold(terms: dict) -> int:
    """How many of the 2³² words mean "inside the window": the most for which ε is not exceeded."""
    w, v = terms["inside"], terms["outside"]
    with decimal.localcontext(decimal.Context(prec=60, rounding=decimal.ROUND_FLOOR)):
        odds = w * decimal.Decimal(terms["epsilon"]).exp()
        return int(2**32 * odds / (odds + v))


def number_of(terms: dict, difference: int, words: list[int]) -> int:
    """The one number that is sent with the piecewise mechanism; ``words``: three fresh ones of the operating system."""
    w, v = terms["inside"], terms["outside"]  # powers of two
    each = terms["interactions"] if terms.get("interleaved") else terms["interactions"] // 2
    most = max(1, round(terms.get("clip", 1) * (each * reward_of(terms)[0][-1])))
    difference = min(max(difference, -most), most)
    first, rest = divmod((difference + most) * v, 2 * most)
    if words[0] * 2 * most >> 32 < rest:
        first += 1  # rounded up: the window is first .. first + w − 1
    if words[1] < window_threshold(terms):
        return first + (words[2] * w >> 32)
    other = words[2] * v >> 32
    return other + w if other >= first else other


# --------------------------------------------------------------------------------------------------- one list of two


def drafted(first: list[int], second: list[int], depth: int, toss: int) -> tuple[list[int], list[set[int]]]:
    """The list that two orders make together, and whose each drafted document is: {0}, {1}, or {0, 1} of both."""
    order: list[int] = []
    owners: list[set[int]] = []
    while len(order) < min(depth, len(first)):
        best = next(d for d in first if d not in order), next(d for d in second if d not in order)
        if best[0] == best[1]:
            turns = [(best[0], {0, 1})]
        else:
            turns = [(best[0], {0}), (best[1], {1})]
            if not toss >> len(order) & 1:
                turns.reverse()
        for document, owner in turns[: depth - len(order)]:
            order.append(document)
            owners.append(owner)
    return order + [d for d in first if d not in order], owners


def credited(pattern: int, owners: list[set[int]], half: int) -> int:
    """The pattern of the clicks that a half is credited with."""
    return sum(1 << rank for rank, owner in enumerate(owners) if pattern >> rank & 1 and half in owner)


# ------------------------------------------------------------------------------------------------------ the message


def value_of(terms: dict, pattern: int, words: list[int]) -> int:
    """What an interaction adds to the sum of its half; ``words`` as in ``privatise``, for that alone."""
    numerators, _, index = reward_of(terms)
    number = index[pattern]
    if terms["mechanism"] == "randomised-response":
        number = privatise(number, words, terms["p"], len(numerators))
    return numerators[number]


def report_of(terms: dict, seed: int, sums: list[int], noise: list[int]) -> bytes:
    """The report about all interactions of a round.

    ``noise``: of Laplace noise that of ``noise_of``, of the piecewise mechanism three words; else unused.
    """
    if terms["mechanism"] == "piecewise":
        return struct.pack("<BIB", 0x25, seed, number_of(terms, sums[0] - sums[1], noise))
    if terms["mechanism"] == "laplace":
        sums = [min(max(s + x, -(2**31)), 2**31 - 1) for s, x in zip(sums, noise, strict=True)]
        return struct.pack("<BIii", 0x24, seed, *sums)
    most = terms["interactions"] // 2 * reward_of(terms)[0][-1]
    width = 2 if most < 2**16 else 3
    return struct.pack("<BI", 0x22, seed) + b"".join(s.to_bytes(width, "little") for s in sums)


def word_of(key: bytes, purpose: bytes, beacon: bytes) -> int:
    """The word of a draw (12.3), such as with the purpose ``b"fedrank/due"``."""
    return int.from_bytes(hmac.new(key, purpose + beacon, hashlib.sha256).digest()[:4], "little")


def own_draw_of(token: str, model: bytes) -> tuple[bytes, bytes]:
    """Key and beacon of the draws of a device that shows its own token, in a model's round (12.3)."""
    return hashlib.sha256(token.encode()).digest(), hashlib.sha256(model).digest()


def blind_draw_of(token: bytes, secret: bytes, reports: bytes) -> tuple[bytes, bytes]:
    """Key and beacon of the draws of a blind token, in its epoch (11.12)."""
    key = (int.from_bytes(hashlib.sha256(token[:98]).digest()[:8], "big") >> 1).to_bytes(8, "big")
    return key, hashlib.sha256(b"fedrank/beacon" + secret + reports).digest()


def challenge_of(hub: str, epoch: int, commitment: bytes) -> bytes:
    """The challenge in the tokens of an epoch (11.3)."""
    context = hashlib.sha256(b"fedrank-epoch" + struct.pack(">I", epoch) + commitment).digest()
    name = hub.encode()
    return hashlib.sha256(b"\x00\x02" + struct.pack(">H", len(name)) + name + b"\x20" + context + b"\x00\x00").digest()


def turn_of(key: bytes, beacon: bytes, rounds: int) -> int:
    """Which of an epoch's rounds, from 0, a token is for (11.12)."""
    return word_of(key, b"fedrank/round", beacon) * rounds >> 32


def is_drawn(word: int, share: float) -> bool:
    """Whether a word is among those of a share."""
    return share >= 1 or (share > 0 and word < max(1, math.floor(share * 2**32)))


def check_of(terms: dict, best: bytes, sums: list[int], noise: list[int]) -> bytes:
    """The check (12.7) about a round in which the newest model and the message ``best`` were compared."""
    pair = struct.unpack("<I", hashlib.sha256(best[5:]).digest()[:4])[0]
    report = report_of(terms, pair, sums, noise)
    return {0x22: b"\x26", 0x25: b"\x27"}[report[0]] + report[1:]


def one_round(terms_json: str, request: bytes, search, most_epsilon: float = 1.0) -> tuple[int, bytes] | None:
    """All of a round: its number and its report, to be kept and sent; None if the terms promise too little.

    ``search()`` gives the features of the next search's documents, and a function that is told the order to show and
    gives the clicked positions, from 0.
    """
    terms = json.loads(terms_json)
    if terms["mechanism"] == "laplace" and 40 * reward_of(terms)[0][-1] / terms["epsilon"] >= 2**30:
        return None
    if terms["protocol"] != "foltr-es" or terms["wire"] != 1 or epsilon_of_message(terms) > most_epsilon:
        return None
    round_, weights = model_of(terms, request)
    seed, sums = int.from_bytes(os.urandom(4), "little"), [0, 0]
    for i in range(terms["interactions"]):
        features, show = search()
        orders = [order_of(scores_of(terms, weights, seed, half, features)) for half in (0, 1)]
        if terms.get("interleaved"):
            order, owners = drafted(*orders, terms["depth"], int.from_bytes(os.urandom(4), "little"))
        else:
            order, owners = orders[i % 2], [{i % 2}] * terms["depth"]
        positions = show(order)
        pattern = sum(1 << position for position in set(positions) if position < terms["depth"])
        for half in (0, 1) if terms.get("interleaved") else (i % 2,):
            words = list(struct.unpack("<2I", os.urandom(8)))
            sums[half] += value_of(terms, credited(pattern, owners, half), words)
    noise = noise_of(terms) if terms["mechanism"] == "laplace" else list(struct.unpack("<3I", os.urandom(12)))
    return round_, report_of(terms, seed, sums, noise)
