"""Flower's ClientApp: ``clientapp = "fedrank.deploy.flower.client_app:app"``."""

from __future__ import annotations

import functools
import logging
from typing import Any

import jax
import numpy as np

from fedrank.core.errors import MissingExtraError
from fedrank.deploy.flower.answers import Memory, answer_for
from fedrank.deploy.flower.gateway import answer_through
from fedrank.deploy.flower.messages import RECORD, Question
from fedrank.deploy.flower.opening_answers import Store
from fedrank.deploy.flower.settings import read_node, read_run, task_of
from fedrank.deploy.flower.text_answers import answer_texts

_log = logging.getLogger("fedrank.flower")


class ContextMemory(Memory):
    """The state that Flower keeps for a run: in the node's memory, gone when the SuperNode or the run ends.

    Args:
        state: A ``flwr.app.RecordDict``.
    """

    def __init__(self, state: Any):
        self._state = state

    def before(self, step: int, like: Any) -> Any:
        """As :meth:`~fedrank.deploy.flower.answers.Memory.before`."""
        steps = [kept for kept in self._steps() if kept <= step]
        if not steps:
            return like
        return jax.tree.unflatten(jax.tree.structure(like), self._state[_name(max(steps))].to_numpy_ndarrays())

    def keep(self, step: int, own: Any) -> None:
        """As :meth:`~fedrank.deploy.flower.answers.Memory.keep`.

        What was kept before it stays too, for a question that is asked again.
        """
        from flwr.app import ArrayRecord  # pyright: ignore[reportMissingImports]

        self._state[_name(step)] = ArrayRecord([np.asarray(leaf) for leaf in jax.tree.leaves(own)])
        for kept in sorted(self._steps())[:-2]:
            del self._state[_name(kept)]

    def _steps(self) -> list[int]:
        return [int(name.removeprefix(_name(""))) for name in self._state.array_records if name.startswith(_name(""))]


class ContextStore(Store):
    """The same state, for what a silo remembers of an opening.

    Args:
        state: A ``flwr.app.RecordDict``.
        name: Of what is kept.
    """

    def __init__(self, state: Any, name: str):
        self._state, self._name = state, f"{RECORD}.{name}"

    def read(self) -> bytes | None:
        """As :meth:`~fedrank.deploy.flower.opening_answers.Store.read`."""
        record = self._state.config_records.get(self._name)
        return None if record is None else record["bytes"]

    def write(self, data: bytes) -> None:
        """As :meth:`~fedrank.deploy.flower.opening_answers.Store.write`."""
        from flwr.app import ConfigRecord  # pyright: ignore[reportMissingImports]

        self._state[self._name] = ConfigRecord({"bytes": data})


def _name(step: Any) -> str:
    return f"{RECORD}-{step}"


def answered(message: Any, context: Any) -> Any:
    """The answer to a Flower message.

    What went wrong at a node stays there: an error's text may tell paths or data, and Flower would send it. The server
    is told the kind of error only.

    Args:
        message: A ``flwr.app.Message`` with a question.
        context: Flower's context of run and node.

    Returns:
        A ``flwr.app.Message`` with the answer, or with an error.
    """
    from flwr.app import ConfigRecord, Error, Message, RecordDict  # pyright: ignore[reportMissingImports]

    try:
        config, _ = read_run(context.run_config)
        node = read_node(context.node_config)
        question = Question.from_record(message.content.config_records.get(RECORD))
        if node.chance == "seed":
            _log.warning("chance = 'seed': whoever knows the run's seed sees through every lie; for tests only")
        if node.gateway and task_of(config) != "texts":
            answer = answer_through(config, node, question)
        else:
            memory = None if node.state_dir else ContextMemory(context.state)
            if task_of(config) == "texts":
                names = () if node.state_dir else ("opening", "openings-shown")
                answer = answer_texts(config, node, question, memory, *(ContextStore(context.state, n) for n in names))
            else:
                answer = answer_for(config, node, question, memory)
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
