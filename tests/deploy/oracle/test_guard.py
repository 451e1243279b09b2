"""A hub's limits: compared with a bucket that is really filled, with the layout's own decoder, with what RFCs say."""

import base64
import hashlib
import json
import math
import struct

import pytest
from hub_fakes import ADMIN
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrank.core.errors import ConfigError, WireError
from fedrank.deploy.http import guard, routes
from fedrank.deploy.http.guard import Rate, Secret
from fedrank.deploy.hub.app import report_check
from fedrank.deploy.terms import Terms

TERMS = {
    "MaxRR": Terms(hub="0" * 32, n_features=3),
    "three bytes": Terms(hub="0" * 32, n_features=3, reward="DCG", interactions=100),
    "noise": Terms(hub="0" * 32, n_features=3, mechanism="laplace", p=1.0, epsilon=1.0),
}


class Clock:
    """Stands still unless it is moved."""

    def __init__(self, now: int = 0):
        self.now = now

    def __call__(self) -> int:
        return self.now


class Bucket:
    """The definition: water rises with time up to the brim, an event takes one measure."""

    def __init__(self, measure: int, burst: int):
        self.measure, self.brim = measure, measure * burst
        self.water, self.at = self.brim, 0

    def wait(self, now: int) -> int:
        self.water, self.at = min(self.brim, self.water + now - self.at), now
        if self.water < self.measure:
            return self.measure - self.water
        self.water -= self.measure
        return 0


