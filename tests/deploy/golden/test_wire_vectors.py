"""The published test vectors of the wire format: the package and the reference device both give what the file says.

The file was made by the reference, which shares no line with the package.
"""

import hashlib
import json
import math
import sys
from fractions import Fraction
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

DOCS = Path(__file__).resolve().parents[3] / "docs"
sys.path[:0] = [str(DOCS / "reference"), str(DOCS / "explanation")]

import device_reference as reference  # noqa: E402 - beside the page, not in the package
import wire_vectors  # noqa: E402
from hubs import trial_settings  # noqa: E402

from fedrank.core.errors import WireError  # noqa: E402
from fedrank.core.rng import perturbation  # noqa: E402
from fedrank.deploy.device import trial  # noqa: E402
from fedrank.deploy.device.trial import Trial, message_of, pair_of  # noqa: E402
from fedrank.deploy.draws import CHECK, DUE, SEED, Beacon, beacon_of, drawn, key_of, turn, word  # noqa: E402
from fedrank.deploy.hub.app import report_check  # noqa: E402
from fedrank.deploy.oblivious.tokens import draw_key, epoch_challenge, spending_number  # noqa: E402
from fedrank.deploy.terms import Terms  # noqa: E402
from fedrank.metrics.online import REWARDS, discretise  # noqa: E402
from fedrank.privacy.randomised_response import privatise, threshold  # noqa: E402
from fedrank.ranking.foltr_es import Draws  # noqa: E402
from fedrank.ranking.on_device import credit_clicks, draft  # noqa: E402

FILE = DOCS / "reference" / "wire-vectors.json"
VECTORS = json.loads(FILE.read_text(encoding="utf-8"))
ROUNDS = pytest.mark.parametrize("case", VECTORS["rounds"], ids=lambda case: case["name"])


def terms_of(case) -> Terms:
    return Terms.from_json(json.dumps(case["terms"]))


def test_the_file_is_what_the_reference_makes():
    assert wire_vectors.text(wire_vectors.vectors()) + "\n" == FILE.read_text(encoding="utf-8")


