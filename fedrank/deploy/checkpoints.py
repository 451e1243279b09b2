"""Checkpoints of a server's state between rounds: the newest few, each written atomically.

A hub and a Flower server keep the same files, so that either continues where it was stopped.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fedrank.core.arrays import PyTree
from fedrank.core.errors import RunError
from fedrank.core.trees import Json
from fedrank.engine import checkpoint

_log = logging.getLogger("fedrank.checkpoints")


class Checkpoints:
    """Checkpoints in a folder: ``state-00000017.npz`` is the state before round 17.

    Args:
        folder: The folder; made when the first checkpoint is written.
        about: What they belong to, JSON-able; a checkpoint of something else is refused.
        keep: Number of checkpoints that are kept, at least 2: one that is damaged must not be the only one.
    """

    def __init__(self, folder: Path, about: dict[str, Json], keep: int = 3):
        self.folder, self.about, self.keep = Path(folder), about, max(2, keep)

    def _files(self) -> list[tuple[int, Path]]:
        """Round and file of each checkpoint, newest first."""
        found = ((re.fullmatch(r"state-(\d{8,})\.npz", path.name), path) for path in self.folder.glob("state-*.npz"))
        return sorted(((int(match[1]), path) for match, path in found if match), reverse=True)

    def save(self, round_: int, state: PyTree) -> None:
        """Write the state before a round and drop the oldest.

        Args:
            round_: Number of the round.
            state: Pytree of arrays.

        Raises:
            RunError: It cannot be written; earlier checkpoints stay.
        """
        checkpoint.save(self.folder / f"state-{round_:08}.npz", state, {"of": self.about, "round": round_})
        # Files beyond this round are of a future that did not happen: a log that was put back from a copy.
        files = self._files()
        beyond = [path for number, path in files if number > round_]
        for path in beyond + [path for number, path in files if number <= round_][self.keep :]:
            path.unlink(missing_ok=True)

    def states(self, like: PyTree, before: int | None = None) -> Iterator[tuple[int, Any]]:
        """Rounds and states, newest first; damaged files are passed over with a warning.

        Args:
            like: A pytree of the same structure, shapes and types.
            before: Largest round; None: no limit.

        Raises:
            RunError: A file belongs to something else.
        """
        wanted = ((number, path) for number, path in self._files() if before is None or number <= before)
        return read_states(((number, path, str(path)) for number, path in wanted), like, self.about)

    def newest(self, like: PyTree) -> tuple[int, Any] | None:
        """Round and state of the newest checkpoint; None if there is none. Arguments and errors as :meth:`states`."""
        return next(self.states(like), None)


def read_states(
    kept: Iterable[tuple[int, Path | io.BytesIO, str]], like: PyTree, made_of: dict[str, Json]
) -> Iterator[tuple[int, Any]]:
    """Rounds and states; damaged ones are passed over with a warning.

    Args:
        kept: Round, file and name of each.
        like: A pytree of the same structure, shapes and types.
        made_of: What they belong to, JSON-able.

    Raises:
        RunError: One belongs to something else.
    """
    for number, source, name in kept:
        try:
            state, about = checkpoint.unpack_arrays(source, like, name)
        except RunError as error:
            _log.warning("%s; the one before it is used", error)
            continue
        if about.get("of") != made_of or about.get("round") != number:
            raise RunError(
                f"{name}: belongs to other settings or data than those here. Give another folder, or the settings and "
                "data it was made with."
            )
        yield number, state
