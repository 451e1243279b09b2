"""Cascade users: they read from the top, click what looks relevant, and may stop after a click.

The dependent click model with label-dependent probabilities that the online learning-to-rank literature simulates with
(Guo et al. 2009; Kharitonov 2019, Section 5 and Table 1): a document with label r at an examined rank is clicked with
probability P(click | r); after a click the user stops with probability P(stop | r); without a click the user always
reads on, down to ``depth``. (Some published code also draws the stop after an examined document that was *not* clicked;
that is another model.)

A session's clicks are a *pattern*: an integer whose bit i is set when the document at rank i + 1 was clicked. With ten
ranks there are 1,024 of them. :func:`sample_pattern` draws one; :func:`pattern_probabilities` gives the probability of
each, so that a ranking can be judged without sampling noise.
"""

from __future__ import annotations

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


@dataclass(frozen=True)
class CascadeUser:
    """A cascade user.

    Attributes:
        name: Such as ``"navigational"``.
        click: P(click | label), one entry a grade, in [0, 1].
        stop: P(stop | label, click), one entry a grade, in [0, 1].
        depth: How many results are shown and may be read.
    """

    name: str
    click: tuple[float, ...]
    stop: tuple[float, ...]
    depth: int = 10

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

    @property
    def grades(self) -> int:
        """Number of relevance grades the user knows; labels are 0 .. grades − 1."""
        return len(self.click)


#: Grades of the finest table below; labels beyond are of no use to any user here.
MAX_GRADES = 5

#: Click models by name, the entry points of ``fedrank.clicks``; each makes the user for a number of grades.
USERS: Registry[Callable[[int, int], CascadeUser]] = Registry("click model", "fedrank.clicks")

# Kharitonov 2019, Table 1 (3 grades); Wang et al. 2021 and Oosterhuis & de Rijke 2018 (5 grades).
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
}


def _entry(name: str, summary: str) -> Entry[Callable[[int, int], CascadeUser]]:
    def make(grades: int, depth: int = 10) -> CascadeUser:
        tables = _TABLES[name]
        # Two grades (relevant or not) use the ends of the three-grade table; four use the first four of five.
        if grades == 2:
            click, stop = tables[3]
            return CascadeUser(name, (click[0], click[2]), (stop[0], stop[2]), depth)
        if grades in (1, 3):
            click, stop = tables[3]
            return CascadeUser(name, click, stop, depth)
        if grades in (4, 5):
            click, stop = tables[5]
            return CascadeUser(name, click, stop, depth)
        raise ConfigError(
            f"click model {name!r} is defined for labels 0..2 and 0..4, got labels up to {grades - 1}. "
            "Map the labels to these grades, or register a click model of your own."
        )

    return Entry(name, make, summary, "guo2009ccm")


PERFECT = _entry(
    "perfect", "Clicks what is relevant, the more surely the more it is, and nothing else; reads to the end."
)
NAVIGATIONAL = _entry("navigational", "Looks for one page: clicks little that is bad, stops after a good click.")
INFORMATIONAL = _entry("informational", "Gathers: clicks much, good or bad, and seldom stops.")


def cascade(name: str, grades: int = 3, depth: int = 10) -> CascadeUser:
    """The user of that name for labels 0 .. grades − 1.

    Args:
        name: ``perfect``, ``navigational`` or ``informational``.
        grades: Number of relevance grades in the data: 3 as in LETOR 4.0, 5 as in MSLR and Yahoo. Two grades take the
            ends of the three-grade table, four the first four of the five-grade table.
        depth: Results shown.

    Raises:
        UnknownNameError: No such click model.
        ConfigError: It is not defined for so many grades.

    >>> cascade("navigational").click
    (0.05, 0.5, 0.95)
    """
    return USERS.get(name)(grades, depth)


def decision_table(user: CascadeUser) -> tuple[Float[np.ndarray, "grades"], Float[np.ndarray, "grades"]]:
    """What a draw u is compared with: P(click | label) and P(click and stop | label), float32 [grades] each."""
    click = np.asarray(user.click, np.float64)
    return click.astype(np.float32), (click * np.asarray(user.stop, np.float64)).astype(np.float32)


