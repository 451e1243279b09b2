"""Scenes: what a hub does, and what must be seen of a client that keeps to the wire format.

A scene sets the hub up, has the client act for some seconds, and looks at what was asked. It yields a sentence for each
thing that is wrong.

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

import dataclasses
import hashlib
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedrank.core.errors import ConfigError, UnknownNameError, WireError
from fedrank.deploy.conformance.scripted_hub import (
    ENROLMENT,
    FEATURES,
    HUB,
    ScriptedHub,
    ScriptedIssuer,
    Trick,
    refused,
)
from fedrank.deploy.terms import Terms

#: One search a message, ε = 1.
TERMS = Terms(
    hub=HUB, n_features=FEATURES, interactions=1, mechanism="piecewise", p=1.0, epsilon=1.0, inside=1, outside=2,
    interleaved=True,
)  # fmt: skip
#: Has the client act for so many seconds; gives what it printed last: the order of the documents that it showed.
Act = Callable[[float], list[int]]
#: Order of the scenes' three documents, (1, 0), (0, 1) and (1, 1), by the weights (1, −1).
BY_MODEL, BY_DATA = [0, 2, 1], [0, 1, 2]
#: Seconds that a client has after a failure; it may wait for two.
_LONG, _SHORT = 5.0, 2.5


@dataclass(frozen=True)
class Scene:
    """A scene: its name, the rules of the wire format that it is about, and its play."""

    name: str
    rules: str
    play: Callable[[ScriptedHub, Act], Iterator[str]]


def _plain(hub: ScriptedHub, act: Act) -> Iterator[str]:
    act(_SHORT)
    if len(hub.of("POST /v1/enrol")) != 1:
        yield f"it must enrol once; it did {len(hub.of('POST /v1/enrol'))} times"
    if len(hub.reports) < 2:
        yield f"it must report in each round; it did in {len(hub.reports)}"
    seeds = set()
    for body in hub.reports.values():
        try:
            seeds.add(int(TERMS.reply.decode(body).seed))
        except WireError as error:
            yield f"a report is not in the form of 6.1: {error}"
    if len(seeds) < len(hub.reports):
        yield "seeds repeat: each round has its own (5.1)"
    for asked in hub.asked:
        if "cookie" in asked.headers or "referer" in asked.headers:
            yield f"{asked} has a cookie or a referrer"
    if any(asked.body for asked in hub.of("GET")):
        yield "a request for the model has a body"


def _lost(hub: ScriptedHub, act: Act) -> Iterator[str]:
    hub.tricks.append(Trick("POST /v1/report", 0))
    act(_LONG)
    sent = [asked.body for asked in hub.of("POST /v1/report/0")]
    if len(sent) < 2:
        yield "a report without an answer must be sent again"
    if len(set(sent)) > 1:
        yield "a report was sent again with other bytes"


def _unknown_token(hub: ScriptedHub, act: Act) -> Iterator[str]:
    threading.Timer(1.5, hub.tokens.clear).start()
    act(_LONG)
    if len(hub.of("POST /v1/enrol")) != 2:
        yield f"after a 401 it must enrol once more; it enrolled {len(hub.of('POST /v1/enrol'))} times in all"
        return
    second = hub.asked.index(hub.of("POST /v1/enrol")[1])
    models = [one for one in hub.asked[second:] if str(one) == "GET /v1/model"]
    if models and "if-none-match" in models[0].headers:
        yield "the first request for a model with a new token has the tag that came with the old one"
    if any(one.token == hub.asked[0].token for one in models):
        yield "a request for the model shows the enrolment token"


def _changed_terms(hub: ScriptedHub, act: Act) -> Iterator[str]:
    def change() -> None:
        hub.terms = {**hub.terms, "epsilon": 2.0, "hub": "f" * 32}
        hub.tokens.clear()

    threading.Timer(1.5, change).start()
    act(_LONG)
    act(_SHORT)  # nor after another start
    agreed = {"device-token-0001"}
    if {asked.token for asked in hub.of("POST /v1/report")} - agreed:
        yield "it reported under terms that nobody agreed to"


def _weak_terms(hub: ScriptedHub, act: Act) -> Iterator[str]:
    hub.terms = {**hub.terms, "epsilon": 5.0}
    act(_SHORT)
    if hub.of("POST /v1/report"):
        yield "it reported with ε = 5 of a message, where its app allows 4"


def _life(hub: ScriptedHub, act: Act) -> Iterator[str]:
    hub.terms = {**hub.terms, "epsilon": 3.0}
    act(_SHORT)
    act(_SHORT)  # another start
    if len(hub.reports) != 2:
        yield f"of messages with ε = 3 two fit into a life of 8; it sent {len(hub.reports)}"


def _participations(hub: ScriptedHub, act: Act) -> Iterator[str]:
    hub.terms = {**hub.terms, "participations": 1}
    act(_SHORT)
    act(_SHORT)
    if len(hub.reports) != 1:
        yield f"the terms allow one message ever; it sent {len(hub.reports)}"


def _stale(hub: ScriptedHub, act: Act) -> Iterator[str]:
    hub.tricks.append(Trick("POST /v1/report", 409, refused(409, "stale-round")[2]))
    act(_LONG)
    first = hub.of("POST /v1/report")
    if not first:
        yield "it never reported"
    elif len({asked.body for asked in hub.of(str(first[0]))}) > 1:
        yield "after a 409 it made another report of the same round"


def _done(hub: ScriptedHub, act: Act) -> Iterator[str]:
    hub.state = "done"
    order = act(_SHORT)
    if hub.of("POST /v1/report"):
        yield "it reported when training was over"
    if order != BY_MODEL:
        yield "when training is over it must rank by the model"


def _later(hub: ScriptedHub, act: Act) -> Iterator[str]:
    hub.tricks.append(Trick("GET /v1/model", 503, refused(503, "unavailable")[2], {"Retry-After": "4"}))
    act(3.0)
    models = hub.of("GET /v1/model")
    if len(models) > 1 and models[1].when - models[0].when < 4.0:
        yield f"asked to wait 4 seconds, it came back after {models[1].when - models[0].when:.1f}"


def _wrong_model(hub: ScriptedHub, act: Act) -> Iterator[str]:
    wrong = (b"", hub.model()[:-1], b"\x22" + hub.model()[1:], hub.model()[:5] + b"\x00\x00\xc0\x7f" + hub.model()[9:])
    for body in wrong:
        hub.tricks.append(Trick("GET /v1/model", 200, body, {"ETag": '"x"', "Fedrank-State": "open"}))
    if act(_SHORT) not in (BY_DATA, BY_MODEL):
        yield "it ranked by a model that is none"
    if len(hub.tricks) == len(wrong):
        yield "it never asked for a model"
    elif len(hub.tricks) and hub.of("POST /v1/report"):
        yield "it reported about a model that is none"


def _huge_model(hub: ScriptedHub, act: Act) -> Iterator[str]:
    hub.tricks.append(Trick("GET /v1/model", 200, hub.model() + bytes(32 << 20), {"Fedrank-State": "open"}))
    if act(_SHORT) not in (BY_DATA, BY_MODEL):
        yield "it ranked by a model that is too long"


def _elsewhere(hub: ScriptedHub, act: Act) -> Iterator[str]:
    with ScriptedHub(TERMS) as other:
        hub.tricks.append(Trick("GET /v1/model", 307, b"", {"Location": f"{other.url}/v1/model"}))
        act(_SHORT)
        if any(asked.token for asked in other.asked):
            yield "it followed a redirection to another address with its token"


def _another_language(hub: ScriptedHub, act: Act) -> Iterator[str]:
    hub.terms = {**hub.terms, "wire": 7}
    act(_SHORT)
    if hub.of("POST /v1/report"):
        yield "it reported under terms of a version that it does not speak"


def _missing_terms(hub: ScriptedHub, act: Act) -> Iterator[str]:
    hub.terms = {name: value for name, value in hub.terms.items() if name != "sigma"}
    act(_SHORT)
    if hub.of("POST /v1/report"):
        yield "it reported under terms in which σ is missing"


def _later_terms(hub: ScriptedHub, act: Act) -> Iterator[str]:
    hub.terms = {**hub.terms, "a-term-of-later": json.loads('{"x": [1, 2]}')}
    act(_SHORT)
    if not hub.reports:
        yield "a term that it does not know, under a version that it speaks, must be ignored"


def _without_a_log(hub: ScriptedHub, act: Act) -> Iterator[str]:
    hub.terms = {**dataclasses.replace(TERMS, log="ab" * 32).as_json()}
    order = act(_SHORT)
    if order != BY_DATA:
        yield "its hub has a log, and it ranked by a model that no log proves"
    if hub.of("POST /v1/report"):
        yield "it reported about a model that no log proves"


def _tokens(hub: ScriptedHub, act: Act) -> Iterator[str]:
    issuer = hub.issuer = ScriptedIssuer(HUB)
    hub.terms = dataclasses.replace(TERMS, tokens=1000, wire=0).as_json()
    hub.tricks.append(Trick("POST /v1/token", 0))
    act(_LONG)
    act(_SHORT)  # another start
    shown = {asked.headers.get("authorization", "") for asked in hub.of("POST /v1/report")}
    if any(issuer.shown(one) is None for one in shown):
        yield "it reported with something else than a token that it bought (11.7)"
    bought = hub.of("POST /v1/token")
    if not bought and not shown:  # it does not speak version 2 of the terms
        return
    if not shown:
        yield "it bought a token and never reported with it"
    if len(bought) < 2:
        yield "a token request without an answer must be sent again"
    if len({asked.body for asked in bought}) > 1:
        yield "it asked for two tokens of one epoch (11.1, 11.5)"
    if len({(asked.path, asked.body) for asked in hub.of("POST /v1/report")}) > 1:
        yield "it showed one token with two reports (11.7)"
    if any({"authorization", "if-none-match"} & set(asked.headers) for asked in hub.of("GET /v1/model")):
        yield "its request for the model says who asks, or which model it has (11.8)"


def _checks(hub: ScriptedHub, act: Act) -> Iterator[str]:
    hub.terms = dataclasses.replace(TERMS, checks=1.0, wire=0).as_json()
    hub.best = b"\x21" + bytes(4) + np.array([0.5, 2.0], "<f4").tobytes()
    act(_SHORT)
    made = [asked for asked in hub.of("POST /v1/report") if asked.body[:1] == b"\x27"]
    for asked in made:  # one that learns knows nothing of checks, which is allowed
        if asked.body[1:5] != hashlib.sha256(hub.best[5:]).digest()[:4]:
            yield "a check does not name the model that was the best (12.7)"
        if not any(str(one) == "GET /v1/best" and one.when < asked.when for one in hub.asked):
            yield "it compared with a best model that it never asked for (12.6)"
    if not hub.reports:
        yield "where some devices compare models, it reports in each round all the same"


SCENES = (
    Scene("round-after-round", "4.1, 5, 6.1, 7", _plain),
    Scene("a-report-is-lost", "9.1, 9.2", _lost),
    Scene("the-token-is-unknown", "8", _unknown_token),
    Scene("the-terms-change", "1", _changed_terms),
    Scene("weak-terms", "3.1, 3.2", _weak_terms),
    Scene("a-life", "3.3", _life),
    Scene("participations", "3.4", _participations),
    Scene("a-stale-round", "8, 9.1", _stale),
    Scene("training-is-over", "8", _done),
    Scene("come-back-later", "8", _later),
    Scene("a-model-that-is-none", "4", _wrong_model),
    Scene("a-model-without-end", "4", _huge_model),
    Scene("led-elsewhere", "7", _elsewhere),
    Scene("another-version", "1", _another_language),
    Scene("a-term-is-missing", "1", _missing_terms),
    Scene("terms-of-later", "1", _later_terms),
    Scene("a-model-that-no-log-proves", "10", _without_a_log),
    Scene("blind-tokens", "11", _tokens),
    Scene("models-are-compared", "12.6, 12.7", _checks),
)


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
