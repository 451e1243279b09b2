"""The attack that looks for links between reports finds each link that is there, and none that is not."""

import struct

import numpy as np
import pytest

from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank_zoo.linking import LinkAttack
from fedrank_zoo.linking.world import CONTENT, Record, Seen, attack, observe, reports_of

DEVICES, ROUNDS = 20, 9


def world(*, order=False, address=False, number=False, purchase=False, seed=False, content=False) -> Record:
    """Reports of devices that are linked by what is said, and by nothing else."""
    rng, record = np.random.default_rng(0), Record()
    for round_ in range(ROUNDS):
        start = 100.0 * round_
        place = np.arange(DEVICES) if order else rng.permutation(DEVICES)
        for device in range(DEVICES):
            at = start + 2.0 * place[device]
            drawn = device * 2**27 + int(rng.integers(1000)) if seed else int(rng.integers(2**32))
            value = 100 * device if content else int(rng.integers(5000))
            body = bytes([1 << 5 | 2]) + struct.pack("<IHH", drawn, value, 0)
            shown = {b"authorization": b'PrivateToken token="' + bytes(rng.integers(65, 90, 472, np.uint8)) + b'"'}
            source = f"127.0.0.{device}" if address else "127.0.0.1"
            bought = at - 0.5 if purchase else start + 40 * rng.random()
            bearer = {b"authorization": b"Bearer %d" % device}
            record.requests.append(Seen(bought, "", "POST", f"/v1/token/{round_}", bearer, b""))
            record.requests.append(Seen(at, source, "POST", f"/v1/report/{round_}", shown, body))
            record.truth[round_, body] = device
            record.stored[round_, body] = device if number else int(rng.integers(2**60))
    record.requests.sort(key=lambda one: one.at)
    return record


def shares(record: Record, learn: bool = False) -> dict[str, float]:
    return {one.attack: one.right for one in attack(record, np.random.default_rng(1), DEVICES, learn=learn)}


def test_each_link_that_is_there_is_found():
    for leak, by in [
        ("order", "order of arrival"),
        ("address", "network address"),
        ("number", "number in the table of reports"),
        ("purchase", "the purchase just before"),
        ("purchase", "purchases near in time"),
        ("seed", "nearness of seeds"),
        ("content", CONTENT),
    ]:
        found = shares(world(**{leak: True}))
        assert found[by] > 0.9
        assert sum(share > 0.5 for share in found.values()) <= 2, "one thing is two attacks' at most"


@pytest.mark.slow
def test_what_is_learnt_finds_a_link_among_all_else():
    found = shares(world(order=True), learn=True)
    assert found["all but that, learnt"] > 0.9


def test_where_there_is_no_link_none_is_found():
    found = attack(world(), np.random.default_rng(2), DEVICES, learn=False)
    assert all(one.low <= one.chance + 0.05 and one.right < 0.2 for one in found), found


def test_settings_are_checked():
    for wrong in ({"devices": 7, "batch": 2}, {"rounds": 3}, {"spread": 2.0}, {"minute": 0.0}):
        with pytest.raises(ConfigError):
            LinkAttack(**wrong)
    with pytest.raises(UnknownNameError):
        LinkAttack(modes=("none",))


@pytest.mark.slow
def test_all_reports_are_seen_though_a_relay_passes_them_on():
    seen = observe(LinkAttack(modes=("relay",), devices=4, rounds=4, batch=2, minute=0.05), "relay")
    rounds = reports_of(seen)
    assert [sorted(one.device for one in reports) for reports in rounds] == [[0, 1, 2, 3]] * 4
    assert all(one.request.address == "" for reports in rounds for one in reports)


@pytest.mark.minutes
def test_real_devices_are_linked_in_the_simple_mode_and_not_behind_a_relay():
    settings = LinkAttack(devices=12, rounds=8, batch=4, minute=0.3)
    simple, relay = (
        {one.attack: one for one in attack(observe(settings, mode), np.random.default_rng(0), 12)}
        for mode in ("simple", "relay")
    )
    for by in ("number in the table of reports", "token that was shown", "network address", "all but that, learnt"):
        assert simple[by].right == 1.0
    assert all(one.right < 0.4 for one in relay.values()), "chance is 8 %"
