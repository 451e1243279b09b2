"""How many reports a hub acknowledges in a second, how long each waits, and a round of 100,000 devices.

    python -m benchmarks.hub.load [--reports 100000] [--connections 128]

The hub is a process of its own; the devices share this one, and the machine's cores with it. Every report has been
committed (SQLite, ``synchronous = FULL``) before its answer is sent. Stops by itself after the reports.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np

from benchmarks.hub.hubs import connect, make_hub, random_replies, request, served
from fedrank.deploy.hub.audit import replay_log


async def _drive(port: int, requests: list[bytes], connections: int) -> tuple[np.ndarray, float, dict[int, int]]:
    """Send all requests; seconds that each took, seconds in all, answers by code."""
    took, codes = np.zeros(len(requests)), {}
    todo = iter(range(len(requests)))

    async def one() -> None:
        client = await connect(port)
        for i in todo:  # shared by all connections: whoever is free takes the next
            began = time.perf_counter()
            code, _ = await client.ask(requests[i])
            took[i] = time.perf_counter() - began
            codes[code] = codes.get(code, 0) + 1
        client.transport.close()

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(connections)))
    return took, time.perf_counter() - began, codes


def _round_of(port: int, token: str) -> int:
    """The round that a device is asked about now."""
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/v1/model", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return int.from_bytes(answer.read()[1:5], "little")
    except urllib.error.HTTPError:  # between two rounds for long
        return -1


def measure(reports: int, connections: int, rounds: int) -> dict:
    """One hub, ``rounds`` rounds of ``reports`` devices."""
    with tempfile.TemporaryDirectory() as folder:
        home, terms, tokens = make_hub(
            Path(folder) / "hub", reports, n_features=46, cohort=reports, deadline=0.0, reports_per_minute=1e9
        )
        out: dict = {"devices": reports, "connections": connections, "rounds": []}
        with served(home) as (process, port):
            for round_ in range(rounds):
                while _round_of(port, tokens[0]) != round_:
                    time.sleep(0.02)
                replies = random_replies(terms, reports, seed=round_)
                requests = [request(round_, *pair) for pair in zip(tokens, replies, strict=True)]
                took, seconds, codes = asyncio.run(_drive(port, requests, connections))
                began = time.perf_counter()
                while _round_of(port, tokens[0]) != round_ + 1:
                    pass  # asking waits for the next round
                out["rounds"].append(
                    {
                        "acknowledged_per_second": round(codes.get(201, 0) / seconds),
                        "codes": codes,
                        "ms": {
                            name: round(float(np.percentile(took, at)) * 1e3, 2)
                            for name, at in (("p50", 50), ("p90", 90), ("p99", 99), ("p99.9", 99.9), ("max", 100))
                        },
                        "seconds_to_apply": round(time.perf_counter() - began, 3),
                    }
                )
            memory = [line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if "VmHWM" in line]
            out["hub_peak_mib"] = round(int(memory[0].split()[1]) / 1024)
        found = replay_log(home.path)
        out["replayed"] = {"rounds": found.rounds, "reports": found.reports, "proven": found.proven}
        out["log_bytes_per_report"] = round(home.log.stat().st_size / max(1, found.reports), 1)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--reports", type=int, default=100_000, help="devices, one report each in every round")
    parser.add_argument("--connections", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    print(json.dumps(measure(asked.reports, asked.connections, asked.rounds), indent=2))


if __name__ == "__main__":
    main()
