"""One device of a fleet, with a simulated user: ``python -m fedrank_zoo.fleet.device``.

Started by :mod:`fedrank_zoo.fleet.processes`, which writes the settings to its standard input; the end of that
input ends the device. Needs NumPy and the standard library only, like the SDK that it uses.
"""

from __future__ import annotations

import json
import math
import random
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedrank.core.trees import Json
from fedrank.deploy.device import Device, State

if TYPE_CHECKING:  # a device, which runs this, has NumPy only
    from jaxtyping import Float32, Int32, Integer


class Person:
    """A simulated user who asks random queries and clicks as in :mod:`fedrank.ranking.clicks.cascade`.

    Args:
        world: Folder that :func:`fedrank_zoo.fleet.processes.write_world` wrote.
        number: Number of the device.
        devices: Number of devices.
        share: Ask only queries of this device's own share.
        seed: Seed of queries and clicks.
    """

    def __init__(self, world: Path, number: int, devices: int, share: bool, seed: int):
        self.features = np.load(world / "features.npy", mmap_mode="r")
        self.labels = np.load(world / "labels.npy", mmap_mode="r")
        self.offsets = np.load(world / "offsets.npy")
        user = json.loads((world / "user.json").read_text(encoding="utf-8"))
        self.click, self.stop, self.depth = user["click"], user["stop"], user["depth"]
        queries = np.arange(len(self.offsets) - 1)
        self.queries = queries[number % len(queries) :: devices] if share else queries
        self.random = np.random.default_rng([seed, number])

    def ask(self) -> tuple[Float32[np.ndarray, "documents features"], Int32[np.ndarray, " documents"]]:
        """Features [documents, n_features] and labels [documents] of a random query's documents."""
        query = self.random.choice(self.queries)
        part = slice(self.offsets[query], self.offsets[query + 1])
        return np.asarray(self.features[part]), np.asarray(self.labels[part])

    def clicks(self, labels: Integer[np.ndarray, " shown"]) -> list[int]:
        """Ranks that are clicked, from the top.

        Args:
            labels: Labels of the shown documents, int [shown], by rank.
        """
        clicked = []
        for position, label in enumerate(labels[: self.depth]):
            if self.random.random() < self.click[label]:
                clicked.append(position)
                if self.random.random() < self.stop[label]:
                    break
        return clicked


def use_device(device: Device, person: Person, pause: float, ended: threading.Event) -> None:
    """Search, click and synchronise until training is over.

    Args:
        device: The device.
        person: Its simulated user.
        pause: Longest pause between two synchronisations, in seconds.
        ended: Set when the process is to stop.
    """
    jitter = random.SystemRandom()
    while not ended.is_set():
        while device.wants_clicks and not ended.is_set():
            features, labels = person.ask()
            ranking = device.rank(features)
            for position in person.clicks(labels[ranking.order]):
                device.log_click(ranking, position)
            device.finish(ranking)
        told = device.sync()
        if told.state is State.DONE:
            return
        if not device.wants_clicks:
            ended.wait(min(told.next_in, pause) * jitter.uniform(0.5, 1.0))


def main(arguments: list[str]) -> int:
    """Run one device.

    Args:
        arguments: The fleet's folder, the device's number, how many there are.

    Returns:
        Exit status.
    """
    home, number, devices = Path(arguments[0]), int(arguments[1]), int(arguments[2])
    told: dict[str, Json] = json.loads(sys.stdin.readline())
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    person = Person(home / "world", number, devices, told["share"], told["seed"])
    limits = {"most_epsilon": told["most_epsilon"], "most_search_epsilon": math.inf, "lifetime_epsilon": math.inf}
    options = {**limits, "relay": told.get("relay")}
    with Device(told["hub"], told["enrolment"], home / f"device-{number:04}", **options) as device:
        use_device(device, person, told["pause"], ended)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
