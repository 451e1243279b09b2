"""What a report costs a hub: with a device's token, with a blind token, through the gateway; and what a purchase costs.

    python -m benchmarks.hub.tokens [--requests 4000] [--connections 64]

The hub is a process of its own, and its processor time is what is measured: it does not depend on what else the machine
does. Reports and purchases are written (``synchronous = FULL``) before they are answered, as ever. Tokens are signed
here, with the hub's own key, so that thousands of devices need not be.
"""

from __future__ import annotations

import argparse
import asyncio
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
from fedrank.deploy.oblivious.binary_http import REQUEST_LENGTH, BinaryRequest, encode_request
from fedrank.deploy.oblivious.encapsulation import encapsulate
from fedrank.deploy.oblivious.tokens import NONCE, TOKEN_TYPE, ask_for, epoch_challenge, header_of, key_id


def _post(path: str, authorization: str, body: bytes) -> bytes:
    shown = f"authorization: {authorization}\r\n" if authorization else ""
    return f"POST {path} HTTP/1.1\r\nhost: hub\r\n{shown}content-length: {len(body)}\r\n\r\n".encode() + body


def _seconds(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _tokens(folder: Path, hub: str, count: int) -> list[bytes]:
    """Tokens of epoch 0, signed with the hub's key."""
    with sqlite3.connect(folder / "hub.db") as db:
        public, private = db.execute("SELECT public, private FROM issuer WHERE epoch = 0").fetchone()
    key, pss = load_der_private_key(private, None), padding.PSS(padding.MGF1(hashes.SHA384()), 48)
    made = []
    for _ in range(count):
        content = TOKEN_TYPE + secrets.token_bytes(NONCE) + epoch_challenge(hub, 0) + key_id(public)
        made.append(content + key.sign(content, pss, hashes.SHA384()))  # type: ignore[union-attr, call-arg]
    return made


def measure(kind: str, count: int, connections: int) -> dict:
    """One hub, ``count`` requests of a kind: ``"simple"``, ``"token"``, ``"gateway"`` or ``"purchase"``."""
    settings = {} if kind == "simple" else {"tokens": 1, "batch": 1}
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
            replies = random_replies(terms, count, seed=0)
            if kind == "simple":
                requests = [_post("/v1/report/0", f"Bearer {t}", r) for t, r in zip(devices, replies, strict=True)]
            elif kind == "purchase":
                with sqlite3.connect(home.path / "hub.db") as db:
                    ((public,),) = db.execute("SELECT public FROM issuer WHERE epoch = 0").fetchall()
                asked = [ask_for(public, epoch_challenge(terms.hub, 0)).request for _ in devices]
                requests = [_post("/v1/token/0", f"Bearer {t}", r) for t, r in zip(devices, asked, strict=True)]
            else:
                shown = [header_of(token) for token in _tokens(home.path, terms.hub, count)]
                requests = [_post("/v1/report/0", s, r) for s, r in zip(shown, replies, strict=True)]
                if kind == "gateway":
                    fields = [((b"authorization", s.encode()),) for s in shown]
                    inner = [
                        BinaryRequest(b"POST", b"/v1/report/0", f, r) for f, r in zip(fields, replies, strict=True)
                    ]
                    public = bytes.fromhex(terms.gateway)
                    sealed = [encapsulate(public, encode_request(one, REQUEST_LENGTH)).request for one in inner]
                    requests = [_post("/v1/oblivious", "", one) for one in sealed]
            before, began = _seconds(process.pid), time.perf_counter()
            _, _, codes = asyncio.run(_drive(port, requests, connections))
            spent, wall = _seconds(process.pid) - before, time.perf_counter() - began
        wanted = 201 if kind in ("simple", "token") else 200
        assert codes == {wanted: count}, codes
        return {"µs of the hub's processor": round(1e6 * spent / count), "a second here": round(count / wall)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--connections", type=int, default=64)
    asked = parser.parse_args()
    kinds = ("simple", "token", "gateway", "purchase")
    print(
        json.dumps(
            {kind: measure(kind, asked.requests, asked.connections) for kind in kinds}, indent=2, ensure_ascii=False
        )
    )


if __name__ == "__main__":
    main()
