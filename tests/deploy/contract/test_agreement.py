"""One protocol, three ways to run it: simulated, over HTTP with the SDK, on Flower. Same draws, same model."""

import contextlib
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import jax
import numpy as np
from flower_nodes import Nodes, everybody, simulated, table
from hubs import trial_settings

from fedrank.core.ledger import Ledger
from fedrank.core.rng import party_key
from fedrank.deploy.hub.audit import replay_log
from fedrank.deploy.hub.folder import HubFolder
from fedrank.engine.run import build
from fedrank.engine.run_folder import RunFolder
from fedrank.ranking.clicks.cascade import decision_tables
from fedrank.ranking.sessions.devices import draw_queries
from fedrank_flower.server_app import serve
from fedrank_flower.settings import read_run

DEVICES, ROUNDS, B = 4, 3, 4
TESTS = Path(__file__).resolve().parents[2] / "support"


def world(folder):
    """One run's table, and what it names: protocol, devices, queries."""
    values = table(folder, clients=DEVICES, seed=7, interactions=B)
    config, _ = read_run(values)
    return values, build(config)


def ledger_of(folder, protocol) -> Ledger:
    """What a simulated run writes down about its bytes."""
    RunFolder(folder).ledger(protocol, ROUNDS, DEVICES)
    return Ledger.read(folder / "ledger.jsonl")


