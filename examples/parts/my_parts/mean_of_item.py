"""A learner of slates from sums over users: what a click on an item engaged, linear in the item's feature."""

from dataclasses import dataclass

import jax.numpy as jnp

from fedrank.slates.sums.learner import SumLearner, item_feature


@dataclass(frozen=True)
class MeanOfItem(SumLearner):
    """A click is worth what items like it engaged on the whole."""

    name, numbers, parameters = "mean-of-item", 2, 2

    def contribution(self, own, item, engagement):
        """What a click adds to its user's sums."""
        return jnp.stack([engagement, engagement * item])

    def solve(self, sums, rounds, model, noise):
        """The model of a release: the sums of a round."""
        return sums / jnp.maximum(rounds, 1.0)

    def values(self, own):
        """What a click on each of the documents that a platform sees is worth."""
        return own.model[0] + own.model[1] * item_feature(own.view.documents)
