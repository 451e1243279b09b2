"""Runs of platforms in sentences: what crossed, in a round and in a batch, and what that tells."""

from __future__ import annotations

from fedrank.core.ledger import Ledger
from fedrank.report import describe
from fedrank.report.run import Run
from fedrank.report.words import Flow, flows
from fedrank.slates.report.files import SlateRun

#: Exchanges of platforms that take place in every round; the others need a batch to learn from.
ACTING = ("look", "recommend")
#: Exchanges of platforms that learn from sums over users, which take place once or now and then.
ONCE = ("bound", "clip", "release", "improve")


def kind_of(flow: Flow) -> str:
    """When platforms send a message: once a ``"run"``, in a ``"round"``, a ``"batch"``, or for a secret ``"sum"``."""
    if flow.exchange in ONCE:
        return "run"
    return "round" if flow.exchange in ACTING else "sum" if flow.exchange.startswith("secure sum") else "batch"


def rounds_of_platforms(run: Run) -> int:
    """Rounds that the ledger of a run of platforms counts: each asks every platform for its values once."""
    asked = sum(f.messages for f in flows(run.ledger or Ledger()) if (f.exchange, f.sender) == ("look", "server"))
    return asked // max(1, len(run.details.names))


def batches_of(run: Run) -> int:
    """Batches that platforms have learnt from: each names its transitions to every platform once."""
    asked = sum(f.messages for f in flows(run.ledger or Ledger()) if (f.exchange, f.sender) == ("batch", "server"))
    return asked // max(1, len(run.details.names))


def ledger_words(run: Run) -> list[str]:
    """What crossed between platforms and their coordinator: in a round, in a batch, in all, and what that tells."""
    ledger = run.ledger or Ledger()
    slates: SlateRun = run.details
    rounds, batches, each = rounds_of_platforms(run), batches_of(run), run.setting("slates.batch")
    lines = flows(ledger)
    sums = sum(f.messages for f in lines if f.message == "Advertisement") // len(slates.names)
    transitions = f" of {describe.number(each)} transitions" if each else ""
    out = []
    for kind, turns, purpose, what in (
        ("round", rounds, "To show slates", "rounds, all platforms together"),
        ("batch", batches, "To learn", f"batches{transitions}"),
        ("sum", sums, "So that sums are secret", "secure sum" if sums == 1 else "secure sums"),
    ):
        mine = [flow for flow in lines if kind_of(flow) == kind]
        up, down = (sum(f.bytes for f in mine if f.sender == s) / max(1, turns) for s in ("parties", "server"))
        if turns:
            sizes = f"{describe.size(round(up))} up and {describe.size(round(down))} down"
            out.append(f"{purpose}: {sizes} in each of {turns:,} {what}.")
    up, down = ledger.bytes_from("parties"), ledger.bytes_from("server")
    seeds = "" if len(run.seeds) == 1 else "; each of the other seeds moved as much"
    out.append(
        f"In all: {describe.size(up)} up and {describe.size(down)} down, for one run of one seed{seeds}. Transport "
        "(TCP, TLS, HTTP) comes on top."
    )
    if slates.without_feedback and batches and run.setting("slates.regress") != "nothing":
        to, of = describe.in_words(slates.without_feedback), describe.in_words(slates.with_feedback)
        verb = "receive" if len(slates.without_feedback) > 1 else "receives"
        scale, discount = run.setting("slates.reward_scale"), run.setting("slates.discount")
        divided = f", divided by {scale:g}," if isinstance(scale, float) and scale != 1 else ""
        follows = f" plus {discount:g} times what is expected to follow" if isinstance(discount, float) else ""
        out.append(
            f"What it tells: {to} {verb} targets of {of}. A target is the engagement of a "
            f"transition{divided}{follows}, so that engagement can be estimated from it, although no message names it. "
            "How well: fedrank attack slates."
        )
    return out
