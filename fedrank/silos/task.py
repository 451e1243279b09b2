"""The task of silos: tables that lie at a few organisations, which average models of them.

A method of another package is a :class:`fedrank.silos.party.SiloProtocol`.
"""

from __future__ import annotations

import re
from pathlib import Path

from typing_extensions import override

from fedrank.engine.deployment import HeldParties, NodeSettings, ServerSide
from fedrank.engine.task import Given, Task
from fedrank.silos.build import SiloExperiment, build_silos
from fedrank.silos.config import SiloRun
from fedrank.silos.data.reader import SiloReader
from fedrank.silos.model import SiloModel
from fedrank.silos.report.page import SHOWN
from fedrank.silos.run import SiloRunner


class SilosTask(Task[SiloRun]):
    """Silos average models of their tables."""

    name = "silos"
    shown = SHOWN
    reader = SiloReader()
    model = SiloModel
    settings = SiloRun
    runner = SiloRunner
    # Over a network no machine has the rows of all silos to evaluate on.
    simulated = ("evaluation.every", "evaluation.sceptic")

    @override
    def build(self, config: SiloRun, given: Given = Given()) -> SiloExperiment:
        return build_silos(config, given.folder, protocol=given.protocol, data=given.data)

    @override
    def server(self, config: SiloRun, n_features: int = 0) -> ServerSide:
        from fedrank.silos.deployment import silos_server  # a run in one process needs none of it

        return silos_server(config, n_features)

    @override
    def node(self, config: SiloRun, settings: NodeSettings) -> HeldParties:
        from fedrank.silos.deployment import silos_node

        return silos_node(config, settings)

    @override
    def folder_name(self, config: SiloRun) -> str:
        words = (config.protocol, Path(config.data).name, config.silos.target, config.method.rule_name or "")
        slugs = (re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-") for word in words)
        return "-".join(slug for slug in slugs if slug)


TASK = SilosTask()
