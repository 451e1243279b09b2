"""Several experiments that differ in some settings, one directory each; what a figure of a paper is made of.

A sweep is a configuration and, for some of its settings, a list of values; every combination is run. In a file, the
lists stand in the table ``[vary]``::

    data = "mq2008"
    [vary]
    "privacy.p" = [0.15, 0.25, 0.5, 1.0]
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrank.core.errors import ConfigError, RunError
from fedrank.experiments.config import RunConfig, as_dict, with_setting
from fedrank.experiments.files import RunFolder
from fedrank.experiments.progress import Listener
from fedrank.experiments.run import resume, run


@dataclass(frozen=True)
class Variation:
    """One experiment of a sweep.

    Attributes:
        name: Such as ``"privacy.p=0.15"``; also its directory.
        config: Its configuration.
    """

    name: str
    config: RunConfig


def variations(config: RunConfig, vary: dict[str, list[Any]]) -> list[Variation]:
    """All combinations, the last setting varying fastest.

    Args:
        config: What they have in common.
        vary: Dotted names of settings and the values each takes.

    Raises:
        ConfigError: No values, one twice, an unknown setting, or a combination that is not allowed.

    >>> [v.name for v in variations(RunConfig(), {"clients": [10, 20]})]
    ['clients=10', 'clients=20']
    """
    if not vary:
        raise ConfigError("a sweep needs at least one setting to vary, such as --vary privacy.p=0.25,0.5,1.")
    for key, values in vary.items():
        if not values or len(set(map(str, values))) != len(values):
            raise ConfigError(f"vary {key!r} needs one or more values, no two the same; got {values!r}.")
    out = []
    for combination in itertools.product(*vary.values()):
        changed = config
        for key, value in zip(vary, combination, strict=True):
            changed = with_setting(changed, key, value)
        pairs = zip(vary, combination, strict=True)
        out.append(Variation(",".join(f"{key}={_short(value)}" for key, value in pairs), changed))
    return out


def run_sweep(
    todo: list[Variation],
    folder: str | os.PathLike[str],
    *,
    listener: Callable[[str], Listener] = lambda name: Listener(),
) -> list[Path]:
    """Run every variation that has not finished yet; one that was stopped goes on.

    Args:
        todo: What to run.
        folder: Gets a directory a variation.
        listener: Makes the listener of a variation from its name.

    Returns:
        The runs' directories, in order.

    Raises:
        RunError: A directory holds a run of another configuration.
    """
    done = []
    for variation in todo:
        home = RunFolder(Path(folder) / variation.name)
        if home.config.exists():
            if as_dict(home.reopen()) != as_dict(variation.config):
                raise RunError(f"{home.path}: holds a run of another configuration. Choose another folder with --out.")
            done.append(resume(home.path, listener=listener(variation.name)))
        else:
            done.append(run(variation.config, home.path, listener=listener(variation.name)))
    return done


def parse_vary(texts: list[str]) -> dict[str, list[Any]]:
    """``["privacy.p=0.15,0.5"]`` to ``{"privacy.p": [0.15, 0.5]}``; values are read as TOML, else as words.

    Raises:
        ConfigError: Not of this form, or a setting named twice.
    """
    out: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not equals or not key or not values:
            raise ConfigError(f"--vary must look like privacy.p=0.25,0.5,1, got {text!r}.")
        if key in out:
            raise ConfigError(f"--vary names {key!r} twice; give all its values in one list.")
        whole = _toml(f"[{values}]")
        out[key] = whole if whole is not None else [_value(v.strip()) for v in values.split(",")]
    return out


def _toml(text: str) -> Any:
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return None


def _value(text: str) -> Any:
    value = _toml(text)
    return text if value is None else value


def _short(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return re.sub(r"[^\w.+-]+", "-", text).strip("-")  # a directory's name on any system
