"""What a silo's releases promise its records, all together."""

from __future__ import annotations

from collections.abc import Mapping

from fedrank.core.privacy_report import (
    BASIC,
    KNOWN_RANDOMNESS,
    NOBODY,
    TRANSPORT,
    AuditedBy,
    PrivacyReport,
    Promise,
    Unit,
)
from fedrank.privacy.calibration import concentrated_epsilon
from fedrank.silos.records.gaussian import RecordNoise

_COVERS = (
    "One row of the silo's table, its label included: replaced by any other, messages become at most e^ε times as "
    "likely, but for a probability of δ.",
)
_NOT_COVERED = (
    "How many rows the silo has, which columns, and their ranges: they are public.",
    "Several rows of one person: ε grows with their number.",
    "What holds for people in general, as the model tells it. It may be true of somebody who is in no table.",
    "What is done with the silo's own rows at the silo, and whom it shows a model of them.",
    TRANSPORT,
    KNOWN_RANDOMNESS,
)


def record_account(releases: Mapping[str, RecordNoise], delta: float) -> PrivacyReport:
    """The report of everything that a silo has sent about the same rows.

    Args:
        releases: Noise of each release, by what it is.
        delta: δ of all together.
    """
    noises = list(releases.values())
    rho = sum(noise.rho for noise in noises)
    total = concentrated_epsilon(rho, delta) if noises else 0.0
    basic = sum(noise.epsilon for noise in noises)
    added = Promise(Unit.RECORD, basic, sum(noise.delta for noise in noises), BASIC)
    together = Promise(Unit.RECORD, total, delta, "concentrated differential privacy")
    each = tuple(Promise(Unit.RECORD, noise.epsilon, noise.delta, scope=name) for name, noise in releases.items())
    said = (
        f"Discrete Gaussian noise is added at the silo. One record: ε = {total:.3g} at δ = {delta:.0e} of "
        f"{len(noises)} release{'' if len(noises) == 1 else 's'} together, without trust in anybody."
    )
    first = noises[0] if noises else None
    return PrivacyReport(
        mechanism="discrete Gaussian noise",
        trust=NOBODY,
        promises=(together, added, *each),
        covers=_COVERS,
        not_covered=_NOT_COVERED,
        details={"rho": rho, "delta": delta, "releases": len(noises)},
        words=(said,),
        audit=AuditedBy("record-statistics", {"epsilon": first.epsilon, "delta": first.delta}) if first else None,
    )
