"""The server application of Flower: ``serverapp = "fedrank.deploy.flower.server_app:app"`` in a ``pyproject.toml``."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from threadpoolctl import threadpool_limits
from typing_extensions import override

from fedrank.core.errors import MissingExtraError
from fedrank.deploy.flower.messages import RECORD, Question
from fedrank.deploy.flower.rounds import Came, Network
from fedrank.deploy.flower.serving import serve
from fedrank.deploy.log_lines import LogLine

#: Clocks of server and nodes may differ by so many seconds; Flower compares them.
_SKEW = 60.0


class FlowerNetwork(Network):
    """Flower's grid as a network.

    Args:
        grid: A ``flwr.serverapp.Grid``.
    """

    def __init__(self, grid: Any):
        self._grid = grid
        self._waiting: dict[str, int] = {}

    @override
    def nodes(self) -> Sequence[int]:
        return sorted(self._grid.get_node_ids())

    @override
    def ask(self, questions: Mapping[int, Question], seconds: float) -> None:
        from flwr.app import ConfigRecord, Message, MessageType, RecordDict  # pyright: ignore[reportMissingImports]

        messages = [
            Message(
                RecordDict({RECORD: ConfigRecord(question.as_record())}),
                dst_node_id=node,
                message_type=MessageType.QUERY,
                ttl=seconds + _SKEW,
                group_id=str(question.round),
            )
            for node, question in questions.items()
        ]
        sent = list(self._grid.push_messages(messages))
        # One that could not be sent has no number, and is late by and by.
        self._waiting = {number: node for number, node in zip(sent, questions, strict=False) if number}

    @override
    def answers(self) -> Iterable[Came]:
        if not self._waiting:
            return
        for message in self._grid.pull_messages(list(self._waiting)):
            node = self._waiting.pop(message.metadata.reply_to_message_id, None)
            if node is None:
                continue
            if message.has_error():
                yield Came(node, None, str(message.error.reason))
            else:
                yield Came(node, dict(message.content.config_records.get(RECORD) or {}))


@functools.cache
def _made() -> Any:
    try:
        from flwr.serverapp import ServerApp  # pyright: ignore[reportMissingImports]
    except ImportError as missing:
        raise MissingExtraError("flwr", "flower", "The Flower adapter") from missing

    app = ServerApp()

    @app.main()
    def main(grid: Any, context: Any) -> None:
        show_log()
        # In Flower's simulation this is a thread beside one that starts Ray. Starting a process stops the threads of
        # OpenBLAS, also under a product that waits for them, which then waits for ever. One thread needs no others.
        with threadpool_limits(1, "blas"):
            serve(context.run_config, FlowerNetwork(grid))

    return app


def show_log() -> None:
    """Write this package's log to standard error, where ``flwr log`` finds it."""
    logger = logging.getLogger("fedrank")
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(LogLine("%(levelname)s: %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)


def __getattr__(name: str) -> Any:
    # Made when Flower asks for it: the rest of the package can be read and tested where there is no Flower.
    if name == "app":
        return _made()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
