"""The server's part in a run's setup: every party is asked a question of its own, and again while it is not heard.

A party answers the same question with the same bytes (:mod:`fedrank.deploy.flower.setup_answers`), so that asking
again costs nothing. At the beginning all parties have to be there. One that is gone for good later is left out, as long
as the protocol continues without it and ``min_available_nodes`` are heard.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Bool, UInt8

from fedrank.core.arrays import PyTree
from fedrank.core.errors import RunError
from fedrank.core.protocol import Exchange, Protocol
from fedrank.core.trees import Json
from fedrank.deploy.flower.holders import Holders
from fedrank.deploy.flower.messages import Question
from fedrank.deploy.flower.rounds import HELLO, Log, Network, Rounds, Tally, log
from fedrank.deploy.flower.settings import FlowerSettings

#: Seconds before silos that were not heard are asked again.
_PAUSE = 2.0


class SetupRounds(Rounds):
    """A setup over a network. Each node answers for one party.

    Args:
        setup: The protocol of one round.
        parties: Silos of the run.
        network: What carries questions and answers.
        settings: How many nodes are needed, and how long and how often an answer is waited for.
        log: Is told what happens.
    """

    def __init__(self, setup: Protocol, parties: int, network: Network, settings: FlowerSettings, log: Log):
        # Silos that are not there at the beginning are waited for, all of them.
        super().__init__(setup, parties, network, dataclasses.replace(settings, min_available_nodes=parties), log)
        self._enough = settings.min_available_nodes
        self._silos = Holders()

    def run_once(self) -> tuple[Any, list[Tally]]:
        """Run the setup; returns the server's state after it, and the tallies of its questions.

        Raises:
            RunError: Too few silos were heard, as often as the settings allow to ask.
            FedrankError: The protocol does not continue without a party that is gone.
        """
        state, tallies = self._protocol.init(None), []
        self._wait_for_silos(tallies)
        for index, exchange in enumerate(self._protocol.exchanges):
            asked = exchange.asked(state, self._parties)
            asked = np.ones(self._parties, bool) if asked is None else np.asarray(asked, bool)
            rows, arrived = self._heard(index, exchange, state, asked, tallies)
            state = exchange.tell(state, exchange.reply.decode_all(rows.tobytes()), arrived)
        return state, tallies

    def _wait_for_silos(self, tallies: list[Tally]) -> None:
        self._wait_for_nodes()
        hello = Question(0, 0, b"", setup=True)
        for _ in range(self._settings.round_attempts):
            # All of them anew: who could not answer may have been mended.
            self._silos = self._holders = Holders()
            self._greet(self._silos, hello, tallies)
            there = self._silos.of(self._network.nodes())
            if any(len(block) != 1 for block in there.values()):
                raise RunError("a node answers for several silos; in a setup each silo is one node.")
            if len(there) == self._parties:
                return
            log.warning("%d of %d silos said that they take part", len(there), self._parties)
            self._network.sleep(_PAUSE)
        raise RunError(
            f"{len(there)} of {self._parties} silos said that they take part, {self._settings.round_attempts} times in "
            "a row; a setup needs all of them to begin. Nothing crossed. See the other nodes' logs, then run again."
        )

    def _heard(
        self, index: int, exchange: Exchange, state: PyTree, asked: Bool[np.ndarray, " parties"], tallies: list[Tally]
    ) -> tuple[UInt8[np.ndarray, "parties bytes"], Bool[np.ndarray, " parties"]]:
        """Bytes of all silos' replies, uint8 [silos, bytes], and who was heard, bool [silos]."""
        rows, arrived = self._nothing(exchange.reply), np.zeros(self._parties, bool)
        if not asked.any():
            return rows, arrived
        for attempt in range(self._settings.round_attempts):
            if attempt:
                self._network.sleep(_PAUSE)
                self._greet(self._silos, Question(0, index, b"", setup=True), tallies)
            blocks = self._silos.of(self._network.nodes())
            silos = {node: int(block[0]) for node, block in blocks.items()}
            silos = {node: silo for node, silo in silos.items() if asked[silo] and not arrived[silo]}
            questions = {
                node: Question(0, index, exchange.request.encode(exchange.address(state, silo)), setup=True)
                for node, silo in silos.items()
            }
            tally = Tally(exchange.name, attempt)
            expected = {node: np.array([silo]) for node, silo in silos.items()}
            new, came = self._one_question(questions, exchange, tally, expected)
            rows[came], arrived = new[came], arrived | came
            tallies.append(tally)
            self._log.heard(0, exchange, tally)
            if arrived[asked].all():
                break
            missing = np.flatnonzero(asked & ~arrived).tolist()
            log.warning("setup, %s: the silos %s were not heard", exchange.name, missing)
        enough = min(self._enough, int(asked.sum()))  # a question to one silo is answered by one
        if arrived.sum() < enough:
            raise RunError(
                f"setup: {arrived.sum()} of {asked.sum()} silos answered {exchange.name!r}, {enough} are "
                f"needed (min-available-nodes), {self._settings.round_attempts} times in a row. See the nodes' logs; a "
                "new run begins with a new setup."
            )
        return rows, arrived


def as_rows(tallies: list[Tally]) -> list[dict[str, Json]]:
    """The tallies of a setup as rows of ``metrics.jsonl``, without those of greetings."""
    return [tally.as_json() for tally in tallies if tally.exchange != HELLO]