def test_the_file_is_small_and_covers_what_the_format_can_do():
    terms = [case["terms"] for case in VECTORS["rounds"]]
    assert FILE.stat().st_size < 65_000
    assert {t["ranker"] for t in terms} == {"linear", "mlp"}
    assert {t["reward"] for t in terms} == {"MaxRR", "DCG", "nDCG", "MeanRR"}
    assert {t["mechanism"] for t in terms} == {"randomised-response", "laplace", "piecewise"}
    assert {len(case["report"]) // 2 for case in VECTORS["rounds"]} == {6, 9, 11, 13}


def test_terms_of_the_first_version_are_written_as_they_were():
    """A hub's log and its devices hold the text; terms that came later must not change it where they say nothing."""
    first = set(VECTORS["rounds"][0]["terms"])
    assert len(first) == 14 and set(Terms(hub="0" * 32, n_features=5).as_json()) == first
    given = {"mechanism": "piecewise", "p": 1.0, "epsilon": 1.0, "inside": 1, "outside": 2, "participations": 3}
    later = Terms(hub="0" * 32, n_features=5, **given)
    assert set(later.as_json()) == first | {"inside", "outside", "participations"}
    more = Terms(hub="0" * 32, n_features=5, **given, clip=0.5, interleaved=True)
    assert set(more.as_json()) == set(later.as_json()) | {"clip", "interleaved"}
    assert Terms.from_json(json.dumps(more.as_json())) == more
    assert Terms.from_json(json.dumps(later.as_json())) == later


def test_tables_of_rewards():
    for reward in VECTORS["rewards"]:
        metric = REWARDS.get(reward["reward"])(reward["depth"])
        if reward["reward_values"] is not None:
            metric = discretise(metric, reward["reward_values"])
        table = np.asarray(metric.numerators, "<u4")[metric.index]
        found = {"n": metric.n, "scale": metric.scale, "largest": metric.largest}
        found["sha256_of_patterns"] = hashlib.sha256(table.tobytes()).hexdigest()
        assert found == {key: reward[key] for key in found}


def test_every_table_is_the_specified_one():
    for depth in range(1, 11):
        for name in ["MaxRR", "DCG", "nDCG", "MeanRR"]:
            metric = REWARDS.get(name)(depth)
            numerators, scale, index = reference.reward_of({"reward": name, "depth": depth, "reward_values": None})
            assert (list(metric.numerators), metric.scale, metric.index.tolist()) == (numerators, scale, index)


def test_randomised_response_where_it_turns():
    for case in VECTORS["responses"]:
        p, n = float(case["p"]), case["n"]
        rows = np.array(case["index_word_word_reported"], np.int64)
        words = rows[:, 1:3].astype(np.uint32)
        assert threshold(p, n) == case["threshold"]
        assert privatise(rows[:, 0].astype(np.int32), words, p, n).tolist() == rows[:, 3].tolist()
        assert {word for word in words[:, 0].tolist()} >= {case["threshold"] - 1, min(case["threshold"], 2**32 - 1)}


@ROUNDS
def test_a_device_of_the_package_makes_the_report(case, monkeypatch):
    """Through the functions that the SDK consists of, with the words of the file in place of the system's."""
    terms = terms_of(case)
    assert terms.epsilon_message == pytest.approx(
        math.inf if case["epsilon_message"] is None else case["epsilon_message"], rel=1e-12
    )
    model = terms.request.decode(bytes.fromhex(case["model"]))
    assert model.round == case["round"]
    v = perturbation(case["seed"], terms.size)
    tried = trial.Trial(terms.hub, int(model.round), case["seed"])
    for i, search in enumerate(case["interactions"]):
        assert tried.half == (0 if terms.interleaved else i % 2) and not tried.complete(terms)
        features = np.array(search["features"], np.float32)
        for half in (0, 1):
            weights = trial.perturb(terms, model.weights, v, half)
            assert trial.rank_documents(terms, weights, features).tolist() == search["orders"][half]
        words, team = np.array(search["words"], np.uint32), None
        if terms.interleaved:
            shared, team = draft(*map(np.array, search["orders"]), terms.depth, search["toss"])
            assert (
                shared.tolist() == search["list"] and list(credit_clicks(search["clicks"], team)) == search["credited"]
            )
        before = sum(tried.sums)
        tried = tried.after(terms, tried.half, search["clicks"], lambda shape, words=words: words.reshape(shape), team)
        assert sum(tried.sums) - before == search["value"]
    assert tried.complete(terms) and list(tried.sums) == case["sums"]
    monkeypatch.setattr(trial, "discrete_laplace", lambda scale, size: np.array(case["noise"], np.int64))
    assert trial.message_of(terms, tried, lambda shape: np.array(case["noise"], np.uint32)).hex() == case["report"]


# A simulation does not cut noise at the message's integers: it never draws as much.
SIMULATED = [
    case
    for case in VECTORS["rounds"]
    if case["terms"]["mechanism"] == "piecewise" or all(abs(x) < 2**30 for x in case["noise"])
]


@pytest.mark.parametrize("case", SIMULATED, ids=lambda case: case["name"])
def test_the_simulated_device_makes_the_report(case):
    """``TryPerturbation.report`` in JAX, which the simulator runs."""
    terms = terms_of(case)
    names = ("n_features", "ranker", "hidden", "reward", "reward_values", "depth", "interactions", "sigma", "p")
    more = ("mechanism", "epsilon", "inside", "outside", "clip", "interleaved", "participations")
    settings = {name: getattr(terms, name) for name in (*names, *more)}
    settings["participations"] = terms.participations or 0
    exchange = trial_settings(**settings).protocol().exchanges[0]
    zeros = jnp.zeros((2, terms.per_half), jnp.uint32)

    def halves(key):
        """[B, …] in turns, + − + − …, to [halves, B/2, …]."""
        turns = np.array([search[key] for search in case["interactions"]], np.int64).astype(np.uint32)
        return jnp.asarray(turns.reshape(terms.per_half, 2, -1).swapaxes(0, 1))

    if terms.interleaved:
        clicks = jnp.asarray([search["credited"] for search in case["interactions"]], jnp.int32).T
        draws = Draws(jnp.uint32(case["seed"]), zeros, zeros[..., None], zeros, jnp.uint32(case["noise"]), zeros)
        assert exchange.reply.encode(exchange.report(draws, clicks)).hex() == case["report"]
        return
    words, noise = halves("words"), jnp.zeros(2, jnp.int32)
    if terms.number_mechanism is not None:  # the words of a message are the first three of those of its interactions
        words = jnp.ravel(words).at[:3].set(jnp.asarray(case["noise"], jnp.uint32)).reshape(words.shape)
    elif case["noise"]:
        noise = jnp.asarray(case["noise"], jnp.int32)
    draws = Draws(jnp.uint32(case["seed"]), zeros, zeros[..., None], zeros, words, noise)
    reply = exchange.report(draws, halves("clicks")[..., 0].astype(jnp.int32))
    assert exchange.reply.encode(reply).hex() == case["report"]


@ROUNDS
def test_the_hub_takes_the_report_and_no_other_length_or_number(case):
    terms, report = terms_of(case), bytes.fromhex(case["report"])
    check = report_check(terms.reply)
    assert check(report) is None and int(terms.reply.decode(report).seed) == case["seed"]
    for wrong in (
        report[:-1],
        report + b"\0",
        bytes([report[0] ^ 1]) + report[1:],
        bytes([report[0] ^ 64]) + report[1:],
    ):
        assert check(wrong) == "malformed"
    most = terms.per_half * terms.metric.largest
    if terms.mechanism == "randomised-response":
        width = (len(report) - 5) // 2
        beyond = report[:5] + (most + 1).to_bytes(width, "little") + report[5 + width :]
        assert check(beyond) == "out-of-range"
        with pytest.raises(WireError, match="must be in"):
            terms.reply.decode(beyond)


def test_one_round_of_the_reference_speaks_the_format():
    """With the operating system's randomness: whatever comes out is a message about the round."""
    case = VECTORS["rounds"][0]
    shown = []

    def search():
        def show(order):
            shown.append(order)
            return [0, 3, 11]

        return case["interactions"][0]["features"], show

    terms = terms_of(case)
    round_, report = reference.one_round(json.dumps(case["terms"]), bytes.fromhex(case["model"]), search, 18.1)
    reply = terms.reply.decode(report)
    assert round_ == case["round"] and len(shown) == 4 and all(sorted(order) == list(range(12)) for order in shown)
    possible = {a + b for a in terms.metric.numerators for b in terms.metric.numerators}
    assert {int(reply.plus), int(reply.minus)} <= possible
    assert reference.one_round(json.dumps(case["terms"]), bytes.fromhex(case["model"]), search, 17.9) is None
    assert reference.one_round(json.dumps(case["terms"]), bytes.fromhex(case["model"]), search) is None


def test_noise_of_the_reference_has_the_distribution_it_should():
    """Discrete Laplace: P(0) = tanh(1/2t), variance 2α/(1 − α)² with α = e^(−1/t); six standard errors."""
    scale, draws = Fraction(3, 2), 20_000
    drawn = np.array([reference.laplace(scale) for _ in range(draws)])
    alpha = math.exp(-1 / scale)
    zero, variance = math.tanh(0.5 / scale), 2 * alpha / (1 - alpha) ** 2
    assert abs((drawn == 0).mean() - zero) < 6 * math.sqrt(zero * (1 - zero) / draws)
    assert abs(drawn.mean()) < 6 * math.sqrt(variance / draws)
    fourth = 2 * alpha * (1 + 10 * alpha + alpha**2) / (1 - alpha) ** 4
    assert abs((drawn.astype(float) ** 2).mean() - variance) < 6 * math.sqrt((fourth - variance**2) / draws)


def test_noise_of_the_reference_is_scaled_as_the_package_scales_it(monkeypatch):
    from fedrank.privacy.calibration import laplace_scale

    seen = []
    monkeypatch.setattr(reference, "laplace", lambda scale: seen.append(scale) or 0)
    for epsilon in (1.5, 0.1, 3.3, 1000.0):
        terms = {**wire_vectors.TERMS, "mechanism": "laplace", "p": 1, "epsilon": epsilon}
        assert reference.noise_of(terms) == [0, 0]
        assert seen[-1] == Fraction(laplace_scale(epsilon, 2520)) and seen[-1] * Fraction(epsilon) >= 2520


def test_a_changed_byte_would_be_noticed():
    """The vectors depend on every byte of what goes in."""
    case = next(c for c in VECTORS["rounds"] if c["name"].startswith("linear"))
    model = bytearray.fromhex(case["model"])
    model[8] ^= 0x80  # the sign of the first weight
    terms = case["terms"]
    _, weights = reference.model_of(terms, bytes(model))
    orders = [
        reference.order_of(reference.scores_of(terms, weights, case["seed"], i % 2, s["features"]))
        for i, s in enumerate(case["interactions"])
    ]
    assert orders != [s["orders"][i % 2] for i, s in enumerate(case["interactions"])]
    with pytest.raises(ValueError, match="not a model"):
        reference.model_of(terms, bytes(model[:-1]))


def test_draws():
    for case in VECTORS["draws"]:
        key, beacon = key_of(case["token"]), beacon_of(bytes.fromhex(case["model"]))
        purpose = case["purpose"].encode()
        assert word(key, purpose, beacon) == case["word"]
        for share, wanted in case["share_drawn"]:
            assert drawn(key, purpose, beacon, share) is wanted
        assert {wanted for _, wanted in case["share_drawn"]} == {True, False}


@pytest.mark.parametrize("case", VECTORS["epochs"], ids=lambda case: str(case["epoch"]))
def test_epochs(case):
    secret, reports, content = (bytes.fromhex(case[name]) for name in ("secret", "reports", "content"))
    commitment = hashlib.sha256(secret).digest()
    assert epoch_challenge(case["hub"], case["epoch"], commitment).hex() == case["challenge"] == content[34:66].hex()
    key, beacon = draw_key(spending_number(content + b"any signature".ljust(256))), Beacon(secret, reports, 9).value
    assert (key.hex(), beacon.hex()) == (case["key"], case["beacon"])
    assert turn(key, beacon, case["tokens"]) == case["turn"]
    for purpose, wanted in (("due", DUE), ("check", CHECK), ("seed", SEED)):
        assert word(key, wanted, beacon) == case["words"][purpose]


@pytest.mark.parametrize("case", VECTORS["checks"], ids=lambda case: case["terms"]["mechanism"])
def test_checks(case):
    terms = Terms.from_json(json.dumps(case["terms"]))
    best = np.frombuffer(bytes.fromhex(case["best"])[5:], "<f4")
    trial = Trial(terms.hub, 17, pair_of(best), tuple(case["sums"]), (terms.per_half,) * 2, check=True)
    message = message_of(terms, trial, lambda _: np.array(case["noise"], np.uint32))
    assert message.hex() == case["report"]
    assert terms.layout_of(message) is terms.check and len(message) == terms.reply.nbytes
