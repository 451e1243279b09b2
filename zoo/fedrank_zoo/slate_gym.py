"""Choc and Kale for Gymnasium, one user or many at once; and platforms that plan in other Gymnasium environments.

**Our world, other agents.** A step is one *round*: the action holds a slate for every platform, the reward is the
engagement of all platforms together. What each platform gets is in the step's ``info``, float arrays ``engagement`` and
int arrays ``slot`` and ``item`` with one entry a platform.

Observations are what platforms may see: ``documents``, the kaleness of each platform's candidates, and
``satisfaction``, with noise. After a user's last round there is nothing to come, so the last observation shows the
satisfaction as each platform saw it right after its own turn.

**Other worlds, our platforms.** :class:`PlanningAgent` is platforms and their coordinator in one process, as
:doc:`services </how-to/run-platforms>` are, with an environment as their users: an episode is a user, an action a slate
of places among the candidates, and the platforms take turns at the steps. What the environment calls its candidates'
features, a click and engagement, two functions say.

Gymnasium comes with the extra ``gym``.

>>> from fedrank_zoo.slate_gym import ChocKaleEnv
>>> env = ChocKaleEnv("tension")
>>> observation, info = env.reset(seed=0)
>>> observation["documents"].shape
(2, 10)
>>> observation, reward, terminated, truncated, info = env.step([[0, 1, 2], [7, 8, 9]])
>>> info["engagement"].shape
(2,)
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from fedrank.core.arrays import AnyArray
from fedrank.core.errors import ConfigError, MissingExtraError
from fedrank.core.lazy import jax, jit, jnp
from fedrank.deploy.http.guard import RefusedError
from fedrank.deploy.platforms.folder import KeyValueStore, NotYetError, Terms
from fedrank.deploy.platforms.planning_coordinator import PlanningCoordinator
from fedrank.deploy.platforms.planning_platform import PlanningPlatform
from fedrank.deploy.platforms.rounds import Peer, Silence
from fedrank.slates.world.satisfaction import OBSERVATION_BOUND, RoundDraws, Satisfaction, Scene, Turn, preset

try:
    import gymnasium
    from gymnasium import spaces
    from gymnasium.vector import AutoresetMode, VectorEnv
    from gymnasium.vector.utils import batch_space
except ImportError as missing:
    raise MissingExtraError("gymnasium", "gym", "The Gymnasium environment of Choc and Kale") from missing

#: Under which :func:`register` makes the environments known.
NAME = "fedrank/ChocKale-v0"
#: Seeds of a user's chance are below this.
SEEDS = 2**32


class ChocKaleEnv(gymnasium.Env):
    """One user; a step is one round of all platforms.

    * Action: ``MultiDiscrete`` [K, n] below N: the candidates of each platform's slate, in slot order. A candidate may
      stand in a slate twice, as in RecSim.
    * Observation: ``documents`` float32 [K, N] in [0, 1], ``satisfaction`` float32 [K] in [−1, 2].
    * Reward: engagement of all platforms together. ``terminated`` when the user's time is over; never truncated.

    Args:
        world: The world, or a preset's name.
        overrides: Settings of the preset to replace.

    Raises:
        ConfigError: As :func:`~fedrank.slates.world.satisfaction.preset`; or overrides with a world that is no preset's
        name.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own declaration)

    def __init__(self, world: Satisfaction | str = "recsim", **overrides: Any):
        self.world = _world(world, overrides)
        self.observation_space, self.action_space = _spaces(self.world)
        self._key: jax.Array | None = None
        self._round = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """A new user, whether or not the last one has left; ``options`` are not used."""
        super().reset(seed=seed, options=options)
        self._key, self._round = jax.random.key(int(self.np_random.integers(SEEDS))), 0
        self._scene = _first(self.world, self._key)
        return _observation(self._scene), {}

    def step(self, action: Any) -> tuple[dict, float, bool, bool, dict]:
        """One round.

        Args:
            action: Integers [K, n].

        Returns:
            Observation, reward, terminated, truncated (False), info.

        Raises:
            ConfigError: The environment was not reset since it was made or since the user left; or the action is not
                one slate a platform.
        """
        if self._key is None:
            raise ConfigError("There is no user: the last one left or none has come yet; call reset() first.")
        slates = _slates(action, self.action_space)
        self._round += 1
        self._scene, turns, done = _next(self.world, self._scene, slates, self._key, jnp.int32(self._round))
        turns, left = jax.device_get(turns), bool(done)
        if left:
            self._key = None
        observation = _observation(self._scene, turns.observed if left else None)
        return observation, float(turns.engagement.sum()), left, False, _info(turns)


