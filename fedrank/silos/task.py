"""The task of silos: tables that lie at a few organisations, which average models of them.

A protocol of another package is a :class:`fedrank.silos.party.SiloProtocol`; its :class:`fedrank.engine.methods.Method`
gets the configuration and the :class:`fedrank.silos.build.Parts`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from typing_extensions import override

from fedrank.engine.deployment import HeldParties, NodeSettings, ServerSide
from fedrank.engine.progress import Listener
from fedrank.engine.run_folder import RunFolder
from fedrank.engine.task import Task
from fedrank.silos.build import SiloExperiment, build_silos
from fedrank.silos.config import BanditFedAvgConfig, SilosConfig
from fedrank.silos.data.reader import SiloReader
from fedrank.silos.model import SiloModel
from fedrank.silos.report.shown import SHOWN
from fedrank.silos.run import SiloRunner


class SilosTask(Task[SilosConfig]):
    """Silos average models of their tables."""

    name = "silos"
    shown = SHOWN
    reader = SiloReader()
    model = SiloModel
    settings = SilosConfig
    # Over a network no machine has the rows of all silos to evaluate on.
    simulated = ("evaluation.every", "evaluation.sceptic")

    @override
    def build(
        self,
        config: SilosConfig,
        folder: str | os.PathLike[str] | None = None,
        *,
        protocol: Any = None,
        data: Any = None,
    ) -> SiloExperiment:
        return build_silos(config, folder, protocol=protocol, data=data)

    @override
    def runner(self, experiment: SiloExperiment, home: RunFolder, listener: Listener) -> SiloRunner:
        return SiloRunner(experiment, home, listener)

    @override
    def server(self, config: SilosConfig, n_features: int = 0) -> ServerSide:
        from fedrank.silos.deployment import silos_server  # a run in one process needs none of it

        return silos_server(config, n_features)

    @override
    def node(self, config: SilosConfig, settings: NodeSettings) -> HeldParties:
        from fedrank.silos.deployment import silos_node

        return silos_node(config, settings)

    @override
    def folder_name(self, config: SilosConfig) -> str:
        rule = config.bandit.rule if isinstance(config, BanditFedAvgConfig) else ""
        words = (config.protocol, Path(config.data).name, config.silos.target, rule)
        slugs = (re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-") for word in words)
        return "-".join(slug for slug in slugs if slug)


TASK = SilosTask()
