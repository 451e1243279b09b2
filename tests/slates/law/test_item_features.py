"""Items of several features: what is fitted of them, and which of them a plan goes by."""

from typing import Any

import numpy as np
import pytest

from fedrank.core.errors import ConfigError
from fedrank.core.protocol import Party
from fedrank.engine.settings import from_dict
from fedrank.slates.build import experiment_of
from fedrank.slates.planning.items import ItemsLearner, differ_from_design, rows_at, simulate_design, taste_places
from fedrank.slates.sums.learner import next_taste
from fedrank.slates.sums.stays import StayRounds
from fedrank.slates.world.choice import Multinomial
from fedrank.slates.world.satisfaction import Satisfaction, Turn


def _experiment(d, **more) -> Any:
    settings = {
        "protocol": "planned-slates",
        "rounds": 61 * 4,
        "seeds": 1,
        "world": {"preset": "tension", "features": d},
    }
    return experiment_of(from_dict({**settings, **more}).resolved())


def test_features_are_a_rotation_of_kaleness_and_of_what_says_nothing():
    kaleness = np.random.default_rng(0).random((400, 50), np.float32)
    z = Satisfaction(features=5).item_features(kaleness)
    moments = np.einsum("uic,uid->cd", z, z) / kaleness.size
    np.testing.assert_allclose(moments, np.eye(5) / 3, atol=0.01)  # uniform in [−1, 1], uncorrelated
    weights, residual, *_ = np.linalg.lstsq(z.reshape(-1, 5), 2 * kaleness.ravel() - 1, rcond=None)
    assert np.linalg.norm(weights) == pytest.approx(1, abs=1e-5) and residual < 1e-3
    np.testing.assert_array_equal(Satisfaction().item_features(kaleness)[..., 0], 2 * kaleness - 1)


def test_tastes_of_one_feature_are_those_of_before():
    uniform = np.random.default_rng(1).random((1000, 2), np.float32)
    before = np.where(uniform[:, 1] < 0.5, 1, -1)  # all draw: a user has just come
    np.testing.assert_array_equal(next_taste(np.zeros(1000, np.float32), uniform, 0.2), before)
    assert set(next_taste(np.zeros(1000, np.float32), uniform, 0.2, 3).tolist()) == {1, -1, 2, -2, 3, -3}


def test_a_taste_shows_the_items_with_the_highest_or_the_lowest_value():
    z = np.random.default_rng(2).standard_normal((2, 6, 3)).astype(np.float32)
    places = taste_places(np.array([2.0, -3.0], np.float32), z, 2)
    np.testing.assert_array_equal(places[0], np.argsort(-z[0, :, 1])[:2])
    np.testing.assert_array_equal(places[1], np.argsort(z[1, :, 2])[:2])
    np.testing.assert_array_equal(rows_at(z, places)[1, 0], z[1, places[1, 0]])


def test_means_of_whitened_sums_give_back_the_weights():
    """Without noise in engagement, least squares are exact: the sums are of f f' theta over the design itself."""
    learner: Any = _experiment(3, slates={"feedback": "all"}).protocol.learner
    assert isinstance(learner, ItemsLearner) and learner.fade is not None
    whole, past, _ = learner.whitenings
    kale = np.array([0.5, -0.2, 0.1])
    theta = np.concatenate([[1.2], 0.05 * kale, 0.3 * kale])
    rounds, zero = 1e6, np.zeros(3)
    design = simulate_design(learner.world, learner.fade, learner.hold, zero)
    logs = learner.factors[0] * (whole @ design.features @ theta)
    seen = np.array([0.0, *(0.01 * kale)])
    satisfied = learner.factors[1] * (past @ design.features[:4, :4] @ seen)
    sums = rounds * np.concatenate([logs, zero, satisfied])
    model = learner.solve_platforms(
        np.array([sums, sums]), np.ones(2, bool), np.array(rounds), np.zeros(1), np.array(0.0)
    )
    c, w, v, h, traces = model[0], model[1:4], model[4:7], model[7:10], model[10:]
    np.testing.assert_allclose([c, *w], theta[[0, 4, 5, 6]], rtol=0.02)
    np.testing.assert_allclose(h, 0, atol=1e-5)
    np.testing.assert_allclose(v / np.linalg.norm(v), kale / np.linalg.norm(kale), atol=1e-3)
    assert v @ design.items @ v == pytest.approx(1 / 3, rel=1e-3)
    # What satisfaction says of the past is the weight by the mean logarithm of engagement over its mean.
    level = (1.2 + np.log(learner.scale)) / 0.5
    assert traces[0] * np.linalg.norm(v) == pytest.approx(0.01 * np.linalg.norm(kale) * level, rel=0.2)


def _items(kind, random, *shape):
    """Independent and uniform in [−1, 1]; else correlated by .8, in [0, 1], or with two rare columns of 0 and 1."""
    z = random.uniform(-1, 1, (*shape, 4))
    if kind == "correlated":
        z = random.standard_normal((*shape, 4)) / np.sqrt(3)
        z[..., 1] = 0.8 * z[..., 0] + 0.6 * z[..., 1]
    if kind == "rare":
        z[..., :2] = random.random((*shape, 2)) < 0.05
    return (z + 1) / 2 if kind == "in [0, 1]" else z


