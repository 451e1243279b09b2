"""``fedrank audit``: attacks that show at least how much a mechanism reveals, beside what it promises."""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import asdict
from pathlib import Path

from fedrank.cli.terminal import AsJson, Quiet, print_json
from fedrank.core.errors import ConfigError, FedrankWarning, MissingExtraError, RunError
from fedrank.core.privacy_report import DELTA
from fedrank.privacy.audit import AUDITS, Audited, audit_mechanism


def audit(
    *mechanisms: str,
    epsilon: float = 1.0,
    delta: float = DELTA,
    trials: int | None = None,
    confidence: float = 0.99,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Attack mechanisms with the code that devices run: a lower bound of ε, beside the promise.

    Messages are drawn in two worlds that should be hard to tell apart. Exit status 1 if more is shown than promised.
    Of a run its own mechanism is attacked, and what is found stands on the run's page.

    Args:
        mechanisms: Such as piecewise and laplace-sums, or directories of runs; all mechanisms, if none is named.
        epsilon: ε that is promised, in nats.
        delta: δ that is promised, where the mechanism has one.
        trials: Messages drawn in each world; by default as many as bring the bound near the promise.
        confidence: Probability that a bound is right.
        quiet: No progress.
        as_json: Print JSON instead of a table.
    """
    found = []
    for name in dict.fromkeys(mechanisms or AUDITS.names()):
        if not (quiet or as_json) and sys.stderr.isatty():
            print(f"auditing {name} …", file=sys.stderr)
        if name not in AUDITS.names() and Path(name).is_dir():
            found.append(_run_audited(Path(name), trials, confidence))
            continue
        try:
            found.append(audit_mechanism(AUDITS.get(name)(epsilon=epsilon, delta=delta), trials, confidence))
        except MissingExtraError as error:
            if mechanisms:
                raise
            warnings.warn(f"{name} is left out: {error}", FedrankWarning, stacklevel=2)
    broken = [one for one in found if one.broken and one.holds]
    if as_json:
        print_json([{**asdict(one), "broken": one.broken} for one in found])
    else:
        _print(found, confidence)
    if broken:
        raise RunError(
            f"{', '.join(one.mechanism for one in broken)}: an attack shows more than is promised. Do not deploy this."
        )


def _run_audited(folder: Path, trials: int | None, confidence: float) -> Audited:
    """Audit what a run promised, and leave what is found in its directory and on its page."""
    from fedrank.engine.checkpoint import write_atomically
    from fedrank.report.load import load
    from fedrank.report.page import write_page

    privacy = load(folder).privacy
    if privacy is None or privacy.audit is None:
        said = (
            "the run has not written what it promises yet" if privacy is None else f"its noise is: {privacy.mechanism}"
        )
        raise ConfigError(f"{folder}: there is nothing to audit, {said}. Name a mechanism: fedrank audit piecewise.")
    found = audit_mechanism(AUDITS.get(privacy.audit.name)(**privacy.audit.settings), trials, confidence)
    write_atomically(folder / "audit.json", (json.dumps(asdict(found), indent=2) + "\n").encode())
    write_page(load(folder))
    return found


def _print(found, confidence: float) -> None:
    from fedrank.cli.console import Console
    from fedrank.cli.terminal import table

    shown = table(
        "mechanism",
        "ε of one",
        "promised",
        "shown",
        "",
        numbers=("promised", "shown"),
        whole=("mechanism",),
        title=f"ε that is promised, and ε that an attack shows with {100 * confidence:g} % confidence",
    )
    for one in found:
        at = f" at δ = {one.delta:.0e}" if one.delta else ""
        verdict = "BROKEN" if one.broken and one.holds else "broken, as known" if one.broken else "not broken"
        most = "≥ " if one.broken else ""
        shown.add_row(one.mechanism, one.unit + at, f"{one.promised:.3g}", f"{most}{one.shown:.3f}", verdict)
    console = Console()
    console.print(shown)
    console.print(
        "The worlds that are told apart:",
        *dict.fromkeys(f"\n  {one.mechanism}: {one.worlds}." for one in found),
        "\nε is at least what is shown, whatever the mechanism does; that an attack shows less than is promised proves "
        f"nothing. {_range([one.trials for one in found])} messages were drawn in each world: of a mechanism that "
        f"hides nothing they would have shown {min(one.most for one in found):.1f} or more.",
        highlight=False,
    )


def _range(numbers: list[int]) -> str:
    least, most = min(numbers), max(numbers)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"
