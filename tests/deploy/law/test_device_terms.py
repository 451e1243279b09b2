"""A device sends under the terms that its app agreed to, and under no others, whatever the hub does."""

import dataclasses
import itertools
import json

import pytest
from device_worlds import X, clock, hub, make, ready, use  # noqa: F401
from fake_hub import HUB

from fedrank.core.errors import WireError
from fedrank.deploy.terms import Terms

OTHERS = {
    "more interactions": {"interactions": 2},
    "less lying": {"p": 0.91},
    "another mechanism": {"mechanism": "laplace", "p": 1.0, "epsilon": 0.5},
    "another σ": {"sigma": 0.02},
}
OTHER = "f" * 32


def forgotten(hub, clock, name=OTHER, **changes):
    """The hub forgets its devices and hands out other terms, under another name unless told otherwise."""
    hub.terms = dataclasses.replace(hub.terms, hub=name, **changes)
    hub.tokens.clear()
    clock[0] += 4000


@pytest.mark.parametrize("changes", OTHERS.values(), ids=OTHERS)
def test_nothing_is_sent_under_other_terms_until_the_app_agrees(hub, make, clock, caplog, changes):
    device = ready(make)
    assert device.sync().sent == 1
    forgotten(hub, clock, **changes)
    hub.move_on()
    for _ in range(5):
        told = device.sync()
        use(device)
        assert not told.sent and not device.wants_clicks
        clock[0] += 4000
    assert told.state == "TERMS_CHANGED" and all(name in told.why for name in changes)
    assert len(hub.reports) == 1 and sum(r.levelname == "ERROR" for r in caplog.records) == 1
    offered = device.offered()
    assert {name: new for name, (_, new) in offered["changed"].items()} == changes
    assert device.privacy()["silent"]
    assert (offered["promises"] == device.privacy()["promises"]) == ("sigma" in changes)

    assert device.agree() and device.offered() is None and not device.agree()
    assert device.sync().state == "OK"
    use(device)
    assert device.sync().sent == 1 and len(hub.reports) == 2


def test_a_start_of_the_app_is_no_agreement(hub, make, clock):
    ready(make).close()
    forgotten(hub, clock, p=0.91)
    for _ in range(3):
        device = make()
        clock[0] += 4000
        states = {device.sync().state}
        clock[0] += 4000
        states.add(device.sync().state)
        assert "TERMS_CHANGED" in states and not hub.reports
        device.close()


def test_a_hub_cannot_change_its_terms_and_keep_its_name(hub, make, clock):
    device = ready(make)
    assert device.sync().sent == 1
    forgotten(hub, clock, HUB, p=0.91)
    for _ in range(3):
        told = device.sync()
        clock[0] += 4000
    assert told.state == "TERMS_CHANGED" and "kept its name" in told.why
    assert device.offered() is None and not device.agree() and len(hub.reports) == 1


def test_a_hub_that_takes_its_new_terms_back_is_answered_again(hub, make, clock):
    device = ready(make)
    assert device.sync().sent == 1
    old = hub.terms
    forgotten(hub, clock, p=0.91)
    device.sync()
    clock[0] += 4000
    assert device.sync().state == "TERMS_CHANGED"
    hub.terms = old
    hub.move_on()
    clock[0] += 4000
    assert device.sync().state == "OK" and device.offered() is None
    use(device)
    assert device.sync().sent == 1


def test_another_hub_with_the_same_terms_needs_no_new_agreement(hub, make, clock):
    device = ready(make)
    assert device.sync().sent == 1
    forgotten(hub, clock)
    device.sync()
    clock[0] += 4000
    assert device.sync().state == "OK"
    use(device)
    assert device.sync().sent == 1


def test_a_user_who_left_agrees_anew_by_coming_back(hub, make, clock):
    device = ready(make)
    device.leave()
    forgotten(hub, clock, p=0.91)
    device.opt_in()
    assert device.sync().state == "OK" and device.offered() is None


def test_tokens_of_terms_that_were_not_agreed_to_are_handed_back(hub, make, clock):
    device = ready(make)
    forgotten(hub, clock, p=0.91)
    for _ in range(4):
        device.sync()
        clock[0] += 4000
    given = hub.issued - 1
    assert given >= 2 and hub.asked("DELETE /v1/device") >= given - 1 and len(hub.tokens) <= 1


def test_a_new_token_does_not_come_with_the_model_of_the_old_one(hub, make, clock):
    """The tag of a model that was fetched under one token would join it to the next."""
    device = ready(make)
    assert device.sync().sent == 1
    device.sync()
    hub.tokens.clear()
    for _ in range(3):
        clock[0] += 4000
        device.sync()
    asked = [
        (headers.get("Authorization"), headers.get("If-None-Match"))
        for method, path, headers, _ in hub.seen
        if (method, path) == ("GET", "/v1/model")
    ]
    assert len({token for token, _ in asked}) == 2
    for token, group in itertools.groupby(asked, key=lambda one: one[0]):
        first, *later = [tag for _, tag in group]
        assert first is None or token == asked[0][0]
        assert all(later) or token == asked[0][0]
    assert any(tag for _, tag in asked)


def test_what_is_ranked_stays_while_terms_are_open(hub, make, clock):
    device = ready(make)
    before = device.rank(X).order
    forgotten(hub, clock, p=0.91)
    device.sync()
    clock[0] += 4000
    device.sync()
    assert sorted(device.rank(X).order) == sorted(before)


def test_terms_in_which_a_key_is_missing_are_refused():
    for name in ["hub", "wire", "protocol", "n_features", "p", "epsilon", "sigma", "reward_values"]:
        given = Terms(n_features=3, hub="0" * 32).as_json()
        assert Terms.from_json(json.dumps(given)).as_json() == given
        del given[name]
        with pytest.raises(WireError, match=f"{name} is missing"):
            Terms.from_json(json.dumps(given))
