"""What a hostile client, relay or network sends to a hub with tokens: no error of the hub, nothing counted twice."""

import asyncio
import base64
import contextlib
import json
import random
import threading
import time

import numpy as np
import pytest
from hub_fakes import Exchange
from hubs import make, some_messages
from relay_worlds import FEATURES, relayed
from token_worlds import ADMIN, ENROLMENT, Buyer, next_round, token_app

from fedrank.core.errors import WireError
from fedrank.deploy.device import conversation
from fedrank.deploy.oblivious import encapsulation
from fedrank.deploy.oblivious.encapsulation import (
    REQUEST_LENGTH,
    BinaryRequest,
    BinaryResponse,
    Gateway,
    ReplayedError,
    decode_request,
    decode_response,
    encapsulate,
    encode_request,
    encode_response,
    key_configuration,
    public_key_in,
)
from fedrank.deploy.oblivious.relay import RelaySettings
from fedrank.deploy.oblivious.tokens import header_of, token_in


@contextlib.asynccontextmanager
async def serving(home):
    app = token_app(home)
    await app._hub.start()
    try:
        yield app
    finally:
        await app._hub.stop()


async def through(app, request: BinaryRequest, length=REQUEST_LENGTH):
    """The answer to a request that comes encapsulated."""
    sent = encapsulate(app._gateway.public, encode_request(request, length))
    got = await Exchange("POST", "/v1/oblivious", None, sent.request).to(app)
    assert got is not None and got.code == 200, got
    return decode_response(sent.open(got.body)), len(got.body)


def shown(token: str):
    return ((b"authorization", token.encode()),)


def test_everything_a_device_asks_goes_through_the_gateway_in_one_size(tmp_path):
    async def story():
        async with serving(make(tmp_path / "hub", tokens=1, batch=1)) as app:
            enrolled, *sizes = await through(app, BinaryRequest(b"POST", b"/v1/enrol", shown(f"Bearer {ENROLMENT}")))
            assert enrolled.status == 201
            buyer = Buyer(app)
            buyer.token = json.loads(enrolled.content)["token"]
            asked = await buyer.begin(1)
            steps = [
                BinaryRequest(b"GET", b"/v1/tokens"),
                BinaryRequest(b"POST", b"/v1/token/1", shown(f"Bearer {buyer.token}"), asked.request),
                BinaryRequest(b"GET", b"/v1/model"),
            ]
            answers = [await through(app, step) for step in steps]
            token = asked.token(answers[1][0].content)
            await next_round(app._hub)
            (message,) = some_messages(app._hub, 1)
            report = BinaryRequest(b"POST", b"/v1/report/1", shown(header_of(token)), message)
            answers += [await through(app, report) for _ in range(3)]
            assert [answer.status for answer, _ in answers] == [200, 200, 200, 201, 200, 200]
            assert {size for _, size in answers} | set(sizes) == {2048 + 32}
            assert app._hub.status()["reports"] == 1

    asyncio.run(story())


def test_operators_and_the_gateway_itself_are_not_behind_the_gateway(tmp_path):
    async def story():
        async with serving(make(tmp_path / "hub", tokens=1, batch=1)) as app:
            for path in (b"/v1/admin/close", b"/v1/admin/device/1", b"/status", b"/metrics", b"/v1/oblivious", b"/"):
                for method in (b"GET", b"POST", b"DELETE"):
                    answer, _ = await through(app, BinaryRequest(method, path, shown(f"Bearer {ADMIN}")))
                    assert answer.status == 404
            codes = set()
            for _ in range(200):  # wrong tokens of many who are not told apart slow nobody down
                answer, _ = await through(app, BinaryRequest(b"POST", b"/v1/token/0", shown("Bearer wrong-token")))
                codes.add(answer.status)
            assert codes == {401}

    asyncio.run(story())


