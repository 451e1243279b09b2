"""Makes wire-vectors.json from the reference device and from nothing else.

PYTHONPATH=docs/explanation python docs/reference/wire_vectors.py > docs/reference/wire-vectors.json

``rewards``    tables of section 2; ``sha256_of_patterns`` is the SHA-256 of the numerators of all 2^D patterns, each u4
``responses``  rule 5.8 at its boundaries: index, x, y, privatised index
``rounds``     whole rounds, with both rankers, all rewards and all mechanisms. ``features`` are multiples of 1/8.
               ``orders`` has the orders under θ + σv and θ − σv; unequal scores differ by more than 0.001, so that no
               last bit decides. ``clicks`` is a pattern, ``words`` are x and y, ``value`` is what is added to a sum.
               ``noise`` is what Laplace noise adds, as no test could draw it, or x, y and z of 5.10. ``model`` and
               ``report`` are hexadecimal.
``epochs``     from an epoch's secret, reports and a token's content the challenge, the key, the beacon, the position in
               the epoch and the words of 11.12
``draws``      from a token, a purpose and a model message the word of 12.3, and the shares for which it is drawn
``checks``     from terms, a best model's message, two sums and words the check of 12.7
"""

import hashlib
import json
import math
import random
import struct
from typing import Any

import device_reference as device

TERMS = {
    "hub": "00112233445566778899aabbccddeeff",
    "n_features": 5,
    "ranker": "linear",
    "hidden": 0,
    "reward": "MaxRR",
    "reward_values": None,
    "depth": 10,
    "interactions": 4,
    "sigma": 0.1,
    "mechanism": "randomised-response",
    "p": 0.9,
    "epsilon": None,
    "protocol": "foltr-es",
    "wire": 1,
}


def one_number(epsilon: float, inside: int, outside: int, **more: Any) -> dict[str, Any]:
    """Terms of the piecewise mechanism."""
    window = {"epsilon": epsilon, "inside": inside, "outside": outside}
    return {"mechanism": "piecewise", "p": 1, "participations": 1, **window, **more}


#: What is special about a round: its name, its terms, its seed, documents of a search, and noise, or words of a
#: message, if there are any.
ROUNDS: tuple[tuple[str, dict[str, Any], int, int, list[int]], ...] = (
    ("linear, MaxRR, the paper's privacy", {}, 0x01020304, 12, []),
    ("no privatisation: the words do not matter", {"p": 1}, 7, 12, []),
    ("two layers", {"ranker": "mlp", "hidden": 3}, 0xFFFFFFFF, 12, []),
    ("two layers, DCG, sums of three bytes", {"ranker": "mlp", "hidden": 2, "reward": "DCG"}, 0, 11, []),
    ("nDCG of three ranks, nothing but noise", {"reward": "nDCG", "depth": 3, "p": 1 / 6}, 0x80000000, 4, []),
    ("MeanRR of four ranks", {"reward": "MeanRR", "depth": 4, "p": 0.5, "interactions": 6}, 99, 5, []),
    ("MaxRR in two values", {"reward_values": 2, "p": 0.75, "depth": 5, "interactions": 2}, 1234567890, 8, []),
    ("52 interactions: sums of two bytes", {"n_features": 1, "interactions": 52, "p": 1}, 52, 1, []),
    ("54 interactions: sums of three bytes", {"n_features": 1, "interactions": 54, "p": 1}, 54, 1, []),
    ("Laplace noise", {"mechanism": "laplace", "p": 1, "epsilon": 1.5}, 3, 12, [-6000, 123]),
    ("Laplace noise that is cut", {"mechanism": "laplace", "p": 1, "epsilon": 0.5}, 4, 3, [2**31 - 1, -(2**31)]),
    ("one number: up, inside", one_number(1.0, 1, 2), 5, 12, [0, 0, 2**32 - 1]),
    ("one number: outside", one_number(1.0, 1, 2), 6, 12, [2**32 - 1] * 3),
    ("one number of 160", one_number(4.0, 32, 128), 7, 12, [2**31, 7, 2**31 + 9]),
    ("one bit, cut", one_number(1.0, 1, 1, clip=0.03), 8, 4, [2**32 - 1, 0, 2**32 - 1]),
    ("one bit, interleaved", one_number(1.0, 1, 1, clip=0.03, interleaved=True), 10, 8, [2**32 - 1, 0, 2**32 - 1]),
    (
        "one number of 160, interleaved, three lists of three ranks",
        one_number(4.0, 32, 128, interactions=3, depth=3, reward="DCG", interleaved=True),
        11,
        7,
        [2**31, 7, 2**31 + 9],
    ),
    ("one number of 160, cut within the range", one_number(4.0, 32, 128, clip=0.7), 9, 4, [2**31, 7, 2**31 + 9]),
)
RESPONSES = ((0.9, 11), (0.5, 3), (1 / 11, 11), (1 / 6, 6), (1 - 2**-40, 2), (1, 11), (0.75, 1024))
REWARDS = (("MaxRR", 10, None), ("MaxRR", 1, None), ("DCG", 10, None), ("nDCG", 10, None), ("MeanRR", 8, None))
COARSER = (("MaxRR", 10, 2), ("MaxRR", 10, 5), ("DCG", 10, 11), ("nDCG", 9, 201), ("MeanRR", 5, 4))


