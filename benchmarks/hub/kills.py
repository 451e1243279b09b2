"""Kill the processes of a hub with everything on, again and again, under devices that share no code with it.

    python -m benchmarks.hub.kills [--kills 200] [--minutes 20]
    python -m benchmarks.hub.kills --postgres [--processes 3] [--kills 50]

The hub sells tokens, draws who reports, seeds and checks, is asked through its gateway, and has a public log.
Half of the kills come at any moment from the start on, half while reports are acknowledged. With ``--postgres``,
several processes share a PostgreSQL server that is started for this, and any of them is killed, the leader included.

Afterwards every report that was ever acknowledged must be in the log with its bytes, once; no device may have got a
second token of an epoch, or have spent one twice, though some try; every model that was handed
out must be the log's; and ``fedrank hub replay`` must make all models again, bit by bit. The exit status is 1
otherwise.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.hub.faults import _free_port, _hub
from fedrank.deploy.hub.audit import audit_folder, replay_log
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.hub.settings import HubSettings

_COHORT = 20


def _homes(folder: Path, processes: int, url: str) -> list[HubFolder]:
    homes = []
    for number in range(processes):
        home = HubFolder(folder / f"hub{number}")
        if number:
            home.path.mkdir(parents=True)
            for name in ("enrolment.token", "admin.token", "log.key", "gateway.key"):
                shutil.copy(homes[0].path / name, home.path / name)
        home.prepare(
            HubSettings(
                **{
                    "n_features": 46,
                    "interactions": 2,
                    "participations": 0,
                    "batch": 1,
                    "cohort": _COHORT,
                    "due": 0.9,
                    "least_sales": 5,
                    "rounds": 0,
                    "round_seconds": 0.0,
                    "deadline": 5.0,
                    "reports_per_minute": 1e9,
                    "database": url,
                    "status": "public",
                }
            )
        )
        homes.append(home)
    return homes


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False


def _acknowledged(notes: Path) -> int:
    return notes.read_text().count('"acknowledged"') if notes.exists() else 0


def _loop(start, ports: list[int], notes: Path, kills: int, minutes: float) -> tuple[int, list[str]]:
    """Kill until enough; number of kills and what went wrong."""
    running = [start(number) for number in range(len(ports))]
    end, done, wrong = time.monotonic() + 60 * minutes, 0, []
    dice = random.Random()
    while done < kills and time.monotonic() < end:
        victim = dice.randrange(len(running))
        if done % 2:
            time.sleep(dice.random() * 2.0)  # while it starts, recovers, applies a round again
        else:
            before, patience = _acknowledged(notes), time.monotonic() + 120
            while _acknowledged(notes) == before and time.monotonic() < patience:
                time.sleep(0.05)
            if time.monotonic() >= patience:
                wrong.append(f"after kill {done} nothing was acknowledged for two minutes")
                break
            time.sleep(dice.random() * 0.3)
        os.kill(running[victim].pid, signal.SIGKILL)
        running[victim].join()
        done += 1
        running[victim] = start(victim)
    patience = time.monotonic() + 120
    while not all(map(_listens, ports)) and time.monotonic() < patience:
        time.sleep(0.1)
    before = _acknowledged(notes)
    while _acknowledged(notes) < before + 3 * _COHORT and time.monotonic() < patience:
        time.sleep(0.1)  # it goes on
    for process in running:
        os.kill(process.pid, signal.SIGTERM)
        process.join(30)
    return done, wrong


def _log(home: HubFolder, url: str) -> tuple[dict[tuple[int, int], list[bytes]], dict[int, str]]:
    """The reports in the log by round and token, and the SHA-256 of each round's model."""
    reports, rounds = (
        "SELECT round, device, message FROM report",
        "SELECT number, model FROM round WHERE model IS NOT NULL",
    )
    if url:
        import psycopg

        with psycopg.connect(url) as db:
            rows, models = (db.execute(query).fetchall() for query in (reports, rounds))
    else:
        with contextlib.closing(sqlite3.connect(home.log)) as db:
            rows, models = (db.execute(query).fetchall() for query in (reports, rounds))
    found: dict[tuple[int, int], list[bytes]] = collections.defaultdict(list)
    for number, token, message in rows:
        found[number, token].append(bytes(message))
    return found, {number: bytes(model).hex() for number, model in models}


def measure(kills: int, minutes: float, processes: int, url: str) -> dict:
    """Kill, then look."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fedrank.deploy.hub.service", "fedrank.ranking.foltr_es", "dp_accounting.pld"])
    with tempfile.TemporaryDirectory() as folder:
        homes = _homes(Path(folder), processes, url)
        ports, notes = [_free_port() for _ in homes], Path(folder) / "notes"

        def start(number: int):
            process = context.Process(target=_hub, args=(str(homes[number].path), ports[number], folder + "/cache"))
            process.start()
            return process

        began = time.monotonic()
        script = Path(__file__).with_name("foreign_devices.py")
        devices = subprocess.Popen(
            [sys.executable, "-I", str(script), str(notes), str(homes[0].token_path("enrolment")), *map(str, ports)]
        )
        try:
            done, wrong = _loop(start, ports, notes, kills, minutes)
        finally:
            devices.terminate()
            devices.wait()
        told = [json.loads(line) for line in notes.read_text().splitlines() if line.endswith("}")]
        log, models = _log(homes[0], url)
        found, audited = replay_log(homes[0].path), audit_folder(homes[0].path)
    acknowledged = [one for one in told if one["kind"] == "acknowledged"]
    # A report that is not drawn, as there were more than the cohort, is emptied in the log; that it came stays.
    lost = [
        one
        for one in acknowledged
        if not {bytes.fromhex(one["report"]), b""} & set(log.get((one["round"], int(one["device"], 16)), []))
    ]
    handed = {(one["round"], one["sha256"]) for one in told if one["kind"] == "model"}
    return {
        "kills": done,
        "minutes": round((time.monotonic() - began) / 60, 1),
        "processes": processes,
        "acknowledged": len(acknowledged),
        "lost": len(lost),
        "counted_twice": sum(len(messages) - 1 for messages in log.values()),
        "in_the_log": sum(map(len, log.values())),
        "rounds_applied": found.rounds,
        "models_handed_out": len(handed),
        "models_that_are_not_the_logs": sum(models.get(round_) != digest for round_, digest in handed),
        "replayed_alike": f"{found.models_alike} of {found.models}",
        "replay_equals_served": found.proven,
        "models_in_the_public_log": audited.models,
        "wrong": wrong + audited.wrong + [one["what"] for one in told if one["kind"] == "wrong"],
        "greedy": dict(collections.Counter(one["what"] for one in told if one["kind"] == "greedy")),
        "refused": dict(collections.Counter(str(one["why"]) for one in told if one["kind"] == "refused")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--processes", type=int, default=3, help="with --postgres")
    parser.add_argument("--postgres", action="store_true", help="several processes on a PostgreSQL server of its own")
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        url = ""
        if asked.postgres:
            sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))
            import postgres_server

            url = stack.enter_context(postgres_server.Server()).database("hub")
        out = measure(asked.kills, asked.minutes, asked.processes if url else 1, url)
    print(json.dumps(out, indent=2))
    bad = out["lost"] or out["counted_twice"] or out["models_that_are_not_the_logs"] or out["wrong"]
    sys.exit(1 if bad or not out["replay_equals_served"] else 0)


if __name__ == "__main__":
    main()
