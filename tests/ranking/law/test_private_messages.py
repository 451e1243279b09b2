"""One privatised number a message: what crosses, what the server makes of it, and what a whole life is promised."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import tiny_parties, tiny_protocol

from fedrank.core.errors import ConfigError, FedrankWarning
from fedrank.core.ledger import Ledger
from fedrank.core.privacy_report import BASIC, PrivacyReport, Unit
from fedrank.engine.run import run_experiment
from fedrank.engine.run_folder import RunFolder
from fedrank.engine.settings import from_dict
from fedrank.privacy.accounts.shuffle import shuffled_epsilon
from fedrank.privacy.piecewise import Piecewise
from fedrank.privacy.randomised_response import os_words
from fedrank.ranking.build import build
from fedrank.ranking.on_device import PrivateReply

PRIVATE = {"mechanism": "piecewise", "p": 1.0, "piecewise": Piecewise(2.0, 2, 4)}


def test_a_message_is_a_seed_and_one_byte():
    layout = tiny_protocol(**PRIVATE).exchanges[0].reply
    assert [(field.name, field.nbytes) for field in layout.fields] == [("seed", 4), ("report", 1)]
    assert layout.nbytes == 6  # with the byte that says which message it is


def test_a_device_with_numpy_makes_the_report_of_the_simulated_one():
    protocol = tiny_protocol(**PRIVATE)
    exchange, to_reply = protocol.exchanges[0], protocol.clicks_to_reply
    for key in jax.random.split(jax.random.key(0), 8):
        draws = exchange.draw(key)
        patterns = jax.random.randint(key, (2, protocol.per_half), 0, 2**protocol.user.depth)
        simulated = exchange.report(draws, patterns)
        sums = to_reply.sums(np.asarray(patterns), np.zeros((2, protocol.per_half, 2), np.uint32), None, np)
        words = np.asarray(draws.privacy).reshape(-1)[:3]
        device = to_reply.message(np.uint32(draws.seed), sums, words, np)
        assert (int(device.seed), int(device.report)) == (int(simulated.seed), int(simulated.report))


def test_a_clipped_difference_is_the_reports_of_a_smaller_range():
    """Brute force: at every difference of the halves, the chance of each report is that of what is left of it."""
    protocol = tiny_protocol(**PRIVATE | {"piecewise": Piecewise(1.0)}, clip=0.25)
    to_reply = protocol.clicks_to_reply
    whole = to_reply.per_half * to_reply.metric.largest
    assert to_reply.largest_difference == round(whole / 4)
    words = np.asarray(os_words((20_000, 3)))
    for d in (-whole, -whole // 2, -whole // 8, 0, whole // 5, whole):
        sums = np.full((2, 20_000), [[max(d, 0)], [max(-d, 0)]])
        ones = np.mean(to_reply.message(np.zeros(20_000, np.uint32), sums, words, np).report)
        kept = np.clip(d / (whole / 4), -1, 1)
        expected = 0.5 + kept / 2 * np.tanh(0.5)  # (e − 1)/(e + 1)
        assert abs(ones - expected) < 5 * np.sqrt(0.25 / 20_000)
    reply = PrivateReply(jnp.uint32([0]), jnp.int32([1]))
    told, _ = protocol.privacy.differences(to_reply, reply, jnp.array([True]))
    np.testing.assert_allclose(told, [to_reply.largest_difference / np.tanh(0.5)], rtol=1e-5)


def test_with_interleaved_lists_the_difference_is_that_of_the_clicks_each_ranker_is_credited_with():
    """The sums are those of the two patterns of every list; simulated devices and the parts they consist of agree."""
    protocol = tiny_protocol(p=1.0, interleaved=True, interactions=5)
    exchange, parties = protocol.exchanges[0], tiny_parties(protocol, 40)
    request = exchange.ask(protocol.init(jax.random.key(0)))
    keys = jax.random.split(jax.random.key(3), 40)
    draws = jax.vmap(exchange.draw)(keys)
    in_axes = (None, type(parties)(None, 0), 0)
    after, replies = jax.vmap(exchange.respond, in_axes=in_axes, out_axes=(type(parties)(None, 0), 0))(
        request, parties, draws
    )
    patterns = jax.vmap(lambda party, d: protocol.shown.show(protocol, request, party, d)[1], in_axes=in_axes[1:])(
        parties, draws
    )
    index, numerators = np.asarray(protocol.metric.index), np.asarray(protocol.metric.numerators)
    expected = numerators[index[np.asarray(patterns)]].sum(axis=-1)
    assert (np.stack([replies.plus, replies.minus], axis=1) == expected).all()
    assert patterns.shape == (40, 2, 5) and (expected[:, 0] != expected[:, 1]).mean() > 0.3
    assert np.isfinite(after.own.reward).all() and len(set(np.asarray(after.own.reward).tolist())) > 5


def test_the_expected_step_is_that_of_the_differences_themselves():
    """Adam's first step follows the gradient's sign, which a mean over many reports of the same clicks gives."""
    protocol = tiny_protocol(**PRIVATE)
    piecewise, most = protocol.privacy.mechanism, protocol.clicks_to_reply.largest_difference
    differences = np.array([most // 2, -most // 3, most // 5])
    words = np.asarray(os_words((3, 40_000, 3)))
    reports = [
        piecewise.privatise(np.full(40_000, d, np.int32), most, w, np) for d, w in zip(differences, words, strict=True)
    ]
    found = np.array([piecewise.estimates[r].mean() * most for r in reports])
    error = np.sqrt([piecewise.variance(d / most) / 40_000 for d in differences]) * most
    assert (np.abs(found - differences) < 5 * error).all()
    sent = PrivateReply(jnp.arange(piecewise.reports, dtype=jnp.uint32), jnp.arange(piecewise.reports))
    told, arrived = protocol.privacy.differences(protocol.clicks_to_reply, sent, jnp.ones(piecewise.reports, bool))
    np.testing.assert_allclose(told, piecewise.estimates * most, rtol=1e-6)
    assert arrived.all()


@pytest.mark.parametrize(
    ("settings", "epsilon_message", "epsilon_user"),
    [
        ({"population": 12, "privacy": {"epsilon_user": 1.0}}, 1.0, 1.0),
        ({"population": 6, "participations": 2, "privacy": {"epsilon_user": 1.0}}, 0.5, 1.0),
        ({"population": 4, "participations": 3, "privacy": {"epsilon_user": 6.0}}, 2.0, 6.0),  # all in all three rounds
        ({"share": "fixed", "privacy": {"epsilon_user": 6.0}}, 2.0, 6.0),  # devices with their own queries
        ({"privacy": {"epsilon_user": 6.0}}, 6.0, 6.0),  # new devices in every round
        ({"population": 12, "privacy": {"p": 0.5}}, 4 * np.log(10), 4 * np.log(10)),  # the paper's mechanism, once
    ],
)
def test_a_users_epsilon_is_over_the_rounds_that_a_device_takes_part_in(
    settings, epsilon_message, epsilon_user, tmp_path
):
    config = from_dict({
        "protocol": "foltr-es", "rounds": 3, "clients": 4, "seeds": 1, "evaluation": {"baselines": []}, **settings
    })  # fmt: skip
    folder = run_experiment(config, tmp_path / "run")
    report = PrivacyReport.from_json(json.loads((folder / "privacy.json").read_text()))
    assert report.epsilon(Unit.MESSAGE) == pytest.approx(epsilon_message)
    assert report.epsilon(Unit.USER, basis=BASIC) == pytest.approx(epsilon_user)
    assert report.trust == "nobody"
    private = "epsilon_user" in settings["privacy"]
    assert Ledger.read(folder / "ledger.jsonl").bytes_from("parties") == 3 * 4 * (6 if private else 9)


def test_an_anonymous_channel_takes_less_noise_for_the_same_promise():
    settings = {"rounds": 3, "clients": 500, "population": 800, "participations": 2}
    private = {"epsilon_user": 1.0, "channel": "anonymous", "delta": 1e-5}
    config = from_dict({"protocol": "foltr-es", **settings, "privacy": private}).resolved()
    protocol = build(config).protocol
    privacy = protocol.privacy
    assert 0.5 < privacy.epsilon_message < 10
    each = shuffled_epsilon(privacy.mechanism, 500, 1e-5 / 2)
    assert each == pytest.approx(0.5, abs=1e-3) and each <= 0.5 + 1e-9
    report = protocol.account(3, 1e-5)
    first, *_ = [one for one in report.promises if one.unit is Unit.USER]
    assert (first.epsilon, first.delta) == (pytest.approx(2 * each), 1e-5)
    assert report.epsilon(Unit.USER, basis=BASIC) == pytest.approx(2 * privacy.epsilon_message)
    assert report.trust != "nobody" and len(report.words) == 2
    again = PrivacyReport.from_json(json.loads(json.dumps(report.as_json())))
    assert again.promises == report.promises
    assert protocol.account(0, 1e-5).epsilon(Unit.USER, basis=BASIC) == 0.0


def test_what_does_not_fit_is_refused(tmp_path):
    for settings, says in [
        ({"privacy": {"p": 0.5, "channel": "anonymous"}}, "contradict each other"),
        ({"devices": {"dropout": 0.1}, "privacy": {"epsilon_user": 1.0, "channel": "anonymous"}}, "devices.dropout"),
        ({"privacy": {"p": 0.5, "clip": 0.1}}, "privacy.clip"),
        ({"privacy": {"epsilon_user": 1.0, "clip": 0.0}}, "clip"),
        ({"attack": {"share": 0.1}, "privacy": {"epsilon_user": 1.0, "channel": "anonymous"}}, "attack.share"),
        ({"presentation": "interleaved", "privacy": {"p": 0.5}}, "interleaved"),
        (
            {"population": 10_000, "clients": 100, "rounds": 5000, "privacy": {"epsilon_user": 1.0}},
            "500,000 messages, more than 10,000 devices",
        ),
        ({"population": 1000, "clients": 2000, "rounds": 1}, "more than 1,000 devices"),
        ({"population": 10**6, "share": "fixed"}, "needs share = 'uniform'"),
        ({"participations": 2}, "participations means nothing without population"),
        ({"privacy": {"epsilon_user": 1.0, "p": 0.5}}, "contradict each other"),
        ({"privacy": {"epsilon_user": 1.0, "name": "laplace"}}, "means nothing with"),
        ({"privacy": {"epsilon_user": 0.0001}}, "epsilon of the piecewise mechanism must be in"),
        ({"presentation": "one-sided"}, "give privacy.p"),
    ]:
        with pytest.raises(ConfigError, match=says):
            run_experiment(from_dict({"protocol": "foltr-es", **settings}), tmp_path / "run")


def test_a_run_says_that_an_epsilon_divided_among_many_rounds_teaches_nothing(tmp_path):
    tiny = {"protocol": "foltr-es", "clients": 4, "seeds": 1, "share": "fixed", "evaluation": {"baselines": []}}
    with pytest.warns(FedrankWarning, match=r"ε = 0\.05"):
        folder = run_experiment(from_dict({**tiny, "rounds": 20}), tmp_path / "many")
    assert any("0.05" in said for said in json.loads((folder / "model.json").read_text())["warnings"])
    folder = run_experiment(from_dict({**tiny, "rounds": 2}), tmp_path / "few")
    assert json.loads((folder / "model.json").read_text())["warnings"] == []


def test_a_run_that_began_before_devices_were_new_ones_goes_on_as_it_was(tmp_path):
    tiny = {"protocol": "foltr-es", "clients": 4, "rounds": 3, "seeds": 1, "evaluation": {"baselines": []}}
    home = RunFolder(run_experiment(from_dict({**tiny, "privacy": {"epsilon_user": 6.0}}), tmp_path / "run"))
    assert (home.reopen().population, home.reopen().bounds.times) == (12, 1)
    settings = json.loads(home.resolved.read_text())
    del settings["population"], settings["participations"]
    home.resolved.write_text(json.dumps(settings))
    assert (home.reopen().population, home.reopen().bounds.times) == (4, 3)