class ChocKaleVectorEnv(VectorEnv):
    """Many users in one compiled step; each has a separate world.

    When a user leaves, the next arrives in the same step (``AutoresetMode.SAME_STEP``): the observation is the new
    user's, ``info["final_obs"]`` holds the old user's last one in the rows that ``info["_final_obs"]`` marks. Actions,
    observations, rewards and infos are those of :class:`ChocKaleEnv` with the users as first axis.

    Args:
        num_envs: Users at a time.
        world: The world, or a preset's name.
        overrides: Settings of the preset to replace.

    Raises:
        ConfigError: As :class:`ChocKaleEnv`, or no users.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 (Gymnasium's own declaration)
        "render_modes": [],
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(self, num_envs: int = 1, world: Satisfaction | str = "recsim", **overrides: Any):
        if num_envs < 1:
            raise ConfigError(f"A vector environment needs num_envs of at least 1, got {num_envs}.")
        self.world = _world(world, overrides)
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = _spaces(self.world)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._keys: jax.Array | None = None
        self._round = 0

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict, dict]:
        """New users in all places.

        Args:
            seed: One number for all; row i is then the user of ``ChocKaleEnv`` with seed ``seed + i``, until that user
                leaves. Or one number a user.
            options: Not used.
        """
        seeds = seed if isinstance(seed, list) else [None if seed is None else seed + i for i in range(self.num_envs)]
        if len(seeds) != self.num_envs:
            raise ConfigError(f"seed needs one number for each of {self.num_envs} users, got {len(seeds)}.")
        super().reset(seed=seeds[0], options=options)
        # The first seed is np_random's own: drawing from it moves it on, so that the next reset brings other users.
        chance = [
            self.np_random if own is None or place == 0 else np.random.default_rng(own)
            for place, own in enumerate(seeds)
        ]
        words = np.array([one.integers(SEEDS) for one in chance], np.uint32)
        self._keys, self._round = jax.vmap(jax.random.key)(words), 0
        self._scene = _first_of_all(self.world, self._keys)
        return _observation(self._scene), {}

    def step(self, actions: Any) -> tuple[dict, np.ndarray, np.ndarray, np.ndarray, dict]:
        """One round of every user.

        Args:
            actions: Integers [users, K, n].

        Returns:
            Observations, rewards (float64 [users]), terminations, truncations (bool [users]), infos.

        Raises:
            ConfigError: The environment was not reset yet, or the actions are not one slate a user and platform.
        """
        if self._keys is None:
            raise ConfigError("There are no users yet; call reset() first.")
        slates = _slates(actions, self.action_space)
        self._round += 1
        self._scene, turns, left = jax.device_get(
            _next_of_all(self.world, self._scene, slates, self._keys, jnp.int32(self._round))
        )
        infos = _info(turns)
        if left.any():
            infos |= {"final_obs": _observation(self._scene, turns.observed), "_final_obs": left.copy()}
        rewards = turns.engagement.sum(axis=1, dtype=np.float64)
        return _observation(self._scene), rewards, left, np.zeros_like(left), infos


class _Beside(Peer):
    """A platform in the same process; ends the coordinator's turn where stays are still to come."""

    def __init__(self, platform: PlanningPlatform, stop: threading.Event):
        self._platform, self._stop = platform, stop

    def exchange(self, number: int, place: int, body: bytes, patience: float) -> bytes | Silence:
        try:
            return self._platform.answer(number, place, body)
        except NotYetError as early:
            self._stop.set()
            return Silence(early.reason)
        except RefusedError as error:
            raise ConfigError(f"platform {self._platform.index} refuses: {error.reason}, {error.more}.") from error


class PlanningAgent:
    """Platforms that plan, as the agent of an environment of slates; a context manager.

    Args:
        terms: What the platforms have agreed: as many candidates' features, items of a slate, and rounds of a platform
            (half as many as an episode has steps, with two) as the environment has.
        folder: Where they keep what they know; made if it is not there, and gone on with if it is.
        look: From an observation the features of all candidates, [N] in [0, 1] or [N, d], and the satisfaction that is
            observed, or None.
        tell: From the next observation, the reward and the info the slot that was clicked, or None, and engagement.

    Attributes:
        platforms: The platforms, in the order of their turns.
    """

    def __init__(
        self,
        terms: Terms,
        folder: Path,
        look: Callable[[Any], tuple[Any, float | None]],
        tell: Callable[[Any, float, dict], tuple[int | None, float]],
    ):
        self._terms, self._look, self._tell, self._stack = terms, look, tell, ExitStack()
        folder.mkdir(parents=True, exist_ok=True)
        names = [*(f"platform {index}" for index in range(terms.platforms)), "coordinator"]
        *stores, self._store = (
            KeyValueStore(folder / f"{name}.db", f"{name} of {terms.fingerprint}") for name in names
        )
        for store in (*stores, self._store):
            self._stack.callback(store.close)
        self.platforms = tuple(PlanningPlatform(terms, index, store) for index, store in enumerate(stores))

    def __enter__(self) -> PlanningAgent:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def play(self, env: gymnasium.Env, users: int, seed: int | None = None) -> np.ndarray:
        """Serve users; sums, model and verdicts cross as soon as they are due.

        Args:
            env: The environment.
            users: Episodes.
            seed: Of the first one's chance.

        Returns:
            The sum of rewards of each, float64.

        Raises:
            RefusedError: Candidates, slates or engagement are not as agreed.
            ConfigError: A platform refuses the coordinator: it was shown items that are not as agreed.
        """
        total = np.zeros(users)
        for user in range(users):
            observation, _ = env.reset(seed=seed if user == 0 else None)
            name, turn, over = f"user {self.platforms[0].begun}", 0, False
            for platform in self.platforms:
                platform.begin(name)
            while not over:
                platform = self.platforms[turn % len(self.platforms)]
                candidates, satisfaction = self._look(observation)
                places = platform.slate(name, candidates=candidates, observed=satisfaction)
                observation, reward, terminated, truncated, info = env.step(np.array(places))
                sees = self._terms.protocol.feedback[platform.index]
                slot, engagement = self._tell(observation, float(reward), info) if sees else (None, 0.0)
                platform.outcome(name, slot, engagement)
                total[user] += float(reward)
                turn, over = turn + 1, terminated or truncated
            for platform in self.platforms:
                platform.end(name)
            self._coordinate()
        return total

    def _coordinate(self) -> None:
        """Let sums, model and verdicts cross, as far as enough users have left; ends where stays are still to come."""
        stop = threading.Event()
        peers = [_Beside(platform, stop) for platform in self.platforms]
        with PlanningCoordinator(self._terms, peers, self._store, stop=stop) as coordinator:
            coordinator.run()