def _whitening(items):
    apart = np.linalg.inv(np.linalg.cholesky(np.cov(items.T))) / np.sqrt(3)
    return items.mean(axis=0), apart.T


@pytest.mark.parametrize(
    ("kind", "as_they_are", "whitened"),
    [("uniform", True, True), ("correlated", False, True), ("in [0, 1]", False, True), ("rare", False, False)],
)
def test_items_unlike_those_of_the_design_are_found_out(kind, as_they_are, whitened):
    for number in (100, 10_000):
        items = _items(kind, np.random.default_rng(4), number)
        mean, apart = _whitening(items)
        assert (differ_from_design(items) == "") == as_they_are
        assert (differ_from_design((items - mean) @ apart) == "") == whitened


@pytest.mark.parametrize("kind", ["uniform", "correlated", "in [0, 1]"])
def test_weights_of_whitened_items_are_found_with_their_signs(kind):
    learner: Any = _experiment(
        4, slates={"feedback": "all"}, world={"preset": "tension", "features": 4, "candidates": 30, "slate": 5}
    ).protocol.learner
    users, rounds, random = 300, learner.world.rounds_per_episode, np.random.default_rng(1)
    mean, apart = _whitening(_items(kind, random, 5000))
    now, later = np.array([0.6, -0.4, 0.2, 0.0]), np.array([-0.1, 0.05, 0.0, 0.0])
    own, sums, trace = learner.first_state(None, np.zeros(users, np.int32)), 0.0, np.zeros((users, 4))
    for number in range(rounds):
        items = _items(kind, random, users, 30)
        view = own.view._replace(documents=((items - mean) @ apart).astype(np.float32))
        own = own._replace(view=view)
        taste, places = learner.explore_slate(own, random.random((users, 2), np.float32))
        seen = (0.5 + 0.02 * trace @ later).astype(np.float32)
        view = view._replace(taste=taste, observed=seen, left=np.full(users, rounds - number, np.int32))
        own, slot = own._replace(slate=np.asarray(places, np.int32), view=view), random.integers(0, 5, users)
        item = np.take_along_axis(places, slot[:, None], 1)[:, 0]
        clicked = items[np.arange(users), item]
        logs = 2 + clicked @ now + trace @ later / 2 + random.normal(0, 0.3, users)
        turn = Turn(slot, item, np.exp(logs).astype(np.float32), seen)
        sums = sums + learner.round_part(own, turn).sum(axis=0)
        own, trace = (
            own._replace(view=view._replace(known=learner.known_after(own, turn))),
            learner.fade * trace - clicked,
        )
    told = (np.array([sums, sums]), np.ones(2, bool), np.array(1.0 * users * rounds), np.zeros(1), np.array(0.0))
    w, v = (apart @ part for part in learner.solve_platforms(*told)[1:9].reshape(2, 4))
    np.testing.assert_allclose(w, now, atol=0.15)
    assert v @ later / np.linalg.norm(v) / np.linalg.norm(later) > 0.9


@pytest.mark.slow
def test_eight_features_are_told_from_those_that_say_nothing():
    experiment = _experiment(8, rounds=61 * 1600)
    rounds = StayRounds(experiment.protocol)
    keys = rounds.keys([9100])
    states, own = rounds.begin(keys, Party(None, None))
    states, own, _ = rounds.advance(keys, states, None, own, 0, 61 * 1600)
    model = rounds.models(states)[0]
    direction = model[9:17] / np.linalg.norm(model[9:17])
    features = experiment.world.item_features(np.linspace(0, 1, 500, dtype=np.float32))
    kale = np.linalg.lstsq(features, np.linspace(-1, 1, 500), rcond=None)[0]
    assert direction @ kale / np.linalg.norm(kale) > 0.9
    np.testing.assert_allclose(model[17:25] @ kale, -0.5, atol=0.1)  # the choice: odds exp(1 − kaleness)


def test_other_protocols_and_choices_refuse_several_features():
    with pytest.raises(ConfigError, match=r"world\.features"):
        experiment_of(from_dict({"protocol": "vertical-slate", "world": {"features": 2}}).resolved())
    with pytest.raises(ConfigError):
        _experiment(2, world={"features": 2, "choice": "proportional"})
    with pytest.raises(ConfigError):
        _experiment(2, slates={"design": "sent"})
    assert isinstance(_experiment(2).world.choice, Multinomial)


def test_items_may_have_more_features_than_there_are_candidates():
    learner: Any = _experiment(12, world={"preset": "tension", "features": 12, "candidates": 10, "slate": 3}).protocol
    learner = learner.learner
    own, random = learner.first_state(None, np.zeros(4, np.int32)), np.random.default_rng(5)
    values = np.concatenate([random.random((4, 10), np.float32), np.zeros((4, 1), np.float32)], axis=1)
    own = own._replace(
        view=own.view._replace(documents=random.normal(size=(4, 10, 12)).astype(np.float32)),
        model=np.ones((4, learner.parameters), np.float32),
    )
    slate = learner.best(own, values)
    assert slate.shape == (4, 3) and slate.max() < 10 and all(len(set(row)) == 3 for row in slate.tolist())
