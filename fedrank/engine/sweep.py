"""Runs of a sweep: a directory each, resumed where it stopped.

Runs are computed by an :class:`~fedrank.engine.executors.Executor`: one after the other in this process, in several
processes, or by a cluster. Machines of a cluster need not share a file system with this one: what there is of a run
goes to the one that computes it, and its directory comes back when it is done.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedrank.core.errors import RunError
from fedrank.core.trees import Json, nest
from fedrank.engine.executors import Executor, Here
from fedrank.engine.progress import Listener
from fedrank.engine.run import resume_experiment, run_experiment
from fedrank.engine.run_folder import RunFolder
from fedrank.engine.settings import as_dict, changes, from_dict
from fedrank.engine.variations import Variation


def run_sweep(
    todo: list[Variation],
    folder: str | os.PathLike[str],
    *,
    listener: Callable[[str], Listener] = lambda name: Listener(),
    executor: Executor | None = None,
) -> list[Path]:
    """Run every variation that has not finished yet; one that was stopped goes on.

    Args:
        todo: What to run.
        folder: Gets a directory a variation.
        listener: Makes the listener of a variation from its name.
        executor: Who computes; by default this process, one run after the other.

    Returns:
        The runs' directories, in order.

    Raises:
        RunError: A directory holds a run of another configuration.
    """
    homes = [RunFolder(Path(folder) / variation.name) for variation in todo]
    for variation, home in zip(todo, homes, strict=True):
        if home.config.exists() and as_dict(home.reopen()) != as_dict(variation.config.resolved()):
            raise RunError(f"{home.path}: holds a run of another configuration. Choose another folder with --out.")
    if executor is None or isinstance(executor, Here):
        return [
            _run_or_resume(variation.config, home, listener(variation.name))
            for variation, home in zip(todo, homes, strict=True)
        ]
    left = [place for place, home in enumerate(homes) if not home.is_finished]
    pieces = [_Piece.of(todo[place], homes[place], executor.shares_files) for place in left]
    total = listener(Path(folder).name)
    try:
        total.stage(f"{len(todo) - len(left)} of {len(todo)} runs are there")
        for number, (which, packed) in enumerate(executor.results(_run_piece, pieces), start=1):
            place = left[which]
            if packed:
                _unpack(packed, homes[place].path)
            total.stage(f"{len(todo) - len(left) + number} of {len(todo)} runs: {todo[place].name}")
    finally:
        total.done()
    return [home.path for home in homes]


def _run_or_resume(config, home: RunFolder, listener: Listener) -> Path:
    return (
        resume_experiment(home.path, listener=listener)
        if home.config.exists()
        else run_experiment(config, home.path, listener=listener)
    )


@dataclass(frozen=True)
class _Piece:
    """A run as it goes to another process.

    Attributes:
        settings: Its configuration as a nested dictionary.
        path: Its directory, where the other process sees it; empty where it does not.
        packed: What there is of it, where the other process does not see it; empty: nothing.
    """

    settings: dict[str, Json]
    path: str
    packed: bytes

    @classmethod
    def of(cls, variation: Variation, home: RunFolder, shares_files: bool) -> _Piece:
        """The run of a variation, whose directory the other process sees or does not."""
        settings = nest({"protocol": variation.config.protocol, **changes(variation.config)})
        if shares_files:
            return cls(settings, str(home.path.resolve()), b"")
        return cls(settings, "", _pack(home.path) if home.config.exists() else b"")


def _run_piece(piece: _Piece) -> bytes:
    """Compute a run, or the rest of it: in its folder (returns b""), or in a private one, returned packed."""
    config = from_dict(piece.settings)
    if piece.path:
        _run_or_resume(config, RunFolder(piece.path), Listener())
        return b""
    with tempfile.TemporaryDirectory() as folder:
        home = RunFolder(Path(folder) / "run")
        if piece.packed:
            _unpack(piece.packed, home.path)
        _run_or_resume(config, home, Listener())
        return _pack(home.path)


def _pack(folder: Path) -> bytes:
    """A directory in one piece, without locks and half-written files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.name.endswith((".lock", ".partial")):
                archive.add(path, str(path.relative_to(folder)))
    return buffer.getvalue()


def _unpack(packed: bytes, folder: Path) -> None:
    """Put a packed directory in the place of another; one that was only half unpacked never stands there."""
    aside = folder.with_name(f"{folder.name}.unpacked")
    shutil.rmtree(aside, ignore_errors=True)
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
        archive.extractall(aside, filter="data")
    shutil.rmtree(folder, ignore_errors=True)
    aside.rename(folder)