def register() -> None:
    """Make both known to ``gymnasium.make`` and ``gymnasium.make_vec`` as ``fedrank/ChocKale-v0``."""
    if NAME not in gymnasium.registry:
        gymnasium.register(
            NAME,
            entry_point=f"{__name__}:{ChocKaleEnv.__name__}",
            vector_entry_point=f"{__name__}:{ChocKaleVectorEnv.__name__}",
        )


@functools.partial(jit, static_argnums=0)
def _first(world: Satisfaction, key: jax.Array) -> Scene:
    return world.first(_draw(world, key, jnp.int32(0)))


@functools.partial(jit, static_argnums=0)
def _first_of_all(world: Satisfaction, keys: jax.Array) -> Scene:
    return jax.vmap(functools.partial(_first, world))(keys)


@functools.partial(jit, static_argnums=0)
def _next(
    world: Satisfaction, scene: Scene, slates: jax.Array | np.ndarray, key: jax.Array, number: jax.Array
) -> tuple[Scene, Turn, AnyArray]:
    return world.round(scene, jnp.asarray(slates), _draw(world, key, number))


@functools.partial(jit, static_argnums=0)
def _next_of_all(
    world: Satisfaction, scenes: Scene, slates: jax.Array | np.ndarray, keys: jax.Array, number: jax.Array
) -> tuple[Scene, Turn, AnyArray]:
    return jax.vmap(functools.partial(_next, world), in_axes=(0, 0, 0, None))(scenes, slates, keys, number)


def _draw(world: Satisfaction, key: jax.Array, number: jax.Array) -> RoundDraws:
    return world.draw(jax.random.fold_in(key, number))


def _world(world: Satisfaction | str, overrides: dict[str, Any]) -> Satisfaction:
    if isinstance(world, str):
        return preset(world, **overrides)
    if overrides:
        raise ConfigError(
            f"Settings ({', '.join(overrides)}) replace those of a preset, which is asked for by its name; "
            "a world that is made already takes none."
        )
    return world


def _spaces(world: Satisfaction) -> tuple[spaces.Space, spaces.MultiDiscrete]:
    shape = (world.platforms, world.candidates)
    observation = spaces.Dict(
        {
            "documents": spaces.Box(0.0, 1.0, shape, np.float32),
            "satisfaction": spaces.Box(-OBSERVATION_BOUND, 1.0 + OBSERVATION_BOUND, (world.platforms,), np.float32),
        }
    )
    return observation, spaces.MultiDiscrete(np.full((world.platforms, world.slate), world.candidates))


def _slates(action: Any, space: spaces.Space) -> np.ndarray:
    """The action as int32, checked: JAX would silently replace a candidate that does not exist."""
    slates = np.asarray(action)
    assert space.shape is not None and space.dtype is not None
    if slates.dtype.kind not in "iu" or not space.contains(slates.astype(space.dtype)):
        raise ConfigError(
            f"An action is an array of integers {list(space.shape)}, the numbers of candidates that the slates show; "
            f"got {slates.dtype} {list(slates.shape)} or a number that no candidate has."
        )
    return slates.astype(np.int32)


def _observation(scene: Scene, satisfaction: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """New arrays at every call, as Gymnasium demands."""
    seen = scene.observed if satisfaction is None else satisfaction
    return {"documents": np.array(scene.documents), "satisfaction": np.array(seen)}


def _info(turns: Turn) -> dict[str, np.ndarray]:
    return {name: np.array(getattr(turns, name)) for name in ("engagement", "slot", "item")}
