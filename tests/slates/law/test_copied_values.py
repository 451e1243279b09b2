"""FedSlate without equation 15: a platform without feedback learns nothing, and is served another's values."""

import jax.numpy as jnp
import numpy as np
import pytest
from slate_worlds import settings, slates

from fedrank.core.errors import ConfigError
from fedrank.slates.fedslate.learner import federated_values, joint_values

COPY = {"regress": "nothing", "choice": "true"}


def test_no_target_and_no_step_is_asked_of_whoever_has_no_feedback():
    exchanges = slates(**COPY).exchanges
    assert [e.platform for e in exchanges if e.name in ("compare", "step")] == [0, 0]
    assert next(e for e in exchanges if e.name == "step").last


def test_it_is_served_the_values_of_the_first_platform_with_feedback():
    s = settings(**COPY, sees=(False, True, False), world={"platforms": 3, "time_budget": 15})
    rng = np.random.default_rng(0)
    values, weights = (
        jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((3, 5), (s.federated_network.size,))
    )
    # Of equation 9, with the mean of the others.
    expected = joint_values(s, weights, values[1], (values[0] + values[2]) / 2)
    found = federated_values(s, weights, values)
    np.testing.assert_allclose(found, np.tile(expected, (3, 1)), rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"choice": "true", "world": {"shared_candidates": False}}, "same items at all"),
        ({"choice": "learned"}, "learnt choice model"),
    ],
)
def test_where_there_is_nothing_to_copy_it_is_refused(given, says):
    with pytest.raises(ConfigError, match=says):
        settings(regress="nothing", **given)
