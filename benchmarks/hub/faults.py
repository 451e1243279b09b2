"""A hub that is killed again and again while devices report, devices that die in a round, and a clock that jumps.

    python -m benchmarks.hub.faults kills [--kills 1000] [--minutes 20]
    python -m benchmarks.hub.faults deaths [--rounds 30] [--share 0.3]
    python -m benchmarks.hub.faults clock [--rounds 20]
    python -m benchmarks.hub.faults keys [--devices 50] [--rounds 24]
    python -m benchmarks.hub.faults restore [--devices 20] [--rounds 1000]

``kills``: ``kill -9``, start, and so on: half of the times at any moment from the start on, half of the times while
devices report. Afterwards every report that was ever acknowledged must be in the log, with the bytes that were sent;
and the log must make every model that was handed out, bit by bit.
``deaths``: a share of the devices takes the model and vanishes, after any number of bytes of its request.
``clock``: the hub's wall clock jumps by up to ten years, back and forth, at every look; rounds are closed by deadlines.
``keys``: devices of the package report to a hub with tokens and a log, through a relay, while the keys of gateway,
issuer and log change in turn and the old ones are destroyed a round later. Nothing may be refused; and of all answers
about the log that the hub gave before a change, no device may take one after it saw the change. Writes ``keys.json``.
``restore``: a hub that keeps a copy of itself is backed up after some rounds, and goes on for 20 more, of which devices
of the package see the last. Its folder is deleted; a hub is made of the copy, and then, with the operator's key, one of
the backup. At both all devices have to go on, and the log has to be right. Writes ``restore.json``.

Stops by itself. The exit status is 1 if anything was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import hashlib
import json
import math
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
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hub.hubs import Client, connect, make_hub, random_replies, request, served
from fedrank.deploy.device import Device
from fedrank.deploy.http.client import HttpClient
from fedrank.deploy.hub.audit import audit_folder, replay_log
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.hub.hub import Hub
from fedrank.deploy.hub.keys import WHAT, private_keys
from fedrank.deploy.hub.service import hub_app
from fedrank.deploy.hub.settings import TRIAL, HubSettings
from fedrank.deploy.log.proof import Answer, UnprovenError
from fedrank.deploy.oblivious.relay import GatewayClient, RelayApp, RelaySettings
from fedrank_zoo.threaded_server import ThreadedServer

#: Where the result of ``keys`` goes.
RESULTS = Path(__file__).with_name("keys.json")
#: Devices in the loop of kills, and reports that close a round.
_DEVICES, _COHORT = 48, 32


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _hub(path: str, port: int, cache: str) -> None:
    """The hub, in a process that has the libraries imported already."""
    import jax

    # Compiled programs outlive the process: this measures what survives, not how long compiling takes.
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    from fedrank.deploy.http.server import serve
    from fedrank.deploy.hub.service import hub_app

    home = HubFolder(path)
    with home.lock():
        serve(hub_app(home)[1], port=port, on_ready=lambda url: None)


class Devices:
    """Devices that report for ever, and remember what was acknowledged."""

    def __init__(self, port: int, terms, tokens: list[str]):
        self.port, self.terms, self.tokens = port, terms, tokens
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.models: dict[int, bytes] = {}
        self.answers: collections.Counter = collections.Counter()
        self.wrong: list[str] = []

    async def live(self, number: int) -> None:
        """One device; its reports are kept until they are answered, as in an outbox."""
        client, token = None, self.tokens[number - 1]
        ask = f"GET /v1/model HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n".encode()
        waiting: tuple[int, bytes] | None = None
        while True:
            try:
                client = client or await connect(self.port)
                if waiting is None:
                    code, body = await client.ask(ask)
                    self.answers["model", code] += 1
                    if code != 200:
                        await asyncio.sleep(0.05)
                        continue
                    round_ = int.from_bytes(body[1:5], "little")
                    if self.models.setdefault(round_, body) != body:
                        self.wrong.append(f"round {round_} was handed out with two models")
                    if (round_, number) in self.acknowledged:
                        await asyncio.sleep(0.01)
                        continue
                    waiting = round_, random_replies(self.terms, 1, seed=round_ * 1009 + number)[0]
                round_, reply = waiting
                code, _ = await client.ask(request(round_, token, reply))
                self.answers["report", code] += 1
                if code in (200, 201):
                    self.acknowledged[round_, number] = reply
                if code == 503:
                    await asyncio.sleep(0.02)
                else:
                    waiting = None
            except (OSError, ConnectionError):
                self.answers["report", "no answer"] += 1
                client = None
                await asyncio.sleep(random.uniform(0.05, 0.2))


async def _kill_loop(devices: Devices, start, kills: int, minutes: float) -> int:
    tasks = [asyncio.create_task(devices.live(n + 1)) for n in range(len(devices.tokens))]
    end, done = time.monotonic() + 60 * minutes, 0
    process = start()
    try:
        while done < kills and time.monotonic() < end:
            if done % 2:  # anywhere: while it starts, recovers, applies a round again
                await asyncio.sleep(random.random() * 1.5)
                os.kill(process.pid, signal.SIGKILL)
                process.join()
                done += 1
                process = start()
                continue
            began, patience = len(devices.acknowledged), time.monotonic() + 60
            while len(devices.acknowledged) == began and process.is_alive():  # until it is at work
                if time.monotonic() > patience:
                    devices.wrong.append(f"after kill {done} the hub acknowledged nothing for a minute")
                    return done
                await asyncio.sleep(0.01)
            await asyncio.sleep(random.random() * 0.25)
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            done += 1
            process = start()
        await asyncio.sleep(3.0)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        os.kill(process.pid, signal.SIGTERM)
        process.join(20)
    return done


def kills(count: int, minutes: float) -> dict:
    """Kill a hub again and again; what was lost."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fedrank.deploy.hub.service", "fedrank.ranking.foltr_es", "dp_accounting.pld"])
    with tempfile.TemporaryDirectory() as folder:
        home, terms, tokens = make_hub(
            Path(folder) / "hub", _DEVICES, n_features=46, cohort=_COHORT, deadline=0.0, reports_per_minute=1e9
        )
        port = _free_port()
        devices = Devices(port, terms, tokens)

        def start():
            process = context.Process(target=_hub, args=(str(home.path), port, folder + "/cache"))
            process.start()
            return process

        began = time.monotonic()
        done = asyncio.run(_kill_loop(devices, start, count, minutes))
        found = replay_log(home.path)
        with sqlite3.connect(home.log) as db:
            log = {(r, d): m for r, d, m in db.execute("SELECT round, device, message FROM report")}
            digests = dict(db.execute("SELECT number, model FROM round WHERE state = 'applied'"))
        lost = [key for key, reply in devices.acknowledged.items() if log.get(key) != reply]
        other = [
            r
            for r, model in devices.models.items()
            if r in digests and hashlib.sha256(model[5:]).digest() != digests[r]
        ]
        return {
            "kills": done,
            "minutes": round((time.monotonic() - began) / 60, 1),
            "acknowledged": len(devices.acknowledged),
            "lost": len(lost),
            "in_the_log": len(log),
            "rounds_applied": found.rounds,
            "models_handed_out": len(devices.models),
            "models_that_the_log_does_not_make": len(other) + found.models - found.models_alike,
            "replay_equals_served": found.proven,
            "wrong": devices.wrong,
            "answers": {" ".join(map(str, key)): n for key, n in sorted(devices.answers.items(), key=str)},
        }


