"""``fedrank privacy``: what mechanisms promise and what they cost, in numbers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cyclopts import App

from fedrank.cli.terminal import AsJson, print_json, say, table
from fedrank.core import registry
from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import DELTA, Unit

app = App(name="privacy", help="Attack what is promised, audit mechanisms, plan with one ε; calculators.")
for _name, _place, _help in (
    ("attack", "attack:app", "Attack what is promised to be private: measured beside promised (fedrank-zoo)."),
    ("audit", "attack:audit", "Attack mechanisms of privacy and print what is shown beside what is promised."),
    ("plan", "plan:plan", "Plan what devices can learn with one ε over all of a user's training."),
):
    app.command(f"fedrank.cli.{_place}", name=_name, help=_help)
for _name, _command in registry.commands_below("privacy").items():
    app.command(_command, name=_name)


@app.command
def epsilon(
    *,
    n: int = 11,
    p: float | None = None,
    epsilon: float | None = None,
    interactions: int = 4,
    rounds: int = 250,
    delta: float = DELTA,
    antithetic: bool = True,
    as_json: AsJson = False,
) -> None:
    """ε of randomised response for a p, or the p that gives an ε; with what it adds up to over a run.

    Args:
        n: Number of values of the metric; 11 for MaxRR over ten results.
        p: Probability that the truth is sent.
        epsilon: ε of one interaction, in nats. Give this or p.
        interactions: Interactions in one message.
        rounds: Messages one person sends.
        delta: δ of the ε over the run that is composed with privacy loss distributions.
        antithetic: A message carries two halves of its interactions.
    """
    from fedrank.privacy import randomised_response
    from fedrank.privacy.accounts.randomised_response import account

    if (p is None) == (epsilon is None):
        raise ConfigError("Give either --p, to get ε, or --epsilon, to get p.")
    p = randomised_response.probability(epsilon, n) if p is None else p  # type: ignore[arg-type]
    report = account(p=p, n=n, interactions_per_message=interactions, rounds=rounds, antithetic=antithetic, delta=delta)
    if as_json:
        print_json(report.as_json())
        return

    message = f"{report.epsilon(Unit.MESSAGE):.4f} of a message of {interactions} interactions"
    say(
        f"p = {p:.4f}, the probability of the truth, of {n:,} values: ε = {report.epsilon(Unit.INTERACTION):.4f} of an "
        f"interaction, {message}.",
        *report.words,
    )


@app.command
def overview(*protocols: str, audit: bool = False, trials: int | None = None, as_json: AsJson = False) -> None:
    """List the promises of every protocol, with its defaults and in its private modes: unit, ε, trust, cost.

    Args:
        protocols: Names of protocols; all, if none is named.
        audit: Attack each mechanism as well, and show the ε that the attack proves with 99 % confidence (minutes).
        trials: Messages that an attack draws in each of its two worlds.
    """
    from fedrank.engine.methods import method
    from fedrank.engine.promises import all_promised
    from fedrank.privacy.audit import AUDITS, audit_mechanism

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