def test_a_relay_that_sends_an_enrolment_again_uses_up_no_cap(tmp_path):
    """The relay cannot read it, and can keep it: each time it was sent again, another device was enrolled."""
    home = make(tmp_path / "hub", tokens=1, batch=1)

    async def story():
        async with serving(home) as app:
            secret = app._hub.row.admission.credentials.add("app", 3)
            whole = encode_request(BinaryRequest(b"POST", b"/v1/enrol", shown(f"Bearer {secret}")), REQUEST_LENGTH)
            kept = encapsulate(app._gateway.public, whole).request
            got = [await Exchange("POST", "/v1/oblivious", None, kept).to(app) for _ in range(5)]
            assert [one.code for one in got] == [200, 409, 409, 409, 409] and got[1].error == "replayed"
            assert len(app._hub.row.admission.devices) == 1
            other = await through(app, BinaryRequest(b"POST", b"/v1/enrol", shown(f"Bearer {secret}")))
            assert other[0].status == 201  # the cap is there for those who enrol

    asyncio.run(story())


def test_what_a_gateway_opened_is_remembered_for_minutes_and_not_without_end(monkeypatch):
    now = [0.0]
    gateway = Gateway(bytes(range(32)), clock=lambda: now[0])
    sent = [encapsulate(gateway.public, b"%d" % n).request for n in range(40)]
    assert gateway.open(sent[0]).request == b"0"
    for now[0] in (1.0, 599.0, 601.0):
        with pytest.raises(ReplayedError):
            gateway.open(sent[0])
        gateway.open(sent[round(now[0]) % 37 + 1])
    now[0] = 1_900.0
    gateway.open(sent[39])
    assert gateway.open(sent[0]).request == b"0"  # forgotten by now
    monkeypatch.setattr(encapsulation, "_MOST_REMEMBERED", 8)
    few = Gateway(bytes(range(32)), clock=lambda: 0.0)
    for one in sent:
        few.open(one)
    assert len(few._seen._young) + len(few._seen._old) <= 16
    with pytest.raises(ReplayedError):
        few.open(sent[-8])  # the newest are known in any case


def test_malformed_bytes_at_every_layer_are_refused(tmp_path):
    chance = random.Random(7)

    async def story():
        async with serving(make(tmp_path / "hub", tokens=1, batch=1)) as app:
            public, codes = app._gateway.public, set()
            whole = encode_request(BinaryRequest(b"GET", b"/v1/model"), REQUEST_LENGTH)
            good = encapsulate(public, whole).request
            outer = [b"", good[:-1], good[:38], good + b"\0", bytes(len(good)), good[:7] + bytes(32) + good[39:]]
            outer += [bytes([*good[:at], good[at] ^ 1, *good[at + 1 :]]) for at in range(0, len(good), 97)]
            outer += [chance.randbytes(chance.randrange(1200)) for _ in range(100)]
            for body in outer:
                got = await Exchange("POST", "/v1/oblivious", None, body).to(app)
                codes.add(got.code)
            assert codes <= {400, 413}
            inner = [b"", b"\x01", b"\x02", b"\xc0", whole[:5], b"\x00\xff" * 20, whole[:-1] + b"\x01"]
            inner += [chance.randbytes(chance.randrange(1000)) for _ in range(200)]
            for plain in inner:
                got = await Exchange("POST", "/v1/oblivious", None, encapsulate(public, plain).request).to(app)
                assert got.code in (200, 400)
            names = [b"authorization", b"content-length", b"transfer-encoding", b"x" * 100, b"\xff", b"if-none-match"]
            for _ in range(300):
                fields = tuple((chance.choice(names), chance.randbytes(chance.randrange(40))) for _ in range(3))
                method = chance.choice((b"GET", b"POST", b"PUT", b"DELETE", b"\xff", b""))
                paths = (b"/v1/report/0", b"/v1/token/0", b"/v1/tokens", b"/v1/%61dmin/close", b"/v1/\xff", b"v1")
                request = BinaryRequest(method, chance.choice(paths), fields, chance.randbytes(chance.randrange(300)))
                answer, _ = await through(app, request, 0)
                assert 400 <= answer.status < 500 or request.path == b"/v1/tokens", answer
            assert app._hub.healthy and app._hub.status()["reports"] == 0

    asyncio.run(story())


