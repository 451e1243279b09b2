"""Simulated users with real devices: many processes, each with the SDK, its own folder and its own queries.

The devices are real: they enrol, rank, privatise with the operating system's randomness, keep an outbox and use HTTP.
Their users are simulated: they ask random queries of a data set and click according to a click model.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedrank.core.errors import ConfigError, RunError
from fedrank.core.trees import Json
from fedrank.deploy.http.client import HttpClient
from fedrank.ranking.clicks.cascade import CascadeUser
from fedrank.ranking.data.queries import QuerySet

#: Seconds that devices have to end after they were told to stop.
_GRACE = 10.0


@dataclass(frozen=True)
class FleetSettings:
    """Settings of a fleet.

    Attributes:
        hub: URL of the hub, ``http://…``.
        enrolment: Enrolment token of the hub.
        devices: Number of devices, one process each.
        seconds: Stop after this time; 0: when the hub says that training is over, or at Ctrl-C.
        pause: Longest pause of a device between two synchronisations, in seconds.
        share: Each device has its own share of the queries; otherwise it may ask any.
        seed: Seed of queries and clicks; what protects the users does not depend on it.
        most_epsilon: Largest ε of a message that the devices agree to; by default any, because the users are simulated.
        relay: URL of an oblivious relay that the devices go through; None: they speak to the hub.
    """

    hub: str
    enrolment: str
    devices: int = 50
    seconds: float = 0.0
    pause: float = 0.3
    share: bool = False
    seed: int = 0
    most_epsilon: float = math.inf
    relay: str | None = None

    def __post_init__(self):
        if not 1 <= self.devices <= 1000:
            raise ConfigError(f"devices must be in 1..1000, one process each, got {self.devices}.")
        if self.seconds < 0 or not 0 < self.pause <= 3600:
            raise ConfigError(f"seconds must be ≥ 0 and pause in (0, 3600], got {self.seconds} and {self.pause}.")
        if not self.most_epsilon > 0:
            raise ConfigError(f"most_epsilon must be positive, got {self.most_epsilon}.")


def write_world(folder: Path, queries: QuerySet, user: CascadeUser) -> None:
    """Write what all devices of a fleet read: queries as arrays that processes share, and the click model.

    Args:
        folder: Made if it is not there.
        queries: Queries whose documents are ranked, and whose labels the clicks depend on.
        user: The click model.

    Raises:
        ConfigError: The user is no cascade user.
    """
    if not user.cascades:
        raise ConfigError(f"people of a fleet are cascade users, got a {user.name} user.")
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "features.npy", np.asarray(queries.features, np.float32))
    np.save(folder / "labels.npy", np.asarray(queries.labels, np.int32))
    np.save(folder / "offsets.npy", np.asarray(queries.offsets, np.int64))
    about = {"click": user.click, "stop": user.stop, "depth": user.depth, "name": user.name}
    (folder / "user.json").write_text(json.dumps(about), encoding="utf-8")


@contextlib.contextmanager
def fleet(settings: FleetSettings, queries: QuerySet, user: CascadeUser, folder: Path | None) -> Iterator[list[Any]]:
    """A running fleet; all its processes have ended when the block is left.

    Args:
        settings: Settings of the fleet.
        queries: Queries of the users.
        user: The click model.
        folder: Folder of the devices' files; None: a temporary folder, removed afterwards.

    Yields:
        The processes, ``subprocess.Popen``.

    Raises:
        RunError: A process cannot be started.
    """
    with contextlib.ExitStack() as stack:
        home = Path(folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="fedrank-fleet-")))
        write_world(home / "world", queries, user)
        processes: list[subprocess.Popen] = []
        stack.callback(_stop, processes)
        for number in range(settings.devices):
            processes.append(_device(home, settings, number))
        yield processes


def _device(home: Path, settings: FleetSettings, number: int) -> subprocess.Popen:
    command = [sys.executable, "-m", "fedrank_zoo.fleet.device", str(home), str(number), str(settings.devices)]
    # One thread each: fifty processes with a pool of threads each would fight for the cores.
    threads = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # the token must not stand in a list of processes; its end ends the device
            stdout=subprocess.DEVNULL,
            env={**os.environ, **threads},
            start_new_session=True,  # Ctrl-C is for the parent, which then tells its devices
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(vars(settings)).encode() + b"\n")
        process.stdin.flush()
        return process
    except OSError as error:
        raise RunError(f"device {number} of the fleet cannot be started ({error}). Use fewer devices.") from error


def _stop(processes: list[subprocess.Popen]) -> None:
    """End the processes of all devices: the end of its input ends a device.

    No signal is sent beside it: it could reach an interpreter that is ending and no longer handles it, and a device
    that ended well would look killed.
    """
    for process in processes:
        with contextlib.suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
    end = time.monotonic() + _GRACE
    for process in processes:
        try:
            process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def crashes(processes: list[subprocess.Popen]) -> list[str]:
    """Devices whose processes ended with an error, and how, in words; those that are running are left out."""
    found = []
    for number, process in enumerate(processes):
        code = process.poll()
        if code:
            how = f"status {code}"
            if code < 0:
                with contextlib.suppress(ValueError):  # of a signal without a name
                    how = signal.Signals(-code).name
                how = f"signal {how}" if how.startswith("SIG") else f"signal {-code}"
            found.append(f"device {number}: {how}")
    return found


def watch(
    settings: FleetSettings,
    processes: list[subprocess.Popen],
    on_progress: Callable[[dict[str, Json] | None, int], None],
) -> dict[str, Json] | None:
    """Poll the hub's status until training is over, the time is up, or no device is running.

    Args:
        settings: Settings of the fleet.
        processes: Processes of its devices.
        on_progress: Called with the hub's status (None while it cannot be read) and the number of running devices.

    Returns:
        The hub's last status; None if it could never be read.
    """
    started, seen = time.monotonic(), None
    while True:
        running = sum(process.poll() is None for process in processes)
        now = look(settings.hub)
        seen = now or seen
        on_progress(now, running)
        over = settings.seconds and time.monotonic() - started >= settings.seconds
        if not running or over or (now is not None and now["state"] == "done"):
            return seen
        time.sleep(1.0)


def look(hub: str) -> dict[str, Json] | None:
    """The status of a hub; None if it cannot be read, or is not public; a ConfigError if its address is none."""
    client = HttpClient(hub, allow_http=True, timeout=5.0)
    try:
        shown = client.request("GET", "/status.json", "", limit=8_000_000).json()
    except OSError:
        return None
    return shown if "state" in shown else None
