"""RecSim's long-term satisfaction: a golden trace of ``tests/slates/golden/make_recsim_stock_traces.py``."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from fedrank.slates.world.satisfaction import Draws, User, preset

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
    ticks = np.arange(len(left), 0, -1, dtype=np.int32)
    before = User(f32([trace["exposure"], *exposure[:-1]]), ticks, np.zeros(len(left), np.float32))
    draws = Draws(*map(f32, (zero, engagement, innovation, zero)))
    user, turn = jax.vmap(world.step)(before, f32(documents), slates[:, :1].astype(np.int32), draws)
    np.testing.assert_array_equal(turn.item, slates[:, 0])
    np.testing.assert_allclose(turn.engagement, *columns(trace, "engagement"), **NEAR)
    np.testing.assert_allclose(user.exposure, exposure, **NEAR)
    np.testing.assert_array_equal(user.left, left)


@pytest.fixture(scope="module")
def golden():
    return json.loads((GOLDEN / "recsim_stock.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_long_term_satisfaction_is_recsims(golden):
    check_satisfaction(golden["long_term_satisfaction"])


def test_another_world_does_not_pass_for_recsims(golden, monkeypatch):
    """The comparison can fail."""
    known = preset
    monkeypatch.setitem(globals(), "preset", lambda _, **more: known("stock", memory_discount=0.71, **more))
    with pytest.raises(AssertionError):
        check_satisfaction(golden["long_term_satisfaction"])
