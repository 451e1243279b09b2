"""A study over Flower: the server application carries rounds to the silos' nodes, the client application answers.

Both halves need no code of a user's: the run names the codebook and the folder of the study, a node its silo, its table
and the folder of its book. What crosses is the same messages that silos send as files (:mod:`fedrank.silos.studies`).
"""

from __future__ import annotations

import functools
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrank.core.errors import ConfigError, FedrankError, MissingExtraError, RunError
from fedrank.deploy.flower.messages import RECORD
from fedrank.deploy.flower.server_app import show_log
from fedrank.silos.report.study import write_results
from fedrank.silos.studies.folder import StudyFolder
from fedrank.silos.studies.messages import Answer, Round
from fedrank.silos.studies.node import open_node

log = logging.getLogger("fedrank.flower")
#: Seconds between two looks for answers, and for nodes.
_LOOK = 0.2
#: Clocks of server and nodes may differ by this number of seconds; Flower compares them.
_SKEW = 60.0


def serve_study(values: Mapping[str, Any], grid: Any) -> None:
    """Run a study from where its folder stands to its end.

    Args:
        values: ``codebook`` and ``study-dir`` (paths of the server's machine), ``round-timeout`` in seconds, and
            ``go-on-without``: whether a silo that does not answer in that time is left out; else the run stops, and
            goes on from there when it is started again.
        grid: A ``flwr.serverapp.Grid``.

    Raises:
        FedrankError: The folder or the codebook cannot be used.
        RunError: Silos did not answer in time.
    """
    codebook = str(values.get("codebook", ""))
    place = Path(str(values.get("study-dir", "fedrank-study"))).expanduser().absolute()
    folder = StudyFolder(place, Path(codebook).expanduser() if codebook else None)
    seconds = float(values.get("round-timeout", 600.0))
    while (asked := folder.round) is not None:
        began = time.monotonic()
        for answer in _ask(grid, asked, seconds, lambda: folder.waiting):
            try:
                folder.receive(answer)
            except FedrankError as error:
                log.warning("an answer of %s is left out: %s", answer.silo, error)
        if late := folder.waiting:
            if not values.get("go-on-without", False):
                raise RunError(
                    f"no answer of {', '.join(late)} to round {asked.number} within {seconds:g} s; start the run again "
                    "when they are there, or set go-on-without = true."
                )
            log.warning("round %d goes on without %s", asked.number, ", ".join(late))
        folder.close(late)
        log.info("round %d is done, %.1f s", asked.number, time.monotonic() - began)
    for path in write_results(folder.coordinator, place / "results"):
        log.info("written: %s", path)


def _ask(grid: Any, asked: Round, seconds: float, still: Callable[[], Sequence[str]]) -> Iterable[Answer]:
    """Answers of nodes as they come, until all silos that are ``still`` waited for have answered or time is over."""
    from flwr.app import ConfigRecord, Message, MessageType, RecordDict  # pyright: ignore[reportMissingImports]

    content = json.dumps(asked.as_json()).encode()
    waiting = set(still())
    sent: set[int] = set()
    open_: set[str] = set()
    end = time.monotonic() + seconds
    while waiting and time.monotonic() < end:
        if new := [node for node in sorted(grid.get_node_ids()) if node not in sent]:  # also nodes that come late
            messages = [
                Message(
                    RecordDict({RECORD: ConfigRecord({"round": content})}),
                    dst_node_id=node,
                    message_type=MessageType.QUERY,
                    ttl=seconds + _SKEW,
                    group_id=str(asked.number),
                )
                for node in new
            ]
            open_ |= {number for number in grid.push_messages(messages) if number}
            sent |= set(new)
        for message in grid.pull_messages(list(open_)) if open_ else ():
            open_.discard(message.metadata.reply_to_message_id)
            if message.has_error():
                log.warning("a node cannot answer: %s", message.error.reason)
                continue
            try:
                record = message.content.config_records.get(RECORD) or {}
                answer = Answer.from_json(json.loads(record["answer"]))
            except (FedrankError, KeyError, ValueError, TypeError, RecursionError) as error:
                log.warning("a node's answer cannot be read: %s", error)
                continue
            yield answer
            waiting &= set(still())
        time.sleep(_LOOK)


def answer_study(message: Any, context: Any) -> Any:
    """The answer to a round; the text of an error stays at the node, as it may hold paths or data.

    Args:
        message: A ``flwr.app.Message`` with a round.
        context: Flower's context, whose node settings are ``silo``, ``data``, ``state-dir`` and ``codebook-sha256``.

    Returns:
        A ``flwr.app.Message`` with the silo's answer, or with an error.
    """
    from flwr.app import ConfigRecord, Error, Message, RecordDict  # pyright: ignore[reportMissingImports]

    try:
        node = context.node_config
        for name in ("silo", "data", "state-dir", "codebook-sha256"):
            if not node.get(name):
                raise ConfigError(f"the node's configuration needs {name}.")
        asked = Round.from_json(json.loads((message.content.config_records.get(RECORD) or {})["round"]))
        own = open_node(
            Path(str(node["data"])).expanduser(),
            asked.codebook,
            str(node["silo"]),
            Path(str(node["state-dir"])).expanduser(),
            str(node["codebook-sha256"]),
        )
        answer = json.dumps(own.answer(asked).as_json()).encode()
    except Exception as error:
        log.exception("the round cannot be answered")
        return Message(Error(0, f"{type(error).__name__}; the node's log says more"), reply_to=message)
    return Message(RecordDict({RECORD: ConfigRecord({"answer": answer})}), reply_to=message)


@functools.cache
def _made(name: str) -> Any:
    try:
        from flwr.clientapp import ClientApp  # pyright: ignore[reportMissingImports]
        from flwr.serverapp import ServerApp  # pyright: ignore[reportMissingImports]
    except ImportError as missing:
        raise MissingExtraError("flwr", "flower", "The Flower adapter") from missing
    # Flower looks in this text for assignments of the names that an app's pyproject.toml says.
    client = ClientApp()
    client.query()(answer_study)
    server = ServerApp()

    @server.main()
    def main(grid: Any, context: Any) -> None:
        show_log()
        serve_study(context.run_config, grid)

    return {"client": client, "server": server}[name]


def __getattr__(name: str) -> Any:
    # Made when Flower asks for it: the rest of the package can be read and tested where there is no Flower.
    if name in ("client", "server"):
        return _made(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
