"""The files of a run over silos besides its metrics: its silos, the arms that were played, the evidence.

``silos.json`` says who took part and which sets of silos (arms) were tried, ``arms.parquet`` what was played and seen
in every round, ``evidence.json`` what follows from it for each target and each other silo, ``sceptic.json`` what simple
ways reach on the same rows. A protocol without arms, such as federated averaging, has neither arms nor evidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedrank.core.frame import Frame
from fedrank.core.trees import Json
from fedrank.report.files import convert, convert_content, json_object, object_of, parquet
from fedrank.report.run import Run
from fedrank.report.statistics import Interval

#: Columns of ``arms.parquet`` and of ``crossed.parquet``.
ARMS = {
    "seed": int,
    "target": str,
    "round": int,
    "arm": int,
    "code": str,
    "played": bool,
    "explored": bool,
    "increment": float,
    "estimate": float,
}
CROSSED = {
    "seed": int,
    "target": str,
    "round": int,
    "exchange": str,
    "requests": int,
    "replies": int,
}

#: What the evidence may say of a silo.
VERDICTS = ("harms", "helps", "no evidence")
#: The verdict of the test for inverted labels that is an alarm.
INVERTED = "labels look inverted"


@dataclass(frozen=True)
class Helper:
    """Evidence of the rounds about one silo for one target.

    Attributes:
        name: The silo.
        n: Rounds in which the target was judged both with it and without it.
        difference: Mean over those of AUC with it minus AUC without it, with its interval over seeds; None if there
            was no such round.
        verdict: One of :data:`VERDICTS`.
        p: p-value of the verdict, corrected for the number of silos, or None if the run did not write it.
        visible: A harm that the test would have found in four of five cases, or None.
        unit: What was tested: ``"seeds"``, or of too few seeds their ``"rounds"``.
        inverted: ``auc`` of the silo's first model on the target's rows, ``p`` and ``verdict``; None if not probed.
        shapley: Its share of what all silos together add, or None.
    """

    name: str
    n: int
    difference: Interval | None
    verdict: str
    p: float | None = None
    visible: float | None = None
    unit: str = "seeds"
    inverted: Mapping[str, Json] | None = None
    shapley: Interval | None = None

    @property
    def looks_inverted(self) -> bool:
        """True if its labels look inverted."""
        return bool(self.inverted) and (self.inverted or {}).get("verdict") == INVERTED


@dataclass(frozen=True)
class Findings:
    """The evidence for one target.

    Attributes:
        helpers: The other silos, in the order of the run; empty for a protocol without arms.
        played: Share of rounds by code of the arm.
        against: Test AUC of the target's model minus that of another way of training, paired by seed: by its name
            (``"alone"``, the target by itself; ``"everyone"``, federated averaging), by model (``"best"`` on
            validation, ``"last"``).
    """

    helpers: tuple[Helper, ...]
    played: Mapping[str, float]
    against: Mapping[str, Mapping[str, Interval]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Silos:
    """Files of a run about its silos.

    Attributes:
        names: The silos, in the order of the digits of a code.
        targets: Silos that were personalised for.
        rule: Decision rule, or an empty string.
        arms: Code and name of each arm, such as ``"0110"`` and ``"hungarian + cleveland"``, by target.
        rows: By silo: ``train``, ``vali``, ``test`` and ``positive``, the share of label 1.
        notes: What a reader should know about the data.
        undefined: Sentences on what could not be measured, and why.
        plays: Columns as :data:`ARMS`; None for a protocol without arms, or before the run wrote it.
        findings: By target; empty for a protocol without arms, or before the run wrote it.
        evidence: ``evidence.json`` as it is, for machines.
        sceptic: Simple baselines, by target: ``rows``, ``best`` and ``ways``; empty where the run has it not.
        looks: ``first_look.json``: verdicts from one division, by target; empty where the run has it not.
    """

    names: tuple[str, ...]
    targets: tuple[str, ...]
    rule: str
    arms: Mapping[str, Mapping[str, str]]
    rows: Mapping[str, Mapping[str, Json]]
    notes: tuple[str, ...] = ()
    undefined: tuple[str, ...] = ()
    plays: Frame | None = None
    findings: Mapping[str, Findings] = field(default_factory=dict)
    evidence: Mapping[str, Json] = field(default_factory=dict)
    sceptic: Mapping[str, Json] = field(default_factory=dict)
    looks: Mapping[str, Json] = field(default_factory=dict)

    @property
    def one_class(self) -> list[str]:
        """Silos whose rows all have the same label."""
        shares = {name: rows.get("positive") for name, rows in self.rows.items()}
        return [name for name, share in shares.items() if share is not None and share in (0, 1)]

    @property
    def compared_targets(self) -> list[str]:
        """Targets for which there is evidence about other silos."""
        return [target for target in self.targets if target in self.findings and self.findings[target].helpers]

    @property
    def warnings(self) -> list[tuple[str, Helper]]:
        """Pairs (target, helper) where the helper harms the target."""
        return [(t, h) for t, found in self.findings.items() for h in found.helpers if h.verdict == "harms"]


def silos_of(run: Run) -> Silos:
    """The run's data about its silos."""
    return run.details


