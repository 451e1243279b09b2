"""A hub with tokens that is killed (SIGKILL) at any moment sells each device one token, and counts each once."""

import base64
import http.client
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import pytest
from hubs import make

from fedrank.deploy.oblivious.tokens import ask_for, epoch_challenge, header_of, parts_of, spending_number

KILLS, DEVICES = int(os.environ.get("FEDRANK_TEST_KILLS", "12")), 4


def ask(port, method, path, authorization=None, body=None):
    """Status and body; None where there is no answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path, body, {"Authorization": authorization} if authorization else {})
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


class Life(threading.Thread):
    """A device that buys and reports, and never takes no answer for an answer."""

    def __init__(self, hub, chance):
        super().__init__(daemon=True)
        self.hub, self.chance, self.done = hub, chance, threading.Event()
        self.wrong, self.counted = [], {}

    def until(self, *request):
        while not self.done.is_set():
            got = ask(self.hub.port, *request)
            if got is not None and got[0] not in (429, 503):
                return got
            time.sleep(0.01)
        return None

    def run(self):
        got = self.until("POST", "/v1/enrol", f"Bearer {self.hub.enrolment}", b"")
        if got is None:
            return
        given = json.loads(got[1])
        mine, name = f"Bearer {given['token']}", given["terms"]["hub"]
        asked, tokens, done = {}, {}, set()
        while not self.done.is_set():
            got = self.until("GET", "/v1/tokens")
            if got is None:
                return
            now = json.loads(got[1])
            if now["round"] in tokens and now["round"] not in done and "beacon" in now:
                done.add(now["round"])
                self.report(now["round"], tokens[now["round"]])
            epoch = now.get("epoch", 0)
            if not epoch or epoch in tokens or now["state"] != "open":
                time.sleep(0.01)
                continue
            key, commitment = parts_of(base64.urlsafe_b64decode(now["offer"]))
            challenge = epoch_challenge(name, epoch, commitment)
            request = asked.setdefault(epoch, ask_for(key, challenge))
            got = self.until("POST", f"/v1/token/{epoch}", mine, request.request)
            if got is None or got[0] == 409:  # its epoch began meanwhile
                if got is not None and json.loads(got[1])["error"] != "wrong-epoch":
                    self.wrong.append(got)
                continue
            if got[0] != 200:
                self.wrong.append(got)
                continue
            tokens[epoch] = request.token(got[1])
            other = ask(self.hub.port, "POST", f"/v1/token/{epoch}", mine, ask_for(key, challenge).request)
            if other is not None and other[0] == 200:
                self.wrong.append("a second token")

    def report(self, round_, token):
        body = bytes([1 << 5 | 2]) + self.chance.randbytes(4) + bytes(4)
        got = self.until("POST", f"/v1/report/{round_}", header_of(token), body)
        if got is not None and got[0] in (200, 201):
            self.counted[round_, spending_number(token)] = body
        elif got is not None and json.loads(got[1])["error"] not in ("stale-round", "wrong-epoch"):
            self.wrong.append(got)


class Hub:
    """A hub in a process of its own."""

    def __init__(self, home):
        self.home, self.enrolment, self.port = home, home.token("enrolment"), 0

    def start(self):
        self.home.url_path("hub").unlink(missing_ok=True)
        command = [sys.executable, "-m", "fedrank", "hub", "serve", str(self.home.path), "--port", str(self.port)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, "JAX_PLATFORMS": "cpu"}
        )
        end = time.monotonic() + 60
        while not self.home.url_path("hub").exists():
            assert self.process.poll() is None, self.process.stderr.read().decode()
            assert time.monotonic() < end
            time.sleep(0.01)
        self.port = int(self.home.url("hub").rsplit(":", 1)[1])

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stderr.close()


@pytest.mark.minutes
def test_a_hub_that_is_killed_sells_and_counts_once(tmp_path):
    chance = random.Random(5)
    hub = Hub(make(tmp_path / "hub", tokens=1, cohort=DEVICES, least=1, deadline=3.0))
    hub.start()
    lives = [Life(hub, random.Random(n)) for n in range(DEVICES)]
    for life in lives:
        life.start()
    try:
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.2, 1.5))
            hub.kill()
            hub.start()
        time.sleep(1.0)
    finally:
        for life in lives:
            life.done.set()
        for life in lives:
            life.join(20)
        hub.kill()
    assert not [wrong for life in lives for wrong in life.wrong]
    acknowledged = {key: body for life in lives for key, body in life.counted.items()}
    with sqlite3.connect(tmp_path / "hub" / "hub.db") as db:
        there = {(round_, token): body for round_, token, body in db.execute("SELECT * FROM report")}
    assert len(acknowledged) >= KILLS / 2 and acknowledged.items() <= there.items(), (
        "nothing that was acknowledged is lost"
    )
    with sqlite3.connect(tmp_path / "hub" / "hub.db") as db:
        rounds = {round_ for round_, _ in there}
        assert all(sum(round_ == n for round_, _ in there) <= DEVICES for n in rounds)
        assert max(count for (count,) in db.execute("SELECT count(*) FROM purchase GROUP BY epoch")) <= DEVICES
