"""Whatever is sent to a hub: an answer that means something or none, no error, no trace in the hub; life goes on."""

import asyncio
import contextlib
import http.client
import math
import re

import pytest
from hub_fakes import ADMIN, DEVICE, ENROLMENT, Exchange, FakeHub, a_reply, app_of, ask
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from fedrank.deploy.http.guard import Guard
from fedrank_zoo.threaded_server import ThreadedServer

#: Codes that the protocol knows, and those of a connection that never became a request.
KNOWN = {200, 201, 204, 304, 400, 401, 404, 405, 408, 409, 410, 413, 422, 429, 503} | {431}
#: How each address is meant to be asked, and with which token.
MEANT = [
    ("POST", "/v1/enrol", ENROLMENT),
    ("GET", "/v1/model", DEVICE),
    ("POST", "/v1/report/0", DEVICE),
    ("POST", "/v1/report/1", DEVICE),
    ("POST", "/v1/report/", DEVICE),
    ("DELETE", "/v1/device", DEVICE),
    ("POST", "/v1/admin/close", ADMIN),
    ("POST", "/v1/admin/skip", ADMIN),
    ("DELETE", "/v1/admin/device/1", ADMIN),
    ("DELETE", "/v1/admin/device/x", ADMIN),
    ("GET", "/healthz", None),
    ("GET", "/metrics", None),
    ("GET", "/status.json", None),
]
#: Which calls a token allows.
ALLOWED = {DEVICE: {"report", "leave"}, ENROLMENT: {"enrol"}, ADMIN: {"close_round", "leave"}}

TOKENS = st.one_of(st.none(), st.sampled_from([DEVICE, ENROLMENT, ADMIN]), st.text(max_size=20))
METHODS = st.one_of(st.sampled_from(["GET", "HEAD", "POST", "DELETE", "PUT", "OPTIONS"]), st.text(max_size=8))
PATHS = st.one_of(
    st.sampled_from([path for _, path, _ in MEANT]), st.text(max_size=30), st.sampled_from(["", "*", "/"])
)
HEADERS = st.tuples(
    st.one_of(
        st.sampled_from([b"authorization", b"content-length", b"transfer-encoding", b"if-none-match", b"expect"]),
        st.binary(max_size=10),
    ),
    st.one_of(
        st.binary(max_size=40),
        st.sampled_from(
            [b"9", b"0", b"-1", b"1" * 30, b"chunked", b"*", b"Bearer", b"Basic Og==", b'"01234567-0-fbfe4ca6"']
        ),
    ),
)
REPLIES = st.one_of(
    st.builds(a_reply, st.integers(0, 2**32 - 1), st.integers(0, 65535), st.integers(0, 65535)), st.binary(max_size=12)
)
GONE = st.sampled_from([OSError("gone"), TimeoutError("gone"), RuntimeError("gone"), ConnectionResetError("gone")])


@st.composite
def exchanges(draw) -> tuple[Exchange, str | None]:
    """A request, much or little of which is as it should be, and the token that it shows."""
    method, path, token = draw(st.sampled_from(MEANT))
    good = [draw(REPLIES)] if "report" in path else [b""]
    wrong = draw(st.sets(st.sampled_from(["method", "path", "token", "body", "headers", "length", "client", "stalls"])))
    method, path = draw(METHODS) if "method" in wrong else method, draw(PATHS) if "path" in wrong else path
    token = draw(TOKENS) if "token" in wrong else token
    pieces = draw(st.lists(st.one_of(st.binary(max_size=2000), GONE), max_size=4)) if "body" in wrong else good
    headers = draw(st.lists(HEADERS, min_size=1, max_size=3)) if "headers" in wrong else []
    client = (
        draw(st.one_of(st.none(), st.text(max_size=20), st.ip_addresses().map(str))) if "client" in wrong else "::1"
    )
    exchange = Exchange(method, path, token, pieces, client=client, headers=headers, length="length" not in wrong)
    exchange.stalls = "stalls" in wrong and draw(st.booleans())
    return exchange, token