def read_silos(folder: Path, *, finished: bool) -> Silos:
    """Read what a run over silos wrote.

    Args:
        folder: The run directory.
        finished: Whether the run came to its end: then nothing may be missing.

    Raises:
        RunError: A file is missing, cut, or of another schema; says which file and what to do.
    """
    file = folder / "silos.json"
    evidence_file, arms_file = folder / "evidence.json", folder / "arms.parquet"
    raw = json_object(file)
    arms = convert_content(file, "'arms' by target, each with code and name", lambda: _arms(raw))
    has_arms = bool(raw.get("rule"))
    plays = None
    if arms_file.exists() or (finished and has_arms):
        plays = parquet(arms_file, ARMS)
    evidence = json_object(evidence_file, needed=finished and has_arms)
    what = "for each target 'silos' with n, mean, low, high and verdict each, and 'played'"
    findings = convert_content(
        evidence_file, what, lambda: {t: _findings(one, has_arms) for t, one in evidence.items()}
    )
    what = "'silos', 'targets' and 'rows'"
    return convert_content(
        file,
        what,
        lambda: object_of(
            Silos,
            raw,
            names=tuple(map(str, raw["silos"])),
            rule=raw.get("rule") or "",
            arms=arms,
            plays=plays,
            findings=findings,
            evidence=evidence,
            sceptic=json_object(folder / "sceptic.json", needed=False),
            looks=json_object(folder / "first_look.json", needed=False),
        ),
    )


def _arms(raw: Mapping[str, Json]) -> dict[str, dict[str, str]]:
    return {
        str(target): {str(arm["code"]): str(arm["name"]) for arm in some}
        for target, some in (raw.get("arms") or {}).items()
    }


def _findings(raw: Mapping[str, Json], has_arms: bool) -> Findings:
    if not has_arms:
        raw = {"silos": {}, "played": {}, **raw}
    against = {}
    for name, models in (raw.get("against") or {}).items():
        intervals = {str(model): _interval(one) for model, one in models.items()}
        against[str(name)] = {model: one for model, one in intervals.items() if one is not None}
    helpers = tuple(_helper(str(name), one) for name, one in raw["silos"].items())
    return Findings(helpers, {str(c): float(v) for c, v in raw["played"].items()}, against)


def _helper(name: str, raw: Mapping[str, Json]) -> Helper:
    if raw["verdict"] not in VERDICTS:
        raise ValueError(f"verdict of {name} is {raw['verdict']!r}, not one of {', '.join(VERDICTS)}")
    intervals = {"difference": _interval(raw), "shapley": _interval(raw.get("shapley"))}
    return object_of(Helper, raw, name=name, visible=convert(float | None, raw.get("visible_harm")), **intervals)


def _interval(raw: Mapping[str, Json] | None) -> Interval | None:
    if raw is None or raw["mean"] is None or math.isnan(raw["mean"]):
        return None
    low, high = (None if raw.get(k) is None or math.isnan(raw[k]) else float(raw[k]) for k in ("low", "high"))
    return Interval(float(raw["mean"]), low, high)
