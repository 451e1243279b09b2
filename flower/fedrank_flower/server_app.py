"""The server application of Flower: ``serverapp = "fedrank_flower.server_app:app"`` in a ``pyproject.toml``.

A run has a folder that the server writes to:

::

    config.toml          the protocol and the settings that differ from its defaults
    resolved.json        all settings
    state-<round>.npz    the server's state before a round; the newest are kept, and the next run goes on from there
    ledger.jsonl         what crossed, one line a question or a bundle of replies; only ever grows
    metrics.jsonl        one line a round: who was heard, what went wrong, how good the model is; of silos: what the
                         server saw, such as what the target said
    privacy.json         what the parties were promised, over all rounds that were asked
    weights/             the model, when the run has ended; of silos the best by the target's word, if there is one, and
                         beside it the last

A protocol with a setup, such as that of silos with texts, runs it before the first round. Its requests are in the same
ledger, as of round 0, and in the first line of ``metrics.jsonl``; ``messages.json`` and ``model.json`` say what is sent
and what is learnt. The state after it is ``state-00000000.npz``. A server that is stopped during the setup starts a new
one the next time, with new keys.
"""

from __future__ import annotations

import functools
import json
import logging
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.errors import RunError
from fedrank.core.ledger import Ledger
from fedrank.core.protocol import Exchange
from fedrank.core.trees import Json
from fedrank.deploy.checkpoints import Checkpoints
from fedrank.deploy.folder import LogLine
from fedrank.engine.deployment import ServerSide
from fedrank.engine.run_folder import RunFolder
from fedrank_flower.answers import check_protocol
from fedrank_flower.messages import RECORD, Question
from fedrank_flower.rounds import HELLO, Came, Log, Network, Rounds, SetupRounds, Tally, as_rows
from fedrank_flower.settings import Scalar, about, read_run, task_of

log = logging.getLogger("fedrank.flower")


def serve(values: Mapping[str, Scalar], network: Network) -> Any:
    """Serve a run, from its last checkpoint or from the start, to the end.

    Args:
        values: The run's table.
        network: Carries questions and answers.

    Returns:
        The server's last state.

    Raises:
        FedrankError: The settings, the data or the folder cannot be used, or too few nodes were heard.
    """
    config, settings = read_run(values)
    server = task_of(config).server(config, settings.n_features)
    check_protocol(server.protocol)
    state = server.state()
    home = RunFolder(Path(settings.checkpoint_dir).expanduser().absolute())
    try:
        home.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{home.path}: cannot be made ({error.strerror}); name another checkpoint-dir.") from error
    with home.lock():
        kept = Kept(server, home)
        found = kept.checkpoints.newest(state)
        first, state = found or (0, state)
        log.info("%s: %d of %d rounds are done", home.path, first, config.rounds)
        if found is None and server.setup is not None:
            log.info("setup of %d parties", server.n_parties)
            told, tallies = SetupRounds(server.setup, server.n_parties, network, settings, kept).run_once()
            server.write_setup(home, told)
            kept.set_up(state, tallies)
        elif found is None:
            kept.begin(state)
        rounds = Rounds(server.protocol, server.n_parties, network, settings, kept)
        state = rounds.run(state, first, config.rounds)
        server.write_models(home, state)
        log.info("%s: the model is in weights/", home.path)
    return state


class Kept(Log):
    """Writes a run into its folder.

    Args:
        server: The server's side of the run.
        home: The folder; no other process writes to it.
    """

    def __init__(self, server: ServerSide, home: RunFolder):
        self._server, self._config, self._home = server, server.config, home
        self.checkpoints = Checkpoints(home.path, about(self._config))
        for name in ("ledger.jsonl", "metrics.jsonl"):
            _drop_half_a_line(home.path / name)
        home.write_config(self._config)
        ledger = home.path / "ledger.jsonl"
        before = Ledger.read(ledger) if ledger.exists() else Ledger()
        self._requests = Counter(entry.exchange for entry in before if entry.sender == "server")

    def begin(self, state: PyTree) -> None:
        """Measure the model before the first round."""
        self._measure({"round": 0}, state)

    def set_up(self, state: PyTree, tallies: list[Tally]) -> None:
        """The setup is over: write its results; a run that is stopped now continues from here."""
        self._server.write_descriptions(self._home)
        self._measure({"round": 0, "setup": as_rows(tallies)}, state)
        self.checkpoints.save(0, state)
        log.info("setup: done, %.1f s", sum(tally.seconds for tally in tallies))

    @override
    def note_question(self, round_: int, exchange: Exchange, nodes: int) -> None:
        # One request to each node; its parties share it.
        entry = Ledger()
        entry.record(round_, exchange.name, exchange.request, sender="server", messages=nodes)
        _append(self._home.path / "ledger.jsonl", entry.text())
        self._requests[exchange.name] += 1
        if self._server.setup is not None and self._requests.total() == 1:
            self._write_account()  # a run may end after its setup, in which something was shown already

    @override
    def note_replies(self, round_: int, exchange: Exchange, tally: Tally) -> None:
        entry = Ledger()
        entry.record(round_, exchange.name, exchange.reply, sender="parties", messages=tally.parties)
        _append(self._home.path / "ledger.jsonl", entry.text())

    @override
    def done(self, round_: int, state: PyTree, tallies: list[Tally]) -> None:
        # The state first: a run that is resumed may measure a round twice, but must not leave one out.
        self.checkpoints.save(round_ + 1, state)
        row = {"round": round_ + 1, "exchanges": [tally.as_json() for tally in tallies]}
        if watched := self._server.protocol.watch(state):
            row["watched"] = {name: _plain(np.asarray(value).tolist()) for name, value in watched.items()}
        self._measure(row, state)
        most = max(tallies, key=lambda tally: (tally.exchange != HELLO, tally.parties), default=Tally(""))
        log.info(
            "round %d is done, %d of %d: %d parties of %d nodes, %.1f s", round_, round_ + 1, self._config.rounds,
            most.parties, most.heard, sum(tally.seconds for tally in tallies),
        )  # fmt: skip

    def _measure(self, row: dict[str, Json], state: PyTree) -> None:
        due = row["round"] % self._config.evaluation.every == 0 or row["round"] == self._config.rounds
        if due:
            scores = self._server.scores(np.asarray(self._server.protocol.weights(state)))
            row |= {} if scores is None else {"scores": scores}
        _append(self._home.path / "metrics.jsonl", json.dumps(row) + "\n")
        self._write_account()

    def _write_account(self) -> None:
        """Write ``privacy.json``: every request counts, because its reply may have left the party."""
        if self._requests:
            rounds, delta = max(self._requests.values()), self._config.delta
            self._home.json("privacy.json", self._server.protocol.account(rounds, delta).as_json())


def _plain(value: Any) -> Any:
    """Lists and numbers, with None for numbers that are not finite."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _append(path: Path, line: str) -> None:
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise RunError(f"{path}: cannot be written ({error.strerror}); make room, then run again.") from error


def _drop_half_a_line(path: Path) -> None:
    """Cut off the incomplete last line that a killed process left."""
    if path.exists():
        data = path.read_bytes()
        if not data.endswith(b"\n"):
            os.truncate(path, data.rfind(b"\n") + 1)


#: Clocks of server and nodes may differ by this number of seconds; Flower compares them.
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
    from flwr.serverapp import ServerApp  # pyright: ignore[reportMissingImports]

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