def ranked_probabilities(
    user: CascadeUser, labels: Int[AnyArray, "*lists ranks"], where: Bool[AnyArray, "*lists ranks"]
) -> tuple[Float[Array, "*lists ranks"], Float[Array, "*lists ranks"]]:
    """P(click) and P(stop) at each rank.

    Args:
        user: The user.
        labels: int32 [..., k], labels of the shown documents, best rank first.
        where: bool [..., k], False where nothing is shown.

    Returns:
        Two float32 arrays [..., k]; 0 where nothing is shown.
    """
    click, stop = jnp.asarray(user.click, jnp.float32), jnp.asarray(user.stop, jnp.float32)
    return jnp.where(where, click[labels], 0.0), jnp.where(where, stop[labels], 0.0)


def decision_tables(
    users: tuple[CascadeUser, ...],
) -> tuple[Float[np.ndarray, "users grades"], Float[np.ndarray, "users grades"]]:
    """:func:`decision_table` of several users, float32 [users, grades] each.

    Raises:
        ConfigError: No user, or users who know different grades or read to different depths.
    """
    if not users or len({(user.grades, user.depth) for user in users}) != 1:
        known = ", ".join(f"{user.name} ({user.grades} grades, depth {user.depth})" for user in users)
        raise ConfigError(
            f"users must be one or more who know the same grades and read as deep; got {known or 'none'}."
        )
    click, leave = zip(*map(decision_table, users), strict=True)
    return np.stack(click), np.stack(leave)


def sample_pattern(
    user: CascadeUser,
    labels: Int[AnyArray, "*lists ranks"],
    where: Bool[AnyArray, "*lists ranks"],
    rng_bits: UInt32[AnyArray, "*lists ranks"],
) -> Int[Array, "*lists"]:
    """The pattern of one session, from given draws: one uniform number u a rank.

    u < P(stop)·P(click) is a click after which the user stops, u < P(click) a click after which the user reads on:
    given a click, u / P(click) is uniform again, so one draw decides both exactly.

    Args:
        user: The user.
        labels: int32 [..., k], labels of the shown documents, best rank first; k ≤ ``user.depth``.
        where: bool [..., k].
        rng_bits: uint32 [..., k]: random bits for each rank.

    Returns:
        int32 [...]: bit i is set when the document at rank i + 1 was clicked.
    """
    click, leave = map(jnp.asarray, decision_table(user))
    return pattern_from(click[labels], leave[labels], where, rng_bits)


def pattern_from(
    click: Float[AnyArray, "*lists ranks"],
    leave: Float[AnyArray, "*lists ranks"],
    where: Bool[AnyArray, "*lists ranks"],
    rng_bits: UInt32[AnyArray, "*lists ranks"],
) -> Int[Array, "*lists"]:
    """:func:`sample_pattern` with what the draws are compared with given at each rank, float32 [..., k]."""
    u = uniform(rng_bits, jnp)
    clicks = where & (u < click)
    leaves = where & (u < leave)
    # A rank is read if the user left at no rank above it.
    left_before = jnp.cumsum(leaves, axis=-1) - leaves
    bits = jnp.asarray(1 << np.arange(rng_bits.shape[-1]), jnp.int32)
    return jnp.sum(jnp.where(clicks & (left_before == 0), bits, 0), axis=-1, dtype=jnp.int32)


def pattern_probabilities(
    user: CascadeUser, labels: Int[AnyArray, "*lists ranks"], where: Bool[AnyArray, "*lists ranks"]
) -> Float[Array, "*lists patterns"]:
    """The probability of every click pattern, in closed form.

    Rank by rank, the probability of each pattern so far splits in two: the user is still reading, or has left. A rank
    doubles the number of patterns; the new bit is its highest, so the patterns without and with a click at this rank
    are the two halves of the doubled array.

    Args:
        user: The user.
        labels: int32 [..., k], labels of the shown documents, best rank first.
        where: bool [..., k].

    Returns:
        float32 [..., 2**k], sums to 1 over the last axis.

    >>> import jax.numpy as jnp
    >>> always = CascadeUser("always", click=(1.0,), stop=(0.25,))
    >>> pattern_probabilities(always, jnp.zeros(2, jnp.int32), jnp.ones(2, bool)).tolist()
    [0.0, 0.25, 0.0, 0.75]
    """
    click, stop = ranked_probabilities(user, labels, where)
    reading = jnp.ones((*labels.shape[:-1], 1), jnp.float32)
    left = jnp.zeros_like(reading)
    for rank in range(labels.shape[-1]):
        c, s = click[..., rank, None], stop[..., rank, None]
        left = jnp.concatenate([left, reading * c * s], axis=-1)
        reading = jnp.concatenate([reading * (1 - c), reading * c * (1 - s)], axis=-1)
    return reading + left
