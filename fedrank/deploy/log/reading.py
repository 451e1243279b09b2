"""Reading on in a log: every entry once, by whoever watches it, so that each round is seen to have one model.

A witness that only compares heads sees that a log grows, and not what with. One that reads it (``--peers``,
``--check``) finds two models of one round, whichever devices they were shown to, and cosigns no head of it any more.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedrank.deploy.http.client import HttpClient
from fedrank.deploy.log.entries import newest_round, wrong_models
from fedrank.deploy.log.note import Checkpoint
from fedrank.deploy.log.proof import Answer, UnprovenError
from fedrank.deploy.log.tree import Grown, leaf_hash

#: Largest page of entries in bytes, and most pages that are read at once.
_PAGE, _PAGES = 4 << 20, 1000


@dataclass(frozen=True)
class Reading:
    """How far a log was read.

    Attributes:
        size: Number of entries that were read.
        frontier: Hashes of the tree over them.
        round: Round of the newest model among them; None: there was none that said one.
        wrong: What was wrong with its models; empty: nothing.
    """

    size: int = 0
    frontier: tuple[bytes, ...] = ()
    round: int | None = None
    wrong: str = ""


def read_on(hub: HttpClient, head: Checkpoint, before: Reading) -> Reading:
    """Read the entries of a log up to a head.

    Args:
        hub: Shows the log.
        head: A head of it, signed by it.
        before: How far it was read before.

    Raises:
        UnprovenError: The hub does not show the entries that this head is of.
        OSError: It does not answer.
    """
    tree, last, wrong = Grown(before.size, before.frontier), before.round, before.wrong
    for _ in range(_PAGES):
        if tree.size >= head.size:
            break
        page = hub.request("GET", f"/v1/log/entries/{tree.size}", "", limit=_PAGE)
        entries = Answer.entries_in(page.body)[: head.size - tree.size] if page.status == 200 else ()
        if not entries:
            raise UnprovenError(f"its hub shows no entry from number {tree.size} on")
        wrong, last = wrong or wrong_models(entries, last), newest_round(entries, last)
        for entry in entries:
            tree.append(leaf_hash(entry))
    if tree.size != head.size or tree.root() != head.root:
        raise UnprovenError(f"its hub shows {tree.size} entries, and they are not those of its head of {head.size}")
    return Reading(tree.size, tree.frontier, last, wrong)
