"""Wings without a task of their own yet, as the engine asks of one."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fedrank.experiments.build import build
from fedrank.texts.build import TextExperiment
from fedrank.texts.run import TextRunner


def old_task(wing: str) -> Any:
    """A task made of what a wing has."""
    shown = importlib.import_module(f"{wing}.report.shown").SHOWN
    return SimpleNamespace(shown=shown, build=_build, runner=_runner, folder_name=_folder_name, name=wing.split(".")[1])


def _build(config: Any, folder: Any = None, *, protocol: Any = None, data: Any = None) -> Any:
    return build(config, folder)


def _runner(experiment: Any, home: Any, listener: Any) -> Any:
    assert isinstance(experiment, TextExperiment)
    return TextRunner(experiment, home, listener)


def _folder_name(config: Any) -> str:
    data = re.sub(r"[^a-z0-9]+", "-", Path(config.data).name.lower()).strip("-")
    return f"{config.protocol}-{data}"
