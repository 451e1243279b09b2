"""RecSim's two stock worlds: golden traces of ``tests/slates/golden/make_recsim_stock_traces.py``, and live."""

import importlib.util
import json
from pathlib import Path

import jax
import numpy as np
import pytest

from fedrank.slates.world.interest_evolution import QUALITY, InterestEvolution, Videos, Viewer
from fedrank.slates.world.presets import preset
from fedrank.slates.world.satisfaction import Draws, User

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
NEAR = {"rtol": 1e-5, "atol": 2e-6}


def columns(trace, *names):
    return (np.asarray([tick[name] for tick in trace["ticks"]]) for name in names)


def f32(values):
    return np.asarray(values, np.float32)


def check_satisfaction(trace):
    """Every tick from the exposure at which RecSim was; the first slot alone counts."""
    documents, slates, exposure, left = columns(trace, "documents", "slate", "exposure", "left")
    engagement, innovation, zero = *columns(trace, "engagement_draw", "innovation"), np.zeros(len(left))
    world = preset("stock", candidates=documents.shape[1])
    assert len(left) == world.time_budget
    before = User(f32([trace["exposure"], *exposure[:-1]]), np.arange(len(left), 0, -1, dtype=np.int32))
    draws = Draws(*map(f32, (zero, engagement, innovation, zero)))
    user, turn = jax.vmap(world.step)(before, f32(documents), slates[:, :1].astype(np.int32), draws)
    np.testing.assert_array_equal(turn.item, slates[:, 0])
    np.testing.assert_allclose(turn.engagement, *columns(trace, "engagement"), **NEAR)
    np.testing.assert_allclose(user.exposure, exposure, **NEAR)
    np.testing.assert_array_equal(user.left, left)


def check_evolution(trace):
    """Every tick from the interests and the time at which RecSim was."""
    topics, qualities, slates, interests, left = columns(trace, "topics", "qualities", "slate", "interests", "left")
    world = InterestEvolution(candidates=topics.shape[1], slate=slates.shape[1])
    before = Viewer(f32([trace["interests"], *interests[:-1]]), f32([world.time_budget, *left[:-1]]))
    chance = map(f32, columns(trace, "choice", "taste"))
    videos = Videos(topics.astype(np.int32), f32(qualities))
    viewer, seen = jax.vmap(world.step)(before, videos, slates.astype(np.int32), *chance)
    np.testing.assert_array_equal(seen.slot, *columns(trace, "slot"))
    np.testing.assert_allclose(seen.minutes, *columns(trace, "minutes"), **NEAR)
    np.testing.assert_allclose(viewer.interests, interests, **NEAR)
    np.testing.assert_allclose(viewer.left, left, rtol=1e-5, atol=2e-5)
    np.testing.assert_array_equal(viewer.left <= 0, [False] * (len(left) - 1) + [True])
    assert np.abs(qualities - QUALITY[topics]).max() < 0.5, "five standard deviations of the topics' means"


@pytest.fixture(scope="module")
def golden():
    return json.loads((GOLDEN / "recsim_stock.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_long_term_satisfaction_is_recsims(golden):
    check_satisfaction(golden["long_term_satisfaction"])


@pytest.mark.slow
def test_interest_evolution_is_recsims(golden):
    trace = golden["interest_evolution"]
    check_evolution(trace)
    slots = {tick["slot"] for tick in trace["ticks"]}
    assert slots == {0, 1, 2, 3}, "every slot, and nothing"


@pytest.mark.parametrize(
    ("check", "name"), [(check_satisfaction, "long_term_satisfaction"), (check_evolution, "interest_evolution")]
)
def test_another_world_does_not_pass_for_recsims(golden, check, name, monkeypatch):
    """The comparison can fail."""
    known = preset
    monkeypatch.setitem(globals(), "preset", lambda _, **more: known("stock", memory_discount=0.71, **more))
    monkeypatch.setattr("fedrank.slates.world.interest_evolution._STEP", 0.29)
    with pytest.raises(AssertionError):
        check(golden[name])


@pytest.mark.slow
def test_the_installed_recsim_gives_the_same():
    pytest.importorskip("recsim", reason="RecSim is not installed (extra recsim)")
    place = importlib.util.spec_from_file_location("make_recsim_stock_traces", GOLDEN / "make_recsim_stock_traces.py")
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    check_satisfaction(module.long_term_satisfaction(20, 4, 11))
    check_evolution(module.interest_evolution(20, 5, 12))
