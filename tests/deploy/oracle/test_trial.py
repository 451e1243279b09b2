"""What a device computes, against the protocol as it is written in JAX and against closed forms."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fake_hub import ANYTHING, ENROLMENT, HUB, FakeHub
from short_settings import es_settings

from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import Unit
from fedrank.core.rng import perturbation, perturbation_jax
from fedrank.deploy.device import Device, trial
from fedrank.deploy.terms import Terms
from fedrank.metrics.online import click_dcg, discretise, max_rr
from fedrank.privacy.piecewise import Piecewise
from fedrank.privacy.randomised_response import os_words
from fedrank.ranking.clicks.cascade import cascade
from fedrank.ranking.foltr_es import Draws, FoltrES
from fedrank.ranking.on_device import draft
from fedrank.ranking.rankers.linear import Linear
from fedrank.ranking.rankers.mlp import TwoLayer
from fedrank.ranking.sessions.reference import rank, tie_breakers

FEATURES = 6

RANKERS = {"linear": (Linear(FEATURES), {}), "mlp": (TwoLayer(FEATURES, 3), {"ranker": "mlp", "hidden": 3})}
REWARDS = {
    "MaxRR": (max_rr(10), {}),
    "DCG": (click_dcg(10), {"reward": "DCG"}),
    "DCG in 7 values": (discretise(click_dcg(10), 7), {"reward": "DCG", "reward_values": 7}),
    "MaxRR at 3": (max_rr(3), {"depth": 3}),
}


class Words:
    """Known words, in the order in which a device asks for them: its seed, then what protects its user."""

    def __init__(self, seed: int, privacy: np.ndarray):
        self.left = [np.array([seed], np.uint32), *privacy]

    def __call__(self, shape):
        words = self.left.pop(0)
        assert words.shape == shape
        return words


@functools.partial(jax.jit, static_argnums=0)
def reference_order(ranker, weights, seed, step, features, where):
    """The list of Section 3.2, by the code that simulates; features are padded to one shape, so compiled once."""
    scores = ranker.scores(weights + step * perturbation_jax(seed, ranker.size), features)
    return rank(scores, where, tie_breakers(jnp.zeros((), jnp.uint32), len(features), False), 10)


@pytest.mark.parametrize("kind", RANKERS)
def test_the_lists_are_those_of_the_protocol(kind, tmp_path):
    """Fifty devices with random models and queries: what they show first is what the simulator would have shown."""
    ranker, about = RANKERS[kind]
    random = np.random.default_rng(3)
    terms = Terms(hub=HUB, n_features=FEATURES, interactions=4, sigma=0.3, **about)
    with FakeHub(terms, np.zeros(terms.size)) as hub:
        for number in range(12):
            hub.move_on(random.standard_normal(terms.size))
            seed = int(random.integers(2**32))
            words = Words(seed, random.integers(0, 2**32, (4, 2), dtype=np.uint32))
            with Device(hub.url, ENROLMENT, tmp_path / str(number), _words=words, **ANYTHING) as device:
                device.sync()
                for interaction in range(5):
                    features = random.standard_normal((int(random.integers(1, 25)), FEATURES)).astype(np.float32)
                    ranking = device.rank(features)
                    step = (0.3, -0.3, 0.3, -0.3, 0.0)[interaction]  # turns, and no perturbation once all B are made
                    padded = np.pad(features, ((0, 24 - len(features)), (0, 0)))
                    where = np.arange(24) < len(features)
                    step, word = np.float32(step), np.uint32(seed)
                    expected = np.asarray(reference_order(ranker, hub.weights, word, step, padded, where))
                    assert ranking.order[:10].tolist() == expected[: len(features)].tolist()
                    assert sorted(ranking.order) == list(range(len(features)))
                    assert ranking.learning == (interaction < 4)


def test_equal_scores_keep_the_order_of_the_data_and_nonsense_ranks_last():
    terms = Terms(hub=HUB, n_features=1)
    scores = np.float32([0.0, math.nan, 2.0, -0.0, -math.inf, 2.0, math.inf, 0.0, math.nan, -1.0])
    got = trial.rank_documents(terms, np.ones(1, np.float32), scores[:, None])
    words = jnp.zeros((), jnp.uint32)
    expected = rank(jnp.asarray(scores), jnp.ones(10, bool), tie_breakers(words, 10, False), 10)
    assert got.tolist() == np.asarray(expected).tolist() == [6, 2, 5, 0, 3, 7, 9, 1, 4, 8]


@pytest.mark.parametrize("mechanism", ["p = 0.6", "p = 1", "laplace", "piecewise"])
@pytest.mark.parametrize("reward", REWARDS)
@pytest.mark.parametrize("kind", RANKERS)
def test_a_rounds_message_is_the_protocols_to_the_byte(kind, reward, mechanism, tmp_path, monkeypatch):
    """What reaches the hub after six interactions, given the same clicks and the same chance."""
    (ranker, about), (metric, more) = RANKERS[kind], REWARDS[reward]
    random = np.random.default_rng([len(kind), len(reward), len(mechanism)])
    noisy = mechanism == "laplace"
    p = 1.0 if mechanism != "p = 0.6" else 0.6
    how = {"mechanism": "laplace", "epsilon": 1.5, "p": 1.0} if noisy else {"p": p}
    if mechanism == "piecewise":
        how = {"mechanism": "piecewise", "epsilon": 1.5, "inside": 2, "outside": 4, "p": 1.0, "clip": 0.4}
    terms = Terms(hub=HUB, n_features=FEATURES, interactions=6, **about, **more, **how)
    seed, noise = int(random.integers(2**32)), random.integers(-5000, 5000, 2)
    privacy = random.integers(0, 2**32, (6, 2), dtype=np.uint32)
    patterns = random.integers(0, 1 << metric.depth, 6)
    monkeypatch.setattr(trial, "discrete_laplace", lambda scale, size: noise.astype(np.int64))

    settings = {"mechanism": "laplace", "epsilon": 1.5, "p": 1.0} if noisy else {"p": p}
    if mechanism == "piecewise":
        settings = {"mechanism": "piecewise", "piecewise": Piecewise(1.5, 2, 4), "p": 1.0, "clip": 0.4}
    protocol = FoltrES(
        ranker,
        cascade("perfect", depth=metric.depth),
        metric=metric,
        interactions=6,
        sigma=0.01,
        **es_settings(**settings),
    )
    (exchange,) = protocol.exchanges
    halves = [[0, 2, 4], [1, 3, 5]]  # even interactions tried θ + σv
    nothing = jnp.zeros((2, 3), jnp.uint32)
    draws = Draws(
        jnp.uint32(seed), nothing, nothing, nothing, jnp.asarray(privacy[halves]), jnp.asarray(noise, jnp.int32)
    )
    expected = exchange.reply.encode(exchange.report(draws, jnp.asarray(patterns[halves], jnp.int32)))

    of_message = mechanism == "piecewise"  # three words for all interactions together
    words = Words(seed, [privacy[halves].reshape(-1)[:3]] if of_message else privacy)
    with (
        FakeHub(terms, random.standard_normal(terms.size)) as hub,
        Device(hub.url, ENROLMENT, tmp_path, _words=words, **ANYTHING) as device,
    ):
        device.sync()
        for pattern in patterns:
            ranking = device.rank(random.random((15, FEATURES)))
            for position in range(12):  # clicks below the ranks that count change nothing
                if position >= metric.depth or pattern >> position & 1:
                    assert device.log_click(ranking, position) == (position < metric.depth)
        assert device.finish(ranking)
        assert device.sync().sent == 1
    assert list(hub.reports.values()) == [expected]
    assert len(words.left) == (6 if noisy else 0)


@pytest.mark.parametrize("kind", RANKERS)
def test_an_interleaved_rounds_message_is_made_of_the_clicks_that_each_ranker_is_credited_with(kind, tmp_path):
    """Lists and credits put together here from both rankings and the words that the device was given."""
    _, about = RANKERS[kind]
    random = np.random.default_rng(len(kind))
    how = {"mechanism": "piecewise", "epsilon": 1.5, "inside": 1, "outside": 1, "p": 1.0, "clip": 0.1}
    terms = Terms(hub=HUB, n_features=FEATURES, interactions=5, sigma=0.5, interleaved=True, depth=4, **about, **how)
    weights, seed = random.standard_normal(terms.size).astype(np.float32), int(random.integers(2**32))
    tosses, last = random.integers(0, 2**32, (5, 1), dtype=np.uint32), random.integers(0, 2**32, 3, dtype=np.uint32)
    words, sums = Words(seed, [*tosses, last]), [0, 0]
    with (
        FakeHub(terms, weights) as hub,
        Device(hub.url, ENROLMENT, tmp_path, _words=words, **ANYTHING) as device,
    ):
        device.sync()
        for (toss,) in tosses:
            features = random.random((9, FEATURES)).astype(np.float32)
            v = perturbation(seed, terms.size)
            first, second = (
                trial.rank_documents(terms, trial.perturb(terms, weights, v, half), features) for half in (0, 1)
            )
            order, team = draft(first, second, 4, int(toss))
            ranking = device.rank(features)
            assert ranking.order.tolist() == order.tolist()
            clicks = [position for position in range(9) if random.random() < 0.4]
            for position in clicks:
                assert device.log_click(ranking, position) == (position < 4)
            for half, other in ((0, -1), (1, 1)):  # MaxRR: scale / rank of the first click on one's own or on both's
                own = [position for position in clicks if position < 4 and team[position] != other]
                sums[half] += terms.metric.scale // (own[0] + 1) if own else 0
        assert device.finish(ranking)
        assert device.sync().sent == 1
    assert terms.metric.scale == 12 and sums[0] != sums[1]  # of four ranks
    most = round(0.1 * 5 * 12)
    report = Piecewise(1.5).privatise(np.clip(np.int32(sums[0] - sums[1]), -most, most), most, last, np)
    assert list(hub.reports.values()) == [bytes([0x25]) + seed.to_bytes(4, "little") + bytes([int(report)])]
    assert not words.left


def sums_after(terms: Terms, pattern: int, words: np.ndarray, half: int = 0) -> tuple[int, int]:
    """The sums of a trial after its first interaction, which belongs to a half and has these clicks."""

    def given(shape):
        assert shape == words.shape
        return words

    after = trial.Trial(HUB, 0, 7).after(terms, half, pattern, given)
    assert after.done == (1 - half, half)
    return after.sums


def test_short_lists_and_silent_users_count_as_no_click():
    terms = Terms(hub=HUB, n_features=FEATURES, p=1.0)
    assert sums_after(terms, 0, np.zeros(2, np.uint32)) == (0, 0)
    # MaxRR in units of 1/2520: the highest click decides.
    for pattern, expected in ((0b1, 2520), (0b10, 1260), (0b1100, 840), (0b1000000000, 252)):
        assert sums_after(terms, pattern, np.zeros(2, np.uint32)) == (expected, 0)
        assert sums_after(terms, pattern, np.zeros(2, np.uint32), half=1) == (0, expected)


def test_a_lie_is_any_other_value():
    """Words 2³² − 1 and w: the answer is a lie, number ⌊10 w / 2³²⌋ of the ten others, by the published definition."""
    terms = Terms(hub=HUB, n_features=FEATURES, p=0.9)
    values = [0, *(2520 // rank for rank in range(10, 0, -1))]
    for truth, pattern in ((0, 0), (10, 1), (7, 0b1000)):
        others = [value for number, value in enumerate(values) if number != truth]
        for which in range(10):
            word = which * 2**32 // 10 + 1
            assert sums_after(terms, pattern, np.array([2**32 - 1, word], np.uint32)) == (others[which], 0)


def test_the_noise_of_a_message_has_the_promised_scale():
    """P(noise = 0) = tanh(ε/(2Δ)) and P(|noise| ≤ Δ/ε) ≈ 1 − 1/e, both sums apart, without any stand-in."""
    terms = Terms(
        hub=HUB, n_features=FEATURES, reward="MaxRR", depth=1, interactions=2, mechanism="laplace", p=1.0, epsilon=0.5
    )
    assert terms.metric.largest == 1  # so that the scale is 2
    tried = trial.Trial(HUB, 0, 7, (1, 0), (1, 1))
    sums = [terms.reply.decode(trial.message_of(terms, tried, os_words)) for _ in range(2000)]
    for noise in (np.array([int(m.plus) - 1 for m in sums]), np.array([int(m.minus) for m in sums])):
        for found, expected in (
            (np.mean(noise == 0), math.tanh(0.25)),
            (np.mean(np.abs(noise) <= 2), 1 - 2 * math.exp(-1.5) / (1 + math.exp(-0.5))),
        ):
            assert abs(found - expected) < 5 * math.sqrt(expected * (1 - expected) / 2000)


def test_noise_beyond_the_messages_integers_is_cut(monkeypatch):
    terms = Terms(hub=HUB, n_features=FEATURES, mechanism="laplace", p=1.0, epsilon=1e-3)
    monkeypatch.setattr(trial, "discrete_laplace", lambda scale, size: np.array([2**40, -(2**40)]))
    body = trial.message_of(terms, trial.Trial(HUB, 0, 7, (5, 5), (2, 2)), os_words)
    assert body[5:] == (2**31 - 1).to_bytes(4, "little") + (2**31).to_bytes(4, "little")


def test_a_device_works_out_by_itself_what_the_terms_promise():
    terms = Terms(hub=HUB, n_features=FEATURES, p=0.9, interactions=4)
    one = math.log(0.9 * 10 / 0.1)  # Kharitonov 2019, equation (10), n = 11
    assert trial.promise(terms).epsilon(Unit.INTERACTION) == pytest.approx(one)
    assert trial.promise(terms).epsilon(Unit.MESSAGE) == pytest.approx(4 * one)
    assert not trial.objection(terms, trial.Limits(4 * one + 1e-6, one + 1e-6, 0.0))
    assert "most_epsilon" in trial.objection(terms, trial.Limits(4 * one - 1e-6, one + 1e-6, 0.0))
    assert "most_search_epsilon" in trial.objection(terms, trial.Limits(4 * one + 1e-6, one - 1e-6, 0.0))
    loud = Terms(hub=HUB, n_features=FEATURES, p=1.0)
    assert trial.objection(loud, trial.Limits(1e9, math.inf, 0)) and not trial.objection(
        loud, trial.Limits(math.inf, math.inf, 0)
    )
    assert trial.promise(loud).epsilon_round == math.inf and not trial.promise(loud).covers
    noisy = Terms(hub=HUB, n_features=FEATURES, mechanism="laplace", p=1.0, epsilon=0.25, interactions=6)
    assert trial.promise(noisy).epsilon(Unit.MESSAGE) == 1.5
    with pytest.raises(ConfigError, match="noise to fit"):  # forty scales of 2520/1e-5 exceed 2³⁰
        Terms(hub=HUB, n_features=FEATURES, mechanism="laplace", p=1.0, epsilon=1e-5)


def test_the_ledgers_words_have_the_numbers_of_the_message():
    terms = Terms(hub=HUB, n_features=FEATURES)
    body = bytes([1 << 5 | 2]) + (123456).to_bytes(4, "little") + (2520).to_bytes(2, "little") + bytes(2)
    words = trial.in_words(terms, body)
    assert "123456: seed" in words and "2520: sum" in words and "; 0: sum" in words and "1/2520" in words
