"""Learning to rank over each other's texts, as the engine knows it."""

from __future__ import annotations

import re
from pathlib import Path

from typing_extensions import override

from fedrank.core.lazy import require_jax
from fedrank.engine.deployment import NodeSettings
from fedrank.engine.task import Given, Task
from fedrank.texts.build import TextExperiment, build_texts
from fedrank.texts.config import TextsRun
from fedrank.texts.data.reader import TextReader
from fedrank.texts.deployment import TextsNode, TextsServer
from fedrank.texts.model import TextModel
from fedrank.texts.report.page import SHOWN
from fedrank.texts.run import TextRunner


class TextsTask(Task[TextsRun]):
    """Organisations train a ranker over each other's texts; ``data`` is one collection, or a list, one a silo."""

    name = "texts"
    model = TextModel
    settings = TextsRun
    runner = TextRunner
    shown = SHOWN
    reader = TextReader()
    simulated = ("evaluation.every", "evaluation.measures")  # a server has no documents to measure on

    @override
    def build(self, config: TextsRun, given: Given = Given()) -> TextExperiment:
        require_jax(f"A run of {config.protocol}")
        # A protocol of the caller's own is the configuration's method.
        return build_texts(config, given.folder, data=given.data)

    @override
    def server(self, config: TextsRun, n_features: int = 0) -> TextsServer:
        return TextsServer(config)

    @override
    def node(self, config: TextsRun, settings: NodeSettings) -> TextsNode:
        return TextsNode(config, settings)

    @override
    def folder_name(self, config: TextsRun) -> str:
        data = re.sub(r"[^a-z0-9]+", "-", Path(config.data).name.lower()).strip("-")
        return f"{config.protocol}-{data}-{config.method.sketch.mode}"


TASK = TextsTask()
