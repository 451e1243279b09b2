"""Runs over silos in sentences: what crossed and what each exchange is for."""

from __future__ import annotations

from fedrank.core.ledger import Ledger
from fedrank.core.words import counted
from fedrank.report import describe
from fedrank.report.run import Run
from fedrank.report.words import flows, models_in, models_of

#: A caveat on figures; pages and terminals have the sentences that say whose AUC, and why.
UNDEFINED = "Some AUCs are undefined, see the notes"

#: Exchanges between silos before the first round, and what each is for.
SETUP = ("pretrain", "probe")
EXCHANGES = {
    "pretrain": "before the first round every silo trains by itself",
    "probe": "before the first round the target judges the silos' first models",
    "train": "silos train the model on their own rows",
    "train-others": "the other silos train the model on their own rows",
    "judge": "the target judges an average of models",
    "judge-all": "every average that is tried is judged",
    "train-and-judge": "the target trains, and judges averages of the round before",
}


def ledger_words(run: Run) -> list[str]:
    """What crossed between silos and the server, exchange by exchange, in sentences: messages, models, bytes.

    A silo is asked in some rounds and not in others, so that nothing is said per silo and round.
    """
    ledger = run.ledger or Ledger()
    lines, models = [flow for flow in flows(ledger) if flow.messages], models_of(run)
    rounds = max((entry.round for entry in ledger), default=-1) + 1
    out = []
    for exchange in dict.fromkeys(flow.exchange for flow in lines):
        parts = []
        for flow in (flow for flow in lines if flow.exchange == exchange):
            who = "the server sent" if flow.sender == "server" else "silos sent"
            holds = models_in(models, flow)
            inside = f" with {counted(holds, 'model')} each" if holds else ""
            size = f"{describe.size(flow.bytes_each)}{' each' if flow.messages > 1 else ''}"
            parts.append(f"{who} {counted(flow.messages, 'message')} {flow.message}{inside}, {size}")
        turns = len({entry.round for entry in ledger if entry.exchange == exchange})
        when = "" if exchange in SETUP else f", in {counted(turns, 'round')}"
        said = EXCHANGES.get(exchange)
        out.append(f"Exchange “{exchange}”{f' ({said})' if said else ''}: {'; '.join(parts)}{when}.")
    count, transfers = sum(f.messages for f in lines), sum(f.messages * models_in(models, f) for f in lines)
    up, down = ledger.bytes_from("parties"), ledger.bytes_from("server")
    of_models = f", {counted(transfers, 'transfer')} of a model" if transfers else ""
    seeds = "" if len(run.seeds) == 1 else "; other seeds may ask other silos, and move more or less"
    which = f", target {run.details.targets[0]}" if len(run.details.targets) > 1 else ""
    out.append(
        f"{counted(rounds, 'round')} made {counted(count, 'message')}{of_models}, {describe.size(up)} up and "
        f"{describe.size(down)} down, for one run of one seed{which}{seeds}. Transport (TCP, TLS, HTTP) comes on top."
    )
    return out
