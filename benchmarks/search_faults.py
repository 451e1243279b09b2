"""Searches while one of three owners is at fault: what searchers get, after how long.

    python -m benchmarks.search_faults [--searches 20]

Two sound owners, one at fault, a broker with a patience of one second, one asker; all in this process, over HTTP on
loopback. Faults: the owner accepts and never answers (hung), sends a byte every 0.2 s (dripping), is gone (killed), has
an expired certificate, gives cosines of 0.95 to whatever it finds (lying), has a full disk, or the asker's questions
are used up. ``replaying`` sends one sealed question again and counts what the owner charges.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from fedrank.core.errors import RunError
from fedrank.deploy.search.broker import BrokerApp
from fedrank.deploy.search.federation import Federation, FederationFile, OwnerCard, RankingTerms
from fedrank.deploy.search.folder import OwnerFolder
from fedrank.deploy.search.service import owner_app
from fedrank.texts.served.envelopes import Question, key_of
from fedrank.texts.served.owner import OwnerSettings
from fedrank_zoo.threaded_server import ThreadedServer

PATIENCE = 1.0
FAULTS = ("none", "hung", "dripping", "killed", "expired", "lying", "full-disk", "over-budget")


class Stuck:
    """A server that takes connections and gives nothing, or a byte now and then."""

    def __init__(self, drip: float = 0.0):
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._drip, self._open = drip, list[socket.socket]()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = self._socket.accept()
                self._open.append(one)
                if self._drip:
                    threading.Thread(target=self._send, args=(one,), daemon=True).start()

    def _send(self, one: socket.socket) -> None:
        with contextlib.suppress(OSError):
            one.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2000\r\n\r\n")
            while True:
                one.sendall(b"x")
                time.sleep(self._drip)

    def close(self) -> None:
        """End all connections."""
        self._socket.close()
        for one in self._open:
            one.close()


def documents(owner: str) -> str:
    rng = np.random.default_rng([*owner.encode()])
    words = ["wing", "flow", "lift", "shock", *(f"word{n}" for n in range(60))]
    rows = (
        {"id": f"{owner}{n}", "title": f"{owner} {n}", "text": " ".join(rng.choice(words, 30).tolist())}
        for n in range(50)
    )
    return "\n".join(json.dumps(row) for row in rows)


@contextlib.contextmanager
def world(folder: Path, fault: str) -> Iterator[tuple[Federation, dict[str, OwnerFolder], dict[str, str]]]:
    """The federation with one owner, ``east``, at fault."""
    with contextlib.ExitStack() as stack:
        homes, cards, tokens, urls = {}, [], {}, {}
        for name in ("north", "south", "east"):
            homes[name] = home = OwnerFolder(folder / name)
            most = 3 if (fault, name) == ("over-budget", "east") else 2000
            home.prepare(OwnerSettings(questions_a_day=most))
            (folder / f"{name}.jsonl").write_text(documents(name))
            app = owner_app(home, None, folder / f"{name}.jsonl")
            certificate = expired(folder) if (fault, name) == ("expired", "east") else (None, None)
            server = stack.enter_context(ThreadedServer(app, certfile=certificate[0], keyfile=certificate[1]))
            askers = home.askers()
            tokens[name], urls[name] = askers.allow("anna"), server.url
            askers.close()
            if name == "east" and fault in ("hung", "dripping"):
                stuck = Stuck(0.2 if fault == "dripping" else 0.0)
                stack.callback(stuck.close)
                urls[name] = stuck.url
            if (fault, name) == ("killed", "east"):
                urls[name] = "http://127.0.0.1:9"
            if (fault, name) == ("full-disk", "east"):
                fill(app._askers._db)
            real = app._owner.search

            def search(words, most, query="", *more, real=real, name=name):
                rng = np.random.default_rng()
                lie = fault == "lying" and name == "east"
                return [
                    hit._replace(features=(0.95 if lie else round(float(rng.uniform(0, 0.6)), 2), hit.features[1]))
                    for hit in real(words, most)
                ]

            app._owner.search = search
            app._owner.encoder = SimpleNamespace(digest="0" * 16, size=1)  # type: ignore[assignment]
            cards.append(OwnerCard(name, home.public_key(), urls[name]))
        file = FederationFile("faults", tuple(cards), ranking=RankingTerms())
        ca = str(folder / "cert.pem") if fault == "expired" else None
        broker = stack.enter_context(ThreadedServer(BrokerApp(file, patience=PATIENCE, ca=ca)))
        file = FederationFile("faults", tuple(cards), broker.url, ranking=RankingTerms())
        yield Federation(file, ("anna", tokens)), homes, urls


def fill(database: sqlite3.Connection) -> None:
    """Let a database be no larger than it is, and use up what is free in it."""
    database.execute("PRAGMA max_page_count = 1")
    with contextlib.suppress(sqlite3.OperationalError):
        while True:
            database.execute("INSERT INTO question VALUES (randomblob(64), 99999)")


def expired(folder: Path) -> tuple[str, str]:
    """A certificate for 127.0.0.1 that ended yesterday, and its key."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=9))
        .not_valid_after(now - datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(key.private_bytes(pem, *plain))
    return str(folder / "cert.pem"), str(folder / "key.pem")


def searched(fault: str, searches: int) -> dict[str, object]:
    """Seconds of each search, hits of each owner and why one is missing."""
    with tempfile.TemporaryDirectory() as folder, world(Path(folder), fault) as (federation, _, _):
        seconds, hits, failed, last = [], {"north": 0, "south": 0, "east": 0}, 0, {}
        for _ in range(searches):
            began = time.monotonic()
            try:
                answer = federation.search("lift of a wing", 10)
                last = dict(answer.missing)
                for hit in answer.hits:
                    hits[hit.owner] += 1
            except RunError as error:
                failed, last = failed + 1, {"all": str(error)}
            seconds.append(time.monotonic() - began)
    return {
        "fault": fault,
        "failed": failed,
        "median_s": round(float(np.median(seconds)), 3),
        "most_s": round(max(seconds), 3),
        "sum_s": round(sum(seconds), 2),
        "hits": hits,
        "missing": last,
    }


def replayed(searches: int) -> dict[str, object]:
    """One sealed question sent again: how often it is answered, and what it costs its asker."""
    import urllib.request

    with tempfile.TemporaryDirectory() as folder, world(Path(folder), "none") as (federation, homes, urls):
        body = {"asker": "anna", "token": federation._tokens["north"], "day": int(time.time() // 86400)}
        question = Question(key_of(homes["north"].public_key()), body | {"kind": "search", "words": ["wing"], "k": 5})
        answered = 0
        for _ in range(searches):
            request = urllib.request.Request(urls["north"] + "/v1/ask", question.sealed, method="POST")
            with urllib.request.urlopen(request) as response:
                answered += "hits" in question.open_answer(response.read())
        askers = homes["north"].askers()
        ((_, counted, _),) = askers.rows()
        askers.close()
    return {"fault": "replaying", "sent": searches, "answered": answered, "counted": counted}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=20)
    chosen = parser.parse_args()
    for fault in FAULTS:
        print(json.dumps(searched(fault, chosen.searches)), flush=True)
    print(json.dumps(replayed(chosen.searches)), flush=True)


if __name__ == "__main__":
    main()
