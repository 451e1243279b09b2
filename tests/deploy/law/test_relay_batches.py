"""An oblivious relay: who waits for whom, who is sent back, and what order comes out."""

import asyncio
import itertools

import pytest
from hub_fakes import Exchange

from fedrank.core.errors import ConfigError, RunError
from fedrank.deploy.http.client import ClientResponse
from fedrank.deploy.oblivious.encapsulation import REQUEST_LENGTH, REQUEST_OVERHEAD, key_configuration
from fedrank.deploy.oblivious.relay import GatewayClient, RelayApp, RelaySettings

SIZE = REQUEST_LENGTH + REQUEST_OVERHEAD


class Gateway(GatewayClient):
    """Writes down what is passed on."""

    def __init__(self, answer=None):
        self.passed, self.answer = [], answer or ClientResponse(200, b"answer")

    async def newest_configuration(self):
        return None

    async def pass_on(self, request):
        self.passed.append(int.from_bytes(request))
        return self.answer


def relay(gateway, **settings):
    return RelayApp(gateway, key_configuration(bytes(32)), RelaySettings(**settings))


async def send(app, number, path="/report", client=None, size=SIZE):
    client = client or f"198.51.{number // 256 % 256}.{number % 256}"  # by default, everybody is elsewhere
    return await Exchange("POST", path, None, number.to_bytes(size), client=client).to(app)


def test_reports_go_together_and_in_no_order():
    async def story():
        gateway = Gateway()
        app = relay(gateway, batch=64, seconds=5.0)
        first = [asyncio.create_task(send(app, n)) for n in range(63)]
        await asyncio.sleep(0.02)
        assert gateway.passed == []
        got = [await send(app, 63), *await asyncio.gather(*first)]
        assert {one.code for one in got} == {200} and {one.body for one in got} == {b"answer"}
        assert sorted(gateway.passed) == list(range(64)) and gateway.passed != list(range(64))
        return gateway.passed

    orders = {tuple(asyncio.run(story())) for _ in range(3)}
    assert len(orders) == 3
    # In order of arrival, a report would follow the one before it; by lot, one in 64 does.
    assert all(sum(b == a + 1 for a, b in itertools.pairwise(order)) < 12 for order in orders)


def test_too_few_reports_are_sent_back_and_others_go_alone():
    async def story():
        gateway = Gateway()
        app = relay(gateway, batch=3, seconds=0.05, company=0.02)
        got = await asyncio.gather(send(app, 1), send(app, 2))
        assert {(one.code, one.error) for one in got} == {(503, "too-few")} and gateway.passed == []
        alone = await send(app, 9, "/others")
        assert alone.code == 200 and gateway.passed == [9]

    asyncio.run(story())


def test_a_network_counts_once():
    async def story():
        gateway = Gateway()
        app = relay(gateway, batch=3, seconds=0.05)
        same = [send(app, n, client="192.0.2.7") for n in range(9)]
        house = [send(app, 20 + n, client=f"2001:db8:1:2::{n}") for n in range(9)]
        got = await asyncio.gather(*same, *house)
        assert {one.error for one in got} == {"too-few"} and gateway.passed == []
        got = await asyncio.gather(*(send(app, n, client=f"192.0.2.{n}") for n in range(3)))
        assert {one.code for one in got} == {200} and sorted(gateway.passed) == [0, 1, 2]

    asyncio.run(story())


@pytest.mark.parametrize("own", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_one_client_behind_a_proxy_of_this_machine_fills_no_batch(own):
    """The relay was not told of the proxy, so that all that comes through it has one address of this machine."""

    async def story():
        gateway = Gateway()
        app = relay(gateway, batch=3, seconds=0.05, per_minute=60)
        got = await asyncio.gather(*(send(app, n, client=own) for n in range(12)))
        assert {one.error for one in got} == {"too-few"} and gateway.passed == []
        codes = [(await send(app, n, "/others", client=own, size=100)).code for n in range(40)]
        assert codes[-1] == 429  # what was asked so far counts as well
        trial = relay(gateway, batch=3, seconds=0.05, per_minute=60, trial=True)
        got = await asyncio.gather(*(send(trial, n, client=own) for n in range(120)))
        assert {one.code for one in got} == {200}

    asyncio.run(story())


def test_a_flood_of_one_network_waits_and_nobody_else_does():
    async def story():
        app = relay(Gateway(), batch=1, seconds=0.05, per_minute=60)
        codes = [(await send(app, n, client="192.0.2.7")).code for n in range(40)]
        assert codes[:30] == [200] * 30 and set(codes[30:]) == {429}
        assert (await send(app, 1, client="192.0.2.8")).code == 200

    asyncio.run(story())


def test_only_whole_requests_are_passed_on_and_answers_say_nothing_more():
    async def story():
        for answer, code in ((ClientResponse(400, b"why"), 400), (ClientResponse(500, b"why"), 503)):
            gateway = Gateway(answer)
            app = relay(gateway, batch=1)
            got = await send(app, 1)
            assert got.code == code and b"why" not in got.body
            for size in (SIZE - 1, 100):
                assert (await send(app, 1, size=size)).code == 400
            assert (await send(app, 1, size=SIZE + 1)).code == 413
            assert gateway.passed == [1]
            told = await Exchange("GET", "/").to(app)
            assert told.json == {"batch": 1, "seconds": 60.0, "keys": key_configuration(bytes(32)).hex()}

    asyncio.run(story())


def test_settings_and_gateways_that_cannot_work_are_refused():
    for wrong in ({"batch": 0}, {"seconds": 0.0}, {"seconds": 61.0}, {"company": -1.0}, {"per_minute": 0.0}):
        with pytest.raises(ConfigError):
            RelaySettings(**wrong)
    with pytest.raises(ConfigError, match="https"):
        GatewayClient("http://192.0.2.1")
    with pytest.raises(RunError, match="gateway"):
        GatewayClient("http://127.0.0.1:9").configuration()
