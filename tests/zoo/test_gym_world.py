"""The Gymnasium environments keep Gymnasium's contract, by its own checker, and agree with each other and the world."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedrank.core.errors import ConfigError, RunError
from fedrank.deploy.http.guard import RefusedError
from fedrank.deploy.platforms.folder import Terms
from fedrank.engine.settings import from_dict
from fedrank.slates.world.satisfaction import Satisfaction, preset

gymnasium = pytest.importorskip("gymnasium", reason="Gymnasium is not installed (extra gym)")

from gymnasium.utils.env_checker import check_env  # noqa: E402
from gymnasium.vector import AutoresetMode  # noqa: E402

from fedrank_zoo.slate_gym import NAME, ChocKaleEnv, ChocKaleVectorEnv, PlanningAgent, register  # noqa: E402

#: All tests share its compiled functions.
WORLD = preset("tension", candidates=5, slate=2, time_budget=6)


def test_gymnasiums_own_checker_has_nothing_to_say():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(ChocKaleEnv(WORLD), skip_render_check=True)


def test_both_can_be_made_by_name():
    register()
    register()  # twice does no harm
    env = gymnasium.make(NAME, world=WORLD)
    assert env.unwrapped.world == WORLD
    many = gymnasium.make_vec(NAME, num_envs=3, vectorization_mode="vector_entry_point", world="paper", slate=4)
    assert isinstance(many, ChocKaleVectorEnv)
    assert many.world == Satisfaction(semantics="paper", slate=4)
    assert many.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP


def test_a_step_is_a_round_of_the_world():
    env = ChocKaleEnv(WORLD)
    first, _ = env.reset(seed=11)
    key = jax.random.key(int(np.random.default_rng(11).integers(2**32)))
    action = [[0, 4], [3, 1]]
    observation, reward, *_, info = env.step(action)

    @jax.jit
    def world(key):
        scene = WORLD.first(WORLD.draw(jax.random.fold_in(key, 0)))
        return scene, WORLD.round(scene, jnp.asarray(action, jnp.int32), WORLD.draw(jax.random.fold_in(key, 1)))

    scene, (after, turns, _) = world(key)
    np.testing.assert_array_equal(first["documents"], scene.documents)
    np.testing.assert_allclose(observation["satisfaction"], after.observed, rtol=1e-6)
    np.testing.assert_allclose(info["engagement"], turns.engagement, rtol=1e-5)
    np.testing.assert_array_equal(info["item"], np.take_along_axis(np.array(action), info["slot"][:, None], 1)[:, 0])
    assert reward == pytest.approx(float(turns.engagement.sum()), rel=1e-5)


def test_users_of_the_vector_are_those_of_single_environments_until_they_leave():
    many, singles = ChocKaleVectorEnv(3, WORLD), [ChocKaleEnv(WORLD) for _ in range(3)]
    seen, _ = many.reset(seed=20)
    alone = [env.reset(seed=20 + i)[0] for i, env in enumerate(singles)]
    assert seen in many.observation_space
    many.action_space.seed(0)
    for number in range(1, 4):
        for i in range(3):
            np.testing.assert_array_equal(seen["documents"][i], alone[i]["documents"])
            np.testing.assert_allclose(seen["satisfaction"][i], alone[i]["satisfaction"], rtol=1e-6)
        actions = many.action_space.sample()
        seen, rewards, terminated, truncated, infos = many.step(actions)
        steps = [env.step(action) for env, action in zip(singles, actions, strict=True)]
        alone = [step[0] for step in steps]
        np.testing.assert_allclose(rewards, [step[1] for step in steps], rtol=1e-5)
        assert terminated.tolist() == [step[2] for step in steps] == [number == 3] * 3
        assert not truncated.any() and not any(step[3] for step in steps)
        np.testing.assert_allclose(infos["engagement"], [step[4]["engagement"] for step in steps], rtol=1e-5)
    # The third round was the last: the vector shows new users and keeps the old ones' last observation.
    assert infos["_final_obs"].all()
    np.testing.assert_allclose(infos["final_obs"]["satisfaction"], [last["satisfaction"] for last in alone], rtol=1e-6)
    assert not np.allclose(seen["satisfaction"], infos["final_obs"]["satisfaction"])
    assert seen in many.observation_space
    assert "final_obs" not in many.step(actions)[4]


def test_gymnasiums_own_statistics_of_episodes_are_those_of_the_rewards():
    """Its wrapper of vector environments counts a user's whole stay, and begins anew with the next user."""
    env = gymnasium.wrappers.vector.RecordEpisodeStatistics(ChocKaleVectorEnv(3, WORLD))
    env.reset(seed=1)
    env.action_space.seed(0)
    for _ in range(2):
        total = np.zeros(3)
        for _ in range(3):
            _, rewards, _, _, infos = env.step(env.action_space.sample())
            total += rewards
        np.testing.assert_allclose(infos["episode"]["r"], total, rtol=1e-6)
        np.testing.assert_array_equal(infos["episode"]["l"], 3)


