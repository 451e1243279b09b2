"""The files that a run leaves in its directory, and how they are found there again.

::

    config.toml          the protocol and the settings that differ from its defaults; ``fedrank run FILE`` repeats it
    resolved.json        all settings, as the run took them
    environment.json     versions, machine, speed
    metrics.parquet      long form: seed, round, interactions, bytes_up, epsilon, split, measure, value
    baselines.json       the label-trained baselines' scores
    per_query.parquet    long form: the final rankers' and the baselines' measures, query by query, mean over seeds
    ledger.jsonl         what crossed, one line a round and message type, for one seed
    messages.json        the fields of each message type and their bytes
    privacy.json         ε per interaction, message and user; what is covered and what is not
    audit.json           what an attack showed of it, where ``fedrank privacy audit`` was told of the run
    model.json           the ranker's shape
    weights/seed<k>.safetensors   models: see fedrank.engine.model
    checkpoint/state.npz while it runs
    done.json            when it has finished
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from fedrank import __version__
from fedrank.core.errors import ConfigError, DataError, RunError
from fedrank.core.frame import Frame
from fedrank.core.lazy import device_kind, is_installed
from fedrank.core.ledger import Ledger
from fedrank.core.protocol import Exchange, Protocol
from fedrank.core.trees import Json, finite, flat
from fedrank.engine.checkpoint import lock_folder, write_atomically
from fedrank.engine.config import RunConfig
from fedrank.engine.model import Model
from fedrank.engine.settings import as_dict, from_dict, given_toml, read_toml

SCHEMA = {
    "seed": int,
    "round": int,
    "interactions": int,
    "bytes_up": int,
    "epsilon": float,
    "split": str,
    "measure": str,
    "value": float,
}


@dataclass(frozen=True)
class Score:
    """One number about one model.

    Attributes:
        split: ``train``, ``vali`` or ``test``.
        measure: Such as ``"expected MaxRR (navigational)"`` or ``"nDCG(dcg='exp-log2')@10 (judged)"``.
        value: The mean over queries.
    """

    split: str
    measure: str
    value: float


class RunFolder:
    """The directory of one run.

    Attributes:
        path: The directory.
        config: File with the settings that were given.
        resolved: File with all settings of the run.
        checkpoint: File with the state of an unfinished run.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.config, self.resolved = self.path / "config.toml", self.path / "resolved.json"
        self.checkpoint = self.path / "checkpoint" / "state.npz"

    @property
    def is_finished(self) -> bool:
        """True if the run came to its end."""
        return (self.path / "done.json").exists()

    def create(self, config: RunConfig) -> None:
        """Begin a new run here.

        Args:
            config: The configuration, resolved.

        Raises:
            RunError: There is something here already, or the folder cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            # Of a process that was killed before it wrote the second file there may be the first.
            taken = any(not p.name.endswith((".partial", ".lock", "resolved.json")) for p in self.path.iterdir())
        except OSError as error:
            raise RunError(f"{self.path}: cannot be made or read ({error.strerror}). Choose another folder.") from error
        if taken:
            raise RunError(
                f"{self.path}: is not empty. Choose another folder with --out, or go on with a run that was stopped: "
                f"fedrank resume {self.path}"
            )
        self.write_config(config)

    def write_config(self, config: RunConfig) -> None:
        """Write ``config.toml`` and ``resolved.json`` of a configuration, resolved."""
        write_atomically(self.resolved, (json.dumps(as_dict(config), indent=2, ensure_ascii=False) + "\n").encode())
        write_atomically(self.config, given_toml(config).encode())

    def settings(self) -> dict[str, Json]:
        """All settings of the run that is here, as nested dictionaries.

        A run of an earlier version has no ``resolved.json``; its ``config.toml`` holds all settings.

        Raises:
            RunError: There is none, a file cannot be read, or the two contradict each other.
        """
        if not self.config.exists():
            raise RunError(f"{self.path}: holds no run (no config.toml). Give the folder that 'fedrank run' made.")
        try:
            given = read_toml(self.config)
        except ConfigError as error:
            raise RunError(f"{error} Restore the file, or run again.") from error
        if not self.resolved.exists():
            return given
        try:
            settings = json.loads(self.resolved.read_text(encoding="utf-8"))
            known = dict(flat(settings))
        except (OSError, ValueError, AttributeError) as error:
            raise RunError(f"{self.resolved}: cannot be read ({error}). Restore it, or run again.") from error
        for name, value in flat(given):
            if known.get(name) != value:
                raise RunError(
                    f"{self.config}: says {name} = {value!r}, but the run began with {known.get(name)!r} "
                    "(resolved.json beside it). Bring the file back, or start a run in another folder."
                )
        return settings

    def reopen(self, base: Any = None) -> Any:
        """The configuration of the run that is here.

        Args:
            base: A configuration of its protocol, where no package registers that.

        Raises:
            RunError: See :meth:`settings`.
            ConfigError: It is no configuration of an installed protocol.
        """
        settings = self.settings()
        try:
            given = from_dict(read_toml(self.config), base)
            if not self.resolved.exists():
                return given.resolved()
            # With what was given beside it, so that models of a run that was stopped say the same as others.
            # A run that is older than devices which are new in every round had the same in all rounds.
            return replace(from_dict(settings, base).in_every_round(), given=given)
        except ConfigError as error:
            raise ConfigError(f"{self.config}: {error}") from error

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """One process writes to a run at a time; the lock of a process that was killed is free again.

        Raises:
            RunError: Another process is at work here.
        """
        with lock_folder(self.path, "is at work on this run"):
            for left in self.path.rglob("*.partial"):  # of a process that was killed while it wrote
                left.unlink(missing_ok=True)
            yield

    def finish(self, rounds: int, seconds: float) -> None:
        """Say that the run is done, and drop what it could have been resumed from."""
        self.json("done.json", {"rounds": rounds, "seconds": round(seconds, 3)})
        shutil.rmtree(self.checkpoint.parent, ignore_errors=True)

    def json(self, name: str, value: Any) -> None:
        """Write one JSON file; not-a-number and infinity become null."""
        write_atomically(self.path / name, (json.dumps(finite(value), indent=2, ensure_ascii=False) + "\n").encode())

    def text(self, name: str, text: str) -> None:
        """Write a text file into the folder."""
        write_atomically(self.path / name, text.encode())

    def table(self, name: str, table: Frame) -> None:
        """Write a table as a parquet file into the folder."""
        write_atomically(self.path / name, table.to_parquet())

    def metrics(self, table: Frame) -> None:
        """Write the run's curves to ``metrics.parquet``."""
        self.table("metrics.parquet", table)

    def read_metrics(self) -> Frame:
        """Read ``metrics.parquet``; an empty table if there is none.

        Raises:
            RunError: It is not what :meth:`metrics` wrote.
        """
        return self.read_table("metrics.parquet", SCHEMA)

    def read_table(self, name: str, schema: dict[str, type]) -> Frame:
        """Read what :meth:`table` wrote; an empty table if there is none.

        Raises:
            RunError: It is not a table with these columns.
        """
        path = self.path / name
        if not path.exists():
            return Frame.of_rows([], schema)
        try:
            # Read in one go: the file may be replaced while it is open.
            return Frame(dict(Frame.from_parquet(path.read_bytes()).select(schema)), schema)
        except (DataError, KeyError, OSError, TypeError, ValueError) as error:
            raise RunError(f"{path}: cannot be read ({error}). Restore it, or run again in another folder.") from error

    def per_query(self, queries: dict[str, list], values: dict[str, dict[str, np.ndarray]]) -> None:
        """Write ``per_query.parquet``.

        Args:
            queries: Columns ``split``, ``qid`` and ``judged``, one entry a query.
            values: Ranker -> measure -> float [queries].
        """
        about = Frame(queries)
        tables = [
            about.with_columns({"ranker": ranker, "measure": measure, "value": row})
            for ranker, measures in values.items()
            for measure, row in measures.items()
        ]
        self.table("per_query.parquet", Frame.concat(tables) if tables else about)

    def model(self, model: Model, seed: int, name: str = "") -> None:
        """Write one model.

        Args:
            model: The model.
            seed: The run's seed.
            name: The file's name; by default ``seed<k>``.
        """
        write_atomically(self.path / "weights" / f"{name or f'seed{seed}'}.safetensors", model.to_bytes())

    def tensors(self, tensors: dict[str, np.ndarray], seed: int, name: str = "") -> None:
        """Write what was learnt where no class says how it scores; arguments as of :meth:`model`.

        Args:
            tensors: Arrays by name.
            seed: The run's seed.
            name: The file's name; by default ``seed<k>``.
        """
        from safetensors.numpy import save

        arrays = {part: np.ascontiguousarray(values, np.float32) for part, values in tensors.items()}
        about = {"about": f"fedrank {__version__}, seed {seed}"}
        write_atomically(self.path / "weights" / f"{name or f'seed{seed}'}.safetensors", save(arrays, about))

    def ledger(self, protocol: Protocol, rounds: int, parties: int) -> None:
        """Write the ledger of one seed's rounds, and the message types."""
        ledger = Ledger()
        exchanges = [(e.name, e.request, e.reply, e.extra_messages(parties)) for e in protocol.exchanges]
        for number in range(rounds):
            for name, request, reply, extra in exchanges:
                ledger.record(number, name, request, sender="server", messages=parties)
                ledger.record(number, name, reply, sender="parties", messages=parties)
                for step, sender, layout in extra:
                    ledger.record(number, step, layout, sender=sender, messages=parties)
        write_atomically(self.path / "ledger.jsonl", ledger.text().encode())
        layouts = [
            layout for _, request, reply, more in exchanges for layout in (request, reply, *(c[2] for c in more))
        ]
        self.json("messages.json", {layout.name: list(layout.describe()) for layout in layouts})


