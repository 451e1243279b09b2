"""Privacy account of a run's trainings, for the records of silos."""

from __future__ import annotations

from fedrank.core.privacy_report import (
    KNOWN_RANDOMNESS,
    MORE_ROUNDS,
    PARTICIPATION,
    SIMULATION,
    TRANSPORT,
    AuditedBy,
    PrivacyReport,
    Promise,
    Unit,
)
from fedrank.core.trees import Json
from fedrank.silos.records.private_sgd import PrivateSgd, sgd_epsilon

#: How the steps of DP-SGD are composed.
_COMPOSED = "privacy loss distribution"

#: What a promise for a record covers.
COVERS = (
    "One row of the silo's table, its label included: replaced by any other, messages become at most e^ε times as "
    "likely, but for a probability of δ.",
)

#: What it does not.
NOT_COVERED = (
    "How many rows the silo has, its columns, and their ranges and levels: they are public.",
    "Several rows of one person: ε grows with their number.",
    "What holds for people in general, as the model tells it. It may be true of a person who is in no table.",
    "What is done with the silo's own rows at the silo, and whom it shows a model of them.",
    TRANSPORT,
    KNOWN_RANDOMNESS,
)

_JUDGED = (
    "Of the validation rows: one row, replaced by another one of its label: what the target tells becomes at most e^ε "
    "times as likely, but for a probability of δ."
)

#: What a server could do with nodes that answer each question of a run once.
OTHER_RUNS = "Other runs on the same rows, with another seed or other settings: each has its own ε; they add up."

#: Whom one has to trust for the ε of a run whose nodes keep their answers.
SERVER = "the server, not to start further runs on the same rows, unless nodes set most-total-epsilon"


def run_account(
    sgd: PrivateSgd, rounds: int, delta: float, *, pretrain: bool, judged: float | None = None
) -> PrivacyReport:
    """The report of a run in which silos send networks trained by DP-SGD.

    A record is among a silo's training rows, whose ε is that of the models, or among its validation rows, whose ε is
    that of AUCs, or tests, where nothing crosses. Which it is was drawn without a look at any value.

    Args:
        sgd: Local training.
        rounds: Rounds of the run.
        delta: δ.
        pretrain: Silos train once before the first round.
        judged: ε of what the target tells of its validation rows; None: nothing is told.
    """
    trainings = rounds + pretrain if rounds else 0
    each = {rows: sgd_epsilon(z, sgd.share(rows), sgd.steps(rows, trainings), delta) for rows, z in sgd.multipliers}
    # Fewer trainings of rows that are not known are no less than what all of them promise.
    trained = (sgd.epsilon if trainings else 0.0) if sgd.elsewhere else max(each.values(), default=0.0)
    promises = [
        Promise(Unit.RECORD, max(trained, judged or 0.0), delta, _COMPOSED),
        Promise(Unit.RECORD, trained, delta, _COMPOSED, scope="training rows"),
    ]
    said = [
        f"A silo's network is trained with noise on clipped gradients (DP-SGD), from the operating system where it is "
        f"deployed. One record of the training rows: ε = {trained:.3g} at δ = {delta:.0e} of all {trainings} trainings "
        "together. A node keeps its answers: who asks again gets the same bytes, and no new noise."
    ]
    covers, not_covered = [COVERS[0]], [*NOT_COVERED, OTHER_RUNS]
    if judged is not None:
        covers = [f"Of the training rows: {COVERS[0]}", _JUDGED]
        not_covered.append("How many validation rows have each label, and so the label of one whose others are known.")
        promises.append(Promise(Unit.RECORD, judged, delta, "concentrated differential privacy", "validation rows"))
        said.append(
            f"AUCs that the target tells have separate noise. One record of its validation rows: ε = {judged:.3g}; "
            "it is replaced by another one of its label, and how many rows have each label is public."
        )
    details: dict[str, Json] = {"delta": delta, "clip": sgd.privacy.clip, "rounds": rounds}
    if not sgd.elsewhere:
        rows, multiplier = min(sgd.multipliers, default=(0, 0.0))
        share, steps = (sgd.share(rows), sgd.steps(rows, trainings)) if rows else (1.0, 0)
        details |= {"noise_multiplier": multiplier, "rows": rows, "sampling": share, "steps": steps}
    return PrivacyReport(
        mechanism="discrete Gaussian noise on clipped gradients",
        trust=SERVER,
        promises=tuple(promises),
        covers=tuple(covers),
        not_covered=(*not_covered, PARTICIPATION, MORE_ROUNDS, SIMULATION),
        details=details,
        words=tuple(said),
        audit=AuditedBy("record-network", {"epsilon": sgd.epsilon, "delta": delta}),
    )
