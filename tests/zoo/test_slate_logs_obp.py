"""Estimates from logs against the Open Bandit Pipeline's, which made ``tests/zoo/golden/obp.json``."""

import importlib.util
import json
import os
from pathlib import Path

import numpy as np
import pytest

from fedrank_zoo.slate_logs.estimates import Log, Policy, judgement, read_logs, summary, uniform

GOLDEN = Path(__file__).resolve().parent / "golden"
OBP = json.loads((GOLDEN / "obp.json").read_text(encoding="utf-8"))


def compare(found, theirs, near):
    """Values to the last digits; intervals of the normal approximation near those of a bootstrap."""
    for name, one in theirs.items():
        ours = found.estimates[name]
        np.testing.assert_allclose(ours.value, one["value"], rtol=1e-9, err_msg=name)
        if name == "dm":  # theirs is of the rows' mix of positions alone
            assert ours.low is None
            continue
        low, high = one["bootstrap"]
        np.testing.assert_allclose([ours.low, ours.high], [max(low, 0.0), high], atol=near * (high - low), err_msg=name)


def maker():
    place = importlib.util.spec_from_file_location("make_obp_numbers", GOLDEN / "make_obp_numbers.py")
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def test_made_up_log():
    module = maker()
    made = module.made_up()
    shape = np.arange(module.ITEMS), np.arange(module.POSITIONS)
    log = Log("made up", *(made[name] for name in ("items", "positions", "clicks", "propensity")), *shape)
    found = judgement(summary(log, Policy(made["policy"]), made["model"]), 0.0)
    compare(found, OBP["made_up"], near=0.06)
    for name, same in (("rips", "ips"), ("sips", "ips"), ("cdr", "dr")):  # rows are slates of one item
        assert found.estimates[name].value == pytest.approx(found.estimates[same].value, rel=1e-12)
        assert found.estimates[name].high == pytest.approx(found.estimates[same].high, rel=1e-9)


def test_made_up_slates():
    module = maker()
    made = module.made_up_slates()
    items, places = made["items"], np.arange(module.POSITIONS)
    beginnings, marginal = module.chances_of(made["logging"])
    cascade = [beginnings[tuple(slate[: place + 1])] for slate in items.tolist() for place in places]
    log = Log(
        "made up",
        items.ravel(),
        np.tile(places, len(items)),
        made["clicks"].ravel(),
        marginal[items, places].ravel(),
        np.arange(module.CHOICES),
        places,
        np.repeat(np.arange(len(items)), len(places)),
        np.array(cascade),
    )
    found = judgement(summary(log, Policy(made["policy"], distinct=True), made["model"]), 0.0)
    of_slates = {
        name: {"value": one["value"] / len(places), "bootstrap": [end / len(places) for end in one["bootstrap"]]}
        for name, one in OBP["slates"].items()
    }
    compare(found, of_slates, near=0.06)


@pytest.mark.realdata
def test_open_bandit():
    folder = Path(os.environ.get("FEDRANK_DATA", "nowhere"), "bandit/open-bandit-small")
    if not folder.is_dir():
        pytest.skip("needs bandit/open-bandit-small of the real data sets: set FEDRANK_DATA")
    logs = {log.name.split(".")[0]: log for log in read_logs([folder])}
    thompson = np.array(OBP["open_bandit"]["thompson"])
    for name, theirs in OBP["open_bandit"]["logs"].items():
        log, other = logs[name], logs["bts" if name == "random" else "random"]
        assert len(log) == 10_000 and log.rewards.sum() == theirs["clicks"]
        shown, clicks = np.zeros((2, 80, 3))
        np.add.at(shown, (other.items, other.positions), 1)
        np.add.at(clicks, (other.items, other.positions), other.rewards)
        model = (clicks + 10 * other.rewards.mean()) / (shown + 10)
        # A handful of clicks with large weights is skewed: the bootstrap knows, the normal approximation does not.
        compare(judgement(summary(log, Policy(thompson), model), 0.0), theirs["thompson"], near=0.3)
        compare(judgement(summary(log, Policy(uniform(80, 3)), model), 0.0), theirs["uniform"], near=0.3)


@pytest.mark.realdata
def test_published_estimate_of_the_small_sample():
    """0.004553 is the estimate on the front page of the Open Bandit Pipeline, of the same policy by the same rows."""
    assert OBP["open_bandit"]["logs"]["random"]["thompson"]["ips"]["value"] == pytest.approx(0.004553, abs=5e-6)
