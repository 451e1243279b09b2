"""Names that have changed since the recording was made: new name → recorded name.

The digests of a run are made with the recorded names, so a rename on purpose does not count as a difference. A name
here stands for a whole string: a file's path in the folder of a run, a column, a cell of a table that is a string (a
measure, an exchange, a silo), a tensor, a key of a JSON file.
Where the shape of a file has changed, a function says which number is which.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    # the account of values, in privacy.json
    **{
        f"vectors_{name}": f"vectors.{name}"
        for name in ("message_round", "stay_expected", "stay", "stay_worst", "stay_everywhere", "run")
    },
}

#: Unit and scope of promises of ``privacy.json``: the names of their ε in recordings, which were made when each
#: mechanism had a schema of its own; of two promises that of the sharper one first.
PROMISES: dict[tuple[str, str], tuple[str, ...]] = {
    ("interaction", ""): ("epsilon_interaction",),
    ("half of a message", ""): ("epsilon_half",),
    ("message", ""): ("epsilon_message",),
    ("user", ""): ("epsilon_user_pld", "epsilon_user_basic"),
    ("list of values", ""): ("epsilon_vector",),
    ("message", "a round with learning"): ("epsilon_message_round",),
    ("user", "all platforms"): ("epsilon_user_everywhere",),
    ("user", "a coordinator that always asks"): ("epsilon_user_worst",),
    ("run", ""): ("epsilon_run",),
    ("occurrence of a word", ""): ("epsilon_occurrence", "epsilon_basic"),
    ("occurrence of a word", "one answer"): ("epsilon_answer",),
    ("occurrence of a word", "one querier"): ("epsilon_querier",),
    ("occurrence of a word", "sketches"): ("epsilon_parts.sketches",),
    ("occurrence of a word", "sizes"): ("epsilon_parts.sizes",),
    ("occurrence of a word", "statistics"): ("epsilon_parts.statistics",),
    ("replaced word", ""): ("epsilon_replaced",),
    ("document", ""): ("epsilon_document",),
}


def recorded_account(report: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a ``privacy.json`` under the names that recordings have; a promise without one keeps its own.

    A promise for a round is what the file says is the ε of a round, so that recordings have it once. Those of
    randomised response have that number as the ε of a message only.

    Args:
        report: The content of the file.
    """
    out = dict(report["details"])
    if report["mechanism"] != "randomised response":
        out["epsilon_round"] = report["epsilon_round"]
    names = {key: list(value) for key, value in PROMISES.items()}
    for promise in report["promises"]:
        left = names.get((promise["unit"], promise["scope"]))
        if promise["unit"] != "round" or promise["epsilon"] != report["epsilon_round"]:
            out[left.pop(0) if left else str(promise)] = promise["epsilon"]
    return out


#: Generated silos, whose names are part of files' and measures' names, too.
SILOS = {"hospital-A": "target", "hospital-B": "complementary", "hospital-C": "neutral", "hospital-D": "harmful"}


def recorded(name: str) -> str:
    """The name under which the recording has it."""
    for now, then in SILOS.items():
        name = name.replace(now, then).replace(now.lower(), then)  # files are named in small letters
    name = name.replace("nDCG(dcg='exp-log2')", "nDCG")
    return RENAMES.get(name, name)
