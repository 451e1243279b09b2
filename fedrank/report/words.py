"""The ledger and the privacy statement, in sentences a privacy officer can use."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from fedrank.core.ledger import Ledger
from fedrank.report import describe, wording
from fedrank.report.run import Run
from fedrank.report.tables import Column, Table, table_of


@dataclass(frozen=True)
class Flow:
    """All messages of one type and size that crossed in one direction.

    Attributes:
        exchange: Name of the exchange.
        message: Name of the message type.
        sender: ``"server"`` or ``"parties"``.
        bytes_each: Bytes of one message.
        messages: How many, over all rounds.
        rounds: In how many rounds.
    """

    exchange: str
    message: str
    sender: str
    bytes_each: int
    messages: int
    rounds: int

    @property
    def bytes(self) -> int:
        """Bytes of all of them."""
        return self.messages * self.bytes_each

    @property
    def parties(self) -> float:
        """Parties that sent or received it in a round, on average."""
        return self.messages / max(self.rounds, 1)


def flows(ledger: Ledger) -> list[Flow]:
    """The ledger added up by exchange, message, sender and size, in order of appearance."""
    messages: dict[tuple[str, str, str, int], int] = {}
    rounds: dict[tuple[str, str, str, int], set[int]] = {}
    for entry in ledger:
        key = (entry.exchange, entry.message, entry.sender, entry.bytes_each)
        messages[key] = messages.get(key, 0) + entry.messages
        rounds.setdefault(key, set()).add(entry.round)
    return [Flow(*key, messages[key], len(rounds[key])) for key in messages]


def ledger_words(run: Run) -> list[str]:
    """The messages that crossed, in sentences; one that says so if nothing was recorded yet."""
    if run.ledger is None or not len(run.ledger):
        return run.shown.nothing_crossed(run) or [
            "Nothing crossed." if run.finished else "The run has not written its ledger yet."
        ]
    own = run.shown.ledger_words(run)
    if own is not None:
        return own
    one, many = describe.party(run)
    out = []
    lines = flows(run.ledger)
    fewer = run.setting("population") is not None  # of all that there are, some take part in a round
    for flow in lines:
        named = f"{wording.size(flow.bytes_each)} (message {flow.message})"
        some = f"{wording.number(round(flow.parties))} of the {many}" if fewer else f"each {one}"
        who = f"{some} sent the server" if flow.sender == "parties" else f"the server sent {some}"
        named = f"{named} each" if fewer else named
        repeats = "once" if flow.rounds == 1 else f"in each of {flow.rounds:,} rounds"
        out.append(f"Exchange “{flow.exchange}”: {who} {named}, {repeats}.")
    up, down = run.ledger.bytes_from("parties"), run.ledger.bytes_from("server")
    rounds = len({entry.round for entry in run.ledger})
    cohort = f"{wording.number(round(max(f.parties for f in lines)))} {many}"
    turns = f"{rounds:,} round{'' if rounds == 1 else 's'}"
    total = f"{cohort} and {turns} make {wording.size(up)} up and {wording.size(down)} down"
    seeds = "" if len(run.seeds) == 1 else "; each of the other seeds moved as much"
    out.append(f"{total}, for one run of one seed{seeds}. Transport (TCP, TLS, HTTP) comes on top.")
    return out


def models_of(run: Run) -> dict[str, int]:
    """Number of models in a message of each type; one has as many numbers as the model that crosses."""
    known = 4 * int((run.model or {}).get("crossing_parameters") or 0)
    weights = (int(f["bytes"]) for of in run.messages.values() for f in of if f.get("name") == "weights")
    one = known or max(weights, default=0)
    sizes = {name: [int(f.get("bytes") or 0) for f in of] for name, of in run.messages.items()}
    return {name: sum(size // one for size in of if one and size % one == 0) for name, of in sizes.items()}


def models_in(models: Mapping[str, int], flow: Flow) -> int:
    """Of a message in one exchange; a type that has several sizes is told by its exchange."""
    return models.get(f"{flow.message} ({flow.exchange})", models.get(flow.message, 0))


def ledger_table(run: Run) -> Table:
    """The ledger added up: one row a message type and size."""
    _, many = describe.party(run)
    ends = {"parties": (many, "server"), "server": ("server", run.shown.recipients(run))}
    columns = (
        Column("exchange", "exchange"),
        Column("message", "message", code=True),
        Column("from", "from"),
        Column("to", "to"),
        Column("bytes_each", "bytes each", numeric=True),
        Column("messages", "messages", numeric=True),
        Column("rounds", "rounds", numeric=True),
        Column("total", "in total", numeric=True),
    )
    rows = [
        (f.exchange, f.message, *ends[f.sender], f.bytes_each, f.messages, f.rounds, wording.size(f.bytes))
        for f in flows(run.ledger or Ledger())
    ]
    return table_of("Everything that crossed (one seed)", columns, rows)


def fields_table(run: Run) -> Table | None:
    """Every field of every message type, or None if the run did not write them down."""
    if not run.messages:
        return None
    columns = (
        Column("message", "message"),
        Column("field", "field", code=True),
        Column("type", "type", code=True),
        Column("bytes", "bytes", numeric=True),
        Column("meaning", "meaning"),
    )
    about = ("name", "dtype", "bytes", "meaning")
    rows = [(message, *map(field.get, about)) for message, fields in run.messages.items() for field in fields]
    notes = ("There are no other fields: a message has a fixed size.",)
    return table_of("What each message holds", columns, rows, notes)


def privacy_words(run: Run) -> list[str]:
    """The privacy promises, and whom one has to trust, in sentences."""
    if run.privacy is None:
        return ["The run has not written its privacy statement yet."]
    return [
        *run.privacy.words,
        f"Whom one has to trust for this: {run.privacy.trust}.",
        *([_audit_words(run)] if run.privacy.audit else ()),
    ]


def _audit_words(run: Run) -> str:
    """The ε that an attack shows beside the promise, or the command that runs one."""
    if (found := run.audited) is None:
        command = f"fedrank privacy audit {shlex.quote(str(run.path))}"
        return f"What an attack on the code that devices run shows of this: {command}"
    shown = (
        f"An attack on the code that devices run ({found.mechanism}) shows ε ≥ {found.shown:.3g} for one {found.unit}, "
        f"with {100 * found.confidence:g} % confidence, from {found.trials:,} messages of two users as different as "
        "can be"
    )
    if found.broken:
        return f"{shown}. {found.promised:.3g} is promised: the promise does not hold."
    return f"{shown}; {found.promised:.3g} is promised."