def draws_of(experiment, device: int) -> dict:
    """The simulator's draws of a device in all rounds, in the form that a device's process takes."""
    protocol, parties, queries = experiment.protocol, experiment.parties, experiment.splits.train
    (exchange,) = protocol.exchanges
    mine = jax.tree.map(lambda leaf: leaf[device], parties.own)
    words, clicks, asked = [], [], []
    for number in range(ROUNDS):
        drawn = exchange.draw(party_key(jax.random.key(experiment.config.seed), np.uint32(number), np.uint32(device)))
        words.append(np.asarray(drawn.seed)[None])
        privacy = np.asarray(drawn.privacy)
        words += [privacy[k % 2, k // 2] for k in range(B)]
        clicks.append(np.asarray(drawn.clicks))
        asked.append(np.asarray(draw_queries(parties.shared[1], mine, drawn.queries)))
    click, leave = (np.asarray(table[0][0, 0]) for table in decision_tables((protocol.user,)))
    return dict(
        rounds=ROUNDS,
        interactions=B,
        words=np.concatenate(words),
        clicks=np.stack(clicks),
        queries=np.stack(asked),
        click=click,
        leave=leave[:, 0],
        features=np.asarray(queries.features, np.float32),
        labels=np.asarray(queries.labels),
        offsets=np.asarray(queries.offsets),
    )


class Wire:
    """A listener between devices and the hub that writes down every byte of every connection."""

    def __init__(self, port: int):
        self._to, self._all = port, []
        self._listen = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listen.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listen.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                up, down = bytearray(), bytearray()
                self._all.append((up, down))
                for source, sink, log in ((near, far, up), (far, near, down)):
                    threading.Thread(target=self._pump, args=(source, sink, log), daemon=True).start()

    @staticmethod
    def _pump(source, sink, log):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                log += data
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def close(self):
        self._listen.close()

    def payloads(self):
        """Bodies that crossed: of reports sent up, and of models that came down (code 200).

        A device that had no answer, or one that asks it to come back, sends the same report again; ledgers count a
        report once however often it was sent, and so does this.
        """
        up, down = {}, []
        for sent, got in self._all:
            asked, told = list(messages(bytes(sent))), list(messages(bytes(got)))
            assert len(asked) == len(told)
            for (question, body), (answer, content) in zip(asked, told, strict=True):
                if question.startswith(b"POST /v1/report/"):
                    up[question, body] = body
                if question.startswith(b"GET /v1/model") and answer.split()[1] == b"200":
                    down.append(content)
        return list(up.values()), down


def messages(stream: bytes):
    """First line and body of each HTTP message of a stream."""
    while stream:
        head, _, stream = stream.partition(b"\r\n\r\n")
        first, *fields = head.split(b"\r\n")
        named = dict(field.lower().split(b": ", 1) for field in fields)
        length = int(named.get(b"content-length", 0))
        yield first, stream[:length]
        stream = stream[length:]


def over_http(folder: Path, experiment):
    """The same, with a hub and devices in processes of their own; the model, the log, and what crossed."""
    home = HubFolder(folder / "hub")
    home.prepare(trial_settings(n_features=46, p=0.9, interactions=B, cohort=DEVICES, deadline=0.0, rounds=ROUNDS))
    started = []
    try:
        started.append(
            hub := subprocess.Popen(
                [sys.executable, "-m", "fedrank", "hub", "serve", str(home.path), "--port", "0"],
                stdout=subprocess.DEVNULL,
            )
        )
        end = time.monotonic() + 60
        while not home.url_path("hub").exists():
            assert hub.poll() is None and time.monotonic() < end, "the hub did not start"
            time.sleep(0.05)
        wire = Wire(int(home.url("hub").rsplit(":", 1)[1]))
        devices = []
        for number in range(DEVICES):  # one after the other, so that the hub numbers them as the simulator does
            file = folder / f"draws-{number}.npz"
            np.savez(file, **draws_of(experiment, number))
            arguments = [wire.url, home.token("enrolment"), str(folder / f"device-{number}"), str(file)]
            devices.append(
                subprocess.Popen(
                    [sys.executable, str(TESTS / "agreement_device.py"), *arguments], stdout=subprocess.PIPE, text=True
                )
            )
            started.append(devices[-1])
            while _enrolled(home.log) <= number:
                assert devices[-1].poll() is None and time.monotonic() < end + 60, "a device did not enrol"
                time.sleep(0.05)
        assert [device.wait(90) for device in devices] == [0] * DEVICES
        said = [int(device.communicate()[0]) for device in devices]
        with urllib.request.urlopen(f"{home.url('hub')}/metrics", timeout=10) as answer:
            metrics = answer.read().decode()
        wire.close()
        hub.send_signal(signal.SIGTERM)
        assert hub.wait(30) == 0
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
            process.wait()
    found = replay_log(home.path)
    with sqlite3.connect(home.log) as db:
        log = db.execute("SELECT message FROM report ORDER BY round, device").fetchall()
    counted = {
        key: float(value)
        for key, value in re.findall(r'fedrank_payload_bytes_total\{direction="(\w+)"[^}]*\} (\S+)', metrics)
    }
    return found, [row[0] for row in log], wire.payloads(), said, counted


def _enrolled(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        return db.execute("SELECT count(*) FROM device").fetchone()[0]


def test_simulator_hub_and_flower_agree(tmp_path):
    values, experiment = world(tmp_path)
    weights, replies = simulated(values)
    layout, ledger = experiment.protocol.exchanges[0].reply, ledger_of(tmp_path, experiment.protocol)
    sent = layout.encode_all(replies, (ROUNDS, DEVICES))
    assert np.abs(weights).max() > 1e-3

    found, log, (up, down), said, counted = over_http(tmp_path, experiment)
    assert b"".join(log) == sent  # the same draws: every message, byte by byte
    assert found.proven
    np.testing.assert_allclose(found.weights, weights, rtol=1e-5, atol=1e-8)
    # All ledgers count what went through the sockets as payload: the devices', the hub's, the simulator's.
    assert said == [ROUNDS * 9] * DEVICES and sum(said) == sum(map(len, up))
    assert counted == {"up": sum(map(len, up)), "down": sum(map(len, down))}
    assert sum(map(len, up)) == ledger.bytes_from("parties") == ROUNDS * DEVICES * 9
    assert sum(map(len, down)) == ledger.bytes_from("server")
    assert sorted(up) == sorted(log)

    network = Nodes(everybody(values, 2))
    state = serve(values, network)
    by_round = [
        sorted(network.records[2 * number : 2 * number + 2], key=lambda record: record["first"])
        for number in range(ROUNDS)
    ]
    assert b"".join(record["replies"] for of_round in by_round for record in of_round) == sent
    np.testing.assert_allclose(np.asarray(state.weights), weights, rtol=1e-5, atol=1e-8)
