"""The baselines of a run of silos: what the target reaches alone, and with everybody.

The same network, first weights, rows and number of rounds, under the same evaluator: a bandit that always plays one
arm. Alone nothing would cross; everyone is federated averaging.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from fedrank.core.arrays import PyTree
from fedrank.core.protocol import Party
from fedrank.core.trees import Json
from fedrank.engine.simulator import Conditions, Simulator, run_keys
from fedrank.silos.bandit_fedavg import BanditFedAvg
from fedrank.silos.bandits.rules import make_rule
from fedrank.silos.build import SiloExperiment
from fedrank.silos.party import Part, SiloProtocol, started
from fedrank.silos.private_sgd import PrivateSgd

#: By name of the baseline: the arm that is played, and a note for the reader.
BASELINES = {
    "alone": (0, "The target trains by itself; nothing would cross."),
    "everyone": (1, "Federated averaging of all silos, judged by the target."),
}


@dataclass(frozen=True, eq=False)
class SiloBaseline:
    """The performance of one baseline.

    Attributes:
        name: One of :data:`BASELINES`.
        values: Performances by name, such as ``"test: last"``.
        names: Names of the targets.
    """

    name: str
    values: dict[str, Float[np.ndarray, "targets seeds"]]
    names: tuple[str, ...]

    def as_json(self, measure: str) -> dict[str, Json]:
        """The entry of ``baselines.json``: means over seeds."""
        out = []
        for key, rows in self.values.items():
            part, model = key.split(": ")
            for target, row in zip(self.names, rows, strict=True):
                name = measure + ("" if model == "last" else ", best so far")
                several = f" ({target})" if len(self.names) > 1 else ""
                sign = -1 if measure == "log-loss" else 1
                if np.isfinite(row).all():
                    out.append({"split": part, "measure": name + several, "value": float(sign * np.mean(row))})
        return {"name": self.name, "notes": [BASELINES[self.name][1]], "values": out}


def run_baselines(experiment: SiloExperiment, names: tuple[str, ...]) -> list[SiloBaseline]:
    """Train the baselines of these names; all of them, all targets and all seeds in one program."""
    if experiment.n_parties < 2:
        return []
    private = isinstance(experiment.protocol.sgd, PrivateSgd)
    if not experiment.conditions.dropout and not private:
        return _trained(experiment, names, experiment.conditions) if names else []
    # Who trains alone loses no round because somebody is not heard, and needs no noise.
    conditions = {"alone": Conditions(), "everyone": experiment.conditions}
    return [baseline for name in names for baseline in _trained(experiment, (name,), conditions[name])]


def _trained(experiment: SiloExperiment, names: tuple[str, ...], conditions: Conditions) -> list[SiloBaseline]:
    base, config = experiment.protocol, experiment.config
    common = {f.name: getattr(base, f.name) for f in dataclasses.fields(SiloProtocol)}
    if isinstance(base.sgd, PrivateSgd) and names == ("alone",):
        common["sgd"] = base.sgd.without_noise()
    pretrain = base.pretrain if isinstance(base, BanditFedAvg) else True
    protocol = BanditFedAvg(**common, rule=make_rule("fixed", fixed=1), arms="everyone", alone=True, pretrain=pretrain)
    seeds = np.asarray(config.all_seeds)
    shape = (len(names), len(experiment.targets), len(seeds))
    arms = np.broadcast_to(np.array([BASELINES[name][0] for name in names])[:, None, None], shape).reshape(-1)
    targets = np.broadcast_to(np.asarray(experiment.targets)[None, :, None], shape).reshape(-1)
    which = np.broadcast_to(np.arange(len(seeds))[None, None], shape).reshape(-1)
    parties = protocol.parties(experiment.arrays, which)
    keys = run_keys(seeds[which])
    simulator = Simulator(protocol, max(1, config.compute.chunk // len(which)), conditions=conditions)

    def begin(key, arm, target):
        return protocol.begin(key, protocol.rule._replace(fixed=arm), target)

    each = (jnp.asarray(arms, jnp.int32), jnp.asarray(targets, jnp.int32))
    states, own = started(simulator, keys, parties, begin, each)
    states, own, _ = simulator.advance(keys, states, parties.shared, own, 0, config.rounds)
    values = jax.device_get(evaluate_runs(protocol, states, parties.shared, own, each[1]))
    return [
        SiloBaseline(
            name,
            {key: np.asarray(rows).reshape(shape)[i] for key, rows in values.items()},
            tuple(experiment.names[target] for target in experiment.targets),
        )
        for i, name in enumerate(names)
    ]


@functools.partial(jax.jit, static_argnums=0)
def evaluate_runs(
    protocol: SiloProtocol, states: PyTree, shared: PyTree, own: PyTree, targets: Int[Array, " runs"]
) -> dict[str, Float[Array, " runs"]]:
    """:func:`evaluate_one` for every run, each for its own target."""
    return jax.vmap(functools.partial(evaluate_one, protocol, shared))(states, own, targets)


def evaluate_one(
    protocol: SiloProtocol, shared: PyTree, state: PyTree, own: PyTree, target: Int[Array, ""]
) -> dict[str, Float[Array, ""]]:
    """The performance of the models of one silo in one run.

    Args:
        protocol: The protocol.
        shared: The rows of all silos.
        state: The server's state.
        own: What the silos keep, [silos, ...].
        target: Number of the silo.

    Returns:
        ``"vali: last"``, ``"test: last"`` and so on, for every model that the protocol knows.
    """
    party = Party(shared, jax.tree.map(lambda leaf: leaf[target], own))
    models = protocol.models(state, party)
    stacked = jnp.stack(list(models.values()))  # one program for all of them, not one a model
    out = {}
    parts: tuple[Part, ...] = ("vali", "test")
    for part in parts:
        values = jax.vmap(functools.partial(protocol.performance, party=party, part=part))(stacked)
        out |= {f"{part}: {name}": values[i] for i, name in enumerate(models)}
    return out
