"""How many bytes cross between platforms and their coordinator: FedSlate beside planned slates, in secret sums and not.

Run it from a clone: ``python -m benchmarks.platform_bytes [--rounds 12200]``. Sizes are those of the messages' layouts,
counts those of a run in which everybody is always heard; a transport's own overhead is not counted. A secure sum of
planned slates is counted by the eight messages that platforms as processes send.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from fedrank.deploy.platforms.folder import Terms
from fedrank.deploy.platforms.planning_platform import schedule, sum_steps
from fedrank.engine.settings import from_dict
from fedrank.slates.build import experiment_of

RESULT = Path(__file__).with_suffix(".json")
_THREE = {"world": {"platforms": 3}, "slates": {"feedback": "all"}}
_SECRET = {**_THREE, "sharing": {"secure_sum": True}}
_LEAST_SQUARES = {"protocol": "planned-slates", "world": {"platforms": 3}}  # with fedrank-zoo installed
_FIVE = {"learner": "least-squares", "feedback": "all", "releases": 5}
#: Settings by name.
RUNS: dict[str, dict[str, Any]] = {
    "FedSlate, two platforms, B blind": {"protocol": "vertical-slate"},
    "planned slates, two platforms, B blind": {"protocol": "planned-slates"},
    "FedSlate, three platforms": {"protocol": "vertical-slate", **_THREE},
    "planned slates, three platforms": {"protocol": "planned-slates", **_THREE},
    "planned slates, three platforms, a secure sum": {"protocol": "planned-slates", **_SECRET},
    "least squares, three platforms, five releases": {**_LEAST_SQUARES, "slates": _FIVE},
    "least squares, three platforms, five releases, secure sums": {
        **_LEAST_SQUARES,
        "slates": _FIVE,
        "sharing": {"secure_sum": True},
    },
}


def crossed(given: dict[str, Any], rounds: int) -> dict[str, int]:
    """Bytes that all platforms send, and that they are sent, in a run of so many rounds.

    Args:
        given: Settings, as of a configuration file.
        rounds: Rounds of the run.
    """
    config = from_dict({**given, "rounds": rounds}).resolved()
    if given["protocol"] != "vertical-slate":
        return _of_sums(Terms.of(config))
    protocol: Any = experiment_of(config).protocol  # type: ignore[arg-type] - of platforms
    k, up, down = protocol.world.platforms, 0, 0
    for exchange in protocol.exchanges:
        if exchange.silent:
            continue
        times = sum(bool(exchange.due(number)) for number in range(rounds)) * exchange.max_asked(k)
        extra = exchange.extra_messages(k)
        up += times * (exchange.reply.nbytes + sum(one.nbytes for _, who, one in extra if who == "parties"))
        down += times * (exchange.request.nbytes + sum(one.nbytes for _, who, one in extra if who == "server"))
    return {"up": up, "down": down}


def _of_sums(terms: Terms) -> dict[str, int]:
    """The same of platforms that send sums over users."""
    up = down = 0
    for due in schedule(terms):
        exchange = terms.exchanges[due.place]
        if due.collects and terms.protocol.secure_sum:
            steps: Any = sum_steps(terms, due.place)
        else:
            steps = (exchange,)
        times = len(due.parties)
        up += times * sum(step.reply.nbytes for step in steps)
        down += times * sum(step.request.nbytes for step in steps)
    return {"up": up, "down": down}


def main() -> None:
    """Count the bytes of every run, print them as rows of a table, and write them to :data:`RESULT`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12_200)
    rounds = parser.parse_args().rounds
    found = {name: crossed(given, rounds) for name, given in RUNS.items()}
    for name, both in found.items():
        print(f"| {name} | {both['up']:,} | {both['down']:,} |")
    RESULT.write_text(json.dumps({"rounds": rounds, "bytes": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
