"""Replay of a hub's log: a proof of where the model came from, and the model without some devices' reports."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError, RunError
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.hub.learning import learnable, learning_of, rebuild
from fedrank.deploy.hub.settings import HubSettings, fingerprint
from fedrank.deploy.hub.store import Store


@dataclass(frozen=True)
class Replayed:
    """Result of a replay.

    Attributes:
        rounds: Rounds that were replayed, all of them applied.
        reports: Reports that were counted in them.
        left_out: Reports of devices that were left out.
        weights: The model after the last of them, float32 [parameters].
        models: Number of rebuilt models whose SHA-256 is in the log: those of the rounds, and the one after the last.
        models_alike: Number of these whose SHA-256 is the same.
        served: Model of the hub's checkpoint of the same round; None: there is none, or devices were left out.
        handed_out: SHA-256 of the model message of each round, and of that after the last.
    """

    rounds: int
    reports: int
    left_out: int
    weights: Float32[np.ndarray, " parameters"]
    models: int
    models_alike: int
    served: Float32[np.ndarray, " parameters"] | None
    handed_out: tuple[bytes, ...] = ()

    @property
    def difference(self) -> float | None:
        """Largest absolute difference from the served model's weights; 0 where they are the same bits."""
        return None if self.served is None else float(np.max(np.abs(self.weights - self.served)))

    @property
    def proven(self) -> bool | None:
        """Whether the log yields every model that was handed out, and the served one; None: the last one is not known.

        The model after the last round is known from the next round, which is open in a hub that continues, or from its
        checkpoint.
        """
        if self.models_alike < self.models or self.difference not in (0.0, None):
            return False
        return True if self.models > self.rounds or self.difference == 0.0 else None


def replay_log(folder: str | os.PathLike[str], *, without: Iterable[int] = (), until: int | None = None) -> Replayed:
    """Rebuild a hub's model from its log; the hub may be running.

    Args:
        folder: Folder of the hub.
        without: Numbers of devices whose reports are left out.
        until: Replay the rounds before this one; None: all that were applied.

    Raises:
        RunError: There is no hub, its log has gaps, or it holds messages that no device can send.
        ConfigError: A device that never reported, or a round beyond the last.
    """
    home, away = HubFolder(folder), frozenset(without)
    settings, store = home.open(read_only=True)
    if settings.relay:
        store.close()
        raise RunError(f"{home.path}: this hub relays, it does not learn; replay its coordinator's rounds.")
    try:
        return _replay(home, settings, store, away, until)
    finally:
        store.close()


def _replay(home: HubFolder, settings: HubSettings, store: Store, away: frozenset[int], until: int | None) -> Replayed:
    everything = store.rounds()
    rows = [row for row in everything if row.state == "applied"]
    if until is not None:
        if not 0 <= until <= len(rows):
            raise ConfigError(f"until must be in 0..{len(rows)}, the rounds that were applied, got {until}.")
        rows = rows[:until]
    unknown = away - set(store.reports_of_devices())
    if unknown:
        raise ConfigError(f"{store.path}: device {min(unknown)} has no report in the log; nothing to leave out.")
    learning = learning_of(settings.protocol())
    counts = {"reports": 0, "left": 0, "models": 0, "alike": 0}
    terms = settings.terms(store.name)
    returns = {halt.round: halt.best for halt in store.halts() if halt.round <= len(rows)}
    digests = {row.number: row.model for row in everything if row.model is not None}

    def log():
        for row in rows:
            reports = learnable(store.reports(row.number), terms)
            if len(reports) != row.reports:
                raise RunError(
                    f"{store.path}: round {row.number} was applied with {row.reports} reports, the log has "
                    f"{len(reports)}. Reports were removed or added; restore a copy."
                )
            left = sum(device in away for device, _ in reports)
            counts["reports"] += len(reports) - left
            counts["left"] += left
            yield row.number, reports

    handed_out: list[bytes] = []

    def check(number: int, state: PyTree) -> None:
        handed_out.append(hashlib.sha256(learning.request(state)).digest())
        if number in digests and not away:
            counts["models"] += 1
            counts["alike"] += learning.digest(state) == digests[number]

    state = rebuild(learning, learning.init(), log(), without=away, check=check, returns=returns)
    check(len(rows), state)
    served = None
    if not away:
        files = store.states(home.path / "checkpoints", fingerprint(settings, store.name))
        found = next(files.states(state, len(rows)), None)
        served = learning.weights(found[1]) if found is not None and found[0] == len(rows) else None
    return Replayed(
        rounds=len(rows),
        reports=counts["reports"],
        left_out=counts["left"],
        weights=learning.weights(state),
        models=counts["models"],
        models_alike=counts["alike"],
        served=served,
        handed_out=tuple(handed_out),
    )


def write_model(
    folder: str | os.PathLike[str], weights: Float32[np.ndarray, " parameters"], path: str | os.PathLike[str]
) -> None:
    """Write a model of a hub to a file that :func:`fedrank.load` reads; devices normalise, so that it does not.

    Args:
        folder: Folder of the hub, whose settings name the ranker.
        weights: float32 [parameters].
        path: Path of the file.

    Raises:
        RunError: It cannot be written.
    """
    from fedrank.deploy.hub.settings import read_settings
    from fedrank.ranking.model import RankingModel

    protocol = read_settings(HubFolder(folder).settings).protocol()
    RankingModel(protocol.ranker, np.asarray(weights, np.float32), about={"protocol": protocol.name}).save(path)
