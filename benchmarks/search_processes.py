"""A search of three owners as processes: it is asked, learns from clicks, gets a document, loses an owner and goes on.

    FEDRANK_DATA=FOLDER python -m benchmarks.search_processes [--searches 8000] [--cosine 2] [--learning-rate 0.03]

Owners, broker and hub are processes of the command line on loopback; the collection ADI is cut by topic among the
owners. The asker is this process, with a hundred devices that report as those of a portal do, but do not wait a minute
between two looks at the hub. A simulated user types one of 28 queries and opens what looks relevant; seven queries are
only looked at before and after. With ``--cosine 0 --learning-rate 0.1`` the search starts as BM25, and what it gains is
learnt. Then the owners' weather: a document comes, one owner is killed, and comes back.
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

from benchmarks.served_search import P, Text, documents_of, ndcg
from fedrank.deploy.search.federation import Answer, Federation
from fedrank.deploy.search.learning import LearningRanker, ranker_of
from fedrank.ranking.clicks.cascade import cascade
from fedrank.texts.data.silos import cut
from fedrank.texts.served.documents import Document

OWNERS = ("north", "south", "west")
#: Devices of the asker, and messages of a round.
DEVICES = 100
#: ε of a message is 4; this asker's devices are nobody's, so that they may go on.
LIMITS = {"most_epsilon": 5.0, "most_search_epsilon": 5.0, "lifetime_epsilon": float("inf")}


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


def look(federation: Federation, answer: Answer, query: Text, ids: dict[tuple[str, str], str], rng) -> None:  # type: ignore[no-untyped-def]
    """A user looks at a list from above, clicks on what looks relevant and stops when satisfied."""
    user = cascade("informational", 3)
    for rank, hit in enumerate(answer.hits[:10]):
        grade = 2 * min(1, query.grades.get(ids[hit.owner, hit.title], 0))
        if rng.random() < user.click[grade]:
            federation.report_click(answer, rank)
            if rng.random() < user.stop[grade]:
                return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=8000)
    parser.add_argument("--cosine", type=float, default=2.0)
    parser.add_argument("--learning-rate", type=float, default=0.03)
    parser.add_argument("--p", type=float, default=P)
    parser.add_argument("--seed", type=int, default=300)
    parser.add_argument("--folder", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        run(folder, chosen.searches, chosen.cosine, chosen.learning_rate, chosen.p, chosen.seed)


def run(folder: Path, searches: int, cosine: float, learning_rate: float, p: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    documents, queries, corpus = documents_of("adi")
    places = cut(corpus, len(OWNERS), "topic", seed).documents
    ids: dict[tuple[str, str], str] = {}
    ports = {name: free_port() for name in (*OWNERS, "broker", "hub")}
    cards, broker_tokens = [], []
    for owner, own in zip(OWNERS, places, strict=True):
        # The title is what the asker sees of a hit, and how it is known again here.
        texts: list[Document] = [documents[place] for place in own]
        ids.update({(owner, text.title): text.id for text in texts})
        lines = [json.dumps({"id": text.id, "title": text.title, "text": text.body}) for text in texts]
        (folder / f"{owner}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        cards.append(
            fedrank(
                "search", "owner", "card", folder / owner, "--name", owner, "--url", f"http://127.0.0.1:{ports[owner]}"
            )
        )
        settings = folder / owner / "owner.toml"
        settings.write_text(settings.read_text().replace("questions_a_day = 2000", "questions_a_day = 100000000"))
    tokens = {owner: fedrank("search", "owner", "allow", folder / owner, "anna").strip() for owner in OWNERS}
    federation_file = folder / "federation.toml"
    federation_file.write_text(
        f'name = "three libraries"\nbroker = "http://127.0.0.1:{ports["broker"]}"\n\n'
        f'[ranking]\ncosine = {cosine}\nhub = "http://127.0.0.1:{ports["hub"]}"\n\n' + "\n".join(cards),
        encoding="utf-8",
    )
    with processes(folder) as start:
        serve = {
            owner: ("search", "owner", "serve", folder / owner, "--documents", folder / f"{owner}.jsonl",
                    "--federation", federation_file, "--port", ports[owner], "--encoder", "all-minilm-l6-v2")
            for owner in OWNERS
        }  # fmt: skip
        began = time.perf_counter()
        owners = {owner: start(*command) for owner, command in serve.items()}
        start("search", "broker", federation_file, "--port", ports["broker"], "--patience", 30)
        start("hub", "serve", folder / "hub", "--port", ports["hub"], "--trial", "--n-features", 2, "--cohort", DEVICES,
              "--sigma", 1, "--learning-rate", learning_rate, "--p", p)  # fmt: skip
        for name, port in ports.items():
            waited_for(lambda port=port: listens(port), name)
        print(f"{len(documents)} documents are served after {time.perf_counter() - began:.0f} s", flush=True)
        for owner in OWNERS:
            broker_tokens.append(f'{owner} = "{(folder / owner / "broker.token").read_text().strip()}"')
        (folder / "broker.toml").write_text("\n".join(broker_tokens) + "\n", encoding="utf-8")
        fedrank("search", "statistics", federation_file, "--broker", folder / "broker.toml", "--quiet")

        enrolment = (folder / "hub" / "enrolment.token").read_text().strip()
        hub = f"http://127.0.0.1:{ports['hub']}"
        ranker = LearningRanker(hub, enrolment, folder / "devices", devices=DEVICES, **LIMITS)  # type: ignore[arg-type]
        asked = Federation(federation_file, ("anna", tokens), ranker=ranker)
        training, held_out = queries[7:], queries[:7]

        def judge(what: str, federation: Federation) -> None:
            values = [quality(federation, some, ids) for some in (training, held_out)]
            print(f"nDCG(dcg='exp-log2')@10 of 28 and 7 queries, {what}: {values[0]:.3f}, {values[1]:.3f}", flush=True)

        judge("by BM25", Federation(dataclasses.replace(asked.file, ranking=None), ("anna", tokens)))
        judge(f"with {cosine:g} times the cosine", Federation(federation_file, ("anna", tokens)))
        began, asked_so_far = time.perf_counter(), 0
        while asked_so_far < searches:
            ranker.sync()
            for _ in range(4 * DEVICES + 1):
                query = training[rng.integers(len(training))]
                look(asked, asked.search(query.words, 10), query, ids, rng)
            asked_so_far += 4 * DEVICES
            rate = asked_so_far / (time.perf_counter() - began)
            print(f"{asked_so_far} searches with clicks, {rate:.0f} a second", flush=True)
        ranker.sync()
        fedrank("hub", "replay", folder / "hub", "--out", folder / "learnt.safetensors")
        judge("learnt", Federation(federation_file, ("anna", tokens), ranker=ranker_of(folder / "learnt.safetensors")))

        new = {"id": "new", "title": "Zeppelins over Friedrichshafen", "text": "An airship of rigid frame."}
        (folder / "new.jsonl").write_text(json.dumps(new) + "\n", encoding="utf-8")
        fedrank("search", "owner", "add", folder / "south", folder / "new.jsonl")
        found = asked.search("rigid airship zeppelins").hits[0]
        print(f"added and found: {found.owner}, {asked.fetch(found)[0]}", flush=True)

        os.kill(owners["south"].pid, signal.SIGKILL)
        owners["south"].wait()
        answer = asked.search(held_out[0].words)
        print(f"killed: {len(answer.hits)} hits of the others, missing: {dict(answer.missing)}", flush=True)
        start(*serve["south"])
        took = waited_for(lambda: not asked.search("rigid airship zeppelins").missing, "the owner comes back")
        found = asked.search("rigid airship zeppelins").hits[0]
        print(f"back after {took:.1f} s, and knows the new document: {asked.fetch(found)[0]}", flush=True)
        ranker.close()


if __name__ == "__main__":
    main()
