"""SlateQ: long-term values of slates, from values of single items (Ie et al. 2019, arXiv 1905.12767).

What comes after a slate depends on the clicked item alone, so the value of a click on an item is learnt from

    y = r + γ (1 − d) Σ_{j∈A′} P(j | s′, A′) Q(s′, j)

with the reward r of the clicked item, d = 1 if the episode has ended, and the slate A′ of the *next* state s′: the one
that was shown there (SARSA, equation 6 of Deng et al. 2024), or one that is chosen by the values (equations 7 and 8).
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.slates.learners.slate_choice import Score, exact, greedy, slate_value, top_k

#: Names of the next slates that a target can be made with.
TARGETS = ("sarsa", "greedy", "top-k", "optimal")

_CHOSEN = {"greedy": greedy, "top-k": top_k, "optimal": exact}


def next_value(
    kind: str,
    v: Float[Array, " candidates"],
    q: Float[Array, " candidates"],
    v0: Score,
    n: int,
    slate: Int[Array, " slots"] | None = None,
) -> Float[Array, ""]:
    """The value of the next state: that of a slate there.

    Args:
        kind: One of :data:`TARGETS`.
        v: Choice scores of the next candidates, positive.
        q: Their values, from the target network, at the next state.
        v0: Score of no click; 0 if the user always clicks.
        n: Items of a slate.
        slate: The slate that was shown next; only ``"sarsa"`` looks at it.

    Raises:
        UnknownNameError: No such target.
        ConfigError: ``"sarsa"`` without a slate.
    """
    if kind not in TARGETS:
        raise UnknownNameError("target", kind, TARGETS)
    if kind != "sarsa":
        return slate_value(v, q, _CHOSEN[kind](v, q, n, v0), v0)
    if slate is None:
        raise ConfigError("the target 'sarsa' needs the slate that was shown next, got None.")
    return slate_value(v, q, slate, v0)


def huber(error: Float[Array, "*shape"], threshold: float = 1.0) -> Float[Array, "*shape"]:
    """Huber's loss: ½ e² up to the threshold t, and t (``|e|`` − ½ t) beyond."""
    size = jnp.abs(error)
    return jnp.where(size <= threshold, 0.5 * error * error, threshold * (size - 0.5 * threshold))
