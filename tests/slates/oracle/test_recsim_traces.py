"""The satisfaction world against the real RecSim: golden traces, and live where RecSim is installed.

``tests/slates/golden/make_recsim_traces.py`` says how the traces came about. Our arithmetic is float32, RecSim's
float64: clicks, candidates and ends must agree exactly, numbers within float32's rounding.
"""

import functools
import json
from pathlib import Path

import jax
import numpy as np
import pytest

from fedrank.slates.world.satisfaction import Draws, RoundDraws, User, preset

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
TRACES = ("recsim_10", "recsim_100")
#: What runs once and briefly is compiled without LLVM's optimisations, in a third of the time.
NEAR = {"rtol": 1e-5, "atol": 2e-6}


def world_of(trace):
    shared = len(set(trace["document_seeds"])) == 1
    sizes = {"candidates": trace["candidates"], "slate": trace["slate"]}
    return preset("recsim", **sizes, shared_candidates=shared, fresh=False)


def documents_of(trace):
    """float64 [platform, block, N]: what RecSim's document samplers draw."""
    blocks = 2 + max(max(episode["ticks"]["block"]) for episode in trace["episodes"])
    return np.stack(
        [np.random.RandomState(seed).random_sample((blocks, trace["candidates"])) for seed in trace["document_seeds"]]
    )


def f32(values):
    return np.asarray(values, np.float32)


@functools.cache
def stepper(world):
    return jax.jit(jax.vmap(world.step))


@functools.cache
def runner(world):
    def episodes(before, slates, draws):
        def one(scene, row):
            after, turns, done = world.round(scene, *row)
            return after, (after, turns, done)

        first = world.first(before)
        return first, jax.lax.scan(one, first, (slates, draws))[1]

    return jax.jit(episodes)


def check_steps(trace):
    """Every tick by itself, from the state in which RecSim was."""
    world, documents = world_of(trace), documents_of(trace)
    step = stepper(world)
    for episode in trace["episodes"]:
        ticks = {name: np.asarray(values) for name, values in episode["ticks"].items()}
        count = len(ticks["choice"])
        before = User(
            f32([episode["exposure"], *ticks["exposure"][:-1]]),
            np.arange(count, 0, -1, dtype=np.int32),
            np.zeros(count, np.float32),
        )
        kaleness = documents[ticks["platform"], ticks["block"]]
        draws = Draws(*(f32(ticks[name]) for name in ("choice", "engagement_draw", "innovation", "noise")))
        user, turn = jax.device_get(step(before, f32(kaleness), ticks["slate"].astype(np.int32), draws))
        np.testing.assert_array_equal(turn.slot, ticks["slot"])
        np.testing.assert_array_equal(turn.item, ticks["slate"][np.arange(count), ticks["slot"]])
        np.testing.assert_allclose(kaleness[np.arange(count), turn.item], ticks["kaleness"], rtol=1e-9)
        np.testing.assert_allclose(turn.engagement, ticks["engagement"], **NEAR)
        np.testing.assert_allclose(turn.observed, ticks["observed"], **NEAR)
        np.testing.assert_allclose(user.exposure, ticks["exposure"], **NEAR)
        np.testing.assert_array_equal(user.left, ticks["left"])
        np.testing.assert_array_equal(user.left <= 0, ticks["done"])


def check_rounds(trace):
    """Whole episodes on end, by rounds, from the first user to the last: errors may add up, users are replaced."""
    world, documents, episodes = world_of(trace), documents_of(trace), trace["episodes"]
    rounds = world.rounds_per_episode

    def rows(name):
        return np.concatenate([np.reshape(episode["ticks"][name], (rounds, 2, -1)) for episode in episodes]).squeeze()

    # Behind an episode's last round comes the block that the reset drew, in the trace the next episode's first; the
    # very last round is followed by a block that nobody uses.
    blocks = np.append(rows("block")[1:], [rows("block")[-1] + 1], axis=0)
    nothing = {"newcomer": 0.5, "noise": 0.0, "observed": None, "exposure": 0.0}
    newcomers = [*episodes[1:], nothing]
    noise = rows("noise")
    newcomer = np.zeros(len(noise))
    for number, episode in enumerate(newcomers):
        noise[(number + 1) * rounds - 1] = episode["noise"]
        newcomer[(number + 1) * rounds - 1] = episode["newcomer"]
    ticks = Draws(*(f32(rows(name)) for name in ("choice", "engagement_draw", "innovation", "noise")))
    draws = RoundDraws(
        ticks,
        f32(documents[[0, 1], blocks]),
        f32(noise),
        f32(newcomer),
        np.tile(np.arange(2, dtype=np.int32), (len(noise), 1)),
    )
    before = RoundDraws(  # nothing but the first user, the first candidates and the noise on what is seen of them
        jax.tree.map(lambda rows: rows[0], ticks),
        f32(documents[[0, 1], rows("block")[0]]),
        f32([episodes[0]["noise"]] * 2),
        np.float32(episodes[0]["newcomer"]),
        np.arange(2, dtype=np.int32),
    )
    results = runner(world)(before, rows("slate").astype(np.int32), draws)
    scene, (after, turns, done) = jax.device_get(results)
    np.testing.assert_allclose(scene.user.exposure, episodes[0]["exposure"], **NEAR)
    np.testing.assert_allclose(scene.observed[1], episodes[0]["observed"], **NEAR)
    for name, theirs in (("slot", "slot"), ("engagement", "engagement"), ("observed", "observed")):
        np.testing.assert_allclose(getattr(turns, name), rows(theirs), **NEAR)
    np.testing.assert_array_equal(done, rows("done")[:, 1])
    assert int(np.sum(done)) == len(episodes)
    staying = ~np.asarray(done)
    np.testing.assert_allclose(after.user.exposure[staying], rows("exposure")[staying, 1], **NEAR)
    np.testing.assert_allclose(after.observed[staying], rows("observed")[staying], **NEAR)  # fresh=False
    for row, episode in zip(np.flatnonzero(done)[:-1], episodes[1:], strict=True):
        np.testing.assert_allclose(after.user.exposure[row], episode["exposure"], **NEAR)
        np.testing.assert_allclose(after.observed[row, 1], episode["observed"], **NEAR)
        assert int(after.user.left[row]) == world.time_budget


def load(name):
    return json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module", params=TRACES)
def golden(request):
    return load(request.param)


def test_every_tick_is_recsims(golden):
    check_steps(golden)


def test_whole_episodes_are_recsims(golden):
    check_rounds(golden)


def test_the_traces_show_both_settings_and_enough_of_them(golden):
    ticks = [episode["ticks"] for episode in golden["episodes"]]
    assert all(len(values) == 122 for episode in ticks for values in episode.values())
    assert len({slot for episode in ticks for slot in episode["slot"]}) == golden["slate"]
    documents = documents_of(golden)
    dense = golden["document_seeds"][0] == golden["document_seeds"][1]
    assert np.array_equal(documents[0], documents[1]) == dense


@pytest.mark.parametrize("change", [{"semantics": "paper"}, {"memory_discount": 0.89}])
def test_another_world_does_not_pass_for_recsims(change, monkeypatch):
    """The comparison can fail: one changed constant is noticed."""
    trace = load("recsim_10")
    altered = preset("recsim", **change)
    monkeypatch.setitem(globals(), "world_of", lambda trace: altered)
    with pytest.raises(AssertionError):
        check_steps({**trace, "episodes": trace["episodes"][:1]})
