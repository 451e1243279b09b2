"""What a report costs a hub: with a device's token, with a blind token, through the gateway; and what a sale costs.

    python -m benchmarks.hub.tokens [--requests 4000] [--connections 64]

The hub is a process of its own, and its processor time is what is measured: it does not depend on what else the machine
does. Reports and purchases are written (``synchronous = FULL``) before they are answered, as ever. Tokens are signed
here, with the hub's own key, so that thousands of devices need not be. With everything on, a report is one number of
interleaved lists that comes through the gateway with a blind token, which draws that it is due and its seed; the hub
has checks, a log, and asks its door for statements.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import secrets
import sqlite3
import tempfile
import time
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.serialization import load_der_private_key

from benchmarks.hub.hubs import make_hub, random_replies, served
from benchmarks.hub.load import _drive
from fedrank.deploy.draws import DUE, SEED, Beacon, drawn, word
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.oblivious.encapsulation import REQUEST_LENGTH, BinaryRequest, encapsulate, encode_request
from fedrank.deploy.oblivious.tokens import (
    NONCE,
    TOKEN_TYPE,
    ask_for,
    draw_key,
    epoch_challenge,
    header_of,
    key_id,
    parts_of,
    spending_number,
)


def _post(path: str, authorization: str, body: bytes) -> bytes:
    shown = f"authorization: {authorization}\r\n" if authorization else ""
    return f"POST {path} HTTP/1.1\r\nhost: hub\r\n{shown}content-length: {len(body)}\r\n\r\n".encode() + body


def _seconds(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


#: Settings of the hubs that are measured, and what is sent: a report, or a request for a token.
KINDS: dict[str, dict] = {
    "simple": {"log": "no"},
    "token": {"tokens": 1},
    "gateway": {"tokens": 1, "batch": 1},
    "everything": {
        "tokens": 1, "batch": 1, "mechanism": "piecewise", "interleaved": True, "epsilon": 1.0, "participations": 1,
        "due": 0.9, "drawn_seeds": True, "checks": 0.1,
    },
    "sale": {"tokens": 1},
}  # fmt: skip


def _sign(public: bytes, commitment: bytes, private: bytes, hub: str, count: int) -> list[bytes]:
    """Tokens of epoch 1, signed with the hub's key."""
    key, pss = load_der_private_key(private, None), padding.PSS(padding.MGF1(hashes.SHA384()), 48)
    made = []
    for _ in range(count):
        content = TOKEN_TYPE + secrets.token_bytes(NONCE) + epoch_challenge(hub, 1, commitment) + key_id(public)
        made.append(content + key.sign(content, pss, hashes.SHA384()))  # type: ignore[union-attr, call-arg]
    return made


def _ask(port: int, method: str, path: str, authorization: str, body: bytes = b"") -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request(method, path, body, {"Authorization": authorization})
        answer = connection.getresponse()
        assert answer.status in (200, 201), (path, answer.status, answer.read())


def _open_first_epoch(home: HubFolder, port: int, sale: str, request: bytes) -> None:
    """Buy one token, without which epoch 1 is void, and close round 0."""
    _ask(port, "POST", "/v1/token/1", sale, request)
    _ask(port, "POST", "/v1/admin/skip", f"Bearer {home.token('admin')}")
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with sqlite3.connect(home.path / "hub.db") as db:
            if db.execute("SELECT 1 FROM round WHERE number = 1 AND state = 'open'").fetchone():
                time.sleep(0.2)  # it is served a moment later
                return
        time.sleep(0.05)
    raise RuntimeError("round 1 was not opened")


def measure(kind: str, count: int, connections: int) -> dict:
    """One hub of :data:`KINDS`, and ``count`` requests."""
    settings = KINDS[kind]
    with tempfile.TemporaryDirectory() as folder:
        home, terms, devices = make_hub(
            Path(folder) / "hub",
            count,
            n_features=46,
            cohort=10 * count,
            deadline=0.0,
            reports_per_minute=1e9,
            **settings,
        )
        with served(home) as (process, port):
            if kind == "simple":
                replies = random_replies(terms, count, seed=0)
                requests = [_post("/v1/report/0", f"Bearer {t}", r) for t, r in zip(devices, replies, strict=True)]
            else:
                with sqlite3.connect(home.path / "hub.db") as db:
                    row = "SELECT public, private, secret FROM issuer WHERE epoch = 1"
                    offer, private, secret = db.execute(row).fetchone()
                public, commitment = parts_of(offer)
                challenge = epoch_challenge(terms.hub, 1, commitment)
                asked = [ask_for(public, challenge).request for _ in (devices if kind == "sale" else devices[:1])]
                requests = [_post("/v1/token/1", f"Bearer {t}", r) for t, r in zip(devices, asked, strict=False)]
            if kind not in ("simple", "sale"):
                _open_first_epoch(home, port, f"Bearer {devices[0]}", asked[0])
                signed = _sign(public, commitment, private, terms.hub, count)
                with sqlite3.connect(home.path / "hub.db") as db:
                    ((reports,),) = db.execute("SELECT reports FROM issuer WHERE epoch = 1").fetchall()
                keys = [draw_key(spending_number(token)) for token in signed]
                beacon = Beacon(secret, reports, 1).value
                signed = [t for t, key in zip(signed, keys, strict=True) if drawn(key, DUE, beacon, terms.due)]
                if kind == "everything":
                    layout, seeds = terms.reply, (word(draw_key(spending_number(t)), SEED, beacon) for t in signed)
                    replies = [layout.encode(layout.message(seed=seed, report=0)) for seed in seeds]
                else:
                    replies = random_replies(terms, len(signed), seed=0)
                shown = [header_of(token) for token in signed]
                requests = [_post("/v1/report/1", s, r) for s, r in zip(shown, replies, strict=True)]
                if terms.batch:
                    fields = [((b"authorization", s.encode()),) for s in shown]
                    inner = [
                        BinaryRequest(b"POST", b"/v1/report/1", f, r) for f, r in zip(fields, replies, strict=True)
                    ]
                    sealed = [
                        encapsulate(bytes.fromhex(terms.gateway), encode_request(one, REQUEST_LENGTH)) for one in inner
                    ]
                    requests = [_post("/v1/oblivious", "", one.request) for one in sealed]
            before, began = _seconds(process.pid), time.perf_counter()
            _, _, codes = asyncio.run(_drive(port, requests, connections))
            spent, wall = _seconds(process.pid) - before, time.perf_counter() - began
            wanted = 201 if kind in ("simple", "token") else 200
            assert codes == {wanted: len(requests)}, codes
            if kind != "sale":  # an answer of the gateway does not say that what is inside counted
                with sqlite3.connect(home.path / "hub.db") as db:
                    ((counted,),) = db.execute("SELECT count(*) FROM report").fetchall()
                assert counted == len(requests), counted
        return {
            "µs of the hub's processor": round(1e6 * spent / len(requests)),
            "a second": round(len(requests) / wall),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--connections", type=int, default=64)
    asked = parser.parse_args()
    found = {kind: measure(kind, asked.requests, asked.connections) for kind in KINDS}
    print(json.dumps(found, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
