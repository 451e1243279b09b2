"""FPDGD with the ε of a user: what is clipped and sent, whose noise it is, and what is promised for a whole life."""

import functools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pdgd_rounds import PARTIES, answers, everybody, tiny
from scipy import stats

from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import BASIC, NOBODY, PrivacyReport, Unit
from fedrank.engine.deployment import NodeSettings
from fedrank.engine.methods import task_of
from fedrank.engine.run import run_experiment
from fedrank.engine.settings import from_dict
from fedrank.privacy.calibration import gaussian_rho, shared_gaussian_sigma
from fedrank.ranking.build import build
from fedrank.ranking.foltr_pdgd import ServerState
from fedrank.ranking.mechanisms.weights import SumReply, WeightsReply

SHARES = {
    "clip": 0.25, "clip_norm": "l2", "secure_sum": True, "parties": PARTIES, "noise": "gaussian", "epsilon": 1.0,
    "delta": 1e-6, "rounds": 3,
}  # fmt: skip
SERVER = {**SHARES, "secure_sum": False, "noise": "server"}
START = np.asarray([0.5, -0.25, 0.0, 1.0, 0.125], np.float32)


def clipped(change, clip):
    return change * min(1.0, clip / np.linalg.norm(change))


@functools.cache
def changes(rate):
    """How each of the devices changes the weights when nothing is clipped or noised."""
    _, _, replies = answers(tiny(learning_rate=rate), start=START)
    return np.asarray(replies.weights, np.float64) - START


def test_without_noise_to_speak_of_the_model_moves_by_the_mean_of_the_clipped_changes():
    for settings in [SHARES, SERVER]:
        for rate in [0.1, 2.0]:
            protocol = tiny(**settings | {"epsilon": 900.0, "grid": 2**20}, learning_rate=rate)
            exchange, state, replies = answers(protocol, start=START)
            told = exchange.tell(state, replies, everybody())
            expected = START + np.mean([clipped(change, 0.25) for change in changes(rate)], axis=0)
            assert (np.linalg.norm(changes(rate), axis=1) > 0.25).any() == (rate == 2.0)
            noise = protocol.privacy.scale / (2**20 if settings["secure_sum"] else 1) / PARTIES
            np.testing.assert_allclose(told.weights, expected, atol=6 * noise + 2**-20)
            assert noise < 0.01


def test_what_a_device_sends_is_its_clipped_change_and_its_share():
    protocol = tiny(**SHARES, learning_rate=2.0)
    (exchange,) = protocol.exchanges
    change, share = changes(2.0)[0], np.arange(5, dtype=np.int32) - 2
    reply = exchange.report(jnp.asarray(change, jnp.float32), jnp.int32(4), jnp.asarray(share))
    assert type(reply) is SumReply
    steps = np.asarray(reply.values).astype(np.int32) - share
    np.testing.assert_allclose(steps / protocol.privacy.grid, clipped(change, 0.25), atol=1 / protocol.privacy.grid)
    assert isinstance(answers(tiny(**SERVER))[2], WeightsReply)


def test_the_server_clips_what_a_device_did_not():
    protocol = tiny(**SERVER | {"epsilon": 900.0})
    state = protocol.init(jax.random.key(0))
    huge = WeightsReply(jnp.full((PARTIES, 5), 1e6, jnp.float32), jnp.full(PARTIES, 60_000, jnp.int32))
    told = protocol.exchanges[0].tell(state, huge, everybody())
    assert np.linalg.norm(told.weights - state.weights) < 0.25 + 30 * protocol.privacy.scale / PARTIES


def test_noise_of_the_server_is_taken_back_in_later_rounds():
    """Devices that change nothing: the weights are the totals of C⁻¹ w, C from the series of (1 − x)^(−1/2)."""
    protocol = tiny(**SERVER)
    (exchange,) = protocol.exchanges
    nothing = WeightsReply(jnp.zeros((PARTIES, 5)), jnp.full(PARTIES, 4))
    state = protocol.init(jax.random.key(1))
    key, seen = state.noise.key, []
    for _ in range(3):
        state = exchange.tell(state, nothing, everybody())
        seen.append(np.asarray(state.weights))
    fresh = [jax.random.normal(jax.random.fold_in(jax.random.wrap_key_data(key), t), (5,)) for t in range(3)]
    c = np.array([[1, 0, 0], [1 / 2, 1, 0], [3 / 8, 1 / 2, 1]])
    totals = np.tril(np.ones((3, 3))) @ np.linalg.inv(c) @ np.array(fresh)
    np.testing.assert_allclose(seen, totals * protocol.privacy.scale / PARTIES, rtol=1e-4, atol=1e-6)


