"""Learning to rank from clicks, as the engine knows it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from typing_extensions import override

from fedrank.core.trees import Json
from fedrank.engine.deployment import HeldParties, NodeSettings
from fedrank.engine.task import Given, Task
from fedrank.ranking.build import Experiment, build
from fedrank.ranking.config import DeviceRun, RankingRun
from fedrank.ranking.data.reader import QueryReader, folds_here
from fedrank.ranking.deployment import RankingServer, device_terms, ranking_node, ranking_server
from fedrank.ranking.model import RankingModel
from fedrank.ranking.report import SHOWN
from fedrank.ranking.run import RankingRunner


class RankingTask(Task[RankingRun]):
    """Devices, or one service, learn to rank from clicks."""

    name = "ranking"
    shown = SHOWN
    reader = QueryReader()
    model = RankingModel
    settings = DeviceRun
    runner = RankingRunner
    takes_own = True

    @override
    def build(self, config: RankingRun, given: Given = Given()) -> Experiment:
        return build(config, given.folder, protocol=given.protocol, data=given.data, own=given.own)

    @override
    def server(self, config: RankingRun, n_features: int = 0) -> RankingServer:
        return ranking_server(config, n_features)

    @override
    def node(self, config: RankingRun, settings: NodeSettings) -> HeldParties:
        return ranking_node(config, settings)

    @override
    def device_terms(self, config: RankingRun) -> dict[str, Json]:
        return device_terms(config)

    @override
    def values_here(self, config: RankingRun, setting: str) -> list[Any] | None:
        return folds_here(config.data) if setting == "fold" else None

    @override
    def folder_name(self, config: RankingRun) -> str:
        data = re.sub(r"[^a-z0-9]+", "-", Path(config.data).name.lower()).strip("-")
        fold = "" if config.data == "generated" else f"-fold{config.fold}"
        return f"{config.protocol}-{data}{fold}-{config.clicks}-{config.ranker}"


TASK = RankingTask()
