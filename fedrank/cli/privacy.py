"""``fedrank privacy``: what mechanisms promise and what they cost, in numbers."""

from __future__ import annotations

from cyclopts import App

from fedrank.cli.terminal import AsJson, add_plug_ins, print_json, say
from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import DELTA, Unit

app = App(name="privacy", help="Attack what is promised, audit mechanisms, plan with one ε; calculators.")
for _name, _place, _help in (
    ("attack", "attack:app", "Attack what is promised to be private: measured beside promised (fedrank-zoo)."),
    ("audit", "attack:audit", "Attack mechanisms of privacy and print what is shown beside what is promised."),
    ("plan", "plan:plan", "Plan what devices can learn with one ε over all of a user's training."),
):
    app.command(f"fedrank.cli.{_place}", name=_name, help=_help)
add_plug_ins(app, "privacy")


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
