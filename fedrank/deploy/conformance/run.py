"""Have a client act in scenes, and see whether it keeps to the wire format.

The client is a program, the *driver*, in any language: it makes one device and searches with it. It is told by
environment variables:

``FEDRANK_HUB``         address of the hub
``FEDRANK_ENROLMENT``   enrolment token
``FEDRANK_FOLDER``      folder in which the device keeps what lasts; the same when it is started again in a scene
``FEDRANK_SECONDS``     how long it acts

It makes a device with the limits that the wire format names for apps that say nothing (3.3). Until its time is over it
synchronises, searches while clicks are wanted (each time it ranks the documents (1, 0), (0, 1), (1, 1), clicks on the
first that is shown and ends the interaction), and waits a tenth of a second. At the end it ranks once more and prints
the order of the three documents as a JSON array, such as ``[0, 2, 1]``, as its last line.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.deploy.conformance.scenes import SCENES, TERMS, Scene
from fedrank.deploy.conformance.scripted_hub import ENROLMENT, ScriptedHub

#: Seconds beyond its time after which a driver is killed.
_GRACE = 30.0


class Outcome(NamedTuple):
    """What was seen in a scene: its name, its rules, and what is wrong; nothing: the client kept to them."""

    name: str
    rules: str
    wrong: tuple[str, ...]


def conformance(command: Sequence[str], only: Sequence[str] = ()) -> Iterator[Outcome]:
    """Play the scenes with a client, one after the other.

    Args:
        command: Program of the driver and its arguments.
        only: Names of scenes; empty: all.

    Raises:
        ConfigError: There is no such program.
        UnknownNameError: There is no such scene.
    """
    names = [scene.name for scene in SCENES]
    for name in only:
        if name not in names:
            raise UnknownNameError("scene", name, names)
    for scene in SCENES:
        if not only or scene.name in only:
            yield Outcome(scene.name, scene.rules, tuple(dict.fromkeys(_played(scene, command))))


def _played(scene: Scene, command: Sequence[str]) -> Iterator[str]:
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder, ScriptedHub(TERMS) as hub:

        def act(seconds: float) -> list[int]:
            about = {"HUB": hub.url, "ENROLMENT": ENROLMENT, "FOLDER": folder, "SECONDS": f"{seconds:g}"}
            named = {f"FEDRANK_{name}": value for name, value in about.items()}
            try:
                done = subprocess.run(
                    command, env={**os.environ, **named}, capture_output=True, text=True, timeout=seconds + _GRACE
                )
            except OSError as error:
                raise ConfigError(f"the driver cannot be started: {error}.") from error
            except subprocess.TimeoutExpired:
                wrong.append(f"the driver did not end within {_GRACE:g} seconds after its time")
                return []
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
                how = f"status {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
                wrong.append(f"the driver ended with {how}: {last[:200]}")
                return []
            try:
                order = json.loads((done.stdout.strip().splitlines() or [""])[-1])
            except ValueError:
                wrong.append("the driver's last line is not the order of the documents")
                return []
            return order if isinstance(order, list) else []

        yield from scene.play(hub, act)
    yield from wrong
