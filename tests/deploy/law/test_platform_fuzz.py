"""Whatever is sent to a platform is refused or means something; whatever a platform says stops nobody else."""

import http.client
import json
import urllib.parse

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from platform_worlds import LOOK, answering, coordinated, served, terms

from fedrank.deploy.http.client import ClientResponse
from fedrank.deploy.platforms import service
from fedrank.deploy.platforms.platform import Platform
from fedrank.deploy.platforms.rounds import Silence

NUMBERS = st.one_of(
    st.integers(-2, 60), st.sampled_from([2**31 - 2, 2**31 - 1, 2**32 - 1, 2**63, 10**40]), st.text(max_size=8)
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)
VISITS = st.fixed_dictionaries(
    {
        "candidates": st.lists(st.floats(0, 1), min_size=3, max_size=3) | VALUES,
        "observed": st.floats(0, 1) | VALUES,
        "newcomer": st.booleans() | VALUES,
    }
).map(lambda said: json.dumps(said).encode())
BODIES = VISITS | st.binary(max_size=600)
ASKED = st.sampled_from(
    [
        ("application", "PUT", "/v1/visit/{}"),
        ("application", "PUT", "/v1/outcome/{}"),
        ("application", "GET", "/v1/state"),
        ("coordinator", "GET", "/v1/platform"),
        ("coordinator", "GET", "/v1/missing/{}"),
        ("coordinator", "POST", "/v1/exchange/{}/0"),
        ("coordinator", "POST", "/v1/exchange/{}/{}"),
    ]
)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "PATIENCE", 0.01)
        patch.setattr(Platform, "warm", lambda self: None)
        with served(tmp_path_factory.mktemp("http") / "a", terms(), 0, patience=0.02) as home:
            visit = b'{"candidates": [0.2, 0.4, 0.6], "observed": 0.5, "newcomer": true}'
            assert said(home, "application", "PUT", "/v1/visit/0", visit)[0] == 204
            yield home


def said(home, asker, method, path, body):
    host, _, port = home.url(asker).removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    try:
        connection.request(method, path, body, {"Authorization": f"Bearer {home.token(asker)}"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=ASKED, first=NUMBERS, second=NUMBERS, body=BODIES)
def test_no_request_is_an_error_of_the_platform_or_takes_it_beyond_its_rounds(home, asked, first, second, body):
    asker, method, path = asked
    path = path.format(*(urllib.parse.quote(str(one), safe="") for one in (first, second)))
    status, _ = said(home, asker, method, path, body if method != "GET" else None)
    assert status < 500, (method, path, body, status)
    status, told = said(home, "application", "GET", "/v1/state", None)
    assert status == 200 and json.loads(told)["round"] <= 61


REPLIES = st.one_of(
    st.builds(ClientResponse, st.sampled_from([200, 204, 400, 401, 409, 422, 500, 503]), st.binary(max_size=80)),
    st.builds(
        lambda status, body, reason: ClientResponse(status, json.dumps(body).encode(), reason=reason),
        st.sampled_from([200, 409, 422]),
        st.dictionaries(st.sampled_from(["round", "missing", "error", "detail"]), VALUES, max_size=3),
        st.sampled_from(["", "stale-round", "early-round", "out-of-range", "malformed", "unavailable"]),
    ),
)
CLAIMS = st.builds(
    Silence,
    st.sampled_from(["stale-round", "early-round", "no-answer", "malformed"]),
    st.none() | st.integers(-3, 2**70),
)


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(claims=st.lists(CLAIMS, min_size=1, max_size=12))
def test_a_platform_that_says_anything_stops_nobody(tmp_path_factory, claims):
    coordinator, peers = coordinated(tmp_path_factory.mktemp("world"))
    with coordinator:
        list(coordinator.run(2))
        left = list(claims)
        peers[0].exchange = lambda *_: left.pop() if left else Silence("no-answer")
        seen = list(coordinator.run(5))
        assert [one.number for one in seen] == [2, 3, 4]
        assert all(one.heard.tolist() == [False, True] for one in seen)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(reply=REPLIES)
def test_no_reply_of_a_platform_is_an_error_of_its_coordinator(reply):
    peer = answering([reply])
    assert isinstance(peer.exchange(0, LOOK, b"", 0.0), Silence | bytes)
    missing = peer.missing(5, 0.0)
    assert isinstance(missing, Silence) or all(0 <= a <= b for a, b in missing)
