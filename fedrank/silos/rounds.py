"""Runs of silos by whatever computes them: how they begin, each with a target of its own, and the models they give."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Key

from fedrank.core.arrays import AnyArray, PyTree
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.lazy import jax, jit, jnp
from fedrank.core.protocol import Party
from fedrank.engine.native import NativeSimulator
from fedrank.engine.rounds import Rounds
from fedrank.engine.simulator import Simulator
from fedrank.silos import native as native
from fedrank.silos.bandit_fedavg import BanditFedAvg
from fedrank.silos.native.bandit import NativeBandit
from fedrank.silos.native.rounds import NativeSilos
from fedrank.silos.party import SiloProtocol


def begun(
    rounds: Rounds,
    protocol: SiloProtocol,
    parties: Party,
    seeds: Sequence[int] | Int[np.ndarray, " runs"],
    targets: Int[np.ndarray, " runs"],
    fixed: Int[np.ndarray, " runs"] | None = None,
) -> tuple[PyTree, PyTree, PyTree]:
    """Keys [runs], states, and what the silos have for themselves, before the first round.

    Args:
        rounds: Compute the rounds.
        protocol: The protocol.
        parties: Leaves of ``own`` are [runs, silos, ...].
        seeds: Of the runs.
        targets: The target of each run; looked at by a bandit only.
        fixed: The arm that each run always plays, where a bandit's rule is of that kind.
    """
    keys = rounds.keys(np.asarray(seeds).tolist())
    if isinstance(rounds, NativeSimulator):
        if isinstance(rounds.native, NativeBandit):
            rounds.native.personalise(targets.tolist(), None if fixed is None else fixed.tolist())
        return keys, *rounds.begin(keys, parties)
    assert isinstance(rounds, Simulator)  # there are no others
    if not isinstance(protocol, BanditFedAvg):
        return keys, *started(rounds, keys, parties)
    rule = protocol.rule
    arms = np.broadcast_to(rule.fixed if fixed is None else fixed, targets.shape)
    each = (jnp.asarray(arms, jnp.int32), jnp.asarray(targets, jnp.int32))
    return keys, *started(rounds, keys, parties, functools.partial(_begin, protocol), each)


def _begin(protocol: BanditFedAvg, key: Any, arm: Any, target: Any) -> Any:
    return protocol.begin(key, protocol.rule._replace(fixed=arm), target)


def started(
    simulator: Simulator,
    keys: Key[Array, " runs"],
    parties: Party,
    begin: Callable[..., PyTree] | None = None,
    each: tuple[PyTree, ...] = (),
) -> tuple[PyTree, PyTree]:
    """:meth:`Simulator.start` of silos that have other rows in each run, as one program instead of a hundred.

    Args:
        simulator: With the protocol.
        keys: Typed keys [runs].
        parties: Leaves of ``own`` are [runs, silos, ...].
        begin: As of :meth:`Simulator.start`.
        each: Its further arguments.
    """

    def first(keys: Any, each: Any) -> PyTree:
        return simulator.start(keys, parties, per_run=True, begin=begin, each=each)[0]

    if simulator.world is not None or simulator.debug:
        return simulator.start(keys, parties, per_run=True, begin=begin, each=each)
    return jax.jit(first)(keys, each), parties.own


def models_of_runs(
    rounds: Rounds,
    protocol: SiloProtocol,
    states: PyTree,
    shared: PyTree,
    own: PyTree,
    targets: Int[np.ndarray, "runs targets"],
) -> tuple[dict[str, Float[np.ndarray, "runs targets size"]], dict[str, Float[np.ndarray, "runs targets size"]]]:
    """The models that each target could use, by name, as arrays of NumPy.

    Args:
        rounds: What computed the rounds.
        protocol: The protocol.
        states: As the rounds have them.
        shared: The rows.
        own: What the silos keep, [runs, silos, ...].
        targets: Numbers of the silos that each run is measured for.

    Returns:
        The models, and the same as the target uses them: where ``recalibrate``, with statistics of its own rows.
    """
    states = rounds.server(states)
    if isinstance(rounds, NativeSimulator) and isinstance(rounds.native, NativeSilos):
        models = rounds.native.usable_models(states, own, targets)
        return models, models
    return jax.device_get(models_of(protocol, states, shared, own, jnp.asarray(targets, jnp.int32)))


@functools.partial(jit, static_argnums=0)
def models_of(
    protocol: SiloProtocol, states: PyTree, shared: PyTree, own: PyTree, targets: Int[AnyArray, "runs targets"]
) -> tuple[dict[str, Float[AnyArray, "runs targets size"]], dict[str, Float[AnyArray, "runs targets size"]]]:
    """:func:`models_of_runs` with JAX: states are the protocol's own, [runs, ...]."""

    def one(state, own, target):
        party = Party(shared, jax.tree.map(lambda leaf: leaf[target], own))
        models = protocol.models(state, party)
        return models, {name: protocol.usable(model, party) for name, model in models.items()}

    return jax.vmap(jax.vmap(one, in_axes=(None, None, 0)))(states, own, targets)