async def _dying(port: int, terms, tokens: list[str], share: float, rounds: int, first: int = 0) -> list[int]:
    """Rounds in which a share of the devices dies; how many reports each got."""
    dice, sent = random.Random(0), []

    async def device(number: int, round_: int) -> bool:
        client: Client = await connect(port)
        data = request(round_, tokens[number - 1], random_replies(terms, 1, seed=round_ * 1009 + number)[0])
        dies = dice.random() < share
        try:
            if dies:
                client.transport.write(data[: dice.randrange(len(data))])  # nothing, half a header, half a body
                await asyncio.sleep(0)
                client.transport.abort()
                return False
            return (await client.ask(data))[0] == 201
        finally:
            client.transport.close()

    for round_ in range(first, first + rounds):
        sent.append(sum(await asyncio.gather(*(device(n + 1, round_) for n in range(len(tokens))))))
        client = await connect(port)
        while True:
            ask = f"GET /v1/model HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {tokens[0]}\r\n\r\n".encode()
            code, body = await client.ask(ask)
            if code == 200 and int.from_bytes(body[1:5], "little") > round_:
                break
            await asyncio.sleep(0.05)
        client.transport.close()
    return sent


def deaths(rounds: int, share: float) -> dict:
    """Devices die in the middle of rounds that a deadline closes."""
    with tempfile.TemporaryDirectory() as folder:
        home, terms, tokens = make_hub(
            Path(folder) / "hub", 200, n_features=46, cohort=200, deadline=1.0, reports_per_minute=1e9
        )
        with served(home) as (_, port):
            sent = asyncio.run(_dying(port, terms, tokens, share, rounds))
        found = replay_log(home.path)
        with sqlite3.connect(home.log) as db:
            counted = [n for (n,) in db.execute("SELECT reports FROM round WHERE state = 'applied' ORDER BY number")]
    return {
        "devices": 200,
        "share_that_dies": share,
        "rounds": rounds,
        "reports_acknowledged": sent,
        "reports_counted": counted[:rounds],
        "all_counted": counted[:rounds] == sent,
        "replay_equals_served": found.proven,
    }


