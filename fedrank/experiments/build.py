"""From a configuration to the things it names, whatever is run."""

from __future__ import annotations

import os

from fedrank.core import plugins
from fedrank.engine.config import RunConfig as NewConfig
from fedrank.engine.methods import method, method_names
from fedrank.engine.settings import with_setting
from fedrank.experiments.config import RunConfig
from fedrank.experiments.known import family
from fedrank.ranking.build import Experiment
from fedrank.silos.build import SiloExperiment


def with_own_settings(config: RunConfig | NewConfig) -> RunConfig | NewConfig:
    """The same run with the settings class of its protocol, where the protocol has one."""
    if isinstance(config, NewConfig) or config.protocol not in method_names():
        return config
    return (
        with_setting(config, "protocol", config.protocol)
        if family(config.protocol).name in ("devices", "silos", "texts")
        else config
    )


def build(config: RunConfig | NewConfig, folder: str | os.PathLike[str] | None = None) -> Experiment | SiloExperiment:
    """Load the data and set up everything.

    Args:
        config: The configuration.
        folder: Where data sets are looked for; by default ``FEDRANK_DATA`` or the platform's cache.

    Raises:
        FedrankError: The configuration does not fit the protocol or the data, or the data is not there.
    """
    config = with_own_settings(config).resolved()
    if isinstance(config, NewConfig):
        return plugins.get("fedrank.tasks", method(config.protocol).task).build(config, folder)
    raise AssertionError(config.protocol)  # every protocol has settings of its own
