"""A node that answers for real devices: their hub relays its question and gives it what they report."""

import dataclasses
import json
import threading
import time
import urllib.error
import urllib.request

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fake_hub import ANYTHING
from flower_nodes import Nodes, server_of, table
from hubs import make

from fedrank.core.errors import ConfigError, RunError
from fedrank.deploy.device import Device
from fedrank.deploy.hub.service import hub_app
from fedrank.engine.deployment import NodeSettings
from fedrank_flower.client_app import Gateway, answer_through, check_terms
from fedrank_flower.messages import Question
from fedrank_flower.server_app import serve
from fedrank_flower.settings import read_node, read_run
from fedrank_zoo.threaded_server import ThreadedServer

FEATURES = 3


@pytest.fixture
def gateway(tmp_path):
    home = make(tmp_path / "hub", collect=True, cohort=2, n_features=FEATURES)
    hub, app = hub_app(home)
    with ThreadedServer(app) as server:
        node = NodeSettings(
            0, 1, gateway=server.url, gateway_token=str(home.path / "admin.token"), gateway_seconds=20.0
        )
        yield hub, node, home.token("enrolment")


def config_of(folder, **settings):
    return read_run(table(folder, clients=3, n_features=FEATURES, **settings))[0]


def question(hub, round_):
    layout = hub.terms.request
    return Question(round_, 0, layout.encode(layout.message(np.uint32(round_), np.float32(range(FEATURES)))))


class People:
    """Devices with the SDK, in threads, whose users look for one document."""

    def __init__(self, hub: str, enrolment: str, folder, count: int):
        self.stop = threading.Event()
        self.devices = [Device(hub, enrolment, folder / f"device-{i}", **ANYTHING) for i in range(count)]
        self.threads = [threading.Thread(target=self._live, args=(d,), daemon=True) for d in self.devices]

    def _live(self, device):
        documents = np.random.default_rng(0).random((4, FEATURES))
        while not self.stop.wait(0.05):
            device.sync()
            while device.wants_clicks:
                ranking = device.rank(documents)
                device.log_click(ranking, int(np.argmin(ranking.order)))  # document 0 is what they look for
                device.finish(ranking)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join(30)


def test_a_flower_run_over_real_devices(gateway, tmp_path):
    hub, node, enrolment = gateway
    values = table(tmp_path, clients=3, n_features=FEATURES, min_available_nodes=1, num_server_rounds=2)
    config, _ = read_run(values)

    def answering(asked):
        return [answer_through(config, node, asked).as_record()]

    network = Nodes({1: answering})
    with People(node.gateway, enrolment, tmp_path, 2) as people:
        state = serve(values, network)
        for _ in range(200):  # the last round may have closed before its devices had their answers
            if all(len(d.ledger()) == 2 and d.ledger()[-1].outcome == "counted" for d in people.devices):
                break
            time.sleep(0.05)
    # What the server was told is what the log of the gateway's hub holds, and the model is what it makes of it.
    (exchange,) = server_of(values, FEATURES).protocol.exchanges
    protocol = server_of(values, FEATURES).protocol
    expected = protocol.init(None)
    for number, record in enumerate(network.records):
        log = b"".join(message for _, message in hub_log(hub, number))
        assert record["replies"] == log and len(log) == 2 * exchange.reply.nbytes
        replies = exchange.reply.decode_all(log)
        expected = exchange.tell(expected, jax.tree.map(jnp.asarray, replies), jnp.ones(2, bool))
    np.testing.assert_allclose(np.asarray(state.weights), np.asarray(expected.weights), rtol=1e-5, atol=1e-8)
    assert np.abs(np.asarray(state.weights)).max() > 0
    assert [len([r for r in d.ledger() if r.outcome == "counted"]) for d in people.devices] == [2, 2]


def hub_log(hub, round_):
    import sqlite3

    with sqlite3.connect(f"file:{hub.store.path}?mode=ro", uri=True) as db:
        return db.execute("SELECT device, message FROM report WHERE round = ? ORDER BY device", (round_,)).fetchall()


def enrolled(node, enrolment):
    request = urllib.request.Request(
        f"{node.gateway}/v1/enrol", b"", {"Authorization": f"Bearer {enrolment}"}, method="POST"
    )
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())["token"]


