"""Learning to rank over a network: a server without queries, nodes that hold queries, devices behind a hub."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import LIFETIME_EPSILON, MOST_EPSILON
from fedrank.core.protocol import Party
from fedrank.core.trees import Json
from fedrank.data.sources import is_known
from fedrank.engine.deployment import Block, HeldParties, NodeSettings, ServerSide, part_of
from fedrank.engine.run_folder import RunFolder
from fedrank.metrics.online import REWARDS, discretise
from fedrank.ranking.build import Experiment, build
from fedrank.ranking.config import RankingRun
from fedrank.ranking.data.queries import QuerySet
from fedrank.ranking.evaluate import Evaluator
from fedrank.ranking.run import ranking_model


class RankingServer(ServerSide):
    """The server of a run that learns to rank.

    Args:
        config: Settings of the run, resolved.
        experiment: The run, with its data or with a stand-in.
        measured: Whether the server has the run's data to measure its model with.
    """

    def __init__(self, config: RankingRun, experiment: Experiment, measured: bool):
        e = experiment
        super().__init__(config, e.protocol, e.parties, e.n_parties)
        asked = config.evaluation
        self._experiment, self._measured, self._evaluator = experiment, measured, None
        if measured:
            self._evaluator = Evaluator(e.splits, e.ranker, e.metric, e.users, asked.measures, asked.tie_orders)

    @override
    def scores(self, weights: np.ndarray) -> list[dict[str, Json]] | None:
        return None if self._evaluator is None else [vars(score) for score in self._evaluator(weights[None])[0]]

    @override
    def write_models(self, home: RunFolder, state: PyTree) -> None:
        model = ranking_model(self._experiment, np.asarray(self.protocol.weights(state)), self.config.seed)
        if not self._measured:  # the model's file does not describe the nodes' data
            model = dataclasses.replace(model, about={**model.about, "data": ""})
        home.model(model, self.config.seed)


def _refuse_simulated(config: RankingRun) -> None:
    """Refuse a promise that rests on what a deployment does not have."""
    reason = getattr(getattr(config.method, "privacy", None), "simulated_only", "")
    if reason:
        raise ConfigError(reason)


def _refuse_population(config: RankingRun) -> None:
    """Refuse to answer as one of a population's devices: nodes take part in every round, whatever an account says."""
    population = getattr(config, "population", None)
    if not config.in_all_rounds:
        raise ConfigError(
            f"population = {population:,} is for simulations and for real devices, which count how often they "
            "take part: a node takes part in every round. Leave population out; ε of a user is then that of all rounds."
        )


def ranking_server(config: RankingRun, n_features: int = 0) -> RankingServer:
    """The server's side of a run.

    Args:
        config: The run, resolved.
        n_features: Features of a document where the server has no data; which queries there are matters to the nodes
            only. 0: the server has the data that the run names.

    Raises:
        FedrankError: The configuration does not fit the protocol or the data, or the data is not there.
    """
    _refuse_simulated(config)
    if n_features == 0:
        return RankingServer(config, build(config), measured=True)
    document = np.zeros((1, n_features), np.float32)
    stand_in = build(_without_shares(config), data=QuerySet(document, np.ones(1), np.array([0, 1]), np.array(["1"])))
    return RankingServer(config, stand_in, measured=False)


def ranking_node(config: RankingRun, settings: NodeSettings) -> HeldParties:
    """A node's side of a run: the run's data is dealt out among all parties, a node's own data among its own parties.

    Raises:
        ConfigError: The run names a path: a server must not decide which files a node reads. Or there are more nodes
            than parties.
        DataError: The data is not there or cannot be used.
    """
    _refuse_simulated(config)
    _refuse_population(config)
    folder = settings.data_folder or None
    if not settings.data and not is_known(config.data, config.task):
        raise ConfigError(
            f"data = {config.data!r} is no set of the catalogue, and a run does not say which files a node reads. "
            "Start the SuperNode with its own: --node-config 'data=\"/its/own/queries.txt\"'."
        )
    mine: Any = dataclasses.replace(config, data=settings.data or config.data)
    whole = build(_without_shares(mine) if settings.data else config, folder)
    numbers = settings.block(whole.n_parties)
    if settings.data:
        if len(numbers) < whole.n_parties:  # rules of the server may need more parties than one node has
            method = mine.method
            if getattr(method, "rules", None) is not None:
                method = dataclasses.replace(method, aggregate="mean", byzantine=None)
            mine = dataclasses.replace(mine, clients=len(numbers), method=method)
        held = HeldParties(config, settings, Block(whole.protocol, build(mine, folder).parties, numbers))
        # Real searches of people: what their own devices would agree to.
        held.agrees_to = MOST_EPSILON, LIFETIME_EPSILON
        return held
    parties: Party = part_of(whole.parties, numbers)
    return HeldParties(config, settings, Block(whole.protocol, parties, numbers))


def device_terms(config: RankingRun) -> dict[str, Json]:
    """Attributes of a hub's terms that real devices must have agreed to before they answer for a run's parties.

    Raises:
        ConfigError: Devices cannot answer for the run's protocol.
    """
    method = config.method
    if config.protocol != "foltr-es" or method.shown.halves == 1:
        raise ConfigError(
            f"the gateway's devices speak foltr-es with antithetic halves; they cannot answer for {config.protocol!r}."
        )
    config = config.resolved()
    _refuse_simulated(config)
    metric = REWARDS.get(config.reward)(config.depth)
    sent = metric if method.reward_values is None else discretise(metric, method.reward_values)
    privacy = method.privacy.bind(config.bounds, sent)
    return {
        "protocol": config.protocol,
        "ranker": config.ranker,
        "hidden": config.hidden if config.ranker == "mlp" else 0,
        "depth": config.depth,  # the reward's values and their unit depend on it
        "reward": config.reward,
        "reward_values": method.reward_values,
        "interactions": config.interactions,
        "sigma": method.sigma,
        "interleaved": method.shown.lists < method.shown.halves,
        "participations": getattr(config, "participations", None),
        **privacy.terms(),
    }


def _without_shares(config: RankingRun) -> RankingRun:
    """The same protocol where it does not matter who holds which queries."""
    default = config.unchanged()
    same = ("share", "queries_per_client", "topics", "labels_per_client")
    return dataclasses.replace(config, **{name: getattr(default, name) for name in same if hasattr(config, name)})
