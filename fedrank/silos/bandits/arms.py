"""Arms of a bandit over silos: sets of silos that contain the target.

An arm is a row ``members`` of truth values, one for each silo. Which sets are arms is the user's choice: the pairs of
the thesis' experiments (few, no overlap), all combinations (2^(k−1)), clusters of silos whose updates point the same
way (many silos), or one fixed set. ``target alone`` comes first wherever it is an arm, so that "no silo helps" can win.

Source:
    Lundahl: *Personalization by combination*, master's thesis, 2021, sections 7, 8.3.1, 10.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from fedrank.core.arrays import AnyArray
from fedrank.core.errors import ConfigError

#: Largest number of silos for which all 2^(k−1) combinations are arms: 2,048 arms.
MOST_COMBINED = 12


def pair_table(silos: int, alone: bool = True) -> Bool[np.ndarray, "arms others"]:
    """Arms of one other silo each, in order; before them the empty set if ``alone``.

    Returns:
        [silos − 1 (+ 1), silos − 1], over the silos other than the target.

    Raises:
        ConfigError: Fewer than two silos.
    """
    _check_silos(silos)
    table = np.eye(silos - 1, dtype=bool)
    return np.concatenate([np.zeros((1, silos - 1), bool), table]) if alone else table


def combination_table(silos: int) -> Bool[np.ndarray, "arms others"]:
    """Every set of other silos, in binary order: bit i of the arm's number is the i-th other silo.

    Arm 0 is the empty set, the last arm all other silos.

    Returns:
        [2^(silos − 1), silos − 1].

    Raises:
        ConfigError: Fewer than two silos, or more than :data:`MOST_COMBINED`.
    """
    _check_silos(silos)
    if silos > MOST_COMBINED:
        raise ConfigError(
            f"All combinations of {silos} silos are 2^{silos - 1} arms, too many to try; at most {MOST_COMBINED} silos "
            "may be combined. Use pairs, or clusters of silos with similar updates."
        )
    return (np.arange(2 ** (silos - 1))[:, None] >> np.arange(silos - 1)) % 2 == 1


def everyone_table(silos: int) -> Bool[np.ndarray, "1 others"]:
    """The one arm of all other silos.

    Returns:
        [1, silos − 1].

    Raises:
        ConfigError: Fewer than two silos.
    """
    _check_silos(silos)
    return np.ones((1, silos - 1), bool)


def members_of(
    table: Bool[np.ndarray, "arms others"], target: int | Int[AnyArray, ""], silos: int
) -> Bool[np.ndarray, "arms silos"]:
    """A table over the other silos as sets of silos, with the target in every set.

    Args:
        table: Which of the silos other than the target are in each arm, in their order.
        target: Number of the target.
        silos: k.

    >>> [code(arm) for arm in members_of(pair_table(4), 1, 4)]
    ['0100', '1100', '0110', '0101']
    """
    every = np.arange(silos)
    column = np.clip(every - (every > target), 0, silos - 2)
    return table[:, column] | (every == target)[None, :]


def code(members: Sequence[bool] | Bool[np.ndarray, " silos"]) -> str:
    """The thesis' notation of an arm: one digit for each silo, 1 if it is in the set.

    >>> code([False, True, True, False])
    '0110'
    """
    return "".join("1" if member else "0" for member in np.asarray(members, bool).tolist())


def name(members: Sequence[bool] | Bool[np.ndarray, " silos"], names: Sequence[str], target: int | None = None) -> str:
    """Name of an arm for a reader: the names of its silos.

    Args:
        members: Which silos are in.
        names: Names of the silos.
        target: Named first if given.

    >>> name([True, True, False], ["Cleveland", "Hungarian", "Long Beach"], target=1)
    'Hungarian + Cleveland'
    """
    inside = [silo for silo, member in enumerate(np.asarray(members, bool).tolist()) if member]
    inside.sort(key=lambda silo: silo != target)  # stable: the others keep their order
    return " + ".join(names[silo] for silo in inside)


def cluster_arms(
    updates: Float[np.ndarray, "silos parameters"], target: int | Int[AnyArray, ""], clusters: int
) -> Bool[np.ndarray, "arms silos"]:
    """Arms for many silos: the target alone, then the target with each cluster of silos whose updates are alike.

    The silos other than the target are clustered bottom-up: average linkage on the cosine distance 1 − cos of their
    updates, until ``clusters`` are left. An update that is zero has no direction and counts as orthogonal to all.
    Work grows with silos³, which is a million steps at 100 silos.

    Args:
        updates: Local models minus the model that was sent out.
        target: The silo for which arms are wanted.
        clusters: Number of clusters, from 1 to silos − 1.

    Returns:
        One arm more than there are clusters; clusters in the order of their first silo.

    Raises:
        ConfigError: ``clusters`` is out of range.

    Source:
        Section 10 of the thesis proposes clusters; cosine similarity of updates is that of Sattler et al.: *Clustered
        federated learning*, IEEE TNNLS 2020 (they split in two recursively instead).
    """
    silos = updates.shape[0]
    _check_silos(silos)
    if not 1 <= clusters <= silos - 1:
        raise ConfigError(f"clusters must be from 1 to {silos - 1} for {silos} silos, got {clusters}.")
    every = np.arange(silos)
    norms = np.linalg.norm(updates, axis=1, keepdims=True)
    directions = updates / np.where(norms > 0, norms, 1)
    distances = 1 - directions @ directions.T
    sizes, owner = (every != target).astype(updates.dtype), every.copy()
    for _ in range(silos - 1 - clusters):
        live = sizes > 0
        candidates = (every[:, None] < every) & live[:, None] & live
        a, b = divmod(int(np.argmin(np.where(candidates, distances, np.inf))), silos)
        # The mean distance between members of two clusters, from those of the parts (Lance and Williams 1967).
        mean = (sizes[a] * distances[a] + sizes[b] * distances[b]) / (sizes[a] + sizes[b])
        distances[a], distances[:, a] = mean, mean
        sizes[a], sizes[b] = sizes[a] + sizes[b], 0
        owner[owner == b] = a
    # A cluster carries the number of its first silo, because the lower of two always takes in the higher.
    itself = every == target
    return np.concatenate([itself[None], (owner == np.flatnonzero(sizes > 0)[:, None]) | itself])


def _check_silos(silos: int) -> None:
    if silos < 2:
        raise ConfigError(f"A federation needs at least 2 silos, got {silos}.")
