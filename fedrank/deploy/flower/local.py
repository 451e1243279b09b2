"""Nodes in the server's process: a run over Flower's messages without Flower, for tests and first steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from typing_extensions import override

from fedrank.core.errors import FedrankError
from fedrank.deploy.flower.answers import answer_for
from fedrank.deploy.flower.messages import Question
from fedrank.deploy.flower.rounds import Came, Network
from fedrank.deploy.flower.settings import Scalar, read_run
from fedrank.engine.deployment import NodeSettings


class LocalNetwork(Network):
    """A network of nodes that answer as soon as they are asked.

    Args:
        values: The table of the run.
        nodes: Settings of the nodes; by default two, with random numbers from the run's seed.

    Raises:
        ConfigError: The table cannot be used.
    """

    def __init__(self, values: Mapping[str, Scalar], nodes: Sequence[NodeSettings] = ()):
        self._config, _ = read_run(values)
        self._nodes = tuple(nodes) or tuple(NodeSettings(i, 2, chance="seed") for i in range(2))
        self._came: list[Came] = []

    @override
    def nodes(self) -> Sequence[int]:
        return range(len(self._nodes))

    @override
    def ask(self, questions: Mapping[int, Question], seconds: float) -> None:
        self._came = [self._answer(node, question) for node, question in questions.items()]

    def _answer(self, node: int, question: Question) -> Came:
        try:
            return Came(node, answer_for(self._config, self._nodes[node], question).as_record())
        except FedrankError as error:
            return Came(node, None, str(error))

    @override
    def answers(self) -> Iterable[Came]:
        came, self._came = self._came, []
        return came