def test_any_bytes_are_a_message_or_an_error():
    chance = random.Random(3)
    for _ in range(3000):
        data = chance.randbytes(chance.randrange(60))
        for decode in (decode_request, decode_response, public_key_in):
            with contextlib.suppress(WireError):
                decode(data)
        header = chance.choice((b"PrivateToken token=", b"")) + base64.urlsafe_b64encode(data)
        assert token_in(header) is None
    for request in (
        BinaryRequest(b"POST", b"/v1/report/7", ((b"authorization", b"x" * 500), (b"a", b"")), b"\0\1\2"),
        BinaryRequest(b"GET", b"/" + b"p" * 20_000),
    ):
        assert decode_request(encode_request(request)) == request
        assert decode_request(encode_request(request, 21_000)) == request
    response = BinaryResponse(503, ((b"retry-after", b"5"),), bytes(range(256)) * 300)
    assert decode_response(encode_response(response, 80_000)) == response
    assert public_key_in(key_configuration(bytes(32))) == bytes(32)
    with pytest.raises(WireError, match="does not fit"):
        encode_request(BinaryRequest(b"GET", b"/", (), bytes(1024)), REQUEST_LENGTH)


X = np.random.default_rng(0).random((12, FEATURES))


def use(device):
    for _ in range(4):
        ranking = device.rank(X)
        device.log_click(ranking, 0)
        device.finish(ranking)


def test_a_relay_that_drops_repeats_delays_and_reorders_counts_nothing_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(conversation, "POLL", 1e-9)
    monkeypatch.setattr(conversation, "_AHEAD", 1.0)
    chance = random.Random(11)
    with relayed(
        tmp_path, tokens=1, cohort=100, batch=1, relay=RelaySettings(batch=1, seconds=0.01, company=0.01)
    ) as world:
        devices = [world.device(str(n), timeout=2.0) for n in range(6)]
        kept = []
        for device in devices:
            inner = device._connection._relay
            ask = inner.request

            def hostile(method, path, *arguments, ask=ask, **options):
                if method == "GET":
                    return ask(method, path, *arguments, **options)
                kept.append((path, options))
                fate = chance.randrange(6)
                if fate == 0:  # dropped
                    raise OSError("dropped")
                if fate == 1:  # passed on, the answer lost
                    ask(method, path, *arguments, **options)
                    raise OSError("lost")
                if fate == 2:  # somebody's old request again, before this one
                    again, earlier = chance.choice(kept)
                    ask("POST", again, "", **earlier)
                if fate == 3:
                    time.sleep(chance.random() / 50)
                if fate == 4:  # twice at the same time
                    double = threading.Thread(target=ask, args=(method, path, *arguments), kwargs=options)
                    double.start()
                return ask(method, path, *arguments, **options)

            inner.request = hostile
        end, sold = time.monotonic() + 60, "SELECT count(*) FROM purchase WHERE epoch = ?"
        with contextlib.closing(world.hub.store.reader()) as store:
            while (number := world.hub.view.round) < 4 and time.monotonic() < end:
                for device in chance.sample(devices, 6):
                    device._conversation.backoff.reset()
                    device.sync()
                    use(device)
                if store.query(sold, (number + 1,)) == [(6,)] and len(world.hub.round.counted) == 6 * bool(number):
                    closed = world.hub.close_round(empty=True)
                    asyncio.run_coroutine_threadsafe(closed, world.hub._inbox.loop).result(10)
        assert world.hub.view.round == 4
        counted = sum(row.outcome == "counted" for device in devices for row in device.ledger())
        for round_ in range(1, 4):
            assert len(world.hub.store.reports(round_)) == 6
        ours = {(row.round, row.words) for device in devices for row in device.ledger()}
        assert len(ours) == sum(len(device.ledger()) for device in devices)
        assert counted >= 12, "those whose answer was lost are told later"
        assert world.app.counters.refusals.get(("oblivious", "internal")) is None
        assert not any(code == 500 for _, code in world.app.counters.requests)
