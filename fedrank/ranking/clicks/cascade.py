"""Users who read from the top, click what looks relevant, and may stop after a click.

The dependent click model with label-dependent probabilities that the online learning-to-rank literature simulates with
(Guo et al. 2009; Kharitonov 2019, Section 5 and Table 1): a document with label r at an examined rank is clicked with
probability P(click | r); after a click the user stops with probability P(stop | r); without a click the user always
reads on, down to ``depth``. (Some published code also draws the stop after an examined document that was *not* clicked;
that is another model.)

Two things more make the other models of :mod:`fedrank.ranking.clicks.browsing`. ``examine`` is the probability that a
rank is looked at, given how far above it the last click was. ``abandon`` is the probability that a user who did not
click leaves.

A session's clicks are a *pattern*: an integer whose bit i is set when the document at rank i + 1 was clicked. With ten
ranks there are 1,024 of them. :func:`pattern_from` draws one; :func:`pattern_probabilities` gives the probability of
each, so that a ranking can be judged without sampling noise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, UInt32

from fedrank.core.arrays import AnyArray
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jnp
from fedrank.core.registry import Entry, Registry
from fedrank.core.rng import uniform
from fedrank.metrics.offline import MOST_LABEL


@dataclass(frozen=True)
class CascadeUser:
    """A user who goes down a list of results.

    Attributes:
        name: Such as ``"navigational"``.
        click: P(click | label, examined), one entry a grade, in [0, 1].
        stop: P(stop | label, click), one entry a grade, in [0, 1].
        depth: How many results are shown and may be read.
        examine: P(examined), ``depth`` rows; entry d − 1 of row r is that of rank r where the last click was d ranks
            above, and the r-th that without a click. Empty: every rank that is reached is examined.
        abandon: P(stop | no click), at each rank that is reached.
    """

    name: str
    click: tuple[float, ...]
    stop: tuple[float, ...]
    depth: int = 10
    examine: tuple[tuple[float, ...], ...] = ()
    abandon: float = 0.0

    def __post_init__(self):
        if len(self.click) != len(self.stop) or not self.click:
            raise ConfigError(
                f"click model {self.name!r} needs one click and one stop probability a grade, got "
                f"{len(self.click)} and {len(self.stop)}."
            )
        for what, values in (("click", self.click), ("stop", self.stop)):
            for grade, value in enumerate(values):
                if not 0.0 <= value <= 1.0:
                    raise ConfigError(f"P({what} | {grade}) of {self.name!r} must be in [0, 1], got {value}.")
        if not 1 <= self.depth <= 16:
            raise ConfigError(f"depth of {self.name!r} must be in 1..16 (patterns are bit masks), got {self.depth}.")
        if self.examine and [len(row) for row in self.examine] != list(range(1, self.depth + 1)):
            raise ConfigError(
                f"examine of {self.name!r} needs {self.depth} rows of 1 to {self.depth} probabilities, one for each "
                "rank that the last click may have been at, and one for none."
            )
        if not all(0.0 <= value <= 1.0 for row in (*self.examine, (self.abandon,)) for value in row):
            raise ConfigError(f"examine and abandon of {self.name!r} must be in [0, 1].")

    @property
    def cascades(self) -> bool:
        """True if every rank that is reached is examined, and only a click ends a session."""
        return not self.examine and self.abandon == 0

    @property
    def grades(self) -> int:
        """Number of relevance grades the user knows; labels are 0 .. grades − 1."""
        return len(self.click)


#: Most grades, of labels 0 .. 30: beyond, a gain of 2^label leaves 32 bits.
MAX_GRADES = MOST_LABEL + 1

#: Click models by name, the entry points of ``fedrank.clicks``; each makes the user for a number of grades.
USERS: Registry[Callable[[int, int], CascadeUser]] = Registry("click model", "fedrank.clicks")

# Kharitonov 2019, Table 1 (3 grades); Wang et al. 2021 and Oosterhuis & de Rijke 2018 (5 grades).
# Almost random: Hofmann et al. 2013 (3 grades), Oosterhuis & de Rijke 2018 (5 grades).
_TABLES = {
    "perfect": {
        3: ((0.0, 0.5, 1.0), (0.0, 0.0, 0.0)),
        5: ((0.0, 0.2, 0.4, 0.8, 1.0), (0.0, 0.0, 0.0, 0.0, 0.0)),
    },
    "navigational": {
        3: ((0.05, 0.5, 0.95), (0.2, 0.5, 0.9)),
        5: ((0.05, 0.3, 0.5, 0.7, 0.95), (0.2, 0.3, 0.5, 0.7, 0.9)),
    },
    "informational": {
        3: ((0.4, 0.7, 0.9), (0.1, 0.3, 0.5)),
        5: ((0.4, 0.6, 0.7, 0.8, 0.9), (0.1, 0.2, 0.3, 0.4, 0.5)),
    },
    "near-random": {
        3: ((0.4, 0.5, 0.6), (0.5, 0.5, 0.5)),
        5: ((0.4, 0.45, 0.5, 0.55, 0.6), (0.5, 0.5, 0.5, 0.5, 0.5)),
    },
}


def check_grades(grades: int) -> None:
    """Refuse more grades than click models know.

    Raises:
        ConfigError: There are fewer than 1 or more than :data:`MAX_GRADES`.
    """
    if not 1 <= grades <= MAX_GRADES:
        raise ConfigError(f"click models know labels up to {MAX_GRADES - 1}, got labels up to {grades - 1}.")


def _entry(name: str, summary: str, citation: str = "guo2009ccm") -> Entry[Callable[[int, int], CascadeUser]]:
    def make(grades: int, depth: int = 10) -> CascadeUser:
        check_grades(grades)
        # Two grades (relevant or not) use the ends of the three-grade table; four use the first four of five.
        tables = _TABLES[name]
        if grades == 2:
            click, stop = (table[::2] for table in tables[3])
        elif grades <= 5:
            click, stop = tables[3 if grades <= 3 else 5]
        else:
            places = np.linspace(0, 4, grades)
            click, stop = (tuple(np.interp(places, range(5), table).tolist()) for table in tables[5])
        return CascadeUser(name, click, stop, depth)

    return Entry(name, make, summary, citation)


PERFECT = _entry(
    "perfect", "Clicks what is relevant, the more surely the more it is, and nothing else; reads to the end."
)
NAVIGATIONAL = _entry("navigational", "Looks for one page: clicks little that is bad, stops after a good click.")
INFORMATIONAL = _entry("informational", "Gathers: clicks much, good or bad, and seldom stops.")
NEAR_RANDOM = _entry("near-random", "Clicks what is relevant hardly more often than the rest.", "hofmann2013balancing")


def cascade(name: str, grades: int = 3, depth: int = 10) -> CascadeUser:
    """The user of that name for labels 0 .. grades − 1.

    Args:
        name: Of a click model, such as ``navigational``.
        grades: Number of relevance grades in the data, 1 to :data:`MAX_GRADES`: 3 as in LETOR 4.0, 5 as in MSLR and
            Yahoo. Two grades take the ends of the three-grade table, four the first four of the five-grade table, and
            more lie at equal distances on the lines between the five.
        depth: Results shown.

    Raises:
        UnknownNameError: No such click model.
        ConfigError: There are more grades than click models know.

    >>> cascade("navigational").click
    (0.05, 0.5, 0.95)
    """
    return USERS.get(name)(grades, depth)


def _examination(user: CascadeUser) -> Float[np.ndarray, "depth depth"]:
    """``examine`` as a square, float64 [rank, ranks since the last click − 1]; 1 where there is nothing to say."""
    examine = np.ones((user.depth, user.depth))
    for rank, row in enumerate(user.examine):
        examine[rank, : rank + 1] = row
    return examine


def decision_tables(
    users: tuple[CascadeUser, ...],
) -> tuple[Float[np.ndarray, "users depth depth grades"], Float[np.ndarray, "users depth depth grades 2"]]:
    """Thresholds of a uniform draw u, by user, rank, ranks since the last click − 1, and label.

    Returns:
        P(click); and P(click and stop) beside 1 − P(no click and stop), float32.

    Raises:
        ConfigError: No user, or users who know different grades or read to different depths.
    """
    if not users or len({(user.grades, user.depth) for user in users}) != 1:
        known = ", ".join(f"{user.name} ({user.grades} grades, depth {user.depth})" for user in users)
        raise ConfigError(
            f"users must be one or more who know the same grades and read as deep; got {known or 'none'}."
        )
    click, leave = [], []
    for user in users:
        each = _examination(user)[..., None] * np.asarray(user.click, np.float64)
        click.append(each)
        leave.append(np.stack([each * np.asarray(user.stop, np.float64), 1 - (1 - each) * user.abandon], axis=-1))
    return np.asarray(click, np.float32), np.asarray(leave, np.float32)


def pattern_from(
    click: Float[AnyArray, "depth depth grades"],
    leave: Float[AnyArray, "depth depth grades 2"],
    labels: Int[AnyArray, "*lists ranks"],
    where: Bool[AnyArray, "*lists ranks"],
    rng_bits: UInt32[AnyArray, "*lists ranks"],
) -> Int[Array, "*lists"]:
    """The pattern of one session, from given draws: one uniform number u a rank.

    u < P(stop)·P(click) is a click after which the user stops, u < P(click) a click after which the user reads on, and
    u ≥ 1 − P(abandon)·(1 − P(click)) the end without a click: given a click, u / P(click) is uniform again, so one draw
    decides all exactly.

    Args:
        click: float32 [depth, depth, grades], of a user's :func:`decision_tables`.
        leave: float32 [depth, depth, grades, 2], likewise.
        labels: int32 [..., k], labels of the shown documents, best rank first; k ≤ ``depth``.
        where: bool [..., k].
        rng_bits: uint32 [..., k]: random bits for each rank.

    Returns:
        int32 [...]: bit i is set when the document at rank i + 1 was clicked.
    """
    u = uniform(rng_bits, jnp)
    pattern = jnp.zeros(u.shape[:-1], jnp.int32)
    since, reading = pattern, jnp.ones(u.shape[:-1], bool)
    for rank in range(u.shape[-1]):
        shown, drawn = jnp.asarray(where)[..., rank], u[..., rank]
        at = (rank, since, jnp.asarray(labels)[..., rank])
        clicks = reading & shown & (drawn < jnp.asarray(click)[at])
        leaves = jnp.asarray(leave)[at]
        pattern |= jnp.where(clicks, 1 << rank, 0)
        reading &= ~shown | ((drawn >= leaves[..., 0]) & (drawn < leaves[..., 1]))
        since = jnp.where(clicks, 0, since + 1)
    return pattern


def pattern_probabilities(
    user: CascadeUser,
    labels: Int[AnyArray, "*lists ranks"],
    where: Bool[AnyArray, "*lists ranks"],
) -> Float[AnyArray, "*lists patterns"]:
    """The probability of every click pattern, in closed form.

    Rank by rank, the probability of each pattern so far splits in two: the user is still reading, or has left. A rank
    doubles the number of patterns; the new bit is its highest, so the patterns without and with a click at this rank
    are the two halves of the doubled array. A pattern says where its last click was.

    Args:
        user: The user.
        labels: int32 [..., k], labels of the shown documents, best rank first.
        where: bool [..., k].

    Returns:
        float32 [..., 2**k], sums to 1 over the last axis.

    >>> always = CascadeUser("always", click=(1.0,), stop=(0.25,))
    >>> pattern_probabilities(always, np.zeros(2, np.int32), np.ones(2, bool)).tolist()
    [0.0, 0.25, 0.0, 0.75]
    """
    labels = np.where(where, labels, 0)
    click, stop = (np.asarray(table, np.float32)[labels] for table in (user.click, user.stop))
    click = np.where(where, click, np.float32(0))
    reading = np.ones((*labels.shape[:-1], 1), np.float32)
    left = np.zeros_like(reading)
    last = np.full(1, -1)  # rank of each pattern's last click
    for rank in range(labels.shape[-1]):
        c, s = click[..., rank, None], stop[..., rank, None]
        if user.examine:
            c = c * np.asarray(user.examine[rank], np.float32)[rank - last - 1]
        clicked, not_clicked = reading * c, reading * (1 - c)
        gone, last = left, np.concatenate([last, np.full_like(last, rank)])
        if user.abandon:
            leaves = not_clicked * np.where(where[..., rank, None], np.float32(user.abandon), np.float32(0))
            gone, not_clicked = left + leaves, not_clicked - leaves
        left = np.concatenate([gone, clicked * s], axis=-1)
        reading = np.concatenate([not_clicked, clicked * (1 - s)], axis=-1)
    return reading + left


def inverted_user(user: CascadeUser) -> CascadeUser:
    """The user with the click probabilities of the grades in reverse order: the worst document is the most attractive.

    The stop probabilities stay with their grades, so that only what is clicked is a lie. The poisoned click model of
    the published studies is this one of the *perfect* user (P(click) = 1, 0.5, 0 for grades 0, 1, 2; it never stops),
    whatever the honest users are.

    Args:
        user: An honest user.

    Returns:
        The same user, poisoned; its name begins with ``inverted``.

    Source:
        Wang and Zuccon: *An analysis of untargeted poisoning attack and defense methods for federated online learning
        to rank systems*, ICTIR 2023; Tao et al.: *Unlearning for federated online learning to rank: a reproducibility
        study*, SIGIR 2025.

    >>> from fedrank.ranking.clicks.cascade import cascade
    >>> inverted_user(cascade("perfect")).click
    (1.0, 0.5, 0.0)
    """
    return dataclasses.replace(user, name=f"inverted {user.name}", click=user.click[::-1])
