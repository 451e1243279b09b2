"""A coordinator's requests, over HTTP to a real hub."""

import asyncio
import http.client
import json

import numpy as np
import pytest
from hubs import make

from fedrank.deploy.hub.service import hub_app
from fedrank_zoo.threaded_server import ThreadedServer


class Client:
    """Requests to a hub, one connection each."""

    def __init__(self, port):
        self.port = port

    def __call__(self, method, path, token=None, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, content


@pytest.fixture
def relay(tmp_path):
    home = make(tmp_path / "hub", collect=True, cohort=2)
    hub, app = hub_app(home)
    with ThreadedServer(app) as server:
        yield hub, Client(server.port), home.token("admin"), home.token("enrolment")


def question(hub, round_):
    layout = hub.terms.request
    return layout.encode(layout.message(np.uint32(round_), np.float32(range(5))))


def test_a_round_of_a_coordinator_over_http(relay):
    hub, ask, admin, enrolment = relay
    device = json.loads(ask("POST", "/v1/enrol", enrolment)[1])["token"]
    other = json.loads(ask("POST", "/v1/enrol", enrolment)[1])["token"]
    assert ask("GET", "/v1/admin/terms", admin)[0] == 200
    assert ask("PUT", "/v1/admin/round", admin, question(hub, 5))[0] == 201
    assert ask("PUT", "/v1/admin/round", admin, question(hub, 5))[0] == 200
    assert ask("PUT", "/v1/admin/round", admin, question(hub, 6))[0] == 409
    assert ask("PUT", "/v1/admin/round", admin, b"x")[0] == 400
    assert ask("GET", "/v1/model", device) == (200, question(hub, 5))
    reply = hub.terms.reply.encode(hub.terms.reply.message(np.uint32(1), np.int32(2), np.int32(3)))
    assert ask("POST", "/v1/report/5", device, reply)[0] == 201
    assert ask("GET", "/v1/admin/reports/5", admin)[0] == 409
    assert ask("POST", "/v1/report/5", other, reply)[0] == 201
    for _ in range(200):
        code, body = ask("GET", "/v1/admin/reports/5", admin)
        if code == 200:
            break
    assert (code, body) == (200, reply + reply)
    assert ask("PUT", "/v1/admin/round", admin, question(hub, 5)[:-1] + b"\x41")[0] == 409
    assert ask("GET", "/v1/admin/reports/x", admin)[0] == 400


def test_nobody_else_may(relay):
    hub, ask, _, enrolment = relay
    for token in (None, enrolment, "x" * 43):
        assert ask("GET", "/v1/admin/terms", token)[0] == 401
        assert ask("PUT", "/v1/admin/round", token, question(hub, 0))[0] == 401
        assert ask("GET", "/v1/admin/reports/0", token)[0] == 401
    assert hub.view.state == "between"


def test_a_large_body_is_read_for_the_operator_only(relay):
    hub, ask, admin, enrolment = relay
    assert ask("PUT", "/v1/admin/round", enrolment, bytes(2000))[0] == 401
    assert ask("PUT", "/v1/admin/round", admin, bytes(hub.terms.request.nbytes + 1))[0] in (400, 413)
    assert ask("PUT", "/v1/admin/round", admin, bytes(2000))[0] == 413
    assert ask("GET", "/healthz")[0] == 200


def test_a_hub_that_learns_has_no_such_routes(tmp_path):
    home = make(tmp_path / "hub")
    _, app = hub_app(home)
    with ThreadedServer(app) as server:
        ask = Client(server.port)
        for method, path in (("GET", "/v1/admin/terms"), ("PUT", "/v1/admin/round"), ("GET", "/v1/admin/reports/0")):
            assert ask(method, path, home.token("admin"))[0] == 404


def test_a_device_waits_between_rounds(relay):
    """It gets the next model, not a refusal, if the round opens soon."""
    hub, ask, admin, enrolment = relay
    device = json.loads(ask("POST", "/v1/enrol", enrolment)[1])["token"]

    async def story():
        waiting = asyncio.to_thread(ask, "GET", "/v1/model", device)
        task = asyncio.create_task(waiting)
        await asyncio.sleep(0.3)
        assert not task.done()
        assert (await asyncio.to_thread(ask, "PUT", "/v1/admin/round", admin, question(hub, 0)))[0] == 201
        return await task

    assert asyncio.run(story()) == (200, question(hub, 0))