@settings(deadline=None, max_examples=200)
@given(
    steps=st.lists(st.tuples(st.one_of(st.just(0), st.integers(0, 5 * 10**9)), st.sampled_from("aaab")), max_size=80),
    per_minute=st.sampled_from([30, 120, 600]),
    burst=st.integers(1, 5),
    begin=st.integers(0, 10**15),
)
def test_a_rate_is_a_bucket_for_each_key(steps, per_minute, burst, begin):
    clock = Clock(begin)
    rate = Rate(per_minute, burst, clock)
    buckets: dict[str, Bucket] = {}
    for step, key in steps:
        clock.now += step
        bucket = buckets.setdefault(key, Bucket(60_000_000_000 // per_minute, burst))
        before = (bucket.water, bucket.at)
        due = bucket.wait(clock.now - begin)
        assert (rate.wait(key, take=False) > 0) == (due > 0), "to look is not to take"
        assert rate.wait(key) == due / 1e9
        if due:
            assert bucket.water < bucket.measure and before[0] <= bucket.brim


def test_a_rate_remembers_no_more_keys_than_it_may():
    clock = Clock()
    rate = Rate(60, 1, clock, most_keys=1000)
    for n in range(20_000):
        clock.now += 1
        assert rate.wait(n) == 0
        assert len(rate) <= 1002
    assert rate.wait(19_999) > 0, "what came last is still remembered"


def test_addresses_are_forgotten_when_their_buckets_must_be_full():
    clock = Clock()
    rate = Rate(60, 10, clock)
    for n in range(100):
        rate.wait(n)
    assert len(rate) == 100
    clock.now += 30 * 10**9
    rate.wait("another")
    assert len(rate) == 1


def test_no_limit_is_infinite():
    rate = Rate(math.inf, 1, Clock(5))
    assert [rate.wait("a") for _ in range(1000)] == [0.0] * 1000


def test_a_rate_of_nothing_is_refused():
    for per_minute, burst in [(0, 1), (-1, 1), (math.nan, 1), (1, 0)]:
        with pytest.raises(ConfigError, match="positive"):
            Rate(per_minute, burst, Clock())


def verdict(terms: Terms, message: bytes) -> str | None:
    """By the layout itself: what it says in words."""
    try:
        terms.reply.decode(message)
    except WireError as error:
        return "out-of-range" if "must be in" in str(error) else "malformed"
    return None


@settings(deadline=None, max_examples=300)
@given(data=st.data(), name=st.sampled_from(sorted(TERMS)))
def test_a_report_is_judged_as_its_layout_does(data, name):
    terms = TERMS[name]
    head = st.sampled_from([1 << 5 | terms.reply.kind, 0, 1 << 5, 2 << 5 | terms.reply.kind, 255])
    near = st.integers(-2, 2).map(lambda d: (terms.per_half * terms.metric.largest + d) % 2**24)
    number = st.one_of(near.map(lambda v: struct.pack("<I", v)), st.binary(min_size=4, max_size=4))
    message = bytes([data.draw(head)]) + b"".join(
        data.draw(number)[: field.nbytes] if field.nbytes <= 4 else b"" for field in terms.reply.fields
    )
    message = data.draw(st.sampled_from([message, message, message, message[:-1], message + b"\0", b""]))
    assert report_check(terms.reply)(message) == verdict(terms, message)


def test_the_borders_of_a_report():
    """MaxRR in 1/2520 of a rank's reciprocal; two interactions a side: 5,040 at most."""
    check = report_check(TERMS["MaxRR"].reply)
    largest = 2 * 2520
    assert TERMS["MaxRR"].metric.largest == 2520
    assert check(struct.pack("<BIHH", 34, 2**32 - 1, largest, largest)) is None
    assert check(struct.pack("<BIHH", 34, 0, largest + 1, 0)) == "out-of-range"
    assert check(struct.pack("<BIHH", 34, 0, 0, largest + 1)) == "out-of-range"
    assert check(struct.pack("<BIHH", 33, 0, 0, 0)) == "malformed"
    assert check(struct.pack("<BIHH", 66, 0, 0, 0)) == "malformed"
    assert check(b"") == "malformed"


def test_a_number_that_is_not_finite_is_refused():
    for value, good in [(0.0, None), (-3.5, None), (math.inf, "out-of-range"), (math.nan, "out-of-range")]:
        check = report_check(TERMS["MaxRR"].request)
        assert check(struct.pack("<BI3f", 33, 7, 1.0, value, 2.0)) == good


def test_a_secret_matches_itself_only():
    secret = Secret(ADMIN, "admin token")
    assert secret.matches(ADMIN)
    for other in (
        None,
        "",
        ADMIN[:-1],
        ADMIN + "x",
        ADMIN.upper(),
        "ü" * 20,
        "\ud800" * 20,
        hashlib.sha256(ADMIN.encode()).hexdigest(),
    ):
        assert not secret.matches(other)
    for other in (None, "", "x"):
        assert not Secret(None, "admin token").matches(other)


def test_tokens_that_are_too_short_or_cannot_be_sent_are_refused():
    for token in ["", "x" * 15, "x" * 257, "ü" * 20, "with a space in it", "line\nbreak" * 3]:
        with pytest.raises(ConfigError, match="admin token must have"):
            Secret(token, "admin token")


def test_bearer_tokens():
    for header, token in [
        (None, None),
        (b"", None),
        (b"Bearer", None),
        (b"Bearer ", None),
        (b"Bearer abc", "abc"),
        (b"bEARER abc", "abc"),  # RFC 9110, section 11.1: schemes are case-insensitive
        (b"Basic abc", None),
        (b"Bearerabc", None),
        (b"Bearer \xff", None),
        (b"Bearer " + b"x" * 256, "x" * 256),
        (b"Bearer " + b"x" * 257, None),
    ]:
        assert guard.bearer(header) == token


def test_basic_passwords():
    for header, password in [
        (None, None),
        (b"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "open sesame"),  # RFC 7617, section 2
        (b"basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "open sesame"),
        (b"Basic !!!!", None),
        (b"Basic " + base64.b64encode(b"no colon"), None),
        (b"Basic " + base64.b64encode(b":" + b"\xc3\xbc"), None),
        (b"Basic " + base64.b64encode(b"a:b:c"), "b:c"),
        (b"Basic " + b"A" * 5000, None),
        (b"Basic \xff", None),
        (b"Bearer abc", None),
    ]:
        assert guard.basic_password(header) == password


def test_an_address_is_counted_with_its_household():
    for one, other, together in [
        ("192.0.2.7", "192.0.2.7", True),
        ("192.0.2.7", "192.0.2.8", False),
        ("192.0.2.7", "::ffff:192.0.2.7", True),  # one machine, seen through a socket for both kinds
        ("2001:db8:1:2::1", "2001:0db8:1:2:3:4:5:6", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("", "192.0.2.7", False),
        ("a name", "another name", False),
    ]:
        assert (guard.network_of(one) == guard.network_of(other)) is together
        assert len(guard.network_of(one + "x" * 1000)) <= 64


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("17", 17), ("4294967295", 2**32 - 1), ("4294967296", None), ("", None), ("00", None), ("01", None)]
    + [(text, None) for text in ("-1", "+1", "1.0", "1e3", " 1", "1/", "٣", "²", "9" * 5000, "0x1")],
)
def test_a_number_in_a_path_has_one_spelling(text, number):
    assert guard.number_of(text) == number


def test_entity_tags():
    for header, named in [
        (b'"ab-1"', True),
        (b'W/"ab-1"', True),  # RFC 9110, section 13.1.2: compared weakly
        (b"*", True),
        (b'"xyzzy", "r2d2xxxx", "ab-1"', True),
        (b'"ab-2"', False),
        (b"ab-1", False),
        (b"", False),
    ]:
        assert guard.names_tag(header, b'"ab-1"') is named


def test_every_refusal_says_why_in_json():
    for reason, answer in routes.REFUSALS.items():
        said = json.loads(answer.payload["body"])
        assert said["error"] == reason == answer.reason and said["detail"].endswith(".")
        assert 400 <= answer.code < 600


def test_one_address_keeps_no_newcomer_out_and_many_networks_are_a_flood():
    """A minute in which one address asks each millisecond, and 77 newcomers of other networks come."""
    clock = Clock(1)
    limits = guard.Guard(network_enrolments_per_minute=20, enrolments_per_minute=6000, clock=clock)
    admitted, waits = 0, []
    for tick in range(60_000):
        clock.now += 10**6
        admitted += not limits.enrolment_wait("203.0.113.5")
        if tick % 779 == 0:
            waits.append(limits.enrolment_wait(f"198.18.{len(waits)}.7"))
    assert admitted <= 2 * 20 and len(waits) >= 77 and not any(waits) and not limits.is_flooded
    waits = [limits.enrolment_wait(f"10.{number // 256}.{number % 256}.1") for number in range(1200)]
    assert sum(wait == 0 for wait in waits) == 6000 // 6 and limits.is_flooded
    clock.now += 60 * 10**9
    assert not limits.is_flooded