def _jumping_hub(path: str, port: int) -> None:
    """A hub whose wall clock says something else at every look."""
    right, dice = time.time, random.Random(0)
    time.time = lambda: right() + dice.uniform(-3e8, 3e8)
    from fedrank.deploy.http.server import serve
    from fedrank.deploy.hub.service import hub_app

    home = HubFolder(path)
    with home.lock():
        serve(hub_app(home)[1], port=port, on_ready=lambda url: None)


def clock(rounds: int) -> dict:
    """Rounds of a hub whose clock jumps, with a restart in the middle."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        home, terms, tokens = make_hub(
            Path(folder) / "hub", 200, n_features=46, cohort=1000, deadline=0.5, reports_per_minute=1e9
        )
        port, sent = _free_port(), []
        for first in (0, rounds // 2):
            process = context.Process(target=_jumping_hub, args=(str(home.path), port))
            process.start()
            try:
                while True:
                    try:
                        socket.create_connection(("127.0.0.1", port), 1.0).close()
                        break
                    except OSError:
                        time.sleep(0.05)
                done = rounds // 2 if not first else rounds - rounds // 2
                sent += asyncio.run(_dying(port, terms, tokens, 0.0, done, first))
            finally:
                os.kill(process.pid, signal.SIGTERM)
                process.join(30)
        found = replay_log(home.path)
        with sqlite3.connect(home.log) as db:
            rows = db.execute("SELECT reports, seconds FROM round WHERE state = 'applied' ORDER BY number").fetchall()
    return {
        "rounds": len(rows),
        "all_counted": [n for n, _ in rows][: len(sent)] == sent,
        "seconds_open": {"least": round(min(s for _, s in rows), 2), "most": round(max(s for _, s in rows), 2)},
        "replay_equals_served": found.proven,
    }


def keys(count: int, rounds: int, overlap: float) -> dict:
    """Devices report through a relay while each key changes; see the module's first lines."""
    told: collections.Counter[str] = collections.Counter()
    unlimited = dict.fromkeys(("most_epsilon", "most_search_epsilon", "lifetime_epsilon"), math.inf)
    rates = dict.fromkeys(("reports_per_minute", "enrolments_per_minute", "enrolments_per_network"), 1e9)
    settings = {"tokens": 1, "batch": 1, "interactions": 1, "mechanism": "piecewise", "epsilon": 0.1, "cohort": 10**6}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        home = HubFolder(Path(folder) / "hub")
        home.prepare(HubSettings(**{**TRIAL, **settings, **rates, "n_features": 3, "overlap_days": overlap / 86_400}))
        hub, app = hub_app(home)
        url = stack.enter_context(ThreadedServer(app)).url
        home.write_urls({"hub": url})
        gateway, mixed = GatewayClient(url), RelaySettings(batch=1, seconds=0.2, company=0.01, trial=True)
        relay = stack.enter_context(ThreadedServer(RelayApp(gateway, gateway.configuration(), mixed))).url
        token, pool = home.token("enrolment"), stack.enter_context(ThreadPoolExecutor(8))
        devices = [Device(url, token, Path(folder) / f"{n}", relay=relay, **unlimited) for n in range(count)]

        def visit(device: Device) -> None:
            for _ in range(2):
                said = device.sync()
                told["OK" if said.state == "OK" else f"{said.state}, {said.why}"] += 1
                while device.wants_clicks:
                    ranking = device.rank(np.eye(3))
                    device.log_click(ranking, 0)
                    device.finish(ranking)

        def wait(awaitable: Coroutine[Any, Any, Any]) -> None:
            asyncio.run_coroutine_threadsafe(awaitable, hub._inbox.loop).result(60)  # type: ignore[arg-type]

        shown, plan = [], {rounds // 4: "gateway", rounds // 2: "issuer", 3 * rounds // 4: "log"}
        for number in range(rounds):
            for turn in range(4):
                visits = [pool.submit(visit, device) for device in devices]
                if turn == 1 and number in plan:  # while they report
                    shown.append(HttpClient(url).request("GET", "/v1/log", "", limit=1 << 16).body)
                    command = ["hub", "rotate", str(home.path), plan[number]]
                    subprocess.run([sys.executable, "-m", "fedrank", *command], check=True, stdout=subprocess.DEVNULL)
                for one in visits:
                    one.result()
            wait(hub.close_round(empty=True))
            wait(hub.wait_for_round(10))
        time.sleep(overlap)
        wait(hub.renew())
        back = 0
        for device in devices:
            prover, terms = device._conversation.prover, device._memory.terms
            assert terms is not None
            for body in shown:
                with contextlib.suppress(UnprovenError):
                    Answer.parse(body).check(terms, prover.seen(terms), prover._trust)
                    back += 1
        left = {what: len(private_keys(home.path, hub.store, hub.terms, WHAT[what])) for what in ("log", "gateway")}
        ledger = collections.Counter(row.outcome for device in devices for row in device.ledger())
        counted = app.counters.reports
        for device in devices:
            device.close()
    return {
        "devices": count,
        "rounds": rounds,
        "overlap_seconds": overlap,
        "changed": list(plan.values()),
        "syncs": dict(told),
        "reports": dict(counted),
        "outcomes_at_devices": dict(ledger),
        "refused": sum(counted.values()) - counted["accepted"] - counted["already"] + sum(told.values()) - told["OK"],
        "old_answers_taken": back,
        "private_keys_left": left,
    }


def restore(count: int, rounds: int) -> dict:
    """A hub is put back from its copy and from a backup after many rounds; see the module's first lines."""
    unlimited = dict.fromkeys(("most_epsilon", "most_search_epsilon", "lifetime_epsilon"), math.inf)
    out: dict[str, Any] = {"devices": count, "rounds": rounds}
    with tempfile.TemporaryDirectory() as top:
        folder, port = Path(top), _free_port()
        home, terms, _ = make_hub(
            folder / "hub", 20, n_features=46, cohort=20, deadline=0.0, copy_to=str(folder / "copy")
        )
        (folder / "hub" / "operator.key").rename(folder / "operator.key")
        token, sent = home.token("enrolment"), random_replies(terms, 20, 0)
        devices = [Device(f"http://127.0.0.1:{port}", token, folder / f"{n}", **unlimited) for n in range(count)]

        def served_here(place: Path, work: Callable[[Hub, Callable[[Any], Any]], None]) -> None:
            hub, app = hub_app(HubFolder(place))
            with ThreadedServer(app, port=port):
                work(hub, lambda job: asyncio.run_coroutine_threadsafe(job, hub._inbox.loop).result(900))  # type: ignore[arg-type]

        async def learn(hub: Hub, number: int) -> None:
            for _ in range(number):
                round_ = hub.view.round
                await asyncio.gather(*(hub.report(round_, n + 1, one) for n, one in enumerate(sent)))
                while hub.view.round == round_ or hub.view.state != "open":
                    await asyncio.sleep(0.001)

        def visit() -> dict[str, int]:
            for one in devices:
                one._conversation.backoff.reset()
            return dict(collections.Counter(str(one.sync().state) for one in devices))

        def before(hub: Hub, do: Callable[[Any], Any]) -> None:
            began = time.perf_counter()
            do(learn(hub, rounds))
            out["ms_of_a_round"] = round(1e3 * (time.perf_counter() - began) / rounds, 1)
            visit()
            began = time.perf_counter()
            home.back_up(folder / "backup")
            out["backup_seconds"] = round(time.perf_counter() - began, 2)
            began = time.perf_counter()
            home.update_copy(folder / "copy")
            out.update(copy_seconds=round(time.perf_counter() - began, 3), bytes=home.log.stat().st_size)
            do(learn(hub, 20))
            out["before"] = visit()

        served_here(home.path, before)
        shutil.rmtree(home.path)
        for name, key in (("copy", None), ("backup", folder / "operator.key")):
            place, began = folder / f"of-{name}", time.perf_counter()
            HubFolder(folder / name).restore(place, key)
            found = {"seconds": round(time.perf_counter() - began, 2)}

            def after(hub: Hub, do: Callable[[Any], Any], found: dict[str, Any] = found) -> None:
                found |= {"round": hub.view.round, "first_visit": visit()}
                do(learn(hub, 3))
                found["second_visit"] = visit()

            served_here(place, after)
            audited = audit_folder(place)
            out[name] = found | {"wrong": audited.wrong, "put_back": len(audited.put_back)}
        for one in devices:
            one.close()
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    which = parser.add_subparsers(dest="which", required=True)
    kill = which.add_parser("kills", help="kill -9 in a loop while devices report")
    kill.add_argument("--kills", type=int, default=1000)
    kill.add_argument("--minutes", type=float, default=20.0)
    die = which.add_parser("deaths", help="a share of the devices dies in the middle of every round")
    die.add_argument("--rounds", type=int, default=30)
    die.add_argument("--share", type=float, default=0.3)
    jump = which.add_parser("clock", help="the hub's wall clock jumps back and forth")
    jump.add_argument("--rounds", type=int, default=20)
    change = which.add_parser("keys", help="keys of gateway, issuer and log change while devices report")
    change.add_argument("--devices", type=int, default=50)
    change.add_argument("--rounds", type=int, default=24)
    change.add_argument("--overlap", type=float, default=20.0)
    lost = which.add_parser("restore", help="a hub is put back from its copy and from a backup")
    lost.add_argument("--devices", type=int, default=20)
    lost.add_argument("--rounds", type=int, default=1000)
    asked = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        if asked.which == "kills":
            out = kills(asked.kills, asked.minutes)
            good = not (out["lost"] or out["wrong"] or out["models_that_the_log_does_not_make"])
            good = good and out["replay_equals_served"]
        elif asked.which == "keys":
            out = keys(asked.devices, asked.rounds, asked.overlap)
            good = not (out["refused"] or out["old_answers_taken"])
            RESULTS.write_text(json.dumps(out, indent=1) + "\n")
        elif asked.which == "restore":
            out = restore(asked.devices, asked.rounds)
            all_on = [out[name]["second_visit"] == {"OK": asked.devices} for name in ("copy", "backup")]
            good = all(all_on) and not (out["copy"]["wrong"] or out["backup"]["wrong"] or out["copy"]["put_back"])
            RESULTS.with_name("restore.json").write_text(json.dumps(out, indent=1) + "\n")
        else:
            out = clock(asked.rounds) if asked.which == "clock" else deaths(asked.rounds, asked.share)
            good = out["all_counted"] and out["replay_equals_served"]
        print(json.dumps(out, indent=2))
        sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