@pytest.fixture(autouse=True, scope="module")
def no_lingering():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedrank.deploy.http.guard._LINGER_SECONDS", 0.01)
        yield


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=exchanges(), state=st.sampled_from(["open", "open", "between", "done"]))
def test_any_request_is_answered_and_changes_nothing_that_it_may_not(drawn, state, caplog):
    exchange, token = drawn
    hub = FakeHub((DEVICE,))
    hub.show(0, state)
    app = app_of(hub, Guard(body_seconds=0.005, device_per_minute=math.inf))
    got = asyncio.run(exchange.to(app))
    event(f"{'nothing' if got is None else got.code}")
    assert caplog.records == []
    if got is None:
        assert app.counters.refusals_by_reason() == {"disconnected": 1}
    else:
        assert got.code in KNOWN
        refused = got.code >= 400
        assert sum(app.counters.refusals_by_reason().values()) == refused
        if refused and got.body:
            assert set(got.json) - {"round"} == {"error", "detail"} and got.error in app.counters.refusals_by_reason()
        if refused:
            assert DEVICE.encode() not in got.body and hub.terms.hub.encode() not in got.body
    assert {call[0] for call in hub.calls} <= ALLOWED.get(token or "", set())
    for name, *arguments in hub.calls:
        if name == "report":
            assert arguments[1] == 1 and hub.terms.reply.decode(arguments[2])
    if got is None or got.code >= 400:
        assert hub.counted == {} and hub.view.round == 0
    assert ask(app, "GET", "/healthz").code == 200


# --------------------------------------------------------------------------------------------------- on a socket


def request(method="POST", path="/v1/report/0", token=DEVICE, headers=(), body=b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: hub", f"Authorization: Bearer {token}", *headers]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode("utf-8", "replace") + body


ODD = [
    *(
        "Transfer-Encoding: chunked",
        "Content-Length: 5",
        "Content-Length: -1",
        "Expect: 100-continue",
        "Connection: close",
    ),
    *("Connection: Upgrade", "Upgrade: websocket", "Upgrade: h2c", "A: " + "x" * 70_000),
]


@st.composite
def whole(draw) -> bytes:
    """A request that a parser may like."""
    method, path, token = draw(st.sampled_from(MEANT))
    body = draw(REPLIES) if method == "POST" else b""
    headers = draw(st.one_of(st.just([]), st.lists(st.sampled_from(ODD), max_size=2)))
    return request(method, path, DEVICE if token == DEVICE else "wrong", headers, body)


@st.composite
def spoilt(draw) -> bytes:
    """A request with a piece missing, doubled or replaced."""
    good = draw(whole())
    at = draw(st.integers(0, len(good)))
    end = min(len(good), at + draw(st.integers(0, 5)))
    return draw(st.sampled_from([good[:at], good[:at] + good[end:], good[:end] + good[at:]])) + draw(
        st.one_of(st.just(b""), st.binary(max_size=6), st.just(b"\r\n\r\n"))
    )


SENT = st.lists(st.one_of(whole(), whole(), spoilt(), st.binary(max_size=100)), min_size=1, max_size=4)


async def say(port: int, pieces: list[bytes]) -> bytes:
    """What a server answers until it closes the connection; it has five seconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0)
        with contextlib.suppress(OSError):  # it was closed meanwhile
            writer.write_eof()
        return await asyncio.wait_for(reader.read(), 5)
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.fixture(scope="module", params=[(), ("127.0.0.1",)], ids=["alone", "behind a proxy"])
def served(request):
    hub = FakeHub((DEVICE,))
    guard = Guard(device_per_minute=math.inf, failures_per_minute=math.inf, body_seconds=0.1)
    with ThreadedServer(app_of(hub, guard), grace_seconds=1, proxies=request.param) as server:
        yield hub, server.port


@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(clients=st.lists(SENT, min_size=12, max_size=12))
def test_any_bytes_are_survived_and_connections_end_with_them(served, caplog, clients):
    """Twelve clients at once, so that they do not only wait for clocks."""
    hub, port = served
    hub.calls.clear()
    hub.counted.clear()
    hub.tokens[DEVICE] = 1  # a request may have been to leave

    async def all_of_them():
        return await asyncio.gather(*(say(port, pieces) for pieces in clients))

    for out in asyncio.run(all_of_them()):
        assert out == b"" or out.startswith(b"HTTP/1.1 ")
        codes = {int(code) for code in re.findall(rb"HTTP/1\.1 (\d{3}) ", out)}
        assert codes <= KNOWN | {100}
        event(f"{sorted(codes)}")
    assert caplog.records == []
    assert {call[0] for call in hub.calls} <= ALLOWED[DEVICE], "nobody knew another token"
    for (round_, device), reply in hub.counted.items():
        assert (round_, device) == (0, 1) and hub.terms.reply.decode(reply)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", "/healthz")
    assert connection.getresponse().status == 200
    connection.close()
