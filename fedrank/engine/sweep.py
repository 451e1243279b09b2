"""Running what :mod:`fedrank.engine.variations` lays out: a directory a run, each resumed where it stopped."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from fedrank.core.errors import RunError
from fedrank.engine.progress import Listener
from fedrank.engine.run import resume, run
from fedrank.engine.run_folder import RunFolder
from fedrank.engine.settings import as_dict
from fedrank.engine.variations import Variation


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
            if as_dict(home.reopen()) != as_dict(variation.config.resolved()):
                raise RunError(f"{home.path}: holds a run of another configuration. Choose another folder with --out.")
            done.append(resume(home.path, listener=listener(variation.name)))
        else:
            done.append(run(variation.config, home.path, listener=listener(variation.name)))
    return done
