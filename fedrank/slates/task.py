"""The task of platforms that share users: which slates to show them, so that they stay engaged in the long run."""

from __future__ import annotations

from typing_extensions import override

from fedrank.core.lazy import require_jax
from fedrank.core.programs import keep_programs
from fedrank.engine.task import Given, Task
from fedrank.slates.build import SlateExperiment, experiment_of
from fedrank.slates.config import SlatesRun
from fedrank.slates.model import SlateModel
from fedrank.slates.report.page import SHOWN
from fedrank.slates.run import SlateRunner


class SlatesTask(Task[SlatesRun]):
    """Platforms that share users.

    There is no data to load: users are generated. ``data`` of :meth:`build` is a
    :class:`~fedrank.slates.world.satisfaction.Satisfaction` of the caller's own, ``protocol`` a
    :class:`~fedrank.slates.protocol.PlatformProtocol`.
    """

    name = "slates"
    model = SlateModel
    settings = SlatesRun
    runner = SlateRunner
    shown = SHOWN
    no_network = (
        "a round of platforms takes milliseconds, a message of Flower seconds. Use fedrank slates serve and fedrank "
        "slates coordinate."
    )

    @override
    def build(self, config: SlatesRun, given: Given = Given()) -> SlateExperiment:
        why = f"A run of {config.protocol}"
        if not getattr(given.protocol or config.played, "plans", False):
            require_jax(f"{why}, whose platforms have networks,")
        experiment = experiment_of(config, given.protocol, given.data)
        if not experiment.together or config.compute.debug:
            require_jax(f"{why} with these users or this learner")
            keep_programs()
        return experiment

    @override
    def folder_name(self, config: SlatesRun) -> str:
        return f"{config.protocol}-{config.world.preset}"


TASK = SlatesTask()