def test_resets_come_at_any_time_and_bring_other_users():
    for env in (ChocKaleEnv(WORLD), ChocKaleVectorEnv(3, WORLD)):
        action = env.action_space.sample()
        env.reset(seed=5)
        env.step(action)
        middle, _ = env.reset()
        for number in range(1, 4):
            _, _, terminated, _, _ = env.step(action)
            assert np.all(terminated) == (number == 3)  # the new user has all the time
        again, _ = env.reset(seed=5)
        assert not np.allclose(middle["documents"], again["documents"])
    listed, _ = ChocKaleVectorEnv(3, WORLD).reset(seed=[7, 6, 5])
    plain, _ = ChocKaleVectorEnv(3, WORLD).reset(seed=5)
    np.testing.assert_array_equal(listed["documents"], plain["documents"][::-1])


def test_misuse_is_refused_in_words():
    env, many = ChocKaleEnv(WORLD), ChocKaleVectorEnv(3, WORLD)
    with pytest.raises(ConfigError, match=r"call reset\(\) first"):
        env.step([[0, 1], [2, 3]])
    with pytest.raises(ConfigError, match=r"call reset\(\) first"):
        many.step(np.zeros((3, 2, 2), int))
    env.reset(seed=0)
    many.reset(seed=0)
    for action in ([[0, 1]], [[0, 5], [1, 2]], [[0, -1], [1, 2]], [[0.0, 1.0], [1.0, 2.0]]):
        with pytest.raises(ConfigError, match="An action is an array of integers"):
            env.step(action)
    with pytest.raises(ConfigError, match="An action is an array of integers"):
        many.step([[0, 1], [2, 3]])
    for _ in range(3):
        left = env.step([[0, 1], [2, 3]])[2]
    assert left
    with pytest.raises(ConfigError, match="the last one left"):
        env.step([[0, 1], [2, 3]])
    with pytest.raises(ConfigError, match="num_envs"):
        ChocKaleVectorEnv(0)
    with pytest.raises(ConfigError, match="one number for each of 3 users"):
        many.reset(seed=[1, 2])
    with pytest.raises(ConfigError, match="made already"):
        ChocKaleEnv(WORLD, slate=3)


class Snacks(gymnasium.Env):
    """An environment of another's: five items a step, of which two are shown; sweet ones engage, and spoil the user."""

    observation_space = gymnasium.spaces.Dict(
        {"sweet": gymnasium.spaces.Box(0, 1, (5,), np.float64), "mood": gymnasium.spaces.Box(0, 1, (), np.float64)}
    )
    action_space = gymnasium.spaces.MultiDiscrete([5, 5])

    def __init__(self, steps=6):
        self.steps, self.log = steps, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left, self.spoilt = self.steps, 0.0
        return self._seen(), {}

    def _seen(self):
        self.sweet = self.np_random.random(5)
        return {"sweet": self.sweet, "mood": np.array(1 / (1 + np.exp(self.spoilt)))}

    def step(self, action):
        assert self.action_space.contains(action)
        slot = int(self.np_random.integers(2))
        taste = self.sweet[action[slot]]
        reward = float((4 + 4 * taste) * np.exp(-0.3 * self.spoilt))
        self.spoilt, self.left = 0.7 * self.spoilt + taste - 0.5, self.left - 1
        self.log.append((action.tolist(), slot, reward))
        return self._seen(), reward, self.left == 0, False, {"slot": slot}


def snack_terms(**slates):
    """Two platforms of three rounds a stay, of which the first has feedback."""
    world = {"preset": "tension", "candidates": 5, "slate": 2, "time_budget": 6}
    settings = {"explorers": 4, "evidence": 0.0, "trial": 0, **slates}
    return Terms.of(from_dict({"protocol": "planned-slates", "rounds": 60, "world": world, "slates": settings}))


def look(observation):
    return observation["sweet"].tolist(), float(observation["mood"])


def tell(observation, reward, info):
    return info["slot"], reward


def test_platforms_plan_in_an_environment_of_anothers(tmp_path):
    """Exploration, sums and a plan; what they have learnt is kept, and goes on."""
    env = Snacks()
    check_env(env, skip_render_check=True)
    env.log.clear()
    with PlanningAgent(snack_terms(), tmp_path, look, tell) as agent:
        before = agent.play(env, 3, seed=3)
        assert not any(platform.has_planned for platform in agent.platforms)
        after = agent.play(env, 1)
        assert all(platform.has_planned for platform in agent.platforms)
        assert [(platform.stays, platform.begun) for platform in agent.platforms] == [(4, 4)] * 2
    assert all(len(set(action)) == 2 for action, _, _ in env.log)
    rewards = np.array([reward for _, _, reward in env.log]).reshape(4, 6)
    np.testing.assert_allclose([*before, *after], rewards.sum(axis=1))
    with PlanningAgent(snack_terms(), tmp_path, look, tell) as agent:
        agent.play(env, 1)
        assert all(platform.has_planned and platform.begun == 5 for platform in agent.platforms)


def test_an_environment_that_is_not_as_agreed_is_refused(tmp_path):
    one = PlanningAgent(snack_terms(), tmp_path, lambda seen: (seen["sweet"][:1].tolist(), None), tell)
    with one as agent, pytest.raises(RefusedError):
        agent.play(Snacks(), 1)
    with pytest.raises(RunError, match="belongs to"):
        PlanningAgent(snack_terms(hold=0.5), tmp_path, look, tell)