def test_shares_of_all_devices_are_the_noise_that_was_asked_for():
    protocol = tiny(**SHARES)
    (exchange,) = protocol.exchanges
    drawn = jax.vmap(lambda key: exchange.draw(key).noise)(jax.random.split(jax.random.key(2), PARTIES * 800))
    sums = np.asarray(drawn).reshape(800, PARTIES, 5).sum(axis=1).ravel()
    assert stats.kstest(sums / protocol.privacy.scale, "norm").pvalue > 1e-4
    real = np.concatenate([np.asarray(exchange.draw_from_os().noise) for _ in range(200)])
    assert (
        stats.kstest(real / (protocol.privacy.scale / math.sqrt(PARTIES)), "norm").pvalue > 1e-9
    )  # no seed: once in 10⁹ runs


def delta_of(epsilon, sigma, apart, shares, times):
    """δ at ε of the sum of shares of discrete Gaussian noise, seen in some rounds, from all its outcomes."""
    each = sigma / math.sqrt(shares)
    x = np.arange(-int(12 * each) - 1, int(12 * each) + 2)
    one = np.exp(-(x**2) / (2 * each**2))
    noise = functools.reduce(np.convolve, [one / one.sum()] * shares)
    p, q = noise[apart:], noise[:-apart]
    for _ in range(times - 1):
        p, q = np.outer(p, noise[apart:]).ravel(), np.outer(q, noise[:-apart]).ravel()
    return np.clip(p - math.exp(epsilon) * q, 0, None).sum()


def test_shared_noise_keeps_the_promise_against_all_outcomes():
    for shares, times, epsilon in [(1, 1, 1.0), (4, 1, 1.0), (4, 2, 1.0), (3, 1, 4.0)]:
        delta, apart = 1e-3, 12
        sigma = shared_gaussian_sigma(epsilon, delta, apart, shares, 1, times)
        assert delta_of(epsilon, sigma, apart, shares, times) <= delta
        assert delta_of(epsilon, 0.8 * sigma, apart, shares, times) > delta  # and it is not much more than it takes
        with pytest.raises(ConfigError):
            gaussian_rho(0.4 * math.sqrt(9), apart, 9, 1)  # too few steps for what is proven of shares


def test_the_account_of_shares_is_that_of_a_user():
    for times in [1, 2, 3]:
        protocol = tiny(**SHARES, times=times)
        report = protocol.account(10, 1e-6)
        assert report.epsilon(Unit.USER) == pytest.approx(1.0, rel=1e-6)
        assert math.isinf(report.epsilon(Unit.USER, basis=BASIC)) and report.epsilon(Unit.ROUND) <= 1.0 + 1e-6
        assert report.trust != NOBODY and report.details["rounds"] == times
        assert protocol.privacy.scale / tiny(**SHARES).privacy.scale == pytest.approx(math.sqrt(times), rel=1e-3)


@pytest.mark.parametrize("times", [1, 2])
def test_the_account_of_the_server_is_the_gaussian_mechanism_on_the_farthest_columns(times):
    protocol = tiny(**SERVER, times=times)
    report = protocol.account(3, 1e-6)
    c = np.array([[1, 0, 0], [1 / 2, 1, 0], [3 / 8, 1 / 2, 1]])
    mu = 2 * 0.25 * np.linalg.norm(c[:, :times].sum(axis=1)) / protocol.privacy.scale
    epsilon = report.epsilon(Unit.USER)
    delta = stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
    assert (epsilon, delta) == (pytest.approx(1.0, rel=1e-6), pytest.approx(1e-6, rel=1e-3))
    assert report.trust != NOBODY and PrivacyReport.from_json(json.loads(json.dumps(report.as_json()))) == report


def test_a_round_after_which_devices_are_missing_moves_nothing():
    protocol = tiny(**SHARES)
    exchange, state, replies = answers(protocol, start=START)
    some = jnp.arange(PARTIES) < protocol.privacy.enough - 1
    assert np.array_equal(exchange.tell(state, replies, some).weights, START)


