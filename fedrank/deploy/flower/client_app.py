"""The client application of Flower: ``clientapp = "fedrank.deploy.flower.client_app:app"`` in a ``pyproject.toml``."""

from __future__ import annotations

import functools
import logging
from typing import Any

import jax
import numpy as np
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.errors import MissingExtraError
from fedrank.deploy.flower.answers import SHOWN, Memory, NodeState, answer_for
from fedrank.deploy.flower.gateway import answer_through
from fedrank.deploy.flower.messages import RECORD, Question
from fedrank.deploy.flower.settings import read_node, read_run
from fedrank.deploy.flower.setup_answers import Store
from fedrank.engine.program_cache import keep_programs

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
        return jax.tree.unflatten(jax.tree.structure(like), self._state[_name(max(steps))].to_numpy_ndarrays())

    @override
    def keep(self, step: int, own: PyTree) -> None:
        # The state before it stays too, for a request that is sent again.
        from flwr.app import ArrayRecord  # pyright: ignore[reportMissingImports]

        self._state[_name(step)] = ArrayRecord([np.asarray(leaf) for leaf in jax.tree.leaves(own)])
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


def answered(message: Any, context: Any) -> Any:
    """The answer to a Flower message.

    The text of an error stays at the node, because it may contain paths or data; the server gets its type only.

    Args:
        message: A ``flwr.app.Message`` with a question.
        context: Flower's context of run and node.

    Returns:
        A ``flwr.app.Message`` with the answer, or with an error.
    """
    from flwr.app import ConfigRecord, Error, Message, RecordDict  # pyright: ignore[reportMissingImports]

    keep_programs()  # the process ends with the answer: without it each message compiles anew
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
    try:
        from flwr.clientapp import ClientApp  # pyright: ignore[reportMissingImports]
    except ImportError as missing:
        raise MissingExtraError("flwr", "flower", "The Flower adapter") from missing

    app = ClientApp()
    app.query()(answered)
    return app


def __getattr__(name: str) -> Any:
    # Made when Flower asks for it: the rest of the package can be read and tested where there is no Flower.
    if name == "app":
        return _made()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
