"""The ledger and the privacy statement, in sentences a privacy officer can use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedrank.core.ledger import Ledger
from fedrank.report import describe
from fedrank.report.load import Run
from fedrank.report.tables import Column, Table


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
    """What crossed, in sentences; one that says so if nothing was recorded yet."""
    if run.ledger is None or not len(run.ledger):
        if run.setting("protocol") == "pooled":
            return ["Nothing is federated: all rows lie in one place."]
        if run.slates is not None and run.slates.central:
            return ["Nothing is federated: one learner sees what all platforms see."]
        return ["Nothing crossed." if run.finished else "The run has not written its ledger yet."]
    one, many = describe.party(run)
    if one == "service":
        return ["Nothing crosses: one service has everything. What its users send to it is not counted here."]
    if run.texts is not None:
        return text_ledger_words(run)
    if run.silos is not None:
        return silo_ledger_words(run)
    if run.slates is not None:
        return slate_ledger_words(run)
    out = []
    lines = flows(run.ledger)
    for flow in lines:
        named = f"{describe.size(flow.bytes_each)} (message {flow.message})"
        who = f"each {one} sent the server" if flow.sender == "parties" else f"the server sent each {one}"
        repeats = "once" if flow.rounds == 1 else f"in each of {flow.rounds:,} rounds"
        out.append(f"Exchange “{flow.exchange}”: {who} {named}, {repeats}.")
    up, down = run.ledger.bytes_from("parties"), run.ledger.bytes_from("server")
    rounds = len({entry.round for entry in run.ledger})
    cohort = f"{describe.number(round(max(f.parties for f in lines)))} {many}"
    turns = f"{rounds:,} round{'' if rounds == 1 else 's'}"
    total = f"{cohort} and {turns} make {describe.size(up)} up and {describe.size(down)} down"
    seeds = "" if len(run.seeds) == 1 else "; each of the other seeds moved as much"
    out.append(f"{total}, for one run of one seed{seeds}. Transport (TCP, TLS, HTTP) comes on top.")
    return out


#: Exchanges between silos before the first round, and what each is for.
OPENING = ("pretrain", "probe")
EXCHANGES = {
    "pretrain": "before the first round every silo trains by itself",
    "probe": "before the first round the target judges the silos' first models",
    "train": "silos train the model on their own rows",
    "train-others": "the other silos train the model on their own rows",
    "judge": "the target judges an average of models",
    "judge-all": "every average that is tried is judged",
    "train-and-judge": "the target trains, and judges averages of the round before",
}

#: Exchanges between silos with texts, and what each is for: of the opening, which takes place once, and of training.
TEXT_OPENING = {
    "keys": "silos learn each other's public keys",
    "secrets": "parts of the secret of the hashes, sealed for each other silo",
    "agree": "every silo has the secret of the hashes, the server has not",
    "sum-keys": "keys of the masks for the secure sum",
    "sum-shares": "shares by which the masks of whoever drops out can be taken off",
    "sum-vectors": "masked statistics: document frequencies and counts of all words",
    "sum-unmasking": "the masks of the sum are taken off; the server learns the sum only",
    "publish": "the summed statistics; sketches of each silo's documents",
    "ask": "the summed statistics; questions about words, among decoys",
    "answer": "questions; cells of sketches",
    "receive": "what others published or answered; how many rows and cross pairs a silo trains on",
    "scale": "how all centre and scale features",
}
#: "receive" where features are centred and scaled by all silos' rows, whose sums cross.
_RECEIVE_SUMS = "what others published or answered; sums by which features are centred, without noise"
TEXT_TRAINING = {
    "local": "the model that each silo trained by itself",
    "label": "their mean, by which each silo labels its cross pairs",
    "step": "the ranker, and the step of training of each silo",
}


def opening_words(run: Run) -> dict[str, str]:
    """What each exchange of the opening is for, in a run of silos with texts."""
    sums = run.setting("texts.scale") == "federation"
    return {**TEXT_OPENING, "receive": _RECEIVE_SUMS} if sums else TEXT_OPENING


def silo_ledger_words(run: Run) -> list[str]:
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
            inside = f" with {_counted(holds, 'model')} each" if holds else ""
            size = f"{describe.size(flow.bytes_each)}{' each' if flow.messages > 1 else ''}"
            parts.append(f"{who} {_counted(flow.messages, 'message')} {flow.message}{inside}, {size}")
        turns = len({entry.round for entry in ledger if entry.exchange == exchange})
        when = "" if exchange in OPENING else f", in {_counted(turns, 'round')}"
        said = EXCHANGES.get(exchange)
        out.append(f"Exchange “{exchange}”{f' ({said})' if said else ''}: {'; '.join(parts)}{when}.")
    count, transfers = sum(f.messages for f in lines), sum(f.messages * models_in(models, f) for f in lines)
    up, down = ledger.bytes_from("parties"), ledger.bytes_from("server")
    of_models = f", {_counted(transfers, 'transfer')} of a model" if transfers else ""
    seeds = "" if len(run.seeds) == 1 else "; other seeds may ask other silos, and move more or less"
    which = f", target {run.silos.targets[0]}" if run.silos is not None and len(run.silos.targets) > 1 else ""
    out.append(
        f"{_counted(rounds, 'round')} made {_counted(count, 'message')}{of_models}, {describe.size(up)} up and "
        f"{describe.size(down)} down, for one run of one seed{which}{seeds}. Transport (TCP, TLS, HTTP) comes on top."
    )
    return out


def text_ledger_words(run: Run) -> list[str]:
    """What crossed between silos with texts: in the opening, in training, in all; for one silo and for all."""
    ledger, silos = run.ledger or Ledger(), len(run.texts.silos) if run.texts is not None else 1
    out = []
    for title, known in (("Opening, once", opening_words(run)), ("Training", TEXT_TRAINING)):
        lines = [flow for flow in flows(ledger) if (flow.exchange in TEXT_TRAINING) == (known is TEXT_TRAINING)]
        if not lines:
            continue
        up, down = (sum(f.bytes for f in lines if f.sender == sender) for sender in ("parties", "server"))
        most = max(lines, key=lambda flow: flow.bytes)
        what = known.get(most.exchange)
        rounds = max(flow.rounds for flow in lines)
        turns = f", {describe.size(round((up + down) / silos / rounds))} a round both ways" if rounds > 1 else ""
        out.append(
            f"{title}: a silo sent {describe.size(round(up / silos))} and received "
            f"{describe.size(round(down / silos))}{turns}. Most of it: “{most.exchange}”{f' ({what})' if what else ''}."
        )
    up, down, count = ledger.bytes_from("parties"), ledger.bytes_from("server"), sum(e.messages for e in ledger)
    seeds = "" if len(run.seeds) == 1 else "; other seeds are cut otherwise, and messages have the same size"
    out.append(
        f"In all: {_counted(count, 'message')}, {describe.size(up)} up from {silos} silos and {describe.size(down)} "
        f"down to them, for one run of one seed{seeds}. Transport (TCP, TLS, HTTP) comes on top."
    )
    return out


#: Exchanges of platforms that take place in every round; the others need a batch to learn from.
ACTING = ("look", "recommend")


def kind_of(flow: Flow) -> str:
    """When platforms send a message: in a ``"round"``, in a ``"batch"``, or so that a ``"sum"`` is secret."""
    return "round" if flow.exchange in ACTING else "sum" if flow.exchange.startswith("secure sum") else "batch"


def rounds_of_platforms(run: Run) -> int:
    """Rounds that the ledger of a run of platforms counts: each asks every platform for its values once."""
    asked = sum(f.messages for f in flows(run.ledger or Ledger()) if (f.exchange, f.sender) == ("look", "server"))
    return asked // max(1, len(run.slates.names) if run.slates is not None else 1)


def batches_of(run: Run) -> int:
    """Batches that platforms have learnt from: each names its moments to every platform once."""
    asked = sum(f.messages for f in flows(run.ledger or Ledger()) if (f.exchange, f.sender) == ("batch", "server"))
    return asked // max(1, len(run.slates.names) if run.slates is not None else 1)


def slate_ledger_words(run: Run) -> list[str]:
    """What crossed between platforms and their coordinator: in a round, in a batch, in all, and what that tells."""
    ledger, slates = run.ledger or Ledger(), run.slates
    assert slates is not None
    rounds, batches, each = rounds_of_platforms(run), batches_of(run), run.setting("slates.batch")
    lines = flows(ledger)
    sums = sum(f.messages for f in lines if f.message == "Advertisement") // len(slates.names)
    moments = f" of {describe.number(each)} moments" if each else ""
    out = []
    for kind, turns, purpose, what in (
        ("round", rounds, "To show slates", "rounds, all platforms together"),
        ("batch", batches, "To learn", f"batches{moments}"),
        ("sum", sums, "So that sums are secret", "secure sums"),
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
    if slates.without_feedback and batches:
        to, of = describe.in_words(slates.without_feedback), describe.in_words(slates.with_feedback)
        verb = "receive" if len(slates.without_feedback) > 1 else "receives"
        scale, discount = run.setting("slates.reward_scale"), run.setting("slates.discount")
        divided = f", divided by {scale:g}," if isinstance(scale, float) and scale != 1 else ""
        follows = f" plus {discount:g} times what is expected to follow" if isinstance(discount, float) else ""
        out.append(
            f"What it tells: {to} {verb} targets of {of}. A target is the engagement of a moment{divided}{follows}, so "
            "that engagement can be estimated from it, although no message names it. How well: fedrank attack slates."
        )
    return out


def models_of(run: Run) -> dict[str, int]:
    """How many models a message of each type holds; one has as many numbers as the model that crosses."""
    known = 4 * int((run.model or {}).get("crossing_parameters") or 0)
    weights = (int(f["bytes"]) for of in run.messages.values() for f in of if f.get("name") == "weights")
    one = known or max(weights, default=0)
    sizes = {name: [int(f.get("bytes") or 0) for f in of] for name, of in run.messages.items()}
    return {name: sum(size // one for size in of if one and size % one == 0) for name, of in sizes.items()}


def models_in(models: Mapping[str, int], flow: Flow) -> int:
    """Of a message in one exchange; a type that has several sizes is told by its exchange."""
    return models.get(f"{flow.message} ({flow.exchange})", models.get(flow.message, 0))


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def ledger_table(run: Run) -> Table:
    """The ledger added up: one row a message type and size."""
    one, many = describe.party(run)
    columns = (
        Column("exchange", "exchange"),
        Column("message", "message"),
        Column("from", "from"),
        Column("to", "to"),
        Column("bytes_each", "bytes each", numeric=True),
        Column("messages", "messages", numeric=True),
        Column("rounds", "rounds", numeric=True),
        Column("total", "in total", numeric=True),
    )
    rows = []
    for flow in flows(run.ledger or Ledger()):
        every = "silos that are asked" if run.silos is not None else f"every {one}"
        ends = (many, "server") if flow.sender == "parties" else ("server", every)
        row = {"exchange": flow.exchange, "message": flow.message, "from": ends[0], "to": ends[1]}
        numbers = {"bytes_each": flow.bytes_each, "messages": flow.messages, "rounds": flow.rounds}
        rows.append({**row, **numbers, "total": describe.size(flow.bytes)})
    return Table("Everything that crossed (one seed)", columns, tuple(rows))


def fields_table(run: Run) -> Table | None:
    """Every field of every message type, or None if the run did not write them down."""
    if not run.messages:
        return None
    rows = [
        {
            "message": message,
            "field": f.get("name"),
            "type": f.get("dtype"),
            "bytes": f.get("bytes"),
            "meaning": f.get("meaning"),
        }
        for message, fields in run.messages.items()
        for f in fields
    ]
    columns = (
        Column("message", "message"),
        Column("field", "field"),
        Column("type", "type"),
        Column("bytes", "bytes", numeric=True),
        Column("meaning", "meaning"),
    )
    return Table(
        "What each message holds", columns, tuple(rows), ("There are no other fields: a message has a fixed size.",)
    )


def epsilon(privacy: Mapping[str, Any] | None, key: str) -> float | None:
    """An ε of ``privacy.json``: a number, ∞ where there is no randomisation, None where it is not stated."""
    if not privacy:
        return None
    value = privacy.get(key)
    if value is None:
        return math.inf if privacy.get("p") == 1 or privacy.get("mechanism") == "none" else None
    return float(value)


def epsilon_text(value: float | None) -> str:
    """An ε for a reader: two decimals below 100, then whole.

    >>> epsilon_text(4.4998), epsilon_text(4500.2), epsilon_text(math.inf), epsilon_text(None)
    ('4.50', '4,500', '∞', 'not stated')
    """
    if value is None:
        return "not stated"
    return "∞" if math.isinf(value) else f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def privacy_words(run: Run) -> list[str]:
    """What the mechanism promises, by unit, in sentences."""
    privacy = run.privacy
    if not privacy:
        return ["The run has not written its privacy statement yet."]
    if said := privacy.get("words"):  # mechanisms that speak for themselves
        return [str(sentence) for sentence in said]
    one, _ = describe.party(run)
    each = epsilon(privacy, "epsilon_interaction")
    if each is not None and math.isinf(each):
        return [
            f"Nothing is randomised: each {one} reports its true values, and there is no bound on what they reveal "
            "(ε = ∞).",
            f"Raw queries, documents and clicks still stay on the {one}.",
        ]
    out = []
    p, n = privacy.get("p"), privacy.get("values")
    if p is not None and n is not None:
        out.append(
            f"Mechanism: {privacy.get('mechanism', 'randomised response')}. With probability {describe.number(p)} an "
            f"interaction's value is reported as it is; otherwise one of the other {n - 1} values is reported, each as "
            f"likely. This happens on the {one}."
        )
    else:
        out.append(f"Mechanism: {privacy.get('mechanism', 'not stated')}, applied on the {one}.")
    out.append(f"One interaction: ε = {epsilon_text(each)}, without any trust in the server." + _odds(each))
    message = epsilon(privacy, "epsilon_message")
    per_round = privacy.get("interactions_per_round")
    if message is not None:
        holds = f", which covers {describe.number(per_round)} interactions" if per_round else ""
        out.append(f"One message{holds}: ε = {epsilon_text(message)}.")
    basic, pld = epsilon(privacy, "epsilon_user_basic"), epsilon(privacy, "epsilon_user_pld")
    rounds = privacy.get("rounds")
    if basic is not None:
        over = f" who takes part in all {describe.number(rounds)} rounds" if rounds else ""
        tighter = ""
        if pld is not None and privacy.get("delta") is not None:
            tighter = f"; {epsilon_text(pld)} at δ = {describe.number(privacy['delta'])} by privacy loss distributions"
        out.append(
            f"One user{over}: ε = {epsilon_text(basic)} by adding up{tighter}."
            + _odds(pld if pld is not None else basic)
        )
    return out


def _odds(value: float | None) -> str:
    # ε bounds the factor by which a report can change an observer's odds between two values: e^ε.
    if value is None:
        return ""
    if value > 10:
        return f" That allows a factor of e^{epsilon_text(value)} on an observer's odds: too large to be a promise."
    return f" What is reported changes an observer's odds by a factor of at most {math.exp(value):,.3g}."