def test_a_run_of_a_population_says_what_it_promises(tmp_path):
    settings = {
        "protocol": "foltr-pdgd", "population": 400, "rounds": 3, "clients": 100, "seeds": 2,
        "privacy": {"epsilon_user": 2.0}, "evaluation": {"every": 3, "baselines": []},
    }  # fmt: skip
    run_experiment(from_dict(settings), tmp_path / "run")
    told = json.loads((tmp_path / "run" / "privacy.json").read_text())
    user = next(one for one in told["promises"] if one["unit"] == "user")
    assert user["epsilon"] == pytest.approx(2.0, rel=1e-6) and user["delta"] == 1e-6
    assert told["audit"]["name"] == "gaussian-shares"


def test_what_does_not_fit_is_refused():
    for settings, said in [
        ({"privacy": {"epsilon_user": 1.0, "epsilon": 1.0}}, "privacy.epsilon_user"),
        ({"privacy": {"epsilon_user": 1.0, "clip_norm": "l1"}}, "clip_norm"),
        ({"privacy": {"epsilon_user": 1.0, "secure_sum": False}}, "privacy.secure_sum"),
        ({"privacy": {"name": "server"}}, "privacy.name"),
        ({"privacy": {"name": "server-noise"}}, "privacy.epsilon_user"),
        ({"protocol": "fedopt-pdgd", "privacy": {"epsilon_user": 1.0}}, "server.name"),
        ({"privacy": {"epsilon": 1.0}, "attack": {"kind": "poisoned-clicks", "share": 0.5}}, "attack.share"),
        ({"privacy": {"epsilon": 1.0}, "devices": {"late": 0.1, "delay": 1}}, "devices.late"),
        ({"privacy": {"epsilon_user": 1.0}, "devices": {"amounts": "skewed"}}, "devices.amounts"),
        ({"privacy": {"epsilon_user": 1.0}, "devices": {"late": 0.1, "delay": 1}}, "devices.late"),
        ({"privacy": {"epsilon_user": 1.0}, "aggregate": "krum"}, "aggregate"),
        ({"privacy": {"epsilon_user": 1.0}, "attack": {"kind": "poisoned-clicks", "share": 0.5}}, "attack.share"),
        (
            {
                "privacy": {"name": "server-noise", "epsilon_user": 1.0},
                "attack": {"kind": "scaled-inverse", "share": 0.1},
            },
            "attack.share",
        ),
        ({"privacy": {"epsilon": 1.0}, "population": 2000, "clients": 20, "rounds": 5}, "privacy.epsilon_user"),
        ({"population": 100, "clients": 60, "rounds": 2}, "population"),
        ({"participations": 2}, "population"),
    ]:
        with pytest.raises(ConfigError, match=said.replace(".", r"\.")):
            build(from_dict({"protocol": "foltr-pdgd", **settings}).resolved())


def test_more_participations_than_rounds_take_no_more_noise():
    settings = {"protocol": "foltr-pdgd", "population": 2000, "rounds": 10, "clients": 100, "participations": 50}
    made = build(from_dict({**settings, "privacy": {"epsilon_user": 1.0}}).resolved()).protocol
    assert made.account(10, 1e-6).epsilon(Unit.USER) == pytest.approx(1.0, rel=1e-6)


def test_nodes_refuse_what_only_a_simulation_can_promise():
    task = task_of("foltr-pdgd")
    population = {"protocol": "foltr-pdgd", "population": 400, "rounds": 3, "clients": 100}
    config = from_dict({**population, "privacy": {"epsilon_user": 1.0}}).resolved()
    with pytest.raises(ConfigError, match="population"):
        task.node(config, NodeSettings(0, 2))
    config = from_dict({"protocol": "foltr-pdgd", "privacy": {"name": "server-noise", "epsilon_user": 1.0}}).resolved()
    for side in (lambda: task.server(config), lambda: task.node(config, NodeSettings(0, 2))):
        with pytest.raises(ConfigError, match="server-noise"):
            side()


def test_a_state_without_the_servers_noise_is_that_of_other_runs():
    assert jax.tree.leaves(ServerState(jnp.uint32(0), jnp.zeros(5)))[1].shape == (5,)
    assert len(jax.tree.leaves(tiny(**SERVER).init(jax.random.key(0)))) == 4
