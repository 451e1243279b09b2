"""The client application of Flower: ``clientapp = "fedrank_flower.client_app:app"`` in a ``pyproject.toml``.

A node may answer for real devices, which a hub beside it asks: one that collects (``hub serve --collect``). It gets
the round's request, its devices report as they do to any hub, and when the round has closed there, the node collects
their messages and sends them on. The hub's rounds close by its own count or deadline; what comes later is too late for
this round.
"""

from __future__ import annotations

import functools
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError, RunError
from fedrank.core.programs import keep_programs_of_commands
from fedrank.deploy.http.client import HttpClient
from fedrank.deploy.hub.settings import MOST_REPORTS
from fedrank.deploy.terms import Terms
from fedrank.engine.checkpoint import leaves_of, plain_array, tree_like
from fedrank.engine.config import RunConfig
from fedrank.engine.deployment import NodeSettings
from fedrank_flower.answers import SHOWN, Memory, NodeState, answer_for
from fedrank_flower.kept_answers import Store
from fedrank_flower.messages import RECORD, Answer, Question
from fedrank_flower.settings import read_node, read_run, task_of

_log = logging.getLogger("fedrank.flower")


class ContextMemory(Memory):
    """The state that Flower keeps for a run: in the node's memory, gone when the SuperNode or the run ends.

    Args:
        state: A ``flwr.app.RecordDict``.
    """

    def __init__(self, state: PyTree):
        self._state = state

    @override
    def before(self, step: int, like: PyTree) -> Any:
        steps = [kept for kept in self._steps() if kept <= step]
        if not steps:
            return like
        return tree_like(like, self._state[_name(max(steps))].to_numpy_ndarrays())

    @override
    def keep(self, step: int, own: PyTree) -> None:
        # The state before it stays too, for a request that is sent again.
        from flwr.app import ArrayRecord  # pyright: ignore[reportMissingImports]

        self._state[_name(step)] = ArrayRecord([plain_array(leaf) for leaf in leaves_of(own)])
        for kept in sorted(self._steps())[:-2]:
            del self._state[_name(kept)]

    def _steps(self) -> list[int]:
        return [int(name.removeprefix(_name(""))) for name in self._state.array_records if name.startswith(_name(""))]


class ContextStore(Store):
    """The state that Flower keeps for a run, for what a party remembers of a setup.

    Args:
        state: A ``flwr.app.RecordDict``.
        name: Name of the record.
    """

    def __init__(self, state: PyTree, name: str):
        self._state, self._name = state, f"{RECORD}.{name}"

    @override
    def read(self) -> bytes | None:
        record = self._state.config_records.get(self._name)
        return None if record is None else record["bytes"]

    @override
    def write(self, data: bytes) -> None:
        from flwr.app import ConfigRecord  # pyright: ignore[reportMissingImports]

        self._state[self._name] = ConfigRecord({"bytes": data})


def _name(step: Any) -> str:
    return f"{RECORD}-{step}"


def state_in_context(state: PyTree) -> NodeState:
    """The state of a node in Flower's context, a ``flwr.app.RecordDict``."""
    stores = {name: ContextStore(state, name) for name in ("setup", SHOWN, "data")}
    return NodeState(ContextMemory(state), stores["setup"], stores[SHOWN], data=stores["data"])


def answer_message(message: Any, context: Any) -> Any:
    """The answer to a Flower message.

    The text of an error stays at the node, because it may contain paths or data; the server gets its type only.

    Args:
        message: A ``flwr.app.Message`` with a question.
        context: Flower's context of run and node.

    Returns:
        A ``flwr.app.Message`` with the answer, or with an error.
    """
    from flwr.app import ConfigRecord, Error, Message, RecordDict  # pyright: ignore[reportMissingImports]

    keep_programs_of_commands()  # the process ends with the answer: without it each message compiles anew
    try:
        config, _ = read_run(context.run_config)
        node = read_node(context.node_config)
        question = Question.from_record(message.content.config_records.get(RECORD))
        if node.chance == "seed":
            _log.warning("chance = 'seed': whoever knows the run's seed can undo the noise; for tests only")
        if node.gateway:
            answer = answer_through(config, node, question)
        else:
            state = None if node.state_dir else state_in_context(context.state)
            answer = answer_for(config, node, question, state)
    except Exception as error:
        _log.exception("the question cannot be answered")
        return Message(Error(0, f"{type(error).__name__}; the node's log says more"), reply_to=message)
    return Message(RecordDict({RECORD: ConfigRecord(answer.as_record())}), reply_to=message)


@functools.cache
def _made() -> Any:
    from flwr.clientapp import ClientApp  # pyright: ignore[reportMissingImports]

    app = ClientApp()
    app.query()(answer_message)
    return app


def __getattr__(name: str) -> Any:
    # Made when Flower asks for it: the rest of the package can be read and tested where there is no Flower.
    if name == "app":
        return _made()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


