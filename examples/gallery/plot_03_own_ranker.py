"""
A ranker of your own
====================

A ranker is a flat vector of weights and a function from features to scores. Size and scores are all that one must
say; every protocol that learns to rank can train it. This one looks at squares of features, too.
``fedrank.FunctionRanker`` makes one from a JAX function; with ``fedrank-zoo`` ``ranker=`` takes PyTorch modules, too.
"""

from dataclasses import dataclass

import jax.numpy as jnp

import fedrank


@dataclass(frozen=True)
class Pairs(fedrank.Ranker):
    """Linear in the features and in the squares of the first five."""

    @property
    def size(self):
        return self.n_features + 5

    def scores(self, weights, features):
        squares = jnp.square(features[..., :5])
        return features @ weights[: self.n_features] + squares @ weights[self.n_features :]


result = fedrank.train("foltr-es", ranker=Pairs(46), clients=100, rounds=20, interactions=8, evaluation__every=5)
print(result.final.where(split="test").select(["measure", "learnt", "MSE (labels)"]))

# %%
# A file cannot hold a class of your own, so that a saved model needs the ranker again.

file = result.model().save("pairs.safetensors")
print(fedrank.load(file, own=Pairs(46)))

# %%
# The own ranker from clicks, beside a linear one from labels.

result
