"""Team drafting: one list made of two rankers' lists, so that the same clicks of the same user judge both.

After Radlinski, Kurup and Joachims, "How Does Clickthrough Data Reflect Retrieval Quality?", CIKM 2008, Section 4.1.
The two rankers take turns in pairs of turns. Who goes first in a pair is tossed; each takes its best document that is
not in the list yet. In one point this is a variant: where both want the same document at the start of a pair, the list
gets it, and it belongs to both. There it belongs to who goes first, and a click on it favours one of them by chance.

**Where clicks do not depend on the documents, neither wins.** The documents of a pair are the same whoever goes first,
so that the other toss gives the same list but for the order within the pair, with the two owners in each other's place.

A device drafts with :func:`draft`. A simulator does so with JAX (:mod:`fedrank.ranking.sessions.reference`) or in its
kernel (:mod:`fedrank.ranking.sessions.kernel`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:  # a device, which runs this, has NumPy only
    from jaxtyping import Integer

#: Whose a document of the list is: of θ − σv, of both, of θ + σv.
MINUS, BOTH, PLUS = -1, 0, 1


class Drafted(NamedTuple):
    """A list of two rankers.

    Attributes:
        order: int64 [documents]: the documents, best first.
        team: int64 [documents]: whose each is: 1 of the first ranker, −1 of the second, 0 of both.
    """

    order: Integer[np.ndarray, " documents"]
    team: Integer[np.ndarray, " documents"]


def draft(
    first: Integer[np.ndarray, " documents"], second: Integer[np.ndarray, " documents"], depth: int, toss: int
) -> Drafted:
    """One list of two, drafted down to a rank, and further down as the first ranker has what is left.

    Args:
        first: int [documents], a ranker's documents, best first.
        second: int [documents], the other's: the same documents.
        depth: Ranks that are drafted; documents below belong to neither ranker, and their clicks do not count.
        toss: 32 random bits: bit r says who goes first in a pair of turns that starts at rank r + 1, 1 for ``first``.

    >>> order, team = draft(np.array([0, 1, 2]), np.array([0, 2, 1]), 3, 0b010)
    >>> order.tolist(), team.tolist()
    ([0, 1, 2], [0, 1, -1])
    """
    lists, at, taken = (list(map(int, first)), list(map(int, second))), [0, 0], set()
    order: list[int] = []
    team: list[int] = []
    starts, whose = True, 0
    while len(order) < min(depth, len(lists[0])):
        for i in (0, 1):
            while lists[i][at[i]] in taken:
                at[i] += 1
        best = [lists[i][at[i]] for i in (0, 1)]
        if starts and best[0] == best[1]:
            chosen, owner = best[0], BOTH
        else:
            whose = (0 if toss >> len(order) & 1 else 1) if starts else 1 - whose
            chosen, owner = best[whose], (PLUS, MINUS)[whose]
            starts = not starts
        order.append(chosen)
        team.append(owner)
        taken.add(chosen)
    rest = [document for document in lists[0] if document not in taken]
    return Drafted(np.array(order + rest, np.int64), np.array(team + [BOTH] * len(rest), np.int64))


def credit_clicks(pattern: int, team: Integer[np.ndarray, " ranks"]) -> tuple[int, int]:
    """The clicks as each ranker sees them: on its own documents and on those of both.

    Args:
        pattern: The clicks, bit i for rank i + 1.
        team: int [ranks or more], of :class:`Drafted`.

    Returns:
        A pattern for the first ranker and one for the second.
    """
    of_first = sum(1 << rank for rank in range(pattern.bit_length()) if team[rank] != MINUS)
    of_second = sum(1 << rank for rank in range(pattern.bit_length()) if team[rank] != PLUS)
    return pattern & of_first, pattern & of_second
