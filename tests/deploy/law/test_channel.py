"""What devices and hubs say about who could link reports, and what is credited to a relay."""

import dataclasses
import math

import pytest
from hubs import trial_settings

from fedrank.core.privacy_report import DELTA, Unit
from fedrank.deploy.device import trial as channel
from fedrank.deploy.device.trial import promise
from fedrank.deploy.hub import status
from fedrank.deploy.hub.store import RoundRow, Store
from fedrank.deploy.hub.tally import Tally
from fedrank.deploy.terms import Terms
from fedrank.privacy.accounts.shuffle import any_shuffled_epsilon, shuffled_epsilon

KEY = "ab" * 32
PIECEWISE = trial_settings(n_features=5, mechanism="piecewise", epsilon=2.0).terms()


def with_(terms: Terms, **changes) -> Terms:
    return dataclasses.replace(terms, wire=0, **changes)


def test_credit_is_given_where_a_device_reports_through_a_relay_with_a_batch():
    relay = with_(PIECEWISE, tokens=1, gateway=KEY, batch=500)
    given = channel.credit(relay, True)
    assert relay.number_mechanism is not None and given is not None
    assert given.epsilon == shuffled_epsilon(relay.number_mechanism, 500, DELTA) < 1 < relay.epsilon_message
    for terms, relayed in (
        (relay, False),  # it sends directly
        (with_(relay, batch=1), True),  # nobody promises others
        (with_(PIECEWISE, tokens=1), True),
        (PIECEWISE, True),
    ):
        assert channel.credit(terms, relayed) is None
    quiet = with_(Terms(hub=KEY[:32], n_features=5, p=0.1), tokens=1, gateway=KEY, batch=10_000)
    found = channel.credit(quiet, True)
    assert found is not None and found.epsilon == any_shuffled_epsilon(quiet.epsilon_message, 10_000, DELTA)
    bare = with_(Terms(hub=KEY[:32], n_features=5, p=1.0), tokens=1, gateway=KEY, batch=500)
    assert channel.credit(bare, True) is None
    loud = with_(Terms(hub=KEY[:32], n_features=5), tokens=1, gateway=KEY, batch=50)
    assert channel.credit(loud, True) is None, "ε = 18 of a message is not improved among 50"


def test_a_device_says_whom_it_trusts():
    relay = with_(PIECEWISE, tokens=1, gateway=KEY, batch=500)
    report = promise(relay, True)
    assert "relay" in report.trust and "not to tell each other" in report.trust
    assert report.promises[1].basis == channel.AMONG and report.epsilon(Unit.MESSAGE) < 1
    assert report.epsilon(Unit.MESSAGE, basis="basic composition") == 2.0
    assert "500 reports together" in report.words[1] and channel.HISTORY not in report.not_covered
    simple = promise(PIECEWISE)
    assert simple.trust == "nobody" and channel.HISTORY in simple.not_covered and len(simple.words) == 1
    direct = promise(with_(PIECEWISE, tokens=3))
    assert direct.trust == "nobody" and channel.ADDRESS in direct.not_covered and "3 rounds" in direct.words[1]


def test_without_scipy_nothing_is_credited(monkeypatch):
    def missing(*_):
        raise ImportError("scipy")

    monkeypatch.setattr(channel, "shuffled_epsilon", missing)
    relay = with_(PIECEWISE, tokens=1, gateway=KEY, batch=500)
    assert channel.credit(relay, True) is None and promise(relay, True).trust == "nobody"


class _Rounds(Store):
    def __init__(self, rounds):
        self._rounds, self.name = rounds, "ab" * 16

    def rounds(self):
        return self._rounds

    def reports_of_devices(self):
        raise AssertionError("tokens are no devices")


def test_a_hub_counts_one_message_an_epoch_where_it_cannot_know():
    rows = [RoundRow(n, "applied", 0.0, 1.0, 1.0, b"", 2, 0.5, 0.1) for n in range(5)]
    tally = Tally(trial_settings(n_features=5, p=0.9, tokens=2), _Rounds(rows))
    assert tally.status(4, "open", 9, [], 0.0)["epsilon"]["messages_most"] == 2  # epochs 1 and 2; 0 has no tokens
    assert tally.status(4, "open", 9, [2**40], 0.0)["epsilon"]["messages_most"] == 2
    tally.add_round(RoundRow(5, "applied", 0.0, 1.0, 1.0, b"", 2, 0.5, 0.1), [2**40, 2**41])
    assert tally.status(7, "open", 9, [2**40], 0.0)["epsilon"]["messages_most"] == 4
    limited = Tally(trial_settings(n_features=5, p=0.9, tokens=2, participations=1), _Rounds(rows))
    one = limited.status(5, "open", 9, [], 0.0)["epsilon"]
    assert one["user_basic"] == pytest.approx(4 * math.log(0.9 * 10 / 0.1))


def test_the_status_page_says_who_can_link():
    from status_examples import status as example

    simple = status.page(example(), {})
    assert "a history of it" in simple and "the number of its device" in simple
    tokens = status.page(example(tokens=1, batch=0), {})
    assert "bought blindly" in tokens and "there is no relay" in tokens and "a history of it" not in tokens
    relay = status.page(example(tokens=1, batch=50), {})
    assert "50 together" in relay and "not to tell each other what they see" in relay