def report(node, hub, token, round_, seed):
    reply = hub.terms.reply.encode(hub.terms.reply.message(np.uint32(seed), np.int32(1), np.int32(2)))
    request = urllib.request.Request(
        f"{node.gateway}/v1/report/{round_}", reply, {"Authorization": f"Bearer {token}"}, method="POST"
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 201
    return reply


def test_time_closes_a_round_with_what_has_come(gateway, tmp_path):
    hub, node, enrolment = gateway
    token, sent = enrolled(node, enrolment), []

    def sleep(_):
        if not sent:
            sent.append(report(node, hub, token, 0, 7))

    quick = dataclasses.replace(node, gateway_seconds=0.5)
    answer = answer_through(config_of(tmp_path), quick, question(hub, 0), sleep)
    numbers, rows = answer.rows(hub.terms.reply, 3)
    assert numbers.tolist() == [0] and rows.tobytes() == sent[0]
    # Asked again, as after a lost answer: the same reports.
    assert answer_through(config_of(tmp_path), quick, question(hub, 0)) == answer
    with pytest.raises(RunError, match="no device reported"):
        answer_through(config_of(tmp_path), quick, question(hub, 1), lambda _: None)


def test_devices_beyond_the_block_are_left_out(gateway, tmp_path):
    hub, node, enrolment = gateway
    tokens = [enrolled(node, enrolment) for _ in range(2)]
    sent = []

    def sleep(_):
        if not sent:
            sent.extend(report(node, hub, token, 0, i) for i, token in enumerate(tokens))

    second = dataclasses.replace(node, partition_id=1, num_partitions=3)  # party 1 alone
    answer = answer_through(config_of(tmp_path), second, question(hub, 0), sleep)
    numbers, rows = answer.rows(hub.terms.reply, 3)
    assert numbers.tolist() == [1] and rows.tobytes() == sent[0]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dict(interactions=8), "interactions is 4, not 8"),
        (dict(privacy_p=0.5), "p is 0.9, not 0.5"),
        (dict(sigma=0.1), "sigma"),
        (dict(reward="DCG"), "reward is 'MaxRR', not 'DCG'"),
        (dict(ranker="mlp"), "ranker"),
        (dict(antithetic=False), "antithetic"),
    ],
)
def test_devices_with_other_terms_are_not_asked(gateway, tmp_path, settings, words):
    hub, _, _ = gateway
    with pytest.raises(ConfigError, match=words):
        check_terms(hub.terms, config_of(tmp_path, **settings), FEATURES)


def test_what_can_be_wrong_with_a_gateway_is_said(gateway, tmp_path):
    hub, node, _ = gateway
    config = config_of(tmp_path)
    with pytest.raises(ConfigError, match="gateway-token"):
        answer_through(config, dataclasses.replace(node, gateway_token=str(tmp_path / "none")), question(hub, 0))
    (tmp_path / "other").write_text("x" * 30)
    with pytest.raises(RunError, match="401"):
        answer_through(config, dataclasses.replace(node, gateway_token=str(tmp_path / "other")), question(hub, 0))
    with pytest.raises(RunError, match="does not answer"):
        answer_through(config, dataclasses.replace(node, gateway="http://127.0.0.1:9"), question(hub, 0))
    with pytest.raises(ConfigError, match="size is 3, not 0"):
        answer_through(config, node, Question(0, 0, b"nonsense"))
    with pytest.raises(RunError, match="malformed"):
        answer_through(config, node, Question(0, 0, bytes(5 + 4 * FEATURES)))
    with pytest.raises(ConfigError, match="https"):
        Gateway("http://hub.example.org", "x" * 30)
    table_of_node = {"partition-id": 0, "num-partitions": 1, "gateway": "http://127.0.0.1:9"}
    with pytest.raises(ConfigError, match="gateway-token"):
        read_node(table_of_node)


def test_devices_that_look_at_other_ranks_are_not_asked(tmp_path):
    """Their sums would be in another unit, in a message that looks the same."""
    home = make(tmp_path / "hub", collect=True, n_features=FEATURES, depth=5)
    terms = home.open()[0].terms()
    assert terms.reply.nbytes == 9
    with pytest.raises(ConfigError, match="depth is 5, not 10"):
        check_terms(terms, config_of(tmp_path), FEATURES)
    with pytest.raises(ConfigError, match="size is 3, not 4"):
        check_terms(dataclasses.replace(terms, depth=10), config_of(tmp_path), FEATURES + 1)


def test_the_operators_token_goes_to_the_hub_and_nowhere_else(tmp_path, monkeypatch):
    """A redirect is not followed, and no proxy is asked."""
    import http.server

    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append((self.path, self.headers.get("Authorization")))
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{server.server_address[1]}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    try:
        with pytest.raises(RunError, match="302"):
            Gateway(f"http://127.0.0.1:{server.server_address[1]}", "admin-token-of-a-test").terms()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert seen == [("/v1/admin/terms", "Bearer admin-token-of-a-test")]