#: Seconds between two requests for a round's messages.
_LOOK = 0.2
#: Longest silence of the hub in seconds.
_TIMEOUT = 30.0


class Gateway:
    """Client of a relaying hub for its operator.

    Args:
        url: URL of the hub; plain http on this machine only.
        token: The hub's admin token.

    Raises:
        ConfigError: Plain http to another machine: the token would cross in the clear.
    """

    def __init__(self, url: str, token: str):
        self._hub, self._token = HttpClient(url, timeout=_TIMEOUT), token

    def __call__(self, method: str, path: str, body: bytes | None = None, limit: int = 65_536) -> tuple[int, bytes]:
        """Send a request; returns status code and body, of which at most ``limit`` bytes and one more are read.

        Raises:
            RunError: The hub does not answer.
        """
        try:
            answer = self._hub.request(method, path, self._token, body=body, limit=limit)
        except OSError as error:
            raise RunError(f"{self._hub.url}: the gateway's hub does not answer ({error}). Is it served?") from error
        return answer.status, answer.body

    def terms(self) -> Terms:
        """The terms that the hub's devices agreed to.

        Raises:
            RunError: The token is wrong, or the hub does not collect.
        """
        code, body = self("GET", "/v1/admin/terms")
        if code != 200:
            raise RunError(
                f"{self._hub.url}: refused the gateway's node with {code}. Is gateway-token its admin.token, was it "
                "made with --collect?"
            )
        return Terms.from_json(body)


def check_terms(terms: Terms, config: RunConfig, size: int) -> None:
    """Refuse a hub whose devices agreed to other terms than the run's.

    Args:
        terms: Terms of the hub.
        config: The run, resolved.
        size: Number of weights in the run's requests.

    Raises:
        ConfigError: Says what differs, or that no devices can answer for the run's parties.
    """
    asked = {**task_of(config).device_terms(config), "size": size}
    wrong = [
        f"{name} is {getattr(terms, name)!r}, not {value!r}"
        for name, value in asked.items()
        if getattr(terms, name) != value
    ]
    if wrong:
        raise ConfigError(
            f"the gateway's devices agreed to other terms than the run's: {', '.join(wrong)}. Run with theirs, or make "
            "another hub."
        )


def answer_through(
    config: RunConfig, node: NodeSettings, question: Question, sleep: Callable[[float], None] = time.sleep
) -> Answer:
    """Ask the hub's devices and collect their messages.

    Args:
        config: The run, resolved.
        node: Settings of the node with ``gateway``, ``gateway_token`` and ``gateway_seconds``.
        question: The server's question.
        sleep: Function that waits for some seconds.

    Returns:
        The messages as replies of the first parties of the node's block, in the order of the devices' numbers; more
        messages than parties are left out.

    Raises:
        ConfigError: The hub's terms are not the run's.
        RunError: The hub does not answer, refuses, or no device reported.
    """
    try:
        token = Path(node.gateway_token).expanduser().read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"gateway-token = {node.gateway_token!r}: cannot be read ({error}).") from error
    hub = Gateway(node.gateway, token)
    terms = hub.terms()
    check_terms(terms, config, (len(question.request) - 5) // 4)
    code, body = hub("PUT", "/v1/admin/round", question.request)
    if code not in (200, 201):
        raise RunError(
            f"the gateway's hub refused the question of round {question.round}: {_reason(body, code)}. A hub collects "
            "for one run, whose rounds only go up; another run needs another hub."
        )
    layout, numbers = terms.reply, node.block(config.clients)  # type: ignore[attr-defined] - of devices
    most = MOST_REPORTS * layout.nbytes
    messages = _collect(hub, question.round, node.gateway_seconds, most, sleep)
    count = len(messages) // layout.nbytes
    if count > len(numbers):
        _log.warning("%d devices reported, the node answers for %d: the rest is left out", count, len(numbers))
        count = len(numbers)
    heard = np.arange(len(numbers)) < count
    return Answer.of(numbers.start, heard, messages[: count * layout.nbytes])


def _collect(hub: Gateway, round_: int, seconds: float, most: int, sleep: Callable[[float], None]) -> bytes:
    end, closing = time.monotonic() + seconds, False
    while True:
        code, body = hub("GET", f"/v1/admin/reports/{round_}", limit=most)
        if code == 200:
            return body
        if code not in (409, 503):
            raise RunError(f"the gateway's hub does not give the reports of round {round_}: {_reason(body, code)}.")
        if time.monotonic() > end:
            if closing:
                raise RunError(f"no device reported to the gateway's hub in round {round_}.")
            closing = hub("POST", "/v1/admin/close")[0] != 503
        sleep(_LOOK)


def _reason(body: bytes, code: int) -> str:
    """The hub's reason for a refusal; its status code where it gives none."""
    try:
        return str(json.loads(body)["error"])[:100]
    except (ValueError, KeyError, TypeError):
        return str(code)
