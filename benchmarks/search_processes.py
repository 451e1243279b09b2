"""A search of three owners as processes: it is asked, gets a document, loses an owner and goes on.

    FEDRANK_DATA=FOLDER python -m benchmarks.search_processes [--cosine 2]

Owners and broker are processes of the command line on loopback; the collection ADI is cut by topic among the owners,
and this process asks. Then the owners' weather: a document comes, one owner is killed, and comes back.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.served_search import Text, documents_of, ndcg
from fedrank.deploy.search.federation import Federation, RankingTerms
from fedrank.deploy.search.folder import OwnerFolder
from fedrank.deploy.search.joining import BrokerFolder
from fedrank.texts.data.silos import cut
from fedrank.texts.served.documents import Document
from fedrank.texts.served.owner import OwnerSettings

OWNERS = ("north", "south", "west")


def fedrank(*arguments: object) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "fedrank", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def waited_for(found: Callable[[], bool], what: str, seconds: float = 300) -> float:
    """Seconds until something is so."""
    began = time.perf_counter()
    while not found():
        if time.perf_counter() - began > seconds:
            raise TimeoutError(what)
        time.sleep(0.1)
    return time.perf_counter() - began


def listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def processes(folder: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts commands, and ends them all."""
    running: list[subprocess.Popen[bytes]] = []

    def start(*arguments: object) -> subprocess.Popen[bytes]:
        with (folder / f"process-{len(running)}.log").open("wb") as log:
            command = [sys.executable, "-m", "fedrank", *map(str, arguments)]
            running.append(subprocess.Popen(command, stdout=log, stderr=log))
        return running[-1]

    try:
        yield start
    finally:
        for one in running:
            if one.poll() is None:
                one.send_signal(signal.SIGINT)
        for one in running:
            one.wait(30)


def quality(federation: Federation, queries: list[Text], ids: dict[tuple[str, str], str]) -> float:
    """Mean nDCG(dcg='exp-log2')@10 of the lists that are shown."""
    values = []
    for query in queries:
        answer = federation.search(query.words, 10)
        grades = np.array([query.grades.get(ids[hit.owner, hit.title], 0) for hit in answer.hits], np.int64)
        values.append(ndcg(grades, sorted(query.grades.values(), reverse=True), -np.arange(len(grades), dtype=float)))
    return float(np.mean(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cosine", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=300)
    parser.add_argument("--folder", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        run(folder, chosen.cosine, chosen.seed)


def run(folder: Path, cosine: float, seed: int) -> None:
    documents, queries, corpus = documents_of("adi")
    places = cut(corpus, len(OWNERS), "topic", seed).documents
    ids: dict[tuple[str, str], str] = {}
    ports = {name: free_port() for name in (*OWNERS, "broker")}
    for owner, own in zip(OWNERS, places, strict=True):
        # The title is what the asker sees of a hit, and how it is known again here.
        texts: list[Document] = [documents[place] for place in own]
        ids.update({(owner, text.title): text.id for text in texts})
        lines = [json.dumps({"id": text.id, "title": text.title, "text": text.body}) for text in texts]
        (folder / f"{owner}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        OwnerFolder(folder / owner).prepare(OwnerSettings(questions_a_day=100_000_000))
    home = BrokerFolder(folder / "broker")
    with processes(folder) as start:
        began = time.perf_counter()
        start("search", "broker", home.path, "--owners", len(OWNERS), "--port", ports["broker"], "--patience", 30)
        waited_for(lambda: listens(ports["broker"]), "broker")
        place = f"http://127.0.0.1:{ports['broker']}#{home.token('join')}"
        serve = {
            owner: ("search", "owner", "serve", folder / owner, "--documents", folder / f"{owner}.jsonl", "--join",
                    place, "--trust-broker", "--port", ports[owner], "--encoder", "all-minilm-l6-v2")
            for owner in OWNERS
        }  # fmt: skip
        owners = {owner: start(*command) for owner, command in serve.items()}
        for name, port in ports.items():
            waited_for(lambda port=port: listens(port), name)
        waited_for(lambda: not home.needs_release(), "statistics")
        print(f"{len(documents)} documents are served after {time.perf_counter() - began:.0f} s", flush=True)

        file, asker = OwnerFolder(folder / OWNERS[0]).asker()
        asked = Federation(dataclasses.replace(file, ranking=RankingTerms(cosine)), asker)
        plain = Federation(dataclasses.replace(file, ranking=None), asker)
        for what, federation in (("by BM25", plain), (f"with {cosine:g} times the cosine", asked)):
            value = quality(federation, queries, ids)
            print(f"nDCG(dcg='exp-log2')@10 of {len(queries)} queries, {what}: {value:.3f}", flush=True)

        new = {"id": "new", "title": "Zeppelins over Friedrichshafen", "text": "An airship of rigid frame."}
        (folder / "new.jsonl").write_text(json.dumps(new) + "\n", encoding="utf-8")
        fedrank("search", "owner", "add", folder / "south", folder / "new.jsonl")
        found = asked.search("rigid airship zeppelins").hits[0]
        print(f"added and found: {found.owner}, {asked.fetch(found)[0]}", flush=True)

        os.kill(owners["south"].pid, signal.SIGKILL)
        owners["south"].wait()
        answer = asked.search(queries[0].words)
        print(f"killed: {len(answer.hits)} hits of the others, missing: {dict(answer.missing)}", flush=True)
        start(*serve["south"])
        took = waited_for(lambda: not asked.search("rigid airship zeppelins").missing, "the owner comes back")
        found = asked.search("rigid airship zeppelins").hits[0]
        print(f"back after {took:.1f} s, and knows the new document: {asked.fetch(found)[0]}", flush=True)


if __name__ == "__main__":
    main()