def boundary_words(p: float, n: int) -> list[list[int]]:
    """The last truth and the first lie, with the first and the last of the lies."""
    at = device.threshold(p, n)
    return [[w, other] for w in sorted({0, at - 1, min(at, 2**32 - 1), 2**32 - 1}) for other in (0, 2**32 - 1)]


def one_response(p: float, n: int) -> dict[str, Any]:
    """Randomised response where it turns."""
    asked = [(index, words) for index in (0, n - 1) for words in boundary_words(p, n)]
    given = [[index, *words, device.privatise(index, words, p, n)] for index, words in asked]
    return {"p": p, "n": n, "threshold": device.threshold(p, n), "index_word_word_reported": given}


def one_reward(name: str, depth: int, reward_values: int | None) -> dict[str, Any]:
    """A table of values; of its entries, a checksum over the numerators as u4."""
    terms = {"reward": name, "depth": depth, "reward_values": reward_values}
    numerators, scale, index = device.reward_of(terms)
    table = [numerators[i] for i in index]
    digest = hashlib.sha256(struct.pack(f"<{len(table)}I", *table)).hexdigest()
    return {**terms, "n": len(numerators), "scale": scale, "largest": numerators[-1], "sha256_of_patterns": digest}


def documents(dice: random.Random, terms: dict, n: int) -> list[list[float]]:
    """Features in eighths; the last document is all zeros, and so is one before it where there is room."""
    rows = [[dice.randrange(9) / 8 for _ in range(terms["n_features"])] for _ in range(n)]
    zeros = [0.0] * terms["n_features"]
    return rows if n < 4 else [*rows[: n // 2], zeros, *rows[n // 2 : -2], zeros]


def one_round(number: int, name: str, special: dict, seed: int, shown: int, noise: list[int]) -> dict[str, Any]:
    """All that comes into a round, and all that comes out."""
    dice, terms = random.Random(number), {**TERMS, **special}
    f, h, b = terms["n_features"], terms["hidden"], terms["interactions"]
    # Biases of the two layers are low: a document without features has no active unit, and a score of exactly 0.
    weights = [dice.randrange(-16, 17) / 8 for _ in range(h * f or f)] + [-1.0] * h + [dice.choice((-2.0, 2.0))] * h
    model = struct.pack(f"<BI{len(weights)}f", 0x21, 17 + number, *weights)
    round_, weights = device.model_of(terms, model)
    edges = boundary_words(terms["p"], len(device.reward_of(terms)[0]))
    searches, sums = [], [0, 0]
    for i in range(b):
        # Documents whose order a last bit could decide are no test: draw until there are none.
        while True:
            features = documents(dice, terms, shown)
            scores = [device.scores_of(terms, weights, seed, half, features) for half in (0, 1)]
            if all(abs(x - y) > 1e-3 for s in scores for x in set(s) for y in set(s) if x != y):
                break
        pattern = dice.choice((0, 1, 2, 2 ** min(terms["depth"], shown) - 1)) if i % 3 else 1
        pattern &= 2 ** terms["depth"] - 1
        words = edges[(3 * i + 1) % len(edges)]
        orders = [device.order_of(s) for s in scores]
        search = {"features": features, "orders": orders, "clicks": pattern, "words": words}
        if terms.get("interleaved"):
            toss = dice.randrange(2**32)
            shared, owners = device.drafted(*orders, terms["depth"], toss)
            credited = [device.credited(pattern, owners, half) for half in (0, 1)]
            values = [device.value_of(terms, one, words) for one in credited]
            search |= {"toss": toss, "list": shared, "credited": credited}
        else:
            values = [device.value_of(terms, pattern, words) if half == i % 2 else 0 for half in (0, 1)]
        sums = [total + value for total, value in zip(sums, values, strict=True)]
        searches.append({**search, "value": sum(values)})
    report = device.report_of(terms, seed, sums, noise)
    epsilon = device.epsilon_of_message(terms)
    return {
        "name": name,
        "terms": terms,
        "epsilon_message": None if epsilon == math.inf else epsilon,
        "model": model.hex(),
        "round": round_,
        "seed": seed,
        "interactions": searches,
        "sums": sums,
        "noise": noise,
        "report": report.hex(),
    }


def one_draw(token: str, purpose: str, model: bytes, shares: tuple[float, ...]) -> dict[str, Any]:
    """The word of a draw, and for which shares it is drawn."""
    key, beacon = device.own_draw_of(token, model)
    word = device.word_of(key, purpose.encode(), beacon)
    at = (word / 2**32, (word + 1) / 2**32)  # the largest share that leaves it out, the smallest that takes it
    drawn = [[share, device.is_drawn(word, share)] for share in (*shares, *at)]
    return {"token": token, "purpose": purpose, "model": model.hex(), "word": word, "share_drawn": drawn}


def one_epoch(epoch: int, rounds: int) -> dict[str, Any]:
    """What a token of an epoch draws."""
    hub, nonce, key_id, secret, reports = "ab" * 16, *(bytes([epoch * n % 256] * 32) for n in (3, 5, 7, 11))
    commitment = hashlib.sha256(secret).digest()
    challenge = device.challenge_of(hub, epoch, commitment)
    content = b"\x00\x02" + nonce + challenge + key_id
    key, beacon = device.blind_draw_of(content + bytes(256), secret, reports)
    words = {name: device.word_of(key, f"fedrank/{name}".encode(), beacon) for name in ("due", "check", "seed")}
    texts = {"secret": secret, "reports": reports, "challenge": challenge, "content": content, "beacon": beacon}
    about = {"hub": hub, "epoch": epoch, "tokens": rounds, **{name: value.hex() for name, value in texts.items()}}
    return {**about, "key": key.hex(), "turn": device.turn_of(key, beacon, rounds), "words": words}


def one_check(special: dict, sums: list[int], noise: list[int]) -> dict[str, Any]:
    """A check about the sums of two models."""
    terms = {**TERMS, "checks": 0.25, **special}
    best = struct.pack("<BI5f", 0x21, 3, *(i / 8 for i in range(5)))
    report = device.check_of(terms, best, sums, noise)
    return {"terms": terms, "best": best.hex(), "sums": sums, "noise": noise, "report": report.hex()}


def vectors() -> dict[str, Any]:
    """The whole file."""
    return {
        "about": "Test vectors of a hub's wire format, made by device_reference.py. Infinite epsilon is null.",
        "rewards": [one_reward(*reward) for reward in REWARDS + COARSER],
        "responses": [one_response(*response) for response in RESPONSES],
        "rounds": [one_round(number, *special) for number, special in enumerate(ROUNDS)],
        "draws": [
            one_draw(token, f"fedrank/{purpose}", struct.pack("<BI5f", 0x21, n, *range(5)), (0.0, 2.0**-32, 0.5, 1.0))
            for n, token in enumerate(("a-device-token", "another-token_~+/=."))
            for purpose in ("due", "check", "seed")
        ],
        "epochs": [one_epoch(epoch, rounds) for epoch, rounds in ((2, 7), (70_000, 1000))],
        "checks": [
            one_check({}, [2520, 5040], []),
            one_check(one_number(1.0, 1, 1, clip=0.03, interleaved=True), [10080, 0], [2**32 - 1, 0, 2**32 - 1]),
            one_check(one_number(4.0, 32, 128), [0, 5040], [2**31, 7, 2**31 + 9]),
        ],
    }


def text(value: Any, indent: str = "") -> str:
    """JSON in lines of moderate length."""
    flat = json.dumps(value)
    if len(flat) < 240:
        return flat
    inner = indent + " "
    if isinstance(value, dict):
        lines, ends = [f"{json.dumps(k)}: {text(v, inner)}" for k, v in value.items()], "{}"
    elif isinstance(value, list):
        lines, ends = [text(v, inner) for v in value], "[]"
    else:
        return flat
    return ends[0] + "\n" + ",\n".join(inner + line for line in lines) + "\n" + indent + ends[1]


if __name__ == "__main__":
    print(text(vectors()))
