"""One experiment, from its configuration to the files that it leaves.

A run that was stopped or killed resumes from its last checkpoint and ends with the same numbers as one that was not.
"""

from __future__ import annotations

import os
from pathlib import Path

from fedrank.core import plugins
from fedrank.engine.config import RunConfig as NewConfig
from fedrank.engine.methods import method
from fedrank.engine.progress import Listener
from fedrank.engine.run_folder import RunFolder
from fedrank.engine.runner import Interrupted as Interrupted
from fedrank.engine.runner import Runner
from fedrank.experiments.build import build, with_own_settings
from fedrank.experiments.config import RunConfig
from fedrank.silos.build import SiloExperiment
from fedrank.silos.run import SiloRunner
from fedrank.slates.build import SlateExperiment
from fedrank.slates.run import SlateRunner
from fedrank.texts.build import TextExperiment
from fedrank.texts.run import TextRunner


def run(
    config: RunConfig | NewConfig,
    folder: str | os.PathLike[str],
    *,
    listener: Listener | None = None,
    data_folder: str | os.PathLike[str] | None = None,
) -> Path:
    """Run an experiment into a new directory.

    Args:
        config: What to run.
        folder: The run's directory; must be empty or not exist.
        listener: Hears of the progress.
        data_folder: Where data sets are looked for; by default ``FEDRANK_DATA`` or the platform's cache.

    Returns:
        The directory.

    Raises:
        FedrankError: The configuration, the data or the directory cannot be used.
        Interrupted: Ctrl-C; the run can be resumed.
    """
    listener = listener or Listener()
    listener.stage("Loading the data")
    home = RunFolder(folder)
    config = with_own_settings(config).resolved()
    runner = _runner(config, home, listener, data_folder)  # first: a bad configuration leaves nothing behind
    home.create(config)
    with home.locked():
        return runner.run()


def resume(
    folder: str | os.PathLike[str],
    *,
    listener: Listener | None = None,
    data_folder: str | os.PathLike[str] | None = None,
) -> Path:
    """Go on with a run that was stopped or killed; a finished one is left as it is.

    Raises:
        RunError: There is no run in the directory, or its checkpoint is damaged.
    """
    listener = listener or Listener()
    home = RunFolder(folder)
    config = home.reopen()
    with home.locked():
        if home.finished:
            return home.path
        listener.stage("Loading the data")
        return _runner(config, home, listener, data_folder).run()


def _runner(
    config: RunConfig | NewConfig, home: RunFolder, listener: Listener, data_folder: str | os.PathLike[str] | None
) -> Runner:
    if isinstance(config, NewConfig):
        task = plugins.get("fedrank.tasks", method(config.protocol).task)
        return task.runner(task.build(config, data_folder), home, listener)
    experiment = build(config, data_folder)
    if isinstance(experiment, SiloExperiment):
        return SiloRunner(experiment, home, listener)
    if isinstance(experiment, TextExperiment):
        return TextRunner(experiment, home, listener)
    assert isinstance(experiment, SlateExperiment)
    return SlateRunner(experiment, home, listener)
