"""Privacy account of what a silo has sent about its rows, for its records."""

from __future__ import annotations

from collections.abc import Mapping

from fedrank.core.privacy_report import BASIC, NOBODY, AuditedBy, PrivacyReport, Promise, Unit
from fedrank.privacy.calibration import concentrated_epsilon
from fedrank.silos.records.account import COVERS, NOT_COVERED
from fedrank_zoo.noisy_statistics.releases import RecordNoise


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
        covers=COVERS,
        not_covered=NOT_COVERED,
        details={"rho": rho, "delta": delta, "releases": len(noises)},
        words=(said,),
        audit=AuditedBy("record-statistics", {"epsilon": first.epsilon, "delta": first.delta}) if first else None,
    )
