"""Platforms that plan and their coordinator in one process, to test what is deployed; stays are of three rounds."""

import dataclasses

import numpy as np

from fedrank.core.native import map_trees
from fedrank.core.protocol import Party
from fedrank.deploy.http.guard import RefusedError
from fedrank.deploy.platforms.client import PlatformClient
from fedrank.deploy.platforms.folder import KeyValueStore
from fedrank.deploy.platforms.planning_coordinator import PlanningCoordinator
from fedrank.deploy.platforms.planning_platform import PlanningPlatform
from fedrank.deploy.platforms.rounds import Peer, Silence
from fedrank.slates.sums.stays import StayRounds


def seeded(agreed):
    """The same terms, with draws from the run's seed."""
    return dataclasses.replace(agreed, seeded=True)


def platform_in(folder, agreed, index=0, seeded=True):
    """A platform whose file is in ``folder``; a second one there goes on where the first was."""
    terms = dataclasses.replace(agreed, seeded=seeded)
    return PlanningPlatform(terms, index, KeyValueStore(folder / f"{index}.db", f"platform {index}"))


class Application(PlatformClient):
    """What users need of a platform's client, without a network; ``reborn`` before each call, if it is given."""

    def __init__(self, holder, index, reborn=None, before=None):
        self.holder, self.index, self.reborn, self.before = holder, index, reborn, before

    def _platform(self):
        if self.reborn:
            self.holder[self.index] = self.reborn(self.index)
        return self.holder[self.index]

    def state(self):
        return self._platform().state()

    def begin(self, session):
        if self.before:
            self.before(self._platform().begun)
        for _ in range(2):  # every request may be repeated
            self._platform().begin(session)

    def slate(self, *said, **named):
        first = self._platform().slate(*said, **named)
        assert self._platform().slate(*said, **named) == first
        return first

    def outcome(self, *said):
        for _ in range(2):
            self._platform().outcome(*said)

    def end(self, session):
        for _ in range(2):
            self._platform().end(session)


class Direct(Peer):
    """A platform without a network; ``lost`` decides of the number of the attempt whether its reply is lost."""

    def __init__(self, holder, index, lost=lambda attempt: False):
        self.holder, self.index, self.lost, self.attempts = holder, index, lost, []

    def exchange(self, number, place, body, patience):
        try:
            reply = self.holder[self.index].answer(number, place, body)
        except RefusedError as error:
            return Silence(error.reason)
        self.attempts.append((place, reply))
        return Silence("away") if self.lost(len(self.attempts)) else reply


def coordinator_in(folder, agreed, peers, patience=60.0, stop=None):
    """A coordinator whose file is in ``folder``; it goes on where another one was."""
    store = KeyValueStore(folder / "coordinator.db", "coordinator")
    return PlanningCoordinator(seeded(agreed), peers, store, patience=patience, stop=stop)


def simulated(agreed, rounds):
    """The coordinator's and the platforms' state, and what was seen and crossed, according to the simulator."""
    simulator = StayRounds(agreed.protocol)
    keys = simulator.keys([agreed.config.seed])
    states, own = simulator.begin(keys, Party(None, None))
    states, own, seen = simulator.advance(keys, states, None, own, 0, rounds)
    state, own = (map_trees(lambda leaf: leaf[0], tree) for tree in (simulator.server(states), own))
    return state, own, seen


def question(agreed, place, **values):
    """A request of the exchange at ``place``, as bytes; ``values`` are its fields by name."""
    layout = agreed.exchanges[place].request
    return layout.encode(layout.message(**{name: np.asarray(value) for name, value in values.items()}))


def explore(platform, users, first=0, rounds=None, engagement=20.0):
    """Users, every second item of whose slates is clicked, which a blind platform does not see."""
    sees, world = platform.terms.protocol.feedback[platform.index], platform.terms.protocol.world
    for user in range(first, first + users):
        platform.begin(f"user {user}")
        for number in range(world.rounds_per_episode if rounds is None else rounds):
            rng = np.random.default_rng([user, number])
            platform.slate(f"user {user}", rng.random(4).tolist(), observed=0.6)
            platform.outcome(f"user {user}", *((number % 2, engagement) if sees else ()))
        platform.end(f"user {user}")
