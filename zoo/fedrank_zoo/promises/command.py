"""The command ``fedrank privacy overview``: promises of every protocol, and what attacks show, side by side."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fedrank.cli.terminal import AsJson, print_json, say, table
from fedrank.engine.methods import method
from fedrank.privacy.audit import AUDITS, audit_mechanism
from fedrank_zoo.promises import all_promised


def overview(*protocols: str, audit: bool = False, trials: int | None = None, as_json: AsJson = False) -> None:
    """List the promises of every protocol, with its defaults and in its private modes: unit, ε, trust, cost.

    Args:
        protocols: Names of protocols; all, if none is named.
        audit: Attack each mechanism as well, and show the ε that the attack proves with 99 % confidence (minutes).
        trials: Messages that an attack draws in each of its two worlds.
    """
    rows = []
    for one in all_promised(protocols):
        first, by = one.first, one.report.audit
        found = audit_mechanism(AUDITS.get(by.name)(**by.settings), trials) if audit and by is not None else None
        rows.append(
            {
                "protocol": one.protocol,
                "mode": one.mode.name,
                "mechanism": one.report.mechanism,
                "epsilon": None if first is None else first.epsilon,
                "delta": None if first is None else first.delta,
                "unit": None if first is None else str(first.unit),
                "rounds": one.rounds,
                "trust": one.report.trust,
                "audited": None if found is None else asdict(found),
                "known": one.mode.known,
                "crosses": method(one.protocol).crosses,
            }
        )
    if as_json:
        print_json(rows)
        return
    _print_overview(rows, audit)


def _print_overview(rows: list[dict[str, Any]], audit: bool) -> None:
    """The rows in which something is promised as a table; names of the other protocols by what crosses in them."""
    with_modes = {row["protocol"] for row in rows if row["epsilon"] is not None or row["mode"] != "defaults"}
    shown = table(
        "protocol", "mode", "ε", "of a", "trusted", *(["an attack shows"] if audit else []),
        numbers=("ε",), whole=("protocol",), title="what is promised over a whole run",
    )  # fmt: skip
    before = ""
    for row in rows:
        if row["protocol"] not in with_modes:
            continue
        said, unit, trust = "none", "–", "all readers"
        if row["epsilon"] is not None:
            said = f"{row['epsilon']:,.3g}" + (f"\nδ = {row['delta']:.0e}" if row["delta"] else "")
            unit, trust = row["unit"], row["trust"]
        by = row["audited"]
        attack = [f"{by['shown']:.3g} of {by['promised']:.3g} of one {by['unit']}" if by else "–"] if audit else []
        shown.add_row("" if row["protocol"] == before else row["protocol"], row["mode"], said, unit, trust, *attack)
        before = row["protocol"]
    crosses: dict[str, list[str]] = {}
    for row in rows:
        if row["protocol"] not in with_modes:
            crosses.setdefault(row["crosses"] or "what it sends", []).append(row["protocol"])
    say(
        *([shown] if with_modes else []),
        *(f"{row['protocol']}, {row['mode']}: {row['known']}" for row in rows if row["known"]),
        *(f"Promises nothing, and sends {what}: {', '.join(names)}" for what, names in crosses.items()),
    )
