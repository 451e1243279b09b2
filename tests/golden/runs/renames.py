"""Names that have changed since the recording was made: new name → recorded name.

The digests of a run are made with the recorded names, so a rename on purpose does not count as a difference. A name
here stands for a whole string: a file's path in the folder of a run, a column, a cell of a table that is a string (a
measure, an exchange, a silo), a tensor, a key of a JSON file.
"""

from __future__ import annotations

RENAMES: dict[str, str] = {
    # messages of FedSlate
    "RoundStart": "Turn",
    "BatchAges": "Moments",
    "NextValues": "Following",
    "LossInputs": "Compare",
    "LossGradient": "ValueGradient",
    "MovingTargets": "TargetsThatMove",
    "MovingGradient": "GradientThatMoves",
    "ValueSummands": "ValueWords",
    "BatchSummands": "BatchWords",
    "TargetSummands": "TargetWords",
    "GradientSummands": "GradientWords",
    "NextValueSum": "FollowingSum",
    "BatchSum": "LearnSum",
    # faults of the published FedSlate
    "tanh": "squash",
    "item-numbers": "ids",
    "raw-features": "raw",
    "short-memory": "past",
    "endless-episode": "endless",
    "stale-view": "fresh",
    "online-others": "online_others",
    "moving-targets": "moving_targets",
}


def recorded(name: str) -> str:
    """The name under which the recording has it."""
    return RENAMES.get(name, name)