def describe_messages(exchanges: Iterable[Exchange]) -> dict[str, list]:
    """The fields of every message type, by its name; one that has several sizes is told by its exchange, too."""
    heard = [exchange for exchange in exchanges if not exchange.silent]
    layouts = [(exchange.name, layout) for exchange in heard for layout in (exchange.request, exchange.reply)]
    sizes: dict[str, set[int]] = {}
    for _, layout in layouts:
        sizes.setdefault(layout.name, set()).add(layout.nbytes)
    return {
        layout.name if len(sizes[layout.name]) == 1 else f"{layout.name} ({name})": list(layout.describe())
        for name, layout in layouts
    }


def bytes_up(protocol: Protocol, parties: int) -> int:
    """Bytes that each of ``parties`` parties sends in a round."""
    carried = (c for exchange in protocol.exchanges for c in exchange.extra_messages(parties))
    replies = sum(exchange.reply.nbytes for exchange in protocol.exchanges)
    return replies + sum(layout.nbytes for _, sender, layout in carried if sender == "parties")


def rows(
    seeds: tuple[int, ...],
    round_: int,
    scores: list[list[Score]],
    per_round: tuple[int, int, float | None],
    participations: int | None = None,
) -> Frame:
    """Rows of ``metrics.parquet``.

    Args:
        seeds: The runs' seeds.
        round_: Rounds done when the scores were taken.
        scores: One list a seed.
        per_round: Interactions, bytes up and a user's ε of one round (None without privatisation).
        participations: Most rounds that a user takes part in; None: all.
    """
    interactions, sent, epsilon = per_round
    taken = round_ if participations is None else min(round_, participations)
    total = None if epsilon is None else taken * epsilon
    data = [
        (seed, round_, round_ * interactions, round_ * sent, total, score.split, score.measure, score.value)
        for seed, mine in zip(seeds, scores, strict=True)
        for score in mine
    ]
    return Frame.of_rows(data, SCHEMA)


def environment(config: RunConfig, citations: tuple[str, ...], kernels: bool) -> dict[str, Json]:
    """Software and machine that the run ran on."""
    numba = sys.modules.get("numba")  # a run without kernels does not import it
    return {
        "fedrank": __version__,
        "python": platform.python_version(),
        "jax": version("jax") if is_installed("jax") else None,
        "numpy": np.__version__,
        "numba": version("numba"),
        "platform": platform.platform(terse=True),
        "machine": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": numba.get_num_threads() if numba is not None else None,
        "device": device_kind(),
        "kernels": kernels,
        "citations": list(citations),
        "command": " ".join(["fedrank", *sys.argv[1:]]) if Path(sys.argv[0]).stem == "fedrank" else "",
        "protocol": config.protocol,
        "task": getattr(config, "task", None),
    }
