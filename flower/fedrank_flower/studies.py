"""A study over Flower: the server application carries rounds to the silos' nodes, the client application answers.

Both halves need no code of a user's: the run names the codebook and the folder of the study, a node its silo, its table
and the folder of its book. What crosses is the same messages that silos send as files (:mod:`fedrank.silos.studies`).
"""

from __future__ import annotations

import functools
import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrank.core.errors import ConfigError, FedrankError, RunError
from fedrank.silos.report.study import write_results
from fedrank.silos.studies.coordinator import StudyFolder, open_study
from fedrank.silos.studies.messages import Answer, Round
from fedrank.silos.studies.node import open_node
from fedrank_flower.messages import RECORD
from fedrank_flower.server_app import show_log

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
        RunError: Silos did not answer in time; says what nodes said instead. Or another process runs the study.
    """
    codebook = str(values.get("codebook", ""))
    place = Path(str(values.get("study-dir", "fedrank-study"))).expanduser().absolute()
    seconds = float(values.get("round-timeout", 600.0))
    with open_study(place, Path(codebook).expanduser() if codebook else None) as folder:
        while (asked := folder.round) is not None:
            _carry(grid, folder, asked, seconds, bool(values.get("go-on-without", False)))
        for path in write_results(folder.coordinator, place / "results"):
            log.info("written: %s", path)


def _carry(grid: Any, folder: StudyFolder, asked: Round, seconds: float, go_on: bool) -> None:
    """Carry one round to the nodes and their answers back, and close it."""
    began, wrong = time.monotonic(), []
    for answer in _ask(grid, asked, seconds, lambda: folder.waiting, wrong):
        try:
            folder.receive(answer)
        except FedrankError as error:
            _note(wrong, f"an answer is left out: {error}")
    if late := folder.waiting:
        if not go_on:
            why = f" ({'; '.join(dict.fromkeys(wrong))})" if wrong else ""
            raise RunError(
                f"no answer of {', '.join(late)} to round {asked.number} within {seconds:g} s{why}; start the run "
                "again when they are there, or set go-on-without = true."
            )
        log.warning("round %d goes on without %s", asked.number, ", ".join(late))
    before = {name: dict(one.left) for name, one in folder.coordinator.progress.items()}
    folder.close(late)
    for name, one in folder.coordinator.progress.items():
        for silo in one.left.keys() - before[name].keys():
            log.warning("question %r goes on without %s: %s", name, silo, one.left[silo])
        if one.failed and name in asked.asks:
            log.warning("question %r has no result: %s", name, one.failed)
    log.info("round %d is done, %.1f s", asked.number, time.monotonic() - began)


def _note(wrong: list[str], text: str) -> None:
    """Log what went wrong, and keep it for the error of a round that is not answered in time."""
    log.warning("%s", text)
    wrong.append(text)


def _ask(
    grid: Any, asked: Round, seconds: float, still: Callable[[], Sequence[str]], wrong: list[str]
) -> Iterable[Answer]:
    """Answers of nodes as they come, until all silos that are ``still`` waited for have answered or time is over.

    A node that has not answered after half of the time is asked once more: it may have been started again, and Flower
    hands a message out once.
    """
    from flwr.app import ConfigRecord, Message, MessageType, RecordDict  # pyright: ignore[reportMissingImports]

    content = json.dumps(asked.as_json()).encode()
    waiting = set(still())
    due: dict[int, float] = {}  # when a node is asked next
    asked_of: dict[str, int] = {}
    end = time.monotonic() + seconds
    while waiting and (now := time.monotonic()) < end:
        nodes = sorted(grid.get_node_ids())  # also those that come late
        if new := [node for node in nodes if due.setdefault(node, now) <= now]:
            messages = [
                Message(
                    RecordDict({RECORD: ConfigRecord({"round": content})}),
                    dst_node_id=node,
                    message_type=MessageType.QUERY,
                    ttl=end - now + _SKEW,
                    group_id=str(asked.number),
                )
                for node in new
            ]
            for node, number in zip(new, grid.push_messages(messages), strict=True):
                due[node] = now + seconds / 2
                if number:
                    asked_of[number] = node
        for message in grid.pull_messages(list(asked_of)) if asked_of else ():
            node = asked_of.pop(message.metadata.reply_to_message_id, 0)
            if message.has_error():
                _note(wrong, f"a node cannot answer: {message.error.reason}")
                continue
            try:
                record = message.content.config_records.get(RECORD) or {}
                answer = Answer.from_json(json.loads(record["answer"]))
            except (FedrankError, KeyError, ValueError, TypeError, RecursionError) as error:
                _note(wrong, f"a node's answer cannot be read: {error}")
                continue
            yield answer
            waiting &= set(still())
            if answer.silo not in waiting:
                due[node] = math.inf
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
    from flwr.clientapp import ClientApp  # pyright: ignore[reportMissingImports]
    from flwr.serverapp import ServerApp  # pyright: ignore[reportMissingImports]

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
