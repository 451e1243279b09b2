"""Rounds of platforms that learn from sums, with NumPy: all users between two models at once.

What happens to a user depends on chance and on the model, and not on the users before: as many stays as there are are
played together, round by round. The draws are those of :class:`~fedrank.engine.simulator.Simulator`, and so are states
and what platforms keep, so that a run goes on with either.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int, Int32, UInt32
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.native import map_trees
from fedrank.core.protocol import Exchange, Party
from fedrank.core.rng import WORLD
from fedrank.core.streams import fold_words, run_words, stream, uniforms
from fedrank.engine.native import stack_states
from fedrank.engine.rounds import Rounds
from fedrank.engine.simulator import stack_replies
from fedrank.slates.sums import SummedSlates
from fedrank.slates.sums.learner import PlatformState
from fedrank.slates.sums.trial import FALLBACK
from fedrank.slates.world.policies import plays_together
from fedrank.slates.world.satisfaction import Scene

#: Features of candidates in the rounds that are played at once.
_AT_ONCE = 4_000_000


def plays_stays(protocol: Any) -> bool:
    """True if runs of a protocol need no JAX: its learner and its users are known to play together."""
    learner: Any = getattr(protocol, "learner", None)
    return (
        isinstance(protocol, SummedSlates)
        and plays_together(learner.world)
        and learner.steady
        and learner.together
        and {"steady", "together"} <= vars(type(learner)).keys()
    )


class StayRounds(Rounds):
    """Rounds of a protocol of :func:`plays_stays`; a state is the coordinator's and the scene of the present users.

    Args:
        protocol: The protocol.
    """

    backend = "numpy"

    def __init__(self, protocol: SummedSlates):
        self.protocol, self.learner, self.world = protocol, protocol.learner, protocol.learner.world

    @override
    def keys(self, seeds):
        return run_words(seeds)

    @override
    def begin(self, keys, parties):
        runs, numbers = len(keys), np.arange(self.world.platforms, dtype=np.int32)

        def each(leaf: Any) -> np.ndarray:
            return np.broadcast_to(leaf, (runs, *np.shape(leaf)))

        scene = self.world.first(self.world.draw(fold_words(keys, WORLD)))
        own = map_trees(each, self.protocol.platform(None, numbers))
        own = own._replace(view=self.learner.first_view(own, scene.observed, scene.documents))
        return (map_trees(each, self.protocol.init(None)), scene), own

    @override
    def advance(self, keys, states, shared, own, first_round, rounds):
        (server, scene), end = states, first_round + rounds
        exchanges: Any = self.protocol.exchanges
        models = sorted({number + 1 for one in exchanges[1:] for number in one.rounds})
        crossed = np.zeros((rounds, len(keys), len(exchanges), 2), np.int32)
        crossed[:, :, 0] = self.world.platforms if not exchanges[0].silent else 0
        engagement, done = [], first_round
        while done < end:
            stop = min([end, *(number for number in models if number > done)])
            scene, own, earned = self._serve(keys, scene, own, done, stop)
            server = server._replace(round=server.round + np.uint32(stop - done))
            engagement.append(earned)
            if stop in models:
                server, own, crossed[stop - 1 - first_round] = self._exchange(keys, server, own, stop - 1)
            done = stop
        over = (np.arange(first_round, end) + 1) % self.world.rounds_per_episode == 0
        happened = {
            "engagement": np.moveaxis(np.concatenate(engagement, axis=1), 1, 0),
            "over": np.repeat(over[:, None], len(keys), axis=1),
        }
        return (server, scene), own, {"world": happened, "crossed": crossed}

    @override
    def server(self, states):
        return states[0]

    @override
    def models(self, states):
        return np.asarray(states[0].model)

    @override
    def on_host(self, tree):
        return tree

    # -- users -------------------------------------------------------------------------------------------------------

    def _serve(
        self, keys: UInt32[np.ndarray, "runs 2"], scene: Scene, own: PlatformState, first: int, stop: int
    ) -> tuple[Scene, PlatformState, np.ndarray]:
        """Rounds from ``first`` to before ``stop``, between which there is no new model.

        Returns:
            Scene and platforms after them, and engagement [runs, rounds, K].
        """
        stay, earned = self.world.rounds_per_episode, []
        at_once = max(1, _AT_ONCE // (len(keys) * self.world.platforms * self.world.candidates * stay))
        while first < stop:
            users, length = 1, min(stay - first % stay, stop - first)
            if first % stay == 0 and stop - first >= 2 * stay:
                users, length = min(at_once, (stop - first) // stay), stay
            numbers = first + stay * np.arange(users)[:, None] + np.arange(length)
            scene, own, more = self._play(keys, scene, own, numbers)
            earned.append(more)
            first += users * length
        return scene, own, np.concatenate(earned, axis=1)

    def _play(
        self,
        keys: UInt32[np.ndarray, "runs 2"],
        scene: Scene,
        own: PlatformState,
        numbers: Int[np.ndarray, "users rounds"],
    ) -> tuple[Scene, PlatformState, np.ndarray]:
        """Some users at once, the first of whom is there; of several, each stays to the end."""
        learner, world, users = self.learner, self.world, len(numbers)
        exploring = bool(numbers[0, 0] <= learner.release_rounds[-1])
        parties = np.arange(world.platforms)
        keys = np.broadcast_to(keys[:, None], (len(keys), users, 2))
        of_parties = (*keys.shape[:2], len(parties), 2)

        def each(leaf: Any) -> np.ndarray:
            return np.broadcast_to(leaf[:, None], (len(leaf), users, *leaf.shape[1:]))

        now = map_trees(
            each,
            own._replace(
                sums=np.zeros_like(own.sums), norms=np.zeros_like(own.norms), tested=np.zeros_like(own.tested)
            ),
        )
        scene = map_trees(lambda leaf: leaf[:, None], scene)
        if users > 1:
            coming = world.first(world.draw(fold_words(keys[:, 1:], numbers[1:, 0] - 1, WORLD)))
            scene = map_trees(lambda a, b: np.concatenate([a, b], axis=1), scene, coming)
            now = now._replace(view=learner.first_view(now, scene.observed, scene.documents))
        earned, shown = [], []
        for number in numbers.T:
            now = now._replace(rounds=np.broadcast_to(number[:, None], now.number.shape).astype(np.int32))
            of_round = np.broadcast_to(fold_words(keys, number)[:, :, None], of_parties)
            if exploring:
                draws = uniforms(stream(fold_words(of_round, parties, 0), 2))
                taste, slate = learner.explore_slate(now, draws)
                now = now._replace(view=now.view._replace(taste=taste), slate=slate)
            else:
                stay = np.broadcast_to(number[:, None] // world.rounds_per_episode, now.number.shape)
                over = learner.looks_at(number.max() - 1) == len(learner.trial)
                arm = learner.arm_at(now, stay, over)
                draws, by_lot = None, arm == FALLBACK
                if learner.trial and by_lot.any():
                    draws = np.zeros((*arm.shape, 2), np.float32)
                    of_lot = fold_words(of_round[by_lot], np.broadcast_to(parties, arm.shape)[by_lot], 0)
                    draws[by_lot] = uniforms(stream(of_lot, 2))
                now = now._replace(view=now.view._replace(arm=arm))
                now = now._replace(slate=learner.serve(now, draws))
            after, turns, over = world.round(scene, now.slate, world.draw(fold_words(keys, number, WORLD)))
            added = learner.add_round(now, turns, np.broadcast_to(over[..., None], now.number.shape))
            if over.all():
                view = learner.first_view(added, after.observed, after.documents)
            else:
                view = learner.next_view(added, turns, after.observed, after.documents, over=False)
            earned.append(turns.engagement)
            shown.append(scene.documents)
            now, scene = added._replace(view=view), after

        def in_order(rows: list[np.ndarray]) -> np.ndarray:
            rows_ = np.stack(rows, axis=2)  # [runs, users, rounds, K, ...]
            return rows_.reshape(len(rows_), -1, *rows_.shape[3:])

        last: PlatformState = map_trees(lambda leaf: leaf[:, -1], now)
        own = last._replace(
            sums=own.sums + now.sums.sum(axis=1, dtype=np.int32),
            norms=own.norms + now.norms.sum(axis=1, dtype=np.int32),
            tested=own.tested + now.tested.sum(axis=1, dtype=np.int32),
            learnt=learner.learnt_since(own.learnt, int(numbers[0, 0]), in_order(shown)),
        )
        return map_trees(lambda leaf: leaf[:, -1], scene), own, in_order(earned)

    # -- what crosses ------------------------------------------------------------------------------------------------

    def _exchange(
        self, keys: UInt32[np.ndarray, "runs 2"], server: PyTree, own: PlatformState, number: int
    ) -> tuple[PyTree, PlatformState, Int32[np.ndarray, "runs exchanges 2"]]:
        """The exchanges after a round, run by run and platform by platform."""
        exchanges, platforms = self.protocol.exchanges, self.world.platforms
        crossed = np.zeros((len(keys), len(exchanges), 2), np.int32)
        crossed[:, 0] = platforms if not exchanges[0].silent else 0
        servers, owns = [], []
        for run in range(len(keys)):
            state = map_trees(lambda leaf, run=run: leaf[run], server)
            mine = [map_trees(lambda leaf, at=(run, k): leaf[at], own) for k in range(platforms)]
            for index, exchange in enumerate(exchanges):
                if index and exchange.due(number):
                    asked = exchange.asked(state, platforms)
                    asked = np.ones(platforms, bool) if asked is None else np.asarray(asked)
                    state = self._ask(exchange, state, mine, asked, fold_words(keys[run], number), index)
                    crossed[run, index] = asked.sum()
            servers.append(state)
            owns.append(map_trees(lambda *leaves: np.stack(leaves), *mine))
        return stack_states(servers, server), stack_states(owns, own), crossed

    def _ask(
        self, exchange: Exchange, state: PyTree, mine: list, asked: np.ndarray, key: UInt32[np.ndarray, "2"], index: int
    ) -> PyTree:
        """One exchange of one run; ``mine`` is what its platforms have, and is changed."""
        request, replies = exchange.ask(state), [None] * len(mine)
        for k in np.flatnonzero(asked).tolist():
            draws = exchange.draw(fold_words(key, k, index))
            party, replies[k] = exchange.respond(request, Party(None, mine[k]), draws)
            mine[k] = party.own
        return exchange.tell(state, stack_replies(exchange.reply, replies), asked)
