"""One experiment, from its configuration to the files that it leaves.

A run that was stopped or killed resumes from its last checkpoint and ends with the same numbers as one that was not.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrank.core import registry
from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.core.programs import release_programs
from fedrank.core.protocol import Protocol
from fedrank.data.folders import OWN
from fedrank.engine.config import RunConfig
from fedrank.engine.methods import run_settings, task_of
from fedrank.engine.progress import Listener
from fedrank.engine.run_folder import RunFolder
from fedrank.engine.runner import Interrupted as Interrupted
from fedrank.engine.settings import from_dict
from fedrank.engine.task import Given


def run_experiment(
    config: RunConfig,
    folder: str | os.PathLike[str],
    *,
    protocol: Protocol | None = None,
    data: Any = None,
    own: Mapping[str, Any] | None = None,
    listener: Listener | None = None,
    data_folder: str | os.PathLike[str] | None = None,
) -> Path:
    """Run a whole configuration into a new directory: what :func:`fedrank.run`, commands, sweeps and studies share.

    Args:
        config: The configuration.
        folder: The run's directory; must be empty or not exist.
        protocol: The protocol that the configuration was made of, if it is an object of the caller's own.
        data: Data instead of what the configuration names, in any form that :func:`fedrank.data.load` takes. A name or
            a path goes into the configuration; anything else must be handed to :func:`resume_experiment` again.
        own: Objects of the caller's own in place of names, by the names of settings, such as ``ranker``; the settings
            say ``own`` then. They must be handed to :func:`resume_experiment` again.
        listener: Hears of the progress.
        data_folder: Where data sets are looked for; by default ``FEDRANK_DATA`` or the platform's cache.

    Returns:
        The directory.

    Raises:
        FedrankError: The configuration, the data or the directory cannot be used.
        Interrupted: Ctrl-C; the run can be resumed.
    """
    listener = listener or Listener()
    release_programs()  # of earlier runs in this process
    listener.stage("Loading the data")
    home = RunFolder(folder)
    task = task_of(config.protocol, None if protocol is None else protocol.task)
    if data is not None and task.reader is not None:
        named, data = _named(data)
        config = dataclasses.replace(config, data=named)
    try:
        config = from_dict(dict.fromkeys(own or (), OWN), config).resolved()
    except UnknownNameError as error:
        raise ConfigError(f"{error} So that no object can be given for it.") from error
    experiment = _build(task, config, Given(data_folder, protocol, data, own or {}))
    runner = task.runner(experiment, home, listener)  # first: a bad configuration leaves nothing behind
    home.create(config)
    with home.lock():
        return runner.run()


def _build(task: Any, config: RunConfig, given: Given) -> Any:
    """The experiment of a configuration; refuses objects where the task takes names alone."""
    if given.own and not task.takes_own:
        name = next(iter(given.own))
        raise ConfigError(f"{name}: runs of the task {task.name!r} take no object here; give a name.")
    return task.build(config, given)


def config_of(what: RunConfig | Protocol | str, settings: Mapping[str, Any]) -> Any:
    """The configuration of a run.

    Args:
        what: A configuration, which is returned as it is; or the name of a protocol, or a protocol.
        settings: Settings of a protocol that is named or handed over, as in ``config.toml``.

    Raises:
        ConfigError: An unknown protocol or setting, or a value that is not allowed.
    """
    if isinstance(what, str):
        return from_dict({"protocol": what, **settings})
    protocol = own_protocol(what)
    return what if protocol is None else from_dict(dict(settings), run_settings(protocol).of(protocol))


def own_protocol(what: RunConfig | Protocol | str) -> Protocol | None:
    """The protocol that is handed over; None where it is named, or a configuration is given."""
    return what if isinstance(what, Protocol) else None


def _named(data: Any) -> tuple[str, Any]:
    """The value of the setting ``data``, and what has to be handed over besides; None if the setting says all."""
    if isinstance(data, str):
        return data, None
    if isinstance(data, os.PathLike):
        return os.path.abspath(data), None  # a path object is never a name of the catalogue
    return OWN, data


def build(config: RunConfig, folder: str | os.PathLike[str] | None = None) -> Any:
    """Build what a configuration names: an :class:`~fedrank.engine.task.Experiment`.

    Args:
        config: The configuration.
        folder: Where data sets are looked for; by default ``FEDRANK_DATA`` or the platform's cache.

    Raises:
        FedrankError: The configuration does not fit the protocol or the data, or the data is not there.
    """
    config = config.resolved()
    return task_of(config.protocol).build(config, Given(folder))


def resume_experiment(
    folder: str | os.PathLike[str],
    *,
    protocol: Protocol | None = None,
    data: Any = None,
    own: Mapping[str, Any] | None = None,
    listener: Listener | None = None,
    data_folder: str | os.PathLike[str] | None = None,
) -> Path:
    """Go on with a run that was stopped or killed; a finished one is left as it is.

    Args:
        folder: The run's directory.
        protocol: The protocol that was handed to :func:`run_experiment`, if one was.
        data: The data that was handed to :func:`run_experiment`, if any was.
        own: The objects that were handed to :func:`run_experiment`, if any were.
        listener: Hears of the progress.
        data_folder: As in :func:`run_experiment`.

    Raises:
        RunError: There is no run in the directory, or its checkpoint is damaged.
    """
    listener = listener or Listener()
    release_programs()
    home = RunFolder(folder)
    task = None if protocol is None else registry.get("fedrank.tasks", protocol.task)
    config = home.reopen(None if protocol is None else config_of(protocol, {}))
    with home.lock():
        if home.is_finished:
            return home.path
        listener.stage("Loading the data")
        task = task or task_of(config.protocol)
        experiment = _build(task, config, Given(data_folder, protocol, data, own or {}))
        return task.runner(experiment, home, listener).run()
