"""Sentences about runs of silos with texts: what crossed, the purpose of each exchange, what is not protected."""

from __future__ import annotations

from fedrank.core.ledger import Ledger
from fedrank.core.words import counted
from fedrank.report import describe
from fedrank.report.run import Run
from fedrank.report.words import flows
from fedrank.texts.sketch.account import PAPER_ATTACK

#: What must be said wherever a number of an unprotected run is shown, by mode.
UNPROTECTED = {
    "paper": "Mode paper: does not protect the document owner from the querier "
    f"(an attack is right in {PAPER_ATTACK.accuracy:.0%} of {PAPER_ATTACK.trials:,} trials, where "
    f"ε = {PAPER_ATTACK.epsilon:g} allows {PAPER_ATTACK.allowed:.1%})".replace("%", " %"),
    "plain": "Mode plain: no noise, nothing protects the documents",
}

#: The same of a run in which the attack in the box reads documents.
READABLE_TO_SILOS = "Documents are readable to other silos"

#: Exchanges between silos with texts and their purpose: of the setup, which takes place once, and of training.
SETUP = {
    "keys": "silos learn each other's public keys",
    "secrets": "parts of the secret of the hashes, sealed for each other silo",
    "agree": "every silo has the secret of the hashes, the server has not",
    "sum-keys": "keys of the masks for the secure sum",
    "sum-shares": "shares by which the masks of whoever drops out can be taken off",
    "sum-vectors": "masked statistics: document frequencies and counts of all words",
    "sum-unmasking": "the masks of the sum are taken off; the server learns the sum only",
    "publish": "the summed statistics; sketches of each silo's documents, sealed",
    "ask": "the summed statistics; questions about words, among decoys, sealed",
    "answer": "questions; cells of sketches, sealed",
    "receive": "what others published or answered; how many rows and cross pairs a silo trains on",
    "scale": "how all centre and scale features",
}
#: "receive" where features are centred and scaled by all silos' rows, whose sums cross.
_RECEIVE_SUMS = "what others published or answered; sums by which features are centred, without noise"
TRAINING = {
    "local": "the model that each silo trained by itself",
    "label": "their mean, by which each silo labels its cross pairs",
    "step": "the ranker, and the step of training of each silo",
}


def setup_words(run: Run) -> dict[str, str]:
    """Purpose of each exchange of the setup, by its name."""
    sums = run.setting("texts.scale") == "federation"
    return {**SETUP, "receive": _RECEIVE_SUMS} if sums else SETUP


def ledger_words(run: Run) -> list[str]:
    """Sentences about the bytes that crossed in the setup, in training and in all, for one silo and for all."""
    ledger, silos = run.ledger or Ledger(), len(run.details.silos)
    out = []
    for title, known in (("Setup, once", setup_words(run)), ("Training", TRAINING)):
        lines = [flow for flow in flows(ledger) if (flow.exchange in TRAINING) == (known is TRAINING)]
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
        f"In all: {counted(count, 'message')}, {describe.size(up)} up from {silos} silos and {describe.size(down)} "
        f"down to them, for one run of one seed{seeds}. Transport (TCP, TLS, HTTP) comes on top."
    )
    return out
