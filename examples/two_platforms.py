"""Platforms with the same users, and their coordinator, as processes of their own on this machine.

Platform A sees what users click and how they engage, platform B sees nothing of it; one process more plays the users
and talks to each platform as its application would. Everything listens on 127.0.0.1 at ports that are free. The
processes are stopped by their ids in the end. Run it with ``python examples/two_platforms.py``; it takes some minutes.

``--protocol planned-slates`` sends seven sums once and plans. ``planned-slates-in-secret`` is the same with three
platforms that all see clicks, whose sums the coordinator learns in total alone.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fedrank.core.ledger import Ledger

FEDRANK = [sys.executable, "-m", "fedrank"]
#: Users who stay 61 rounds, and what is learnt of them: settings by name; see ``fedrank run PROTOCOL --help``.
PLANNED = """
protocol = "planned-slates"

[world]
preset = "tension"

[slates]
explorers = {half}
"""
IN_SECRET = """
protocol = "planned-slates"

[world]
preset = "tension"
platforms = 3

[slates]
explorers = {half}
feedback = "all"

[sharing]
secure_sum = true
"""
CONFIGS = {"planned-slates": PLANNED, "planned-slates-in-secret": IN_SECRET}
STAY = 61


def main(folder: Path, rounds: int, protocol: str) -> None:
    """Run all processes until so many rounds are done, and print what users brought and what crossed.

    Args:
        folder: For everybody's files; each process has a folder of its own there.
        rounds: Rounds; a user stays for 61. Platforms explore half of the users.
        protocol: One of :data:`CONFIGS`.
    """
    config, users = folder / "run.toml", folder / "users.jsonl"
    settings = CONFIGS[protocol].format(half=max(1, rounds // STAY // 2))
    config.write_text(f"rounds = {rounds}\n{settings}\n[evaluation]\nevery = 610\n")
    names = "abc"[: 3 if "platforms = 3" in settings else 2]
    homes = [folder / f"platform-{name}" for name in names]
    everybody, waiting = ["--config", str(config)], ["--wait", "--config", str(config)]
    which = [word for home in homes for word in ("--platform", str(home))]
    running: list[subprocess.Popen] = []
    try:
        for index, home in enumerate(homes):
            running.append(_started("slates", "serve", str(home), "--index", str(index), *everybody))
        _until_ready(homes, running)
        visits = _started("slates", "simulate", *which, *waiting, "--at-once", "10", "--out", str(users), "--quiet")
        running.append(visits)
        begun = time.monotonic()
        coordinator = _started("slates", "coordinate", str(folder / "coordinator"), *which, *waiting)
        running.append(coordinator)
        if coordinator.wait() or visits.wait():
            raise SystemExit("a process ended with an error; see above")
        seconds = time.monotonic() - begun
    finally:
        for process in running:
            _stopped(process)

    stays = [json.loads(line)["engagement"] for line in users.read_text().splitlines()]
    part = max(1, len(stays) // 8)
    print("\nengagement of a user, mean" + "".join(f"{name:>9}" for name in names.upper()))
    for first in range(0, len(stays) - part + 1, part):
        mean = [sum(column) / part for column in zip(*stays[first : first + part], strict=True)]
        bars = "  ".join("#" * round(value / 50) for value in mean)
        print(f"users {first + 1:4} to {first + part:4}      {''.join(f'{value:9.0f}' for value in mean)}   {bars}")
    print("\nwhat crossed                           messages        bytes")
    crossed: dict[tuple[str, str], list[int]] = {}
    for entry in Ledger.read(folder / "coordinator" / "ledger.jsonl"):
        row = crossed.setdefault((entry.exchange, entry.message), [0, 0])
        row[0], row[1] = row[0] + entry.messages, row[1] + entry.bytes
    for (exchange, message), (messages, size) in crossed.items():
        print(f"{exchange:22} {message:14} {messages:9,} {size:12,}")
    print(f"{'in all':37} {'':9} {sum(size for _, size in crossed.values()):12,}")
    print(f"\n{rounds} rounds in {seconds:.0f} s, {rounds / seconds:.0f} a second, starting included")


def _started(*words: str) -> subprocess.Popen:
    return subprocess.Popen([*FEDRANK, *words], start_new_session=True)  # Ctrl-C is for this process, which tells them


def _until_ready(homes: list[Path], running: list[subprocess.Popen]) -> None:
    """Until every platform listens."""
    while not all((home / "application.url").exists() for home in homes):
        if any(process.poll() is not None for process in running):
            raise SystemExit("a platform did not start; see above")
        time.sleep(0.1)


def _stopped(process: subprocess.Popen) -> None:
    """End a process by its id."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6100, help="rounds; a user stays for 61")
    parser.add_argument("--folder", type=Path, help="keep everybody's files here; otherwise nothing is kept")
    parser.add_argument("--protocol", choices=CONFIGS, default="planned-slates", help="what platforms learn by")
    given = parser.parse_args()
    if given.rounds < STAY:
        parser.error(f"--rounds must be at least {STAY}, the stay of one user; got {given.rounds}")
    if given.folder is not None:
        given.folder.mkdir(parents=True, exist_ok=True)
        main(given.folder, given.rounds, given.protocol)
    else:
        with tempfile.TemporaryDirectory() as somewhere:
            main(Path(somewhere), given.rounds, given.protocol)
