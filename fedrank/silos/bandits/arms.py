"""Arms of a bandit over silos: sets of silos that contain the target.

An arm is a row ``members`` of truth values, one for each silo. Which sets are arms is the user's choice: the pairs of
the thesis' experiments (few, no overlap), all combinations (2^(k−1)), clusters of silos whose updates point the same
way (many silos), or one fixed set. ``target alone`` comes first wherever it is an arm, so that "nobody helps" can win.

Functions with a Python ``target`` return NumPy arrays. Where the target is traced, take a ``…_table`` over the k − 1
other silos and :func:`members_of`: one compiled program then personalises for every silo.

Source:
    Lundahl: *Personalization by combination*, master's thesis, 2021, sections 7, 8.3.1, 10.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from fedrank.core.arrays import AnyArray, module_of
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp

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
    table: Bool[AnyArray, "arms others"], target: int | Int[AnyArray, ""], silos: int
) -> Bool[AnyArray, "arms silos"]:
    """A table over the other silos as sets of silos, with the target in every set.

    Args:
        table: Which of the silos other than the target are in each arm, in their order.
        target: Number of the target; may be traced.
        silos: k.
    """
    xp = module_of(table, target)
    every = xp.arange(silos)
    column = xp.clip(every - (every > target), 0, silos - 2)
    return xp.asarray(table)[:, column] | (every == target)[None, :]


def pairs(target: int, silos: int, alone: bool = True) -> Bool[np.ndarray, "arms silos"]:
    """Arms of the target with one other silo each; before them the target alone if ``alone``.

    Returns:
        [silos − 1 (+ 1), silos].

    Raises:
        ConfigError: Fewer than two silos, or no such target.

    >>> [code(arm) for arm in pairs(1, 4)]
    ['0100', '1100', '0110', '0101']
    """
    return _with_target(pair_table(silos, alone), target, silos)


def combinations(target: int, silos: int) -> Bool[np.ndarray, "arms silos"]:
    """Arms of the target with every set of other silos, in binary order: the target alone first, all silos last.

    Returns:
        [2^(silos − 1), silos].

    Raises:
        ConfigError: Fewer than two silos, too many, or no such target.

    >>> [code(arm) for arm in combinations(0, 3)]
    ['100', '110', '101', '111']
    """
    return _with_target(combination_table(silos), target, silos)


def everyone(target: int, silos: int) -> Bool[np.ndarray, "1 silos"]:
    """The one arm of all silos: Federated Averaging.

    Returns:
        [1, silos].

    Raises:
        ConfigError: Fewer than two silos, or no such target.
    """
    return _with_target(everyone_table(silos), target, silos)


def code(members: Sequence[bool] | Bool[Array | np.ndarray, " silos"]) -> str:
    """The thesis' notation of an arm: one digit for each silo, 1 if it is in the set.

    >>> code([False, True, True, False])
    '0110'
    """
    return "".join("1" if member else "0" for member in np.asarray(members, bool).tolist())


def name(
    members: Sequence[bool] | Bool[Array | np.ndarray, " silos"], names: Sequence[str], target: int | None = None
) -> str:
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


def clustered(
    updates: Float[Array, "silos parameters"], target: int | Int[Array | np.ndarray, ""], clusters: int
) -> Bool[Array, "arms silos"]:
    """Arms for many silos: the target alone, then the target with each cluster of silos whose updates are alike.

    The silos other than the target are clustered bottom-up: average linkage on the cosine distance 1 − cos of their
    updates, until so many clusters are left. An update that is zero has no direction and counts as orthogonal to all.
    Pure JAX; the target may be traced. Work grows with silos³, which is a million steps at 100 silos.

    Args:
        updates: Local models minus the model that was sent out.
        target: The silo for which arms are wanted.
        clusters: Number of clusters, from 1 to silos − 1; static.

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
    every = jnp.arange(silos)
    norms = jnp.linalg.norm(updates, axis=1, keepdims=True)
    directions = updates / jnp.where(norms > 0, norms, 1.0)
    distances = 1.0 - jnp.matmul(directions, directions.T, precision="highest")
    upper = every[:, None] < every[None, :]

    def merge(_: jax.Array, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        distances, sizes, owner = state
        candidates = upper & (sizes > 0)[:, None] & (sizes > 0)[None, :]
        closest = jnp.argmin(jnp.where(candidates, distances, jnp.inf))
        a, b = closest // silos, closest % silos
        # The mean distance between members of two clusters, from those of the parts (Lance and Williams 1967).
        mean = (sizes[a] * distances[a] + sizes[b] * distances[b]) / (sizes[a] + sizes[b])
        distances = distances.at[a].set(mean).at[:, a].set(mean)
        sizes = sizes.at[a].add(sizes[b]).at[b].set(0.0)
        return distances, sizes, jnp.where(owner == b, a, owner)

    sizes = (every != target).astype(updates.dtype)
    _, sizes, owner = jax.lax.fori_loop(0, silos - 1 - clusters, merge, (distances, sizes, every))
    # A cluster carries the number of its first silo, because the lower of two always takes in the higher.
    (firsts,) = jnp.nonzero(sizes > 0, size=clusters)
    itself = (every == target)[None, :]
    return jnp.concatenate([itself, (owner[None, :] == firsts[:, None]) | itself])


def _with_target(table: Bool[np.ndarray, "arms others"], target: int, silos: int) -> Bool[np.ndarray, "arms silos"]:
    if not 0 <= target < silos:
        raise ConfigError(f"target must be a silo from 0 to {silos - 1}, got {target}.")
    return np.insert(table, target, True, axis=1)


def _check_silos(silos: int) -> None:
    if silos < 2:
        raise ConfigError(f"A federation needs at least 2 silos, got {silos}.")
